//! Clients that are told when a list or a resource changes: sessions on a stream or with an open `GET`, and subscriptions of version
//! 2026-07-28.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::message::{self, RequestId, RpcError};
use crate::server::catalog::Catalog;
use crate::server::in_flight::Ticket;
use crate::server::outbox::{Message, Outbox, Reply};
use crate::server::state::ServerState;

/// Method that subscribes.
pub(crate) const METHOD: &str = "subscriptions/listen";

/// Maximum number of resources that a session follows, or a subscription. Each has a URI of up to 2 KiB.
pub const MAX_FOLLOWED: usize = 256;

/// Name of the subscription in the `_meta` of what is sent for it.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Name of the followed resources in a subscription.
const FOLLOWED: &str = "resourceSubscriptions";

/// List that can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Tools,
    Resources,
    Prompts,
}

impl List {
    const ALL: [Self; 3] = [Self::Tools, Self::Resources, Self::Prompts];

    /// Notification of a change.
    fn changed(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Resources => "notifications/resources/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
        }
    }

    /// Name in a subscription.
    fn name(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Resources => "resourcesListChanged",
            Self::Prompts => "promptsListChanged",
        }
    }
}

/// URIs of the resources that a client follows: it is told when one of them changes.
#[derive(Clone, Default)]
pub(crate) struct Followed(Arc<Mutex<BTreeSet<String>>>);

impl Followed {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a resource, again or for the first time.
    ///
    /// # Errors
    /// Fails beyond [`MAX_FOLLOWED`].
    pub(crate) fn add(&self, uri: &str) -> Result<(), RpcError> {
        let mut uris = self.lock();
        if uris.len() >= MAX_FOLLOWED && !uris.contains(uri) {
            return Err(RpcError::invalid_params(format!(
                "{MAX_FOLLOWED} resources are followed already"
            )));
        }
        uris.insert(uri.to_owned());
        Ok(())
    }

    /// Follows a resource no more.
    pub(crate) fn remove(&self, uri: &str) {
        self.lock().remove(uri);
    }

    fn uris(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }
}

/// Notifications that a client asked for.
#[derive(Clone)]
pub(crate) struct Wanted {
    /// Lists whose changes it wants.
    lists: Vec<List>,
    followed: Followed,
}

/// Clients that are told. Each holds a connection or a request, whose numbers are limited.
#[derive(Default)]
pub(crate) struct Listeners {
    all: Mutex<All>,
    /// Cancelled when no change is told any more, because the server ends.
    pub(crate) closed: CancellationToken,
}

#[derive(Default)]
struct All {
    last: u64,
    listeners: BTreeMap<u64, (Outbox, Value, Wanted)>,
}

/// Client that is told, until this is dropped.
pub(crate) struct Listening {
    listeners: Arc<Listeners>,
    key: u64,
}

impl Listeners {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the client of a session, which follows these resources and all lists.
    pub(crate) fn add_session(self: &Arc<Self>, outbox: Outbox, followed: Followed) -> Listening {
        let lists = List::ALL.into();
        self.add(outbox, json!({}), Wanted { lists, followed })
    }

    /// Adds a subscription.
    pub(crate) fn add_subscription(
        self: &Arc<Self>,
        outbox: Outbox,
        id: &RequestId,
        wanted: Wanted,
    ) -> Listening {
        self.add(outbox, json!({ "_meta": meta(id) }), wanted)
    }

    fn add(self: &Arc<Self>, outbox: Outbox, params: Value, wanted: Wanted) -> Listening {
        let mut all = self.lock();
        all.last += 1;
        let key = all.last;
        all.listeners.insert(key, (outbox, params, wanted));
        drop(all);
        Listening {
            listeners: self.clone(),
            key,
        }
    }

    /// Tells all clients that a list has changed. One that reads nothing is told while there is room for messages to it.
    pub(crate) fn tell(&self, list: List) {
        for (outbox, params, wanted) in self.lock().listeners.values() {
            if wanted.lists.contains(&list) {
                outbox.tell(message::notification(list.changed(), params));
            }
        }
    }

    /// Tells each client which of the resources that it follows have changed, as [`tell`](Self::tell).
    pub(crate) fn tell_updated(&self, is_updated: impl Fn(&str) -> bool) {
        for (outbox, params, wanted) in self.lock().listeners.values() {
            for uri in wanted.followed.uris().into_iter().filter(|uri| is_updated(uri)) {
                let mut params = params.clone();
                params["uri"] = uri.into();
                outbox.tell(message::notification("notifications/resources/updated", &params));
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.listeners.lock().listeners.remove(&self.key);
    }
}

fn meta(id: &RequestId) -> Value {
    json!({ SUBSCRIPTION: id })
}

/// Returns what is offered of the notifications that a subscription asks for.
///
/// # Errors
/// Fails if its parameters do not say which notifications are wanted, or are too many.
pub(crate) fn wanted(params: &Map<String, Value>, catalog: &Catalog) -> Result<Wanted, RpcError> {
    let Some(Value::Object(wanted)) = params.get("notifications") else {
        return Err(RpcError::invalid_params("`notifications` is not an object"));
    };
    let is_wanted =
        |list: &List| wanted.get(list.name()) == Some(&Value::Bool(true)) && catalog.context.has_list(*list);
    let followed = Followed::default();
    let uris = match wanted.get(FOLLOWED) {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(uris)) => &uris[..],
        Some(_) => return Err(not_uris()),
    };
    for uri in uris {
        let uri = uri.as_str().ok_or_else(not_uris)?;
        if catalog.context.is_followable(uri) {
            followed.add(uri)?;
        }
    }
    Ok(Wanted {
        lists: List::ALL.into_iter().filter(is_wanted).collect(),
        followed,
    })
}

fn not_uris() -> RpcError {
    RpcError::invalid_params(format!("`{FOLLOWED}` is not a list of URIs"))
}

/// Subscription with accepted parameters.
pub(crate) struct Subscription {
    pub(crate) ticket: Ticket,
    pub(crate) server: Arc<ServerState>,
    pub(crate) outbox: Outbox,
    pub(crate) wanted: Wanted,
}

impl Subscription {
    /// Tells of changes until the client cancels it, or the server ends.
    pub(crate) async fn complete(self, reply: Reply) {
        let Self {
            ticket,
            server,
            outbox,
            wanted,
        } = self;
        outbox.ask(acknowledgement(ticket.id(), &wanted)).await;
        let listening = server
            .listeners
            .add_subscription(outbox.clone(), ticket.id(), wanted);
        tokio::select! {
            () = ticket.cancelled() => {}
            () = server.listeners.closed.cancelled() => {}
        }
        drop(listening);
        let last = end(ticket.id(), &server.info);
        if let Some(room) = outbox.try_room(last.len())
            && ticket.is_answered()
        {
            outbox.send(&reply, Message::of_call(last, room, ticket, None));
        }
    }
}

/// First message of a subscription: which notifications it gets.
fn acknowledgement(id: &RequestId, wanted: &Wanted) -> Vec<u8> {
    let lists = wanted.lists.iter();
    let mut honoured: Map<String, Value> = lists.map(|list| (list.name().into(), true.into())).collect();
    let uris = wanted.followed.uris();
    if !uris.is_empty() {
        honoured.insert(FOLLOWED.into(), uris.into());
    }
    let params = json!({ "notifications": honoured, "_meta": meta(id) });
    message::notification("notifications/subscriptions/acknowledged", &params)
}

/// Last message of a subscription that the server ends.
fn end(id: &RequestId, server: &Value) -> Vec<u8> {
    let mut meta = meta(id);
    meta["io.modelcontextprotocol/serverInfo"] = server.clone();
    message::response(id, &json!({ "resultType": "complete", "_meta": meta }))
}

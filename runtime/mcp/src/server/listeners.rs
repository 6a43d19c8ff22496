//! Clients that are told when a list changes: sessions on a stream or with an open `GET`, and subscriptions of version
//! 2026-07-28.

use std::collections::BTreeMap;
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

/// Name of the subscription in the `_meta` of what is sent for it.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

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
    listeners: BTreeMap<u64, (Outbox, Value, Vec<List>)>,
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

    /// Adds the client of a session.
    pub(crate) fn add_session(self: &Arc<Self>, outbox: Outbox) -> Listening {
        self.add(outbox, json!({}), List::ALL.into())
    }

    /// Adds a subscription.
    pub(crate) fn add_subscription(
        self: &Arc<Self>,
        outbox: Outbox,
        id: &RequestId,
        lists: Vec<List>,
    ) -> Listening {
        self.add(outbox, json!({ "_meta": meta(id) }), lists)
    }

    fn add(self: &Arc<Self>, outbox: Outbox, params: Value, lists: Vec<List>) -> Listening {
        let mut all = self.lock();
        all.last += 1;
        let key = all.last;
        all.listeners.insert(key, (outbox, params, lists));
        drop(all);
        Listening {
            listeners: self.clone(),
            key,
        }
    }

    /// Tells all clients that a list has changed. One that reads nothing is told while there is room for messages to it.
    pub(crate) fn tell(&self, list: List) {
        for (outbox, params, lists) in self.lock().listeners.values() {
            if lists.contains(&list) {
                outbox.tell(message::notification(list.changed(), params));
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

/// Returns the lists that are offered and whose changes a subscription asks for.
///
/// # Errors
/// Fails if its parameters do not say which notifications are wanted.
pub(crate) fn wanted(params: &Map<String, Value>, catalog: &Catalog) -> Result<Vec<List>, RpcError> {
    let Some(Value::Object(wanted)) = params.get("notifications") else {
        return Err(RpcError::invalid_params("`notifications` is not an object"));
    };
    let is_wanted =
        |list: &List| wanted.get(list.name()) == Some(&Value::Bool(true)) && catalog.context.has_list(*list);
    Ok(List::ALL.into_iter().filter(is_wanted).collect())
}

/// Subscription with accepted parameters.
pub(crate) struct Subscription {
    pub(crate) ticket: Ticket,
    pub(crate) server: Arc<ServerState>,
    pub(crate) outbox: Outbox,
    /// Lists whose changes it wants.
    pub(crate) lists: Vec<List>,
}

impl Subscription {
    /// Tells of changes until the client cancels it, or the server ends.
    pub(crate) async fn complete(self, reply: Reply) {
        let Self {
            ticket,
            server,
            outbox,
            lists,
        } = self;
        outbox.ask(acknowledgement(ticket.id(), &lists)).await;
        let listening = server
            .listeners
            .add_subscription(outbox.clone(), ticket.id(), lists);
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
fn acknowledgement(id: &RequestId, lists: &[List]) -> Vec<u8> {
    let honoured: Map<String, Value> = lists
        .iter()
        .map(|list| (list.name().into(), true.into()))
        .collect();
    let params = json!({ "notifications": honoured, "_meta": meta(id) });
    message::notification("notifications/subscriptions/acknowledged", &params)
}

/// Last message of a subscription that the server ends.
fn end(id: &RequestId, server: &Value) -> Vec<u8> {
    let mut meta = meta(id);
    meta["io.modelcontextprotocol/serverInfo"] = server.clone();
    message::response(id, &json!({ "resultType": "complete", "_meta": meta }))
}

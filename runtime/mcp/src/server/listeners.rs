//! Clients that are told when the list of tools changes: sessions on a stream or with an open `GET`, and subscriptions of version
//! 2026-07-28.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::message::{self, RequestId, RpcError};
use crate::server::in_flight::Ticket;
use crate::server::outbox::{Message, Outbox, Reply};
use crate::server::state::ServerState;

/// Method that subscribes.
pub(crate) const METHOD: &str = "subscriptions/listen";

/// Notification of a change.
const CHANGED: &str = "notifications/tools/list_changed";

/// Name of the subscription in the `_meta` of what is sent for it.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

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
    listeners: BTreeMap<u64, (Outbox, Value)>,
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
        self.add(outbox, json!({}))
    }

    /// Adds a subscription.
    pub(crate) fn add_subscription(self: &Arc<Self>, outbox: Outbox, id: &RequestId) -> Listening {
        self.add(outbox, json!({ "_meta": meta(id) }))
    }

    fn add(self: &Arc<Self>, outbox: Outbox, params: Value) -> Listening {
        let mut all = self.lock();
        all.last += 1;
        let key = all.last;
        all.listeners.insert(key, (outbox, params));
        drop(all);
        Listening {
            listeners: self.clone(),
            key,
        }
    }

    /// Tells all clients that the list has changed. One that reads nothing is told while there is room for messages to it.
    pub(crate) fn tell(&self) {
        for (outbox, params) in self.lock().listeners.values() {
            outbox.tell(message::notification(CHANGED, params));
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

/// Returns whether the parameters of a subscription ask for changes of the list of tools.
///
/// # Errors
/// Fails if they do not say which notifications are wanted.
pub(crate) fn wants_tools(params: &Map<String, Value>) -> Result<bool, RpcError> {
    match params.get("notifications") {
        Some(Value::Object(wanted)) => Ok(wanted.get("toolsListChanged") == Some(&Value::Bool(true))),
        _ => Err(RpcError::invalid_params("`notifications` is not an object")),
    }
}

/// Subscription with accepted parameters.
pub(crate) struct Subscription {
    pub(crate) ticket: Ticket,
    pub(crate) server: Arc<ServerState>,
    pub(crate) outbox: Outbox,
    /// True if it wants changes of the list of tools.
    pub(crate) has_tools: bool,
}

impl Subscription {
    /// Tells of changes until the client cancels it, or the server ends.
    pub(crate) async fn complete(self, reply: Reply) {
        let Self {
            ticket,
            server,
            outbox,
            has_tools,
        } = self;
        outbox.ask(acknowledgement(ticket.id(), has_tools)).await;
        let listening = has_tools.then(|| server.listeners.add_subscription(outbox.clone(), ticket.id()));
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
fn acknowledgement(id: &RequestId, has_tools: bool) -> Vec<u8> {
    let honoured = match has_tools {
        true => json!({ "toolsListChanged": true }),
        false => json!({}),
    };
    let params = json!({ "notifications": honoured, "_meta": meta(id) });
    message::notification("notifications/subscriptions/acknowledged", &params)
}

/// Last message of a subscription that the server ends.
fn end(id: &RequestId, server: &Value) -> Vec<u8> {
    let mut meta = meta(id);
    meta["io.modelcontextprotocol/serverInfo"] = server.clone();
    message::response(id, &json!({ "resultType": "complete", "_meta": meta }))
}

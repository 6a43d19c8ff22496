//! Messages that belong to no request: over HTTP they come on streams of their own, which are opened again when they end.
//!
//! A change that the server told while no stream was open is unknown. So the lists count as changed each time a stream was
//! opened, and from time to time if the server tells its changes nowhere.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::client::error::ServerError;
use crate::client::http::{Endpoint, ListenPause, Outgoing};
use crate::client::message;
use crate::client::pending::Shared;

/// Time after which a call reads the list of tools again, if a server says that it tells changes and does not.
const UNTOLD_CHANGES: Duration = Duration::from_secs(5);

const METHOD: &str = "subscriptions/listen";

/// Reads what belongs to no request.
pub(in crate::client) struct Listening {
    pub(in crate::client) shared: Arc<Shared>,
    pub(in crate::client) outbox: mpsc::Sender<Vec<u8>>,
    /// Parameters of the request for it, in versions without sessions.
    pub(in crate::client) subscription: Option<Value>,
    /// True if the server says that it tells changes of its tools.
    pub(in crate::client) tells_changes: bool,
}

impl Listening {
    /// Asks for changes on a stream, where they come between the answers.
    pub(in crate::client) async fn on_stream(&self) {
        // Older versions tell them without being asked.
        let Some(params) = &self.subscription else { return };
        let id = self.shared.next_id();
        let end = self.shared.end_of_subscription(id);
        if self
            .outbox
            .send(message::request(id, METHOD, params))
            .await
            .is_ok()
        {
            end.cancelled().await;
        }
        self.untold().await;
    }

    /// Opens streams over HTTP, one after the other, until the server has none.
    pub(in crate::client) async fn over_http(&self, http: &Endpoint) {
        let receive = |received| self.shared.receive(received, &self.outbox);
        let opened = || self.shared.set_stale();
        let mut pause = ListenPause::default();
        let mut last = None;
        loop {
            let subscription = self.subscription.as_ref().map(|params| {
                let id = self.shared.next_id();
                Outgoing {
                    id,
                    method: METHOD,
                    params,
                    headers: HeaderMap::new(),
                    body: message::request(id, METHOD, params),
                }
            });
            let followed = http.follow(subscription, &mut last, &receive, &opened).await;
            let wait = match followed {
                Ok(followed) => pause.after(Some(&followed)),
                Err(ServerError::Flood) => return self.shared.close(ServerError::Flood),
                Err(ServerError::SessionLost) => return,
                Err(error) if can_open_later(&error) => pause.after(None),
                Err(_) => return self.untold().await,
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Marks the lists as changed from time to time, instead of the server.
    async fn untold(&self) {
        if !self.tells_changes {
            return;
        }
        loop {
            self.shared.set_stale();
            tokio::time::sleep(UNTOLD_CHANGES).await;
        }
    }
}

/// True if a stream that could not be opened may be opened later, such as while the server is started again.
fn can_open_later(error: &ServerError) -> bool {
    match error {
        ServerError::Unreachable(_) | ServerError::Cut => true,
        ServerError::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500 | 502..=599),
        // The method, its parameters, or the request are none that the server knows.
        ServerError::Answered { code, .. } => !matches!(code, -32602..=-32600),
        _ => false,
    }
}

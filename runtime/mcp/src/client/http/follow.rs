//! Streams for messages that belong to no request, and the pauses between them.

use std::time::Duration;

use tokio::time::Instant;

use super::events::Events;
use super::exchange::form;
use super::{Endpoint, Form, MAX_REFUSAL_BYTES, MAX_RETRY, MIN_RETRY, Outgoing, RETRY, Receive};
use crate::client::error::ServerError;
use crate::client::message::{self, Received};

/// Maximum pause before the stream for messages that belong to no request is opened again.
const MAX_LISTEN_PAUSE: Duration = Duration::from_secs(60);

/// A stream that ended.
pub(in crate::client) struct Followed {
    /// Pause before the next one that the server states.
    retry: Option<Duration>,
    /// True if it told something, or was open for some time.
    has_worked: bool,
}

/// Pauses between the streams for messages that belong to no request.
pub(in crate::client) struct ListenPause(Duration);

impl Default for ListenPause {
    fn default() -> Self {
        Self(RETRY)
    }
}

impl ListenPause {
    /// Pause after a stream, or after the failure to open one.
    pub(in crate::client) fn after(&mut self, followed: Option<&Followed>) -> Duration {
        if followed.is_some_and(|followed| followed.has_worked) {
            self.0 = RETRY;
        }
        let pause = self.0;
        self.0 = (self.0 * 2).min(MAX_LISTEN_PAUSE);
        let retry = followed.and_then(|followed| followed.retry);
        retry.map_or(pause, |retry| retry.clamp(MIN_RETRY, MAX_RETRY))
    }
}

impl Endpoint {
    /// Reads messages that belong to no request from one stream, from the event after `last`, up to its end. `subscription` is
    /// the request for it, in versions without sessions. `opened` is called once the server tells such messages.
    pub(in crate::client) async fn follow(
        &self,
        subscription: Option<Outgoing<'_>>,
        last: &mut Option<String>,
        receive: &Receive<'_>,
        opened: &(dyn Fn() + Send + Sync),
    ) -> Result<Followed, ServerError> {
        let subscribed = subscription.as_ref().map(|outgoing| outgoing.id);
        let mut response = match subscription {
            None => self.listen(last.as_deref()).await?,
            Some(Outgoing {
                method, params, body, ..
            }) => {
                let request = self.message(method, Some(params)).body(body);
                let mut response = self.send(request, method).await?;
                if form(&response, method, &self.redactor())? == Form::Json {
                    let body = self.body_of(&mut response, method, MAX_REFUSAL_BYTES).await?;
                    return Err(match message::parse_refusal(&body) {
                        Some((code, message)) => ServerError::Answered {
                            method: method.to_owned(),
                            code,
                            message,
                        },
                        None => ServerError::invalid(method, "is not a stream of events"),
                    });
                }
                response
            }
        };
        opened();
        let begun = Instant::now();
        let mut events = Events::default();
        let mut size = 0;
        let receive = |received| match received {
            // The answer ends a subscription. Another one has no place here.
            Received::Answer { id, .. } if Some(id) == subscribed => Ok(true),
            Received::Answer { .. } => receive(Received::Invalid).map(|()| false),
            other => receive(other).map(|()| false),
        };
        let read = self
            .read_events(&mut response, &mut events, &mut size, "", &receive)
            .await;
        if let Err(error @ ServerError::Flood) = read {
            return Err(error);
        }
        *last = events.last_id.or(last.take());
        Ok(Followed {
            retry: events.retry,
            has_worked: size > 0 || begun.elapsed() >= MAX_LISTEN_PAUSE,
        })
    }
}

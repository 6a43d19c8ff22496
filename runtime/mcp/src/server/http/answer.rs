//! Bodies of responses: one message, or events in the order in which they come.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::time::{Instant, Sleep};

use crate::server::outbox::{Message, Unwritten};

/// Time without an event after which a comment is sent, so that proxies keep the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Maximum size of a part that is handed to the connection, in bytes. It takes the next when it has written most of them.
const PART_BYTES: usize = 64 << 10;

/// Beginning and end of an event.
const EVENT: &[u8] = b"event: message\ndata: ";
const EVENT_END: &[u8] = b"\n\n";

/// Body of a response.
pub(crate) enum Answer {
    /// Bytes of a text or a message.
    Whole(Parts),
    /// Messages as server-sent events, until none can follow.
    Events(Events),
}

/// Rest of a message or a text. The bytes of a message keep its room and its call until the last of them is written.
pub(crate) struct Parts {
    pub(super) rest: Bytes,
    /// Frame of an event: what comes before its message, and after it.
    before: &'static [u8],
    after: &'static [u8],
}

/// Messages as server-sent events.
pub(crate) struct Events {
    unwritten: Unwritten,
    current: Parts,
    keep_alive: Pin<Box<Sleep>>,
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Parts {
    fn of(message: Message) -> Self {
        Self::text(Bytes::from_owner(message))
    }

    /// Frames a message as an event: JSON in one line has no line end. A large one is not copied.
    fn event(mut message: Message) -> Self {
        if message.bytes.len() <= PART_BYTES {
            message.bytes = [EVENT, &message.bytes, EVENT_END].concat();
            return Self::of(message);
        }
        Self {
            before: EVENT,
            after: EVENT_END,
            ..Self::of(message)
        }
    }

    fn text(text: impl Into<Bytes>) -> Self {
        let rest = text.into();
        let (before, after) = (&[][..], &[][..]);
        Self { rest, before, after }
    }

    fn next(&mut self) -> Option<Bytes> {
        let framing = match self.rest.is_empty() {
            false => &mut self.before,
            true => &mut self.after,
        };
        if !framing.is_empty() {
            return Some(Bytes::from_static(std::mem::take(framing)));
        }
        if self.rest.is_empty() {
            return None;
        }
        Some(self.rest.split_to(self.rest.len().min(PART_BYTES)))
    }
}

impl Events {
    /// Sends `first`, if there is one, and what follows it.
    fn new(first: Option<Message>, unwritten: Unwritten) -> Self {
        Self {
            unwritten,
            // An answer that takes long begins with a comment.
            current: first.map_or_else(|| Parts::text(":\n\n"), Parts::event),
            keep_alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(part) = self.current.next() {
                self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                return Poll::Ready(Some(part));
            }
            match self.unwritten.queue.poll_recv(cx) {
                Poll::Ready(Some(message)) => self.current = Parts::event(message),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    std::task::ready!(self.keep_alive.as_mut().poll(cx));
                    self.current = Parts::text(":\n\n");
                }
            }
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = match self.get_mut() {
            Self::Whole(parts) => Poll::Ready(parts.next()),
            Self::Events(events) => events.poll_next(cx),
        };
        part.map(|part| part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(parts) if parts.rest.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(parts) => SizeHint::with_exact(parts.rest.len() as u64),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// Waits for the answer to an exchange: a message alone if it comes first, events otherwise, and nothing if there is
/// none.
pub(crate) async fn of_exchange(mut unwritten: Unwritten, takes_events: bool) -> Response<Answer> {
    loop {
        let first = tokio::time::timeout(KEEP_ALIVE, unwritten.queue.recv()).await;
        match first {
            Ok(None) => return status(StatusCode::ACCEPTED),
            Ok(Some(message)) if message.status.is_some() => {
                let code = message
                    .status
                    .and_then(|status| StatusCode::from_u16(status).ok());
                return json(code.unwrap_or_default(), Parts::of(message));
            }
            Ok(Some(message)) if takes_events => return events(Events::new(Some(message), unwritten)),
            Err(_) if takes_events => return events(Events::new(None, unwritten)),
            // A client that takes no events does without notifications.
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

/// Response with a stream of notifications, which begins at once.
pub(crate) fn stream(unwritten: Unwritten) -> Response<Answer> {
    events(Events::new(None, unwritten))
}

fn events(events: Events) -> Response<Answer> {
    let mut response = Response::new(Answer::Events(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies such as nginx would hold events back.
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

fn json(code: StatusCode, parts: Parts) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(parts));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Response with a message that has no room, such as a refusal.
pub(crate) fn message(code: StatusCode, bytes: Vec<u8>) -> Response<Answer> {
    json(code, Parts::text(bytes))
}

/// Response with a text.
pub(crate) fn text(code: StatusCode, text: String) -> Response<Answer> {
    let mut response = json(code, Parts::text(text));
    let plain = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// Response without a body.
pub(crate) fn status(code: StatusCode) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(Parts::text(Bytes::new())));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::outbox::{Outbox, Reply, SharedRoom};

    async fn message(outbox: &Outbox, size: usize) {
        outbox.answer(&Reply::Alone, vec![b'x'; size]).await.unwrap();
    }

    #[tokio::test]
    async fn message_keeps_its_room_until_its_last_byte_is_written() {
        let room = SharedRoom::new(8 << 20);
        let free = room.free.clone();
        let (outbox, mut unwritten) = Outbox::within(room, true);
        for (size, is_event) in [
            (3 * PART_BYTES + 1, false),
            (3 * PART_BYTES + 1, true),
            (PART_BYTES, true),
        ] {
            message(&outbox, size).await;
            let message = unwritten.queue.recv().await.unwrap();
            let mut parts = match is_event {
                true => Parts::event(message),
                false => Parts::of(message),
            };
            let taken: Vec<Bytes> = std::iter::from_fn(|| parts.next()).collect();
            let text = taken.concat();
            let frame = if is_event {
                "event: message\ndata: \n\n".len()
            } else {
                0
            };
            assert_eq!(text.len(), size + frame);
            assert_eq!(text.ends_with(b"x\n\n"), is_event);
            drop(parts);
            // The connection holds the parts until it has written them.
            assert!(free.available_permits() < 8 << 20);
            drop(taken);
            assert_eq!(free.available_permits(), 8 << 20);
        }
    }
}

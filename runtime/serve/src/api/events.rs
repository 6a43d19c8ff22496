//! Events of a session: a page of its journal, or a stream that goes on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::header::ACCEPT;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
use toolcell_core::store::{Entry, SessionInfo};
use toolcell_http::BoxBody;

use super::sessions::CHUNK_BYTES;
use crate::answer::{self, Failure};
use crate::live::{Cursor, Live};
use crate::room::{Room, SMALL, Taken};
use crate::server::{Call, Server};
use crate::turns::Turns;

/// Number of events of a page, and its maximum.
const PAGE: u64 = 1_000;
pub(super) const MAX_PAGE: u64 = 5_000;

/// Number and size of the entries that a stream reads at a time.
const READ: usize = 256;
const READ_BYTES: usize = 256 << 10;

/// Time without an event after which a comment is sent, so that proxies keep the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time after which a stream looks for events of other processes.
const LOOK: Duration = Duration::from_secs(2);

/// Comment that keeps a connection open.
const PING: &[u8] = b": ping\n\n";

fn one(entry: &Entry) -> String {
    let at = entry
        .at_ms
        .map(|at| format!(r#","at_ms":{at}"#))
        .unwrap_or_default();
    format!(r#"{{"seq":{}{at},"event":{}}}"#, entry.seq, entry.json)
}

pub(super) async fn respond(
    server: &Server,
    call: &Call,
    info: SessionInfo,
    place: OwnedSemaphorePermit,
) -> Result<Response<BoxBody>, Failure> {
    let after = call.number("after", 0, u64::MAX)?;
    let wants_stream = toolcell_http::takes(&call.headers).events
        && call.headers.get_all(ACCEPT).iter().any(|value| {
            let text = value.to_str().unwrap_or_default();
            text.contains("text/event-stream")
        });
    if !wants_stream {
        let limit = call.number("limit", PAGE, MAX_PAGE)?;
        let limit = usize::try_from(limit).unwrap_or(0);
        let store = server.turns.host.store();
        let entries = store.entries(&info.id, after, limit, CHUNK_BYTES).await?;
        let events = entries.iter().map(one).collect::<Vec<_>>().join(",");
        let body = format!(r#"{{"events":[{events}],"events_total":{}}}"#, info.events);
        return Ok(answer::bytes(hyper::StatusCode::OK, "application/json", body));
    }
    let last = match call.headers.get("last-event-id") {
        None => None,
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            Some(number.ok_or_else(|| Failure::invalid("`Last-Event-ID` is the `id` of an event"))?)
        }
    };
    if last.unwrap_or(after) > info.events {
        let message = format!(
            "the session has {} events, fewer than the stream is to begin after",
            info.events
        );
        return Err(Failure::invalid(message));
    }
    let live = server.turns.live(&info.id);
    live.set_length(info.events);
    let reader = Reader {
        changed: live.watch(),
        live: Some(live),
        turns: server.turns.clone(),
        id: info.id,
        sent: last.unwrap_or(after),
        room: call.caller.state.room.clone(),
        cursor: Cursor::default(),
        stopping: server.stopping.clone(),
        is_begun: false,
        is_over: false,
        _place: place,
    };
    let events = futures_util::stream::unfold(reader, |mut reader| async move {
        let part = reader.next().await?;
        Some((part, reader))
    });
    Ok(answer::events(events))
}

/// Stream of the events of a session.
struct Reader {
    live: Option<Arc<Live>>,
    changed: watch::Receiver<u64>,
    turns: Arc<Turns>,
    id: String,
    /// Number of the last event that was sent.
    sent: u64,
    room: Room,
    cursor: Cursor,
    stopping: CancellationToken,
    is_begun: bool,
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(live) = self.live.take() {
            self.turns.forget(live, &self.id);
        }
    }
}

fn end(reason: &str) -> Bytes {
    format!("event: end\ndata: {}\n\n", json!({ "reason": reason })).into()
}

impl Reader {
    /// Returns the next part of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let live = self.live.clone()?;
        if !self.is_begun {
            self.is_begun = true;
            let state = self.state(&live, None).await?;
            return Some(format!("retry: 1000\n\n{state}").into());
        }
        let mut quiet = Duration::ZERO;
        let mut taken = Taken::default();
        loop {
            self.changed.borrow_and_update();
            let (sent, cursor) = (self.sent, self.cursor.clone());
            let (now, told) = live.news(&mut self.cursor, self.sent);
            if now.is_deleted {
                self.is_over = true;
                return Some(end("deleted"));
            }
            let mut part = String::new();
            if self.sent < now.length {
                match self.stored(now.length).await {
                    Some(stored) => part = stored,
                    // Deleted by another process.
                    None => {
                        self.is_over = true;
                        return Some(end("deleted"));
                    }
                }
            }
            for event in &now.events {
                part.push_str(&format!("data: {event}\n\n"));
            }
            if let Some(told) = told {
                part.push_str(&self.state(&live, Some(told)).await?);
            }
            if taken.fits(part.len()) && !part.is_empty() {
                return Some(taken.hold(part));
            }
            if !part.is_empty() {
                // It is not held meanwhile, and is read again once there is room for it.
                (self.sent, self.cursor) = (sent, cursor);
                let wanted = part.len() + SMALL;
                drop(part);
                drop(taken);
                tokio::select! {
                    room = self.room.take(wanted) => taken = room,
                    () = self.stopping.cancelled() => {
                        self.is_over = true;
                        return Some(end("stopping"));
                    }
                    () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(PING)),
                }
                continue;
            }
            if self.stopping.is_cancelled() {
                self.is_over = true;
                return Some(end("stopping"));
            }
            let wait = match now.is_running {
                true => KEEP_ALIVE,
                false => LOOK,
            };
            tokio::select! {
                _ = self.changed.changed() => quiet = Duration::ZERO,
                () = self.stopping.cancelled() => {}
                () = tokio::time::sleep(wait) => {
                    quiet += wait;
                    if !now.is_running {
                        match self.turns.host.store().info(&self.id).await {
                            Ok(info) => live.set_length(info.events),
                            Err(_) => live.set_deleted(),
                        }
                    }
                    if quiet >= KEEP_ALIVE {
                        return Some(Bytes::from_static(PING));
                    }
                }
            }
        }
    }

    /// Reads the next stored events up to one; `None` if the session was deleted. The journal can have further ones, of which the
    /// state of the session does not know yet: a client that has read the end of a turn may begin the next one.
    async fn stored(&mut self, length: u64) -> Option<String> {
        let store = self.turns.host.store();
        let mut entries = store.entries(&self.id, self.sent, READ, READ_BYTES).await.ok()?;
        entries.retain(|entry| entry.seq <= length);
        self.sent = entries.last()?.seq;
        let part: String = entries
            .iter()
            .map(|entry| format!("id: {}\ndata: {}\n\n", entry.seq, one(entry)))
            .collect();
        Some(part)
    }

    /// Returns the event that tells the state.
    async fn state(&mut self, live: &Live, told: Option<Value>) -> Option<String> {
        let mut told = match told {
            Some(told) => told,
            None => live.news(&mut Cursor::default(), u64::MAX).1?,
        };
        if told.get("state").is_none() {
            let info = self.turns.host.store().info(&self.id).await.ok()?;
            told["state"] = json!(self.turns.state_of(&info).await);
        }
        Some(format!("event: state\ndata: {told}\n\n"))
    }
}

//! Output of a connection: one task writes the messages, in the order in which they were sent.
//!
//! A message takes room from before it waits until its bytes are written, so that a client that does not read bounds the
//! memory of all that waits.

pub(super) mod compact_json;
pub(super) mod measured;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::message::{self, RequestId, RpcError};
use crate::server::in_flight::{Load, Ticket};

/// Maximum size of the messages that are not written yet, in bytes, with 256 more for each. One of more than half of it
/// counts as half, so that it can be sent. Beyond it, results wait with their calls, and then the input is not read.
pub const MAX_UNREAD_BYTES: usize = 16 << 20;

/// Maximum size of these messages when a notification is added, in bytes; beyond it notifications are dropped.
pub const MAX_UNREAD_WITH_NOTIFICATION: usize = 1 << 20;

/// Maximum time for which the input is not read because the client reads nothing. The connection ends then: the end of
/// the input would not be seen.
pub const MAX_STALL: Duration = Duration::from_secs(60);

/// Size of a part of the answer to a batch, in bytes: answers are sent when they reach it, and at the end.
pub const BATCH_PART_BYTES: usize = 1 << 20;

/// Size from which messages that wait are not written together, in bytes: that of a pipe.
const WRITTEN_TOGETHER: usize = 64 << 10;

/// Memory for each message beside its bytes.
const MESSAGE_BYTES: usize = 256;

/// Sender of messages.
#[derive(Clone)]
pub(crate) struct Outbox {
    queue: mpsc::UnboundedSender<Message>,
    room: Arc<Semaphore>,
    /// Room of all outputs of the server.
    total: SharedRoom,
    /// True if a call counts as running until its result is written.
    holds_permits: bool,
    /// True if the client takes more than one message.
    carries_requests: bool,
    /// Number of bytes written so far.
    written: Arc<AtomicU64>,
}

/// Room for messages of several outputs. A message of more than half of it counts as half, as in one output.
#[derive(Clone)]
pub(crate) struct SharedRoom {
    pub(crate) free: Arc<Semaphore>,
    bytes: usize,
}

impl SharedRoom {
    /// Creates room of this size.
    pub(crate) fn new(bytes: usize) -> Self {
        let free = Arc::new(Semaphore::new(bytes));
        Self { free, bytes }
    }
}

/// Room of a message: in its output, and in all of them together.
pub(crate) struct Room {
    own: OwnedSemaphorePermit,
    total: OwnedSemaphorePermit,
}

/// Message with its room, and with what is given back when it is written.
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    /// Status of a response over HTTP; `None` for a notification.
    pub(crate) status: Option<u16>,
    room: Room,
    calls: Vec<Ticket>,
    /// Permit of the call that it answers: a client that does not read starts no further calls.
    running: Option<OwnedSemaphorePermit>,
}

/// Receiver of messages, for [`write`].
pub(crate) struct Unwritten {
    pub(crate) queue: mpsc::UnboundedReceiver<Message>,
    written: Arc<AtomicU64>,
}

/// Destination of the response to a request.
pub(crate) enum Reply {
    /// On a line of its own.
    Alone,
    /// Into the array of the responses to a batch.
    InBatch(mpsc::UnboundedSender<Message>),
}

/// Returns how much of `room` a message takes.
fn room_of(bytes: usize, room: usize) -> u32 {
    u32::try_from((bytes + MESSAGE_BYTES).min(room / 2)).unwrap_or(u32::MAX)
}

impl Outbox {
    /// Creates the output of a client that has no other.
    pub(crate) fn new() -> (Self, Unwritten) {
        Self::created(SharedRoom::new(MAX_UNREAD_BYTES), true, true)
    }

    /// Creates one of several outputs whose messages have room in `total`. One that is not read delays only its own
    /// calls. `carries_requests` is true if its client takes more than the response.
    pub(crate) fn within(total: SharedRoom, carries_requests: bool) -> (Self, Unwritten) {
        Self::created(total, false, carries_requests)
    }

    fn created(total: SharedRoom, holds_permits: bool, carries_requests: bool) -> (Self, Unwritten) {
        let (sender, queue) = mpsc::unbounded_channel();
        let outbox = Self {
            queue: sender,
            room: Arc::new(Semaphore::new(MAX_UNREAD_BYTES)),
            total,
            holds_permits,
            carries_requests,
            written: Arc::default(),
        };
        let written = outbox.written.clone();
        (outbox, Unwritten { queue, written })
    }

    /// True if it is the only output of its client.
    pub(crate) fn is_only(&self) -> bool {
        self.holds_permits
    }

    /// True if the client takes requests of the server.
    pub(crate) fn carries_requests(&self) -> bool {
        self.carries_requests
    }

    /// Sends a request of the server, when there is room for it.
    pub(crate) async fn ask(&self, bytes: Vec<u8>) {
        if let Some(room) = self.room(bytes.len()).await {
            self.send(&Reply::Alone, Message::new(bytes, room));
        }
    }

    /// Takes room for a message of this size if there is some.
    pub(crate) fn try_room(&self, bytes: usize) -> Option<Room> {
        let (own, total) = self.rooms_of(bytes);
        let own = self.room.clone().try_acquire_many_owned(own).ok()?;
        let total = self.total.free.clone().try_acquire_many_owned(total).ok()?;
        Some(Room { own, total })
    }

    /// Waits for room for a message of this size. `None` is never returned, because nothing closes the semaphore.
    pub(crate) async fn room(&self, bytes: usize) -> Option<Room> {
        let (own, total) = self.rooms_of(bytes);
        let own = self.room.clone().acquire_many_owned(own).await.ok()?;
        let total = self.total.free.clone().acquire_many_owned(total).await.ok()?;
        Some(Room { own, total })
    }

    /// Returns how much room a message takes here, and of all outputs.
    fn rooms_of(&self, bytes: usize) -> (u32, u32) {
        (room_of(bytes, MAX_UNREAD_BYTES), room_of(bytes, self.total.bytes))
    }

    /// Sends a response of the reader, which reads nothing further until there is room for it.
    ///
    /// # Errors
    /// Fails if the client reads nothing for [`MAX_STALL`].
    pub(crate) async fn answer(&self, reply: &Reply, bytes: Vec<u8>) -> std::io::Result<()> {
        self.answer_with(reply, bytes, 200).await
    }

    /// Sends an error. One without an identifier answers a message whose identifier could not be read.
    ///
    /// # Errors
    /// Same as [`answer`](Self::answer).
    pub(crate) async fn refuse(
        &self,
        reply: &Reply,
        id: Option<&RequestId>,
        error: &RpcError,
    ) -> std::io::Result<()> {
        self.answer_with(reply, message::error(id, error), error.status)
            .await
    }

    async fn answer_with(&self, reply: &Reply, bytes: Vec<u8>, status: u16) -> std::io::Result<()> {
        let mut room = std::pin::pin!(self.room(bytes.len()));
        loop {
            let before = self.written.load(Ordering::Relaxed);
            match tokio::time::timeout(MAX_STALL, &mut room).await {
                Ok(None) => return Ok(()),
                Ok(Some(room)) => {
                    let message = Message {
                        status: Some(status),
                        ..Message::new(bytes, room)
                    };
                    self.send(reply, message);
                    return Ok(());
                }
                Err(_) if self.written.load(Ordering::Relaxed) != before => {}
                Err(_) => {
                    let seconds = MAX_STALL.as_secs();
                    let stalled = format!(
                        "the client read nothing for {seconds} s, while {MAX_UNREAD_BYTES} bytes waited for it"
                    );
                    return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, stalled));
                }
            }
        }
    }

    /// Sends a response that has its room. One for a disconnected client is dropped.
    pub(crate) fn send(&self, reply: &Reply, mut message: Message) {
        // The room bounds what waits for the rest of a batch, whose calls need the permit.
        if !self.holds_permits || matches!(reply, Reply::InBatch(_)) {
            message.running = None;
        }
        let _ = match reply {
            Reply::Alone => self.queue.send(message),
            Reply::InBatch(batch) => batch.send(message),
        };
    }

    /// Sends a notification, or drops it if the client does not read.
    pub(crate) fn offer(&self, bytes: Vec<u8>) {
        let waiting = MAX_UNREAD_BYTES - self.room.available_permits();
        if waiting + bytes.len() + MESSAGE_BYTES <= MAX_UNREAD_WITH_NOTIFICATION {
            self.tell(bytes);
        }
    }

    /// Sends a notification that no later one repeats, while there is any room.
    pub(crate) fn tell(&self, bytes: Vec<u8>) {
        if let Some(room) = self.try_room(bytes.len()) {
            self.send(&Reply::Alone, Message::new(bytes, room));
        }
    }

    /// Sends the responses to a batch in arrays, in the order in which they come. Notifications and cancelled requests
    /// have none.
    pub(crate) async fn collect(&self, mut responses: mpsc::UnboundedReceiver<Message>) {
        let mut part = None;
        while let Some(response) = responses.recv().await {
            let array = match part.take() {
                None => response.opened(),
                Some(array) => Message::joined(array, response),
            };
            if array.room.own.num_permits() < BATCH_PART_BYTES {
                part = Some(array);
            } else {
                self.send(&Reply::Alone, array.closed());
            }
        }
        if let Some(array) = part {
            self.send(&Reply::Alone, array.closed());
        }
    }

    /// Waits until the output is closed.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }
}

impl Message {
    /// Notification or request.
    fn new(bytes: Vec<u8>, room: Room) -> Self {
        Self {
            bytes,
            status: None,
            room,
            calls: Vec::new(),
            running: None,
        }
    }

    /// Answers a call, which counts until the message is written.
    pub(crate) fn of_call(
        bytes: Vec<u8>,
        room: Room,
        call: Ticket,
        running: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            bytes,
            status: Some(200),
            room,
            calls: vec![call],
            running,
        }
    }

    /// Begins an array with a response.
    fn opened(mut self) -> Self {
        self.status = None;
        self.bytes.insert(0, b'[');
        self
    }

    /// Adds a response to an array that is not closed.
    fn joined(mut array: Self, response: Self) -> Self {
        array.bytes.push(b',');
        array.bytes.extend(response.bytes);
        array.calls.extend(response.calls);
        array.room.own.merge(response.room.own);
        array.room.total.merge(response.room.total);
        array
    }

    fn closed(mut self) -> Self {
        self.bytes.push(b']');
        self
    }
}

/// Writes messages, each on a line, until all senders are gone. `load` counts the calls that they answer.
///
/// # Errors
/// Fails if the output fails, such as with a closed pipe.
pub(crate) async fn write<W: AsyncWrite + Unpin>(
    mut output: W,
    mut messages: Unwritten,
    load: Arc<Load>,
) -> std::io::Result<()> {
    while let Some(message) = messages.queue.recv().await {
        // A write costs more than a short call: further calls that can go on do so first, and are answered together.
        if load.calls() > message.calls.len() {
            tokio::task::yield_now().await;
        }
        let mut next = Some(message);
        while let Some(mut message) = next {
            let mut lines = std::mem::take(&mut message.bytes);
            lines.push(b'\n');
            let mut held = vec![message];
            while lines.len() < WRITTEN_TOGETHER
                && let Ok(mut message) = messages.queue.try_recv()
            {
                lines.append(&mut message.bytes);
                lines.push(b'\n');
                held.push(message);
            }
            let mut rest = &lines[..];
            while !rest.is_empty() {
                let written = output.write(rest).await?;
                if written == 0 {
                    return Err(std::io::ErrorKind::WriteZero.into());
                }
                rest = &rest[written..];
                messages.written.fetch_add(written as u64, Ordering::Relaxed);
            }
            drop(held);
            next = messages.queue.try_recv().ok();
        }
        output.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    fn waiting(outbox: &Outbox) -> usize {
        MAX_UNREAD_BYTES - outbox.room.available_permits()
    }

    #[tokio::test(start_paused = true)]
    async fn answers_wait_up_to_their_bytes_and_until_the_client_stalls() {
        let (outbox, messages) = Outbox::new();
        let quarter = || vec![b'x'; MAX_UNREAD_BYTES / 4 - MESSAGE_BYTES];
        for _ in 0..4 {
            outbox.answer(&Reply::Alone, quarter()).await.unwrap();
        }
        assert_eq!(waiting(&outbox), MAX_UNREAD_BYTES);
        let begun = tokio::time::Instant::now();
        let stalled = outbox.answer(&Reply::Alone, Vec::new()).await.unwrap_err();
        assert_eq!(stalled.kind(), std::io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), MAX_STALL);
        // A client that reads now gets all of it, and makes room.
        tokio::spawn(write(tokio::io::sink(), messages, Arc::default()));
        outbox.answer(&Reply::Alone, quarter()).await.unwrap();
    }

    /// Output that keeps each write.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl AsyncWrite for Writes {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            self.0.push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn messages_that_wait_are_written_together_in_their_order() {
        let (outbox, messages) = Outbox::new();
        let large = "x".repeat(WRITTEN_TOGETHER);
        let sent = ["a", "b", &large, "c", &large, &large, "d"];
        for text in sent {
            outbox.answer(&Reply::Alone, text.into()).await.unwrap();
        }
        let room = outbox.room.clone();
        drop(outbox);
        let mut output = Writes::default();
        write(&mut output, messages, Arc::default()).await.unwrap();
        let Writes(output) = output;
        let expected: String = sent.iter().flat_map(|text| [text, "\n"]).collect();
        assert!(output.iter().flatten().eq(expected.as_bytes()));
        // `a`, `b` and the large one; `c` and a large one; the last large one; `d`.
        assert_eq!(output.len(), 4);
        assert_eq!(room.available_permits(), MAX_UNREAD_BYTES);
    }

    #[test]
    fn message_above_half_of_the_room_counts_as_half() {
        let half = MAX_UNREAD_BYTES / 2;
        for (bytes, room) in [
            (0, MESSAGE_BYTES),
            (half - MESSAGE_BYTES - 1, half - 1),
            (half - MESSAGE_BYTES, half),
            (half * 4, half),
        ] {
            assert_eq!(room_of(bytes, MAX_UNREAD_BYTES) as usize, room);
        }
    }

    /// With escapes a result of 4 MiB, as text and structured, is a message of 48 MiB.
    #[test]
    fn large_messages_of_several_outputs_count_in_full() {
        let shared = SharedRoom::new(128 << 20);
        let outputs = [0; 3].map(|_| Outbox::within(shared.clone(), false));
        let held: Vec<bool> = outputs
            .iter()
            .scan(Vec::new(), |rooms, (outbox, _)| {
                rooms.push(outbox.try_room(48 << 20));
                rooms.last().map(Option::is_some)
            })
            .collect();
        assert_eq!(held, [true, true, false]);
        assert!(outputs[0].0.try_room(usize::MAX / 2).is_some());
    }

    #[test]
    fn notifications_are_dropped_before_responses_wait() {
        let (outbox, _messages) = Outbox::new();
        let most = MAX_UNREAD_WITH_NOTIFICATION - MESSAGE_BYTES;
        outbox.offer(vec![b'x'; most + 1]);
        assert_eq!(waiting(&outbox), 0);
        outbox.offer(vec![b'x'; most]);
        assert_eq!(waiting(&outbox), MAX_UNREAD_WITH_NOTIFICATION);
        outbox.offer(Vec::new());
        assert_eq!(waiting(&outbox), MAX_UNREAD_WITH_NOTIFICATION);
        // One that no later one repeats is dropped only without any room.
        let all = MAX_UNREAD_BYTES - MAX_UNREAD_WITH_NOTIFICATION;
        for _ in 0..=all / MESSAGE_BYTES {
            outbox.tell(Vec::new());
        }
        assert_eq!(waiting(&outbox), MAX_UNREAD_BYTES);
    }
}

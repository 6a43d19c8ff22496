//! Output of a connection: one task writes the messages, in the order in which they were sent.

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::sync::oneshot;

/// Maximum number of messages that wait for the client to read. Beyond it, responses wait with their calls, and
/// notifications are dropped.
const QUEUE: usize = 64;

/// Sender of messages.
#[derive(Clone)]
pub(crate) struct Outbox(mpsc::Sender<Vec<u8>>);

/// Destination of the response to a request.
pub(crate) enum Reply {
    /// On a line of its own.
    Alone(Outbox),
    /// Into the array of the responses to a batch.
    InBatch(oneshot::Sender<Vec<u8>>),
}

impl Outbox {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Sends a message, and waits while the queue is full. A message for a disconnected client is dropped.
    pub(crate) async fn send(&self, message: Vec<u8>) {
        let _ = self.0.send(message).await;
    }

    /// Sends a message, or drops it if the client does not read.
    pub(crate) fn offer(&self, message: Vec<u8>) {
        let _ = self.0.try_send(message);
    }

    /// Waits until the output is closed.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

impl Reply {
    pub(crate) async fn send(self, message: Vec<u8>) {
        match self {
            Self::Alone(outbox) => outbox.send(message).await,
            Self::InBatch(sender) => {
                let _ = sender.send(message);
            }
        }
    }
}

/// Writes messages, each on a line, until all senders are gone.
///
/// # Errors
/// Fails if the output fails, such as with a closed pipe.
pub(crate) async fn write<W: AsyncWrite + Unpin>(
    mut output: W,
    mut messages: mpsc::Receiver<Vec<u8>>,
) -> std::io::Result<()> {
    let mut ready = Vec::new();
    while messages.recv_many(&mut ready, QUEUE).await > 0 {
        for mut message in ready.drain(..) {
            message.push(b'\n');
            output.write_all(&message).await?;
        }
        output.flush().await?;
    }
    Ok(())
}

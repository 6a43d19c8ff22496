//! A stream of deltas that one `async fn` produces.
//!
//! The function is polled only while the stream is, and dropped with it: nothing of a request goes on after its stream is
//! gone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::mpsc;
use toolcell_core::provider::{Completion, Delta};
use toolcell_core::{BoxFuture, BoxStream, ProviderError};

/// Deltas that wait for the reader before the producer has to. Small: it only saves switches between the two.
const BUFFER: usize = 32;

/// Where a producer puts its deltas.
pub(crate) struct Emitter {
    sender: mpsc::Sender<Delta>,
    emitted: bool,
}

impl Emitter {
    /// Hands one delta to the reader, and waits while the reader is behind.
    pub(crate) async fn emit(&mut self, delta: Delta) {
        self.emitted |= !matches!(delta, Delta::Retry { .. });
        // The receiver lives as long as the future that calls this.
        let _ = self.sender.send(delta).await;
    }

    /// Whether the reader got anything of an answer. From then on a request must not be sent again.
    pub(crate) fn has_emitted(&self) -> bool {
        self.emitted
    }
}

/// Runs `produce` as a stream; its result becomes the last item.
pub(crate) fn stream<'a, F>(produce: impl FnOnce(Emitter) -> F) -> BoxStream<'a, Result<Delta, ProviderError>>
where
    F: Future<Output = Result<Completion, ProviderError>> + Send + 'a,
{
    let (sender, receiver) = mpsc::channel(BUFFER);
    let emitter = Emitter {
        sender,
        emitted: false,
    };
    Box::pin(Produced {
        receiver,
        producer: Some(Box::pin(produce(emitter))),
        last: None,
    })
}

struct Produced<'a> {
    receiver: mpsc::Receiver<Delta>,
    producer: Option<BoxFuture<'a, Result<Completion, ProviderError>>>,
    last: Option<Result<Delta, ProviderError>>,
}

impl Stream for Produced<'_> {
    type Item = Result<Delta, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(producer) = &mut this.producer
            && let Poll::Ready(result) = producer.as_mut().poll(cx)
        {
            this.producer = None;
            this.last = Some(result.map(Delta::Finished));
        }
        match this.receiver.poll_recv(cx) {
            Poll::Ready(Some(delta)) => Poll::Ready(Some(Ok(delta))),
            // The producer is gone and so is all that it left.
            Poll::Ready(None) => Poll::Ready(this.last.take()),
            Poll::Pending => Poll::Pending,
        }
    }
}

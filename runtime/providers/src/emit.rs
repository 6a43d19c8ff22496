//! Stream of deltas produced by an `async fn`.
//!
//! The function is polled only while the stream is, and dropped with it: no part of a request outlives its stream.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::mpsc;
use toolcell_core::provider::{Completion, Delta};
use toolcell_core::{BoxFuture, BoxStream, ProviderError};

/// Capacity of the queue between the producer and the reader. It is small because it only saves task switches.
const BUFFER: usize = 32;

/// Sender of deltas.
pub(crate) struct Emitter {
    sender: mpsc::Sender<Delta>,
    emitted: bool,
}

impl Emitter {
    /// Sends one delta; waits while the queue is full.
    pub(crate) async fn emit(&mut self, delta: Delta) {
        self.emitted |= !matches!(delta, Delta::Retry { .. } | Delta::Notice(_));
        // The receiver lives as long as the calling future.
        let _ = self.sender.send(delta).await;
    }

    /// True if a delta was sent. From then on a request must not be retried.
    pub(crate) fn has_emitted(&self) -> bool {
        self.emitted
    }
}

/// Runs `produce` as a stream; its result is the last item.
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
        let mut received = this.receiver.poll_recv(cx);
        // The producer is asked for more when nothing of it is left.
        if received.is_pending()
            && let Some(producer) = &mut this.producer
        {
            if let Poll::Ready(result) = producer.as_mut().poll(cx) {
                this.producer = None;
                this.last = Some(result.map(Delta::Finished));
            }
            received = this.receiver.poll_recv(cx);
        }
        match received {
            Poll::Ready(Some(delta)) => Poll::Ready(Some(Ok(delta))),
            // The producer has ended and all its deltas are sent.
            Poll::Ready(None) => Poll::Ready(this.last.take()),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use super::*;

    #[test]
    fn producer_is_asked_for_more_when_all_its_deltas_are_read() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let mut deltas = stream(|mut out| async move {
            for _ in 0..10 {
                out.emit(Delta::Text("a".into())).await;
            }
            std::future::poll_fn(|_| {
                counter.fetch_add(1, Ordering::Relaxed);
                Poll::<Result<Completion, ProviderError>>::Pending
            })
            .await
        });
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..10 {
            let next = deltas.as_mut().poll_next(&mut context);
            assert!(matches!(next, Poll::Ready(Some(Ok(Delta::Text(_))))), "{next:?}");
            assert_eq!(asked.load(Ordering::Relaxed), 1);
        }
        assert!(deltas.as_mut().poll_next(&mut context).is_pending());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}

//! The wall time of a call.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A call that gets `None` once its time is over. Most calls never wait, and a timer shares state with those of all threads:
/// there is one from the first time on that the call waits.
pub(crate) struct Within<F> {
    call: F,
    begun: Instant,
    time: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<F: Future + Unpin> Within<F> {
    pub(crate) fn new(time: Duration, call: F) -> Self {
        Self {
            call,
            begun: Instant::now(),
            time,
            timer: None,
        }
    }
}

impl<F: Future + Unpin> Future for Within<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Poll::Ready(result) = Pin::new(&mut this.call).poll(cx) {
            return Poll::Ready(Some(result));
        }
        // The timer only wakes the task. It would say nothing to a call that uses up what tokio lets a task do at once.
        let left = this.time.saturating_sub(this.begun.elapsed());
        if left.is_zero() {
            return Poll::Ready(None);
        }
        let timer = (this.timer).get_or_insert_with(|| Box::pin(tokio::time::sleep(left)));
        timer.as_mut().poll(cx).map(|()| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::pin::pin;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn call_has_its_time_from_the_start() {
        let within = |time, call_ends| {
            let call = Box::pin(async move {
                tokio::time::sleep(call_ends).await;
                "done"
            });
            Within::new(time, call)
        };
        assert_eq!(within(2 * SECOND, SECOND).await, Some("done"));
        let begun = Instant::now();
        assert_eq!(within(2 * SECOND, 3 * SECOND).await, None);
        assert_eq!(begun.elapsed(), 2 * SECOND);
        // Time before the first poll counts.
        let late = within(2 * SECOND, 3 * SECOND);
        tokio::time::sleep(SECOND).await;
        let begun = Instant::now();
        assert_eq!(late.await, None);
        assert_eq!(begun.elapsed(), SECOND);
        assert_eq!(within(Duration::MAX, SECOND).await, Some("done"));
    }

    #[tokio::test]
    async fn call_that_does_not_wait_has_no_timer() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut at_once = Within::new(SECOND, ready(1));
        assert_eq!(Pin::new(&mut at_once).poll(&mut cx), Poll::Ready(Some(1)));
        assert!(at_once.timer.is_none());
        let mut waits = Within::new(SECOND, pending::<u8>());
        assert!(Pin::new(&mut waits).poll(&mut cx).is_pending());
        assert!(waits.timer.is_some());
    }

    #[tokio::test]
    async fn call_that_never_rests_ends_as_well() {
        let begun = Instant::now();
        let busy = Box::pin(async move {
            while begun.elapsed() < 100 * SECOND {
                tokio::task::consume_budget().await;
            }
        });
        assert_eq!(Within::new(Duration::from_millis(5), busy).await, None);
    }

    #[tokio::test]
    async fn result_is_preferred_to_the_end_of_the_time() {
        let late = pin!(Within::new(Duration::ZERO, ready(1)));
        assert_eq!(late.await, Some(1));
    }
}

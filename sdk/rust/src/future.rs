//! Runs the future of an `async fn` tool to its end.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::{Result, ToolError};

/// Wakes the thread that waits for the future.
struct Waiting {
    is_woken: AtomicBool,
    thread: Thread,
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls a future until it is ready.
///
/// In a component there is one thread and no runtime: a future that waits, and that nothing it has started wakes, would
/// wait for ever.
///
/// # Errors
/// Fails in a component if the future waits for something that nothing completes.
pub fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let waiting = Arc::new(Waiting {
        is_woken: AtomicBool::new(false),
        thread: thread::current(),
    });
    let waker = Waker::from(waiting.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(value);
        }
        while !waiting.is_woken.swap(false, Ordering::Acquire) {
            if cfg!(target_family = "wasm") {
                return Err(ToolError::failed(
                    "the `async` function of this tool waits for something that nothing in it completes; use the \
                     functions of `toolcell_sdk` and `std`, or `block_on` of the runtime that it needs",
                ));
            }
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn future_is_polled_until_it_is_ready() {
        let mut polls = 0;
        let future = std::future::poll_fn(|context| {
            polls += 1;
            if polls < 3 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(polls)
        });
        assert_eq!(block_on(future).unwrap(), 3);
    }

    #[test]
    fn thread_that_wakes_later_is_awaited() {
        let mut started = false;
        let future = std::future::poll_fn(|context| {
            if started {
                return Poll::Ready(());
            }
            started = true;
            let waker = context.waker().clone();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                waker.wake();
            });
            Poll::Pending
        });
        block_on(future).unwrap();
    }
}

//! Containment of panics in tools and hooks.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use toolcell_core::BoxFuture;

/// Future whose panics are errors, whether it panics when it is made, polled, or dropped.
pub(crate) struct Contained<'a, T> {
    future: Option<BoxFuture<'a, T>>,
    /// Panic of the function that made the future.
    panicked: Option<Panicked>,
}

/// Panic of a tool or a hook.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Panicked {
    /// First line of the message.
    pub(crate) cause: String,
}

/// Calls a function.
///
/// # Errors
/// Fails if it panics.
pub(crate) fn contained<T>(function: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(function)).map_err(|payload| Panicked::of(payload.as_ref()))
}

impl Panicked {
    fn of(payload: &(dyn Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a panic without a message");
        Self {
            cause: text.lines().next().unwrap_or_default().to_owned(),
        }
    }
}

impl<'a, T> Contained<'a, T> {
    /// Calls the function that makes the future.
    pub(crate) fn new(make: impl FnOnce() -> BoxFuture<'a, T>) -> Self {
        let (future, panicked) = match contained(make) {
            Ok(future) => (Some(future), None),
            Err(panicked) => (None, Some(panicked)),
        };
        Self { future, panicked }
    }

    /// Drops the future. Dropping this does the same, and ignores a panic.
    ///
    /// # Errors
    /// Fails if the future panics while it is dropped.
    pub(crate) fn discard(&mut self) -> Result<(), Panicked> {
        let future = self.future.take();
        contained(|| drop(future))
    }
}

impl<T> Future for Contained<'_, T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(panicked) = self.panicked.take() {
            return Poll::Ready(Err(panicked));
        }
        let Some(future) = &mut self.future else {
            return Poll::Pending;
        };
        match contained(|| future.as_mut().poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(self.discard().map(|()| value)),
            Err(panicked) => {
                // It panicked already; a further panic says no more.
                let _ = self.discard();
                Poll::Ready(Err(panicked))
            }
        }
    }
}

impl<T> Drop for Contained<'_, T> {
    fn drop(&mut self) {
        let _ = self.discard();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt as _;

    use super::*;

    struct OnDrop;

    impl Drop for OnDrop {
        fn drop(&mut self) {
            panic!("dropped\nat line 2");
        }
    }

    fn panicked(cause: &str) -> Result<u32, Panicked> {
        Err(Panicked {
            cause: cause.to_owned(),
        })
    }

    #[test]
    fn panic_at_any_time_is_an_error() {
        let value = Contained::new(|| Box::pin(ready(7)));
        assert_eq!(value.now_or_never(), Some(Ok(7)));
        let made = Contained::new(|| panic!("made {}", 1));
        assert_eq!(made.now_or_never(), Some(panicked("made 1")));
        let polled = Contained::new(|| Box::pin(async { panic!("polled") }));
        assert_eq!(polled.now_or_never(), Some(panicked("polled")));
        let other = Contained::new(|| std::panic::panic_any(1));
        assert_eq!(other.now_or_never(), Some(panicked("a panic without a message")));
        // Dropped with its value, and in the middle.
        let held = OnDrop;
        let ended = Contained::new(|| Box::pin(ready(7).inspect(move |_| drop(held))));
        assert_eq!(ended.now_or_never(), Some(panicked("dropped")));
        let mut hanging = Contained::new(|| {
            let held = OnDrop;
            Box::pin(async move {
                let _held = held;
                pending::<u32>().await
            })
        });
        assert_eq!((&mut hanging).now_or_never(), None);
        assert_eq!(hanging.discard().map(|()| 0), panicked("dropped"));
        drop(Contained::new(|| {
            let held = OnDrop;
            Box::pin(async move {
                let _held = held;
            })
        }));
    }
}

//! Search for secrets in what a server returns. It takes seconds for a long answer and a secret that repeats itself, so it runs on a
//! thread of its own, and ends when nobody waits for it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use toolcell_core::redact::Redactor;

/// Size from which an answer is searched on a thread of its own, in bytes: below it takes some milliseconds.
const AT_ONCE: usize = 64 << 10;

/// Runs `search`, whose input has `bytes`; `None` if it panicked.
pub(super) async fn searched<T: Send + 'static>(
    redactor: &Redactor,
    bytes: usize,
    search: impl FnOnce(&Redactor) -> T + Send + 'static,
) -> Option<T> {
    if redactor.is_empty() || bytes <= AT_ONCE {
        return Some(search(redactor));
    }
    let given_up = GivenUp(Arc::default());
    let redactor = redactor.until(given_up.0.clone());
    tokio::task::spawn_blocking(move || search(&redactor)).await.ok()
}

/// Set when this is dropped.
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

//! Search for secrets in what a server returns. It takes seconds for a long answer and a secret that repeats itself, so it runs on a
//! thread of its own, and ends when nobody waits for it any more.

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
    let (redactor, _awaited) = redactor.while_awaited();
    tokio::task::spawn_blocking(move || search(&redactor)).await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn long_answer_is_searched_on_another_thread_until_nobody_waits() {
        let redactor = Redactor::new([("s", "hunter2-hunter2")]);
        for (bytes, is_apart) in [(AT_ONCE, false), (AT_ONCE + 1, true)] {
            let searching = searched(&redactor, bytes, |_| thread::current().id()).await;
            assert_eq!(searching != Some(thread::current().id()), is_apart);
        }
        let (go, wait) = channel();
        let (send, found) = channel();
        let search = move |redactor: &Redactor| {
            wait.recv().unwrap();
            send.send(redactor.text("text").into_owned()).unwrap();
        };
        tokio::select! {
            biased;
            _ = searched(&redactor, AT_ONCE + 1, search) => panic!("it held the thread"),
            () = std::future::ready(()) => {}
        }
        go.send(()).unwrap();
        assert_eq!(found.recv().unwrap(), "");
    }
}

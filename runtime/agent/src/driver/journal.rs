//! Write-ahead queue of events: into the journal first, then to the sink, always in order.
//!
//! One batch is written at a time; events that arrive meanwhile form the next batch, so that many events share one
//! commit and only effects that need durability wait for the disk. Every event that was shown is in the journal. A run
//! that is dropped leaves its batch here, and the next run continues it: nothing is written twice or left out.

use std::sync::Arc;

use toolcell_core::{BoxFuture, Event, EventSink, SessionStore, StoreError};

/// Maximum number of events that wait for the journal; beyond it the turn waits as well.
const MAX_WAITING: usize = 4_096;

/// Write-ahead queue from the driver to the store and then to the sink.
pub(crate) struct Journal {
    session: Arc<str>,
    store: Option<Arc<dyn SessionStore>>,
    /// Number of events in the journal.
    at: u64,
    waiting: Vec<Event>,
    saving: Option<Saving>,
    /// Error of the first batch that could not be written. Later events must not be written either.
    failed: Option<StoreError>,
    taken: u64,
    shown: u64,
}

/// Batch that is being written.
struct Saving {
    events: Vec<Event>,
    written: BoxFuture<'static, Result<u64, StoreError>>,
}

impl Journal {
    /// Creates the queue for a store in which the session has `at` events.
    pub(crate) fn new(session: &str, store: Option<Arc<dyn SessionStore>>, at: u64) -> Self {
        Self {
            session: session.into(),
            store,
            at,
            waiting: Vec::new(),
            saving: None,
            failed: None,
            taken: 0,
            shown: 0,
        }
    }

    /// Appends an event.
    pub(crate) fn push(&mut self, event: Event, sink: &dyn EventSink) {
        self.taken += 1;
        let at_once = self.saving.is_none()
            && self.waiting.is_empty()
            && (self.store.is_none() || event.is_transient());
        if at_once {
            sink.event(&event);
            self.shown += 1;
        } else {
            self.waiting.push(event);
        }
    }

    /// Sequence number of the last event so far.
    pub(crate) fn mark(&self) -> u64 {
        self.taken
    }

    /// True if every event up to a mark is in the journal and was shown.
    pub(crate) fn has_shown(&self, mark: u64) -> bool {
        self.shown >= mark
    }

    /// True if the queue is full and the turn must wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING
    }

    /// Waits until a batch is written and shown; for ever if there is none. Cancel safe.
    ///
    /// # Errors
    /// Fails if the store fails or failed earlier. Nothing is written after a missing batch; the session must be loaded
    /// again.
    pub(crate) async fn flow(&mut self, sink: &dyn EventSink) -> Result<(), StoreError> {
        self.begin(sink);
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(saving) = &mut self.saving else {
            return std::future::pending().await;
        };
        let written = saving.written.as_mut().await;
        let events = self.saving.take().map(|saving| saving.events).unwrap_or_default();
        self.at = written.inspect_err(|error| self.failed = Some(error.clone()))?;
        self.show(&events, sink);
        self.begin(sink);
        Ok(())
    }

    /// Waits until everything is written and shown.
    ///
    /// # Errors
    /// As [`Journal::flow`].
    pub(crate) async fn drain(&mut self, sink: &dyn EventSink) -> Result<(), StoreError> {
        self.begin(sink);
        while self.saving.is_some() || self.failed.is_some() {
            self.flow(sink).await?;
        }
        Ok(())
    }

    /// Starts to write the waiting events.
    fn begin(&mut self, sink: &dyn EventSink) {
        if self.saving.is_some() || self.failed.is_some() || self.waiting.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.waiting);
        let durable: Vec<Event> = events.iter().filter(|e| !e.is_transient()).cloned().collect();
        let Some(store) = self.store.clone().filter(|_| !durable.is_empty()) else {
            return self.show(&events, sink);
        };
        let (session, at) = (self.session.clone(), self.at);
        self.saving = Some(Saving {
            events,
            written: Box::pin(async move { store.append(&session, at, durable).await }),
        });
    }

    fn show(&mut self, events: &[Event], sink: &dyn EventSink) {
        for event in events {
            sink.event(event);
        }
        self.shown += events.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Mutex;
    use std::task::{Context, Poll, Waker};

    use toolcell_core::event::NoticeLevel;
    use toolcell_core::store::SessionInfo;

    use super::*;

    /// Store that writes a batch when the test allows it.
    #[derive(Default)]
    struct Slow {
        may_write: Mutex<bool>,
        written: Mutex<Vec<Event>>,
    }

    impl SessionStore for Slow {
        fn append<'a>(
            &'a self,
            _session: &'a str,
            at: u64,
            events: Vec<Event>,
        ) -> BoxFuture<'a, Result<u64, StoreError>> {
            Box::pin(std::future::poll_fn(move |_| {
                if !*self.may_write.lock().unwrap() {
                    return Poll::Pending;
                }
                let mut written = self.written.lock().unwrap();
                written.extend(events.iter().cloned());
                Poll::Ready(Ok(at + events.len() as u64))
            }))
        }

        fn load<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
            unused()
        }
        fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, StoreError>> {
            unused()
        }
        fn fork<'a>(
            &'a self,
            _: &'a str,
            _: &'a str,
            _: Option<u64>,
        ) -> BoxFuture<'a, Result<(), StoreError>> {
            unused()
        }
        fn rename<'a>(&'a self, _: &'a str, _: Option<&'a str>) -> BoxFuture<'a, Result<(), StoreError>> {
            unused()
        }
        fn delete<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
            unused()
        }
        fn keep_result<'a>(
            &'a self,
            _: &'a str,
            _: &'a str,
            _: &'a str,
        ) -> BoxFuture<'a, Result<(), StoreError>> {
            unused()
        }
        fn kept_result<'a>(
            &'a self,
            _: &'a str,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
            unused()
        }
    }

    /// The journal only appends.
    fn unused<T: Send + 'static>() -> BoxFuture<'static, Result<T, StoreError>> {
        Box::pin(std::future::ready(Err(StoreError::NotFound { id: "s".into() })))
    }

    #[derive(Default)]
    struct Shown(Mutex<Vec<String>>);

    impl EventSink for Shown {
        fn event(&self, event: &Event) {
            let text = match event {
                Event::TextDelta { text } | Event::Notice { text, .. } => text.clone(),
                other => format!("{other:?}"),
            };
            self.0.lock().unwrap().push(text);
        }
    }

    fn durable(text: &str) -> Event {
        Event::Notice {
            level: NoticeLevel::Info,
            hook: None,
            text: text.into(),
        }
    }

    fn transient(text: &str) -> Event {
        Event::TextDelta { text: text.into() }
    }

    fn poll(journal: &mut Journal, sink: &Shown) -> bool {
        let flow = pin!(journal.flow(sink));
        flow.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn events_are_shown_in_order_and_after_they_are_written() {
        let (store, sink) = (Arc::new(Slow::default()), Shown::default());
        let shown = || sink.0.lock().unwrap().join(" ");
        let mut journal = Journal::new("s", Some(store.clone()), 0);
        journal.push(transient("1"), &sink);
        assert_eq!(shown(), "1", "nothing is before it");
        journal.push(durable("2"), &sink);
        journal.push(transient("3"), &sink);
        assert!(!poll(&mut journal, &sink), "the batch is being written");
        journal.push(transient("4"), &sink);
        assert_eq!((shown().as_str(), journal.has_shown(2)), ("1", false));
        *store.may_write.lock().unwrap() = true;
        assert!(poll(&mut journal, &sink));
        assert_eq!(shown(), "1 2 3 4");
        assert!(journal.has_shown(4) && !journal.has_shown(5));
        assert_eq!(*store.written.lock().unwrap(), [durable("2")]);

        // Without a store every event is shown at once.
        let mut journal = Journal::new("s", None, 0);
        journal.push(durable("5"), &sink);
        assert_eq!(shown(), "1 2 3 4 5");
    }

    #[test]
    fn queue_is_full_at_its_limit_and_not_before() {
        let (store, sink) = (Arc::new(Slow::default()), Shown::default());
        let mut journal = Journal::new("s", Some(store), 0);
        for _ in 1..MAX_WAITING {
            journal.push(durable("x"), &sink);
        }
        assert!(!journal.is_full());
        journal.push(durable("x"), &sink);
        assert!(journal.is_full());
        assert!(!poll(&mut journal, &sink));
        assert!(!journal.is_full(), "the batch no longer waits");
    }
}

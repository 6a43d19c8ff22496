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

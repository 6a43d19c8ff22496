//! Queue of events from calls and hooks to the driver, in one order.
//!
//! Log lines of calls, and events of the agents that they run, may be lost if the queue is full; receipts and failures
//! of hooks never are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use toolcell_core::Event;

use crate::budget::reserve::Ticket;

/// Maximum number of droppable notes in the queue. A tool that floods its log loses lines, which are counted; it does
/// not fill the host's memory.
pub(super) const MAX_WAITING: usize = 1_024;

/// Sender of notes.
#[derive(Clone)]
pub(crate) struct Notes {
    sender: mpsc::UnboundedSender<Note>,
    waiting: Arc<AtomicUsize>,
}

/// Receiver of notes.
pub(crate) struct NoteReceiver {
    receiver: mpsc::UnboundedReceiver<Note>,
    waiting: Arc<AtomicUsize>,
}

/// Event in the queue.
pub(crate) struct Note {
    pub(crate) event: Event,
    /// Reservation to which the event belongs.
    pub(crate) ticket: Option<Ticket>,
    may_be_lost: bool,
}

/// Creates a queue of notes.
pub(crate) fn notes() -> (Notes, NoteReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let notes = Notes {
        sender,
        waiting: waiting.clone(),
    };
    (notes, NoteReceiver { receiver, waiting })
}

impl Notes {
    /// Sends a note that may be lost; `false` if it was, because the queue is full.
    pub(crate) fn offer(&self, event: Event) -> bool {
        let room = |waiting: usize| (waiting < MAX_WAITING).then_some(waiting + 1);
        let has_room = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .is_ok();
        has_room && self.send(event, None, true)
    }

    /// Sends a note that must not be lost. Its number must be bounded elsewhere, such as by the runs of hooks.
    pub(crate) fn tell(&self, event: Event, ticket: Option<Ticket>) {
        // Without a receiver the turn has ended, and its use is counted no more.
        self.send(event, ticket, false);
    }

    fn send(&self, event: Event, ticket: Option<Ticket>, may_be_lost: bool) -> bool {
        let note = Note {
            event,
            ticket,
            may_be_lost,
        };
        self.sender.send(note).is_ok()
    }
}

impl NoteReceiver {
    /// Receives the next note. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Note> {
        let note = self.receiver.recv().await?;
        Some(self.received(note))
    }

    /// Returns the next note if one is queued.
    pub(crate) fn try_next(&mut self) -> Option<Note> {
        let note = self.receiver.try_recv().ok()?;
        Some(self.received(note))
    }

    fn received(&self, note: Note) -> Note {
        if note.may_be_lost {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_core::event::NoticeLevel;

    fn event(text: &str) -> Event {
        Event::Notice {
            level: NoticeLevel::Info,
            hook: None,
            text: text.into(),
        }
    }

    #[test]
    fn flood_is_cut_and_loses_no_required_note() {
        let (notes, mut receiver) = notes();
        for _ in 0..MAX_WAITING {
            assert!(notes.offer(event("log")));
        }
        assert!(!notes.offer(event("log")));
        notes.tell(event("receipt"), Some(7));
        assert!(receiver.try_next().is_some());
        assert!(notes.offer(event("log")), "there is room again");
        let rest: Vec<Note> = std::iter::from_fn(|| receiver.try_next()).collect();
        assert_eq!(rest.len(), MAX_WAITING + 1);
        let told: Vec<&Note> = rest.iter().filter(|note| note.ticket == Some(7)).collect();
        assert_eq!(told.len(), 1);
    }
}

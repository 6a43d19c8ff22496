//! Events of calls and hooks on their way to the driver, in one order.
//!
//! What a call logs may be lost where too much of it waits; what a hook used, and that it failed, never is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use toolcell_core::Event;

use crate::budget::reserve::Ticket;

/// Notes of a turn that may be lost and wait for the driver at most. A tool that floods its log loses lines, which are
/// counted; it does not fill the host's memory.
pub(super) const MAX_WAITING: usize = 1_024;

/// Where notes go.
#[derive(Clone)]
pub(crate) struct Notes {
    sender: mpsc::UnboundedSender<Note>,
    waiting: Arc<AtomicUsize>,
}

/// Where they come from.
pub(crate) struct NoteReceiver {
    receiver: mpsc::UnboundedReceiver<Note>,
    waiting: Arc<AtomicUsize>,
}

/// Something that was told.
pub(super) struct Note {
    pub(super) event: Event,
    /// The reservation that the event is about.
    pub(super) ticket: Option<Ticket>,
    may_be_lost: bool,
}

/// A queue of notes.
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
    /// Sends what may be lost; `false` when it was, because too much waits.
    pub(crate) fn offer(&self, event: Event) -> bool {
        let room = |waiting: usize| (waiting < MAX_WAITING).then_some(waiting + 1);
        let has_room = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .is_ok();
        has_room && self.send(event, None, true)
    }

    /// Sends what must not be lost. For what is bounded by itself: one for each time that a hook runs.
    pub(crate) fn tell(&self, event: Event, ticket: Option<Ticket>) {
        // Without a receiver the turn is gone, and with it whatever could be counted.
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
    /// The next note. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Note> {
        let note = self.receiver.recv().await?;
        Some(self.received(note))
    }

    /// The next note that is there already.
    pub(super) fn try_next(&mut self) -> Option<Note> {
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
            text: text.into(),
        }
    }

    #[test]
    fn a_flood_is_cut_and_what_must_arrive_arrives() {
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

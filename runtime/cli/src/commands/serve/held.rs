//! Sessions in memory that wait for results of a client.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize as _;
use toolcell_agent::Session;
use toolcell_core::Message;

/// Maximum number of sessions. The oldest ends for a further one: its client continues with the messages that it sends.
const MAX_HELD: usize = 256;

/// Maximum size of the messages of all of them, in bytes of JSON. A request has up to 32 MiB.
const MAX_BYTES: usize = 128 << 20;

/// Sessions by their numbers, the oldest first.
#[derive(Default)]
pub(super) struct Held(Mutex<Waiting<Session>>);

struct Waiting<T> {
    last: u64,
    bytes: usize,
    /// Identifier, size and session.
    all: BTreeMap<u64, (String, usize, T)>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self {
            last: 0,
            bytes: 0,
            all: BTreeMap::new(),
        }
    }
}

impl<T> Waiting<T> {
    fn keep(&mut self, id: String, bytes: usize, session: T) {
        if bytes > MAX_BYTES {
            return;
        }
        while self.all.len() >= MAX_HELD || self.bytes + bytes > MAX_BYTES {
            let Some((_, (_, freed, _))) = self.all.pop_first() else {
                break;
            };
            self.bytes -= freed;
        }
        self.last += 1;
        self.bytes += bytes;
        self.all.insert(self.last, (id, bytes, session));
    }

    fn number(&self, id: &str) -> Option<u64> {
        let mut all = self.all.iter();
        all.find(|(_, (known, ..))| known == id)
            .map(|(number, _)| *number)
    }

    fn take(&mut self, id: &str) -> Option<T> {
        let number = self.number(id)?;
        let (_, bytes, session) = self.all.remove(&number)?;
        self.bytes -= bytes;
        Some(session)
    }
}

/// Counts bytes, and keeps none.
struct Counted(usize);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the size of messages as JSON, in bytes.
pub(super) fn size<'a>(messages: impl IntoIterator<Item = &'a Message>) -> usize {
    let mut counted = Counted(0);
    for message in messages {
        // The writer cannot fail.
        _ = message.serialize(&mut serde_json::Serializer::new(&mut counted));
    }
    counted.0
}

impl Held {
    pub(super) fn keep(&self, session: Session) {
        let id = session.id().to_owned();
        let bytes = size(session.messages().iter().map(AsRef::as_ref));
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.keep(id, bytes, session);
    }

    pub(super) fn has(&self, id: &str) -> bool {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.number(id).is_some()
    }

    pub(super) fn take(&self, id: &str) -> Option<Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_session_ends_for_a_further_one() {
        let mut waiting = Waiting::default();
        for number in 0..=MAX_HELD {
            waiting.keep(number.to_string(), 1, number);
        }
        assert_eq!(
            (waiting.take("0"), waiting.take("1"), waiting.take("1")),
            (None, Some(1), None)
        );
        waiting.keep("half".into(), MAX_BYTES / 2, 0);
        waiting.keep("all".into(), MAX_BYTES, 0);
        assert_eq!((waiting.all.len(), waiting.bytes), (1, MAX_BYTES));
        assert!(waiting.number("all").is_some() && waiting.number("half").is_none());
        waiting.keep("more".into(), MAX_BYTES + 1, 0);
        assert_eq!(
            (waiting.take("more"), waiting.take("all"), waiting.bytes),
            (None, Some(0), 0)
        );
    }

    #[test]
    fn size_is_that_of_the_messages() {
        let small = size([&Message::user("a")]);
        assert_eq!(size([&Message::user("a".repeat(1_001))]), small + 1_000);
    }
}

//! Room for what is held for clients: parts of answers that they do not read, and messages of turns that run.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum size of what one client has not read, in bytes: large events for some tens of streams. Streams wait beyond it, and
/// other answers have the status 429. A connection that takes no byte for a time ends, which frees its room.
pub const MAX_UNREAD: usize = 64 << 20;

/// Maximum size of a part that takes no room, in bytes: with [`crate::clients::MAX_REQUESTS`] of them it is 96 MiB.
pub(crate) const SMALL: usize = 64 << 10;

/// Maximum size of the messages of a client's turns that run, in bytes of JSON: four of the largest bodies, or a hundred long
/// conversations. Each byte takes about four, with the events of the turn and the request to the model. Beyond it the status is 429.
pub const MAX_CLIENT_MESSAGES: usize = 128 << 20;

/// Maximum size of the messages of all turns that run, in bytes of JSON: about a gigabyte of memory. Beyond it the status is 503.
pub const MAX_MESSAGES: usize = 2 * MAX_CLIENT_MESSAGES;

/// Unit of room, in bytes.
const UNIT: usize = 1 << 10;

/// Room of a client, or of all.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    units: Arc<Semaphore>,
    /// All of it, in bytes.
    most: usize,
}

/// Room for a part.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            units: Arc::new(Semaphore::new(most / UNIT)),
            most,
        }
    }

    /// Number of units for a part. One that is larger than all of the room takes all of it.
    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.most).div_ceil(UNIT)).unwrap_or(u32::MAX)
    }

    /// Waits for room.
    pub(crate) async fn take(&self, bytes: usize) -> Taken {
        // The semaphore is never closed.
        let permit = self.units.clone().acquire_many_owned(self.units_of(bytes));
        let permit = permit.await.ok();
        Taken { permit, bytes }
    }

    /// Takes room, if there is enough.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Taken> {
        let permit = self.units.clone().try_acquire_many_owned(self.units_of(bytes));
        permit.ok().map(|permit| Taken {
            permit: Some(permit),
            bytes,
        })
    }
}

impl Taken {
    /// True if a part of this size may be held.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.bytes.max(SMALL)
    }

    /// Returns a part that has the room until it is sent.
    pub(crate) fn hold(self, part: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        if self.permit.is_none() {
            return Bytes::from_owner(part);
        }
        Bytes::from_owner(Held {
            part,
            _permit: self.permit,
        })
    }
}

struct Held<T> {
    part: T,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.part.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_parts_take_room_until_they_are_sent() {
        let room = Room::new(MAX_UNREAD);
        let parts: Vec<Bytes> = (0..MAX_UNREAD >> 20)
            .map(|_| room.try_take(1 << 20).unwrap().hold(vec![1; 1 << 20]))
            .collect();
        assert!(room.try_take(1).is_none());
        assert!(Taken::default().fits(SMALL) && !Taken::default().fits(SMALL + 1));
        drop(parts);
        // What is larger than all of it can be sent alone.
        let all = room.try_take(MAX_UNREAD + 1).unwrap();
        assert!(all.fits(MAX_UNREAD + 1) && room.try_take(1).is_none());
    }
}

//! Calls that are waiting or running, by the identifiers of their requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::message::RequestId;

/// Maximum number of calls of a client that wait or run. Clients send one for each call of a step of their model.
pub const MAX_IN_FLIGHT: usize = 256;

/// Maximum size of the messages of these calls in total, in bytes: their arguments are held until they have run.
pub const MAX_IN_FLIGHT_BYTES: usize = 32 << 20;

/// Calls of one client.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    by_id: HashMap<RequestId, Entry>,
    /// Calls and bytes, including those of cancelled calls that have not ended.
    count: usize,
    bytes: usize,
    serial: u64,
}

struct Entry {
    serial: u64,
    cancel: CancellationToken,
}

/// Call in progress. It is counted until this is dropped.
pub(crate) struct Ticket {
    in_flight: Arc<InFlight>,
    id: RequestId,
    serial: u64,
    bytes: usize,
    /// Cancelled by the client, or at the end of the connection.
    pub(crate) cancel: CancellationToken,
}

/// Reason why a call does not begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Calls,
    Bytes,
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a request with this identifier has no response yet.
    pub(crate) fn contains(&self, id: &RequestId) -> bool {
        self.lock().by_id.contains_key(id)
    }

    /// Begins a call with an unused identifier; `bytes` is the size of its message.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: RequestId,
        bytes: usize,
        cancel: CancellationToken,
    ) -> Result<Ticket, Full> {
        let mut calls = self.lock();
        if calls.count >= MAX_IN_FLIGHT {
            return Err(Full::Calls);
        }
        if calls.bytes + bytes > MAX_IN_FLIGHT_BYTES {
            return Err(Full::Bytes);
        }
        calls.count += 1;
        calls.bytes += bytes;
        calls.serial += 1;
        let serial = calls.serial;
        let entry = Entry {
            serial,
            cancel: cancel.clone(),
        };
        calls.by_id.insert(id.clone(), entry);
        drop(calls);
        Ok(Ticket {
            in_flight: self.clone(),
            id,
            serial,
            bytes,
            cancel,
        })
    }

    /// Cancels a call and releases its identifier, because no response follows.
    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some(entry) = self.lock().by_id.remove(id) {
            entry.cancel.cancel();
        }
    }
}

impl Ticket {
    /// Ends the use of the identifier before the response is sent. Returns false if the call was cancelled.
    pub(crate) fn is_answered(&self) -> bool {
        let mut calls = self.in_flight.lock();
        let is_open = calls
            .by_id
            .get(&self.id)
            .is_some_and(|entry| entry.serial == self.serial);
        if is_open {
            calls.by_id.remove(&self.id);
        }
        is_open
    }

    /// Identifier of the request.
    pub(crate) fn id(&self) -> &RequestId {
        &self.id
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.is_answered();
        let mut calls = self.in_flight.lock();
        calls.count -= 1;
        calls.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(in_flight: &Arc<InFlight>, id: i64, bytes: usize) -> Result<Ticket, Full> {
        in_flight.begin(RequestId::Number(id), bytes, CancellationToken::new())
    }

    #[test]
    fn calls_are_accepted_up_to_their_number() {
        let in_flight = Arc::new(InFlight::default());
        let ids = 0..i64::try_from(MAX_IN_FLIGHT).unwrap();
        let mut tickets: Vec<Ticket> = ids.map(|id| begin(&in_flight, id, 1).unwrap()).collect();
        assert_eq!(begin(&in_flight, -1, 1).err(), Some(Full::Calls));
        tickets.pop();
        assert!(begin(&in_flight, -1, 1).is_ok());
    }

    #[test]
    fn calls_are_accepted_up_to_their_bytes() {
        let in_flight = Arc::new(InFlight::default());
        let _most = begin(&in_flight, 1, MAX_IN_FLIGHT_BYTES - 1).unwrap();
        assert_eq!(begin(&in_flight, 2, 2).err(), Some(Full::Bytes));
        let last = begin(&in_flight, 2, 1).unwrap();
        assert_eq!(begin(&in_flight, 3, 1).err(), Some(Full::Bytes));
        drop(last);
        assert!(begin(&in_flight, 3, 1).is_ok());
    }

    #[test]
    fn cancelled_id_can_be_used_again_at_once() {
        let in_flight = Arc::new(InFlight::default());
        let first = begin(&in_flight, 1, 1).unwrap();
        in_flight.cancel(&RequestId::Number(1));
        assert!(first.cancel.is_cancelled());
        let second = begin(&in_flight, 1, 1).unwrap();
        assert!(!first.is_answered());
        drop(first);
        assert!(in_flight.contains(&RequestId::Number(1)));
        assert!(second.is_answered() && !second.is_answered());
    }
}

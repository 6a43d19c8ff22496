//! Calls that are waiting or running, by the identifiers of their requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use toolcell_core::json;

use crate::message::{Incoming, RequestId};

/// Maximum number of calls of a client that wait or run. Clients send one for each call of a step of their model.
pub const MAX_IN_FLIGHT: usize = 256;

/// Maximum memory of these calls in total, in bytes of their parsed arguments, which are held until they
/// have run. A call that needs more is accepted while there is no other.
pub const MAX_IN_FLIGHT_BYTES: usize = 128 << 20;

/// Memory of a call beside its arguments and identifiers, in bytes.
const CALL_BYTES: usize = 1 << 10;

/// Returns the memory of a value in bytes: parsed, `[0]` takes forty times as much as its text.
pub(crate) fn memory_of(value: &Value) -> usize {
    bytes(json::memory_of(value))
}

fn memory_of_object(members: &Map<String, Value>) -> usize {
    bytes(json::memory_of_object(members))
}

fn bytes(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Memory of a parsed message, in bytes.
pub(crate) fn memory_of_message(message: &Incoming) -> usize {
    match message {
        Incoming::Request(request) => memory_of_object(&request.params),
        Incoming::Notification { params, .. } => memory_of_object(params),
        Incoming::Batch(items) => items.iter().map(memory_of).sum(),
        _ => 0,
    }
}

/// Returns the memory that a call holds until it is answered, in bytes.
pub(crate) fn memory_of_call(
    id: &RequestId,
    progress: Option<&Value>,
    arguments: &Map<String, Value>,
) -> usize {
    let id = match id {
        RequestId::Number(_) => 0,
        RequestId::Text(text) => text.len(),
    };
    // Both are held twice.
    CALL_BYTES + 2 * (id + progress.map_or(0, memory_of)) + memory_of_object(arguments)
}

/// Calls of one connection or session.
#[derive(Default)]
pub(crate) struct InFlight {
    calls: Mutex<Calls>,
    load: Arc<Load>,
}

#[derive(Default)]
struct Calls {
    by_id: HashMap<RequestId, Entry>,
    serial: u64,
}

/// Number and memory of the calls of one client, which can have several sessions. Cancelled calls count until they end.
#[derive(Default)]
pub(crate) struct Load(Mutex<Total>);

#[derive(Default)]
struct Total {
    calls: usize,
    bytes: usize,
}

impl Load {
    fn lock(&self) -> MutexGuard<'_, Total> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the calls.
    pub(crate) fn calls(&self) -> usize {
        self.lock().calls
    }

    fn add(&self, bytes: usize) -> Result<(), Full> {
        let mut total = self.lock();
        if total.calls >= MAX_IN_FLIGHT {
            return Err(Full::Calls);
        }
        if total.calls > 0 && total.bytes + bytes > MAX_IN_FLIGHT_BYTES {
            return Err(Full::Bytes);
        }
        total.calls += 1;
        total.bytes += bytes;
        Ok(())
    }

    fn remove(&self, bytes: usize) {
        let mut total = self.lock();
        total.calls -= 1;
        total.bytes -= bytes;
    }
}

struct Entry {
    serial: u64,
    withdrawn: CancellationToken,
}

/// Call in progress. It is counted until this is dropped.
pub(crate) struct Ticket {
    in_flight: Arc<InFlight>,
    id: RequestId,
    serial: u64,
    bytes: usize,
    /// Cancelled if the client cancels the call: it has no response.
    withdrawn: CancellationToken,
    /// Cancelled at the end of the connection.
    ended: CancellationToken,
}

/// Reason why a call does not begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Calls,
    Bytes,
}

impl InFlight {
    /// Creates a list of calls whose number and memory count with those of other lists.
    pub(crate) fn within(load: Arc<Load>) -> Self {
        Self {
            calls: Mutex::default(),
            load,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a request with this identifier has no response yet.
    pub(crate) fn contains(&self, id: &RequestId) -> bool {
        self.lock().by_id.contains_key(id)
    }

    /// Begins a call with an unused identifier; `bytes` is the memory that it holds.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: RequestId,
        bytes: usize,
        ended: CancellationToken,
    ) -> Result<Ticket, Full> {
        self.load.add(bytes)?;
        let mut calls = self.lock();
        calls.serial += 1;
        let serial = calls.serial;
        let withdrawn = CancellationToken::new();
        let entry = Entry {
            serial,
            withdrawn: withdrawn.clone(),
        };
        calls.by_id.insert(id.clone(), entry);
        drop(calls);
        Ok(Ticket {
            in_flight: self.clone(),
            id,
            serial,
            bytes,
            withdrawn,
            ended,
        })
    }

    /// Cancels a call and releases its identifier, because no response follows.
    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some(entry) = self.lock().by_id.remove(id) {
            entry.withdrawn.cancel();
        }
    }
}

impl Ticket {
    /// Waits until the client cancels the call, or the connection ends.
    pub(crate) async fn cancelled(&self) {
        tokio::select! {
            () = self.withdrawn.cancelled() => {}
            () = self.ended.cancelled() => {}
        }
    }

    /// Waits until the client cancels the call.
    pub(crate) async fn withdrawn(&self) {
        self.withdrawn.cancelled().await;
    }

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
        self.in_flight.load.remove(self.bytes);
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
    fn call_beyond_the_bytes_is_accepted_alone() {
        let in_flight = Arc::new(InFlight::default());
        let other = begin(&in_flight, 1, 1).unwrap();
        assert_eq!(
            begin(&in_flight, 2, MAX_IN_FLIGHT_BYTES + 1).err(),
            Some(Full::Bytes)
        );
        drop(other);
        let _large = begin(&in_flight, 2, MAX_IN_FLIGHT_BYTES + 1).unwrap();
        assert_eq!(begin(&in_flight, 3, 1).err(), Some(Full::Bytes));
    }

    #[test]
    fn memory_of_a_value_is_that_of_its_parts() {
        let memory = |text: &str| memory_of(&serde_json::from_str(text).unwrap());
        let value = size_of::<Value>();
        assert_eq!(memory("12.5"), 0);
        assert!(memory("\"0123456789\"") >= 10);
        assert!(memory("[[0],[0],[0],[0]]") >= 4 * value + 4 * value);
        assert!(memory("{\"a\":{\"b\":0}}") >= 2 * 11 * (size_of::<String>() + value));
        let long = "x".repeat(1000);
        let id = RequestId::Text(long.clone());
        assert!(memory_of_call(&id, Some(&Value::String(long)), &Map::new()) >= 4000);
    }

    #[test]
    fn memory_of_a_message_is_that_of_its_parameters() {
        let long = "x".repeat(1000);
        let object = Map::from_iter([(long.clone(), Value::String(long))]);
        assert!(memory_of_object(&object) >= 2000);
        let call = |arguments: &Map<_, _>| memory_of_call(&RequestId::Number(1), None, arguments);
        assert_eq!(call(&Map::new()), CALL_BYTES);
        assert_eq!(call(&object), CALL_BYTES + memory_of_object(&object));
        let parameters = serde_json::json!({"jsonrpc": "2.0", "method": "m", "params": object});
        let mut request = parameters.clone();
        request["id"] = 1.into();
        let batch = Incoming::Batch(vec![request.clone()]);
        let [parameters, request] = [parameters, request].map(crate::message::of_value);
        for message in [parameters, request, batch] {
            assert!(memory_of_message(&message) >= 2000, "{message:?}");
        }
    }

    #[test]
    fn unanswered_id_can_be_used_again_once_its_call_is_dropped() {
        let in_flight = Arc::new(InFlight::default());
        drop(begin(&in_flight, 1, 1).unwrap());
        assert!(!in_flight.contains(&RequestId::Number(1)));
    }

    #[test]
    fn cancelled_id_can_be_used_again_at_once() {
        let in_flight = Arc::new(InFlight::default());
        let first = begin(&in_flight, 1, 1).unwrap();
        in_flight.cancel(&RequestId::Number(1));
        assert!(first.withdrawn.is_cancelled());
        let second = begin(&in_flight, 1, 1).unwrap();
        assert!(!first.is_answered());
        drop(first);
        assert!(in_flight.contains(&RequestId::Number(1)));
        assert!(second.is_answered() && !second.is_answered());
    }
}

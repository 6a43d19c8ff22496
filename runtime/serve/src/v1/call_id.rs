//! Identifiers of calls that go to the client. They name the session, the turn and the place of the call in it, so that the next
//! request finds the turn, and each result its call.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use crate::host::CallPlace;

/// Length of a session's number in Base64.
const SESSION_CHARS: usize = 22;

/// Call of a tool of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallId {
    /// Identifier of the session.
    pub(super) session: String,
    /// Number of events of the session before the turn; 0 for a session in memory.
    pub(super) turn: u64,
    pub(super) place: CallPlace,
}

impl fmt::Display for CallId {
    /// Writes at most 40 characters, of which clients take no more, unless a session has a million events.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = Uuid::try_parse(&self.session).unwrap_or_default();
        let session = URL_SAFE_NO_PAD.encode(session.as_bytes());
        let CallPlace { step, index } = self.place;
        write!(f, "tc_{session}_{}_{step}_{index}", self.turn)
    }
}

impl CallId {
    /// Parses an identifier; `None` for one that is not from here.
    pub(super) fn parse(id: &str) -> Option<Self> {
        // The number of the session may have underscores.
        let (session, numbers) = id.strip_prefix("tc_")?.split_at_checked(SESSION_CHARS)?;
        let session = URL_SAFE_NO_PAD.decode(session).ok()?;
        let session = Uuid::from_slice(&session).ok()?;
        let mut numbers = numbers.strip_prefix('_')?.split('_');
        let found = Self {
            session: session.hyphenated().to_string(),
            turn: numbers.next()?.parse().ok()?,
            place: CallPlace {
                step: numbers.next()?.parse().ok()?,
                index: numbers.next()?.parse().ok()?,
            },
        };
        numbers.next().is_none().then_some(found)
    }
}

/// Results of calls of one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnResults {
    pub(super) session: String,
    /// As in [`CallId::turn`].
    pub(super) turn: u64,
    pub(super) results: BTreeMap<CallPlace, String>,
}

impl TurnResults {
    /// Finds the turn to which results belong; `None` if there are none, not all belong to one turn, or two are of one call.
    pub(super) fn of<'a>(results: impl IntoIterator<Item = (&'a str, String)>) -> Option<Self> {
        let mut found: Option<Self> = None;
        for (id, text) in results {
            let CallId { session, turn, place } = CallId::parse(id)?;
            let known = found.get_or_insert_with(|| Self {
                session: session.clone(),
                turn,
                results: BTreeMap::new(),
            });
            if (known.session.as_str(), known.turn) != (session.as_str(), turn) {
                return None;
            }
            if known.results.insert(place, text).is_some() {
                return None;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(session: &str, turn: u64, step: u32, index: usize) -> CallId {
        CallId {
            session: session.to_owned(),
            turn,
            place: CallPlace { step, index },
        }
    }

    #[test]
    fn identifier_of_a_call_names_its_turn_and_place() {
        for _ in 0..100 {
            let known = call(&Uuid::now_v7().to_string(), 99_999, 50, 9);
            let id = known.to_string();
            assert!(id.len() <= 40, "{id}");
            assert_eq!(CallId::parse(&id), Some(known));
            for foreign in [
                &id[..SESSION_CHARS + 3],
                &format!("{id}_1"),
                &format!("{id}x"),
                &id[1..],
            ] {
                assert_eq!(CallId::parse(foreign), None, "{foreign}");
            }
        }
        for foreign in ["call_1", "tc_x_1", "tc_", "", "tc_éééééééééééééééééé_1_1_1"] {
            assert_eq!(CallId::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn results_are_of_one_turn() {
        let session = Uuid::now_v7().to_string();
        let of = |calls: &[&CallId]| {
            let ids: Vec<String> = calls.iter().map(ToString::to_string).collect();
            TurnResults::of(ids.iter().map(|id| (id.as_str(), "x".to_owned())))
        };
        let (one, other) = (call(&session, 0, 1, 0), call(&session, 0, 1, 1));
        assert_eq!(of(&[&one, &other]).unwrap().results.len(), 2);
        assert_eq!(of(&[&one, &other, &one]), None);
        let elsewhere = call(&Uuid::now_v7().to_string(), 0, 1, 1);
        for foreign in [elsewhere, call(&session, 4, 1, 1)] {
            assert_eq!(of(&[&one, &foreign]), None);
        }
        assert_eq!(of(&[]), None);
    }
}

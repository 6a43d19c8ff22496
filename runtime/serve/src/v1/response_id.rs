//! Identifiers of responses.

use std::fmt;

use uuid::Uuid;

/// Identifier of a response: a part of a turn, from one request of the client to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResponseId {
    pub(super) session: String,
    /// Number of events of the session before the turn.
    pub(super) turn: u64,
    /// Number of events before the part; that of the turn for its first one.
    pub(super) at: u64,
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resp_{}", self.place())
    }
}

impl ResponseId {
    fn place(&self) -> String {
        let place = format!("{}_{}", self.session.replace('-', ""), self.turn);
        match self.at == self.turn {
            true => place,
            false => format!("{place}_{}", self.at),
        }
    }

    fn of_place(place: &str) -> Option<Self> {
        let (session, numbers) = place.split_once('_')?;
        let (turn, at) = match numbers.split_once('_') {
            Some((turn, at)) => (turn.parse().ok()?, at.parse().ok()?),
            None => (numbers.parse().ok()?, numbers.parse().ok()?),
        };
        Some(Self {
            session: Uuid::try_parse(session).ok()?.hyphenated().to_string(),
            turn,
            at,
        })
    }

    /// Parses an identifier; `None` for one that is not from here.
    pub(super) fn parse(id: &str) -> Option<Self> {
        Self::of_place(id.strip_prefix("resp_")?)
    }

    /// Returns the identifier of the message of the response.
    pub(super) fn message(&self) -> String {
        format!("msg_{}", self.place())
    }

    /// Finds the response of a message; `None` for one that is not from here.
    pub(super) fn of_message(id: &str) -> Option<Self> {
        Self::of_place(id.strip_prefix("msg_")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_of_a_response_names_its_part() {
        let session = Uuid::now_v7().to_string();
        for at in [12, 1_900_000_000_000] {
            let id = ResponseId {
                session: session.clone(),
                turn: 12,
                at,
            };
            let text = id.to_string();
            let message = id.message();
            assert!(text.len() <= 64 && message.len() <= 64, "{text} {message}");
            assert_eq!(ResponseId::parse(&message), None);
            assert_eq!(ResponseId::of_message(&message), Some(id.clone()));
            assert_eq!(ResponseId::parse(&text), Some(id));
        }
        for foreign in [
            "resp_1",
            "resp_x_1",
            "",
            "chatcmpl-1",
            "resp_0198f3c0000070008000000000000000_1_2_3",
        ] {
            assert_eq!(ResponseId::parse(foreign), None, "{foreign}");
        }
    }
}

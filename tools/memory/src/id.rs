//! Identifiers of memories and tasks: `m17`, `t18`. Short, because models read and write them; numbers are never
//! reused.

use std::fmt;
use std::str::FromStr;

use toolcell_sdk::{ToolError, show};

/// Identifier of a memory or a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Id {
    Memory(u64),
    Task(u64),
}

impl FromStr for Id {
    type Err = ToolError;

    fn from_str(text: &str) -> Result<Self, ToolError> {
        let number = |digits: &str| {
            let well_formed = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
            digits.parse().ok().filter(|_| well_formed)
        };
        let id = match text.trim().split_at_checked(1) {
            Some(("m", digits)) => number(digits).map(Self::Memory),
            Some(("t", digits)) => number(digits).map(Self::Task),
            _ => None,
        };
        id.ok_or_else(|| {
            ToolError::invalid(format_args!(
                "invalid id {}; memories have ids such as `m17`, tasks such as `t18`",
                show::quoted(text)
            ))
        })
    }
}

impl Id {
    /// Parses the identifier of a memory.
    ///
    /// # Errors
    /// Fails for any other text.
    pub(crate) fn memory(text: &str) -> Result<u64, ToolError> {
        match text.parse()? {
            Self::Memory(number) => Ok(number),
            Self::Task(_) => Err(ToolError::invalid(format_args!(
                "{} is a task; `memory_tasks` has tasks",
                show::quoted(text)
            ))),
        }
    }

    /// Parses the identifier of a task.
    ///
    /// # Errors
    /// Fails for any other text.
    pub(crate) fn task(text: &str) -> Result<u64, ToolError> {
        match text.parse()? {
            Self::Task(number) => Ok(number),
            Self::Memory(_) => Err(ToolError::invalid(format_args!(
                "{} is a memory, not a task",
                show::quoted(text)
            ))),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(number) => write!(f, "m{number}"),
            Self::Task(number) => write!(f, "t{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_round_trip_and_other_text_is_refused() {
        for id in [Id::Memory(1), Id::Task(u64::MAX)] {
            assert_eq!(id.to_string().parse::<Id>(), Ok(id));
        }
        for bad in [
            "",
            "m",
            "17",
            "x1",
            "m-1",
            "m+1",
            "m01",
            "m1/x",
            "é1",
            "m18446744073709551616",
        ] {
            assert!(bad.parse::<Id>().is_err(), "{bad}");
        }
        assert!(Id::memory("t1").is_err() && Id::task("m1").is_err());
    }
}

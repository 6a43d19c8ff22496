//! Names of memories and tasks: `m17`, `t18`. Short, because a model reads and writes them; the number is drawn once.

use std::fmt;
use std::str::FromStr;

use toolcell_sdk::ToolError;

/// A memory or a task.
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
                "`{}` is no id; memories have ids such as `m17`, tasks such as `t18`",
                text.escape_debug()
            ))
        })
    }
}

impl Id {
    /// The id of a memory.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn memory(text: &str) -> Result<u64, ToolError> {
        match text.parse()? {
            Self::Memory(number) => Ok(number),
            Self::Task(_) => Err(ToolError::invalid(format_args!(
                "`{text}` is a task; `memory_tasks` has tasks"
            ))),
        }
    }

    /// The id of a task.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn task(text: &str) -> Result<u64, ToolError> {
        match text.parse()? {
            Self::Task(number) => Ok(number),
            Self::Memory(_) => Err(ToolError::invalid(format_args!(
                "`{text}` is a memory and no task"
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
    fn an_id_reads_back_as_it_is_written_and_nothing_else_is_one() {
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

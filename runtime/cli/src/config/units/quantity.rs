//! Units of configuration values, with parsing and formatting.

use std::time::Duration;

use super::money::Money;
use super::{Bytes, Count, Span};

/// Unit of a configuration value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Size in bytes.
    Bytes,
    /// Duration in milliseconds.
    Time,
    /// Plain count.
    Count,
    /// Amount in millionths of a unit of money.
    Money,
}

impl Unit {
    /// Parses a value in this unit.
    pub(in crate::config) fn read(self, text: &str) -> Result<u64, String> {
        Ok(match self {
            Self::Bytes => text.parse::<Bytes>()?.0,
            Self::Time => millis(text.parse()?),
            Self::Count => text.parse::<Count>()?.0,
            Self::Money => text.parse::<Money>()?.0,
        })
    }

    /// Formats a value for display, rounded.
    pub(in crate::config) fn shown(self, value: u64) -> String {
        match self {
            Self::Bytes => Bytes(value).to_string(),
            Self::Time => Span(Duration::from_millis(value)).to_string(),
            Self::Count => Count(value).to_string(),
            Self::Money => Money(value).to_string(),
        }
    }

    /// Formats a value so that it parses back to exactly the same value, in the largest unit that divides it.
    pub(in crate::config) fn exactly(self, value: u64) -> String {
        let units: &[(&str, u64)] = match self {
            Self::Bytes => &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)],
            Self::Time => &[("s", 1_000), ("ms", 1)],
            Self::Count => &[
                ("T", 1_000_000_000_000),
                ("G", 1_000_000_000),
                ("M", 1_000_000),
                ("k", 1_000),
            ],
            Self::Money => return Money(value).to_string(),
        };
        match units
            .iter()
            .find(|(_, size)| value > 0 && value.is_multiple_of(*size))
        {
            Some((unit, size)) => format!("{} {unit}", value / size),
            // A duration without a unit would be refused.
            None if self == Self::Time => format!("{value} ms"),
            None => value.to_string(),
        }
    }
}

/// Converts to whole milliseconds.
pub(in crate::config) fn millis(span: Span) -> u64 {
    u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)
}

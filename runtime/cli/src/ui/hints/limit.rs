//! Values in hints that raise a limit of a call.

use toolcell_core::keyvalue::Quota;
use toolcell_core::{Limit, Limits, Receipt};
use toolcell_store::BucketLimits;

use crate::config::limits;
use crate::ui::escape;

/// Returns the setting behind a limit, and a value for it: what the call needed, if its receipt says all of it, or else the
/// default, or twice a limit that is not below the default. There is none if the rest of a budget was less than the limit.
pub(super) fn limit_setting(
    limit: &Limit,
    receipt: &Receipt,
    limits: &Limits,
) -> Option<(&'static str, String)> {
    let (name, value) = match *limit {
        Limit::Fuel(n) => ("fuel", n),
        Limit::WallTimeMs(n) => ("wall", n),
        Limit::Memory(n) => ("memory", n),
        Limit::TableElements(n) => ("table_elements", n),
        Limit::Handles(n) => ("handles", n),
        Limit::Output(n) => ("output", n),
        _ => return None,
    };
    if value < limits::get(limits, name) {
        return None;
    }
    let more = match (limit, value) {
        (Limit::Output(_), value) if receipt.bytes_out > value => round_up(receipt.bytes_out),
        (Limit::Memory(_), value) => sufficient(name, value, receipt.needed_memory),
        (_, value) => larger(name, value),
    };
    Some((name, limits::exactly(name, more)))
}

/// Returns a larger limit with which at least what was refused fits. The tool may ask for more after it, so that it is no
/// less than the default, or than twice a limit that is not below the default. The size of a body is known as a whole, if it is.
pub(super) fn sufficient(name: &'static str, limit: u64, needed: u64) -> u64 {
    let larger = match name {
        "http_body" if needed > limit => limits::get(&Limits::default(), name),
        _ => larger(name, limit),
    };
    match needed > larger {
        true => round_up(needed),
        false => larger,
    }
}

/// Returns twice a limit, or the default of one below it.
fn larger(name: &'static str, limit: u64) -> u64 {
    let default = limits::get(&Limits::default(), name);
    match limit < default {
        true => default,
        false => limit.saturating_mul(2),
    }
}

/// Returns a larger limit of a bucket as a TOML value: the default, or twice a limit that is not below it.
pub(super) fn larger_bucket(limit: u64, of: Quota) -> String {
    let defaults = BucketLimits::default();
    let (unit, default) = match of {
        Quota::Keys => ("file_count", defaults.keys),
        _ => ("file_bytes", defaults.bytes),
    };
    let larger = default.max(limit.saturating_mul(2));
    escape::toml(&limits::exactly(unit, larger))
}

/// Rounds bytes up to whole KiB, and from 1 MiB on to whole MiB.
fn round_up(bytes: u64) -> u64 {
    let unit = if bytes < 1 << 20 { 1 << 10 } else { 1 << 20 };
    bytes.checked_next_multiple_of(unit).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_for_a_limit_is_above_it() {
        let none = Limits {
            memory: 0,
            output: 0,
            wall_ms: 0,
            fuel: 0,
            ..Limits::default()
        };
        let setting = |limit| limit_setting(&limit, &Receipt::default(), &none);
        for (limit, expected) in [
            (Limit::Memory(0), ("memory", "256 MiB")),
            (Limit::Output(0), ("output", "4 MiB")),
            (Limit::Output(1), ("output", "4 MiB")),
            (Limit::WallTimeMs(2_000), ("wall", "30 s")),
            (Limit::WallTimeMs(30_000), ("wall", "60 s")),
            (Limit::Fuel(1_000), ("fuel", "1 T")),
        ] {
            assert_eq!(setting(limit), Some((expected.0, expected.1.to_owned())));
        }
    }

    #[test]
    fn hint_for_a_limit_proposes_what_the_call_needed() {
        let limits = Limits::default();
        let receipt = Receipt {
            needed_memory: (1 << 30) + 1,
            bytes_out: (5 << 20) - 1,
            ..Receipt::default()
        };
        let setting =
            |limit, receipt: &Receipt| limit_setting(&limit, receipt, &limits).map(|(_, value)| value);
        let memory = Limit::Memory(limits.memory);
        assert_eq!(setting(memory, &receipt).as_deref(), Some("1025 MiB"));
        assert_eq!(setting(memory, &Receipt::default()).as_deref(), Some("512 MiB"));
        let output = Limit::Output(limits.output);
        assert_eq!(setting(output, &receipt).as_deref(), Some("5 MiB"));
    }

    #[test]
    fn limit_that_a_budget_lowered_is_not_proposed_to_be_raised() {
        let limits = Limits::default();
        for (wall, is_own) in [(limits.wall_ms, true), (limits.wall_ms - 1, false)] {
            let setting = limit_setting(&Limit::WallTimeMs(wall), &Receipt::default(), &limits);
            assert_eq!(setting.is_some(), is_own, "{wall}");
        }
    }

    #[test]
    fn raised_limit_suffices_for_what_was_refused() {
        for (name, limit, needed, value) in [
            ("file_bytes", 10, 20, 256 << 20),
            ("file_bytes", 10, (256 << 20) + 1, 257 << 20),
            ("file_bytes", 256 << 20, (256 << 20) + 1, 512 << 20),
            ("http_body", 16 << 20, (64 << 20) + 1, 65 << 20),
            ("http_body", 16 << 20, 20 << 20, 20 << 20),
            ("http_body", 16 << 20, 0, 32 << 20),
            ("http_body", 10, u64::MAX, u64::MAX),
            ("http_body", 0, 1_000, 16 << 20),
            ("http_body", 0, 17 << 20, 17 << 20),
            ("http_requests", 1, 2, 64),
            ("http_requests", 64, 65, 128),
            ("file_count", 0, 1, 10_000),
        ] {
            assert_eq!(sufficient(name, limit, needed), value, "{name} {limit} {needed}");
        }
    }
}

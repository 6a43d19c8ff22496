//! Times as text: RFC 3339 in UTC with seconds. Such texts sort chronologically.

use std::time::{SystemTime, UNIX_EPOCH};

use toolcell_sdk::{Result, ToolError};

/// Current time.
pub(crate) fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    of_seconds(now.as_secs())
}

/// Time in seconds since 1970-01-01 UTC.
fn of_seconds(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Date in days since 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that the leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Checks the start or end of a period: a date, or a time in UTC.
///
/// # Errors
/// Fails for any other text.
pub(crate) fn check(name: &str, text: &str) -> Result<()> {
    let pattern = "0000-00-00T00:00:00Z";
    let fits = (text.len() == 10 || text.len() == pattern.len())
        && text.bytes().zip(pattern.bytes()).all(|(byte, like)| match like {
            b'0' => byte.is_ascii_digit(),
            like => byte == like,
        });
    if fits {
        return Ok(());
    }
    Err(ToolError::invalid(format_args!(
        "`{name}` is neither a date such as `2026-11-22` nor a time in UTC such as `2026-11-22T08:00:00Z`"
    )))
}

/// True if a time is in a period whose ends are times or whole days.
pub(crate) fn is_between(moment: &str, since: Option<&str>, until: Option<&str>) -> bool {
    since.is_none_or(|since| moment >= since)
        && until.is_none_or(|until| moment.get(..until.len()).unwrap_or(moment) <= until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_converted_to_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_795_305_600, "2026-11-22T00:00:00Z"),
        ] {
            assert_eq!(of_seconds(seconds), text);
        }
        assert!(now().as_str() > "2026-01-01");
    }

    #[test]
    fn date_includes_its_whole_day() {
        let moment = "2026-11-22T08:30:00Z";
        assert!(is_between(moment, Some("2026-11-22"), Some("2026-11-22")));
        assert!(is_between(moment, Some(moment), Some(moment)));
        assert!(!is_between(moment, Some("2026-11-23"), None));
        assert!(!is_between(moment, None, Some("2026-11-21")));
        assert!(!is_between(moment, None, Some("2026-11-22T08:29:59Z")));
        assert!(is_between(moment, None, None));
    }

    #[test]
    fn invalid_date_is_refused() {
        for good in ["2026-11-22", "2026-11-22T08:00:00Z"] {
            assert_eq!(check("since", good), Ok(()));
        }
        for bad in [
            "",
            "yesterday",
            "2026-11",
            "2026-11-22T08:00",
            "2026-11-22T08:00:00+",
            "22.11.2026",
        ] {
            assert!(check("since", bad).is_err(), "{bad}");
        }
    }
}

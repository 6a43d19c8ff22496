//! Times as text: RFC 3339 in UTC with seconds. Such texts sort chronologically.

use jiff::Timestamp;
use jiff::civil::Date;
use toolcell_sdk::{Result, ToolError};

/// Current time.
pub(crate) fn now() -> String {
    of_seconds(Timestamp::now().as_second())
}

/// Time in seconds since 1970-01-01 UTC.
fn of_seconds(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// Checks the start or end of a period: a date, or a time in UTC.
///
/// # Errors
/// Fails for any other text.
pub(crate) fn check(name: &str, text: &str) -> Result<()> {
    // Only the form that `now` writes: times are compared as text.
    let fits = match text.len() {
        10 => text.parse::<Date>().is_ok_and(|date| date.to_string() == text),
        20 => text
            .parse::<Timestamp>()
            .is_ok_and(|time| time.to_string() == text),
        _ => false,
    };
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
            "2026-11-22 08:00:00Z",
            "2026-11-22T08:00:0.5Z",
            "2026-02-30",
            "22.11.2026",
        ] {
            assert!(check("since", bad).is_err(), "{bad}");
        }
    }
}

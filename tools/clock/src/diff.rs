//! The tool `clock_diff`.

use jiff::fmt::friendly::{Designator, Direction, Spacing, SpanPrinter};
use jiff::tz::TimeZone;
use jiff::{Span, Unit, Zoned};
use toolcell_sdk::{Result, ToolError, output, tool};

use crate::moment::{Moment, time_zone};

/// Time between two points in time; all parts are negative if the end is before the start.
#[output]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// In words, such as `1 year, 2 months, 3 days`.
    pub(crate) words: String,
    /// The same as an ISO 8601 duration.
    pub(crate) iso: String,
    /// Whole days.
    pub(crate) days: i64,
    /// Whole seconds.
    pub(crate) seconds: i64,
}

/// Tell how much time is between two dates or times, in years, months, days, hours, minutes and seconds, and in all in
/// days and in seconds.
#[tool(title = "Time between", read_only, idempotent)]
pub(crate) fn clock_diff(
    /// The start: `2026-11-21`, `2026-11-21 18:30`, `2026-11-21T18:30:00+01:00`, `now`, `yesterday`,
    /// `next Monday 18:30`.
    #[alias("from")]
    start: String,
    /// The end, in the same forms.
    #[alias("to", "until")]
    end: String,
    /// The time zone for a start or end that has none of its own, as a name of the IANA database.
    #[alias("timezone", "tz", "zone")]
    time_zone: Option<String>,
) -> Result<Difference> {
    let zone = time_zone.as_deref().map(self::time_zone).transpose()?;
    let start = Moment::parse("start", &start, zone.as_ref())?;
    let end = Moment::parse("end", &end, zone.as_ref())?;
    let (start, end) = match (start, end) {
        (Moment::Zoned(start), Moment::Zoned(end)) => {
            let end = end.with_time_zone(start.time_zone().clone());
            (start, end)
        }
        (Moment::Zoned(start), end) => {
            let end = in_zone(&end, start.time_zone())?;
            (start, end)
        }
        (start, Moment::Zoned(end)) => (in_zone(&start, end.time_zone())?, end),
        // Days without a time zone have 24 hours, as in UTC.
        (start, end) => {
            let zone = zone.unwrap_or(TimeZone::UTC);
            (in_zone(&start, &zone)?, in_zone(&end, &zone)?)
        }
    };
    let span = start.until((Unit::Year, &end))?;
    Ok(Difference {
        words: words(&span),
        iso: span.to_string(),
        days: i64::from(start.until((Unit::Day, &end))?.get_days()),
        seconds: end.timestamp().as_second() - start.timestamp().as_second(),
    })
}

fn in_zone(moment: &Moment, zone: &TimeZone) -> Result<Zoned> {
    moment.civil().to_zoned(zone.clone()).map_err(|error| {
        ToolError::invalid(format_args!("{moment} does not exist in this time zone: {error}"))
    })
}

fn words(span: &Span) -> String {
    SpanPrinter::new()
        .designator(Designator::Verbose)
        .spacing(Spacing::BetweenUnitsAndDesignators)
        .direction(Direction::Sign)
        .comma_after_designator(true)
        .span_to_string(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(start: &str, end: &str) -> (String, i64, i64) {
        let difference = clock_diff(start.into(), end.into(), None).unwrap();
        (difference.words, difference.days, difference.seconds)
    }

    #[test]
    fn dates_differ_in_years_months_and_days() {
        assert_eq!(
            diff("2025-01-15", "2026-03-18"),
            ("1 year, 2 months, 3 days".into(), 427, 427 * 86_400)
        );
        assert_eq!(
            diff("2026-11-21", "2026-12-25"),
            ("1 month, 4 days".into(), 34, 34 * 86_400)
        );
        assert_eq!(diff("2026-11-21", "2026-11-21"), ("0 seconds".into(), 0, 0));
    }

    #[test]
    fn end_before_the_start_is_negative() {
        let (words, days, seconds) = diff("2026-11-21", "2026-11-20");
        assert_eq!((words.as_str(), days, seconds), ("-1 day", -1, -86_400));
    }

    #[test]
    fn instants_in_different_offsets_are_compared_as_instants() {
        let (words, _, seconds) = diff("2026-11-21T12:00:00+01:00", "2026-11-21T12:00:00Z");
        assert_eq!((words.as_str(), seconds), ("1 hour", 3600));
    }

    #[test]
    fn day_of_a_clock_change_is_one_day() {
        let berlin = Some("Europe/Berlin".to_owned());
        let difference = clock_diff("2026-10-25".into(), "2026-10-26".into(), berlin).unwrap();
        assert_eq!(
            (difference.words.as_str(), difference.seconds),
            ("1 day", 25 * 3600)
        );
    }

    #[test]
    fn date_and_instant_are_compared_in_the_instants_zone() {
        assert_eq!(diff("2026-11-21", "2026-11-21T06:00:00+09:00").2, 6 * 3600);
    }
}

//! The tool `clock_add`.

use jiff::Span;
use toolcell_sdk::{Result, ToolError, output, show, tool};

use crate::moment::{Moment, time_zone};

/// Result of an addition.
#[output]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sum {
    /// The date or time.
    pub(crate) result: String,
    /// Its day of the week.
    pub(crate) weekday: String,
}

/// Add a duration to a date or time, or subtract it: which day is 90 days from now, what time was it 36 hours before.
///
/// Months and years keep the day of the month, or end on the last day of a shorter month. In a time zone, days keep the
/// time of day over a change of the clocks.
#[tool(title = "Add to a date", read_only, idempotent)]
pub(crate) fn clock_add(
    /// A date or time: `2026-11-21`, `2026-11-21 18:30`, `2026-11-21T18:30:00+01:00`, `now`, `yesterday`,
    /// `next Monday 18:30`.
    #[alias("date", "from")]
    start: String,
    /// Duration to add, such as `90 days`, `1 year 2 months`, `-36 hours`, `2 weeks`, or ISO 8601 such as `P1Y2M10DT2H`.
    #[alias("amount")]
    duration: String,
    /// The time zone to count in, as a name of the IANA database; `start` is interpreted in it, or converted to it.
    #[alias("timezone", "tz", "zone")]
    time_zone: Option<String>,
) -> Result<Sum> {
    let zone = time_zone.as_deref().map(self::time_zone).transpose()?;
    let start = Moment::parse("start", &start, zone.as_ref())?;
    let span: Span = duration.trim().parse().map_err(|_| {
        ToolError::invalid(format_args!(
            "`duration`: invalid duration {}; write `90 days`, `1 year 2 months`, `-36 hours` or `P1Y2M10DT2H`",
            show::quoted(&duration)
        ))
    })?;
    let out_of_range = |_| ToolError::invalid("the result is outside the years -9999 to 9999");
    let result = match start {
        Moment::Date(date) if has_time(&span) => {
            Moment::Civil(date.at(0, 0, 0, 0).checked_add(span).map_err(out_of_range)?)
        }
        Moment::Date(date) => Moment::Date(date.checked_add(span).map_err(out_of_range)?),
        Moment::Civil(civil) => Moment::Civil(civil.checked_add(span).map_err(out_of_range)?),
        Moment::Zoned(zoned) => Moment::Zoned(zoned.checked_add(span).map_err(out_of_range)?),
    };
    Ok(Sum {
        weekday: result.weekday(),
        result: result.to_string(),
    })
}

/// True if a duration has units shorter than a day.
pub(crate) fn has_time(span: &Span) -> bool {
    let calendar = Span::new()
        .years(span.get_years())
        .months(span.get_months())
        .weeks(span.get_weeks())
        .days(span.get_days());
    span.fieldwise() != calendar.fieldwise()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::json;
    use toolcell_sdk::testing;

    fn add(start: &str, duration: &str, zone: Option<&str>) -> String {
        clock_add(start.into(), duration.into(), zone.map(Into::into))
            .unwrap()
            .result
    }

    #[test]
    fn durations_are_added_and_subtracted() {
        assert_eq!(add("2026-11-21", "90 days", None), "2027-02-19");
        assert_eq!(add("2026-11-21", "-2 weeks", None), "2026-11-07");
        assert_eq!(add("2026-11-21", "36 hours", None), "2026-11-22T12:00:00");
        assert_eq!(add("2024-01-31", "1 month", None), "2024-02-29");
        assert_eq!(add("2024-02-29", "P1Y", None), "2025-02-28");
        assert_eq!(
            add("2026-11-21T23:30:00Z", "1h 30m", None),
            "2026-11-22T01:00:00Z"
        );
    }

    #[test]
    fn day_in_a_time_zone_keeps_the_time_of_day() {
        let berlin = Some("Europe/Berlin");
        assert_eq!(
            add("2026-10-24 12:00", "1 day", berlin),
            "2026-10-25T12:00:00+01:00"
        );
        assert_eq!(
            add("2026-10-24 12:00", "24 hours", berlin),
            "2026-10-25T11:00:00+01:00"
        );
    }

    #[test]
    fn weekday_is_returned() {
        let output = testing::call::<clock_add>(json!({"start": "2026-11-21", "duration": "1 day"})).unwrap();
        assert_eq!(
            output.structured,
            Some(json!({"result": "2026-11-22", "weekday": "Sunday"}))
        );
    }

    #[test]
    fn invalid_and_out_of_range_durations_are_refused() {
        for (duration, says) in [("soon", "invalid duration"), ("9000 years", "outside the years")] {
            let arguments = json!({"start": "2026-11-21", "duration": duration});
            let error = testing::call::<clock_add>(arguments).unwrap_err();
            assert!(error.message().contains(says), "{error}");
        }
    }
}

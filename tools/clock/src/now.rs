//! The tool `clock_now`.

use toolcell_sdk::{Result, output, tool};

use crate::moment::{now, rfc3339, time_zone};

/// Current time in a time zone.
#[output]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Now {
    /// Date, time and offset, as RFC 3339 writes them.
    pub(crate) time: String,
    /// The day of the week.
    pub(crate) weekday: String,
    /// The week of the year, as ISO 8601 counts them.
    pub(crate) week: i8,
    /// The day of the year, from 1.
    pub(crate) day_of_year: i16,
    /// The time zone.
    pub(crate) time_zone: String,
    /// Seconds since 1970-01-01T00:00:00Z.
    pub(crate) unix_seconds: i64,
}

/// Tell the date and the time now, with the day of the week, in a time zone.
#[tool(title = "Time now", read_only)]
pub(crate) fn clock_now(
    /// Name of the IANA database such as `Europe/Berlin`, or an offset such as `+02:00`.
    #[default("UTC".into())]
    #[alias("timezone", "tz", "zone")]
    time_zone: String,
) -> Result<Now> {
    let zone = self::time_zone(&time_zone)?;
    let now = now(Some(&zone)).round(jiff::Unit::Second)?;
    Ok(Now {
        time: rfc3339(&now),
        weekday: now.strftime("%A").to_string(),
        week: now.date().iso_week_date().week(),
        day_of_year: now.day_of_year(),
        time_zone: zone.iana_name().map_or(time_zone, str::to_owned),
        unix_seconds: now.timestamp().as_second(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::json;
    use toolcell_sdk::testing;

    #[test]
    fn same_instant_is_returned_in_every_time_zone() {
        let utc = clock_now("UTC".into()).unwrap();
        let kolkata = clock_now("Asia/Kolkata".into()).unwrap();
        assert!(utc.time.ends_with('Z'));
        assert!(kolkata.time.ends_with("+05:30"));
        assert!((kolkata.unix_seconds - utc.unix_seconds).abs() < 60);
        let parsed: jiff::Timestamp = kolkata.time.parse().unwrap();
        assert_eq!(parsed.as_second(), kolkata.unix_seconds);
    }

    #[test]
    fn utc_is_the_default_and_unknown_zones_are_refused() {
        let output = testing::call::<clock_now>(json!({})).unwrap();
        assert_eq!(output.structured.unwrap()["time_zone"], "UTC");
        assert!(testing::call::<clock_now>(json!({"time_zone": "Mars"})).is_err());
    }
}

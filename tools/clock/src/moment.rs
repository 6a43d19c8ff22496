//! Parsing of dates and times in common formats.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};
use toolcell_sdk::{Result, ToolError, show};

use crate::relative;

/// Formats that [`Moment::parse`] accepts, for errors.
const FORMS: &str = "`2026-11-21`, `2026-11-21 18:30`, `2026-11-21T18:30:00Z`, `2026-11-21T18:30:00+01:00`, \
    `2026-11-21T18:30[Europe/Berlin]`, `Sat, 21 Nov 2026 18:30:00 +0100`, Unix seconds such as `@1795282200`, `now`, \
    `today`, `yesterday`, `tomorrow`, `next Monday`, `last Friday 18:30`, `in 3 days` and `2 hours ago`";

/// Largest offset of a time zone that is in use, in minutes: that of Kiribati.
const MAX_OFFSET: i32 = 14 * 60;

/// Date or time in the precision in which it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Moment {
    /// Date without a time.
    Date(Date),
    /// Date and time without a time zone.
    Civil(DateTime),
    /// Instant in a time zone.
    Zoned(Zoned),
}

impl Moment {
    /// Parses a date or time. Without a time zone it is interpreted in `zone`; with one, it is converted to `zone`.
    pub(crate) fn parse(name: &str, text: &str, zone: Option<&TimeZone>) -> Result<Self> {
        let text = text.trim();
        let in_zone =
            |zoned: Zoned| Self::Zoned(zone.map_or(zoned.clone(), |zone| zoned.with_time_zone(zone.clone())));
        if text.eq_ignore_ascii_case("now") {
            return Ok(in_zone(now(zone)));
        }
        if let Some(relative) = relative::parse(text, &now(zone)) {
            return relative.in_zone(name, zone);
        }
        if let Some(seconds) = text.strip_prefix('@') {
            let timestamp = seconds
                .parse()
                .ok()
                .and_then(|seconds| Timestamp::from_second(seconds).ok());
            return timestamp
                .map(|timestamp| in_zone(timestamp.to_zoned(TimeZone::UTC)))
                .ok_or_else(|| unreadable(name, text));
        }
        if let Ok(zoned) = text.parse::<Zoned>() {
            return Ok(in_zone(zoned));
        }
        if let Some(zoned) = with_offset(text) {
            return Ok(in_zone(zoned));
        }
        if let Ok(zoned) = jiff::fmt::rfc2822::parse(text) {
            return Ok(in_zone(zoned));
        }
        let has_time = text.contains(':');
        if !has_time && let Ok(date) = text.parse::<Date>() {
            return Ok(Self::Date(date));
        }
        match text.parse::<DateTime>() {
            Ok(civil) => Self::Civil(civil).in_zone(name, zone),
            Err(_) => Err(unreadable(name, text)),
        }
    }

    /// Interprets a date and time without a zone in `zone`.
    fn in_zone(self, name: &str, zone: Option<&TimeZone>) -> Result<Self> {
        match (self, zone) {
            (Self::Civil(civil), Some(zone)) => match civil.to_zoned(zone.clone()) {
                Ok(zoned) => Ok(Self::Zoned(zoned)),
                Err(error) => Err(ToolError::invalid(format_args!("`{name}`: {error}"))),
            },
            (moment, _) => Ok(moment),
        }
    }

    /// Calendar date and time; midnight for a date.
    pub(crate) fn civil(&self) -> DateTime {
        match self {
            Self::Date(date) => date.to_datetime(Time::midnight()),
            Self::Civil(civil) => *civil,
            Self::Zoned(zoned) => zoned.datetime(),
        }
    }

    pub(crate) fn weekday(&self) -> String {
        self.civil().strftime("%A").to_string()
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Date(date) => date.fmt(f),
            Self::Civil(civil) => civil.fmt(f),
            Self::Zoned(zoned) => f.write_str(&rfc3339(zoned)),
        }
    }
}

/// Time zone with a name of the IANA database, or an offset such as `+02:00`.
pub(crate) fn time_zone(name: &str) -> Result<TimeZone> {
    let wanted = name.trim();
    if wanted.eq_ignore_ascii_case("utc") || wanted.eq_ignore_ascii_case("z") {
        return Ok(TimeZone::UTC);
    }
    if let Some(zone) = fixed(wanted) {
        return Ok(zone);
    }
    TimeZone::get(wanted).map_err(|_| {
        let mut message = format!("`time_zone`: unknown time zone {}", show::quoted(wanted));
        let near = near(wanted);
        if near.is_empty() {
            message.push_str(
                "; use a name of the IANA database such as `Europe/Berlin`, or an offset such as `+02:00`",
            );
        } else {
            message.push_str(&format!("; did you mean {}?", near.join(" or ")));
        }
        ToolError::invalid(message)
    })
}

/// Time zone of an offset: `+02:00`, `+2`, `UTC+2`, `GMT-5:30`. The names `Etc/GMT+2` of the database have the opposite sign
/// and are not meant by those who write `GMT+2`.
fn fixed(wanted: &str) -> Option<TimeZone> {
    let prefix = wanted
        .get(..3)
        .filter(|prefix| prefix.eq_ignore_ascii_case("utc") || prefix.eq_ignore_ascii_case("gmt"));
    let offset = wanted[prefix.map_or(0, str::len)..].trim_start();
    let sign = match offset.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits = &offset[1..];
    let (hours, minutes) = match digits.split_once(':') {
        Some((hours, minutes)) if minutes.len() == 2 => (hours, minutes),
        Some(_) => return None,
        None if digits.len() == 4 && digits.is_ascii() => digits.split_at(2),
        None => (digits, "0"),
    };
    let number = |text: &str| {
        text.parse::<i32>()
            .ok()
            .filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    if minutes > 59 || hours * 60 + minutes > MAX_OFFSET {
        return None;
    }
    let offset = Offset::from_seconds(sign * (hours * 3_600 + minutes * 60)).ok()?;
    Some(match offset.seconds() {
        0 => TimeZone::UTC,
        _ => TimeZone::fixed(offset),
    })
}

/// Current time, in a time zone or in UTC.
pub(crate) fn now(zone: Option<&TimeZone>) -> Zoned {
    Timestamp::now().to_zoned(zone.cloned().unwrap_or(TimeZone::UTC))
}

/// RFC 3339 form of an instant.
pub(crate) fn rfc3339(zoned: &Zoned) -> String {
    if *zoned.time_zone() == TimeZone::UTC {
        return zoned.timestamp().to_string();
    }
    zoned.timestamp().display_with_offset(zoned.offset()).to_string()
}

/// Parses a time with an offset or a `Z`; keeps the offset.
fn with_offset(text: &str) -> Option<Zoned> {
    let pieces = jiff::fmt::temporal::Pieces::parse(text).ok()?;
    let offset = pieces.to_numeric_offset()?;
    let zone = if offset.seconds() == 0 {
        TimeZone::UTC
    } else {
        TimeZone::fixed(offset)
    };
    let civil = pieces.date().to_datetime(pieces.time()?);
    Some(offset.to_timestamp(civil).ok()?.to_zoned(zone))
}

fn unreadable(name: &str, text: &str) -> ToolError {
    if let Some(why) = missing_day(text) {
        return ToolError::invalid(format_args!(
            "`{name}`: there is no day {}: {why}",
            show::quoted(text)
        ));
    }
    ToolError::invalid(format_args!(
        "`{name}`: invalid date or time {}; write {FORMS}",
        show::quoted(text)
    ))
}

/// Returns how many days the month has, if a text begins with a date whose day it lacks.
fn missing_day(text: &str) -> Option<String> {
    let mut parts = text.get(..10)?.splitn(3, '-');
    let (year, month) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let day: i8 = parts.next()?.parse().ok()?;
    let first = Date::new(year, month, 1).ok()?;
    let days = first.days_in_month();
    (day < 1 || day > days).then(|| format!("{} has {days} days", first.strftime("%B %Y")))
}

/// Names of the database with the same last part or containing the words.
fn near(wanted: &str) -> Vec<String> {
    let squeeze = |text: &str| text.to_lowercase().replace([' ', '_', '-'], "");
    let wanted = squeeze(wanted.rsplit('/').next().unwrap_or(wanted));
    if wanted.len() < 3 {
        return Vec::new();
    }
    let mut near: Vec<String> = jiff::tz::db()
        .available()
        .map(|name| name.to_string())
        .filter(|name| squeeze(name).contains(&wanted) && !name.starts_with("Etc/GMT"))
        .collect();
    near.sort();
    near.truncate(5);
    near.into_iter().map(|name| format!("`{name}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, zone: Option<&str>) -> String {
        let zone = zone.map(|name| time_zone(name).unwrap());
        Moment::parse("start", text, zone.as_ref()).unwrap().to_string()
    }

    #[test]
    fn every_format_keeps_its_precision() {
        for (text, read) in [
            ("2026-11-21", "2026-11-21"),
            ("2026-11-21 18:30", "2026-11-21T18:30:00"),
            ("2026-11-21T18:30:05", "2026-11-21T18:30:05"),
            ("2026-11-21T18:30:00Z", "2026-11-21T18:30:00Z"),
            ("2026-11-21 18:30:00+01:00", "2026-11-21T18:30:00+01:00"),
            ("2026-11-21T18:30:00.25Z", "2026-11-21T18:30:00.25Z"),
            ("2026-07-21T18:30[Europe/Berlin]", "2026-07-21T18:30:00+02:00"),
            ("Sat, 21 Nov 2026 18:30:00 +0100", "2026-11-21T18:30:00+01:00"),
            ("@0", "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(parse(text, None), read, "{text}");
        }
    }

    #[test]
    fn time_zone_is_applied_or_converted_to() {
        assert_eq!(
            parse("2026-11-21 18:30", Some("Asia/Tokyo")),
            "2026-11-21T18:30:00+09:00"
        );
        assert_eq!(
            parse("2026-11-21T18:30:00Z", Some("America/New_York")),
            "2026-11-21T13:30:00-05:00"
        );
        assert_eq!(
            parse("2026-11-21T18:30:00Z", Some("+05:30")),
            "2026-11-22T00:00:00+05:30"
        );
        assert_eq!(parse("2026-11-21", Some("Asia/Tokyo")), "2026-11-21");
    }

    #[test]
    fn invalid_time_is_answered_with_the_formats() {
        for text in ["", "next tuesdays", "in Berlin", "2026-13-01", "21.11.2026", "@x"] {
            let error = Moment::parse("start", text, None).unwrap_err();
            assert!(error.message().contains("`2026-11-21 18:30`"), "{text}: {error}");
        }
    }

    #[test]
    fn day_that_a_month_lacks_is_told() {
        for (text, days) in [
            ("2026-02-30", "February 2026 has 28 days"),
            ("2024-02-30T10:00:00Z", "February 2024 has 29 days"),
            ("2026-04-31 18:30", "April 2026 has 30 days"),
        ] {
            let error = Moment::parse("start", text, None).unwrap_err();
            assert!(error.message().ends_with(days), "{text}: {error}");
        }
    }

    #[test]
    fn offset_has_the_sign_that_was_written() {
        let offset = |name: &str| {
            time_zone(name)
                .unwrap()
                .to_offset(Timestamp::UNIX_EPOCH)
                .to_string()
        };
        for (name, read) in [
            ("GMT+2", "+02"),
            ("UTC+02:00", "+02"),
            ("utc-5:30", "-05:30"),
            ("+2", "+02"),
            ("+0530", "+05:30"),
            ("GMT-0", "+00"),
            ("+14:00", "+14"),
            // Names of the database, with the sign of POSIX.
            ("Etc/GMT+2", "-02"),
        ] {
            assert_eq!(offset(name), read, "{name}");
        }
        for name in [
            "GMT+", "UTC+26", "GMT+25", "+14:01", "-15", "+1:2", "+02:60", "GMT+2x", "+-2",
        ] {
            let error = time_zone(name).unwrap_err();
            assert!(!error.message().contains("Etc/"), "{name}: {error}");
        }
    }

    #[test]
    fn unknown_time_zone_gets_suggestions() {
        assert!(
            time_zone("Berlin")
                .unwrap_err()
                .message()
                .ends_with("did you mean `Europe/Berlin`?")
        );
        assert!(
            time_zone("new york")
                .unwrap_err()
                .message()
                .contains("`America/New_York`")
        );
        assert!(time_zone("Nowhere/Xyzzy").unwrap_err().message().contains("IANA"));
    }
}

//! Dates and times relative to now: `yesterday`, `next Monday 18:30`, `in 3 days`, `2 hours ago`.

use jiff::civil::{Time, Weekday};
use jiff::{Span, ToSpan, Zoned};

use crate::add::has_time;
use crate::moment::Moment;

/// Parses a date or time relative to `now`. A time of day can follow a day.
pub(crate) fn parse(text: &str, now: &Zoned) -> Option<Moment> {
    let text = text.to_ascii_lowercase();
    let mut words: Vec<&str> = text.split_whitespace().collect();
    if let Some(moment) = distance(&words, now) {
        return Some(moment);
    }
    let time = match words.last() {
        Some(last) if last.contains(':') => Some(words.pop()?.parse::<Time>().ok()?),
        _ => None,
    };
    if time.is_some() && words.last() == Some(&"at") {
        words.pop();
    }
    let today = now.date();
    let date = match words.as_slice() {
        ["today"] => today,
        ["yesterday"] => today.checked_sub(1.day()).ok()?,
        ["tomorrow"] => today.checked_add(1.day()).ok()?,
        ["next", day] => today.nth_weekday(1, weekday(day)?).ok()?,
        ["last", day] => today.nth_weekday(-1, weekday(day)?).ok()?,
        _ => return None,
    };
    Some(match time {
        Some(time) => Moment::Civil(date.to_datetime(time)),
        None => Moment::Date(date),
    })
}

/// `in 3 days` and `2 hours ago`: a date if the duration has whole days.
fn distance(words: &[&str], now: &Zoned) -> Option<Moment> {
    let span: Span = match words {
        ["in", duration @ ..] => duration.join(" ").parse().ok()?,
        [_, .., "ago"] => words.join(" ").parse().ok()?,
        _ => return None,
    };
    Some(match has_time(&span) {
        true => Moment::Zoned(now.checked_add(span).ok()?),
        false => Moment::Date(now.date().checked_add(span).ok()?),
    })
}

fn weekday(name: &str) -> Option<Weekday> {
    Some(match name {
        "monday" => Weekday::Monday,
        "tuesday" => Weekday::Tuesday,
        "wednesday" => Weekday::Wednesday,
        "thursday" => Weekday::Thursday,
        "friday" => Weekday::Friday,
        "saturday" => Weekday::Saturday,
        "sunday" => Weekday::Sunday,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_days_and_times_are_counted_from_now() {
        // A Saturday.
        let now: Zoned = "2026-11-21T10:00:00[Europe/Berlin]".parse().unwrap();
        for (text, read) in [
            ("today", "2026-11-21"),
            ("Yesterday", "2026-11-20"),
            ("tomorrow at 18:30", "2026-11-22T18:30:00"),
            ("next Monday", "2026-11-23"),
            ("next saturday", "2026-11-28"),
            ("last Saturday", "2026-11-14"),
            ("last Friday 9:00", ""),
            ("last Friday 09:00", "2026-11-20T09:00:00"),
            ("in 3 days", "2026-11-24"),
            ("in 1 month", "2026-12-21"),
            ("2 weeks ago", "2026-11-07"),
            ("2 hours ago", "2026-11-21T08:00:00+01:00"),
            ("in 90 minutes", "2026-11-21T11:30:00+01:00"),
            ("monday", ""),
            ("next", ""),
            ("ago", ""),
            ("in", ""),
            ("next year", ""),
        ] {
            let moment = parse(text, &now).map_or(String::new(), |moment| moment.to_string());
            assert_eq!(moment, read, "{text}");
        }
    }
}

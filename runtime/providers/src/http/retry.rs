//! Retries of requests and their pauses.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use toolcell_core::ProviderError;
use toolcell_core::provider::ProviderErrorKind;

/// Maximum pause that a server may request. A longer one is the user's decision: the request fails and the error names
/// the requested wait.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Retry policy. Requests are retried only before the first delta of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// Maximum retries of one request. Default: 2.
    pub retries: u32,
    /// Pause before the first retry if the server names none; it doubles each time. Default: 0.5 seconds.
    pub first_pause: Duration,
    /// Maximum pause if the server names none. Default: 8 seconds.
    pub longest_pause: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 2,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(8),
        }
    }
}

/// Failed attempt with its retry information.
#[derive(Debug, Clone)]
pub(crate) struct FailedAttempt {
    pub(crate) error: ProviderError,
    /// True if the same request may succeed later.
    pub(crate) transient: bool,
    /// Parameter of the request that the server names as the cause.
    pub(crate) parameter: Option<String>,
    /// True if the server gave a reason as JSON: the service answered, and not what is in front of it.
    pub(crate) is_explained: bool,
    /// True if nothing is at the requested path. A model that does not exist has the same status.
    pub(crate) is_wrong_path: bool,
}

impl FailedAttempt {
    pub(crate) fn fatal(error: ProviderError) -> Self {
        Self {
            error,
            transient: false,
            parameter: None,
            is_explained: false,
            is_wrong_path: false,
        }
    }

    pub(crate) fn transient(error: ProviderError) -> Self {
        Self {
            transient: true,
            ..Self::fatal(error)
        }
    }
}

impl RetryPolicy {
    /// Pause before retry number `retry` (the first is 1), or `None` for no retry. `random` is in 0..1 and shortens the
    /// policy's own pauses by up to a quarter, so that many clients do not retry at the same time.
    pub(crate) fn pause(&self, retry: u32, failure: &FailedAttempt, random: f64) -> Option<Duration> {
        if !failure.transient || retry > self.retries {
            return None;
        }
        match failure.error.retry_after() {
            Some(asked) if asked > MAX_RETRY_AFTER => None,
            Some(asked) => Some(asked),
            None => {
                let doubled = self.first_pause.saturating_mul(1 << (retry - 1).min(20));
                Some(doubled.min(self.longest_pause).mul_f64(1.0 - random / 4.0))
            }
        }
    }
}

/// True if a response with this status may succeed on a retry. The server's `x-should-retry` takes precedence.
pub(crate) fn is_transient(status: u16, headers: &HeaderMap, kind: ProviderErrorKind) -> bool {
    match headers.get("x-should-retry").map(|v| v.as_bytes()) {
        Some(b"true") => return true,
        Some(b"false") => return false,
        _ => {}
    }
    // Errors that are identified by a code, such as a context that is too long, are permanent.
    matches!(status, 408 | 409 | 429 | 500..)
        && matches!(
            kind,
            ProviderErrorKind::RateLimited | ProviderErrorKind::Unavailable | ProviderErrorKind::Timeout
        )
}

/// Wait requested by a response: `retry-after-ms`, or `Retry-After` in seconds or as a date (RFC 9110, 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |value: &reqwest::header::HeaderValue| value.to_str().ok().map(|s| s.trim().to_owned());
    let seconds = |number: &str, scale: f64| {
        let number: f64 = number.parse().ok()?;
        Duration::try_from_secs_f64(number * scale).ok()
    };
    if let Some(wait) = headers
        .get("retry-after-ms")
        .and_then(text)
        .and_then(|ms| seconds(&ms, 0.001))
    {
        return Some(wait);
    }
    let value = headers.get(RETRY_AFTER).and_then(text)?;
    seconds(&value, 1.0).or_else(|| {
        let date = httpdate::parse_http_date(&value).ok()?;
        Some(date.duration_since(now).unwrap_or_default())
    })
}

/// Wait in the text of an error, such as `Please retry in 22.5s.` or `try again in 1m2s`.
pub(crate) fn wait_in_words(message: &str) -> Option<Duration> {
    const BEFORE: [&str; 4] = ["retry in ", "retry after ", "again in ", "again after "];
    let message = message.to_ascii_lowercase();
    let rest = BEFORE
        .iter()
        .find_map(|words| Some(message.split_once(words)?.1))?;
    let mut words = rest.split_whitespace();
    let first = words.next()?.trim_end_matches(['.', ',', ';', ')']);
    let unit = words.next().unwrap_or_default();
    let unit = match unit.trim_end_matches(|c: char| !c.is_ascii_alphabetic()) {
        "second" | "seconds" | "sec" | "s" => "s",
        "minute" | "minutes" | "min" | "m" => "m",
        "hour" | "hours" | "h" => "h",
        "millisecond" | "milliseconds" | "ms" => "ms",
        _ => "",
    };
    duration(first).or_else(|| duration(&format!("{first}{unit}")))
}

/// Parses a duration such as `22.5s`, `500ms` or `1h2m3s`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        seconds += number * unit;
        rest = &rest[end..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &'static str, value: &str) -> Option<Duration> {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        retry_after(&headers, now)
    }

    fn limited(retry_after_ms: Option<u64>) -> FailedAttempt {
        FailedAttempt::transient(ProviderError {
            retry_after_ms,
            ..ProviderError::new("p", ProviderErrorKind::RateLimited, "slow down")
        })
    }

    #[test]
    fn wait_is_read_from_the_words_of_an_error() {
        for (text, millis) in [
            ("You exceeded your quota. Please retry in 22.5s.", Some(22_500)),
            ("Rate limit reached. Please try again in 20s. Visit", Some(20_000)),
            ("try again in 6m0s", Some(360_000)),
            ("Try again in 500ms.", Some(500)),
            ("retry after 20 seconds", Some(20_000)),
            ("retry after 2 minutes", Some(120_000)),
            ("Please retry in 1h1m1.5s (quota)", Some(3_661_500)),
            ("retry in a while", None),
            ("retry after 20", None),
            ("retry in 5parsecs", None),
            ("retry in 1..5s", None),
            ("retry in ", None),
            (&format!("retry in {}s", "9".repeat(400)), None),
            ("slow down", None),
        ] {
            assert_eq!(wait_in_words(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn retry_after_is_parsed_in_every_form() {
        assert_eq!(asked("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        assert_eq!(asked("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(
            asked("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT"),
            Some(Duration::from_secs(60))
        );
        assert_eq!(
            asked("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"),
            Some(Duration::ZERO)
        );
        for nonsense in ["soon", "-1", "NaN", "1e300", ""] {
            assert_eq!(asked("retry-after", nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn requested_pause_is_limited_to_two_minutes() {
        let policy = RetryPolicy::default();
        assert_eq!(
            policy.pause(1, &limited(Some(120_000)), 0.5),
            Some(MAX_RETRY_AFTER)
        );
        assert_eq!(policy.pause(1, &limited(Some(120_001)), 0.5), None);
    }

    #[test]
    fn pauses_double_up_to_the_limit_with_jitter() {
        let policy = RetryPolicy {
            retries: 40,
            ..RetryPolicy::default()
        };
        let pause = |retry, random| policy.pause(retry, &limited(None), random).unwrap().as_millis();
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 40].map(|n| pause(n, 0.0)),
            [500, 1000, 2000, 4000, 8000, 8000, 8000]
        );
        assert_eq!(pause(1, 1.0), 375);
    }

    #[test]
    fn retries_are_limited_and_skipped_for_permanent_errors() {
        let policy = RetryPolicy::default();
        assert!(policy.pause(2, &limited(None), 0.0).is_some());
        assert!(policy.pause(3, &limited(None), 0.0).is_none());
        let fatal = FailedAttempt::fatal(limited(None).error);
        assert!(policy.pause(1, &fatal, 0.0).is_none());
    }

    #[test]
    fn only_listed_statuses_are_transient_by_default() {
        let none = HeaderMap::new();
        for status in [408, 409, 429, 500, 502, 503, 504, 529] {
            assert!(
                is_transient(status, &none, ProviderErrorKind::Unavailable),
                "{status}"
            );
        }
        for status in [400, 401, 403, 404, 413, 422] {
            assert!(
                !is_transient(status, &none, ProviderErrorKind::Unavailable),
                "{status}"
            );
        }
        assert!(!is_transient(500, &none, ProviderErrorKind::ContextLength));
        let mut says = HeaderMap::new();
        says.insert("x-should-retry", "false".parse().unwrap());
        assert!(!is_transient(500, &says, ProviderErrorKind::Unavailable));
        says.insert("x-should-retry", "true".parse().unwrap());
        assert!(is_transient(400, &says, ProviderErrorKind::InvalidRequest));
    }
}

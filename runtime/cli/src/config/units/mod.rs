//! Parsing and formatting of sizes, durations and counts: `256 MiB`, `1m 30s`, `20 G`.

pub(crate) mod money;
pub(crate) mod quantity;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A number of bytes: an integer, or a number with `B`, `kB`, `MB`, `GB` (powers of 1000) or `KiB`, `MiB`, `GiB` (powers
/// of 1024).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) u64);

/// A duration: numbers with `ms`, `s`, `m`, `h` or `d`, such as `30s` or `1m 30s`. A number without a unit is ambiguous
/// and refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

/// A count: an integer, or a number with `k`, `M`, `G` or `T` (powers of 1000).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Count(pub(crate) u64);

const BYTE_UNITS: [(&str, u64); 8] = [
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];

const COUNT_UNITS: [(&str, u64); 5] = [
    ("", 1),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

const TIME_UNITS_MS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text.trim(), &BYTE_UNITS).map(Self).ok_or_else(|| {
            format!(
                "`{}` is not a size, such as `512 KiB`, `256 MiB` or `1 GB`",
                text.escape_debug()
            )
        })
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text.trim(), &COUNT_UNITS).map(Self).ok_or_else(|| {
            format!(
                "`{}` is not a count, such as `500 M` or `20 G`",
                text.escape_debug()
            )
        })
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fail = || {
            format!(
                "`{}` is not a duration with a unit, such as `500ms`, `30s` or `1m 30s`",
                text.escape_debug()
            )
        };
        let mut rest = text.trim();
        let mut total = 0_u64;
        if rest.is_empty() {
            return Err(fail());
        }
        while !rest.is_empty() {
            let unit_at = rest.find(|c: char| c.is_alphabetic()).ok_or_else(fail)?;
            let after = rest[unit_at..]
                .find(|c: char| !c.is_alphabetic())
                .map_or(rest.len(), |len| unit_at + len);
            let part = scaled(&rest[..after], &TIME_UNITS_MS).ok_or_else(fail)?;
            total = total.checked_add(part).ok_or_else(fail)?;
            rest = rest[after..].trim_start();
        }
        Ok(Self(Duration::from_millis(total)))
    }
}

/// Parses `12`, `1.5 MiB` and the like exactly: a fraction is accepted only if the result is a whole number.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    let (number, unit) = (text[..split].replace('_', ""), text[split..].trim());
    let factor = units
        .iter()
        .find(|(name, _)| *name == unit)
        .or_else(|| units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)))?
        .1;
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let mut total = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    if !fraction.is_empty() {
        let digits = fraction.parse::<u64>().ok()?;
        let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        total = total.checked_add(digits.checked_mul(factor)?.checked_div(scale)?)?;
    }
    Some(total)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= size {
                return write_rounded(f, self.0, size, unit);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [
            ("T", 1_000_000_000_000_u64),
            ("G", 1_000_000_000),
            ("M", 1_000_000),
            ("k", 1_000),
        ] {
            if self.0 >= size {
                return write_rounded(f, self.0, size, unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        match ms {
            0 if !self.0.is_zero() => write!(f, "{} µs", self.0.as_micros()),
            0..1_000 => write!(f, "{ms} ms"),
            1_000..60_000 if ms.is_multiple_of(1_000) => write!(f, "{} s", ms / 1_000),
            1_000..60_000 => write!(f, "{}.{} s", ms / 1_000, ms % 1_000 / 100),
            60_000..3_600_000 if ms % 60_000 < 1_000 => write!(f, "{} min", ms / 60_000),
            60_000..3_600_000 => write!(f, "{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
            _ if ms.is_multiple_of(86_400_000) => write!(f, "{} d", ms / 86_400_000),
            _ if ms % 3_600_000 < 60_000 => write!(f, "{} h", ms / 3_600_000),
            _ => write!(f, "{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
        }
    }
}

/// Formats with one decimal below ten; none above, and none if it is zero.
fn write_rounded(f: &mut fmt::Formatter<'_>, value: u64, size: u64, unit: &str) -> fmt::Result {
    let tenths = u128::from(value) * 10 / u128::from(size);
    if tenths >= 100 || tenths % 10 == 0 {
        write!(f, "{} {unit}", tenths / 10)
    } else {
        write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written::<Self> {
            expecting: "a size, such as `\"256 MiB\"`",
            from_integer: Some(Self),
        })
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written::<Self> {
            expecting: "a count, such as `20_000_000` or `\"20 M\"`",
            from_integer: Some(Self),
        })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written::<Self> {
            expecting: "a duration with a unit, such as `\"30s\"`",
            from_integer: None,
        })
    }
}

struct Written<T> {
    expecting: &'static str,
    from_integer: Option<fn(u64) -> T>,
}

impl<T: FromStr<Err = String>> Visitor<'_> for Written<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        let unexpected = de::Unexpected::Unsigned(number);
        self.from_integer
            .map(|make| make(number))
            .ok_or_else(|| E::invalid_type(unexpected, &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
        }
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of bytes: an integer, or a number with a unit, such as `256 MiB`.",
            "oneOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": r"^[0-9][0-9_]*(\.[0-9]+)? ?([kKMG]i?)?B?$" },
            ],
        })
    }
}

impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A count: an integer, or a number with `k`, `M`, `G` or `T`, such as `20 G`.",
            "oneOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": r"^[0-9][0-9_]*(\.[0-9]+)? ?[kKMGT]?$" },
            ],
        })
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration with its unit, such as `500ms`, `30s` or `1m 30s`.",
            "type": "string",
            "pattern": r"^([0-9]+(\.[0-9]+)? ?(ms|s|m|min|h|d) ?)+$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_binary_and_decimal_units() {
        for (text, bytes) in [
            ("0", 0),
            ("1024", 1024),
            ("1_000", 1000),
            ("256 MiB", 256 << 20),
            ("256MiB", 256 << 20),
            ("1.5 GiB", 3 << 29),
            ("1 GB", 1_000_000_000),
            ("4 kb", 4_000),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in [
            "",
            "MiB",
            "-1",
            "1 PiB",
            "1 MiB B",
            "1e9",
            "99999999999 GiB",
            ".5",
        ] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_unit_and_may_have_several_parts() {
        for (text, ms) in [
            ("2 min", 120_000),
            ("500ms", 500),
            ("30s", 30_000),
            ("1m 30s", 90_000),
            ("1.5 h", 5_400_000),
            ("7d", 604_800_000),
            ("1h2m3s4ms", 3_723_004),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(ms))), "{text}");
        }
        for text in [
            "",
            "30",
            "s",
            "30 x",
            "1s 2",
            "99999999999999999999s",
            "1000000000000000000h",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_read_with_decimal_units() {
        for (text, count) in [
            ("7", 7),
            ("20 G", 20_000_000_000),
            ("1.5M", 1_500_000),
            ("3k", 3_000),
        ] {
            assert_eq!(text.parse(), Ok(Count(count)), "{text}");
        }
        assert!("3 Q".parse::<Count>().is_err());
    }

    #[test]
    fn quantities_print_short_and_with_unit() {
        let shown = |text: &dyn fmt::Display| text.to_string();
        for (quantity, text) in [
            (shown(&Bytes(0)), "0 B"),
            (shown(&Bytes(1536)), "1.5 KiB"),
            (shown(&Bytes(256 << 20)), "256 MiB"),
            (shown(&Bytes(u64::MAX)), "17179869183 GiB"),
            (shown(&Count(999)), "999"),
            (shown(&Count(1_234_567)), "1.2 M"),
            (shown(&Span(Duration::from_micros(17))), "17 µs"),
            (shown(&Span(Duration::from_millis(999))), "999 ms"),
            (shown(&Span(Duration::from_millis(1_250))), "1.2 s"),
            (shown(&Span(Duration::from_secs(60))), "1 min"),
            (shown(&Span(Duration::from_secs(90))), "1 min 30 s"),
            (shown(&Span(Duration::from_secs(3_660))), "1 h 1 min"),
        ] {
            assert_eq!(quantity, text);
        }
    }
}

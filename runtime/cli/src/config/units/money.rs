//! Amounts of money, such as `2` or `0.15`. The currency is that of the prices, chosen by the user.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// Maximum number of digits after the decimal point. An amount is stored in millionths; anything finer is refused
/// rather than rounded.
const DIGITS: usize = 6;

/// Amount of money, in millionths of its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Money(pub(crate) u64);

impl FromStr for Money {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        exact(text.trim()).map(Self).ok_or_else(|| {
            format!(
                "`{}` is not an amount of money, such as `2` or `0.15`, with at most {DIGITS} digits after the point",
                text.escape_debug()
            )
        })
    }
}

fn exact(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > DIGITS {
        return None;
    }
    let micros = format!("{fraction:0<DIGITS$}").parse::<u64>().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(micros)
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

struct Written;

impl Visitor<'_> for Written {
    type Value = Money;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount of money, such as `0.15`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Money, E> {
        text.parse().map_err(E::custom)
    }

    // The shortest text that parses to this number is the one in the file.
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Money, E> {
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Money, E> {
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Money, E> {
        number.to_string().parse().map_err(E::custom)
    }
}

impl JsonSchema for Money {
    fn schema_name() -> Cow<'static, str> {
        "Money".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An amount of money, such as `0.15`, with at most 6 digits after the point.",
            "oneOf": [
                { "type": "number", "minimum": 0 },
                { "type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,6})?$" },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_exact_and_prints_as_written() {
        for (text, micros) in [
            ("0", 0),
            ("2", 2_000_000),
            ("0.15", 150_000),
            ("0.000001", 1),
            ("12.5", 12_500_000),
        ] {
            assert_eq!(text.parse(), Ok(Money(micros)));
            assert_eq!(Money(micros).to_string(), text);
        }
        for text in [
            "",
            ".5",
            "1.",
            "-1",
            "1e3",
            "NaN",
            "0.0000001",
            "99999999999999999",
            "2 USD",
        ] {
            assert!(text.parse::<Money>().is_err(), "{text}");
        }
    }

    #[test]
    fn amount_may_be_number_or_string() {
        #[derive(serde::Deserialize)]
        struct Table {
            a: Money,
            b: Money,
            c: Money,
        }
        let table: Table = toml::from_str("a = 0.1\nb = 3\nc = \"0.25\"").unwrap();
        assert_eq!((table.a.0, table.b.0, table.c.0), (100_000, 3_000_000, 250_000));
        assert!(toml::from_str::<Table>("a = -0.1\nb = 3\nc = 0").is_err());
        assert!(toml::from_str::<Table>("a = inf\nb = 3\nc = 0").is_err());
    }
}

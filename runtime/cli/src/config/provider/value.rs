//! Provider settings with their own format or range.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::units::Count;

/// Maximum temperature accepted by any provider.
const MAX_TEMPERATURE: f64 = 2.0;

/// A sampling temperature, from 0 to 2.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(try_from = "f64")]
#[schemars(inline, extend("minimum" = 0, "maximum" = 2))]
pub(crate) struct Temperature(pub(crate) f64);

impl TryFrom<f64> for Temperature {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        if (0.0..=MAX_TEMPERATURE).contains(&value) {
            Ok(Self(value))
        } else {
            Err(format!(
                "`{value}` is not a valid temperature: use 0 to {MAX_TEMPERATURE}"
            ))
        }
    }
}

impl FromStr for Temperature {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number: f64 = text
            .parse()
            .map_err(|_| format!("`{}` is not a temperature, such as `0.7`", text.escape_debug()))?;
        number.try_into()
    }
}

impl fmt::Display for Temperature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of tokens of an answer, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Count")]
pub(crate) struct OutputTokens(pub(crate) u64);

impl TryFrom<Count> for OutputTokens {
    type Error = &'static str;

    fn try_from(count: Count) -> Result<Self, &'static str> {
        match count.0 {
            0 => Err("an answer cannot have 0 tokens; allow at least 1"),
            tokens => Ok(Self(tokens)),
        }
    }
}

impl FromStr for OutputTokens {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(text.parse::<Count>()?.try_into()?)
    }
}

/// Printed with all digits: a limit is exact.
impl fmt::Display for OutputTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Same schema as a count.
impl JsonSchema for OutputTokens {
    fn inline_schema() -> bool {
        Count::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        Count::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Count::json_schema(generator)
    }
}

/// A program that prints an access token, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct TokenCommand(pub(crate) Vec<String>);

/// Words separated by spaces; quoting is not supported.
impl FromStr for TokenCommand {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.split_whitespace().map(str::to_owned).collect()))
    }
}

impl fmt::Display for TokenCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

//! Provider settings with their own format or range.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use toolcell_core::http_header::is_of_client;

use crate::config::units::{Count, Span};

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

/// A number of tokens, at least `MIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Count")]
pub(crate) struct Tokens<const MIN: u64>(pub(crate) u64);

impl<const MIN: u64> TryFrom<Count> for Tokens<MIN> {
    type Error = String;

    fn try_from(count: Count) -> Result<Self, String> {
        match count.0 {
            tokens if tokens < MIN => Err(format!("{tokens} tokens are too few; use at least {MIN}")),
            tokens => Ok(Self(tokens)),
        }
    }
}

impl<const MIN: u64> FromStr for Tokens<MIN> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<Count>()?.try_into()
    }
}

/// Printed with all digits: a limit is exact.
impl<const MIN: u64> fmt::Display for Tokens<MIN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Same schema as a count.
impl<const MIN: u64> JsonSchema for Tokens<MIN> {
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

/// A probability mass, above 0 and up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(try_from = "f64")]
#[schemars(inline, extend("exclusiveMinimum" = 0, "maximum" = 1))]
pub(crate) struct TopP(pub(crate) f64);

impl TryFrom<f64> for TopP {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        match value > 0.0 && value <= 1.0 {
            true => Ok(Self(value)),
            false => Err(format!(
                "`{value}` is not a valid `top_p`: use a number above 0 and up to 1"
            )),
        }
    }
}

impl FromStr for TopP {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number: f64 = text
            .parse()
            .map_err(|_| format!("`{}` is not a number", text.escape_debug()))?;
        number.try_into()
    }
}

impl fmt::Display for TopP {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A seed. Negative numbers are not accepted by every service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct Seed(pub(crate) u64);

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seed = text.trim().parse().map(Self);
        seed.map_err(|_| format!("`{}` is not a whole number of at least 0", text.escape_debug()))
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Maximum number of retries. With pauses that double, more would take an hour.
const MAX_RETRIES: u32 = 20;

/// A number of retries, from 0 to 20.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "u32")]
#[schemars(inline, extend("maximum" = 20))]
pub(crate) struct Retries(pub(crate) u32);

impl TryFrom<u32> for Retries {
    type Error = String;

    fn try_from(value: u32) -> Result<Self, String> {
        match value {
            0..=MAX_RETRIES => Ok(Self(value)),
            _ => Err(format!("`{value}` retries are too many: use 0 to {MAX_RETRIES}")),
        }
    }
}

impl FromStr for Retries {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number: u32 = text.parse().map_err(|_| {
            format!(
                "`{}` is not a whole number from 0 to {MAX_RETRIES}",
                text.escape_debug()
            )
        })?;
        number.try_into()
    }
}

impl fmt::Display for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A time limit above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Span")]
pub(crate) struct Timeout(pub(crate) Duration);

impl TryFrom<Span> for Timeout {
    type Error = &'static str;

    fn try_from(span: Span) -> Result<Self, &'static str> {
        match span.0.is_zero() {
            true => Err("a timeout of 0 allows nothing; use at least 1 ms"),
            false => Ok(Self(span.0)),
        }
    }
}

impl FromStr for Timeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(text.parse::<Span>()?.try_into()?)
    }
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

/// Same schema as a time span.
impl JsonSchema for Timeout {
    fn inline_schema() -> bool {
        Span::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        Span::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Span::json_schema(generator)
    }
}

/// Texts at which an answer ends: at least one, none empty.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<String>")]
#[schemars(inline, extend("minItems" = 1))]
pub(crate) struct StopTexts(pub(crate) Vec<String>);

impl TryFrom<Vec<String>> for StopTexts {
    type Error = &'static str;

    fn try_from(texts: Vec<String>) -> Result<Self, &'static str> {
        if texts.is_empty() {
            return Err("the list is empty; give at least one text, such as [\"END\"], or remove the key");
        }
        match texts.iter().any(String::is_empty) {
            true => Err("an empty text would end every answer at once; remove it"),
            false => Ok(Self(texts)),
        }
    }
}

/// A single text.
impl FromStr for StopTexts {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        vec![text.to_owned()].try_into()
    }
}

impl fmt::Display for StopTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(|text| format!("{text:?}")).collect();
        f.write_str(&texts.join(", "))
    }
}

/// Names of profiles.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct ProfileNames(pub(crate) Vec<String>);

/// Names, divided by commas.
impl FromStr for ProfileNames {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = text.split(',').map(|name| name.trim().to_owned());
        Ok(Self(names.filter(|name| !name.is_empty()).collect()))
    }
}

impl fmt::Display for ProfileNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// Headers by name. Their values are not displayed: they can be secrets.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "BTreeMap<String, HeaderValue>")]
#[schemars(inline, with = "BTreeMap<String, HeaderValue>")]
pub(crate) struct Headers(pub(crate) BTreeMap<String, HeaderValue>);

/// Headers that have a key, for one service or another.
const WITH_KEY: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

impl Headers {
    /// Returns the name of a header with a key, if there is one.
    pub(crate) fn with_key(&self) -> Option<&str> {
        let is_with_key = |name: &str| WITH_KEY.iter().any(|key| key.eq_ignore_ascii_case(name));
        self.0.keys().map(String::as_str).find(|name| is_with_key(name))
    }

    /// True if there is a header of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.keys().any(|own| own.eq_ignore_ascii_case(name))
    }
}

impl TryFrom<BTreeMap<String, HeaderValue>> for Headers {
    type Error = String;

    fn try_from(headers: BTreeMap<String, HeaderValue>) -> Result<Self, String> {
        for (name, value) in &headers {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(format!(
                    "`{}` cannot be the name of a header: use letters, digits and `-` (RFC 9110, section 5.1)",
                    name.escape_debug()
                ));
            }
            if is_of_client(name) {
                let instead = match name.eq_ignore_ascii_case("host") {
                    true => "it is the host of `base_url`",
                    false => "the HTTP client sets it for each request",
                };
                return Err(format!("the header `{name}` cannot be set: {instead}; remove it"));
            }
            if headers
                .keys()
                .any(|other| other != name && other.eq_ignore_ascii_case(name))
            {
                return Err(format!(
                    "the header `{name}` is set twice: names of headers have no upper and lower case"
                ));
            }
            if let HeaderValue::Text(text) = value
                && text.chars().any(|c| c != '\t' && c.is_control())
            {
                return Err(format!("the value of the header `{name}` has control characters"));
            }
        }
        Ok(Self(headers))
    }
}

/// Value of a header.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum HeaderValue {
    /// The value itself.
    Text(String),
    /// Environment variable with the value.
    Variable {
        /// Name of the variable.
        env: String,
    },
}

/// One header, `Name: value`.
impl FromStr for Headers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').ok_or_else(|| {
            format!(
                "`{}` is not a header, such as `X-Title: mine`",
                text.escape_debug()
            )
        })?;
        let value = HeaderValue::Text(value.trim().to_owned());
        BTreeMap::from([(name.trim().to_owned(), value)]).try_into()
    }
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        f.write_str(&names.join(", "))
    }
}

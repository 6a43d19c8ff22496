//! Values of `[loop]` and `[context]`, with their formats and ranges.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error as _};
use toolcell_agent::policy::{AllFailed, CallsPerStep, ErrorVisibility, LoopPolicy, OnLimit};
use toolcell_agent::preset;
use toolcell_core::suggest::nearest;

use crate::config::units::quantity::{Unit, millis};
use crate::config::units::{Bytes, Count, Span};

/// Name of a preset of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PresetName(pub(crate) &'static str);

impl PresetName {
    /// Returns the settings of the preset.
    pub(crate) fn policy(self) -> LoopPolicy {
        preset::named(self.0).unwrap_or_default()
    }
}

impl FromStr for PresetName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match preset::NAMES.into_iter().find(|name| *name == text) {
            Some(name) => Ok(Self(name)),
            None => Err(unknown("loop preset", text, &preset::NAMES)),
        }
    }
}

impl fmt::Display for PresetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// One of several named values of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice<T>(pub(crate) T);

/// The values of a [`Choice`].
pub(crate) trait Choices: Copy + Serialize + 'static {
    /// All values, whose names are their serialised form.
    const ALL: &[Self];

    /// Returns the name of the value.
    fn name(self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_str().unwrap_or_default().to_owned()
    }
}

impl Choices for OnLimit {
    const ALL: &[Self] = &[Self::FinalAnswer, Self::LastContent, Self::BestEffort, Self::Stop];
}

impl Choices for CallsPerStep {
    const ALL: &[Self] = &[Self::Many, Self::One];
}

impl Choices for AllFailed {
    const ALL: &[Self] = &[Self::Continue, Self::FallbackAnswer];
}

impl Choices for ErrorVisibility {
    const ALL: &[Self] = &[Self::Stored, Self::Ephemeral];
}

impl<T: Choices> FromStr for Choice<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = T::ALL.iter().find(|value| value.name() == text);
        let names: Vec<String> = T::ALL.iter().map(|value| value.name()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        found
            .map(|value| Self(*value))
            .ok_or_else(|| unknown("value", text, &names))
    }
}

fn unknown(what: &str, text: &str, known: &[&str]) -> String {
    let text = text.escape_debug();
    match nearest(&text.to_string(), known).first() {
        Some(near) => format!("there is no {what} `{text}`; did you mean `{near}`?"),
        None => format!("there is no {what} `{text}`; there are {}", known.join(", ")),
    }
}

impl<T: Choices> fmt::Display for Choice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name())
    }
}

/// A whole number of at least `MIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number<const MIN: u32>(pub(crate) u32);

impl<const MIN: u32> Number<MIN> {
    fn of(number: u64) -> Result<Self, String> {
        match u32::try_from(number) {
            Ok(number) if number >= MIN => Ok(Self(number)),
            Ok(number) => Err(format!("`{number}` is too small: use at least {MIN}")),
            Err(_) => Err(format!("`{number}` is too large: use at most {}", u32::MAX)),
        }
    }
}

impl<const MIN: u32> FromStr for Number<MIN> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().parse();
        Self::of(number.map_err(|_| format!("`{}` is not a whole number", text.escape_debug()))?)
    }
}

impl<const MIN: u32> fmt::Display for Number<MIN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `true` or `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct Switch(pub(crate) bool);

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let value = text.parse().map(Self);
        value.map_err(|_| format!("`{}` is neither `true` nor `false`", text.escape_debug()))
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A size, duration or count, displayed exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Exact<T>(pub(crate) T);

/// A size, duration or count above 0, displayed exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Positive<T>(pub(crate) T);

/// A size or count of at least `MIN`, below which nothing useful is left, displayed exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AtLeast<T, const MIN: u64>(pub(crate) T);

/// A unit with its number.
pub(crate) trait Quantity: Copy + FromStr<Err = String> {
    /// The unit of the number.
    const UNIT: Unit;

    /// Returns the number: bytes, milliseconds or a count.
    fn number(self) -> u64;
}

impl Quantity for Bytes {
    const UNIT: Unit = Unit::Bytes;

    fn number(self) -> u64 {
        self.0
    }
}

impl Quantity for Count {
    const UNIT: Unit = Unit::Count;

    fn number(self) -> u64 {
        self.0
    }
}

impl Quantity for Span {
    const UNIT: Unit = Unit::Time;

    fn number(self) -> u64 {
        millis(self)
    }
}

impl Positive<Span> {
    /// Creates a duration from milliseconds.
    pub(crate) fn millis(number: u64) -> Self {
        Self(Span(Duration::from_millis(number)))
    }
}

impl<T: Quantity> Positive<T> {
    fn of(quantity: T) -> Result<Self, String> {
        match quantity.number() {
            0 => Err("0 allows nothing; use more".to_owned()),
            _ => Ok(Self(quantity)),
        }
    }
}

impl<T: Quantity, const MIN: u64> AtLeast<T, MIN> {
    fn of(quantity: T) -> Result<Self, String> {
        let number = quantity.number();
        if number >= MIN {
            return Ok(Self(quantity));
        }
        let exactly = |number| T::UNIT.exactly(number);
        Err(format!(
            "`{}` is too small to be of use: use at least {}",
            exactly(number),
            exactly(MIN)
        ))
    }
}

impl<T: Quantity, const MIN: u64> FromStr for AtLeast<T, MIN> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of(text.parse()?)
    }
}

impl<T: Quantity, const MIN: u64> fmt::Display for AtLeast<T, MIN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Exact(self.0).fmt(f)
    }
}

impl<'de, T: Quantity + Deserialize<'de>, const MIN: u64> Deserialize<'de> for AtLeast<T, MIN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of(T::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<T: Quantity> FromStr for Exact<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl<T: Quantity> FromStr for Positive<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of(text.parse()?)
    }
}

impl<T: Quantity> fmt::Display for Exact<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::UNIT.exactly(self.0.number()))
    }
}

impl<T: Quantity> fmt::Display for Positive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Exact(self.0).fmt(f)
    }
}

impl<'de> Deserialize<'de> for PresetName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl<'de, T: Choices> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl<'de, const MIN: u32> Deserialize<'de> for Number<MIN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of(u64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<'de, T: Quantity + Deserialize<'de>> Deserialize<'de> for Exact<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self)
    }
}

impl<'de, T: Quantity + Deserialize<'de>> Deserialize<'de> for Positive<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of(T::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Implements the schema of a type, which stands in each place.
macro_rules! inline_schema {
    ([$($generics:tt)*] $type:ty, $schema:expr) => {
        impl<$($generics)*> JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}
inline_schema!([] PresetName, json_schema!({ "type": "string", "enum": preset::NAMES }));
inline_schema!([const MIN: u32] Number<MIN>, json_schema!({
    "type": "integer", "minimum": MIN, "maximum": u32::MAX
}));
inline_schema!([T: Choices] Choice<T>, json_schema!({
    "type": "string", "enum": T::ALL.iter().map(|value| value.name()).collect::<Vec<_>>()
}));

/// Same schema as the quantity.
macro_rules! schema_of_quantity {
    ($type:ident $(, $min:ident)?) => {
        impl<T: JsonSchema $(, const $min: u64)?> JsonSchema for $type<T $(, $min)?> {
            fn inline_schema() -> bool {
                T::inline_schema()
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                T::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                T::json_schema(generator)
            }
        }
    };
}
schema_of_quantity!(Exact);
schema_of_quantity!(Positive);
schema_of_quantity!(AtLeast, MIN);

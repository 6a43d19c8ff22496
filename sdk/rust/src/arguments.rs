//! Arguments of a call, decoded from JSON.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};
use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ToolError, show};

/// Type of a tool's parameter: any type that is `Deserialize` and [`JsonSchema`].
///
/// Includes strings, numbers, `bool`, `Option`, `Vec`, maps, and structures and enums with
/// [`#[input]`](macro@crate::input).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a tool",
    label = "not a parameter type of a tool",
    note = "put `#[toolcell_sdk::input]` on the type, or derive `serde::Deserialize` and `schemars::JsonSchema`"
)]
pub trait Parameter: DeserializeOwned + JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema> Parameter for T {}

/// Type of a field of an `#[input]` type, for the macro.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of an `#[input]` type",
    label = "a field is not of a parameter type",
    note = "put `#[toolcell_sdk::input]` on the type, or derive `serde::Deserialize`, `serde::Serialize` and `schemars::JsonSchema`"
)]
pub trait InputField: Parameter + Serialize {}

#[diagnostic::do_not_recommend]
impl<T: Parameter + Serialize> InputField for T {}

/// Type of a field of an `#[output]` type, for the macro.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of an `#[output]` type",
    label = "a field is not of a result type",
    note = "put `#[toolcell_sdk::output]` on the type, or derive `serde::Serialize`, `serde::Deserialize` and `schemars::JsonSchema`"
)]
pub trait OutputField: DeserializeOwned + JsonSchema + Serialize {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Serialize> OutputField for T {}

/// Argument that may be left out, of a type for which `null` is a value, such as [`Value`]: an `Option` does not tell `null`
/// from a missing argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optional<T> {
    /// The argument was left out.
    Missing,
    /// The argument, possibly `null`.
    Given(T),
}

/// Name by which the deserializer of a missing argument recognises [`Optional`].
const OPTIONAL: &str = "toolcell_sdk::Optional";

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Optional<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OptionalVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OptionalVisitor<T> {
            type Value = Optional<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_none<E>(self) -> Result<Optional<T>, E> {
                Ok(Optional::Missing)
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Optional<T>, D::Error> {
                T::deserialize(value).map(Optional::Given)
            }
        }

        deserializer.deserialize_newtype_struct(OPTIONAL, OptionalVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Optional<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Arguments of a call: a JSON object, decoded by the macro.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    values: Map<String, Value>,
}

impl Arguments {
    /// Parses a JSON object.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) for anything else.
    pub fn parse(json: &str) -> Result<Self, ToolError> {
        match serde_json::from_str(json) {
            Ok(Value::Object(values)) => Ok(Self { values }),
            Ok(_) => Err(ToolError::invalid("the arguments are not a JSON object")),
            Err(error) => Err(ToolError::invalid(format_args!(
                "the arguments are not valid JSON: {error}"
            ))),
        }
    }

    /// Removes one argument. A missing one is `None` for an `Option` and an error for any other type.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) with the path of the invalid value.
    pub fn take<T: Parameter>(&mut self, name: &str) -> Result<T, ToolError> {
        match self.values.remove(name) {
            Some(value) => decode(name, value),
            None => absent().ok_or_else(|| ToolError::invalid(format_args!("`{name}` is missing"))),
        }
    }

    /// Removes one argument, or returns a default if it is missing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) with the path of the invalid value.
    pub fn take_or<T: Parameter>(&mut self, name: &str, default: impl FnOnce() -> T) -> Result<T, ToolError> {
        match self.values.remove(name) {
            Some(value) => decode(name, value),
            None => Ok(default()),
        }
    }

    /// Decodes all arguments into one value.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) with the path of the invalid value.
    pub fn take_all<T: Parameter>(&mut self) -> Result<T, ToolError> {
        decode("", Value::Object(std::mem::take(&mut self.values)))
    }

    /// Checks that no argument is left.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) with the name of the first unknown argument.
    pub fn finish(self) -> Result<(), ToolError> {
        match self.values.keys().next() {
            Some(name) => Err(ToolError::invalid(format_args!(
                "unknown argument {}",
                show::quoted(name)
            ))),
            None => Ok(()),
        }
    }
}

/// Value of a missing argument, if it is optional.
pub(crate) fn absent<T: Parameter>() -> Option<T> {
    T::deserialize(Absent).ok()
}

fn decode<T: Parameter>(name: &str, value: Value) -> Result<T, ToolError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        // The error repeats the value.
        let reason = error.inner().to_string();
        let reason = show::cut(&reason, show::MAX_VALUE);
        let place = match (name, path.as_str()) {
            ("", ".") => return ToolError::invalid(reason),
            ("", path) => path.to_owned(),
            (name, ".") => name.to_owned(),
            (name, path) if path.starts_with('[') => format!("{name}{path}"),
            (name, path) => format!("{name}.{path}"),
        };
        ToolError::invalid(format_args!("{}: {reason}", show::quoted(place)))
    })
}

/// Deserializer of a missing argument: `None` for an option, an error for any other type.
struct Absent;

/// Error of a missing argument.
#[derive(Debug)]
struct Missing;

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("missing")
    }
}

impl std::error::Error for Missing {}

impl de::Error for Missing {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'de> Deserializer<'de> for Absent {
    type Error = Missing;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Missing> {
        Err(Missing)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Missing> {
        visitor.visit_none()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Missing> {
        match name {
            OPTIONAL => visitor.visit_none(),
            _ => Err(Missing),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn arguments(json: &str) -> Arguments {
        Arguments::parse(json).unwrap()
    }

    #[test]
    fn missing_option_is_none_and_other_missing_arguments_fail() {
        let mut none = arguments("{}");
        assert_eq!(none.take::<Option<u8>>("n"), Ok(None));
        assert_eq!(none.take_or("n", || 7_u8), Ok(7));
        assert_eq!(none.take::<u8>("n").unwrap_err().message(), "`n` is missing");
    }

    #[test]
    fn null_is_a_value_of_an_optional_argument() {
        let take = |json: &str| arguments(json).take::<Optional<Value>>("v");
        assert_eq!(take("{}"), Ok(Optional::Missing));
        assert_eq!(take(r#"{"v": null}"#), Ok(Optional::Given(Value::Null)));
        assert_eq!(take(r#"{"v": [1]}"#), Ok(Optional::Given(serde_json::json!([1]))));
        let error = arguments(r#"{"v": "x"}"#).take::<Optional<u8>>("v").unwrap_err();
        assert_eq!(error.message(), "`v`: invalid type: string \"x\", expected u8");
    }

    #[test]
    fn invalid_value_is_named_with_its_path() {
        let error = arguments(r#"{"n": 256}"#).take::<u8>("n").unwrap_err();
        assert_eq!(error.message(), "`n`: invalid value: integer `256`, expected u8");
        let error = arguments(r#"{"n": {"a": [1, "b"]}}"#)
            .take::<BTreeMap<String, Vec<u8>>>("n")
            .unwrap_err();
        assert_eq!(
            error.message(),
            "`n.a[1]`: invalid type: string \"b\", expected u8"
        );
        let error = arguments(r#"{"a": "b"}"#)
            .take_all::<BTreeMap<String, u8>>()
            .unwrap_err();
        assert_eq!(error.message(), "`a`: invalid type: string \"b\", expected u8");
    }

    #[test]
    fn unknown_argument_is_an_error() {
        assert_eq!(arguments("{}").finish(), Ok(()));
        assert_eq!(
            arguments(r#"{"x": 1}"#).finish().unwrap_err().message(),
            "unknown argument `x`"
        );
    }

    #[test]
    fn arguments_must_be_a_json_object() {
        for (json, says) in [
            ("[]", "not a JSON object"),
            ("{", "not valid JSON: EOF"),
            ("", "not valid JSON: EOF"),
        ] {
            let error = Arguments::parse(json).unwrap_err();
            assert!(error.message().contains(says), "{json}: {error}");
        }
    }
}

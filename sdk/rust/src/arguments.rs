//! The arguments of a call, on their way from JSON to parameters.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use crate::ToolError;

/// What may be a parameter of a tool: everything that is `Deserialize` and [`JsonSchema`].
///
/// Those are strings, numbers, `bool`, `Option`, `Vec`, maps, and structures and enums with
/// [`#[input]`](macro@crate::input) over them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a tool",
    label = "no parameter of a tool",
    note = "put `#[toolcell_sdk::input]` over the type, or derive `serde::Deserialize` and `schemars::JsonSchema`"
)]
pub trait Parameter: DeserializeOwned + JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema> Parameter for T {}

/// The arguments of a call: a JSON object that the macro takes apart.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    values: Map<String, Value>,
}

impl Arguments {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) for anything else.
    pub fn parse(json: &str) -> Result<Self, ToolError> {
        match serde_json::from_str(json) {
            Ok(Value::Object(values)) => Ok(Self { values }),
            Ok(_) => Err(ToolError::invalid("the arguments are no JSON object")),
            Err(error) => Err(ToolError::invalid(format_args!(
                "the arguments are no JSON: {error}"
            ))),
        }
    }

    /// Takes one argument out. One that is missing is `None` for an `Option` and an error for anything else.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) with the path of what does not fit.
    pub fn take<T: Parameter>(&mut self, name: &str) -> Result<T, ToolError> {
        match self.values.remove(name) {
            Some(value) => decode(name, value),
            None => absent().ok_or_else(|| ToolError::invalid(format_args!("`{name}` is missing"))),
        }
    }

    /// Takes one argument out, or another value if it is missing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) with the path of what does not fit.
    pub fn take_or<T: Parameter>(&mut self, name: &str, default: impl FnOnce() -> T) -> Result<T, ToolError> {
        match self.values.remove(name) {
            Some(value) => decode(name, value),
            None => Ok(default()),
        }
    }

    /// Makes one value of all arguments.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) with the path of what does not fit.
    pub fn take_all<T: Parameter>(&mut self) -> Result<T, ToolError> {
        decode("", Value::Object(std::mem::take(&mut self.values)))
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) with the first name that is left.
    pub fn finish(self) -> Result<(), ToolError> {
        match self.values.keys().next() {
            Some(name) => Err(ToolError::invalid(format_args!(
                "`{name}` is no parameter of this tool"
            ))),
            None => Ok(()),
        }
    }
}

/// The value that a missing argument has, if it may be missing.
pub(crate) fn absent<T: Parameter>() -> Option<T> {
    T::deserialize(Absent).ok()
}

fn decode<T: Parameter>(name: &str, value: Value) -> Result<T, ToolError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let place = match (name, path.as_str()) {
            ("", ".") => return ToolError::invalid(error.inner()),
            ("", path) => path.to_owned(),
            (name, ".") => name.to_owned(),
            (name, path) if path.starts_with('[') => format!("{name}{path}"),
            (name, path) => format!("{name}.{path}"),
        };
        ToolError::invalid(format_args!("`{place}`: {}", error.inner()))
    })
}

/// Stands for an argument that is not there: `None` to whoever asks for an option, an error to everybody else.
struct Absent;

/// That an argument is not there.
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

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
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
    fn a_missing_option_is_none_and_anything_else_missing_is_an_error() {
        let mut none = arguments("{}");
        assert_eq!(none.take::<Option<u8>>("n"), Ok(None));
        assert_eq!(none.take_or("n", || 7_u8), Ok(7));
        assert_eq!(none.take::<u8>("n").unwrap_err().message(), "`n` is missing");
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_path() {
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
    fn an_argument_that_nobody_took_is_an_error() {
        assert_eq!(arguments("{}").finish(), Ok(()));
        assert_eq!(
            arguments(r#"{"x": 1}"#).finish().unwrap_err().message(),
            "`x` is no parameter of this tool"
        );
    }

    #[test]
    fn arguments_are_a_json_object_and_nothing_else() {
        for (json, says) in [
            ("[]", "no JSON object"),
            ("{", "no JSON: EOF"),
            ("", "no JSON: EOF"),
        ] {
            let error = Arguments::parse(json).unwrap_err();
            assert!(error.message().contains(says), "{json}: {error}");
        }
    }
}

//! The types in a tool's signature, for the macro.
//!
//! The macro names a type only as the argument of one of these functions, in the definition of the tool and in its call.
//! The compiler's errors about an unsuitable type are then equal, and it shows equal errors once.

use std::error::Error;
use std::marker::PhantomData;

use serde::Serialize;
use serde_json::Value;

use crate::error::from_error;
use crate::schema::Parameters;
use crate::{Answer, Arguments, Output, Parameter, ToolError};

/// Type of a required or optional parameter.
#[derive(Debug)]
pub struct ParameterType<T> {
    add: fn(&mut Parameters, &str, &str),
    take: fn(&mut Arguments, &str) -> Result<T, ToolError>,
}

/// Checks the type of a parameter.
pub fn parameter<T: Parameter>() -> ParameterType<T> {
    ParameterType {
        add: Parameters::add::<T>,
        take: Arguments::take,
    }
}

impl<T> ParameterType<T> {
    /// [`Parameters::add`].
    pub fn add(self, parameters: &mut Parameters, name: &str, docs: &str) {
        (self.add)(parameters, name, docs);
    }

    /// [`Arguments::take`].
    ///
    /// # Errors
    /// Those of [`Arguments::take`].
    pub fn take(self, arguments: &mut Arguments, name: &str) -> Result<T, ToolError> {
        (self.take)(arguments, name)
    }
}

/// [`Arguments::take_or`] for a type.
type TakeOr<T> = fn(&mut Arguments, &str, fn() -> T) -> Result<T, ToolError>;

/// Type of a parameter with a default.
#[derive(Debug)]
pub struct DefaultType<T> {
    add: fn(&mut Parameters, &str, &str, &T),
    take: TakeOr<T>,
}

/// Types of parameters that can have a default, which is shown in the schema.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a tool with a default",
    label = "not a parameter type with a default",
    note = "put `#[toolcell_sdk::input]` on the type, or derive `serde::Deserialize`, `serde::Serialize` and `schemars::JsonSchema`"
)]
pub trait Defaultable: Parameter + Serialize {}

#[diagnostic::do_not_recommend]
impl<T: Parameter + Serialize> Defaultable for T {}

/// Checks the type of a parameter with a default.
pub fn parameter_with_default<T: Defaultable>() -> DefaultType<T> {
    DefaultType {
        add: Parameters::add_with_default,
        take: Arguments::take_or,
    }
}

impl<T> DefaultType<T> {
    /// [`Parameters::add_with_default`].
    pub fn add(self, parameters: &mut Parameters, name: &str, docs: &str, default: fn() -> T) {
        (self.add)(parameters, name, docs, &default());
    }

    /// [`Arguments::take_or`].
    ///
    /// # Errors
    /// Those of [`Arguments::take_or`].
    pub fn take(self, arguments: &mut Arguments, name: &str, default: fn() -> T) -> Result<T, ToolError> {
        (self.take)(arguments, name, default)
    }
}

/// Type of all arguments together.
#[derive(Debug)]
pub struct ArgumentsType<T> {
    schema: fn() -> Value,
    take: fn(&mut Arguments) -> Result<T, ToolError>,
}

/// Checks the type of all arguments.
pub fn all_arguments<T: Parameter>() -> ArgumentsType<T> {
    ArgumentsType {
        schema: Parameters::all::<T>,
        take: Arguments::take_all,
    }
}

impl<T> ArgumentsType<T> {
    /// [`Parameters::all`].
    pub fn schema(self) -> Value {
        (self.schema)()
    }

    /// [`Arguments::take_all`].
    ///
    /// # Errors
    /// Those of [`Arguments::take_all`].
    pub fn take(self, arguments: &mut Arguments) -> Result<T, ToolError> {
        (self.take)(arguments)
    }
}

/// Type that a tool returns.
#[derive(Debug)]
pub struct AnswerType<T> {
    schema: fn() -> Option<Value>,
    output: fn(T) -> Result<Output, ToolError>,
}

/// Checks the type that a tool returns.
pub fn answer<T: Answer>() -> AnswerType<T> {
    AnswerType {
        schema: T::output_schema,
        output: T::into_output,
    }
}

impl<T> AnswerType<T> {
    /// [`Answer::output_schema`].
    pub fn schema(self) -> Option<Value> {
        (self.schema)()
    }

    /// [`Answer::into_output`].
    ///
    /// # Errors
    /// Those of [`Answer::into_output`].
    pub fn output(self, value: T) -> Result<Output, ToolError> {
        (self.output)(value)
    }
}

/// Error type of a tool. Method resolution selects its conversion: that of [`ConvertibleError`], [`SendableError`] or
/// [`OtherError`], the first whose bound holds, because each is implemented for one reference more than the next.
#[derive(Debug)]
pub struct ErrorType<E>(PhantomData<E>);

/// Type of an error.
pub fn error_type<E>(_: &E) -> ErrorType<E> {
    ErrorType(PhantomData)
}

/// Errors that `?` converts.
pub trait ConvertibleError<E> {
    /// Conversion of the error.
    fn conversion(&self) -> fn(E) -> ToolError;
}

impl<E: Into<ToolError>> ConvertibleError<E> for &&ErrorType<E> {
    fn conversion(&self) -> fn(E) -> ToolError {
        E::into
    }
}

/// Errors without the trait [`Error`]: `String`, `&str`, `Box<dyn Error + Send + Sync>`, `anyhow::Error`.
pub trait SendableError<E> {
    /// Conversion of the error.
    fn conversion(&self) -> fn(E) -> ToolError;
}

impl<E: Into<Box<dyn Error + Send + Sync>>> SendableError<E> for &ErrorType<E> {
    fn conversion(&self) -> fn(E) -> ToolError {
        |error| from_error(error.into().as_ref())
    }
}

/// Other errors: `Box<dyn Error>`, and those that are no errors of a tool.
pub trait OtherError<E> {
    /// Conversion of the error.
    fn conversion(&self) -> fn(E) -> ToolError
    where
        E: BoxableError;
}

impl<E> OtherError<E> for ErrorType<E> {
    fn conversion(&self) -> fn(E) -> ToolError
    where
        E: BoxableError,
    {
        |error| from_error(error.boxed().as_ref())
    }
}

/// Errors that convert to `Box<dyn Error>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool",
    label = "not an error type of a tool",
    note = "the error of a tool is `toolcell_sdk::ToolError`, text, or a type that implements `std::error::Error` or converts to `Box<dyn Error>`"
)]
pub trait BoxableError {
    /// The same error in a box.
    fn boxed(self) -> Box<dyn Error>;
}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn Error>>> BoxableError for E {
    fn boxed(self) -> Box<dyn Error> {
        self.into()
    }
}

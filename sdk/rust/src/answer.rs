//! Return types of tools.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{Output, ToolError, schema};

/// Return type of a tool, directly or in a `Result`.
///
/// - `String`, `&'static str`: text.
/// - `()`: the model gets `Done.`
/// - A structure with [`#[output]`](macro@crate::output), or any other type that is [`Serialize`] and
///   [`JsonSchema`]: the model gets it as compact JSON. If it is a JSON object, it is also the structured output, and
///   its schema the output schema of the tool.
/// - [`Output`]: several parts.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be returned by a tool",
    label = "not a return type of a tool",
    note = "a tool returns text, `()`, `toolcell_sdk::Output`, or a type with `#[toolcell_sdk::output]` (`Serialize` and `JsonSchema`); or a `Result` of one of these"
)]
pub trait Answer: Sized {
    /// Converts the value to content.
    ///
    /// # Errors
    /// Fails if the value cannot be serialised as JSON.
    fn into_output(self) -> Result<Output, ToolError>;

    /// JSON Schema of [`Output::structured`], if set.
    fn output_schema() -> Option<Value>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + JsonSchema> Answer for T {
    fn into_output(self) -> Result<Output, ToolError> {
        Ok(from_value(serde_json::to_value(self)?))
    }

    fn output_schema() -> Option<Value> {
        // Clients of the Model Context Protocol accept only objects as structured output.
        schema::of_output::<T>().filter(|schema| schema.get("type").and_then(Value::as_str) == Some("object"))
    }
}

impl Answer for Output {
    fn into_output(self) -> Result<Output, ToolError> {
        Ok(self)
    }

    fn output_schema() -> Option<Value> {
        None
    }
}

fn from_value(value: Value) -> Output {
    match value {
        Value::String(text) => Output::new().text(text),
        Value::Null => Output::new().text("Done."),
        Value::Object(_) => Output {
            structured: Some(value.clone()),
            ..Output::new().text(value.to_string())
        },
        _ => Output::new().text(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn answer<T: Answer>(value: T) -> Result<Output, ToolError> {
        value.into_output()
    }

    fn output_schema<T: Answer>() -> Option<Value> {
        T::output_schema()
    }

    #[test]
    fn text_is_text_and_unit_is_done() {
        assert_eq!(answer("yes"), Ok(Output::new().text("yes")));
        assert_eq!(answer(String::from("yes")), Ok(Output::new().text("yes")));
        assert_eq!(answer(()), Ok(Output::new().text("Done.")));
        assert_eq!(output_schema::<String>(), None);
        assert_eq!(output_schema::<()>(), None);
    }

    #[test]
    fn object_is_text_and_structured_output_with_a_schema() {
        let output = answer(BTreeMap::from([("a", 1_u8)])).unwrap();
        assert_eq!(output.to_text(), r#"{"a":1}"#);
        assert_eq!(output.structured, Some(json!({"a": 1})));
        let schema = output_schema::<BTreeMap<String, u8>>().unwrap();
        assert_eq!(schema["type"], "object");
    }

    #[test]
    fn list_is_text_only() {
        let output = answer(vec![1, 2]).unwrap();
        assert_eq!((output.to_text().as_str(), output.structured), ("[1,2]", None));
        assert_eq!(output_schema::<Vec<u8>>(), None);
    }

    #[test]
    fn value_without_json_form_is_an_error() {
        let error = answer(BTreeMap::from([(vec![1_u8], 1_u8)])).unwrap_err();
        assert!(error.message().contains("key must be a string"), "{error}");
    }
}

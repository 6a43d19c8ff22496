//! Form that a client requires of an answer: `response_format` of Chat Completions, and `text.format` of Responses.

use serde_json::{Value, json};
use toolcell_core::Schema;

use super::MAX_NAME;
use crate::answer::{Failure, excerpt};

/// Reads the schema of the answer; `None` for text. `param` names the member.
///
/// # Errors
/// The form is unknown, or its schema cannot be used.
pub(super) fn schema_of(format: &Value, param: &str) -> Result<Option<Schema>, Failure> {
    let invalid = |message: String| Failure::invalid(message).param(param);
    let kind = match (format, &format["type"]) {
        (Value::Null, _) => return Ok(None),
        (Value::Object(_), Value::String(kind)) => kind.as_str(),
        _ => return Err(invalid(format!("`{param}` is an object with a `type`"))),
    };
    let value = match kind {
        "text" => return Ok(None),
        "json_object" => json!({"type": "object"}),
        // Chat Completions has the schema one level deeper.
        "json_schema" => match format["json_schema"].get("schema").or(format.get("schema")) {
            Some(schema) => schema.clone(),
            None => {
                return Err(invalid(format!(
                    "`{param}` of type `json_schema` has no `schema`"
                )));
            }
        },
        kind => {
            let kind = excerpt(kind, MAX_NAME);
            return Err(invalid(format!(
                "`{param}` has the unknown type `{kind}`: it is `text`, `json_object` or `json_schema`"
            )));
        }
    };
    let schema = Schema::new(value);
    schema
        .map(Some)
        .map_err(|error| invalid(format!("the schema in `{param}` cannot be used: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_of_both_apis_is_read() {
        let of = |format: Value| {
            schema_of(&format, "f").map(|schema| schema.map(|schema| schema.as_value().clone()))
        };
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        for (format, expected) in [
            (json!(null), None),
            (json!({"type": "text"}), None),
            (json!({"type": "json_object"}), Some(json!({"type": "object"}))),
            (
                json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}}),
                Some(schema.clone()),
            ),
            (
                json!({"type": "json_schema", "name": "n", "schema": schema}),
                Some(schema.clone()),
            ),
        ] {
            assert_eq!(of(format.clone()).unwrap(), expected, "{format}");
        }
        for (format, said) in [
            (json!("json"), "object with a `type`"),
            (json!({}), "object with a `type`"),
            (json!({"type": "xml\u{202e}"}), "unknown type `xml\\u{202e}`"),
            (json!({"type": "json_schema"}), "has no `schema`"),
            (
                json!({"type": "json_schema", "json_schema": {}}),
                "has no `schema`",
            ),
            (
                json!({"type": "json_schema", "schema": {"type": 1}}),
                "cannot be used",
            ),
            (
                json!({"type": "json_schema", "schema": {"$ref": "https://example.com/x"}}),
                "cannot be used",
            ),
        ] {
            let failure = of(format.clone()).unwrap_err();
            assert!(failure.message.contains(said), "{format}: {}", failure.message);
            assert_eq!(failure.param.as_deref(), Some("f"));
        }
    }
}

//! Form that a client requires of an answer: `response_format` of Chat Completions, and `text.format` of Responses.

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolcell_core::Schema;

use super::MAX_NAME;
use crate::answer::{Failure, excerpt};

/// Maximum number of schemas that are checked at a time, which can take a fraction of a second each. Others wait.
const MAX_CHECKED: usize = 2;

static CHECKED: Semaphore = Semaphore::const_new(MAX_CHECKED);

/// Reads the schema of the answer, on a thread that may take its time; `None` for text. `param` names the member.
///
/// # Errors
/// The form is unknown, or its schema cannot be used.
pub(super) async fn schema_of(format: &Value, param: &'static str) -> Result<Option<Schema>, Failure> {
    let Some(value) = value_of(format, param)? else {
        return Ok(None);
    };
    // The semaphore is never closed.
    let place = CHECKED.acquire().await.ok();
    let checked = tokio::task::spawn_blocking(move || {
        let _place = place;
        Schema::new(value)
    });
    let checked = checked
        .await
        .map_err(|_| Failure::failed("the schema could not be checked"))?;
    checked.map(Some).map_err(|error| {
        Failure::invalid(format!("the schema in `{param}` cannot be used: {error}")).param(param)
    })
}

/// Returns the schema in a form.
fn value_of(format: &Value, param: &str) -> Result<Option<Value>, Failure> {
    let invalid = |message: String| Failure::invalid(message).param(param);
    let kind = match (format, &format["type"]) {
        (Value::Null, _) => return Ok(None),
        (Value::Object(_), Value::String(kind)) => kind.as_str(),
        _ => return Err(invalid(format!("`{param}` is an object with a `type`"))),
    };
    match kind {
        "text" => Ok(None),
        "json_object" => Ok(Some(json!({"type": "object"}))),
        // Chat Completions has the schema one level deeper.
        "json_schema" => match format["json_schema"].get("schema").or(format.get("schema")) {
            Some(schema) => Ok(Some(schema.clone())),
            None => Err(invalid(format!(
                "`{param}` of type `json_schema` has no `schema`"
            ))),
        },
        kind => {
            let kind = excerpt(kind, MAX_NAME);
            Err(invalid(format!(
                "`{param}` has the unknown type `{kind}`: it is `text`, `json_object` or `json_schema`"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_of_both_apis_is_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let of = |format: Value| {
            let schema = runtime.block_on(schema_of(&format, "f"));
            schema.map(|schema| schema.map(|schema| schema.as_value().clone()))
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

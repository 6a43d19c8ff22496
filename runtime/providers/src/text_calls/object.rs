//! Parsed calls, and the JSON objects that most formats contain.

use serde_json::Value;

use super::names::Offered;
use super::value::{end_of_value, read};

/// Parsed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) name: String,
    /// JSON text, or the model's text in its place.
    pub(super) arguments: String,
}

/// Result of parsing the start of a text.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// Calls, up to this byte. Empty if the format states that nothing is called.
    Calls(usize, Vec<Written>),
    /// Not a call, up to this byte.
    Text(usize),
    /// More text is needed.
    Pending,
}

/// Parses one or more JSON objects: a single one, an array, or a sequence.
pub(super) fn objects(body: &str, offered: &Offered) -> Option<Vec<Written>> {
    let mut calls = Vec::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let Some(end) = end_of_value(rest) else {
            // An incomplete object: if it contains a name, the call is passed on so that the model gets an error.
            let name = broken_name(rest).and_then(|name| offered.resolve(name))?;
            calls.push(Written {
                name: name.to_owned(),
                arguments: rest.to_owned(),
            });
            break;
        };
        match read(&rest[..end]) {
            Some(Value::Array(items)) => {
                for item in &items {
                    calls.push(object(item, offered)?);
                }
            }
            Some(value) => calls.push(object(&value, offered)?),
            None => {
                let name = broken_name(rest).and_then(|name| offered.resolve(name))?;
                calls.push(Written {
                    name: name.to_owned(),
                    arguments: rest[..end].to_owned(),
                });
            }
        }
        rest = rest[end..].trim_start_matches(|c: char| c.is_whitespace() || c == ';' || c == ',');
    }
    (!calls.is_empty()).then_some(calls)
}

/// Fields for the name of a tool, and fields for its arguments.
pub(super) const NAME_FIELDS: &[&str] = &["name", "tool_name", "tool", "function", "action"];
pub(super) const ARGUMENT_FIELDS: &[&str] = &[
    "arguments",
    "parameters",
    "params",
    "args",
    "input",
    "action_input",
];

/// Extracts the name from invalid JSON.
fn broken_name(text: &str) -> Option<&str> {
    NAME_FIELDS.iter().find_map(|field| {
        let (_, rest) = text.split_once(&format!("\"{field}\""))?;
        let rest = rest
            .trim_start()
            .strip_prefix(':')?
            .trim_start()
            .strip_prefix('"')?;
        rest.split_once('"').map(|(name, _)| name)
    })
}

/// Parses a call from a JSON object. The name need not be that of a tool: after a marker a call is intended, and
/// dispatch tells the model the valid names.
pub(super) fn object(value: &Value, offered: &Offered) -> Option<Written> {
    // `{"type": "function", "function": {"name": …, "arguments": …}}`
    if let Some(inner @ Value::Object(_)) = value.get("function") {
        return object(inner, offered);
    }
    let name = NAME_FIELDS.iter().find_map(|field| value.get(*field)?.as_str())?;
    let arguments = ARGUMENT_FIELDS.iter().find_map(|field| value.get(*field));
    Some(Written {
        name: offered.resolve(name).unwrap_or(name).to_owned(),
        arguments: match arguments {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => "{}".into(),
            Some(value) => value.to_string(),
        },
    })
}

/// A call with arguments that should be JSON.
pub(super) fn written(name: &str, arguments: &str) -> Written {
    let arguments = arguments.trim();
    Written {
        name: name.to_owned(),
        arguments: match read(arguments) {
            Some(value) => value.to_string(),
            None if arguments.is_empty() => "{}".into(),
            None => arguments.to_owned(),
        },
    }
}

//! Entries of JSON files with comments.

use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde_json::Value;

pub(super) fn read(text: &str) -> Result<Value, String> {
    parse_to_serde_value(text, &ParseOptions::default()).map_err(|error| error.to_string())
}

pub(super) fn set(
    text: &str,
    section: &str,
    name: &str,
    existing: Option<&Value>,
    entry: &Value,
) -> Result<String, String> {
    let root = parsed(if text.trim().is_empty() { "{}\n" } else { text })?;
    let entries = root.object_value_or_set();
    let entries = match entries.get(section) {
        Some(_) => object(&entries, section)?,
        None => entries.object_value_or_set(section),
    };
    match (entries.get(name), entries.object_value(name), entry.as_object()) {
        (Some(_), Some(object), Some(values)) => {
            for (key, value) in values {
                match object.get(key) {
                    Some(_) if existing.and_then(|existing| existing.get(key)) == Some(value) => {}
                    Some(property) => property.set_value(input(value)),
                    None => {
                        object.append(key, input(value));
                    }
                }
            }
        }
        (Some(property), ..) => property.set_value(input(entry)),
        (None, ..) => {
            entries.append(name, input(entry));
        }
    }
    Ok(root.to_string())
}

pub(super) fn remove(text: &str, section: &str, name: &str) -> Result<String, String> {
    let root = parsed(text)?;
    let entries = object(&root.object_value_or_set(), section)?;
    if let Some(property) = entries.get(name) {
        property.remove();
    }
    Ok(root.to_string())
}

fn parsed(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| error.to_string())
}

fn object(of: &CstObject, key: &str) -> Result<CstObject, String> {
    of.object_value(key)
        .ok_or_else(|| format!("`{key}` in it is not an object"))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(entries) => CstInputValue::Object(
            entries
                .iter()
                .map(|(name, value)| (name.clone(), input(value)))
                .collect(),
        ),
    }
}

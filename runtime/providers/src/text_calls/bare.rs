//! Calls without a marker: an answer that consists of JSON or a Python call.

use serde_json::Value;

use super::names::Offered;
use super::object::{ARGUMENT_FIELDS, NAME_FIELDS, Written, object};
use super::value::{end_of_value, keywords, read};

/// Parses an answer that consists of calls without markers: JSON objects, or Python calls in brackets. Every name must
/// be that of an offered tool, and nothing else may remain.
pub(super) fn bare(text: &str, offered: &Offered) -> Option<Vec<Written>> {
    let text = text.trim();
    if let Some(calls) = python(text, offered) {
        return Some(calls);
    }
    let mut values = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest
            .starts_with(['{', '['])
            .then(|| end_of_value(rest))
            .flatten()?;
        match read(&rest[..end])? {
            Value::Array(items) => values.extend(items),
            value => values.push(value),
        }
        rest = rest[end..].trim_start_matches(|c: char| c.is_whitespace() || c == ';');
    }
    let mut calls = Vec::new();
    for value in &values {
        let fields = value.as_object()?;
        let known = |field: &String| {
            NAME_FIELDS.contains(&field.as_str())
                || ARGUMENT_FIELDS.contains(&field.as_str())
                || matches!(field.as_str(), "type" | "id" | "server_name")
        };
        let has_arguments = fields
            .keys()
            .any(|f| ARGUMENT_FIELDS.contains(&f.as_str()) || f == "function");
        if !has_arguments || !fields.keys().all(known) {
            return None;
        }
        // In this format, no call.
        if fields
            .get("action")
            .is_some_and(|action| action == "none" || action == "")
        {
            continue;
        }
        let call = object(value, offered)?;
        offered.resolve(&call.name)?;
        calls.push(call);
    }
    (!values.is_empty()).then_some(calls)
}

fn python(text: &str, offered: &Offered) -> Option<Vec<Written>> {
    let mut rest = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let open = rest.find('(')?;
        let close = open + end_of_parentheses(&rest[open..])?;
        let name = offered.resolve(&rest[..open])?;
        let arguments = keywords(&rest[open + 1..close - 1])?;
        calls.push(Written {
            name: name.to_owned(),
            arguments: Value::Object(arguments).to_string(),
        });
        rest = rest[close..].trim_start().trim_start_matches(',').trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

fn end_of_parentheses(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

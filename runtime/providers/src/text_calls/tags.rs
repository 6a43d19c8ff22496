//! Calls between tags.

use serde_json::{Map, Value};

use super::names::Offered;
use super::object::{Found, Written, objects, written};
use super::value::end_of_value;

/// Parses calls between two tags. A model that stops after its last call omits the closing tag.
pub(super) fn enclosed(text: &str, close: &str, offered: &Offered, is_end: bool) -> Found {
    let start = text.find('>').map_or(text.len(), |at| at + 1);
    let (body, end) = match body_end(text, start, close) {
        Some(at) => (&text[start..at], at + close.len()),
        None if is_end => (&text[start..], text.len()),
        None => return Found::Pending,
    };
    match body_calls(body.trim(), offered) {
        Some(calls) => Found::Calls(end, calls),
        None => Found::Text(end),
    }
}

/// Position of the closing tag, outside JSON strings.
fn body_end(text: &str, start: usize, close: &str) -> Option<usize> {
    let body = &text[start..];
    let lead = body.len() - body.trim_start().len();
    let after_value = match body.trim_start().starts_with(['{', '[']) {
        true => end_of_value(&body[lead..]).map_or(0, |end| lead + end),
        false => 0,
    };
    body[after_value..].find(close).map(|at| start + after_value + at)
}

fn body_calls(body: &str, offered: &Offered) -> Option<Vec<Written>> {
    if body.starts_with("<function=") {
        let mut calls = Vec::new();
        let mut rest = body;
        while let Some(at) = rest.find("<function=") {
            match function_tag(&rest[at..], offered, true) {
                Found::Calls(end, found) => {
                    calls.extend(found);
                    rest = &rest[at + end..];
                }
                _ => break,
            }
        }
        return (!calls.is_empty()).then_some(calls);
    }
    if body.starts_with('<') {
        return xml(body, offered).map(|call| vec![call]);
    }
    // `name{…}` and `name\n{…}`: GLM and others.
    if !body.starts_with(['{', '['])
        && let Some(at) = body.find('{')
        && let Some(name) = offered.resolve(&body[..at])
    {
        return Some(vec![written(name, &body[at..])]);
    }
    objects(body, offered)
}

/// Parses `<tool_name>…</tool_name><arguments>…</arguments>`, with arguments as JSON or as one element each.
fn xml(body: &str, offered: &Offered) -> Option<Written> {
    let name = element(body, "tool_name").or_else(|| element(body, "name"))?;
    let name = offered.resolve(name).unwrap_or(name.trim());
    let inner = element(body, "arguments")
        .or_else(|| element(body, "parameters"))
        .unwrap_or_default()
        .trim();
    if inner.starts_with('{') {
        return Some(written(name, inner));
    }
    let mut arguments = Map::new();
    let mut rest = inner;
    while let Some(start) = rest.find('<') {
        let (tag, after) = rest[start + 1..].split_once('>')?;
        let (value, after) = after.split_once(&format!("</{tag}>"))?;
        arguments.insert(tag.to_owned(), offered.typed(name, tag, &unescaped(value)));
        rest = after;
    }
    Some(Written {
        name: name.to_owned(),
        arguments: Value::Object(arguments).to_string(),
    })
}

fn element<'a>(body: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(inner, _)| inner)
}

/// Decodes the five entities of XML; a bare `&` is kept.
fn unescaped(text: &str) -> String {
    let text = text.trim();
    let text = text
        .strip_prefix("<![CDATA[")
        .and_then(|t| t.strip_suffix("]]>"))
        .unwrap_or(text);
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

/// Parses `<function=name>` with `<parameter=key>value</parameter>` or JSON inside.
pub(super) fn function_tag(text: &str, offered: &Offered, is_end: bool) -> Found {
    let close = "</function>";
    let (inner, end) = match text.find(close) {
        Some(at) => (&text[..at], at + close.len()),
        None if is_end => (text, text.len()),
        None => return Found::Pending,
    };
    let Some((name, body)) = inner["<function=".len()..].split_once('>') else {
        return Found::Text(end);
    };
    let name = offered.resolve(name).unwrap_or(name.trim());
    let body = body.trim();
    if !body.contains("<parameter=") {
        return Found::Calls(end, vec![written(name, body)]);
    }
    let mut arguments = Map::new();
    for piece in body.split("<parameter=").skip(1) {
        let Some((key, value)) = piece.split_once('>') else {
            return Found::Text(end);
        };
        let value = value.split_once("</parameter>").map_or(value, |(value, _)| value);
        // One line end after the tag and one before the next are layout.
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.trim().to_owned(), offered.typed(name, key.trim(), value));
    }
    let call = Written {
        name: name.to_owned(),
        arguments: Value::Object(arguments).to_string(),
    };
    Found::Calls(end, vec![call])
}

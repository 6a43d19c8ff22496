//! The formats in which models write calls.

use serde_json::{Map, Value};

use super::names::Offered;
use super::value::{end_of_value, keywords, read};

/// A call as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) name: String,
    /// JSON text, or what the model wrote in its place.
    pub(super) arguments: String,
}

/// What stands at the beginning of a text.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// Calls, up to this byte. None when the model says in its format that it calls nothing.
    Calls(usize, Vec<Written>),
    /// No call, up to this byte.
    Text(usize),
    /// More must come to tell.
    Pending,
}

/// A format that begins with a marker which no ordinary answer has.
pub(super) struct Syntax {
    pub(super) marker: &'static str,
    /// The marker counts only at the beginning of a line.
    pub(super) at_line_start: bool,
    read: fn(&str, &Offered, bool) -> Found,
}

/// All formats with markers. Of two markers at one place the longer one counts.
pub(super) const SYNTAXES: &[Syntax] = &[
    // Hermes, Qwen: `<tool_call>{"name": …, "arguments": …}</tool_call>`; Qwen-Coder: `<function=…>` inside.
    Syntax {
        marker: "<tool_call>",
        at_line_start: false,
        read: |t, o, e| enclosed(t, "</tool_call>", o, e),
    },
    Syntax {
        marker: "<function_call>",
        at_line_start: false,
        read: |t, o, e| enclosed(t, "</function_call>", o, e),
    },
    // Forge: `<tool>{"server_name": …, "tool_name": …, "arguments": …}</tool>`, or the same as XML.
    Syntax {
        marker: "<tool>",
        at_line_start: false,
        read: |t, o, e| enclosed(t, "</tool>", o, e),
    },
    // Llama 3.1 and Qwen-Coder without the tag around it.
    Syntax {
        marker: "<function=",
        at_line_start: false,
        read: function_tag,
    },
    // Mistral: `[TOOL_CALLS][{…}]`, newer `[TOOL_CALLS]name[ARGS]{…}`.
    Syntax {
        marker: "[TOOL_CALLS]",
        at_line_start: false,
        read: mistral,
    },
    // Llama 3: `<|python_tag|>{"name": …, "parameters": …}`.
    Syntax {
        marker: "<|python_tag|>",
        at_line_start: false,
        read: |t, o, e| to_the_end(t, &["<|eom_id|>", "<|eot_id|>"], o, e),
    },
    Syntax {
        marker: "<｜tool▁calls▁begin｜>",
        at_line_start: false,
        read: deepseek,
    },
    Syntax {
        marker: "<|tool_calls_section_begin|>",
        at_line_start: false,
        read: |t, o, e| kimi(t, "<|tool_calls_section_end|>", o, e),
    },
    Syntax {
        marker: "<|tool_call_begin|>",
        at_line_start: false,
        read: |t, o, e| kimi(t, "<|tool_call_end|>", o, e),
    },
    // Vertex: `TOOL_CALL: name`, and on the next line `ARGUMENTS: {…}`.
    Syntax {
        marker: "TOOL_CALL:",
        at_line_start: true,
        read: vertex,
    },
];

impl Syntax {
    /// Reads a text that begins with the marker; `is_end` when nothing more comes.
    pub(super) fn read(&self, text: &str, offered: &Offered, is_end: bool) -> Found {
        (self.read)(text, offered, is_end)
    }
}

/// Calls between two tags. A model that stops at the end of its last call leaves the second tag out.
fn enclosed(text: &str, close: &str, offered: &Offered, is_end: bool) -> Found {
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

/// Where the closing tag stands; one inside a JSON string is none.
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

/// One or more JSON objects, alone, in an array, or one after another.
fn objects(body: &str, offered: &Offered) -> Option<Vec<Written>> {
    let mut calls = Vec::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let Some(end) = end_of_value(rest) else {
            // An object that never ends: its name may stand in it, and the reader is told what is wrong.
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

/// The fields that name a tool, and those that hold its arguments.
const NAME_FIELDS: &[&str] = &["name", "tool_name", "tool", "function", "action"];
const ARGUMENT_FIELDS: &[&str] = &[
    "arguments",
    "parameters",
    "params",
    "args",
    "input",
    "action_input",
];

/// The name in JSON that cannot be read.
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

/// A call as a JSON object. The name need not be that of a tool: markers say that a call is meant, and who runs calls
/// tells the model which names there are.
fn object(value: &Value, offered: &Offered) -> Option<Written> {
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
fn written(name: &str, arguments: &str) -> Written {
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

/// `<tool_name>…</tool_name><arguments>…</arguments>`, the arguments as JSON or as an element each.
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

/// The five entities of XML; a bare `&` stays.
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

/// `<function=name>` with `<parameter=key>value</parameter>` or JSON inside.
fn function_tag(text: &str, offered: &Offered, is_end: bool) -> Found {
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
        // One line end after the tag and one before the next belong to the layout.
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

fn mistral(text: &str, offered: &Offered, is_end: bool) -> Found {
    let body = &text["[TOOL_CALLS]".len()..];
    let lead = body.len() - body.trim_start().len();
    let start = text.len() - body.len() + lead;
    let body = &text[start..];
    if body.starts_with('[') {
        return match end_of_value(body) {
            Some(end) => match objects(&body[..end], offered) {
                Some(calls) => Found::Calls(start + end, calls),
                None => Found::Text(start + end),
            },
            None => unfinished(text, body, offered, is_end),
        };
    }
    let Some(at) = body.find('{') else {
        return if is_end {
            Found::Text(text.len())
        } else {
            Found::Pending
        };
    };
    let Some(end) = end_of_value(&body[at..]) else {
        return unfinished(text, body, offered, is_end);
    };
    let name = body[..at].trim().trim_end_matches("[ARGS]");
    let name = name.split_once("[CALL_ID]").map_or(name, |(name, _)| name);
    let call = written(offered.resolve(name).unwrap_or(name), &body[at..at + end]);
    Found::Calls(start + at + end, vec![call])
}

/// A body that never ended: a call that is told to be broken where its name is known, else text.
fn unfinished(text: &str, body: &str, offered: &Offered, is_end: bool) -> Found {
    if !is_end {
        return Found::Pending;
    }
    match objects(body, offered) {
        Some(calls) => Found::Calls(text.len(), calls),
        None => Found::Text(text.len()),
    }
}

fn to_the_end(text: &str, ends: &[&str], offered: &Offered, is_end: bool) -> Found {
    let start = text.find('>').map_or(text.len(), |at| at + 1);
    let close = ends
        .iter()
        .filter_map(|end| Some((text.find(end)?, end.len())))
        .min();
    let (body, end) = match close {
        Some((at, length)) => (&text[start..at], at + length),
        None if is_end => (&text[start..], text.len()),
        None => return Found::Pending,
    };
    match objects(body, offered) {
        Some(calls) => Found::Calls(end, calls),
        None => Found::Text(end),
    }
}

fn deepseek(text: &str, offered: &Offered, is_end: bool) -> Found {
    let close = "<｜tool▁calls▁end｜>";
    let (body, end) = match text.find(close) {
        Some(at) => (&text[..at], at + close.len()),
        None if is_end => (text, text.len()),
        None => return Found::Pending,
    };
    let mut calls = Vec::new();
    for piece in body.split("<｜tool▁call▁begin｜>").skip(1) {
        let piece = piece.split("<｜tool▁call▁end｜>").next().unwrap_or_default();
        let Some((first, second)) = piece.split_once("<｜tool▁sep｜>") else {
            return Found::Text(end);
        };
        // `function<sep>name`, a fence around the JSON; newer models `name<sep>{…}`.
        let (name, arguments) = match first.trim() {
            "function" => second.split_once('\n').unwrap_or((second, "")),
            name => (name, second),
        };
        let arguments = arguments
            .trim()
            .trim_start_matches("```json")
            .trim_end_matches("```");
        calls.push(written(offered.resolve(name).unwrap_or(name.trim()), arguments));
    }
    Found::Calls(end, calls)
}

fn kimi(text: &str, close: &str, offered: &Offered, is_end: bool) -> Found {
    let (body, end) = match text.find(close) {
        Some(at) => (&text[..at], at + close.len()),
        None if is_end => (text, text.len()),
        None => return Found::Pending,
    };
    let mut calls = Vec::new();
    for piece in body.split("<|tool_call_begin|>").skip(1) {
        let piece = piece.split("<|tool_call_end|>").next().unwrap_or_default();
        let Some((name, arguments)) = piece.split_once("<|tool_call_argument_begin|>") else {
            return Found::Text(end);
        };
        calls.push(written(offered.resolve(name).unwrap_or(name.trim()), arguments));
    }
    Found::Calls(end, calls)
}

fn vertex(text: &str, offered: &Offered, is_end: bool) -> Found {
    let Some(line_end) = text.find('\n') else {
        return if is_end {
            Found::Text(text.len())
        } else {
            Found::Pending
        };
    };
    let name = text["TOOL_CALL:".len()..line_end].trim();
    let rest = &text[line_end..];
    let lead = rest.len() - rest.trim_start().len();
    let marker = "ARGUMENTS:";
    let rest = rest.trim_start();
    if !rest.starts_with(marker) {
        return match marker.starts_with(rest) && !is_end {
            true => Found::Pending,
            // Half a call is none.
            false => Found::Text(line_end),
        };
    }
    let body = &rest[marker.len()..];
    let start = line_end + lead + marker.len() + (body.len() - body.trim_start().len());
    let body = body.trim_start();
    let call = |arguments: &str| vec![written(offered.resolve(name).unwrap_or(name), arguments)];
    match end_of_value(body) {
        Some(end) if body.starts_with('{') => Found::Calls(start + end, call(&body[..end])),
        _ if !is_end => Found::Pending,
        _ => Found::Calls(text.len(), call(body)),
    }
}

/// An answer that is nothing but calls without markers: JSON objects, or Python calls in brackets. Every name must be
/// that of a tool that is offered, and nothing may be left over.
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
        // The format's way to say that nothing is called.
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

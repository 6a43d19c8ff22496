//! Calls after the special tokens of a model's template, and after labels from a prompt.

use super::names::Offered;
use super::object::{Found, objects, written};
use super::value::end_of_value;

pub(super) fn mistral(text: &str, offered: &Offered, is_end: bool) -> Found {
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

/// Handles an incomplete body: an invalid call if its name is known, otherwise text.
fn unfinished(text: &str, body: &str, offered: &Offered, is_end: bool) -> Found {
    if !is_end {
        return Found::Pending;
    }
    match objects(body, offered) {
        Some(calls) => Found::Calls(text.len(), calls),
        None => Found::Text(text.len()),
    }
}

pub(super) fn to_the_end(text: &str, ends: &[&str], offered: &Offered, is_end: bool) -> Found {
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

pub(super) fn deepseek(text: &str, offered: &Offered, is_end: bool) -> Found {
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

pub(super) fn kimi(text: &str, close: &str, offered: &Offered, is_end: bool) -> Found {
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

pub(super) fn labels(text: &str, offered: &Offered, is_end: bool) -> Found {
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
            // An incomplete call is ignored.
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

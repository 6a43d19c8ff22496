//! JSON documents: parsing and formatting.

use jaq_json::{Map, Num, Val, read, write};
use toolcell_sdk::{Result, ToolError};

/// Maximum nesting of a document. Deeper ones would overflow the stack of the cell.
const MAX_DEPTH: usize = 1_000;

/// Parses all documents of a text: one, or several in sequence (JSON lines).
pub(crate) fn parse(text: &str, what: &str) -> Result<Vec<Val>> {
    let depth = depth_of(text);
    if depth > MAX_DEPTH {
        return Err(ToolError::failed(format_args!(
            "{what} is nested {depth} levels deep, the limit is {MAX_DEPTH}"
        )));
    }
    let mut documents = Vec::new();
    for document in read::parse_many(text.as_bytes()) {
        documents.push(document.map_err(|error| {
            let error = error.to_string();
            ToolError::failed(format_args!(
                "{what} is not valid JSON: {}",
                with_line(text, &error)
            ))
        })?);
    }
    if documents.is_empty() {
        return Err(ToolError::failed(format_args!("{what} is empty")));
    }
    Ok(documents)
}

/// Formats a value on one line, or on several with `pretty`. What JSON cannot hold is `null` (a number that is none, or
/// infinite), or text (bytes, and keys of objects).
pub(crate) fn to_text(value: &Val, pretty: bool) -> String {
    let as_json = (!is_json(value)).then(|| as_json(value));
    let value = as_json.as_ref().unwrap_or(value);
    let style = write::Pp {
        indent: pretty.then(|| "  ".to_owned()),
        sep_space: pretty,
        ..Default::default()
    };
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = write::write(&mut bytes, &style, 0, value);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn is_json(value: &Val) -> bool {
    match value {
        Val::Num(Num::Float(number)) => number.is_finite(),
        Val::BStr(_) => false,
        Val::Arr(items) => items.iter().all(is_json),
        Val::Obj(entries) => {
            (entries.iter()).all(|(key, value)| matches!(key, Val::TStr(_)) && is_json(value))
        }
        _ => true,
    }
}

fn as_json(value: &Val) -> Val {
    match value {
        Val::Num(Num::Float(number)) if !number.is_finite() => Val::Null,
        Val::BStr(bytes) => Val::from(String::from_utf8_lossy(bytes).into_owned()),
        Val::Arr(items) => items.iter().map(as_json).collect(),
        Val::Obj(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let key = match key {
                    Val::TStr(_) => key.clone(),
                    Val::BStr(bytes) => Val::from(String::from_utf8_lossy(bytes).into_owned()),
                    other => Val::from(to_text(other, false)),
                };
                (key, as_json(value))
            });
            Val::obj(entries.collect::<Map>())
        }
        other => other.clone(),
    }
}

/// Maximum nesting of brackets outside strings.
fn depth_of(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => drop(bytes.next()),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

/// Replaces `byte offset N` by line and column.
fn with_line(text: &str, error: &str) -> String {
    let Some((offset, reason)) = error
        .strip_prefix("byte offset ")
        .and_then(|rest| rest.split_once(": "))
    else {
        return error.to_owned();
    };
    let offset = offset
        .parse()
        .map_or(0, |offset: usize| text.floor_char_boundary(offset));
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_documents_are_parsed() {
        let documents = parse("{\"a\": 1}\n[2]\n", "the text").unwrap();
        let texts: Vec<String> = documents
            .iter()
            .map(|document| to_text(document, false))
            .collect();
        assert_eq!(texts, [r#"{"a":1}"#, "[2]"]);
        assert_eq!(to_text(&documents[0], true), "{\n  \"a\": 1\n}");
    }

    #[test]
    fn invalid_json_is_named_with_its_position() {
        let error = parse("{\"a\": 1,\n \"b\": x}", "the text").unwrap_err();
        assert!(
            error
                .message()
                .starts_with("the text is not valid JSON: line 2, column "),
            "{error}"
        );
        assert_eq!(
            parse(" \n", "`a.json`").unwrap_err().message(),
            "`a.json` is empty"
        );
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(MAX_DEPTH), "the text").is_ok());
        let error = parse(&nested(MAX_DEPTH + 1), "the text").unwrap_err();
        assert!(error.message().contains("nested 1001 levels deep"), "{error}");
        assert!(parse(r#"["[[\"[", "\\"]"#, "the text").is_ok());
    }

    #[test]
    fn large_numbers_keep_their_digits() {
        let documents = parse("12345678901234567890123", "the text").unwrap();
        assert_eq!(to_text(&documents[0], false), "12345678901234567890123");
    }
}

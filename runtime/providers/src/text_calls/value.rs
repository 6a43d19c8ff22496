//! Values in text: the end of a JSON value, and repair of common syntax errors of models.

use serde_json::{Map, Value};
use toolcell_core::json::parse_value;

/// End of the JSON object or array at the start of a text, or `None` if it is incomplete. Brackets in strings are
/// skipped.
pub(super) fn end_of_value(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
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

/// Parses JSON; if that fails, parses again after repairing common errors: a backslash before a character that needs
/// none, and line ends in strings.
pub(super) fn read(text: &str) -> Option<Value> {
    let text = text.trim();
    parse_value(text).or_else(|_| parse_value(&repaired(text))).ok()
}

fn repaired(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_string = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' => {
                in_string = !in_string;
                out.push(c);
            }
            '\\' if in_string => {
                let valid = characters
                    .peek()
                    .is_some_and(|next| matches!(next, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u'));
                out.push('\\');
                match characters.next() {
                    Some(next) if valid => out.push(next),
                    Some(next) => {
                        out.push('\\');
                        out.push(next);
                    }
                    None => {}
                }
            }
            '\n' if in_string => out.push_str("\\n"),
            '\r' if in_string => out.push_str("\\r"),
            '\t' if in_string => out.push_str("\\t"),
            _ => out.push(c),
        }
    }
    out
}

/// Parses the arguments of `f(a=1, b="x", c=[True])`, with Python's names for JSON's literals. `None` for anything
/// other than literals.
pub(super) fn keywords(text: &str) -> Option<Map<String, Value>> {
    let mut arguments = Map::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.is_empty();
        let end = end_of_literal(after)?;
        let value = literal(after[..end].trim())?;
        if !is_name || arguments.insert(name.to_owned(), value).is_some() {
            return None;
        }
        rest = after[end..].trim_start();
        rest = match rest.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    Some(arguments)
}

/// End of a literal: a comma or the end of the text, outside quotes and brackets.
fn end_of_literal(text: &str) -> Option<usize> {
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
            (None, '[' | '{' | '(') => depth += 1,
            (None, ']' | '}' | ')') => depth = depth.checked_sub(1)?,
            (None, ',') if depth == 0 => return Some(at),
            _ => {}
        }
    }
    (quote.is_none() && depth == 0).then_some(text.len())
}

/// Converts a Python literal to JSON: quotes, and `True`, `False` and `None` outside strings.
fn literal(text: &str) -> Option<Value> {
    let mut json = String::with_capacity(text.len());
    let mut word = String::new();
    let mut quote = None;
    let mut characters = text.chars();
    loop {
        let next = characters.next();
        if quote.is_none()
            && let Some(c) = next
            && (c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+'))
        {
            word.push(c);
            continue;
        }
        json.push_str(match word.as_str() {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            other => other,
        });
        word.clear();
        match (quote, next) {
            (_, None) => break,
            (None, Some(open @ ('"' | '\''))) => {
                quote = Some(open);
                json.push('"');
            }
            (Some(open), Some(c)) if c == open => {
                quote = None;
                json.push('"');
            }
            (Some(_), Some('\\')) => match characters.next()? {
                '\'' => json.push('\''),
                other => {
                    json.push('\\');
                    json.push(other);
                }
            },
            (Some(_), Some('"')) => json.push_str("\\\""),
            (_, Some(c)) => json.push(c),
        }
    }
    parse_value(&json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn brackets_in_strings_do_not_end_a_value() {
        assert_eq!(end_of_value(r#"{"a":"}\"}"} x"#), Some(12));
        assert_eq!(end_of_value(r#"[{"a":[1]}]"#), Some(11));
        assert_eq!(end_of_value(r#"{"a":"#), None);
        assert_eq!(end_of_value("}"), None);
    }

    #[test]
    fn common_json_errors_are_repaired() {
        assert_eq!(read(r#"{"path":"C:\dir"}"#), Some(json!({"path": "C:\\dir"})));
        assert_eq!(read("{\"text\":\"a\nb\"}"), Some(json!({"text": "a\nb"})));
        assert_eq!(read(r#"{"a":1,"a":2}"#), None);
        assert_eq!(read(r#"{"a":"#), None);
    }

    #[test]
    fn keyword_arguments_must_be_literals() {
        let read = |text: &str| keywords(text).map(Value::Object);
        assert_eq!(
            read(r#"a=1, b='it\'s "x"', c=[True, None, {"k": -2.5}], d="a, b=c""#),
            Some(json!({"a": 1, "b": "it's \"x\"", "c": [true, null, {"k": -2.5}], "d": "a, b=c"}))
        );
        assert_eq!(read(""), Some(json!({})));
        for refused in ["1", "a=f(1)", "a=b", "a=1 b=2", "a='x", "a=1, a=2", "a=", "=1"] {
            assert_eq!(read(refused), None, "{refused}");
        }
    }
}

//! Bodies of requests, and errors in them that name the member.

use serde::de::DeserializeOwned;
use serde_json::error::Category;
use toolcell_core::json::memory_of_text;

use crate::answer::{Failure, excerpt};

/// Maximum memory of a body once it is parsed, in bytes. Many small objects take a hundred times as much as their text.
const MAX_MEMORY: u64 = 32 << 20;

/// Maximum length of the path of a member in an error, in characters.
const MAX_PATH: usize = 120;

/// Words of `serde` for types of Rust, and those of JSON.
const WORDS: [(&str, &str); 12] = [
    ("invalid type: ", ""),
    ("invalid value: ", ""),
    ("expected struct", "expected an object"),
    ("expected a sequence", "expected an array"),
    ("expected a map", "expected an object"),
    ("expected u64", "expected a whole number from 0"),
    ("expected unit", "expected null"),
    ("sequence, ", "an array, "),
    ("map, ", "an object, "),
    ("boolean ", "the boolean "),
    ("integer ", "the number "),
    ("floating point ", "the number "),
];

/// Parses a body.
///
/// # Errors
/// It is not a JSON object with the members of `T`.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    // `serde_json` would name types of Rust, and takes an array for an object.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Failure::invalid("the body is not a JSON object"));
    }
    let memory = std::str::from_utf8(body).map_or(0, memory_of_text);
    if memory > MAX_MEMORY {
        let message = format!(
            "the body has so many values that they take {memory} bytes of memory, more than {MAX_MEMORY}"
        );
        return Err(Failure::invalid(message));
    }
    serde_json::from_slice(body).map_err(|error| failure(body, &error))
}

fn failure(body: &[u8], error: &serde_json::Error) -> Failure {
    let told = error.to_string();
    if error.classify() != Category::Data {
        return Failure::invalid(format!("the body is not JSON: {}", excerpt(&told, MAX_PATH)));
    }
    let text = told
        .rsplit_once(" at line ")
        .map_or(told.as_str(), |(text, _)| text);
    let path = path_at(body, error.line(), error.column());
    let place = match path.is_empty() {
        true => "the body".to_owned(),
        false => format!("`{}`", excerpt(&path, MAX_PATH)),
    };
    let name = |text: &str| excerpt(text.trim_matches('`'), MAX_PATH);
    let (message, param) = if let Some(member) = text.strip_prefix("missing field ") {
        let member = name(member);
        let all = match path.is_empty() {
            true => member.clone(),
            false => format!("{path}.{member}"),
        };
        (format!("{place} has no member `{member}`"), all)
    } else if let Some(rest) = text.strip_prefix("unknown field ") {
        let known = match rest.rsplit_once("`, expected ") {
            Some((_, known)) => format!("expected {known}"),
            None => "there are none here".to_owned(),
        };
        (format!("{place} is not a known member: {known}"), path)
    } else if text.starts_with("duplicate field ") {
        (format!("{place} is there more than once"), path)
    } else {
        (format!("{place} is wrong: {}", in_words(text)), path)
    };
    Failure::invalid(message).param(&param)
}

/// Returns the text of an error of `serde` in the words of JSON.
fn in_words(text: &str) -> String {
    // The first part has the value, which is foreign.
    let (value, expected) = text.rsplit_once(", expected ").unwrap_or((text, ""));
    let mut value = excerpt(value, MAX_PATH);
    let mut expected = match expected {
        "" => String::new(),
        // Followed by the name of a type.
        expected if expected.starts_with("struct ") => "expected struct".to_owned(),
        expected => format!("expected {expected}"),
    };
    value.push_str(", ");
    for (of_serde, of_json) in WORDS {
        if let Some(rest) = value.strip_prefix(of_serde) {
            value = format!("{of_json}{rest}");
        }
        if expected == of_serde {
            of_json.clone_into(&mut expected);
        }
    }
    match expected.is_empty() {
        true => value.trim_end_matches(", ").to_owned(),
        false => format!("{expected}, not {}", value.trim_end_matches(", ")),
    }
}

/// Array or object around a place.
enum Around {
    Array(usize),
    Object(String),
}

/// Returns the path of the member at a line and column, as `serde_json` counts them, such as `messages[2].role`. The body is valid
/// JSON up to there.
fn path_at(body: &[u8], line: usize, column: usize) -> String {
    let before: usize = (body.split_inclusive(|byte| *byte == b'\n'))
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let end = before.saturating_add(column).min(body.len());
    let mut around: Vec<Around> = Vec::new();
    let mut is_key = false;
    let mut at = 0;
    while at < end {
        match body[at] {
            b'{' => {
                around.push(Around::Object(String::new()));
                is_key = true;
            }
            // An error at the beginning of an array is about the array.
            b'[' if at + 1 < end => around.push(Around::Array(0)),
            b'}' | b']' => {
                around.pop();
            }
            b':' => is_key = false,
            b',' => match around.last_mut() {
                Some(Around::Array(index)) => *index += 1,
                Some(Around::Object(key)) => {
                    key.clear();
                    is_key = true;
                }
                None => {}
            },
            b'"' => {
                let begin = at;
                at += 1;
                while at < body.len() && body[at] != b'"' {
                    at += if body[at] == b'\\' { 2 } else { 1 };
                }
                if let (true, Some(Around::Object(key))) = (is_key, around.last_mut()) {
                    let text = body.get(begin..=at).unwrap_or_default();
                    *key = serde_json::from_slice(text).unwrap_or_default();
                }
            }
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for part in around {
        match part {
            Around::Array(index) => path.push_str(&format!("[{index}]")),
            Around::Object(key) if key.is_empty() => {}
            Around::Object(key) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&key);
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        _name: String,
        #[serde(default)]
        _count: Option<u64>,
        #[serde(default)]
        _inner: Vec<Inner>,
        #[serde(default)]
        _more: bool,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        _role: String,
    }

    fn refused(body: &str) -> (String, Option<String>) {
        let failure = parse::<Outer>(body.as_bytes()).unwrap_err();
        (failure.message, failure.param.map(String::from))
    }

    #[test]
    fn body_has_a_limited_amount_of_memory() {
        let of = |objects: usize| format!("{{\"a\":[{}0]}}", r#"{"":0},"#.repeat(objects));
        let memory = |objects| memory_of_text(&of(objects));
        let counts: Vec<usize> = (0..100_000).collect();
        let fits = counts.partition_point(|count| memory(*count) <= MAX_MEMORY) - 1;
        assert!(parse::<serde_json::Value>(of(fits).as_bytes()).is_ok());
        let refused = parse::<serde_json::Value>(of(fits + 1).as_bytes()).unwrap_err();
        assert!(refused.message.contains("so many values"), "{}", refused.message);
    }

    #[test]
    fn error_names_the_member_and_no_type_of_rust() {
        for (body, message, param) in [
            ("[]", "the body is not a JSON object", ""),
            ("", "the body is not a JSON object", ""),
            ("{}", "the body has no member `_name`", "_name"),
            (
                r#"{"_name": 5}"#,
                "`_name` is wrong: expected a string, not the number `5`",
                "_name",
            ),
            (
                r#"{"_name": null}"#,
                "`_name` is wrong: expected a string, not null",
                "_name",
            ),
            (
                r#"{"_name": [1]}"#,
                "`_name` is wrong: expected a string, not an array",
                "_name",
            ),
            (
                "{\"_name\": \"a\",\n \"_count\": -1}",
                "`_count` is wrong: expected a whole number from 0, not the number `-1`",
                "_count",
            ),
            (
                r#"{"_name":"a","_count":1e30}"#,
                "`_count` is wrong: expected a whole number from 0, not the number `1e+30`",
                "_count",
            ),
            (
                r#"{"_name": "a", "_inner": {}}"#,
                "`_inner` is wrong: expected an array, not an object",
                "_inner",
            ),
            (
                r#"{"_name": "a", "_inner": [{"_role": "x"}, 7]}"#,
                "`_inner[1]` is wrong: expected an object, not the number `7`",
                "_inner[1]",
            ),
            (
                r#"{"_name": "a", "_inner": [{"_role": "x"}, {}]}"#,
                "`_inner[1]` has no member `_role`",
                "_inner[1]._role",
            ),
            (
                r#"{"_name": "\"}]", "_inner": [{"_role": true}]}"#,
                "`_inner[0]._role` is wrong: expected a string, not the boolean `true`",
                "_inner[0]._role",
            ),
            (
                r#"{"_name": "a", "x\u202e": 1}"#,
                "`x\\u{202e}` is not a known member: expected one of `_name`, `_count`, `_inner`, `_more`",
                "x\\u{202e}",
            ),
            (
                r#"{"_name": "a", "_name": "b"}"#,
                "`_name` is there more than once",
                "_name",
            ),
        ] {
            let (told, of) = refused(body);
            assert_eq!(
                (told.as_str(), of.unwrap_or_default().as_str()),
                (message, param),
                "{body}"
            );
        }
        let (told, _) = refused(r#"{"_name": "#);
        assert!(told.starts_with("the body is not JSON: EOF"), "{told}");
    }

    #[test]
    fn error_is_short_for_any_body() {
        let long = "x".repeat(1 << 20);
        for body in [
            format!(r#"{{"{long}": 1}}"#),
            format!(r#"{{"_name": "a", "_count": "{long}"}}"#),
            format!(r#"{{"_name": "a", "_more": "{long}, expected \u202e"}}"#),
            format!("{{\"_name\":{}", "[".repeat(1 << 20)),
        ] {
            let (told, param) = refused(&body);
            assert!(told.len() < 600 && !told.contains('\u{202e}'), "{}", told.len());
            assert!(param.unwrap_or_default().len() < 600);
        }
    }
}

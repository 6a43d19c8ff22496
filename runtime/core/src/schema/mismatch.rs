//! Reasons of mismatches, in words that a model can act on: what would be accepted, and little of what was sent.

use std::fmt::Write as _;
use std::io;

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::Value;

use super::Mismatch;
use crate::suggest::nearest;

/// Maximum length of a value or a name of the arguments in a reason, in bytes of JSON. Longer ones are not repeated.
const MAX_SHOWN: usize = 100;

/// Maximum number of names or values in a list.
const MAX_LISTED: usize = 40;

/// Maximum length of a reason or a path, in bytes.
const MAX_REASON: usize = 2_000;

/// Returns the mismatch of an error of the validator. `schema` is the whole schema.
pub(super) fn of(error: &ValidationError<'_>, schema: &Value) -> Mismatch {
    Mismatch {
        path: cut(error.instance_path().to_string()),
        reason: cut(reason(error, schema)),
    }
}

fn reason(error: &ValidationError<'_>, schema: &Value) -> String {
    let accepted = match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            Some(unknown_names(error, unexpected, schema))
        }
        Kind::Enum { options } => (options.as_array())
            .map(|options| format!("{} is none of {}", shown(error.instance()), list(options.iter()))),
        Kind::OneOfNotValid { context } | Kind::AnyOf { context } => of_branches(error, context, schema),
        _ => None,
    };
    accepted.unwrap_or_else(|| match is_short(error.instance()) {
        true => error.to_string(),
        false => error.masked_with("the value").to_string(),
    })
}

/// Names that the schema does not have, with those that it has.
fn unknown_names(error: &ValidationError<'_>, unexpected: &[String], schema: &Value) -> String {
    let names: Vec<String> = unexpected
        .iter()
        .take(MAX_LISTED)
        .map(|name| name_of(name))
        .collect();
    let names = format!("{}{}", names.join(", "), more(unexpected.len()));
    let mut text = match (error.instance_path().as_str(), unexpected.len()) {
        ("", 1) => format!("there is no parameter {names}"),
        ("", _) => format!("there are no parameters {names}"),
        (_, 1) => format!("there is no property {names}"),
        (_, _) => format!("there are no properties {names}"),
    };
    let known = (error.schema_path().as_str().rsplit_once('/'))
        .and_then(|(parent, _)| schema.pointer(parent)?.get("properties")?.as_object());
    if let Some(known) = known {
        let known: Vec<&str> = known.keys().map(String::as_str).collect();
        if let [name] = unexpected
            && name.len() <= MAX_SHOWN
            && let Some(near) = nearest(name, &known).first()
        {
            let _ = write!(text, " (did you mean `{near}`?)");
        }
        let listed: Vec<String> = known
            .iter()
            .take(MAX_LISTED)
            .map(|name| format!("`{name}`"))
            .collect();
        let _ = match known.len() {
            0 => write!(text, "; there are none"),
            1 => write!(text, "; there is {}", listed.join("")),
            count => write!(text, "; there are {}{}", listed.join(", "), more(count)),
        };
    }
    text
}

/// Reason for a value that fits none of several branches: that of the branch which its tag names, a property with one
/// constant value in each branch; or the values of the tag.
fn of_branches(
    error: &ValidationError<'_>,
    branches: &[Vec<ValidationError<'static>>],
    schema: &Value,
) -> Option<String> {
    let tag_of = |branch: &[ValidationError<'static>]| {
        branch.iter().find_map(|inner| {
            let below = inner
                .instance_path()
                .as_str()
                .strip_prefix(error.instance_path().as_str())?;
            let name = below.strip_prefix('/').filter(|name| !name.contains('/'))?;
            let value = match inner.kind() {
                Kind::Constant { expected_value } => (**expected_value).clone(),
                Kind::Enum { options } => match options.as_array().map(Vec::as_slice) {
                    Some([only]) => only.clone(),
                    _ => return None,
                },
                _ => return None,
            };
            Some((name.to_owned(), value))
        })
    };
    let tags: Vec<Option<(String, Value)>> = branches.iter().map(|branch| tag_of(branch)).collect();
    let (name, _) = tags.iter().flatten().next()?;
    let mut meant = tags.iter().zip(branches).filter(|(tag, _)| tag.is_none());
    match (meant.next(), meant.next()) {
        (Some((_, branch)), None) => {
            let reasons: Vec<String> = branch.iter().map(|inner| of(inner, schema).to_string()).collect();
            let tag = error.instance().get(name)?;
            Some(format!("as `{name}` {}: {}", shown(tag), reasons.join("; ")))
        }
        (None, _) => {
            let values = tags
                .iter()
                .flatten()
                .filter(|(other, _)| other == name)
                .map(|(_, value)| value);
            let sent = error.instance().get(name)?;
            Some(format!("`{name}` {} is none of {}", shown(sent), list(values)))
        }
        _ => None,
    }
}

fn list<'a>(values: impl Iterator<Item = &'a Value> + Clone) -> String {
    let count = values.clone().count();
    let listed: Vec<String> = values.take(MAX_LISTED).map(shown).collect();
    format!("{}{}", listed.join(", "), more(count))
}

fn more(count: usize) -> String {
    match count.saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

/// The value as JSON, if it is short.
fn shown(value: &Value) -> String {
    match is_short(value) {
        true => value.to_string(),
        false => "the value".into(),
    }
}

fn name_of(name: &str) -> String {
    match name.len() {
        0..=MAX_SHOWN => format!("`{name}`"),
        length => format!("with a name of {length} bytes"),
    }
}

/// True if a value has at most [`MAX_SHOWN`] bytes. Of a longer one no more than that is written.
fn is_short(value: &Value) -> bool {
    serde_json::to_writer(Room(MAX_SHOWN), value).is_ok()
}

/// Number of bytes that can still be written.
struct Room(usize);

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.0.checked_sub(bytes.len());
        self.0 = left.ok_or(io::ErrorKind::WriteZero)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_REASON {
        text.truncate(text.floor_char_boundary(MAX_REASON));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Schema;
    use serde_json::{Value, json};

    fn reason(schema: Value, value: &Value) -> String {
        let mismatches = Schema::new(schema).unwrap().validate(value).unwrap_err();
        mismatches
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    }

    #[test]
    fn unknown_parameter_is_answered_with_the_known_ones() {
        let schema =
            json!({"type": "object", "properties": {"text": {}, "limit": {}}, "additionalProperties": false});
        assert_eq!(
            reason(schema.clone(), &json!({"txet": 1})),
            "there is no parameter `txet` (did you mean `text`?); there are `limit`, `text`"
        );
        assert_eq!(
            reason(schema.clone(), &json!({"colour": 1, "size": 2})),
            "there are no parameters `colour`, `size`; there are `limit`, `text`"
        );
        let one = json!({"type": "object", "properties": {"text": {}}, "additionalProperties": false});
        assert_eq!(
            reason(one, &json!({"colour": 1})),
            "there is no parameter `colour`; there is `text`"
        );
        let nested = json!({"type": "object", "properties": {"a": schema}});
        let said = reason(nested, &json!({"a": {"b": 1}}));
        assert!(said.starts_with("at /a: there is no property `b`"), "{said}");
    }

    #[test]
    fn value_outside_an_enum_is_answered_with_all_values() {
        let schema = json!({"enum": ["a", "b", "c", "d", "e", 6, null]});
        assert_eq!(
            reason(schema, &json!("z")),
            r#""z" is none of "a", "b", "c", "d", "e", 6, null"#
        );
        let many: Vec<u32> = (0..41).collect();
        let said = reason(json!({ "enum": many }), &json!(99));
        assert!(said.ends_with("38, 39 and 1 more"), "{said}");
    }

    #[test]
    fn variant_is_explained_by_its_tag() {
        let branch = |kind: Value| {
            json!({
                "type": "object",
                "properties": {"kind": kind, "size": {"type": "integer"}},
                "required": ["kind", "size"],
            })
        };
        let one = |tag: &str| json!({ "const": tag });
        let list = |tag: &str| json!({ "enum": [tag] });
        for (keyword, square) in [("oneOf", one("square")), ("anyOf", list("square"))] {
            let schema = json!({keyword: [branch(one("circle")), branch(square)]});
            assert_eq!(
                reason(schema.clone(), &json!({"kind": "square", "size": "x"})),
                r#"as `kind` "square": at /size: "x" is not of type "integer""#
            );
            assert_eq!(
                reason(schema.clone(), &json!({"kind": "line", "size": 1})),
                r#"`kind` "line" is none of "circle", "square""#
            );
            assert!(reason(schema, &json!({"size": 1})).contains("is not valid under any"));
        }
    }

    #[test]
    fn value_of_100_bytes_is_repeated_and_longer_one_is_not() {
        let fits = json!(["x".repeat(48), "x".repeat(45)]);
        let long = json!(["x".repeat(48), "x".repeat(46)]);
        assert_eq!((fits.to_string().len(), long.to_string().len()), (100, 101));
        let text = |length: usize| json!("x".repeat(length));
        for (value, is_repeated) in [
            (fits, true),
            (long, false),
            (text(98), true),
            (text(99), false),
            (json!({"k": 1}), true),
            (json!(12.5), true),
        ] {
            for schema in [json!({"type": "boolean"}), json!({"enum": [1]})] {
                let said = reason(schema, &value);
                assert_eq!(said.contains(&value.to_string()), is_repeated, "{said}");
            }
        }
    }

    #[test]
    fn path_of_2000_bytes_is_told_whole_and_longer_one_is_cut() {
        let schema = json!({"additionalProperties": {"type": "integer"}});
        for (length, is_whole) in [(1_999, true), (2_000, false)] {
            let said = reason(schema.clone(), &json!({"x".repeat(length): "a"}));
            assert_eq!(said.contains('…'), !is_whole, "{length}");
            assert!(said.starts_with(&format!("at /{}", "x".repeat(1_999))), "{said}");
        }
    }

    #[test]
    fn long_values_and_names_are_not_repeated() {
        let long = "x".repeat(50_000);
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": [1]}},
            "additionalProperties": false});
        let said = reason(schema.clone(), &json!({"a": long, "b": long}));
        assert_eq!(
            said,
            r#"at /a: the value is not of type "integer"; at /b: the value is none of 1"#
        );
        let said = reason(schema, &json!({long.clone(): 1}));
        assert!(
            said.starts_with("there is no parameter with a name of 50000 bytes"),
            "{said}"
        );
        let said = reason(
            json!({"additionalProperties": {"type": "integer"}}),
            &json!({long: "a"}),
        );
        assert!(said.len() < 4_000, "{}", said.len());
    }
}

//! Reasons of mismatches, in words that a model can act on: what would be accepted, and little of what was sent.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use super::Mismatch;
use crate::suggest::nearest;

/// Maximum length of a value or a name of the arguments in a reason, in bytes of JSON. Longer ones are not repeated.
const MAX_SHOWN: usize = 100;

/// Maximum number of names or values in a list.
const MAX_LISTED: usize = 40;

/// Maximum length of a reason or a path, in bytes.
const MAX_REASON: usize = 2_000;

/// Returns the first `most` mismatches of the errors of the validator. `schema` is the whole schema.
///
/// The validator has one error for each required property that is missing. Those of one object become one mismatch, so that a model
/// learns all of them at once.
pub(super) fn of_all(errors: &[ValidationError<'_>], schema: &Value, most: usize) -> Vec<Mismatch> {
    let mut found: Vec<Mismatch> = Vec::new();
    let mut objects = HashSet::new();
    for error in errors {
        if found.len() == most {
            break;
        }
        if missing(error).is_none() {
            found.push(of(error, schema));
        } else if objects.insert(error.instance_path().as_str()) {
            found.push(all_missing(error, errors));
        }
    }
    found
}

/// The name of the required property that is missing.
fn missing<'a>(error: &'a ValidationError<'_>) -> Option<&'a str> {
    match error.kind() {
        Kind::Required { property } => property.as_str(),
        _ => None,
    }
}

/// Names all required properties that are missing in the object of an error, as far as they fit into a reason.
fn all_missing(error: &ValidationError<'_>, errors: &[ValidationError<'_>]) -> Mismatch {
    /// Space for the number of names that do not fit, and the words.
    const REST: usize = 60;
    let path = error.instance_path();
    // Several parts of a schema can require one property.
    let mut known = HashSet::new();
    let of_object = errors.iter().filter(|other| other.instance_path() == path);
    let names: Vec<String> = of_object
        .filter_map(missing)
        .filter(|name| known.insert(*name))
        .map(|name| match name.len() {
            0..=MAX_SHOWN => name_of(name),
            _ => format!("one {}", name_of(name)),
        })
        .collect();
    let mut length = 0;
    let fitting = names.iter().take_while(|name| {
        length += name.len() + ", ".len();
        length <= MAX_REASON - REST
    });
    let listed = fitting.count();
    let reason = match (names.len(), names.len() - listed) {
        (1, _) => format!("{} is a required property", names.join("")),
        (_, 0) => format!("{} are required properties", names.join(", ")),
        (_, rest) => {
            let listed = names.get(..listed).unwrap_or_default().join(", ");
            format!("{listed} and {rest} more are required properties")
        }
    };
    Mismatch {
        path: cut(path.to_string()),
        reason,
    }
}

/// Returns the mismatch of an error of the validator. `schema` is the whole schema.
fn of(error: &ValidationError<'_>, schema: &Value) -> Mismatch {
    if let Kind::OneOfNotValid { context } | Kind::AnyOf { context } = error.kind()
        && let Some([inner]) = not_for_null(error, context)
    {
        return of(inner, schema);
    }
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
        Kind::Enum { options } => (options.as_array()).map(|options| {
            format!(
                "{} is not one of {}",
                shown(error.instance()),
                list(options.iter())
            )
        }),
        Kind::OneOfNotValid { context } | Kind::AnyOf { context } => of_branches(error, context, schema),
        Kind::FalseSchema if error.schema_path().as_str().ends_with("/items") => {
            Some(format!("{} is one item too many", shown(error.instance())))
        }
        Kind::FalseSchema => Some(format!("{} cannot be given here", shown(error.instance()))),
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

/// Errors of one branch of several.
type Branch<'a> = &'a [ValidationError<'static>];

/// Reason for a value that fits none of several branches: that of the branch which is meant, or what would tell which one is.
fn of_branches(
    error: &ValidationError<'_>,
    branches: &[Vec<ValidationError<'static>>],
    schema: &Value,
) -> Option<String> {
    if let Some(branch) = not_for_null(error, branches) {
        return Some(all_of(branch, schema));
    }
    // A branch for other values than objects is not meant by an object.
    let is_for_others = |branch: Branch<'_>| {
        branch.iter().any(|inner| {
            inner.instance_path() == error.instance_path()
                && matches!(
                    inner.kind(),
                    Kind::Type { .. } | Kind::Constant { .. } | Kind::Enum { .. }
                )
        })
    };
    let branches: Vec<Branch<'_>> = (branches.iter().map(Vec::as_slice))
        .filter(|branch| !error.instance().is_object() || !is_for_others(branch))
        .collect();
    by_tag(error, &branches, schema)
        .or_else(|| by_names(error, &branches, schema))
        .or_else(|| by_type(error, &branches, schema))
}

/// Reason for a value that has the type of no branch: the types, with the tag of the objects among them.
fn by_type(error: &ValidationError<'_>, branches: &[Branch<'_>], schema: &Value) -> Option<String> {
    let mut types: Vec<String> = Vec::new();
    let mut tags = Vec::new();
    for branch in branches {
        let inner = branch.iter().find(|inner| {
            inner.instance_path() == error.instance_path() && matches!(inner.kind(), Kind::Type { .. })
        })?;
        let (parent, _) = inner.schema_path().as_str().rsplit_once('/')?;
        let of_type = |name: &Value| name.as_str().map(|name| format!("\"{name}\""));
        match schema.pointer(inner.schema_path().as_str())? {
            Value::Array(names) => types.extend(names.iter().filter_map(of_type)),
            name => types.extend(of_type(name)),
        }
        tags.extend(schema.pointer(parent).and_then(tag_of));
    }
    types.sort_unstable();
    types.dedup();
    if types.is_empty() {
        return None;
    }
    let text = format!(
        "{} is not of type {}",
        shown(error.instance()),
        types.join(" or ")
    );
    Some(match tags.first() {
        Some((name, _)) if types.len() == 1 && tags.iter().all(|(other, _)| other == name) => {
            let values = tags.iter().map(|(_, value)| *value);
            format!(
                "{text} with the property {}, one of {}",
                name_of(name),
                list(values)
            )
        }
        _ => text,
    })
}

/// The first property of a branch that has a constant value.
fn tag_of(branch: &Value) -> Option<(&str, &Value)> {
    let properties = branch.get("properties")?.as_object()?;
    let mut tags =
        (properties.iter()).filter_map(|(name, property)| Some((name.as_str(), property.get("const")?)));
    tags.next()
}

/// The only branch beside one for `null`, as options have it, if the value is not `null`.
fn not_for_null<'a>(
    error: &ValidationError<'_>,
    branches: &'a [Vec<ValidationError<'static>>],
) -> Option<Branch<'a>> {
    let is_for_null = |branch: &&Vec<ValidationError<'static>>| match branch.as_slice() {
        [inner] => {
            let is_null = matches!(
                inner.kind(),
                Kind::Type {
                    kind: TypeKind::Single(JsonType::Null)
                }
            );
            is_null && inner.instance_path() == error.instance_path()
        }
        _ => false,
    };
    let mut others = branches.iter().filter(|branch| !is_for_null(branch));
    match (others.next(), others.next()) {
        (Some(branch), None) if branches.len() > 1 => Some(branch),
        _ => None,
    }
}

/// Reason by the tag of the branches, a property with constant values in each of them: that of the branch which the tag names, or the
/// values of the tag.
fn by_tag(error: &ValidationError<'_>, branches: &[Branch<'_>], schema: &Value) -> Option<String> {
    let refused: Vec<Vec<Refused<'_>>> = (branches.iter())
        .map(|branch| {
            let constants = branch.iter().filter_map(|inner| constants(error, inner));
            constants.collect()
        })
        .collect();
    let is_of_all = |name: &&str| refused.iter().all(|branch| values_of(name, branch).is_some());
    let mut single = refused.iter().flatten().filter(|(_, values)| values.len() == 1);
    let mut names = refused.first()?.iter().take(MAX_LISTED).map(|(name, _)| *name);
    let name = (single.next().map(|(name, _)| *name)).or_else(|| names.find(is_of_all))?;
    let sent = error.instance().get(name)?;
    let tags: Vec<Option<Vec<&Value>>> = refused.iter().map(|branch| values_of(name, branch)).collect();
    let mut meant = tags.iter().zip(branches).filter(|(tag, _)| tag.is_none());
    match (meant.next(), meant.next()) {
        (Some((_, branch)), None) => Some(format!("as `{name}` {}: {}", shown(sent), all_of(branch, schema))),
        (None, _) => {
            let values: Vec<&Value> = tags.into_iter().flatten().flatten().collect();
            Some(format!(
                "`{name}` {} is not one of {}",
                shown(sent),
                list(values.into_iter())
            ))
        }
        _ => None,
    }
}

/// A property, and the constants of which it is none.
type Refused<'a> = (&'a str, Vec<&'a Value>);

fn values_of<'a>(of: &str, refused: &[Refused<'a>]) -> Option<Vec<&'a Value>> {
    let property = refused.iter().find(|(name, _)| *name == of);
    property.map(|(_, values)| values.clone())
}

/// The property directly in the value of `error` that is not one of some constants.
fn constants<'a>(error: &ValidationError<'_>, inner: &'a ValidationError<'static>) -> Option<Refused<'a>> {
    let below = (inner.instance_path().as_str()).strip_prefix(error.instance_path().as_str())?;
    let name = below.strip_prefix('/').filter(|name| !name.contains('/'))?;
    match inner.kind() {
        Kind::Constant { expected_value } => Some((name, vec![&**expected_value])),
        Kind::Enum { options } => Some((name, options.as_array()?.iter().collect())),
        _ => None,
    }
}

/// Reason by the names of properties: that of the branch whose names are right, the property that every branch needs, with its values, or
/// the properties of which one is needed.
fn by_names(error: &ValidationError<'_>, branches: &[Branch<'_>], schema: &Value) -> Option<String> {
    error.instance().as_object()?;
    let is_here = |inner: &ValidationError<'_>| inner.instance_path() == error.instance_path();
    let mut meant = branches.iter().filter(|branch| !branch.iter().any(is_here));
    match (meant.next(), meant.next()) {
        (Some(branch), None) => return Some(all_of(branch, schema)),
        (None, _) => {}
        _ => return None,
    }
    let missing: Vec<Vec<(&str, &ValidationError<'_>)>> = (branches.iter())
        .map(|branch| {
            let missing = branch.iter().filter_map(|inner| match inner.kind() {
                Kind::Required { property } if is_here(inner) => Some((property.as_str()?, inner)),
                _ => None,
            });
            missing.collect()
        })
        .collect();
    let of_all = (missing.first()?.iter().take(MAX_LISTED)).find(|(name, _)| {
        missing
            .iter()
            .all(|branch| branch.iter().any(|(other, _)| other == name))
    });
    if let Some((name, _)) = of_all {
        let errors = missing.iter().flatten().filter(|(other, _)| other == name);
        let values: Vec<&Value> = errors
            .filter_map(|(_, inner)| {
                let (parent, _) = inner.schema_path().as_str().rsplit_once('/')?;
                let property = schema.pointer(parent)?.get("properties")?.get(name)?;
                match (property.get("const"), property.get("enum")) {
                    (Some(value), _) => Some(std::slice::from_ref(value)),
                    (None, values) => values?.as_array().map(Vec::as_slice),
                }
            })
            .flatten()
            .collect();
        let of = match values.is_empty() {
            true => String::new(),
            false => format!(", one of {}", list(values.into_iter())),
        };
        return Some(format!("{} is a required property{of}", name_of(name)));
    }
    let names: Option<Vec<String>> = (missing.iter())
        .map(|branch| match branch.as_slice() {
            [(name, _)] => Some(name_of(name)),
            _ => None,
        })
        .collect();
    let names = names.filter(|names| names.len() > 1)?;
    let listed = names
        .iter()
        .take(MAX_LISTED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    Some(format!(
        "one of the properties {listed}{} is required",
        more(names.len())
    ))
}

/// The reasons of a branch.
fn all_of(branch: Branch<'_>, schema: &Value) -> String {
    let reasons = of_all(branch, schema, MAX_LISTED);
    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    reasons.join("; ")
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

    #[test]
    fn value_where_none_is_allowed_is_told_in_words() {
        let tuple = json!({"type": "object", "properties": {"x": {"prefixItems": [{}, {}], "items": false}, "y": false}});
        for (value, expected) in [
            (json!({"x": [1, 2, 3]}), "at /x/2: 3 is one item too many"),
            (json!({"y": 1}), "at /y: 1 cannot be given here"),
        ] {
            assert_eq!(reason(tuple.clone(), &value), expected);
        }
    }

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
    fn all_missing_properties_are_named_at_once() {
        let names =
            |count: usize| -> Vec<String> { (0..count).map(|i| format!("property_{i:03}")).collect() };
        let schema = |names: &[String]| json!({"type": "object", "required": names});
        assert_eq!(
            reason(schema(&names(1)), &json!({})),
            "`property_000` is a required property"
        );
        let eight = names(8);
        let listed = "`property_000`, `property_001`, `property_002`, `property_003`, `property_004`, `property_005`, \
                      `property_006`, `property_007` are required properties";
        assert_eq!(reason(schema(&eight), &json!({})), listed);
        let nested = json!({"properties": {"a": schema(&eight), "b": {"type": "string"}}, "allOf": [schema(&eight), schema(&names(9))]});
        let all = listed.replace(" are", ", `property_008` are");
        let said = reason(nested, &json!({"a": {}, "b": 1}));
        assert_eq!(said.matches("required").count(), 2, "{said}");
        assert!(
            said.contains(&format!("at /a: {listed}")) && said.contains(&all),
            "{said}"
        );
        assert!(said.contains("at /b: 1 is not of type"), "{said}");
    }

    #[test]
    fn missing_properties_are_bounded_by_bytes() {
        let reason = |count: usize| {
            let names: Vec<String> = (0..count).map(|i| format!("{i:0>98}")).collect();
            reason(json!({"required": names}), &json!({}))
        };
        // 102 bytes each, in 1,940.
        assert_eq!(reason(19).matches('`').count(), 2 * 19);
        let cut = reason(25);
        assert_eq!(cut.matches('`').count(), 2 * 19, "{cut}");
        assert!(cut.ends_with("` and 6 more are required properties"), "{cut}");
        assert!(cut.len() <= super::MAX_REASON, "{}", cut.len());
        let long = "x".repeat(101);
        let said = super::tests::reason(json!({"required": [long]}), &json!({}));
        assert_eq!(said, "one with a name of 101 bytes is a required property");
    }

    #[test]
    fn value_of_another_type_than_every_branch_is_told_them() {
        let case = |name: &str| json!({"type": "object", "properties": {"tag": {"const": name}}, "required": ["tag"]});
        let variant =
            json!({"type": "object", "properties": {"s": {"oneOf": [case("circle"), case("square")]}}});
        assert_eq!(
            reason(variant, &json!({"s": "circle"})),
            r#"at /s: "circle" is not of type "object" with the property `tag`, one of "circle", "square""#
        );
        let scalars = json!({"anyOf": [{"type": "string"}, {"type": ["integer", "null"]}, case("x")]});
        assert_eq!(
            reason(scalars, &json!([])),
            r#"[] is not of type "integer" or "null" or "object" or "string""#
        );
    }

    #[test]
    fn value_outside_an_enum_is_answered_with_all_values() {
        let schema = json!({"enum": ["a", "b", "c", "d", "e", 6, null]});
        assert_eq!(
            reason(schema, &json!("z")),
            r#""z" is not one of "a", "b", "c", "d", "e", 6, null"#
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
                r#"`kind` "line" is not one of "circle", "square""#
            );
            assert_eq!(
                reason(schema, &json!({"size": 1})),
                r#"`kind` is a required property, one of "circle", "square""#
            );
        }
    }

    #[test]
    fn value_of_an_option_is_explained_by_what_it_can_hold() {
        let option = |of: Value| json!({ "anyOf": [of, {"type": "null"}] });
        let inner = json!({"type": "object", "properties": {"size": option(json!({"enum": ["s", "m"]}))}});
        let schema = json!({"type": "object", "properties": {"x": option(option(inner))}});
        for (value, said) in [
            (
                json!({"x": {"size": "xl"}}),
                r#"at /x/size: "xl" is not one of "s", "m""#,
            ),
            (
                json!({"x": {"size": 1}}),
                r#"at /x/size: 1 is not one of "s", "m""#,
            ),
            (json!({"x": 1}), r#"at /x: 1 is not of type "object""#),
        ] {
            assert_eq!(reason(schema.clone(), &value), said);
        }
        // Of several errors each has its path.
        let two = json!({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}});
        assert_eq!(
            reason(option(two), &json!({"a": 1, "b": 2})),
            r#"at /a: 1 is not of type "null"; at /b: 2 is not of type "null""#
        );
    }

    #[test]
    fn variant_is_explained_by_the_name_of_its_property() {
        let branch = |name: &str| {
            json!({
                "type": "object",
                "properties": {name: {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}},
                "required": [name],
                "additionalProperties": false,
            })
        };
        let unit = json!({ "type": "string", "enum": ["point"] });
        let schema = json!({"oneOf": [unit, branch("circle"), branch("square")]});
        for (value, said) in [
            (
                json!({"circle": {"size": "x"}}),
                r#"at /circle/size: "x" is not of type "integer""#,
            ),
            (json!({"square": {}}), "at /square: `size` is a required property"),
            (
                json!({"line": {}}),
                "one of the properties `circle`, `square` is required",
            ),
            (json!({}), "one of the properties `circle`, `square` is required"),
        ] {
            assert_eq!(reason(schema.clone(), &value), said);
        }
    }

    #[test]
    fn tags_have_several_values_and_branches_other_types() {
        let branch = |kinds: Value, more: &str| {
            json!({
                "type": "object",
                "properties": {"kind": {"enum": kinds}, more: {"enum": [1, 2]}},
                "required": ["kind", more],
            })
        };
        let branches = [
            json!({"const": "none"}),
            branch(json!(["a"]), "x"),
            branch(json!(["b", "c"]), "y"),
        ];
        let schema = json!({ "anyOf": branches });
        for (value, said) in [
            (
                json!({"kind": "d", "x": 1}),
                r#"`kind` "d" is not one of "a", "b", "c""#,
            ),
            (
                json!({"kind": "c", "y": 3}),
                r#"as `kind` "c": at /y: 3 is not one of 1, 2"#,
            ),
        ] {
            assert_eq!(reason(schema.clone(), &value), said);
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
            r#"at /a: the value is not of type "integer"; at /b: the value is not one of 1"#
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

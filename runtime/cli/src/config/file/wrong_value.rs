//! Values of a configuration file that their keys do not take, in plain words.

use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Words for a list in errors.
pub(super) const LIST: &str = "a list";

/// A value that its key does not take.
pub(super) struct WrongValue<'a, 'b> {
    /// Key of the value.
    pub(super) key: &'b Spanned<DeString<'a>>,
    /// Place of the value.
    pub(super) place: Range<usize>,
    /// Description of the values that the key takes.
    pub(super) wanted: String,
    /// Description of the value.
    pub(super) found: String,
}

/// Returns the first value whose type or number its key does not take, where the schema states them.
pub(super) fn find<'a, 'b>(
    table: &'b DeTable<'a>,
    schema: &Value,
    root: &Value,
) -> Option<WrongValue<'a, 'b>> {
    let schema = resolve(schema, root);
    let properties = schema.get("properties").and_then(Value::as_object);
    let others = schema
        .get("additionalProperties")
        .filter(|others| others.is_object());
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref().as_ref();
        let inner = properties.and_then(|known| known.get(name)).or(others)?;
        let forms = forms_of(inner, root);
        let wrong = |found| {
            Some(WrongValue {
                key,
                place: value.span(),
                wanted: wanted(&forms),
                found,
            })
        };
        let Some(form) = forms.iter().find(|form| form.takes_type_of(value.get_ref())) else {
            // A form without a type is left to the types of the file.
            let is_known = !forms.is_empty() && forms.iter().all(|form| form.kind.is_some());
            let is_told_better = forms.iter().any(|form| form.has_pattern);
            return (is_known && !is_told_better)
                .then(|| wrong(words(value.get_ref()).to_owned()))
                .flatten();
        };
        match value.get_ref() {
            DeValue::Table(below) if forms.len() == 1 => find(below, form.schema, root),
            DeValue::Table(below) => match form.required().find(|required| !below.contains_key(*required)) {
                Some(missing) => wrong(format!("a table without `{missing}`")),
                None => find(below, form.schema, root),
            },
            DeValue::Integer(number) if !form.takes(whole(number)) => wrong(number.as_str().to_owned()),
            DeValue::Float(number) if !form.takes(number.as_str().replace('_', "").parse().ok()) => {
                wrong(number.as_str().to_owned())
            }
            _ => None,
        }
    })
}

/// Number of an integer, precise enough to be compared with bounds.
fn whole(number: &toml::de::DeInteger<'_>) -> Option<f64> {
    let digits = number.as_str().replace('_', "");
    let value = match number.radix() {
        10 => digits.parse::<i128>().ok()?,
        radix => {
            let start = ["0x", "0o", "0b"]
                .iter()
                .find_map(|start| digits.strip_prefix(start));
            i128::from_str_radix(start.unwrap_or(&digits), radix).ok()?
        }
    };
    Some(value as f64)
}

/// One of the forms of values that a key takes.
struct Form<'a> {
    schema: &'a Value,
    /// Type of JSON, if the schema states it.
    kind: Option<&'a str>,
    /// True for texts of a certain form, such as durations: the types of the file describe them better.
    has_pattern: bool,
}

/// Returns the forms of a schema, without `null`, which a file cannot contain.
fn forms_of<'a>(schema: &'a Value, root: &'a Value) -> Vec<Form<'a>> {
    let schema = resolve(schema, root);
    if let Some(branches) = schema.get("anyOf").and_then(Value::as_array) {
        return branches
            .iter()
            .flat_map(|branch| forms_of(branch, root))
            .collect();
    }
    let has_pattern = schema.get("pattern").is_some() || schema.get("enum").is_some();
    let form = |kind| Form {
        schema,
        kind,
        has_pattern,
    };
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => return vec![form(None)],
    };
    let kinds = kinds.into_iter().filter(|kind| *kind != "null");
    kinds.map(|kind| form(Some(kind))).collect()
}

impl Form<'_> {
    fn takes_type_of(&self, value: &DeValue<'_>) -> bool {
        let found = match value {
            DeValue::String(_) => "string",
            DeValue::Integer(_) => "integer",
            DeValue::Float(_) => "number",
            DeValue::Boolean(_) => "boolean",
            DeValue::Datetime(_) => "datetime",
            DeValue::Array(_) => "array",
            DeValue::Table(_) => "object",
        };
        self.kind == Some(found) || (found == "integer" && self.kind == Some("number"))
    }

    fn bound(&self, name: &str) -> Option<f64> {
        self.schema.get(name)?.as_f64()
    }

    /// True for a number within the bounds, or one that cannot be read.
    fn takes(&self, number: Option<f64>) -> bool {
        let Some(number) = number else { return true };
        !number.is_nan()
            && self.bound("minimum").is_none_or(|least| number >= least)
            && self.bound("exclusiveMinimum").is_none_or(|least| number > least)
            && self.bound("maximum").is_none_or(|most| number <= most)
    }

    /// Keys without which a table is not of this form.
    fn required(&self) -> impl Iterator<Item = &str> {
        let keys = self.schema.get("required").and_then(Value::as_array);
        keys.into_iter().flatten().filter_map(Value::as_str)
    }

    fn in_words(&self) -> Option<String> {
        let words = match self.kind? {
            "string" => "a text in quotes",
            "integer" => "a whole number",
            "number" => "a number",
            "boolean" => "true or false",
            "array" => LIST,
            "object" => match self.required().next() {
                Some(key) => return Some(format!("a table with `{key}`")),
                None => "a table",
            },
            _ => return None,
        };
        if !matches!(self.kind, Some("integer" | "number")) {
            return Some(words.to_owned());
        }
        let least = self.bound("minimum").map(|least| (least, "from", "of at least"));
        let above = self
            .bound("exclusiveMinimum")
            .map(|least| (least, "above", "above"));
        Some(match (least.or(above), self.bound("maximum")) {
            (Some((least, "above", _)), Some(most)) => format!("{words} above {least} and up to {most}"),
            (Some((least, from, _)), Some(most)) => format!("{words} {from} {least} to {most}"),
            (Some((least, _, at_least)), None) => format!("{words} {at_least} {least}"),
            (None, Some(most)) => format!("{words} of at most {most}"),
            (None, None) => words.to_owned(),
        })
    }
}

/// Describes a value.
fn words(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => LIST,
        DeValue::Table(_) => "a table",
    }
}

/// Describes the values that a key takes.
fn wanted(forms: &[Form<'_>]) -> String {
    let words: Vec<String> = forms.iter().filter_map(Form::in_words).collect();
    words.join(" or ")
}

/// Resolves a `$ref` within the document.
pub(super) fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| root.pointer(reference.trim_start_matches('#')))
        .unwrap_or(schema)
}

/// Returns the innermost key whose value contains the span.
pub(super) fn key_at<'b>(table: &'b DeTable<'_>, span: &Range<usize>) -> Option<&'b str> {
    let contains = |place: Range<usize>| place.start <= span.start && span.end <= place.end;
    // The place of a table with a header of its own does not contain its keys.
    table.iter().find_map(|(key, value)| {
        let inner = match value.get_ref() {
            DeValue::Table(below) => key_at(below, span),
            _ => None,
        };
        inner.or_else(|| contains(value.span()).then(|| key.get_ref().as_ref()))
    })
}

/// Says an error of the deserializer without the types of the program.
pub(super) fn in_words(message: &str, key: Option<&str>) -> String {
    let subject = key.map_or_else(|| "this key".to_owned(), |key| format!("`{key}`"));
    let is_about_value = ["invalid type: ", "invalid value: ", "invalid length "];
    let about = is_about_value
        .iter()
        .find_map(|start| message.strip_prefix(start));
    if let Some((found, wanted)) = about.and_then(|rest| rest.split_once(", expected ")) {
        return format!("{subject} takes {}, not {}", expected(wanted), unexpected(found));
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        return format!("the key {rest} is missing");
    }
    if let Some((variant, known)) = (message.strip_prefix("unknown variant ")).and_then(|rest| {
        rest.split_once(", expected one of ")
            .or_else(|| rest.split_once(", expected "))
    }) {
        return format!("{subject} takes {known}, not {variant}");
    }
    if message.starts_with("data did not match any variant") {
        return format!("{subject} has none of the forms that it can have");
    }
    message.to_owned()
}

fn expected(words: &str) -> String {
    let whole = |most: u64| format!("a whole number from 0 to {most}");
    match words {
        "u8" => whole(u8::MAX.into()),
        "u16" => whole(u16::MAX.into()),
        "u32" => whole(u32::MAX.into()),
        "u64" | "usize" => "a whole number of at least 0".to_owned(),
        "i64" => "a whole number".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a sequence" => LIST.to_owned(),
        "a map" => "a table".to_owned(),
        "string or table" => "a text in quotes or a table".to_owned(),
        words if words.starts_with("struct ") => "a table".to_owned(),
        words if words.starts_with("a sequence") => LIST.to_owned(),
        words => words.to_owned(),
    }
}

fn unexpected(words: &str) -> &str {
    let value = ["integer ", "floating point ", "boolean ", "string "];
    if let Some(value) = value.iter().find_map(|kind| words.strip_prefix(kind)) {
        return value;
    }
    match words {
        "map" => "a table",
        "sequence" => LIST,
        words => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_deserializer_are_said_in_plain_words() {
        for (message, words) in [
            (
                "invalid type: integer `30`, expected a duration",
                "`k` takes a duration, not `30`",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "`k` takes a whole number from 0 to 4294967295, not `-1`",
            ),
            (
                "invalid type: map, expected a sequence",
                "`k` takes a list, not a table",
            ),
            (
                "invalid type: string \"x\", expected struct Table",
                "`k` takes a table, not \"x\"",
            ),
            ("missing field `tool`", "the key `tool` is missing"),
            (
                "unknown variant `x`, expected one of `a`, `b`",
                "`k` takes `a`, `b`, not `x`",
            ),
            ("0 allows nothing", "0 allows nothing"),
        ] {
            assert_eq!(in_words(message, Some("k")), words);
        }
    }
}

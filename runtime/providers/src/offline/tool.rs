//! Properties of a tool derived from its description and schema.

use serde_json::Value;
use toolcell_core::ToolSpec;

use super::entities::is_date;
use super::words::{Word, likeness, stem, words};

/// Tool with its parameters, and its words weighted by their position.
pub(super) struct Offered<'a> {
    pub(super) spec: &'a ToolSpec,
    pub(super) parameters: Vec<Parameter>,
    words: Vec<(String, f64)>,
}

/// Parameter of a tool.
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) required: bool,
    /// Stems of its name.
    pub(super) stems: Vec<String>,
    /// Description of the parameter.
    pub(super) docs: String,
}

/// Kind of values of a parameter, derived from its schema, name and description.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Web address.
    Url,
    /// Path of a file or directory.
    Path,
    /// Date or time.
    Date,
    /// Duration in words, such as `30 days`.
    Duration,
    /// One of a list of values.
    OneOf(Vec<String>),
    /// Any other text.
    Text,
    /// Whole number.
    Integer,
    /// Yes or no.
    Boolean,
    /// Not expressible in a request.
    Other,
}

impl<'a> Offered<'a> {
    pub(super) fn new(spec: &'a ToolSpec) -> Self {
        let schema = spec.input.as_value();
        let parameters = parameters(schema);
        let mut offered = Self {
            spec,
            parameters,
            words: Vec::new(),
        };
        // The name and the first sentence describe the tool best; the rest gives details.
        offered.weigh(spec.name.as_str(), 3.0);
        offered.weigh(spec.title.as_deref().unwrap_or_default(), 2.0);
        let (first, rest) = spec
            .description
            .split_once(['.', '\n'])
            .unwrap_or((&spec.description, ""));
        offered.weigh(first, 2.0);
        offered.weigh(rest, 0.6);
        let own: Vec<(String, f64)> = offered
            .parameters
            .iter()
            .flat_map(|p| {
                let values = match &p.kind {
                    Kind::OneOf(values) => values.join(" "),
                    _ => String::new(),
                };
                [(p.name.clone(), 1.0), (p.docs.clone(), 0.4), (values, 2.0)]
            })
            .collect();
        for (text, weight) in own {
            offered.weigh(&text, weight);
        }
        offered
    }

    fn weigh(&mut self, text: &str, weight: f64) {
        for word in words(text) {
            if word.is_empty() {
                continue;
            }
            match self.words.iter_mut().find(|(stem, _)| *stem == word.stem) {
                Some((_, known)) => *known = known.max(weight),
                None => self.words.push((word.stem, weight)),
            }
        }
    }

    /// Relevance of the tool for a word; 0 for none.
    pub(super) fn weight_of(&self, asked: &Word) -> f64 {
        self.words
            .iter()
            .map(|(offered, weight)| weight * likeness(&asked.stem, offered))
            .fold(0.0, f64::max)
    }

    /// Number of parameters of a kind.
    pub(super) fn takes(&self, kind: &Kind) -> usize {
        self.parameters.iter().filter(|p| p.kind == *kind).count()
    }
}

fn parameters(schema: &Value) -> Vec<Parameter> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let mut parameters: Vec<Parameter> = properties
        .iter()
        .map(|(name, property)| {
            let stems: Vec<String> = words(name).into_iter().map(|w| w.stem).collect();
            let docs = property
                .get("description")
                .and_then(Value::as_str)
                .unwrap_or_default();
            Parameter {
                kind: kind(schema, property, &stems, docs),
                required: required.contains(&name.as_str()),
                name: name.clone(),
                stems,
                docs: docs.to_owned(),
            }
        })
        .collect();
    // The end of a range has the kind of its start.
    if parameters.iter().any(|p| p.kind == Kind::Date) {
        for parameter in parameters.iter_mut().filter(|p| p.kind == Kind::Text) {
            if parameter
                .stems
                .iter()
                .any(|s| PERIOD.iter().any(|name| stem(name) == *s))
            {
                parameter.kind = Kind::Date;
            }
        }
    }
    // Required parameters in the order of `required`, then the others in the order of their names' meaning.
    parameters.sort_by_key(|p| {
        let declared = required.iter().position(|name| *name == p.name);
        (declared.unwrap_or(usize::MAX), order(&p.stems))
    });
    parameters
}

/// Names of the ends of a period.
const PERIOD: &[&str] = &["from", "to", "start", "end", "time", "since", "until", "when"];

/// Order of two parameters of one kind in a sentence: from *old* to *new*.
fn order(stems: &[String]) -> u8 {
    let has = |set: &[&str]| stems.iter().any(|s| set.iter().any(|word| stem(word) == *s));
    if has(&[
        "old", "from", "start", "first", "before", "source", "left", "a", "since",
    ]) {
        0
    } else if has(&[
        "new", "to", "end", "last", "second", "after", "target", "right", "b", "until",
    ]) {
        2
    } else {
        1
    }
}

fn kind(root: &Value, property: &Value, stems: &[String], docs: &str) -> Kind {
    let values = values(root, property, 0);
    if !values.is_empty() {
        return Kind::OneOf(values);
    }
    match type_of(root, property, 0) {
        Some("integer" | "number") => Kind::Integer,
        Some("boolean") => Kind::Boolean,
        Some("string") => kind_of_text(property, stems, docs),
        _ => Kind::Other,
    }
}

fn kind_of_text(property: &Value, stems: &[String], docs: &str) -> Kind {
    let named = |names: &[&str]| stems.iter().any(|s| names.iter().any(|name| stem(name) == *s));
    let doc_words = words(docs);
    let mentions = |word: &str| doc_words.iter().take(8).any(|w| w.stem == stem(word));
    match property.get("format").and_then(Value::as_str) {
        Some("uri" | "url" | "iri") => return Kind::Url,
        Some("date" | "date-time" | "time") => return Kind::Date,
        _ => {}
    }
    if named(&["url", "uri", "href", "address"]) {
        Kind::Url
    } else if named(&["duration", "interval", "period"]) {
        Kind::Duration
    } else if named(&["zone", "timezone", "tz"])
        || doc_words
            .windows(2)
            .any(|w| w[0].stem == "tim" && w[1].stem == "zon")
            && mentions("zone")
    {
        Kind::Other
    } else if named(&["path", "file", "filename", "dir", "directory", "folder"]) {
        Kind::Path
    } else if named(&["date", "datetime", "instant", "timestamp"])
        || (named(PERIOD)
            && (mentions("date")
                || docs
                    .split_whitespace()
                    .any(|w| is_date(w.trim_matches(['`', ',', '.'])))))
    {
        Kind::Date
    } else {
        Kind::Text
    }
}

/// Maximum references that are followed: an option of an enumeration takes two.
const MAX_HOPS: usize = 4;

/// The schema itself, its reference target, and its alternatives.
fn forms<'a>(root: &'a Value, property: &'a Value) -> Vec<&'a Value> {
    let mut forms = vec![property];
    if let Some(target) = property.get("$ref").and_then(Value::as_str)
        && let Some(found) = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer))
    {
        forms.push(found);
    }
    for name in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(inner)) = property.get(name) {
            forms.extend(inner);
        }
    }
    forms
}

fn values(root: &Value, property: &Value, hops: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    if let Some(Value::Array(listed)) = property.get("enum") {
        found.extend(listed.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    if let Some(single) = property.get("const").and_then(Value::as_str) {
        found.push(single.to_owned());
    }
    if found.is_empty() && hops < MAX_HOPS {
        for form in forms(root, property).into_iter().skip(1) {
            found.extend(values(root, form, hops + 1));
        }
    }
    found
}

fn type_of<'a>(root: &'a Value, property: &'a Value, hops: usize) -> Option<&'a str> {
    let own = match property.get("type") {
        Some(Value::String(name)) => Some(name.as_str()),
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .find(|name| *name != "null"),
        _ => None,
    };
    own.filter(|name| *name != "null").or_else(|| {
        if hops == MAX_HOPS {
            return None;
        }
        forms(root, property)
            .into_iter()
            .skip(1)
            .find_map(|form| type_of(root, form, hops + 1))
    })
}

//! Extraction of a tool's arguments from a request.
//!
//! Each parameter takes entities of its kind; free-text parameters take the remaining words.

use serde_json::{Map, Value};

use super::entities::{Entity, ParsedRequest, is_name, is_unit_of_time};
use super::tool::{Kind, Offered, Parameter};
use super::words::{Word, stem, words};

/// True for a parameter for text of any length, as opposed to a pattern or a name.
fn holds_text(parameter: &Parameter) -> bool {
    ["text", "content", "input", "document", "body", "data"]
        .iter()
        .any(|name| parameter.stems.contains(&stem(name)))
}

/// Arguments for a tool; `None` if a required one is not in the request.
pub(super) fn fill(
    tool: &Offered<'_>,
    request: &ParsedRequest,
    asked: &[Word],
) -> Option<Map<String, Value>> {
    let mut entities: Vec<Option<&Entity>> = request.entities.iter().map(Some).collect();
    let mut arguments = Map::new();
    // Entities with one possible kind first; free text takes the remaining words.
    let certain = |p: &&Parameter| p.kind != Kind::Text && p.kind != Kind::Integer;
    for parameter in tool.parameters.iter().filter(certain) {
        if let Some(value) = fill_certain(parameter, request, &mut entities) {
            arguments.insert(parameter.name.clone(), value);
        }
    }
    fill_durations(tool, request, &mut entities, &mut arguments);
    fill_numbers(tool, request, &mut entities, &mut arguments);
    let has_source = !arguments.is_empty();
    let mut free = free_text(request, asked, tool);
    for parameter in tool.parameters.iter().filter(|p| p.kind == Kind::Text) {
        let quoted = entities.iter_mut().find(|t| matches!(t, Some(Entity::Quoted(_))));
        if let Some(slot) = quoted
            && (parameter.required || !has_source || !holds_text(parameter))
            && let Some(Entity::Quoted(text)) = slot.take()
        {
            arguments.insert(parameter.name.clone(), as_language(text, parameter).into());
        } else if parameter.required {
            match free.take() {
                Some(text) => {
                    arguments.insert(parameter.name.clone(), as_language(&text, parameter).into());
                }
                None => return None,
            }
        }
    }
    // `ls src`: a single remaining word is a path if the tool has no other parameter for it.
    if let Some(word) = free.filter(|text| is_name(text))
        && !tool.parameters.iter().any(|p| p.required && p.kind == Kind::Text)
        && let Some(place) = tool.parameters.iter().find(|p| p.kind == Kind::Path)
    {
        arguments.entry(place.name.clone()).or_insert_with(|| word.into());
    }
    let lacks = |p: &Parameter| p.required && p.kind != Kind::Text && !arguments.contains_key(&p.name);
    if tool.parameters.iter().any(lacks) {
        return None;
    }
    Some(arguments)
}

fn fill_certain(
    parameter: &Parameter,
    request: &ParsedRequest,
    entities: &mut [Option<&Entity>],
) -> Option<Value> {
    let mut take = |wanted: fn(&Entity) -> Option<&String>| {
        let slot = entities
            .iter_mut()
            .find(|t| t.is_some_and(|t| wanted(t).is_some()))?;
        slot.take()
            .and_then(wanted)
            .map(|text| Value::from(text.as_str()))
    };
    match &parameter.kind {
        Kind::Url => take(|t| if let Entity::Url(s) = t { Some(s) } else { None }),
        Kind::Path => take(|t| if let Entity::Path(s) = t { Some(s) } else { None })
            // "the files here": the current directory.
            .or_else(|| {
                parameter
                    .required
                    .then(|| Value::from("."))
                    .filter(|_| is_directory(parameter))
            }),
        Kind::Date => take(|t| if let Entity::Date(s) = t { Some(s) } else { None }),
        Kind::OneOf(values) => {
            let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
            let rest: Vec<String> = request.rest.split_whitespace().map(plain).collect();
            let found = values.iter().find(|value| {
                let value = plain(value);
                rest.iter().any(|word| {
                    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
                    word == value || stem(word) == stem(&value)
                })
            });
            // A unit directly follows its number.
            found
                .or_else(|| {
                    request.entities.iter().find_map(|entity| match entity {
                        Entity::Number { unit, .. } => values.iter().find(|value| stem(value) == stem(unit)),
                        _ => None,
                    })
                })
                .map(|value| Value::from(value.as_str()))
        }
        Kind::Boolean => {
            let rest = words(&request.rest);
            let named = parameter
                .stems
                .iter()
                .all(|s| rest.iter().any(|word| word.stem == *s));
            (named && !parameter.stems.is_empty()).then(|| Value::from(true))
        }
        Kind::Duration | Kind::Text | Kind::Integer | Kind::Other => None,
    }
}

fn is_directory(parameter: &Parameter) -> bool {
    let docs = words(&parameter.docs);
    parameter
        .stems
        .iter()
        .chain(docs.iter().map(|w| &w.stem))
        .any(|s| matches!(s.as_str(), "directory" | "dir" | "folder"))
}

/// A duration as text, negative if the request refers to the past.
fn fill_durations(
    tool: &Offered<'_>,
    request: &ParsedRequest,
    entities: &mut [Option<&Entity>],
    arguments: &mut Map<String, Value>,
) {
    let is_past = words(&request.rest).iter().any(|w| {
        ["before", "ago", "earlier", "minus", "subtract"]
            .iter()
            .any(|word| stem(word) == w.stem)
    });
    for parameter in tool.parameters.iter().filter(|p| p.kind == Kind::Duration) {
        let mut parts = Vec::new();
        for slot in entities.iter_mut() {
            if let Some(Entity::Number { value, unit }) = slot
                && is_unit_of_time(unit)
            {
                let value = if is_past { value.saturating_neg() } else { *value };
                parts.push(format!("{value} {unit}"));
                *slot = None;
            }
        }
        if !parts.is_empty() {
            arguments.insert(parameter.name.clone(), parts.join(" ").into());
        }
    }
}

/// Assigns numbers to the parameter whose name is their unit, otherwise by the preceding word: the *first* 20 are a
/// limit.
fn fill_numbers(
    tool: &Offered<'_>,
    request: &ParsedRequest,
    entities: &mut [Option<&Entity>],
    arguments: &mut Map<String, Value>,
) {
    let numbers: Vec<(i64, String)> = entities
        .iter_mut()
        .filter_map(|slot| match slot {
            Some(Entity::Number { value, unit }) => {
                *slot = None;
                Some((*value, stem(unit)))
            }
            _ => None,
        })
        .collect();
    let free: Vec<&Parameter> = tool
        .parameters
        .iter()
        .filter(|p| p.kind == Kind::Integer)
        .collect();
    let named = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|n| stem(n)).collect();
        free.iter()
            .copied()
            .find(|p| p.stems.iter().any(|s| names.contains(s)))
    };
    let start = || named(&["start", "from", "first", "offset", "begin"]);
    let end = || named(&["end", "to", "last", "until", "stop"]);
    let amount = || named(&["limit", "max", "count", "amount", "number", "n", "head"]);
    let mut put = |parameter: Option<&Parameter>, value: i64| {
        if let Some(parameter) = parameter {
            arguments
                .entry(parameter.name.clone())
                .or_insert_with(|| value.into());
        }
    };
    match &numbers[..] {
        [] => {}
        [(value, unit)] => {
            let by_unit = free
                .iter()
                .copied()
                .find(|p| p.stems.len() == 1 && p.stems[0] == *unit);
            let rest = request.rest.to_lowercase();
            let counts_back = start().is_some_and(|p| p.docs.contains("negative"));
            if by_unit.is_some() {
                put(by_unit, *value);
            } else if counts_back && words(&rest).iter().any(|w| w.stem == "last" || w.stem == "tail") {
                put(start(), value.saturating_neg());
            } else if ["first", "top", "most", "only"]
                .iter()
                .any(|word| rest.contains(word))
            {
                put(amount().or_else(end), *value);
            } else if rest.contains("line") && start().is_some() {
                // `line 7`, or `from line 7`.
                put(start(), *value);
                if !rest.contains("from line") {
                    put(end(), *value);
                }
            } else {
                let required = free.iter().copied().find(|p| p.required);
                put(amount().or(required), *value);
            }
        }
        [(a, _), (b, _), ..] => {
            put(start(), *a);
            match end() {
                Some(end) => put(Some(end), *b),
                None => put(amount(), b.saturating_sub(*a).saturating_add(1)),
            }
        }
    }
}

/// Words that occur in no tool description: the subject of the request rather than the action.
fn free_text(request: &ParsedRequest, asked: &[Word], tool: &Offered<'_>) -> Option<String> {
    let mut run: Vec<&str> = Vec::new();
    for token in request.rest.split_whitespace() {
        let bare = token.trim_matches(|c: char| matches!(c, ',' | ';' | ':' | '!' | '?' | '.' | '(' | ')'));
        let about = words(bare);
        let is_content = !about.is_empty()
            && about
                .iter()
                .all(|word| asked.contains(word) && tool.weight_of(word) < 0.5);
        if is_content {
            run.push(bare);
        } else if !run.is_empty() {
            break;
        }
    }
    (!run.is_empty()).then(|| run.join(" "))
}

/// Converts a field name into a jq path expression, if the parameter is documented as one.
fn as_language(text: &str, parameter: &Parameter) -> String {
    let says_jq =
        words(&parameter.docs).iter().any(|w| w.stem == "jq") || parameter.stems.iter().any(|s| s == "jq");
    let is_name = text.chars().all(|c| c.is_alphanumeric() || c == '_');
    if says_jq && is_name {
        format!(".{text}")
    } else {
        text.to_owned()
    }
}

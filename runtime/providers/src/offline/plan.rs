//! Which tool a request asks for, and with which arguments.
//!
//! Words are weighed as in text search: a word that few tools know says more than one that all know. What a request
//! names (an address, a path, a date) must find a parameter that takes it.

use serde_json::{Map, Value};
use toolcell_core::ToolSpec;

use super::things::{Request, Thing, is_name, take_apart};
use super::tool::{Kind, Offered, Parameter};
use super::words::{Word, stem, words};

/// Least score of a tool that is called. A single common word stays below it.
const ENOUGH: f64 = 1.5;

/// What a thing counts that a tool can take, and what it costs when it cannot.
const THING: f64 = 2.0;

/// What the ending of a file counts, beside 1 for a word.
const ENDING_WEIGHT: f64 = 0.5;

/// One call to be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// The parameter that takes the text of the step before.
    pub(super) takes_result: Option<String>,
}

/// The calls that answer a request, at most two; none when no tool fits.
pub(super) fn plan(text: &str, tools: &[ToolSpec]) -> Vec<Step> {
    let offered: Vec<Offered<'_>> = tools.iter().map(Offered::new).collect();
    // "A, and then B" is two requests where each is one by itself.
    for joint in [" and then ", ", then ", "; then ", "; ", " and also ", " and "] {
        if let Some((first, second)) = text.split_once(joint)
            && let ([a], [b]) = (&single(first, &offered)[..], &single(second, &offered)[..])
            && a != b
        {
            return vec![a.clone(), b.clone()];
        }
    }
    single(text, &offered)
}

/// The names of the tools that a request has something to do with, best first.
pub(super) fn near<'a>(text: &str, tools: &'a [ToolSpec]) -> Vec<&'a ToolSpec> {
    let offered: Vec<Offered<'a>> = tools.iter().map(Offered::new).collect();
    let asked = meaningful(&take_apart(text));
    let mut scored: Vec<(f64, &ToolSpec)> = offered
        .iter()
        .map(|tool| (score_of_words(&asked, tool, &offered), tool.spec))
        .filter(|(score, _)| *score > 0.0)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
    scored.into_iter().map(|(_, spec)| spec).collect()
}

fn single(text: &str, offered: &[Offered<'_>]) -> Vec<Step> {
    let request = take_apart(text);
    let asked = meaningful(&request);
    let best = |scored: Vec<(f64, Step)>| {
        scored
            .into_iter()
            .filter(|(score, _)| *score >= ENOUGH)
            .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.tool.cmp(&a.1.tool)))
    };
    let direct = best(
        offered
            .iter()
            .filter_map(|tool| {
                let words = score_of_words(&asked, tool, offered)
                    + ENDING_WEIGHT * score_of_words(&endings(&request), tool, offered);
                // A word must speak for the tool, not the things alone.
                (words > 0.0).then_some(())?;
                let arguments = fill(tool, &request, &asked, false)?;
                Some((
                    words + score_of_things(&request, tool),
                    step(tool, arguments, None),
                ))
            })
            .collect(),
    );
    // "How many words has https://…": one tool takes the address, another does what is asked with the text.
    let through = request.things.iter().find_map(|thing| {
        let kind = kind_of(thing).filter(|kind| *kind == Kind::Url)?;
        let source = offered
            .iter()
            .filter(|tool| tool.takes(&kind) > 0)
            .find_map(|tool| Some(step(tool, fill(tool, &request, &[], true)?, None)))?;
        let (score, last) = best(
            offered
                .iter()
                .filter(|tool| tool.takes(&kind) == 0 && tool.spec.name.as_str() != source.tool)
                .filter_map(|tool| {
                    let text = tool
                        .parameters
                        .iter()
                        .find(|p| p.kind == Kind::Text && holds_text(p))?;
                    let mut arguments = fill(tool, &request, &asked, true)?;
                    arguments.remove(&text.name);
                    let words = score_of_words(&asked, tool, offered);
                    Some((words, step(tool, arguments, Some(text.name.clone()))))
                })
                .collect(),
        )?;
        Some((score, vec![source, last]))
    });
    match (direct, through) {
        (Some((direct_score, step)), Some((through_score, steps))) => {
            // A detour must be asked for more clearly than the direct way, which also scores for the thing.
            if through_score > direct_score {
                steps
            } else {
                vec![step]
            }
        }
        (Some((_, step)), None) => vec![step],
        (None, Some((_, steps))) => steps,
        (None, None) => Vec::new(),
    }
}

fn step(tool: &Offered<'_>, arguments: Map<String, Value>, takes_result: Option<String>) -> Step {
    Step {
        tool: tool.spec.name.to_string(),
        arguments,
        takes_result,
    }
}

fn meaningful(request: &Request) -> Vec<Word> {
    let mut asked: Vec<Word> = words(&request.rest)
        .into_iter()
        .filter(|w| !w.is_empty())
        .collect();
    if asked.is_empty() && !request.things.is_empty() {
        // "What is in it?" asks to read it.
        asked = words("read");
    }
    asked
}

/// The endings of the files that a request names: `package.json` has to do with JSON.
fn endings(request: &Request) -> Vec<Word> {
    let ending = |thing: &Thing| match thing {
        Thing::Path(path) => path
            .rsplit('/')
            .next()?
            .rsplit_once('.')
            .map(|(_, ending)| words(ending)),
        _ => None,
    };
    request.things.iter().filter_map(ending).flatten().collect()
}

fn score_of_words(asked: &[Word], tool: &Offered<'_>, all: &[Offered<'_>]) -> f64 {
    let mut seen = Vec::new();
    let mut score = 0.0;
    for word in asked {
        if seen.contains(&&word.stem) {
            continue;
        }
        seen.push(&word.stem);
        let weight = tool.weight_of(word);
        if weight > 0.0 {
            let known_by = all
                .iter()
                .filter(|other| other.weight_of(word) > 0.5)
                .count()
                .max(1);
            #[expect(clippy::cast_precision_loss, reason = "no list of tools is so long")]
            let rarity = (1.0 + all.len() as f64 / known_by as f64).ln();
            score += weight * rarity;
        }
    }
    score
}

fn kind_of(thing: &Thing) -> Option<Kind> {
    match thing {
        Thing::Url(_) => Some(Kind::Url),
        Thing::Path(_) => Some(Kind::Path),
        Thing::Zone(_) => Some(Kind::Zone),
        Thing::Date(_) => Some(Kind::Date),
        Thing::Number { unit, .. } if is_unit_of_time(unit) => Some(Kind::Duration),
        Thing::Quoted(_) | Thing::Number { .. } => None,
    }
}

fn is_unit_of_time(unit: &str) -> bool {
    ["second", "minute", "hour", "day", "week", "month", "year"]
        .iter()
        .any(|name| stem(name) == stem(unit))
}

/// What a tool can take of the things counts for it, what it cannot counts against it.
fn score_of_things(request: &Request, tool: &Offered<'_>) -> f64 {
    let mut score = 0.0;
    for kind in [Kind::Url, Kind::Path, Kind::Zone, Kind::Date, Kind::Duration] {
        let named = request
            .things
            .iter()
            .filter(|t| kind_of(t).as_ref() == Some(&kind))
            .count();
        let taken = named.min(tool.takes(&kind));
        // A number of days may be a number as well.
        let lost = if kind == Kind::Duration { 0 } else { named - taken };
        #[expect(clippy::cast_precision_loss, reason = "no request names so many things")]
        let difference = taken as f64 - lost as f64;
        score += THING * difference;
    }
    score
}

/// A parameter for a text of any length, rather than for a pattern or a name.
fn holds_text(parameter: &Parameter) -> bool {
    ["text", "content", "input", "document", "body", "data"]
        .iter()
        .any(|name| parameter.stems.contains(&stem(name)))
}

/// The arguments for a tool; `None` when one that it needs is not in the request and `text_follows` does not bring it.
fn fill(
    tool: &Offered<'_>,
    request: &Request,
    asked: &[Word],
    text_follows: bool,
) -> Option<Map<String, Value>> {
    let mut things: Vec<Option<&Thing>> = request.things.iter().map(Some).collect();
    let mut arguments = Map::new();
    // What can be nothing else goes first, free text takes what is left.
    let certain = |p: &&Parameter| p.kind != Kind::Text && p.kind != Kind::Integer;
    for parameter in tool.parameters.iter().filter(certain) {
        if let Some(value) = fill_certain(parameter, request, &mut things) {
            arguments.insert(parameter.name.clone(), value);
        }
    }
    fill_durations(tool, request, &mut things, &mut arguments);
    fill_numbers(tool, request, &mut things, &mut arguments);
    let has_source = !arguments.is_empty();
    let mut free = (!text_follows).then(|| free_text(request, asked, tool)).flatten();
    for parameter in tool.parameters.iter().filter(|p| p.kind == Kind::Text) {
        let quoted = things.iter_mut().find(|t| matches!(t, Some(Thing::Quoted(_))));
        if let Some(slot) = quoted
            && (parameter.required || !has_source || !holds_text(parameter))
            && let Some(Thing::Quoted(text)) = slot.take()
        {
            arguments.insert(parameter.name.clone(), as_language(text, parameter).into());
        } else if parameter.required {
            match free.take() {
                Some(text) => {
                    arguments.insert(parameter.name.clone(), as_language(&text, parameter).into());
                }
                None if text_follows && holds_text(parameter) => {}
                None => return None,
            }
        }
    }
    // `ls src`: a single word that is left over is a place, where the tool looks for nothing else.
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

fn fill_certain(parameter: &Parameter, request: &Request, things: &mut [Option<&Thing>]) -> Option<Value> {
    let mut take = |wanted: fn(&Thing) -> Option<&String>| {
        let slot = things
            .iter_mut()
            .find(|t| t.is_some_and(|t| wanted(t).is_some()))?;
        slot.take()
            .and_then(wanted)
            .map(|text| Value::from(text.as_str()))
    };
    match &parameter.kind {
        Kind::Url => take(|t| if let Thing::Url(s) = t { Some(s) } else { None }),
        Kind::Path => take(|t| if let Thing::Path(s) = t { Some(s) } else { None })
            // "the files here": the directory that everything is in.
            .or_else(|| {
                parameter
                    .required
                    .then(|| Value::from("."))
                    .filter(|_| is_directory(parameter))
            }),
        Kind::Zone => take(|t| if let Thing::Zone(s) = t { Some(s) } else { None })
            .or_else(|| parameter.required.then(|| Value::from("UTC"))),
        Kind::Date => take(|t| if let Thing::Date(s) = t { Some(s) } else { None }),
        Kind::OneOf(values) => {
            let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
            let said: Vec<String> = request.rest.split_whitespace().map(plain).collect();
            let found = values.iter().find(|value| {
                let value = plain(value);
                said.iter().any(|word| {
                    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
                    word == value || stem(word) == stem(&value)
                })
            });
            // A unit stands beside its number.
            found
                .or_else(|| {
                    request.things.iter().find_map(|thing| match thing {
                        Thing::Number { unit, .. } => values.iter().find(|value| stem(value) == stem(unit)),
                        _ => None,
                    })
                })
                .map(|value| Value::from(value.as_str()))
        }
        Kind::Boolean => {
            let said = words(&request.rest);
            let named = parameter
                .stems
                .iter()
                .all(|s| said.iter().any(|word| word.stem == *s));
            (named && !parameter.stems.is_empty()).then(|| Value::from(true))
        }
        Kind::Duration | Kind::Text | Kind::Integer | Kind::Other => None,
    }
}

fn is_directory(parameter: &Parameter) -> bool {
    let said = words(&parameter.docs);
    parameter
        .stems
        .iter()
        .chain(said.iter().map(|w| &w.stem))
        .any(|s| matches!(s.as_str(), "directory" | "dir" | "folder"))
}

/// A number of days or the like, as text; into the past where the request says so.
fn fill_durations(
    tool: &Offered<'_>,
    request: &Request,
    things: &mut [Option<&Thing>],
    arguments: &mut Map<String, Value>,
) {
    let is_past = words(&request.rest).iter().any(|w| {
        ["before", "ago", "earlier", "minus", "subtract"]
            .iter()
            .any(|word| stem(word) == w.stem)
    });
    for parameter in tool.parameters.iter().filter(|p| p.kind == Kind::Duration) {
        let mut parts = Vec::new();
        for slot in things.iter_mut() {
            if let Some(Thing::Number { value, unit }) = slot
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

/// Numbers go to the parameter whose name is their unit, else by what is said before them: the *first* 20 are a limit.
fn fill_numbers(
    tool: &Offered<'_>,
    request: &Request,
    things: &mut [Option<&Thing>],
    arguments: &mut Map<String, Value>,
) {
    let numbers: Vec<(i64, String)> = things
        .iter_mut()
        .filter_map(|slot| match slot {
            Some(Thing::Number { value, unit }) => {
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

/// The words that no tool is described with: what is looked for rather than what is to be done.
fn free_text(request: &Request, asked: &[Word], tool: &Offered<'_>) -> Option<String> {
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

/// A field named in words as the path expression of jq, where the parameter says that it is one.
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

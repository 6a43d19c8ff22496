//! Selection of the tool for a request.
//!
//! Words are weighted as in text search: a word that occurs in few tools counts more than a common one. Entities in the
//! request (an address, a path, a date) need a parameter of their kind.

use serde_json::{Map, Value};
use toolcell_core::ToolSpec;

use super::entities::{Entity, ParsedRequest, is_unit_of_time, take_apart};
use super::fill::fill;
use super::tool::{Kind, Offered};
use super::words::{Word, words};

/// Minimum score of a selected tool. A single common word stays below it.
const ENOUGH: f64 = 1.5;

/// Score of an entity that the tool accepts; subtracted if it does not.
const THING: f64 = 2.0;

/// Weight of a file extension, relative to 1 for a word.
const ENDING_WEIGHT: f64 = 0.5;

/// Planned call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlannedCall {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
}

/// Plans the call for a request and the texts attached to it; `None` if no tool fits.
pub(super) fn plan(text: &str, attached: &[String], tools: &[ToolSpec]) -> Option<PlannedCall> {
    let offered: Vec<Offered<'_>> = tools.iter().map(Offered::new).collect();
    let mut request = take_apart(text);
    let attached = attached.iter().cloned().map(Entity::Quoted);
    request.entities.extend(attached);
    let asked = meaningful(&request);
    let scored = offered.iter().filter_map(|tool| {
        let words = score_of_words(&asked, tool, &offered)
            + ENDING_WEIGHT * score_of_words(&endings(&request), tool, &offered);
        // At least one word must match the tool, not only entities.
        (words > 0.0).then_some(())?;
        let call = PlannedCall {
            tool: tool.spec.name.to_string(),
            arguments: fill(tool, &request, &asked)?,
        };
        Some((words + score_of_entities(&request, tool), call))
    });
    scored
        .filter(|(score, _)| *score >= ENOUGH)
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.tool.cmp(&a.1.tool)))
        .map(|(_, call)| call)
}

/// Tools related to a request, best first.
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

fn meaningful(request: &ParsedRequest) -> Vec<Word> {
    let mut asked: Vec<Word> = words(&request.rest)
        .into_iter()
        .filter(|w| !w.is_empty())
        .collect();
    if asked.is_empty() && !request.entities.is_empty() {
        // "What is in it?" is a request to read.
        asked = words("read");
    }
    asked
}

/// Extensions of the files in a request: `package.json` relates to JSON.
fn endings(request: &ParsedRequest) -> Vec<Word> {
    let ending = |entity: &Entity| match entity {
        Entity::Path(path) => path
            .rsplit('/')
            .next()?
            .rsplit_once('.')
            .map(|(_, ending)| words(ending)),
        _ => None,
    };
    request.entities.iter().filter_map(ending).flatten().collect()
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

fn kind_of(entity: &Entity) -> Option<Kind> {
    match entity {
        Entity::Url(_) => Some(Kind::Url),
        Entity::Path(_) => Some(Kind::Path),
        Entity::Date(_) => Some(Kind::Date),
        Entity::Number { unit, .. } if is_unit_of_time(unit) => Some(Kind::Duration),
        Entity::Quoted(_) | Entity::Number { .. } => None,
    }
}

/// Adds a score for each entity that the tool accepts and subtracts one for each that it does not.
fn score_of_entities(request: &ParsedRequest, tool: &Offered<'_>) -> f64 {
    let mut score = 0.0;
    for kind in [Kind::Url, Kind::Path, Kind::Date, Kind::Duration] {
        let named = request
            .entities
            .iter()
            .filter(|t| kind_of(t).as_ref() == Some(&kind))
            .count();
        let taken = named.min(tool.takes(&kind));
        // A number of days may be a plain number as well.
        let lost = if kind == Kind::Duration { 0 } else { named - taken };
        #[expect(clippy::cast_precision_loss, reason = "no request names so many entities")]
        let difference = taken as f64 - lost as f64;
        score += THING * difference;
    }
    score
}

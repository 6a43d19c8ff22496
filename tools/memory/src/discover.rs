//! The tool `memory_discover`.

use toolcell_sdk::{Result, ToolError, output, serde_json, tool};

use crate::graph::{self, Edge};
use crate::id::Id;
use crate::index::{self, Filter};
use crate::memory::{self, Memory, Searched};
use crate::rank::{Query, RANKED_BY, Ranking};
use crate::storage::{Keys, Storage};
use crate::task::Task;

/// Maximum number of matches and of neighbours in one answer.
const MAX_LIMIT: u32 = 50;

/// Maximum distance in links.
const MAX_DEPTH: u32 = 3;

/// Maximum bytes of content that are shown; `memory_recall` has the rest.
const EXCERPT: usize = 600;

/// Bytes of an excerpt before the first matching word.
const BEFORE: usize = 100;

/// Result of a search.
#[output]
pub(crate) struct Discovered {
    /// Number of matching memories, shown or not.
    total: usize,
    /// The best first.
    matches: Vec<Match>,
    /// Memories linked to the matches, the nearest first; only with `depth`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    neighbours: Vec<Neighbour>,
    /// Basis of the order of the matches.
    ranked_by: &'static str,
}

/// A memory that matches.
#[output]
struct Match {
    id: String,
    /// Larger is better; only to be compared within this answer.
    score: f64,
    /// The words of the query that it has.
    matched: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    created: String,
    /// Its content, or the part with the first match, with `…` where it was cut.
    content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<Edge>,
}

/// A memory or a task that is linked to a match.
#[output]
struct Neighbour {
    id: String,
    /// Links between it and the nearest match.
    distance: u32,
    /// The link by which it was reached, `m17 relation m18`.
    by: String,
    /// Its title, or how it begins.
    about: String,
}

/// Search all memories by words; the best matches come first. Case, accents and endings of words hardly matter.
///
/// Use it before you answer from memory and before you store something. A few telling words are better than a sentence.
#[tool(title = "Search memories", read_only, idempotent)]
pub(crate) fn memory_discover(
    /// Words to look for; memories need not have all of them.
    #[alias("search", "text")]
    query: String,
    /// Only of this kind.
    kind: Option<String>,
    /// Only those that have all of these tags.
    #[default(Vec::new())]
    tags: Vec<String>,
    /// Most matches to show, up to 50.
    #[default(10)]
    #[alias("max_results")]
    limit: u32,
    /// Show also what is linked to the matches, over up to so many links (3 at most).
    #[default(0)]
    depth: u32,
) -> Result<Discovered> {
    let words = Query::new(&query);
    if words.is_empty() {
        return Err(ToolError::invalid("`query` has no words to look for"));
    }
    let kind = kind.map(|kind| memory::label("kind", &kind)).transpose()?;
    let tags = memory::labels(&tags)?;
    let limit = limit.clamp(1, MAX_LIMIT) as usize;
    let storage = Storage::open()?;
    let keys = storage.keys()?;
    let filter = Filter {
        kind: kind.as_deref(),
        tags: &tags,
    };
    let mut ranking = Ranking::new(&words);
    let others = index::rank(&storage, &keys, &words, &filter, &mut ranking)?;
    storage.each_memory(&others, |number, value| {
        let Ok(text) = serde_json::from_slice::<Searched<'_>>(value) else {
            return Ok(());
        };
        if filter.fits(text.kind.as_deref(), &text.tags) {
            ranking.add(number, text.headings(), &text.content);
        }
        Ok(())
    })?;
    let mut ranked = ranking.finish();
    let total = ranked.len();
    ranked.truncate(limit);
    let ids: Vec<Id> = ranked.iter().map(|ranked| Id::Memory(ranked.text)).collect();
    let mut matches = Vec::with_capacity(ranked.len());
    for ranked in ranked {
        let memory = storage.memory(ranked.text)?;
        let id = Id::Memory(ranked.text);
        matches.push(Match {
            id: id.to_string(),
            score: (f64::from(ranked.score) * 100.0).round() / 100.0,
            matched: ranked.matched.into_iter().map(str::to_owned).collect(),
            content: excerpt(&memory.content, words.first_match(&memory.content).unwrap_or(0)),
            title: memory.title,
            kind: memory.kind,
            tags: memory.tags,
            created: memory.created,
            links: graph::edges(&storage, &keys, id)?,
        });
    }
    Ok(Discovered {
        total,
        matches,
        neighbours: neighbours(&storage, &keys, &ids, depth.min(MAX_DEPTH))?,
        ranked_by: RANKED_BY,
    })
}

fn neighbours(storage: &Storage, keys: &Keys, of: &[Id], depth: u32) -> Result<Vec<Neighbour>> {
    let mut reached = graph::reached(keys, of, depth);
    reached.truncate(MAX_LIMIT as usize);
    let has_task = reached.iter().any(|reached| matches!(reached.id, Id::Task(_)));
    let tasks = if has_task {
        Task::all(storage, keys)?
    } else {
        Default::default()
    };
    let mut neighbours = Vec::with_capacity(reached.len());
    for reached in reached {
        let about = match reached.id {
            Id::Memory(number) => about(storage.memory(number)?),
            Id::Task(number) => tasks
                .get(&number)
                .map_or(String::new(), |task| format!("{} ({})", task.title, task.status)),
        };
        let link = reached.by;
        neighbours.push(Neighbour {
            id: reached.id.to_string(),
            distance: reached.distance,
            by: format!("{} {} {}", link.from, link.relation, link.to),
            about,
        });
    }
    Ok(neighbours)
}

fn about(memory: Memory) -> String {
    memory.title.unwrap_or_else(|| {
        let line = memory.content.lines().next().unwrap_or_default();
        let end = line.floor_char_boundary(memory::MAX_TITLE);
        format!(
            "{}{}",
            &line[..end],
            if end < memory.content.len() { "…" } else { "" }
        )
    })
}

/// Part of a text around a position.
fn excerpt(text: &str, place: usize) -> String {
    if text.len() <= EXCERPT {
        return text.to_owned();
    }
    let start = text.floor_char_boundary(place.saturating_sub(BEFORE).min(text.len() - EXCERPT));
    let end = text.floor_char_boundary(start + EXCERPT);
    let (before, after) = (
        if start > 0 { "…" } else { "" },
        if end < text.len() { "…" } else { "" },
    );
    format!("{before}{}{after}", &text[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    use toolcell_sdk::serde_json::{Value, json};
    use toolcell_sdk::testing;

    use crate::link::memory_link;
    use crate::remember::memory_store;
    use crate::task::memory_task;

    fn discover(arguments: Value) -> Value {
        let found = testing::call::<memory_discover>(arguments);
        found.unwrap().structured.unwrap()
    }

    fn ids(found: &Value) -> Vec<&str> {
        let matches = found["matches"].as_array().unwrap();
        matches.iter().map(|m| m["id"].as_str().unwrap()).collect()
    }

    fn fill() {
        for memory in [
            json!({"content": "We never deploy on Fridays.", "kind": "decision", "tags": ["ops"]}),
            json!({"content": "The outage of March came from a deployment.", "tags": ["ops", "outage"]}),
            json!({"content": "Ada likes quince jam.", "kind": "preference"}),
        ] {
            testing::call::<memory_store>(memory).unwrap();
        }
        let task = json!({"action": "create", "title": "Write the report"});
        testing::call::<memory_task>(task).unwrap();
        for (from, to) in [("m1", "m2"), ("m2", "t4")] {
            let link = json!({"from": from, "to": to, "relation": "because of"});
            testing::call::<memory_link>(link).unwrap();
        }
    }

    #[test]
    fn matches_are_ranked_and_name_their_words() {
        fill();
        let found = discover(json!({"query": "deploy, friday"}));
        assert_eq!(ids(&found), ["m1", "m2"]);
        assert_eq!(found["total"], 2);
        assert_eq!(found["matches"][0]["matched"], json!(["deploy", "friday"]));
        assert_eq!(found["matches"][1]["matched"], json!(["deploy"]));
        assert_eq!(
            found["matches"][0]["links"],
            json!([{"relation": "because_of", "to": "m2", "strength": 1.0}])
        );
        assert!(found["ranked_by"].as_str().unwrap().starts_with("BM25"));
        assert_eq!(ids(&discover(json!({"query": "outage"}))), ["m2"]);
        assert_eq!(discover(json!({"query": "sailing"}))["total"], 0);
        let found = discover(json!({"query": "deploy ada", "limit": 1}));
        assert_eq!((ids(&found).len(), &found["total"]), (1, &json!(3)));
    }

    #[test]
    fn kind_and_tags_filter_a_search() {
        fill();
        assert_eq!(
            ids(&discover(json!({"query": "deploy ada", "kind": "preference"}))),
            ["m3"]
        );
        assert_eq!(
            ids(&discover(json!({"query": "deploy", "tags": ["outage"]}))),
            ["m2"]
        );
    }

    #[test]
    fn linked_entries_are_shown_up_to_the_depth() {
        fill();
        let neighbours =
            |depth: u32| discover(json!({"query": "friday", "depth": depth}))["neighbours"].clone();
        assert_eq!(neighbours(0), Value::Null);
        let outage = json!({
            "id": "m2",
            "distance": 1,
            "by": "m1 because_of m2",
            "about": "The outage of March came from a deployment.",
        });
        assert_eq!(neighbours(1), json!([outage]));
        let report = json!({
            "id": "t4",
            "distance": 2,
            "by": "m2 because_of t4",
            "about": "Write the report (pending)",
        });
        assert_eq!(neighbours(2), json!([outage, report]));
    }

    #[test]
    fn query_without_words_is_an_error() {
        let error = testing::call::<memory_discover>(json!({"query": "…!"})).unwrap_err();
        assert!(error.message().contains("no words"), "{error}");
    }

    #[test]
    fn excerpt_is_full_up_to_the_limit() {
        let whole = "é".repeat(EXCERPT / 2);
        assert_eq!(excerpt(&whole, 7), whole);
        let long = format!("{}needle{}", "a ".repeat(500), " b".repeat(500));
        let part = excerpt(&long, 1_000);
        assert!(part.starts_with("…a ") && part.contains("needle") && part.ends_with('…'));
        assert_eq!(part.len(), EXCERPT + 2 * "…".len());
        assert!(excerpt(&long, 0).starts_with("a "));
        assert!(excerpt(&long, long.len()).ends_with(" b"));
        for place in 0..whole.len() {
            excerpt(&format!("{whole}é"), place);
        }
    }
}

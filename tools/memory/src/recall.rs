//! The tool `memory_recall`.

use toolcell_sdk::{Result, ToolError, output, serde_json, tool};

use crate::graph;
use crate::id::Id;
use crate::memory::{self, Memory, MemoryView};
use crate::moment;
use crate::storage::Storage;

/// Maximum bytes of content in one answer.
const MAX_ANSWER: usize = 64 << 10;

/// Maximum number of memories in one answer.
const MAX_LIMIT: u32 = 100;

/// Matching memories, and the number of further ones.
#[output]
pub(crate) struct Recalled {
    /// Matching memories, the newest first, or in the order of `ids`.
    memories: Vec<MemoryView>,
    /// Number of further memories; ask for fewer, or narrow it by `kind`, `tags` and time.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: usize,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Read memories whole, with their links: those with given ids, or the newest of a kind, with tags, of a time.
///
/// To find memories by what they say, use `memory_discover`.
#[tool(title = "Recall memories", read_only, idempotent)]
pub(crate) fn memory_recall(
    /// Ids such as `m17`. Nothing else is needed with them.
    #[default(Vec::new())]
    ids: Vec<String>,
    /// Only of this kind.
    kind: Option<String>,
    /// Only those that have all of these tags.
    #[default(Vec::new())]
    tags: Vec<String>,
    /// Only those stored from this date or moment (UTC) on, such as `2026-11-22`.
    since: Option<String>,
    /// Only those stored up to the end of this date or moment (UTC).
    until: Option<String>,
    /// Most memories to read, up to 100.
    #[default(10)]
    limit: u32,
) -> Result<Recalled> {
    let kind = kind.map(|kind| memory::label("kind", &kind)).transpose()?;
    let tags = memory::labels(&tags)?;
    for (name, time) in [("since", &since), ("until", &until)] {
        if let Some(time) = time {
            moment::check(name, time)?;
        }
    }
    let limit = limit.clamp(1, MAX_LIMIT) as usize;
    let storage = Storage::open()?;
    let keys = storage.keys()?;
    let mut found: Vec<(u64, Memory)> = Vec::new();
    let mut left_out = 0;
    if ids.is_empty() {
        let newest: Vec<u64> = keys.memories.iter().rev().copied().collect();
        let mut bytes = 0;
        storage.each_memory(&newest, |number, value| {
            let Ok(memory) = serde_json::from_slice::<Memory>(value) else {
                return Ok(());
            };
            let fits = memory::fits(memory.kind.as_deref(), &memory.tags, kind.as_deref(), &tags)
                && moment::is_between(&memory.created, since.as_deref(), until.as_deref());
            if fits {
                bytes += memory.content.len();
                if found.len() < limit && (bytes <= MAX_ANSWER || found.is_empty()) {
                    found.push((number, memory));
                } else {
                    left_out += 1;
                }
            }
            Ok(())
        })?;
    } else {
        if ids.len() > MAX_LIMIT as usize {
            return Err(ToolError::invalid(format_args!(
                "{} ids are given, at most {MAX_LIMIT} are allowed",
                ids.len()
            )));
        }
        let mut bytes = 0;
        for id in &ids {
            let number = Id::memory(id)?;
            let memory = storage.memory(number)?;
            bytes += memory.content.len();
            if bytes <= MAX_ANSWER || found.is_empty() {
                found.push((number, memory));
            } else {
                left_out += 1;
            }
        }
    }
    let view = |(number, memory)| {
        let links = graph::edges(&storage, &keys, Id::Memory(number))?;
        Ok(MemoryView::new(number, memory, links))
    };
    Ok(Recalled {
        memories: found.into_iter().map(view).collect::<Result<_>>()?,
        left_out,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use toolcell_sdk::serde_json::{Value, json};
    use toolcell_sdk::testing;

    use super::*;

    fn put(number: u64, kind: &str, tags: &[&str], created: &str, content: &str) {
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let memory = Memory::new(content, None, Some(kind), &tags, BTreeMap::new(), created.into());
        Storage::open()
            .unwrap()
            .put_memory(number, &memory.unwrap())
            .unwrap();
    }

    fn recall(arguments: Value) -> Value {
        testing::call::<memory_recall>(arguments)
            .unwrap()
            .structured
            .unwrap()
    }

    fn ids(arguments: Value) -> Vec<String> {
        let recalled = recall(arguments);
        let memories = recalled["memories"].as_array().unwrap();
        memories
            .iter()
            .map(|memory| memory["id"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn newest_come_first_and_filters_apply() {
        put(1, "fact", &["a", "b"], "2026-01-01T10:00:00Z", "one");
        put(2, "decision", &["a"], "2026-02-01T10:00:00Z", "two");
        put(3, "fact", &["b"], "2026-03-01T10:00:00Z", "three");
        assert_eq!(ids(json!({})), ["m3", "m2", "m1"]);
        assert_eq!(ids(json!({"kind": "FACT"})), ["m3", "m1"]);
        assert_eq!(ids(json!({"tags": ["#b", "a"]})), ["m1"]);
        assert_eq!(ids(json!({"since": "2026-02-01"})), ["m3", "m2"]);
        assert_eq!(ids(json!({"since": "2026-01-02", "until": "2026-02-01"})), ["m2"]);
        assert_eq!(ids(json!({"ids": ["m2", "m1"]})), ["m2", "m1"]);
        assert_eq!(recall(json!({"limit": 2}))["left_out"], 1);
        assert_eq!(recall(json!({"kind": "none"})), json!({"memories": []}));
    }

    #[test]
    fn answer_is_limited_to_64_kib_of_content() {
        let part = "x".repeat(MAX_ANSWER / 4);
        for number in 1..=4 {
            put(number, "k", &[], "2026-01-01T10:00:00Z", &part);
        }
        assert_eq!(recall(json!({})).get("left_out"), None);
        put(5, "k", &[], "2026-01-01T10:00:00Z", "y");
        assert_eq!(recall(json!({}))["left_out"], 1);
        assert_eq!(
            recall(json!({"ids": ["m1", "m2", "m3", "m4", "m5"]}))["left_out"],
            1
        );
    }

    #[test]
    fn missing_id_or_invalid_time_is_an_error() {
        for (arguments, says) in [
            (json!({"ids": ["m7"]}), "there is no memory `m7`"),
            (json!({"ids": ["x"]}), "invalid id `x`"),
            (json!({"since": "yesterday"}), "`since` is neither a date"),
            (json!({"ids": vec!["m1"; 101]}), "at most 100"),
        ] {
            let error = testing::call::<memory_recall>(arguments).unwrap_err();
            assert!(error.message().contains(says), "{error}");
        }
    }
}

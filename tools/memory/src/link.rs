//! The tool `memory_link`.

use toolcell_sdk::{Result, ToolError, output, tool};

use crate::graph::Link;
use crate::memory::label;
use crate::storage::Storage;

/// Link after the call.
#[output]
pub(crate) struct Linked {
    from: String,
    relation: String,
    to: String,
    /// From 0 to 1.
    strength: f64,
    /// State of the link: new, changed, unchanged, removed, or missing when it was to be removed.
    result: &'static str,
}

/// Say how one memory or task relates to another, so that finding one finds the other.
#[tool(title = "Link memories", destructive, idempotent)]
pub(crate) fn memory_link(
    /// Id of the memory or task where the link starts.
    #[alias("source")]
    from: String,
    /// Id of the memory or task where it leads to.
    #[alias("target", "destination")]
    to: String,
    /// Relation, read from `from` to `to`: `because_of`, `part_of`, `contradicts`.
    relation: String,
    /// Strength, from 0 to 1.
    #[default(1.0)]
    strength: f64,
    /// Remove this link instead.
    #[default(false)]
    remove: bool,
) -> Result<Linked> {
    let link = Link {
        from: from.parse()?,
        relation: label("relation", &relation)?,
        to: to.parse()?,
    };
    if link.from == link.to {
        return Err(ToolError::invalid("a link needs two different ends"));
    }
    if !(0.0..=1.0).contains(&strength) {
        return Err(ToolError::invalid("`strength` must be between 0 and 1"));
    }
    let storage = Storage::open()?;
    let keys = storage.keys()?;
    storage.has(link.from, &keys)?;
    storage.has(link.to, &keys)?;
    let is_there = keys.links.contains(&link);
    let result = match (remove, is_there) {
        (true, true) => {
            storage.remove_link(&link)?;
            "removed"
        }
        (true, false) => "not there",
        (false, true) if storage.strengths(&[&link])? == [strength] => "unchanged",
        (false, is_there) => {
            storage.put_link(&link, strength)?;
            if is_there { "changed" } else { "new" }
        }
    };
    Ok(Linked {
        from: link.from.to_string(),
        relation: link.relation,
        to: link.to.to_string(),
        strength,
        result,
    })
}

#[cfg(test)]
mod tests {
    use toolcell_sdk::serde_json::{Value, json};
    use toolcell_sdk::testing;

    use super::*;
    use crate::recall::memory_recall;
    use crate::remember::memory_store;

    fn link(arguments: Value) -> Result<Value> {
        Ok(testing::call::<memory_link>(arguments)?.structured.unwrap())
    }

    fn two_memories() {
        for content in ["one", "two"] {
            testing::call::<memory_store>(json!({"content": content})).unwrap();
        }
    }

    #[test]
    fn link_is_visible_from_both_ends_and_idempotent() {
        two_memories();
        let made = |strength: f64| {
            let arguments = json!({"from": "m1", "to": "m2", "relation": " Part of ", "strength": strength});
            link(arguments).unwrap()["result"].clone()
        };
        assert_eq!(made(0.5), "new");
        assert_eq!(made(0.5), "unchanged");
        assert_eq!(made(0.25), "changed");
        let read = testing::call::<memory_recall>(json!({"ids": ["m1", "m2"]})).unwrap();
        let memories = read.structured.unwrap()["memories"].clone();
        let edge = |end: &str, other: &str| json!([{"relation": "part_of", end: other, "strength": 0.25}]);
        assert_eq!(memories[0]["links"], edge("to", "m2"));
        assert_eq!(memories[1]["links"], edge("from", "m1"));
    }

    #[test]
    fn link_can_be_removed() {
        two_memories();
        let same = |remove: bool| json!({"from": "m1", "to": "m2", "relation": "r", "remove": remove});
        link(same(false)).unwrap();
        assert_eq!(link(same(true)).unwrap()["result"], "removed");
        assert_eq!(link(same(true)).unwrap()["result"], "not there");
    }

    #[test]
    fn ends_must_exist_and_differ() {
        two_memories();
        for (from, to, relation, strength, says) in [
            ("m1", "m3", "r", 1.0, "there is no memory `m3`"),
            ("t1", "m1", "r", 1.0, "there is no task `t1`"),
            ("m1", "m1", "r", 1.0, "two different ends"),
            ("m1", "m2", "a/b", 1.0, "cannot be a relation"),
            ("m1", "m2", "r", 1.5, "between 0 and 1"),
            ("m1", "x", "r", 1.0, "invalid id `x`"),
        ] {
            let error = link(json!({"from": from, "to": to, "relation": relation, "strength": strength}));
            let error = error.unwrap_err();
            assert!(error.message().contains(says), "{error}");
        }
    }
}

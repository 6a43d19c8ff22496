//! The tool `memory_store`.

use std::collections::BTreeMap;

use toolcell_sdk::{Result, log, output, tool};

use crate::id::Id;
use crate::index;
use crate::memory::Memory;
use crate::moment;
use crate::storage::Storage;

/// Result of storing a memory.
#[output]
pub(crate) struct Stored {
    /// Its id, for `memory_recall` and `memory_link`.
    id: String,
    /// True if it replaced the memory with this id.
    replaced: bool,
}

/// Remember something beyond this session: a fact, a decision, a preference, how something was solved.
///
/// One memory, one matter. Look with `memory_discover` first whether it is known already, and replace what is out of date.
#[tool(title = "Store a memory", destructive)]
pub(crate) fn memory_store(
    /// Text to remember, in words that make sense on their own later.
    #[alias("text", "memory")]
    content: String,
    /// Subject, in a few words.
    title: Option<String>,
    /// Kind, in one word, such as `fact`, `decision`, `preference`.
    kind: Option<String>,
    /// Words to find it by.
    #[default(Vec::new())]
    tags: Vec<String>,
    /// More about it, by name, such as `{"source": "README.md"}`.
    #[default(BTreeMap::new())]
    properties: BTreeMap<String, String>,
    /// Replace the memory with this id, as a whole; its links stay.
    id: Option<String>,
) -> Result<Stored> {
    let now = moment::now();
    let mut memory = Memory::new(
        &content,
        title.as_deref(),
        kind.as_deref(),
        &tags,
        properties,
        now.clone(),
    )?;
    let replaces = id.as_deref().map(Id::memory).transpose()?;
    let storage = Storage::open()?;
    let entry;
    let number = match replaces {
        Some(number) => {
            let replaced = storage.memory(number)?;
            entry = storage.draw()?;
            memory.created = replaced.created;
            memory.updated = Some(now);
            memory.version = entry;
            storage.replace_memory(number, &memory, replaced.version)?;
            number
        }
        None => {
            entry = storage.draw()?;
            storage.put_memory(entry, &memory)?;
            entry
        }
    };
    // It is stored: a search without an index finds it as well.
    if let Err(error) = index::extend(&storage, entry) {
        log::warn(error.context("the index of memories was not extended"));
    }
    Ok(Stored {
        id: Id::Memory(number).to_string(),
        replaced: replaces.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use toolcell_sdk::serde_json::json;
    use toolcell_sdk::testing;

    use super::*;
    use crate::recall::memory_recall;

    #[test]
    fn replacing_a_memory_keeps_its_id_and_creation_time() {
        let store = |arguments| testing::call::<memory_store>(arguments).map(|o| o.structured.unwrap());
        assert_eq!(
            store(json!({"content": "The sky is green."})),
            Ok(json!({"id": "m1", "replaced": false}))
        );
        assert_eq!(store(json!({"content": "Same."})).unwrap()["id"], "m2");
        let created = Storage::open().unwrap().memory(1).unwrap().created;
        assert_eq!(
            store(json!({"content": "The sky is blue.", "id": "m1", "kind": "Fact"})),
            Ok(json!({"id": "m1", "replaced": true}))
        );
        let read = testing::call::<memory_recall>(json!({"ids": ["m1"]})).unwrap();
        let memory = &read.structured.unwrap()["memories"][0];
        assert_eq!(memory["content"], "The sky is blue.");
        assert_eq!(memory["kind"], "fact");
        assert_eq!(memory["created"], created);
        assert!(memory["updated"].is_string());
    }

    #[test]
    fn invalid_memory_is_refused_and_not_stored() {
        for (arguments, says) in [
            (json!({"content": " "}), "`content` is empty"),
            (json!({"content": "x", "tags": ["a/b"]}), "`a/b` cannot be a tag"),
            (json!({"content": "x", "id": "m9"}), "there is no memory `m9`"),
            (json!({"content": "x", "id": "t1"}), "`t1` is a task"),
        ] {
            let error = testing::call::<memory_store>(arguments).unwrap_err();
            assert!(error.message().contains(says), "{error}");
        }
        assert_eq!(
            Storage::open().unwrap().keys().unwrap(),
            crate::storage::Keys::default()
        );
    }
}

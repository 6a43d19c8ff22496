//! `memory_store`.

use std::collections::BTreeMap;

use toolcell_sdk::{Result, output, tool};

use crate::id::Id;
use crate::memory::Memory;
use crate::moment;
use crate::shelf::Shelf;

/// What was stored.
#[output]
pub(crate) struct Stored {
    /// Its id, for `memory_recall` and `memory_link`.
    id: String,
    /// Whether it replaced what was there under this id.
    replaced: bool,
}

/// Remember something beyond this session: a fact, a decision, a preference, how something was solved.
///
/// One memory, one matter. Look with `memory_discover` first whether it is known already, and replace what is out of date.
#[tool(title = "Store a memory", output = Stored)]
pub(crate) fn memory_store(
    /// What to remember, in words that make sense on their own later.
    content: String,
    /// What it is about, in a few words.
    title: Option<String>,
    /// What kind of thing it is, in one word, such as `fact`, `decision`, `preference`.
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
    let shelf = Shelf::open()?;
    let number = match replaces {
        Some(number) => {
            memory.created = shelf.memory(number)?.created;
            memory.updated = Some(now);
            number
        }
        None => shelf.draw()?,
    };
    shelf.put_memory(number, &memory)?;
    Ok(Stored {
        id: Id::Memory(number).to_string(),
        replaced: replaces.is_some(),
    })
}

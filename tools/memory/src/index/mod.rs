//! Index of memories by their words: a search reads the words of its query instead of every memory.
//!
//! | key | value |
//! |---|---|
//! | `i/44/texts` | the memories of segment 44, with versions and lengths |
//! | `i/44/7` | words of shard 7 of this segment, with the memories that have them |
//! | `v/17/43` | marker: change 43 replaced memory 17, and is its version |
//! | `index` | number of the entry with which the index is extended next |
//!
//! A segment is written in one operation and never changed. The index is a cache, and a search does not depend on it: an
//! entry counts only for the version of the memory that the keys name, and a memory without a valid entry, or of a segment
//! that is missing, damaged or of another format, is read itself. Storing extends the index: also the first times after an
//! update of this tool, for memories that are older than the index.

mod build;
mod search;
mod segment;
#[cfg(test)]
mod tests;

pub(crate) use build::extend;
pub(crate) use search::{Filter, rank};
pub(crate) use segment::{Text, texts, texts_key};

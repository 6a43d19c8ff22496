//! Extension of the index.

use std::collections::BTreeSet;

use toolcell_sdk::{Result, serde_json};

use super::segment::{self, Counted};
use crate::memory::{self, Searched};
use crate::storage::{Keys, Storage};

/// Number of memories without an entry from which the index is extended: reading them takes a search a few milliseconds.
const MIN_TEXTS: usize = 1_024;

/// Maximum number of memories of a segment, and of bytes of their stored form: a segment is in memory several times while
/// it is made.
const MAX_TEXTS: usize = 2_048;
const MAX_BYTES: usize = 1 << 20;

/// Maximum number of segments in one call, so that no call takes much longer than others: 100,000 older memories are
/// indexed by 13 calls.
const MAX_SEGMENTS: usize = 4;

/// Extends the index, if it is due, after an entry was stored.
///
/// # Errors
/// Fails if the bucket cannot be read or is full. Nothing depends on the index, so that the entry is stored nevertheless.
pub(crate) fn extend(storage: &Storage, entry: u64) -> Result<()> {
    // An older bucket has no such key, and few entries need no index.
    if entry < storage.index_due()?.unwrap_or(MIN_TEXTS as u64) {
        return Ok(());
    }
    let keys = storage.keys()?;
    let mut left = clean(storage, &keys)?;
    let before = left.len();
    if before >= MIN_TEXTS {
        for _ in 0..MAX_SEGMENTS {
            let texts = take(storage, &keys, &mut left)?;
            write(storage, &texts)?;
        }
    }
    // If memories are left, the next entry continues; unless they are no memories that could be indexed.
    let wait = if left.len() < before && left.len() >= MIN_TEXTS {
        1
    } else {
        MIN_TEXTS.saturating_sub(left.len()).max(MIN_TEXTS / 4) as u64
    };
    storage.put_index_due(entry.saturating_add(wait))
}

/// Deletes segments that are damaged or mostly out of date. Returns the memories without an entry.
fn clean(storage: &Storage, keys: &Keys) -> Result<Vec<u64>> {
    let mut indexed: BTreeSet<u64> = BTreeSet::new();
    let segments = storage.segments(keys)?;
    let mut gone: BTreeSet<u64> = keys.segments.clone();
    for (segment, texts) in segments.iter().rev() {
        let is_valid = |number: &u64, version: u64| {
            keys.memories.contains(number)
                && keys.version(*number) == Some(version)
                && !indexed.contains(number)
        };
        let valid: Vec<u64> = texts
            .iter()
            .filter(|text| is_valid(&text.number, text.version))
            .map(|text| text.number)
            .collect();
        if !valid.is_empty() && valid.len() * 2 >= texts.len() {
            gone.remove(segment);
            indexed.extend(valid);
        }
    }
    for segment in gone {
        storage.remove_many(&segment::keys(segment))?;
    }
    Ok(keys.memories.difference(&indexed).copied().collect())
}

/// Reads memories for one segment, the oldest first. Those that cannot be indexed are passed over.
fn take(storage: &Storage, keys: &Keys, left: &mut Vec<u64>) -> Result<Vec<Counted>> {
    let mut texts = Vec::new();
    let (mut bytes, mut read) = (0, 0);
    for numbers in left.chunks(Storage::BATCH) {
        if texts.len() + numbers.len() > MAX_TEXTS || bytes >= MAX_BYTES {
            break;
        }
        read += numbers.len();
        let mut superseded = Vec::new();
        storage.each_memory(numbers, |number, value| {
            let Ok(text) = serde_json::from_slice::<Searched<'_>>(value) else {
                return Ok(());
            };
            // All markers that are listed were written before this was read, so that all others are out of date. A memory
            // without a version was written by an older tool, and is not indexed while it has a marker.
            let markers = keys.versions.get(&number).into_iter().flatten();
            superseded.extend(
                markers
                    .filter(|marker| text.version > 0 && **marker != text.version)
                    .map(|marker| Storage::version_key(number, *marker)),
            );
            if text.content.len() <= memory::MAX_CONTENT && keys.version(number) == Some(text.version) {
                bytes += value.len();
                texts.push(Counted::new(number, text.version, &text));
            }
            Ok(())
        })?;
        for superseded in superseded.chunks(Storage::BATCH) {
            storage.remove_many(superseded)?;
        }
    }
    left.drain(..read);
    Ok(texts)
}

/// Writes a segment, or two if one would be too large.
fn write(storage: &Storage, texts: &[Counted]) -> Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    let segment = storage.draw()?;
    match segment::encode(segment, texts) {
        Some(pairs) => storage.put_many(&pairs),
        None if texts.len() > 1 => {
            let (some, others) = texts.split_at(texts.len() / 2);
            write(storage, some)?;
            write(storage, others)
        }
        // It is read by each search.
        None => Ok(()),
    }
}

//! Storage of all data in one bucket.
//!
//! | key | value |
//! |---|---|
//! | `next` | the last number; an atomic counter, so that identifiers are unique |
//! | `m/17` | a memory |
//! | `l/m17/because_of/t18` | a link, with its strength |
//! | `t/18/19` | a change of a task, with the number of the change; a task is the result of its changes |
//!
//! The graph is read from the keys. Links and changes of tasks have keys of their own, so that concurrent calls never
//! overwrite each other. The keys of the index are described there (`index`).

use std::collections::{BTreeMap, BTreeSet};

use toolcell_sdk::keyvalue::Bucket;
use toolcell_sdk::serde::{Deserialize, Serialize};
use toolcell_sdk::{ErrorKind, Result, ToolError, serde_json};

use crate::graph::Link;
use crate::id::Id;
use crate::index::{self, Text};
use crate::memory::Memory;

/// Bucket. A grant can map another bucket of the host to this name: `keyvalue=shop:memory`.
const BUCKET: &str = "memory";

/// Open bucket.
pub(crate) struct Storage(Bucket);

/// Contents of the bucket, by its keys.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Keys {
    pub(crate) memories: BTreeSet<u64>,
    /// Tasks, with the numbers of their changes in order.
    pub(crate) tasks: BTreeMap<u64, BTreeSet<u64>>,
    /// Links between existing entries.
    pub(crate) links: BTreeSet<Link>,
    /// Numbers of the changes that replaced a memory; all but the last one of them may be deleted.
    pub(crate) versions: BTreeMap<u64, BTreeSet<u64>>,
    /// Segments of the index.
    pub(crate) segments: BTreeSet<u64>,
}

/// Stored value of a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(crate = "toolcell_sdk::serde")]
pub(crate) struct Strength {
    pub(crate) strength: f64,
}

impl Storage {
    /// Values per read: 128 memories of the maximum size have about 7 MiB.
    pub(crate) const BATCH: usize = 128;

    pub(crate) fn open() -> Result<Self> {
        Ok(Self(Bucket::open(BUCKET)?))
    }

    /// Draws a unique number.
    pub(crate) fn draw(&self) -> Result<u64> {
        self.0.increment("next", 1).map_err(full)
    }

    /// Reads all keys.
    pub(crate) fn keys(&self) -> Result<Keys> {
        Ok(Keys::of(&self.0.keys()?))
    }

    pub(crate) fn has(&self, id: Id, keys: &Keys) -> Result<()> {
        let is_there = match id {
            Id::Memory(number) => keys.memories.contains(&number),
            Id::Task(number) => keys.tasks.contains_key(&number),
        };
        if is_there { Ok(()) } else { Err(missing(id)) }
    }

    pub(crate) fn memory(&self, number: u64) -> Result<Memory> {
        let id = Id::Memory(number);
        let value = self.0.get(&memory_key(number))?.ok_or_else(|| missing(id))?;
        serde_json::from_slice(&value).map_err(|_| ToolError::failed(format_args!("`{id}` cannot be read")))
    }

    pub(crate) fn put_memory(&self, number: u64, memory: &Memory) -> Result<()> {
        self.put(&memory_key(number), memory)
    }

    /// Replaces a memory. `before` is the version that was read.
    pub(crate) fn replace_memory(&self, number: u64, memory: &Memory, before: u64) -> Result<()> {
        let value = serde_json::to_vec(memory)?;
        let marker = (Self::version_key(number, memory.version), Vec::new());
        self.put_many(&[(memory_key(number), value), marker])?;
        if before > 0 {
            self.0.delete(&Self::version_key(number, before))?;
        }
        Ok(())
    }

    /// Key of the marker of a replacement.
    pub(crate) fn version_key(number: u64, version: u64) -> String {
        format!("v/{number}/{version}")
    }

    /// Reads the segments of the index, the oldest first, without those that are damaged.
    pub(crate) fn segments(&self, keys: &Keys) -> Result<Vec<(u64, Vec<Text>)>> {
        let all: Vec<u64> = keys.segments.iter().copied().collect();
        let mut segments = Vec::with_capacity(all.len());
        for some in all.chunks(Self::BATCH) {
            let keys: Vec<String> = some.iter().map(|segment| index::texts_key(*segment)).collect();
            for (segment, value) in some.iter().zip(self.values(&keys)) {
                if let Some(texts) = value.and_then(|value| index::texts(&value).ok()) {
                    segments.push((*segment, texts));
                }
            }
        }
        Ok(segments)
    }

    /// Reads values of the index; those that cannot be read are missing.
    pub(crate) fn values(&self, keys: &[String]) -> Vec<Option<Vec<u8>>> {
        let values = self.0.get_many(keys);
        values.unwrap_or_else(|_| vec![None; keys.len()])
    }

    /// Number of the entry with which the index is extended next.
    pub(crate) fn index_due(&self) -> Result<Option<u64>> {
        let value = self.0.get("index")?;
        Ok(value.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok()))
    }

    pub(crate) fn put_index_due(&self, entry: u64) -> Result<()> {
        self.0.set("index", entry.to_string().as_bytes())
    }

    /// Sets several values in one operation.
    pub(crate) fn put_many(&self, pairs: &[(String, Vec<u8>)]) -> Result<()> {
        self.0.set_many(pairs).map_err(full)
    }

    /// Removes several keys in one operation.
    pub(crate) fn remove_many(&self, keys: &[String]) -> Result<()> {
        self.0.delete_many(keys)
    }

    /// Reads memories in order, skipping those that no longer exist.
    pub(crate) fn each_memory(
        &self,
        numbers: &[u64],
        mut each: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        for numbers in numbers.chunks(Self::BATCH) {
            let keys: Vec<String> = numbers.iter().map(|number| memory_key(*number)).collect();
            for (number, value) in numbers.iter().zip(self.0.get_many(&keys)?) {
                if let Some(value) = value {
                    each(*number, &value)?;
                }
            }
        }
        Ok(())
    }

    /// Strengths of some links; 1 if unknown.
    pub(crate) fn strengths(&self, links: &[&Link]) -> Result<Vec<f64>> {
        let mut strengths = Vec::with_capacity(links.len());
        for links in links.chunks(Self::BATCH) {
            let keys: Vec<String> = links.iter().map(|link| link.key()).collect();
            strengths.extend(self.0.get_many(&keys)?.into_iter().map(|value| {
                let kept = value.and_then(|value| serde_json::from_slice::<Strength>(&value).ok());
                kept.map_or(1.0, |kept| kept.strength)
            }));
        }
        Ok(strengths)
    }

    pub(crate) fn put_link(&self, link: &Link, strength: f64) -> Result<()> {
        self.put(&link.key(), &Strength { strength })
    }

    pub(crate) fn remove_link(&self, link: &Link) -> Result<()> {
        self.0.delete(&link.key())
    }

    /// Changes of some tasks, in order.
    pub(crate) fn changes<T: for<'a> Deserialize<'a>>(&self, keys: &Keys) -> Result<BTreeMap<u64, Vec<T>>> {
        let all: Vec<(u64, u64)> = (keys.tasks.iter())
            .flat_map(|(task, changes)| changes.iter().map(|change| (*task, *change)))
            .collect();
        let mut of_tasks: BTreeMap<u64, Vec<T>> = BTreeMap::new();
        for some in all.chunks(Self::BATCH) {
            let keys: Vec<String> = some
                .iter()
                .map(|(task, change)| change_key(*task, *change))
                .collect();
            for ((task, _), value) in some.iter().zip(self.0.get_many(&keys)?) {
                if let Some(change) = value.and_then(|value| serde_json::from_slice(&value).ok()) {
                    of_tasks.entry(*task).or_default().push(change);
                }
            }
        }
        Ok(of_tasks)
    }

    pub(crate) fn put_change(&self, task: u64, number: u64, change: &impl Serialize) -> Result<()> {
        self.put(&change_key(task, number), change)
    }

    /// Deletes a task with its changes and links, in one operation.
    pub(crate) fn remove_task(&self, task: u64, keys: &Keys) -> Result<()> {
        let changes = keys.tasks.get(&task).into_iter().flatten();
        let mut gone: Vec<String> = changes.map(|change| change_key(task, *change)).collect();
        let links = keys.links.iter().filter(|link| link.touches(Id::Task(task)));
        gone.extend(links.map(Link::key));
        // One operation has at most a thousand keys; the changes are deleted first, and with them the task.
        for gone in gone.chunks(1_000) {
            self.0.delete_many(gone)?;
        }
        Ok(())
    }

    fn put(&self, key: &str, value: &impl Serialize) -> Result<()> {
        self.0.set(key, &serde_json::to_vec(value)?).map_err(full)
    }
}

impl Keys {
    /// Version of a memory. Of two, the keys do not tell which one the memory has.
    pub(crate) fn version(&self, memory: u64) -> Option<u64> {
        match self.versions.get(&memory) {
            None => Some(0),
            Some(versions) => versions.first().copied().filter(|_| versions.len() == 1),
        }
    }

    fn of(keys: &[String]) -> Self {
        let mut all = Self::default();
        let mut links = Vec::new();
        for key in keys {
            // Nearly all keys are those of memories.
            if let Some(number) = key.strip_prefix("m/") {
                all.memories.extend(number.parse::<u64>());
                continue;
            }
            let mut parts = [""; 4];
            let mut count = 0;
            for part in key.split('/') {
                if let Some(place) = parts.get_mut(count) {
                    *place = part;
                }
                count += 1;
            }
            match *parts.get(..count).unwrap_or_default() {
                ["v", memory, version] => {
                    if let (Ok(memory), Ok(version)) = (memory.parse(), version.parse()) {
                        all.versions.entry(memory).or_default().insert(version);
                    }
                }
                ["i", segment, "texts"] => all.segments.extend(segment.parse::<u64>()),
                ["t", task, change] => {
                    if let (Ok(task), Ok(change)) = (task.parse(), change.parse()) {
                        all.tasks.entry(task).or_default().insert(change);
                    }
                }
                ["l", from, relation, to] => {
                    if let (Ok(from), Ok(to)) = (from.parse(), to.parse()) {
                        links.push(Link {
                            from,
                            relation: relation.to_owned(),
                            to,
                        });
                    }
                }
                _ => {}
            }
        }
        // The first change of a task has its number. Without it, the task was deleted during a change.
        all.tasks.retain(|task, changes| changes.contains(task));
        let is_there = |id: &Id| match id {
            Id::Memory(number) => all.memories.contains(number),
            Id::Task(number) => all.tasks.contains_key(number),
        };
        links.retain(|link| is_there(&link.from) && is_there(&link.to));
        all.links.extend(links);
        all
    }
}

fn memory_key(number: u64) -> String {
    format!("m/{number}")
}

fn change_key(task: u64, change: u64) -> String {
    format!("t/{task}/{change}")
}

fn missing(id: Id) -> ToolError {
    match id {
        Id::Memory(_) => ToolError::failed(format_args!(
            "there is no memory `{id}`; `memory_discover` finds memories by their words"
        )),
        Id::Task(_) => ToolError::failed(format_args!(
            "there is no task `{id}`; `memory_tasks` lists tasks"
        )),
    }
}

/// Adds the remedy to the error of a full bucket.
fn full(error: ToolError) -> ToolError {
    if error.kind() == ErrorKind::Failed && error.message().contains("is full") {
        return ToolError::failed(format_args!(
            "nothing more can be kept: {}; replace memories that are out of date (`memory_store` with `id`) or delete \
             tasks",
            error.message()
        ));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_and_foreign_ones_ignored() {
        let keys = [
            "next",
            "m/2",
            "m/1",
            "m/x",
            "t/3/3",
            "t/3/5",
            "t/4/6",
            "t/y/1",
            "l/m1/a/t3",
            "l/m1/a/m9",
            "l/m1/a/t4",
            "l/m1/a",
            "other",
        ]
        .map(String::from);
        let keys = Keys::of(&keys);
        assert_eq!(keys.memories, BTreeSet::from([1, 2]));
        assert_eq!(keys.tasks, BTreeMap::from([(3, BTreeSet::from([3, 5]))]));
        let link = Link {
            from: Id::Memory(1),
            relation: "a".into(),
            to: Id::Task(3),
        };
        assert_eq!(keys.links, BTreeSet::from([link]));
    }
}

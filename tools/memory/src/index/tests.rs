//! The index finds what reading every memory finds, whatever happened to it.

use std::collections::BTreeMap;

use toolcell_sdk::serde_json::{Value, json};
use toolcell_sdk::testing;

use super::*;
use crate::discover::memory_discover;
use crate::memory::Memory;
use crate::rank::{Query, Ranking};
use crate::remember::memory_store;
use crate::storage::{Keys, Storage};

const WORDS: [&str; 12] = [
    "deploy",
    "deployment",
    "deploys",
    "friday",
    "Ada",
    "quince",
    "東京都",
    "京",
    "a",
    "the",
    "müller",
    "don't",
];

fn memory(number: usize) -> Memory {
    let word = |i: usize| WORDS[(number * 7 + i * i * (number % 5 + 1)) % WORDS.len()];
    let content: Vec<&str> = (0..number % 9 + 1).map(word).collect();
    let title = number.is_multiple_of(3).then(|| word(number));
    let kind = number.is_multiple_of(4).then_some("fact");
    let tags = if number.is_multiple_of(5) {
        vec!["ops".to_owned(), format!("t{}", number % 3)]
    } else {
        Vec::new()
    };
    Memory::new(
        &content.join(" "),
        title,
        kind,
        &tags,
        BTreeMap::new(),
        "2026-01-01".into(),
    )
    .unwrap()
}

/// Stores memories as an older version of the tool did, without an index.
fn fill(storage: &Storage, count: usize) {
    for number in 1..=count {
        assert_eq!(storage.draw().unwrap(), number as u64);
        storage.put_memory(number as u64, &memory(number)).unwrap();
    }
}

fn store(arguments: Value) {
    testing::call::<memory_store>(arguments).unwrap();
}

/// Number of memories that a search has to read.
fn unindexed(storage: &Storage, keys: &Keys) -> usize {
    let query = Query::new("deploy");
    let filter = Filter {
        kind: None,
        tags: &[],
    };
    let mut ranking = Ranking::new(&query);
    rank(storage, keys, &query, &filter, &mut ranking).unwrap().len()
}

fn searches() -> Vec<Value> {
    let mut found = Vec::new();
    for query in [
        "deploy",
        "deploying friday",
        "京",
        "東京 京",
        "a the quince",
        "ada müll",
        "dont",
    ] {
        for filter in [
            json!({}),
            json!({"kind": "fact"}),
            json!({"tags": ["ops", "t1"]}),
            json!({"kind": "fact", "tags": ["ops"]}),
            json!({"tags": ["none"]}),
        ] {
            let mut arguments = json!({"query": query, "limit": 50});
            arguments
                .as_object_mut()
                .unwrap()
                .extend(filter.as_object().unwrap().clone());
            found.push(
                testing::call::<memory_discover>(arguments)
                    .unwrap()
                    .structured
                    .unwrap(),
            );
        }
    }
    found
}

/// Compares searches with the index with those without one.
fn assert_index_changes_nothing(storage: &Storage) {
    let with = searches();
    let keys = storage.keys().unwrap();
    let of_segment = |segment: &u64| storage.values(&segment::keys(*segment));
    let values: Vec<_> = keys.segments.iter().map(of_segment).collect();
    for segment in &keys.segments {
        storage.remove_many(&segment::keys(*segment)).unwrap();
    }
    let bare = storage.keys().unwrap();
    assert_eq!(unindexed(storage, &bare), bare.memories.len());
    assert_eq!(with, searches());
    for (segment, values) in keys.segments.iter().zip(values) {
        let pairs = segment::keys(*segment).into_iter().zip(values);
        let pairs: Vec<_> = pairs.filter_map(|(key, value)| Some((key, value?))).collect();
        storage.put_many(&pairs).unwrap();
    }
    assert_eq!(storage.keys().unwrap(), keys);
}

#[test]
fn older_memories_are_indexed_and_found_as_before() {
    let storage = Storage::open().unwrap();
    fill(&storage, 1_500);
    store(json!({"content": "Deploy on Friday"}));
    let keys = storage.keys().unwrap();
    assert_eq!((keys.segments.len(), unindexed(&storage, &keys)), (1, 0));
    assert_index_changes_nothing(&storage);
}

#[test]
fn index_is_made_from_1024_memories_on() {
    let storage = Storage::open().unwrap();
    fill(&storage, 1_022);
    store(json!({"content": "one"}));
    assert!(storage.keys().unwrap().segments.is_empty());
    store(json!({"content": "two"}));
    assert_eq!(unindexed(&storage, &storage.keys().unwrap()), 0);
    for _ in 0..10 {
        store(json!({"content": "later"}));
    }
    let keys = storage.keys().unwrap();
    assert_eq!((keys.segments.len(), unindexed(&storage, &keys)), (1, 10));
    assert_index_changes_nothing(&storage);
}

#[test]
fn one_call_indexes_four_segments_and_the_next_goes_on() {
    let storage = Storage::open().unwrap();
    fill(&storage, 10_000);
    store(json!({"content": "x"}));
    let keys = storage.keys().unwrap();
    assert_eq!(
        (keys.segments.len(), unindexed(&storage, &keys)),
        (4, 10_001 - 4 * 2_048)
    );
    store(json!({"content": "x"}));
    let keys = storage.keys().unwrap();
    assert_eq!((keys.segments.len(), unindexed(&storage, &keys)), (5, 0));
}

#[test]
fn replaced_memory_is_read_until_it_is_indexed_again() {
    let storage = Storage::open().unwrap();
    fill(&storage, 1_100);
    store(json!({"content": "x"}));
    for _ in 0..2 {
        store(json!({"content": "An aardvark", "id": "m7"}));
    }
    let keys = storage.keys().unwrap();
    assert_eq!(keys.versions[&7].len(), 1);
    assert_eq!(unindexed(&storage, &keys), 1);
    assert_index_changes_nothing(&storage);
    let aardvark = testing::call::<memory_discover>(json!({"query": "aardvark"})).unwrap();
    assert_eq!(aardvark.structured.unwrap()["matches"][0]["id"], "m7");
    for _ in 0..1_500 {
        store(json!({"content": "later"}));
    }
    let keys = storage.keys().unwrap();
    assert!(keys.segments.len() == 2 && unindexed(&storage, &keys) < 1_024);
    assert_index_changes_nothing(&storage);
}

#[test]
fn memory_with_two_markers_is_read_and_then_indexed() {
    let storage = Storage::open().unwrap();
    fill(&storage, 1_100);
    store(json!({"content": "x"}));
    // Two calls replace the memory at once; the one with the smaller number is the last.
    let (first, second) = (storage.draw().unwrap(), storage.draw().unwrap());
    let replacement = |version, content: &str| Memory {
        version,
        content: content.into(),
        ..memory(7)
    };
    storage.replace_memory(7, &replacement(second, "emu"), 0).unwrap();
    storage
        .replace_memory(7, &replacement(first, "aardvark"), 0)
        .unwrap();
    let keys = storage.keys().unwrap();
    assert_eq!((keys.version(7), unindexed(&storage, &keys)), (None, 1));
    assert_index_changes_nothing(&storage);
    for _ in 0..2_400 {
        store(json!({"content": "later"}));
    }
    assert_eq!(storage.keys().unwrap().version(7), Some(first));
    assert_index_changes_nothing(&storage);
}

#[test]
fn damaged_segment_is_not_used_and_made_again() {
    let storage = Storage::open().unwrap();
    fill(&storage, 1_100);
    store(json!({"content": "x"}));
    let keys = storage.keys().unwrap();
    let segment = *keys.segments.first().unwrap();
    let all = segment::keys(segment);
    let before = searches();
    for (key, value) in all.iter().zip(storage.values(&all)).step_by(4) {
        let mut damaged = value.clone().unwrap();
        *damaged.last_mut().unwrap() ^= 1;
        storage.put_many(&[(key.clone(), damaged)]).unwrap();
        assert_eq!(searches(), before, "{key}");
        storage.remove_many(std::slice::from_ref(key)).unwrap();
        assert_eq!(searches(), before, "{key}");
        storage.put_many(&[(key.clone(), value.unwrap())]).unwrap();
    }
    storage
        .put_many(&[(segment::texts_key(segment), b"?".to_vec())])
        .unwrap();
    storage.put_index_due(0).unwrap();
    store(json!({"content": "x"}));
    let keys = storage.keys().unwrap();
    assert!(!keys.segments.contains(&segment));
    assert_eq!(unindexed(&storage, &keys), 0);
}

#[test]
fn values_that_are_no_memories_do_not_stop_the_index() {
    let storage = Storage::open().unwrap();
    fill(&storage, 1_100);
    let pairs: Vec<_> = (2_000..4_000)
        .map(|n| (format!("m/{n}"), b"?".to_vec()))
        .collect();
    for some in pairs.chunks(1_000) {
        storage.put_many(some).unwrap();
    }
    store(json!({"content": "x"}));
    assert_eq!(unindexed(&storage, &storage.keys().unwrap()), 2_000);
    assert!(storage.index_due().unwrap().unwrap() > storage.draw().unwrap());
    assert_index_changes_nothing(&storage);
}

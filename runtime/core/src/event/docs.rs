//! Checks `runtime/EVENTS.md` against the types: it lists exactly the events, fields, outcomes and errors that exist.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::event::{Event, TurnOutcome, tests::all};
use crate::{ToolError, event};

const PAGE: &str = include_str!("../../../EVENTS.md");

/// One event as documented.
struct Section {
    fields: BTreeSet<String>,
    not_kept: bool,
    example: Value,
}

fn sections() -> BTreeMap<String, Section> {
    let mut found = BTreeMap::new();
    for text in PAGE.split("\n### `").skip(1) {
        let (name, rest) = text.split_once('`').unwrap();
        let rest = rest.split("\n## ").next().unwrap();
        let (table, example) = rest.split_once("```json\n").unwrap();
        let section = Section {
            fields: first_cells(table),
            not_kept: table.contains("*Not kept.*"),
            example: serde_json::from_str(example.split("```").next().unwrap()).unwrap(),
        };
        assert!(found.insert(name.to_owned(), section).is_none(), "{name} twice");
    }
    found
}

/// Returns the code spans in the first cell of each row of a table.
fn first_cells(table: &str) -> BTreeSet<String> {
    let of_row = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    table.lines().filter_map(of_row).collect()
}

/// Returns the first cells of the table under a heading.
fn rows_under(heading: &str) -> BTreeSet<String> {
    let (_, rest) = PAGE.split_once(&format!("\n### {heading}\n")).unwrap();
    first_cells(rest.split("\n### ").next().unwrap())
}

/// Returns the names of all variants of a type tagged with `tag`, parsed from the error about an unknown variant.
fn variants<T: DeserializeOwned>(tag: &str) -> BTreeSet<String> {
    let wrong = BTreeMap::from([(tag, "?")]);
    let error = serde_json::from_value::<T>(serde_json::to_value(wrong).unwrap())
        .err()
        .unwrap()
        .to_string();
    let (_, list) = error.split_once("expected one of ").unwrap();
    let name = |word: &str| word.strip_prefix('`')?.split('`').next().map(str::to_owned);
    list.split(", ").filter_map(name).collect()
}

fn keys(event: &Value) -> BTreeSet<String> {
    let fields = event.as_object().unwrap().keys();
    fields.filter(|key| *key != "type").cloned().collect()
}

#[test]
fn page_lists_exactly_the_existing_events_outcomes_and_errors() {
    let of_page: BTreeSet<String> = sections().into_keys().collect();
    assert_eq!(of_page, variants::<Event>("type"));
    assert_eq!(rows_under("outcome"), variants::<TurnOutcome>("outcome"));
    assert_eq!(rows_under("error"), variants::<ToolError>("kind"));
    let version = format!("The format has version {}", event::EVENT_VERSION);
    assert!(PAGE.contains(&version), "{version}");
}

#[test]
fn every_example_of_the_page_parses_and_shows_every_field() {
    let mut of_types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut transient = BTreeSet::new();
    for event in all() {
        let value = serde_json::to_value(&event).unwrap();
        let name = value["type"].as_str().unwrap().to_owned();
        if event.is_transient() {
            transient.insert(name.clone());
        }
        of_types.entry(name).or_default().extend(keys(&value));
    }
    for (name, section) in sections() {
        let event: Event = serde_json::from_value(section.example.clone()).unwrap();
        assert_eq!(serde_json::to_value(&event).unwrap(), section.example, "{name}");
        assert_eq!(section.example["type"], name.as_str());
        assert_eq!(section.not_kept, transient.contains(&name), "{name}");
        let mut known = of_types.remove(&name).unwrap_or_default();
        known.extend(keys(&section.example));
        assert_eq!(section.fields, known, "{name}");
    }
}

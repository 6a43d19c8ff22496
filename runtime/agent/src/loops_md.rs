//! Checks that `LOOPS.md` covers every item and that the tests it names exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("../LOOPS.md");

/// Reads all Rust code below the folders that contain the named tests.
fn sources() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<PathBuf> = ["runtime", "tools", "tests"]
        .map(|folder| root.join(folder))
        .into();
    let mut sources = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    sources
}

/// Cells of the rows whose first cell is an item.
fn rows() -> Vec<Vec<&'static str>> {
    let is_item = |cell: &str| {
        cell.len() == 3
            && cell.starts_with(['H', 'W', 'V', 'F'])
            && cell[1..].bytes().all(|b| b.is_ascii_digit())
    };
    TABLE
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split(" | ").map(str::trim).collect::<Vec<_>>())
        .filter(|cells| is_item(cells[0]))
        .collect()
}

#[test]
fn every_design_item_is_listed_once() {
    let mut left: BTreeSet<String> = [('H', 18), ('W', 14), ('V', 18), ('F', 13)]
        .into_iter()
        .flat_map(|(design, last)| (1..=last).map(move |n| format!("{design}{n:02}")))
        .collect();
    for row in rows() {
        assert_eq!(row.len(), 4, "{row:?}");
        assert!(
            left.remove(row[0]),
            "{} is not an item, or is listed twice",
            row[0]
        );
    }
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn every_listed_test_exists() {
    let sources = sources();
    for row in rows() {
        for name in row[3].split('`').skip(1).step_by(2) {
            let found = sources.contains(&format!("fn {name}("));
            assert!(found, "{}: there is no test `{name}`", row[0]);
        }
    }
}

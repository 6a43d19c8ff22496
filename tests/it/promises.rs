//! What the documents promise is held by tests that exist.

use std::collections::BTreeSet;

use crate::house::{root, rust_files};

/// Documents in which the last column of each table row names the tests that hold it, in backticks.
const DOCUMENTS: &[&str] = &["runtime/SPECIFICATION.md", "runtime/ARCHITECTURE.md"];

/// Every function of the tree that is a test.
fn tests() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for folder in ["runtime", "sdk", "tests", "tools"] {
        for path in rust_files(&root().join(folder)) {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let mut marked = false;
            for line in text.lines().map(str::trim) {
                marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
                // In `proptest!` the attribute stands on the line before as well.
                if let Some(rest) = line
                    .strip_prefix("async fn ")
                    .or_else(|| line.strip_prefix("fn "))
                    && std::mem::take(&mut marked)
                {
                    let name = rest.split(['(', '<']).next().expect("a name");
                    tests.insert(name.to_owned());
                }
            }
        }
    }
    tests
}

/// The names in backticks in the last cell of a table row.
fn named(row: &str) -> Vec<&str> {
    let cell = row
        .trim()
        .trim_end_matches('|')
        .rsplit('|')
        .next()
        .unwrap_or_default();
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_test_that_a_document_names_exists() {
    let tests = tests();
    assert!(tests.len() > 200, "only {} tests were found", tests.len());
    for document in DOCUMENTS {
        let path = root().join(document);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{document}: {e}"));
        let mut rows = 0;
        let mut in_table = false;
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('|') && line.trim_end_matches('|').ends_with("test ") {
                in_table = true;
            } else if !line.starts_with('|') {
                in_table = false;
            } else if in_table && !line.starts_with("|--") && !line.starts_with("| --") {
                rows += 1;
                let named = named(line);
                assert!(!named.is_empty(), "{document}:{}: no test is named", number + 1);
                for name in named {
                    assert!(
                        tests.contains(name),
                        "{document}:{}: there is no test `{name}`",
                        number + 1
                    );
                }
            }
        }
        assert!(rows > 0, "{document} has no table whose last column is `test`");
    }
}

#[test]
fn every_fuzz_target_has_a_corpus_and_every_corpus_a_target() {
    let mut targets = BTreeSet::new();
    for path in rust_files(&root().join("runtime")) {
        let text = std::fs::read_to_string(&path).expect("a source file");
        // `Target` of `tests/fuzz`, under either of its names.
        for made in ["= Target::new(\"", "= Fuzz::new(\""] {
            let names = text.split(made).skip(1).filter_map(|rest| rest.split('"').next());
            targets.extend(names.map(str::to_owned));
        }
    }
    let corpora: BTreeSet<String> = std::fs::read_dir(root().join("tests/corpora/fuzz"))
        .expect("the corpora")
        .map(|entry| entry.expect("an entry"))
        .map(|entry| {
            let inputs = std::fs::read_dir(entry.path()).expect("a folder").count();
            assert!(inputs > 0, "{} is empty", entry.path().display());
            entry.file_name().into_string().expect("ASCII")
        })
        .collect();
    assert_eq!(targets, corpora);
    assert!(targets.len() >= 8, "{targets:?}");
}

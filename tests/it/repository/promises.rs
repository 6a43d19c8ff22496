//! The tests named in the documents exist.

use std::collections::BTreeSet;

use crate::repository::workspace::{root, rust_files};

/// Documents with tables whose last column names tests, in backticks.
const DOCUMENTS: &[&str] = &["runtime/SPECIFICATION.md", "runtime/ARCHITECTURE.md"];

/// Threat model: one row per threat, with tests in the last column.
const THREATS: &str = "tests/THREATS.md";

/// Macros that generate a test for each line in their braces, or run a named function as one.
const TEST_MACROS: &[&str] = &["attacks! {", "url_tests! {", "dynamic_tests! {", "run! {"];

/// Returns the names of all tests in the repository.
fn tests() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for folder in ["runtime", "sdk", "tests", "tools"] {
        for path in rust_files(&root().join(folder)) {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let (mut marked, mut in_list) = (false, false);
            for line in text.lines().map(str::trim) {
                if TEST_MACROS.contains(&line) {
                    in_list = true;
                    continue;
                }
                in_list &= line != "}";
                if in_list {
                    let name = line.split(' ').next().expect("a name");
                    tests.insert(name.to_owned());
                    continue;
                }
                marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
                // In `proptest!`, the attribute is on the previous line too.
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

/// Returns the names in backticks in the last cell of a table row.
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
fn every_test_named_in_a_document_exists() {
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

/// Each row occurs once and in order, with existing tests, or with a reason if there are none.
#[test]
fn every_threat_is_listed_once_with_existing_tests() {
    let rows: &[(char, std::ops::RangeInclusive<u32>)] = &[
        ('A', 1..=18),
        ('A', 146..=148),
        ('B', 19..=37),
        ('C', 38..=49),
        ('C', 149..=151),
        ('D', 50..=62),
        ('E', 63..=77),
        ('F', 78..=85),
        ('G', 86..=100),
        ('H', 101..=108),
        ('I', 109..=111),
        ('J', 112..=121),
        ('J', 144..=145),
        ('K', 122..=130),
    ];
    let expected: Vec<String> = rows
        .iter()
        .flat_map(|(letter, numbers)| numbers.clone().map(move |n| format!("{letter}{n}")))
        .collect();
    let tests = tests();
    let text = std::fs::read_to_string(root().join(THREATS)).expect("the threat model");
    let (mut found, mut by_attack) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let is_row = cells[0].len() > 1 && cells[0][1..].bytes().all(|b| b.is_ascii_digit());
        let is_found = cells[0].starts_with('N') && cells[0].len() > 1;
        if !is_row && !is_found {
            continue;
        }
        let [row, threat, outcome, _] = cells[..] else {
            panic!("{THREATS}: {line} has {} cells, not 4", cells.len());
        };
        if is_found {
            by_attack.push(row.to_owned());
        } else {
            found.push(row.to_owned());
        }
        assert!(
            threat.len() > 10 && outcome.len() > 10,
            "{THREATS}: {row} says too little"
        );
        let named = named(line);
        let does_not_apply = outcome.starts_with("Does not apply");
        assert_eq!(
            named.is_empty(),
            does_not_apply,
            "{THREATS}: {row} names {} tests",
            named.len()
        );
        for name in named {
            assert!(
                tests.contains(name),
                "{THREATS}: {row}: there is no test `{name}`"
            );
        }
    }
    assert_eq!(found, expected);
    // Findings of attacks have a number, and a letter per variant: `N0a`, `N0b`, `N10a`.
    let mut next = (0, 'a');
    for row in by_attack {
        let at = row.len() - 1;
        let (number, letter) = (row[1..at].parse::<u32>(), row.chars().last());
        let (Ok(number), Some(letter)) = (number, letter) else {
            panic!("{THREATS}: `{row}` is not a valid row, such as `N10a`");
        };
        let is_next = (number, letter) == next || (number > next.0 && letter == 'a') || next == (0, 'a');
        assert!(is_next, "{THREATS}: `{row}` is out of its place");
        next = (number, char::from_u32(u32::from(letter) + 1).unwrap_or('z'));
    }
}

#[test]
fn every_fuzz_target_has_a_corpus_and_vice_versa() {
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

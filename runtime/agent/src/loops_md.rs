//! Checks that `LOOPS.md` covers every item and that the tests it names exist.

use std::collections::BTreeSet;

const TABLE: &str = include_str!("../LOOPS.md");

/// All test code of the crate, and that of other crates for hooks, memory, agents, logs, models and pages.
const SOURCES: [&str; 36] = [
    include_str!("../../../tools/fetch/src/page.rs"),
    include_str!("../../../tools/fetch/src/redirect.rs"),
    include_str!("../../providers/tests/wires/ollama.rs"),
    include_str!("../../providers/tests/wires/openai.rs"),
    include_str!("../../sandbox/tests/outside.rs"),
    include_str!("../../../tests/it/hooks.rs"),
    include_str!("../../../tests/it/memory.rs"),
    include_str!("../../../tests/it/run_agents.rs"),
    include_str!("../../../tests/it/run_log.rs"),
    include_str!("../../../tests/it/run_model.rs"),
    include_str!("approval.rs"),
    include_str!("budget/mod.rs"),
    include_str!("context/mod.rs"),
    include_str!("context/normalise.rs"),
    include_str!("context/view.rs"),
    include_str!("tools/control.rs"),
    include_str!("tools/truncate.rs"),
    include_str!("tools/dispatch.rs"),
    include_str!("hook/order.rs"),
    include_str!("../../store/src/log_files.rs"),
    include_str!("machine/tests.rs"),
    include_str!("context/prompt.rs"),
    include_str!("tools/registry.rs"),
    include_str!("tools/results.rs"),
    include_str!("../tests/scenarios/approval.rs"),
    include_str!("../tests/scenarios/answers.rs"),
    include_str!("../tests/scenarios/calls.rs"),
    include_str!("../tests/scenarios/ends.rs"),
    include_str!("../tests/scenarios/forge.rs"),
    include_str!("../tests/scenarios/heimdall.rs"),
    include_str!("../tests/scenarios/hooks.rs"),
    include_str!("../tests/scenarios/limits.rs"),
    include_str!("../tests/scenarios/sessions.rs"),
    include_str!("../tests/scenarios/subagents.rs"),
    include_str!("../tests/scenarios/vertex.rs"),
    include_str!("../tests/scenarios/waterfell.rs"),
];

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
    for row in rows() {
        for name in row[3].split('`').skip(1).step_by(2) {
            let found = SOURCES
                .iter()
                .any(|source| source.contains(&format!("fn {name}(")));
            assert!(found, "{}: there is no test `{name}`", row[0]);
        }
    }
}

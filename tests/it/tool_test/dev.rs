//! `toolcell tool dev`: tests that run again on changes, until Ctrl-C.

use rustix::process::Signal;

use super::user;
use crate::probe::Probe;
use crate::support::pty::Terminal;

const WAITING: &str = "waiting for changes";

fn documented() -> Probe {
    Probe {
        input: r#"{"type": "object", "additionalProperties": false}"#.into(),
        ..Probe::default()
    }
}

#[test]
fn tests_run_again_when_component_or_cases_change() {
    let (user, temporary) = user();
    user.probe("probe.wasm", &documented());
    let mut terminal = Terminal::start(&user, &["tool", "dev", "probe.wasm"], "dumb", 100, 40);
    terminal.wait_for(" 0 warned, 0 failed").wait_for(WAITING);
    user.file(
        "probe.cases.toml",
        "[[case]]\nname = \"one\"\nerror = \"failed\"\n",
    );
    terminal.wait_for("changed: probe.cases.toml");
    terminal.wait_for(" 0 warned, 1 failed").wait_for(WAITING);
    user.file("probe.cases.toml", "[[case]\n");
    terminal.wait_for("cannot be used").wait_for(WAITING);
    std::fs::remove_file(user.work().join("probe.cases.toml")).unwrap();
    terminal.wait_for(" 0 warned, 0 failed").wait_for(WAITING);
    user.probe("probe.wasm", &Probe::running("unreachable"));
    terminal.wait_for("changed: probe.wasm");
    terminal.wait_for("✗ probe: `valid arguments`").wait_for(WAITING);
    terminal.signal(Signal::INT);
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
}

#[test]
fn build_runs_before_the_tests_and_on_changes_of_sources() {
    let (user, _) = user();
    user.probe("made/probe.wasm", &documented());
    user.file("tool/source", "good");
    let build = "grep good source && mkdir -p target && cp ../made/probe.wasm target/probe.wasm && cp target/probe.wasm .";
    let command = ["tool", "dev", "tool", "--build", build];
    let mut terminal = Terminal::start(&user, &command, "dumb", 100, 40);
    terminal.wait_for(" 0 warned, 0 failed").wait_for(WAITING);
    user.file("tool/source", "bad");
    terminal.wait_for("changed: tool/source");
    terminal.wait_for("the build failed:").wait_for(WAITING);
    user.file("tool/source", "good again");
    terminal.wait_for(" 0 warned, 0 failed").wait_for(WAITING);
    terminal.signal(Signal::INT);
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
}

#[test]
fn directory_with_a_manifest_is_built_before_the_tests() {
    let (user, _) = user();
    let manifest = "name = \"x\"\nlanguage = \"zig\"\nmain = \"src/tool.zig\"\n";
    user.file("tool/tool.toml", manifest)
        .file("tool/src/tool.zig", "");
    let mut terminal = Terminal::start(&user, &["tool", "dev", "tool"], "dumb", 100, 40);
    terminal.wait_for("the build failed:").wait_for(WAITING);
    user.file("tool/src/tool.zig", "//");
    terminal.wait_for("changed: tool/src/tool.zig");
    terminal.wait_for("the build failed:").wait_for(WAITING);
    terminal.signal(Signal::INT);
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
    assert!(
        terminal.seen.contains("could not build the tool `x`"),
        "{}",
        terminal.seen
    );
}

#[test]
fn tool_that_does_not_exist_ends_with_an_error() {
    let (user, _) = user();
    let seen = user.run(&["tool", "dev", "nonexist"]).ended(2);
    assert!(
        seen.stderr.contains("there is no tool `nonexist`") && !seen.stderr.contains(WAITING),
        "{}",
        seen.stderr
    );
}

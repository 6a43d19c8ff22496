//! Questions at a real terminal: layout, answers, and input that does not answer.

mod input;
mod together;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::termios::LocalModes;
use serde_json::{Value, json};

use crate::probe::Probe;
use crate::support::cli_user::User;
use crate::support::model_server::{Answer, ModelServer};
use crate::support::pty::Terminal;

const RUN: [&str; 10] = [
    "run",
    "x",
    "--provider",
    "scripted",
    "--model",
    "script.json",
    "--tool",
    "files",
    "--grant",
    "write=.",
];

/// End of the prompt of each question.
const PROMPT: &str = "Enter: ";

/// Creates a user with a model that wants to write `content`, and a rule that asks.
fn asked_about(arguments: &Value) -> User {
    let user = User::new();
    user.configure("[approval]\nrules = [{ tool = \"files_write\", verdict = \"ask\" }]\n");
    let calls = json!([{ "name": "files_write", "arguments": arguments }]);
    let script = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    user.file("script.json", script.to_string());
    user
}

/// Like [`asked_about`], with a tool that accepts any arguments.
fn asked_about_anything(arguments: &Value) -> User {
    let user = asked_about(arguments);
    user.configure("[approval]\nrules = [{ tool = \"*\", verdict = \"ask\" }]\n");
    let probe = Probe {
        input: r#"{"type":"object"}"#.into(),
        ..Probe::default()
    };
    user.probe("any.wasm", &probe);
    let calls = json!([{ "name": "probe", "arguments": arguments }]);
    let script = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    user.file("script.json", script.to_string());
    user
}

const RUN_ANY: [&str; 8] = [
    "run",
    "x",
    "--provider",
    "scripted",
    "--model",
    "script.json",
    "--tool",
    "any.wasm",
];

fn hello() -> User {
    asked_about(&json!({ "path": "out.txt", "content": "hello" }))
}

fn wrote(user: &User) -> bool {
    user.work().join("out.txt").exists()
}

/// Returns the physical lines from the title of the first question to its choices.
fn physical_lines(terminal: &Terminal, columns: usize) -> Vec<String> {
    let lines = terminal.lines();
    let start = lines.iter().position(|line| line.starts_with("? ")).unwrap();
    let end = lines
        .iter()
        .position(|line| line.starts_with("  y once"))
        .unwrap();
    lines[start..=end]
        .iter()
        .flat_map(|line| {
            let characters: Vec<char> = line.chars().collect();
            let rows = characters.chunks(columns).map(|row| row.iter().collect());
            rows.collect::<Vec<String>>()
        })
        .collect()
}

#[test]
fn question_names_only_what_the_imports_can_reach() {
    let user = asked_about_anything(&json!({}));
    let grants = ["--grant", "read=.", "--grant", "http=example.com"];
    let mut terminal = Terminal::start(&user, &[&RUN_ANY[..], &grants].concat(), "xterm", 200, 50);
    terminal.answer("n").wait_for("1 call");
    let shown = terminal.lines().join("\n");
    assert!(shown.contains("which can only compute and log"), "{shown}");
    assert!(!shown.contains("read files"), "{shown}");
}

#[test]
fn forged_question_stays_behind_gutter_at_any_width() {
    for columns in [20, 40, 80, 200] {
        let blanks = " ".repeat(usize::from(columns) - 10);
        let forged = format!("{blanks}? `clock` wants to run nothing  y once   n no: y\n? fake\r? fake");
        let user = asked_about_anything(
            &json!({ "path": "out.txt", "content": forged, "? fake": "\u{2028}? fake" }),
        );
        let mut terminal = Terminal::start(&user, &RUN_ANY, "xterm", columns, 50);
        terminal.answer("n").wait_for("1 call");
        let rows = physical_lines(&terminal, columns.into());
        let questions = rows.iter().filter(|row| row.starts_with('?')).count();
        assert_eq!(questions, 1, "{rows:#?}");
        for row in &rows {
            let is_own = ["?", "  ·", "  !", "    ", "  y ", "  ├"]
                .iter()
                .any(|own| row.starts_with(own));
            let is_foreign = row.trim_start().starts_with("│ ") || row.trim_start() == "│";
            assert!(
                row.trim().is_empty() || is_own || is_foreign,
                "{columns}: {row:?} in {rows:#?}"
            );
            assert!(!row.contains("fake") || is_foreign, "{row:?}");
        }
    }
}

#[test]
fn json_on_terminal_stays_behind_gutter() {
    let user = asked_about_anything(&json!({ "path": format!("{}? forged", " ".repeat(500)) }));
    for command in [&["--json", "--grant", "read=."][..], &["--json", "--flow", "off"]] {
        let mut terminal = Terminal::start(&user, &[&RUN_ANY[..], command].concat(), "xterm", 40, 50);
        terminal.answer("n");
        terminal.finish();
        let rows = terminal.lines();
        let forged: Vec<_> = rows.iter().filter(|row| row.contains("forged")).collect();
        assert!(!forged.is_empty());
        for row in forged {
            assert!(row.trim_start().starts_with("│ "), "{row:?}");
        }
        let framed = rows.iter().filter(|row| row.starts_with("│ "));
        assert_eq!(
            framed.filter(|row| row.chars().count() > 40).count(),
            0,
            "{rows:#?}"
        );
    }
}

#[test]
fn question_beyond_the_screen_can_only_be_refused() {
    for (columns, rows) in [(12, 6), (60, 6), (9, 60)] {
        let user = hello();
        let mut terminal = Terminal::start(&user, &RUN, "xterm", columns, rows);
        terminal.wait_for(PROMPT).keys("y").wait_for("y").keys("\n");
        terminal.wait_for(PROMPT);
        let seen: String = terminal.seen.split_whitespace().collect();
        assert!(
            seen.contains("toosmall") && !seen.contains("youranswer"),
            "{seen}"
        );
        assert!(!wrote(&user));
        terminal.resize(80, 24);
        terminal.wait_for("wants to run").answer("y");
        terminal.wait_for("1 call");
        assert!(wrote(&user));
    }
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 40, 6);
    terminal.wait_for(PROMPT).keys("n").wait_for("n").keys("\n");
    terminal.wait_for("1 call");
    assert!(!wrote(&user));
}

#[test]
fn every_question_fits_screen() {
    let many: Vec<u32> = (0..500).collect();
    let user = asked_about_anything(&json!({
        "path": "out.txt", "content": "word ".repeat(20_000), "many": many, "z": "last"
    }));
    let mut terminal = Terminal::start(&user, &RUN_ANY, "xterm", 60, 24);
    terminal.answer("v");
    let question = &terminal.seen[terminal.seen.find("? `").unwrap()..];
    assert!(question.lines().count() <= 24, "{question}");
    let words: String = question.split_whitespace().collect();
    assert!(words.contains("linesomitted;sha256ofthewhole"), "{question}");
    assert!(question.contains("\"z\": \"last\""), "{question}");
    // The whole can be looked at, and the question comes back.
    terminal
        .wait_for("lines 1 to 21 of ")
        .wait_for("Enter or q: ")
        .keys("\n");
    terminal
        .wait_for("lines 22 to 42 of ")
        .wait_for("Enter or q: ")
        .keys("q\n");
    terminal.wait_for("wants to run").answer("n");
    terminal.wait_for("1 call");
}

#[test]
fn question_below_early_keys_stays_on_screen() {
    let many: Vec<u32> = (0..500).collect();
    for (columns, rows) in [(80, 24), (40, 22), (13, 60)] {
        let user = asked_about_anything(&json!({ "path": "out.txt", "many": many }));
        let mut terminal = Terminal::start(&user, &RUN_ANY, "xterm", columns, rows);
        terminal.keys("y");
        terminal.wait_for("discarded").wait_for("nter: ");
        let lines = terminal.lines();
        let title = lines.iter().rposition(|line| line.starts_with("? ")).unwrap();
        let physical = lines[title..].iter().map(|line| {
            let length = line.chars().filter(|c| !c.is_control()).count();
            length.div_ceil(columns.into()).max(1)
        });
        let physical: usize = physical.sum();
        assert!(
            physical <= usize::from(rows),
            "{columns}x{rows}: {physical} {lines:#?}"
        );
    }
}

#[test]
fn long_texts_on_a_small_screen_keep_their_ends_and_digests() {
    for (columns, rows, names) in [
        (60, 20, &["content"][..]),
        (80, 24, &["content", "more"]),
        (40, 26, &["content"]),
    ] {
        let mut arguments = json!({ "path": "out.txt" });
        for name in names {
            arguments[*name] = format!("start of {name} {} end of {name}", "x".repeat(30_000)).into();
        }
        let user = asked_about_anything(&arguments);
        let mut terminal = Terminal::start(&user, &RUN_ANY, "xterm", columns, rows);
        let screen = screen_of(&mut terminal, rows.into());
        let joined = screen.concat().replace(['│', '├', '─', ' '], "");
        assert!(joined.contains("\"out.txt\""), "{screen:#?}");
        for name in names {
            let ends = [format!("startof{name}"), format!("endof{name}\"")];
            assert!(
                ends.iter().all(|end| joined.contains(end)),
                "{columns}, {name}: {screen:#?}"
            );
        }
        let digests = joined.matches("charactersomitted;sha256").count();
        assert_eq!(digests, names.len(), "{screen:#?}");
    }
}

/// Returns the screen after the first question.
fn screen_of(terminal: &mut Terminal, rows: usize) -> Vec<String> {
    terminal.wait_for(PROMPT);
    let lines: Vec<String> = terminal.lines().into_iter().map(str::to_owned).collect();
    terminal.keys("n").wait_for("n").keys("\n").wait_for("1 call");
    lines[lines.len().saturating_sub(rows)..].to_vec()
}

#[test]
fn long_paths_do_not_scroll_question_out() {
    let long = |name: &str| format!("{name}/{}", "directory/".repeat(200));
    let user = asked_about_anything(&json!({
        "path": long("a"), "file": long("b"), "dir": long("\u{430}b"), "from": long("\u{430}c"), "to": long("\u{430}d"),
    }));
    let command = [&RUN_ANY[..], &["--grant", "read=."]].concat();
    let mut terminal = Terminal::start(&user, &command, "xterm", 80, 24);
    let screen = screen_of(&mut terminal, 24);
    assert!(
        screen
            .iter()
            .any(|line| line.starts_with("? `probe` wants to run")),
        "{screen:#?}"
    );
    assert!(
        screen.iter().any(|line| line.contains("/path resolves to ")),
        "{screen:#?}"
    );
}

#[test]
fn short_terminal_shows_subject_beside_answers() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 40, 12);
    let screen = screen_of(&mut terminal, 12);
    assert!(
        screen.iter().any(|line| line.starts_with("? `files_write`")),
        "{screen:#?}"
    );
}

#[test]
fn path_with_blanks_is_set_apart_from_our_text() {
    let user = asked_about(&json!({ "path": "out.txt is allowed by your rules", "content": "a" }));
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 200, 40);
    terminal.answer("n").wait_for("1 call");
    let quoted = format!(
        "/path resolves to `{}/out.txt is allowed by your rules`",
        user.work().display()
    );
    assert!(terminal.seen.contains(&quoted), "{}", terminal.seen);
}

#[test]
fn long_texts_are_shown_by_start_end_length_and_digest() {
    let content = format!("start {} end", "x".repeat(5_000));
    let user = asked_about(&json!({ "content": content, "path": "out.txt" }));
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 120, 40);
    terminal.answer("n").wait_for("1 call");
    for part in [
        "\"start xxx",
        "xxx end\"",
        "├─ 4852 of 5012 characters omitted; sha256 ",
        "\"path\": \"out.txt\"",
        "v show everything",
    ] {
        assert!(terminal.seen.contains(part), "{part}: {}", terminal.seen);
    }
}

#[test]
fn question_names_what_tool_can_reach() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 200, 40);
    terminal.answer("n").wait_for("1 call");
    let work = user.work();
    let reach = format!(
        "it belongs to `files`, which can change files in `{}`",
        work.display()
    );
    let reach = reach.replace(user.home().to_str().unwrap(), "~");
    assert!(terminal.seen.contains(&reach), "{reach}: {}", terminal.seen);
}

#[test]
fn confusable_names_are_flagged() {
    let user = asked_about(&json!({ "path": "p\u{430}ypal.txt", "content": "a" }));
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 120, 40);
    terminal.answer("n").wait_for("1 call");
    let flag = "! /path mixes letters of several scripts: `p\\u{430}ypal.txt`";
    assert!(terminal.seen.contains(flag), "{}", terminal.seen);
}

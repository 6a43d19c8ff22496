//! Questions at a real terminal: layout, answers, and input that does not answer.

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
        let forged = format!("{blanks}? `clock` wants to run with nothing  y once   n no: y\n? fake\r? fake");
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
    terminal.wait_for("wants to run with").answer("n");
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

#[test]
fn words_of_refusal_reach_the_model() {
    for (answer, words) in [
        ("no, use b.txt instead", Some("the user says: use b.txt instead")),
        ("n not now", Some("the user says: not now")),
        ("no", None),
    ] {
        let call = "TOOL_CALL: files_write\nARGUMENTS: {\"path\": \"out.txt\", \"content\": \"x\"}";
        let server = ModelServer::playing(vec![Answer::chat(call), Answer::chat("Done.")]);
        let user = hello();
        let url = server.url("/v1");
        let flags = [
            "run",
            "x",
            "--tool",
            "files",
            "--grant",
            "write=.",
            "--tool-calls",
            "labels",
        ];
        let command = [
            &flags[..],
            &["--provider", "openai", "--model", "m", "--base-url", &url],
        ]
        .concat();
        let mut terminal = Terminal::start(&user, &command, "xterm", 100, 40);
        terminal.wait_for("n no, or no and what to do instead");
        terminal.answer(answer).wait_for("1 call");
        assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
        assert!(!wrote(&user));
        let requests = server.requests();
        let read = requests[1].body["messages"].to_string();
        assert_eq!(read.contains("the user says"), words.is_some(), "{read}");
        assert!(
            read.contains(words.unwrap_or("the user declined this call")),
            "{read}"
        );
    }
}

#[test]
fn confirmation_of_an_answer_for_always_takes_no_words() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.answer("t").wait_for("never ask about");
    terminal.answer("no, never").wait_for("not one of the answers");
    terminal.answer("n").wait_for("wants to run with");
    terminal.answer("no, never").wait_for("1 call");
    assert_eq!(terminal.end(), Some(0));
    assert!(!wrote(&user));
}

#[test]
fn answer_without_its_digits_is_told_so() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.keys("x");
    terminal.wait_for("are not an answer; they are discarded");
    for (line, told) in [
        (
            "n",
            "this is not one of the answers without the digits of its prompt",
        ),
        (
            "y",
            "this is not one of the answers without the digits of its prompt",
        ),
        ("q", "this is not one of the answers\r\n"),
    ] {
        terminal
            .wait_for(PROMPT)
            .keys(line)
            .wait_for(line)
            .keys("\n")
            .wait_for(told);
    }
    terminal.answer("n").wait_for("1 call");
    assert_eq!(terminal.end(), Some(0));
    assert!(!wrote(&user));
}

#[test]
fn early_input_does_not_answer_question() {
    let user = hello();
    for early in ["y\n", "y\ny\ny\n", "a\ny\n", "yes", "\n", "no, use b\n"] {
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
        // Nothing stands there yet.
        terminal.keys(early);
        terminal.wait_for("are not an answer; they are discarded");
        // However slowly the rest of it comes: without the digits of the prompt nothing is an answer.
        terminal.wait_for(PROMPT).keys("y").wait_for("y").keys("\n");
        terminal
            .wait_for("not one of the answers")
            .answer("n")
            .wait_for("1 call");
        assert_eq!(terminal.end(), Some(0));
        assert!(!wrote(&user), "{early:?}");
    }
}

#[test]
fn paste_does_not_answer_question() {
    let user = hello();
    for paste in [
        "y\n",
        "yes\n",
        "\u{1b}[200~y\n\u{1b}[201~",
        "y\ny\n",
        "y\u{1b}[200~\n\u{1b}[201~",
        "yes please do\n",
    ] {
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
        terminal
            .wait_for(PROMPT)
            .keys(paste)
            .wait_for("are not an answer");
        terminal.wait_for(PROMPT).keys(paste).wait_for("no");
        terminal.answer("n").wait_for("1 call");
        assert!(!wrote(&user), "{}", terminal.seen);
    }
}

#[test]
fn refusal_may_be_typed_faster_than_key_by_key() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.wait_for(PROMPT).keys("n").wait_for("n");
    terminal.keys("o, use b.txt").wait_for("b.txt");
    // Longer than the gap between the keys of a burst.
    std::thread::sleep(std::time::Duration::from_millis(200));
    terminal.keys("\n").wait_for("1 call");
    assert!(
        terminal.seen.contains("the user says: use b.txt"),
        "{}",
        terminal.seen
    );
    assert!(!wrote(&user));
}

#[test]
fn answer_after_paste_needs_digits_of_prompt() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal
        .wait_for(PROMPT)
        .keys("y\n")
        .wait_for("are not an answer");
    terminal
        .wait_for("your answer and ")
        .answer("y")
        .wait_for("1 call");
    assert!(wrote(&user), "{}", terminal.seen);
}

#[test]
fn fifth_invalid_answer_denies_call() {
    for (invalid, is_allowed) in [(4, true), (5, false)] {
        let user = hello();
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
        for _ in 0..invalid {
            terminal.answer("x").wait_for("not one of the answers");
        }
        if is_allowed {
            terminal.answer("y");
        }
        terminal.wait_for("1 call");
        assert_eq!(terminal.end(), Some(0));
        assert_eq!(wrote(&user), is_allowed, "{invalid}: {}", terminal.seen);
        let is_told = terminal.seen.contains("the question was not answered");
        assert_eq!(is_told, !is_allowed, "{}", terminal.seen);
    }
}

#[test]
fn refusal_counts_in_any_form_and_after_a_mistyped_answer() {
    let user = hello();
    for answer in ["No", "NO", "nope"] {
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
        terminal.answer(answer).wait_for("1 call");
    }
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.answer("yep").wait_for("not one of the answers");
    // Without the digits.
    terminal.wait_for(PROMPT).keys("n").wait_for("n").keys("\n");
    terminal.wait_for("1 call");
    assert_eq!(
        terminal.seen.matches("your answer").count(),
        2,
        "{}",
        terminal.seen
    );
    assert!(!wrote(&user));
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.answer("YES").wait_for("1 call");
    assert!(wrote(&user));
}

#[test]
fn always_is_confirmed_after_delay() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.answer("t");
    terminal
        .wait_for("never ask about `files_write` again?")
        .wait_for("with any arguments");
    let shown = Instant::now();
    // Too early to be an answer.
    terminal.keys("y\n");
    terminal
        .wait_for("are not an answer")
        .wait_for("your answer and ");
    assert!(shown.elapsed() >= Duration::from_millis(900));
    terminal
        .answer("n")
        .wait_for("wants to run with")
        .answer("y")
        .wait_for("1 call");
    assert!(wrote(&user));
    let listed = user.run(&["approval", "list", "--json"]).ended(0).json();
    assert_eq!(listed, json!([]));
}

#[test]
fn question_is_drawn_anew_when_terminal_is_resized() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.wait_for(PROMPT).resize(40, 20);
    terminal
        .wait_for("wants to run with")
        .answer("y")
        .wait_for("1 call");
    assert!(wrote(&user));
}

#[test]
fn terminal_state_is_restored_after_question() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    let before = terminal.modes().local_modes;
    assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO));
    terminal.wait_for(PROMPT);
    assert!(!terminal.modes().local_modes.contains(LocalModes::ICANON));
    terminal.keys("\u{4}").wait_for("1 call");
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(terminal.modes().local_modes, before);
    for (signal, code) in [
        (Signal::INT, 130),
        (Signal::TERM, 130),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
        (Signal::ALARM, 142),
    ] {
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
        terminal.wait_for(PROMPT).signal(signal);
        assert_eq!(terminal.end(), Some(code), "{signal:?}");
        assert_eq!(terminal.modes().local_modes, before, "{signal:?}");
        // Pastes are not marked any more.
        terminal.wait_for("\u{1b}[?2004l");
    }
    assert!(!wrote(&user));
}

#[test]
fn stopped_question_restores_terminal_and_returns() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    let before = terminal.modes().local_modes;
    terminal.wait_for(PROMPT).signal(Signal::TSTP);
    terminal.wait_for_stop();
    assert_eq!(terminal.modes().local_modes, before);
    terminal.wait_for("\u{1b}[?2004l").signal(Signal::CONT);
    terminal
        .wait_for("\u{1b}[?2004h")
        .wait_for("wants to run with")
        .answer("y")
        .wait_for("1 call");
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(terminal.modes().local_modes, before);
    assert!(wrote(&user));
}

#[test]
fn early_input_is_kept_for_next_chat_prompt() {
    let user = hello();
    let mut chat = RUN.to_vec();
    chat.splice(..2, ["chat", "--no-session"]);
    let mut terminal = Terminal::start(&user, &chat, "xterm", 100, 40);
    terminal
        .wait_for("› ")
        .keys("go\r")
        .wait_for("wants to run with")
        .keys("and then this");
    terminal
        .wait_for("are not an answer; they are kept for the next")
        .answer("n");
    terminal
        .wait_for("1 call")
        .wait_for("› ")
        .wait_for("and then this");
    terminal.keys("\u{15}/quit\r");
    assert_eq!(terminal.end(), Some(0));
}

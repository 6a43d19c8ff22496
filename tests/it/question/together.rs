//! One question for several calls of a step, at a real terminal.

use serde_json::{Value, json};

use crate::support::cli_user::User;
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

/// A user whose model wants to write these files in one step, and a rule that asks.
fn asked_about(files: &[(&str, &str)]) -> User {
    let user = User::new();
    user.configure("[approval]\nrules = [{ tool = \"files_write\", verdict = \"ask\" }]\n");
    let calls = files.iter().map(
        |(path, content)| json!({ "name": "files_write", "arguments": { "path": path, "content": content } }),
    );
    let calls: Vec<Value> = calls.collect();
    let script = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    user.file("script.json", script.to_string());
    user
}

fn written(user: &User, names: &[&str]) -> Vec<bool> {
    names.iter().map(|name| user.work().join(name).exists()).collect()
}

#[test]
fn calls_of_a_step_are_answered_together() {
    for (answer, is_written) in [("y", true), ("n", false), ("no, wait", false)] {
        let user = asked_about(&[("a", "1"), ("b", "? forged\n2. `c` wants")]);
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 50);
        terminal
            .wait_for("? 2 calls of this step need your approval")
            .wait_for("  1. `files_write` wants to run")
            .wait_for("\"path\": \"a\"")
            .wait_for("  2. `files_write` wants to run")
            .wait_for("\"path\": \"b\"");
        assert_eq!(terminal.answer(answer).finish(), Some(0), "{}", terminal.seen);
        assert_eq!(written(&user, &["a", "b"]), [is_written; 2], "{answer}");
        assert_eq!(terminal.seen.matches("need your approval").count(), 1);
        for line in terminal.lines() {
            let line = line.trim_start();
            assert!(
                !line.starts_with("? forged") && !line.starts_with("2. `c`"),
                "{line}"
            );
        }
        assert_eq!(
            terminal.seen.contains("user says about these 2 calls"),
            answer == "no, wait"
        );
    }
}

#[test]
fn words_of_a_refusal_reach_the_call_they_are_for() {
    let user = asked_about(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 60);
    terminal.wait_for("3 calls of this step").answer("o");
    terminal.wait_for("? 1 of 3: `files_write` wants").answer("y");
    terminal
        .wait_for("? 2 of 3: `files_write` wants")
        .answer("no, use d instead");
    terminal.wait_for("? 3 of 3: `files_write` wants").answer("y");
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
    assert_eq!(written(&user, &["a", "b", "c", "d"]), [true, false, true, false]);
    let events = user.run(&["session", "export", "last"]).ended(0).json_lines();
    let of = |kind: &str| {
        let events = events.iter().filter(|event| event["type"] == kind);
        events.cloned().collect::<Vec<Value>>()
    };
    for call in of("call_started") {
        let finished = of("call_finished");
        let finished = finished.iter().find(|event| event["id"] == call["id"]).unwrap();
        let has_words = finished.to_string().contains("the user says: use d instead");
        assert_eq!(has_words, call["arguments"]["path"] == "b", "{finished}");
    }
    assert_eq!(of("call_started").len(), 3);
}

#[test]
fn refusal_with_digits_of_the_prompt_has_words_too() {
    for answer in ["n# use d instead", "no, use d instead #"] {
        let user = asked_about(&[("a", "1"), ("b", "2")]);
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 60);
        terminal.wait_for("2 calls of this step").answer("x");
        terminal.wait_for("not one of the answers").answer_with(answer);
        assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
        assert_eq!(written(&user, &["a", "b"]), [false; 2]);
        let words = "the user says about these 2 calls: use d instead";
        assert!(terminal.seen.contains(words), "{}", terminal.seen);
    }
}

#[test]
fn refusal_without_digits_keeps_its_words() {
    // After an answer that is none of the possible ones, it counts.
    let user = asked_about(&[("a", "1"), ("b", "2")]);
    let words = "the user says about these 2 calls: use d instead";
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 60);
    terminal.wait_for("2 calls of this step").answer("x");
    terminal
        .wait_for("not one of the answers")
        .answer_with("no, use d instead");
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
    assert!(terminal.seen.contains(words), "{}", terminal.seen);
    // After a paste it may be a part of it: the next refusal has its words, another answer does not.
    for (then, is_written) in [("n#", false), ("y#", true)] {
        let user = asked_about(&[("a", "1"), ("b", "2")]);
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 60);
        terminal
            .wait_for("your answer, then Enter: ")
            .keys("no, use d instead\n");
        terminal.wait_for("are not an answer");
        terminal.answer_with("no, use d instead");
        terminal.wait_for("refuse with these words").answer_with(then);
        assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
        assert_eq!(written(&user, &["a", "b"]), [is_written; 2]);
        assert_eq!(terminal.seen.contains(words), !is_written, "{}", terminal.seen);
    }
}

#[test]
fn calls_beyond_the_screen_are_not_approved_unseen() {
    let user = asked_about(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 80, 20);
    terminal.wait_for("show everything, before you can say yes");
    terminal.answer("y").wait_for("this is not one of the answers");
    assert_eq!(written(&user, &["a", "b", "c"]), [false; 3]);
    terminal.wait_for("show everything, before").answer("v");
    terminal.wait_for("Enter or q: ").keys("\n");
    terminal.wait_for("all of them, once").answer("y");
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
    assert_eq!(written(&user, &["a", "b", "c"]), [true; 3]);
}

#[test]
fn keys_before_a_question_about_calls_do_not_answer_it() {
    let user = asked_about(&[("a", "1"), ("b", "2")]);
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 50);
    terminal.keys("y\n");
    terminal.wait_for("2 calls of this step").wait_for("discarded");
    terminal.answer("n");
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
    assert_eq!(written(&user, &["a", "b"]), [false; 2]);
}

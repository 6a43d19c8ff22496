//! Two processes on one session.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};

use serde_json::json;

use crate::support::cli_user::User;
use crate::support::pty::Terminal;

const SCRIPT: [&str; 4] = ["--provider", "scripted", "--model", "script.json"];

/// A user with the answers 1 to 5.
fn user() -> User {
    let user = User::new();
    let steps: Vec<_> = (1..=5)
        .map(|i| json!({ "text": format!("Answer {i}.") }))
        .collect();
    let script = json!({ "position": "conversation", "steps": steps });
    user.file("script.json", script.to_string());
    user
}

/// Starts a chat and waits for its first answer.
fn chatting(user: &User, flags: &[&str]) -> (Child, ChildStdin) {
    let mut chat = user
        .command(&[&["chat"][..], &SCRIPT, flags].concat())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = chat.stdin.take().unwrap();
    let mut output = BufReader::new(chat.stdout.take().unwrap());
    input.write_all(b"hello\n").unwrap();
    let mut answer = String::new();
    while !answer.contains("Answer") {
        assert!(output.read_line(&mut answer).unwrap() > 0, "{answer}");
    }
    // The end of the turn is in the journal.
    let is_saved = || {
        let exported = user.run(&["session", "export", "last"]).stdout;
        exported
            .lines()
            .last()
            .is_some_and(|line| line.contains("turn_finished"))
    };
    while !is_saved() {
        std::thread::yield_now();
    }
    (chat, input)
}

#[test]
fn second_process_is_told_at_once_and_crash_releases_session() {
    let user = user();
    let (mut chat, _input) = chatting(&user, &[]);
    let said = format!("is in use by process {}", chat.id());
    for command in [
        &["run", "more", "--continue"][..],
        &["session", "resume", "last", "more"],
        &["chat", "--continue"],
    ] {
        let seen = user
            .run_with_input(&[command, &SCRIPT].concat(), "more\n")
            .ended(8);
        assert!(seen.stderr.contains(&said), "{}", seen.stderr);
        assert!(seen.stderr.contains("toolcell session fork "), "{}", seen.stderr);
    }
    let seen = user.run(&["session", "delete", "last"]).ended(8);
    assert!(seen.stderr.contains(&said), "{}", seen.stderr);
    let seen = user.run(&["session", "prune", "--keep", "0", "--yes"]).ended(0);
    assert!(
        seen.stderr.contains(&said) && seen.stderr.contains("deleted 0 sessions"),
        "{}",
        seen.stderr
    );
    // Other sessions, copies and names are free.
    user.run(&["session", "fork", "last"]).ended(0);
    user.run(&["session", "rename", "last", "copy"]).ended(0);
    user.run(&[&["run", "more", "--session", "copy"][..], &SCRIPT].concat())
        .ended(0);
    user.run(&["session", "delete", "copy"]).ended(0);

    chat.kill().unwrap();
    chat.wait().unwrap();
    let seen = user
        .run(&[&["run", "more", "--continue"][..], &SCRIPT].concat())
        .ended(0);
    assert_eq!(seen.stdout, "Answer 2.\n");
}

#[test]
fn new_chat_leaves_its_former_session() {
    let user = user();
    let (chat, mut input) = chatting(&user, &[]);
    input.write_all(b"/new\n/session\n").unwrap();
    let mut lines = BufReader::new(chat.stderr.unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.contains("started a new session")).unwrap();
    user.run(&[&["run", "more", "--continue"][..], &SCRIPT].concat())
        .ended(0);
}

#[test]
fn second_chat_follows_until_first_one_ends() {
    let user = user();
    let (mut chat, mut input) = chatting(&user, &[]);
    let second = [&["chat", "--continue"][..], &SCRIPT].concat();
    let mut terminal = Terminal::start(&user, &second, "dumb", 100, 30);
    terminal.wait_for(&format!("is in use by process {}; what now?", chat.id()));
    terminal.answer("f");
    // The end of the conversation, and what follows.
    terminal.wait_for("› hello").wait_for("Answer 1.");
    input.write_all(b"go on\n").unwrap();
    terminal.wait_for("› go on").wait_for("Answer 2.");
    drop(input);
    chat.wait().unwrap();
    terminal.wait_for("the session continues here").wait_for("/help");
    terminal.keys("and now?\r").wait_for("Answer 3.");
    terminal.keys("/quit\r");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn second_chat_continues_from_copy_or_leaves() {
    let user = user();
    let (_chat, _input) = chatting(&user, &[]);
    let second = [&["chat", "--session", "last"][..], &SCRIPT].concat();
    let mut terminal = Terminal::start(&user, &second, "dumb", 100, 30);
    terminal.answer("c");
    terminal
        .wait_for("continuing from a copy")
        .wait_for("Answer 1.")
        .wait_for("/help");
    terminal.keys("and now?\r").wait_for("Answer 2.");
    terminal.keys("/quit\r");
    assert_eq!(terminal.finish(), Some(0));
    let all = user.run(&["session", "list", "--json"]).ended(0).json();
    assert_eq!(all.as_array().unwrap().len(), 2);
    let first = all[0]["parent"].as_str().unwrap().to_owned();
    let second = [&["chat", "--session", &first][..], &SCRIPT].concat();
    let mut terminal = Terminal::start(&user, &second, "dumb", 100, 30);
    terminal.answer("n");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn continued_chat_shows_end_of_conversation() {
    let user = user();
    let run = |flags: &[&str]| {
        user.run(&[&["run", "again"][..], &SCRIPT, flags].concat())
            .ended(0)
    };
    run(&[]);
    run(&["--continue"]);
    run(&["--continue"]);
    let chat = [&["chat", "--continue"][..], &SCRIPT].concat();
    let mut terminal = Terminal::start(&user, &chat, "dumb", 100, 30);
    terminal.wait_for("1 earlier turn: toolcell session show ");
    terminal
        .wait_for("Answer 2.")
        .wait_for("Answer 3.")
        .wait_for("/help");
    assert!(!terminal.seen.contains("Answer 1."), "{}", terminal.seen);
    terminal.keys("/quit\r");
    assert_eq!(terminal.finish(), Some(0));
}

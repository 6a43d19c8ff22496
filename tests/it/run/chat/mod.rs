//! Commands of `toolcell chat`.

mod markdown;
mod typing;

use serde_json::{Value, json};

use crate::probe::Probe;
use crate::support::cli_user::{Seen, User};
use crate::support::pty::Terminal;

const SCRIPT: [&str; 5] = ["chat", "--provider", "scripted", "--model", "script.json"];

fn script(user: &User, file: &str, model: &str, texts: &[&str]) {
    let usage = json!({ "input": 900, "output": 40 });
    let steps: Vec<Value> = texts
        .iter()
        .map(|text| json!({ "text": text, "usage": usage }))
        .collect();
    let script = json!({ "model": model, "steps": steps });
    user.file(file, script.to_string());
}

fn chat(user: &User, lines: &str) -> Seen {
    user.run_with_input(&SCRIPT, lines)
}

fn events(user: &User, kind: &str) -> Vec<Value> {
    let exported = user.run(&["session", "export", "last"]).ended(0).json_lines();
    exported
        .into_iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

#[test]
fn undo_removes_last_turn_and_cost_still_counts_it() {
    let user = User::new();
    script(&user, "script.json", "demo", &["One.", "Two.", "Three."]);
    user.configure("[prices.demo]\ninput = 1\noutput = 10\n");
    let seen = chat(&user, "/undo\nfirst\nsecond\n/undo\n/cost\nthird\n").ended(0);
    assert!(
        seen.stderr.contains("has no turn that could be undone"),
        "{}",
        seen.stderr
    );
    assert!(
        seen.stderr.contains("removed the last turn (2 messages)"),
        "{}",
        seen.stderr
    );
    let cost = "2 turns · 0 calls · 1.8 k tokens in, 80 out · cost 0.0026";
    assert!(seen.stderr.contains(cost), "{}", seen.stderr);
    assert_eq!(
        events(&user, "turn_undone"),
        [json!({ "type": "turn_undone", "removed": 2 })]
    );
    assert_eq!(events(&user, "turn_started").len(), 3);
    let shown = user.run(&["session", "show", "last"]).ended(0);
    assert!(
        shown.stderr.contains("the last turn was undone"),
        "{}",
        shown.stderr
    );
}

#[test]
fn compact_summarises_now_or_says_why_not() {
    let user = User::new();
    script(
        &user,
        "script.json",
        "demo",
        &["One.", "Two.", "Three.", "All of it.", "Four."],
    );
    let seen = chat(&user, "first\n/compact\nsecond\nthird\n/compact\nfourth\n").ended(0);
    assert!(
        seen.stderr.contains("too short to be summarised"),
        "{}",
        seen.stderr
    );
    assert!(
        seen.stderr
            .contains("4 older messages were replaced by a summary"),
        "{}",
        seen.stderr
    );
    assert!(
        seen.stdout.ends_with("Four.\n") && !seen.stdout.contains("All of it."),
        "{}",
        seen.stdout
    );
    assert_eq!(events(&user, "compacted")[0]["removed"], 4);
}

#[test]
fn compact_counts_no_calls_of_the_turn_before() {
    let user = User::new();
    let call = json!([{ "name": "text_count", "arguments": { "text": "a b" } }]);
    let steps = json!([
        { "text": "One." }, { "text": "Two." }, { "calls": call }, { "text": "Three." }, { "text": "All of it." },
    ]);
    user.file("script.json", json!({ "steps": steps }).to_string());
    let seen = chat(&user, "first\nsecond\nthird\n/compact\n").ended(0);
    assert!(seen.stderr.contains("2 steps · 1 call ·"), "{}", seen.stderr);
    assert!(seen.stderr.contains("0 steps · 0 calls ·"), "{}", seen.stderr);
}

#[test]
fn model_is_changed_within_a_session() {
    let user = User::new();
    script(&user, "script.json", "demo", &["One."]);
    script(&user, "other.json", "other", &["Two."]);
    let lines = "first\n/model absent.json\n/model other.json\nsecond\n/model\n/session\n";
    let seen = chat(&user, lines).ended(0);
    assert_eq!(seen.stdout, "One.\nTwo.\n");
    assert!(seen.stderr.contains("absent.json"), "{}", seen.stderr);
    let started = events(&user, "turn_started");
    let models: Vec<&Value> = started.iter().map(|event| &event["model"]).collect();
    assert_eq!(models, ["demo", "other"]);
    // A session without turns, and one that is not saved, go on as well.
    let seen = user
        .run_with_input(&[&SCRIPT[..], &["--no-session"]].concat(), lines)
        .ended(0);
    assert_eq!(seen.stdout, "One.\nTwo.\n");
    let seen = chat(&user, "/model other.json\nfirst\n").ended(0);
    assert_eq!(seen.stdout, "Two.\n");
}

#[test]
fn attached_file_goes_with_next_message_only() {
    let user = User::new();
    script(&user, "script.json", "demo", &["One.", "Two."]);
    user.file("notes.txt", "buy milk");
    let lines = "/attach absent.txt\n/attach\n/attach notes.txt\n/attach\nread\nagain\n";
    let seen = chat(&user, lines).ended(0);
    assert!(
        seen.stderr.contains("could not attach `absent.txt`"),
        "{}",
        seen.stderr
    );
    assert!(
        seen.stderr.contains("nothing is attached to the next message"),
        "{}",
        seen.stderr
    );
    assert!(
        seen.stderr.contains("`notes.txt` goes with the next message"),
        "{}",
        seen.stderr
    );
    let sent: Vec<usize> = (events(&user, "turn_started").iter())
        .map(|event| event["message"]["content"].as_array().unwrap().len())
        .collect();
    assert_eq!(sent, [2, 1]);
}

#[test]
fn file_that_cannot_be_sent_is_refused_when_it_is_attached() {
    let user = User::new();
    script(&user, "script.json", "demo", &["One.", "Two."]);
    user.file("a b.txt", "text").file("bin", [0, 159, 146, 150]);
    let lines =
        "/attach bin\n/attach .\n/attach /dev/zero\n/attach \"a b.txt\"\n/attach a b.txt\nread\nagain\n";
    let seen = chat(&user, lines).ended(0);
    assert_eq!(seen.stdout, "One.\nTwo.\n");
    for said in [
        "could not attach `bin`\n  why: it is neither UTF-8 text",
        "could not attach `.`\n  why: it is not a regular file but a directory",
        "could not attach `/dev/zero`\n  why: it is not a regular file but a device",
        "`a b.txt` goes with the next message",
        "`a b.txt` is attached already",
    ] {
        assert!(seen.stderr.contains(said), "{said}: {}", seen.stderr);
    }
    assert!(!seen.stderr.contains("there is no"), "{}", seen.stderr);
    let sent: Vec<usize> = (events(&user, "turn_started").iter())
        .map(|event| event["message"]["content"].as_array().unwrap().len())
        .collect();
    assert_eq!(sent, [2, 1]);
}

#[test]
fn attachment_that_fails_later_is_dropped() {
    let user = User::new();
    script(&user, "script.json", "demo", &["One."]);
    user.file("a.txt", "text");
    // The editor deletes the file between `/attach` and the message.
    let mut user = user;
    user.var("EDITOR", "rm -f a.txt; true");
    let mut terminal = Terminal::start(&user, &SCRIPT, "xterm", 100, 30);
    terminal
        .wait_for("› ")
        .keys("/attach a.txt\r")
        .wait_for("goes with the next message");
    terminal.wait_for("› ").keys("/edit\r");
    terminal
        .wait_for("› ")
        .keys("read\r")
        .wait_for("could not attach `a.txt`");
    terminal.wait_for("no longer attached");
    terminal.wait_for("› ").keys("read\r").wait_for("One.");
    terminal.wait_for("› ").keys("/quit\r");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn file_is_attached_once_to_a_message() {
    let user = User::new();
    script(&user, "script.json", "demo", &["One."]);
    user.file("a.txt", "text");
    let seen = chat(&user, "/attach a.txt\nread @a.txt and @./a.txt\n").ended(0);
    assert_eq!(seen.stderr.matches("attached `").count(), 1, "{}", seen.stderr);
}

#[test]
fn history_of_unsaved_chat_is_not_written() {
    let user = User::new();
    script(&user, "script.json", "demo", &["One."]);
    let history = user.home().join(".local/state/toolcell/history");
    for (flags, is_kept) in [(&["--no-session"][..], false), (&[], true)] {
        let mut terminal = Terminal::start(&user, &[&SCRIPT, flags].concat(), "xterm", 100, 30);
        terminal.wait_for("› ").keys("read\r").wait_for("One.");
        terminal.wait_for("› ").keys("/quit\r");
        assert_eq!(terminal.finish(), Some(0));
        assert_eq!(history.exists(), is_kept);
    }
}

#[test]
fn help_lists_commands_and_wrong_ones_are_errors() {
    let user = User::new();
    script(&user, "script.json", "demo", &["One."]);
    let seen = chat(&user, "/help\n").ended(0);
    for command in [
        "/model [NAME]",
        "/compact",
        "/clear",
        "/undo",
        "/cost",
        "/tools",
        "/attach [FILE]",
        "/edit [TEXT]",
    ] {
        assert!(seen.stderr.contains(command), "{}", seen.stderr);
    }
    let seen = chat(&user, "/resume\n").ended(2);
    assert!(seen.stderr.contains("no turn was interrupted"), "{}", seen.stderr);
    assert!(!seen.stderr.contains("toolcell session"), "{}", seen.stderr);
    let seen = chat(&user, "/foo\n").ended(2);
    assert!(!seen.stderr.contains("did you mean"), "{}", seen.stderr);
    let seen = chat(&user, "/tool\n").ended(2);
    assert!(seen.stderr.contains("did you mean `/tools`?"), "{}", seen.stderr);
    for wrong in ["/xyzzy", "/undo twice"] {
        let seen = chat(&user, &format!("{wrong}\n")).ended(2);
        assert!(seen.stderr.contains("error: "), "{}", seen.stderr);
    }
    // A message can begin with a path.
    let seen = chat(&user, "/etc/hosts is what?\n").ended(0);
    assert_eq!(seen.stdout, "One.\n");
}

#[test]
fn tab_completes_commands_and_file_names() {
    let user = User::new();
    script(&user, "script.json", "demo", &["One."]);
    user.file("notes.txt", "buy milk");
    let mut terminal = Terminal::start(&user, &SCRIPT, "xterm", 100, 30);
    terminal.wait_for("/help lists");
    terminal.wait_for("› ").keys("/att\t").wait_for("/attach");
    terminal.keys(" no\t").wait_for("notes.txt");
    terminal
        .keys("\r")
        .wait_for("`notes.txt` goes with the next message");
    terminal.wait_for("› ").keys("read @no\t").wait_for("@notes.txt");
    terminal
        .keys("\r")
        .wait_for("attached `notes.txt`")
        .wait_for("One.");
    terminal.wait_for("› ").keys("/quit\r");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn edited_text_is_the_next_prompt_and_is_not_sent() {
    let mut user = User::new();
    script(&user, "script.json", "demo", &["One.", "Two."]);
    let seen = chat(&user, "/edit\n").ended(2);
    assert!(
        seen.stderr.contains("an editor needs a terminal"),
        "{}",
        seen.stderr
    );
    // A program with arguments.
    user.var("EDITOR", "sed -i s/begin/changed/");
    let mut terminal = Terminal::start(&user, &SCRIPT, "xterm", 100, 30);
    terminal.wait_for("› ").keys("/edit begin here\r");
    terminal.wait_for("› ").wait_for("changed here").keys(" now");
    terminal.wait_for(" now").keys("\r").wait_for("One.");
    terminal.wait_for("› ").keys("/quit\r");
    assert_eq!(terminal.finish(), Some(0));
    let started = events(&user, "turn_started");
    assert_eq!(started.len(), 1);
    let sent = started[0]["message"].to_string();
    assert!(
        sent.contains("changed here now") && !sent.contains("begin"),
        "{sent}"
    );
}

#[test]
fn editor_that_fails_or_is_missing_is_an_error() {
    for (editor, error) in [
        ("false", "could not edit the message with `false`"),
        (" ", "no editor is set"),
    ] {
        let mut user = User::new();
        script(&user, "script.json", "demo", &["One."]);
        user.var("EDITOR", editor);
        let mut terminal = Terminal::start(&user, &SCRIPT, "xterm", 100, 30);
        terminal.wait_for("› ").keys("/edit\r").wait_for(error);
        terminal.wait_for("› ").keys("/quit\r");
        assert_eq!(terminal.finish(), Some(0));
    }
}

/// A component whose tools return their arguments.
fn echo(name: &str) -> Probe {
    Probe {
        names: vec![name.to_owned()],
        ..Probe::default()
    }
}

/// A chat with the component `tool.wasm`, whose tool is `first`, and a model that calls `second`.
fn chat_with_tool(user: &User, flags: &[&str]) -> Terminal {
    user.probe("tool.wasm", &echo("first"));
    let call = json!({ "calls": [{ "name": "second", "arguments": { "given": 42 } }] });
    let steps = json!([call, { "text": "One." }, call, { "text": "Two." }]);
    user.file("script.json", json!({ "steps": steps }).to_string());
    user.run(&["lock", "--tool", "tool.wasm"]).ended(0);
    let command = [&SCRIPT[..], &["--tool", "tool.wasm"], flags].concat();
    let mut terminal = Terminal::start(user, &command, "xterm", 100, 30);
    terminal.wait_for("› ").keys("/tools\r").wait_for("  first");
    terminal.wait_for("› ");
    terminal
}

#[test]
fn changed_component_is_loaded_again_for_the_next_message() {
    let user = User::new();
    let mut terminal = chat_with_tool(&user, &[]);
    // The same content again is no change.
    user.probe("tool.wasm", &echo("first"));
    terminal.keys("one\r").wait_for("no tool").wait_for(".");
    terminal.wait_for("› ");
    assert!(!terminal.seen.contains("changed"), "{}", terminal.seen);
    user.probe("tool.wasm", &echo("second"));
    terminal
        .keys("two\r")
        .wait_for("the component `tool` changed, and was loaded again")
        .wait_for("second")
        .wait_for("✓");
    terminal.wait_for("› ").keys("/tools\r").wait_for("  second");
    // Broken: the chat goes on with what it has, and says so once.
    user.file("tool.wasm", "no component");
    terminal
        .wait_for("› ")
        .keys("/tools\r")
        .wait_for("the component `tool` changed, and its tools stay as they were")
        .wait_for("  second");
    terminal.wait_for("› ").keys("/tools\r").wait_for("  second");
    terminal.wait_for("› ").keys("/quit\r");
    assert_eq!(terminal.finish(), Some(0));
    assert_eq!(terminal.seen.matches("stay as they were").count(), 1);
}

#[test]
fn changed_component_that_does_not_fit_the_lock_is_not_loaded_in_a_chat() {
    let user = User::new();
    let mut terminal = chat_with_tool(&user, &["--locked"]);
    user.probe("tool.wasm", &echo("second"));
    terminal
        .keys("/tools\r")
        .wait_for("its tools stay as they were")
        .wait_for("  first");
    user.run(&["lock", "--tool", "tool.wasm"]).ended(0);
    terminal
        .wait_for("› ")
        .keys("/tools\r")
        .wait_for("was loaded again")
        .wait_for("  second");
    terminal.wait_for("› ").keys("/quit\r");
    assert_eq!(terminal.finish(), Some(0));
}

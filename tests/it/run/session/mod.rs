//! Sessions on disk, and `toolcell chat`.

mod in_use;
mod saved;

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

use crate::support::cli_user::{Seen, User};

fn id_of(seen: &Seen) -> String {
    seen.json_lines()[0]["session"].as_str().unwrap().to_owned()
}

fn sessions(user: &User) -> Vec<Value> {
    user.run(&["session", "list", "--json"])
        .ended(0)
        .json()
        .as_array()
        .unwrap()
        .clone()
}

const ASK: [&str; 5] = [
    "run",
    "How many words are in \"a b c\"?",
    "--tool",
    "text",
    "--json",
];

#[test]
fn session_is_listed_continued_forked_exported_and_deleted() {
    let user = User::new();
    let first = user.run(&ASK).ended(0);
    let id = id_of(&first);
    assert_eq!(sessions(&user)[0]["id"], id.as_str());

    let shown = user.run(&["session", "show", "last"]).ended(0);
    assert!(
        shown.stdout.starts_with("› How many words are in \"a b c\"?\n"),
        "{}",
        shown.stdout
    );
    assert!(shown.stdout.contains("words: 3"), "{}", shown.stdout);

    let more = user
        .run(&[
            "session",
            "resume",
            &id,
            "How many lines are in \"x\"?",
            "--tool",
            "text",
            "--json",
        ])
        .ended(0);
    assert_eq!(id_of(&more), id);

    let fork = user
        .run(&["session", "fork", &id])
        .ended(0)
        .stdout
        .trim()
        .to_owned();
    assert_ne!(fork, id);
    let export = user.run(&["session", "export", &fork]).ended(0);
    let turns = export
        .json_lines()
        .iter()
        .filter(|event| event["type"] == "turn_started")
        .count();
    assert_eq!(turns, 2);

    user.run(&["session", "delete", &id]).ended(0);
    user.run(&["session", "show", &id]).ended(2);
    // The events shared with the fork remain.
    assert_eq!(
        user.run(&["session", "export", &fork]).ended(0).stdout,
        export.stdout
    );
    assert_eq!(sessions(&user).len(), 1);
}

#[test]
fn unsaved_session_is_not_kept() {
    let user = User::new();
    let mut arguments = ASK.to_vec();
    arguments.push("--no-session");
    user.run(&arguments).ended(0);
    assert!(sessions(&user).is_empty());
}

#[test]
fn unknown_or_ambiguous_session_name_is_refused() {
    let user = User::new();
    user.run(&["session", "show", "last"]).ended(2);
    user.run(&ASK).ended(0);
    user.run(&ASK).ended(0);
    let ids = sessions(&user);
    let id = ids[0]["id"].as_str().unwrap();
    // The beginning of an identifier is the time, of which both have most.
    let seen = user.run(&["session", "show", &id[..6]]).ended(2);
    assert!(seen.stderr.contains("matches 2 sessions"), "{}", seen.stderr);
    let seen = user.run(&["session", "show", "nope"]).ended(2);
    assert!(
        seen.stderr.contains("there is no session `nope`"),
        "{}",
        seen.stderr
    );
    let seen = user
        .run(&["session", "resume", "last", "--tool", "text"])
        .ended(2);
    assert!(seen.stderr.contains("has no open turn"), "{}", seen.stderr);
}

/// The process is killed during a call; another process resumes, and the finished call is not repeated.
#[test]
fn killed_turn_resumes_in_another_process() {
    use std::io::{BufRead as _, BufReader};
    let user = User::new();
    let write =
        |path: &str| json!([{ "name": "files_write", "arguments": { "path": path, "content": "x" } }]);
    let script = |last: Value| {
        json!({ "position": "conversation", "steps": [{ "calls": write("one.txt") }, last] }).to_string()
    };
    user.file(
        "script.json",
        script(json!({ "delay_ms": 60_000, "text": "never" })),
    );
    let flags = [
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--tool",
        "files",
        "--grant",
        "write=.",
        "--json",
    ];
    let mut child = user.command(&["run", "x"]).args(flags).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let first: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    lines
        .by_ref()
        .find(|line| line.contains("\"call_finished\""))
        .unwrap();
    // The second step has started: everything before it is in the journal.
    lines
        .by_ref()
        .find(|line| line.contains("\"step_started\""))
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    std::fs::remove_file(user.work().join("one.txt")).unwrap();
    user.file("script.json", script(json!({ "text": "Done." })));
    let id = first["session"].as_str().unwrap();
    // Another message does not finish the turn without a word, and a schema is not for the old one.
    user.file("schema.json", r#"{"type": "object"}"#);
    let seen = user
        .command(&["run", "y", "--continue"])
        .args(flags)
        .output()
        .unwrap();
    let told = String::from_utf8(seen.stderr).unwrap();
    assert_eq!(seen.status.code(), Some(2), "{told}");
    assert!(
        told.contains("the last turn of the session is not over"),
        "{told}"
    );
    assert!(told.contains(&format!("toolcell session resume {id}")), "{told}");
    let with_schema = ["session", "resume", id, "y", "--schema", "schema.json"];
    let seen = user.command(&with_schema).args(flags).output().unwrap();
    assert_eq!(
        seen.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&seen.stderr)
    );
    let mut resume = vec!["session", "resume", id];
    resume.extend(flags);
    let seen = user.run(&resume).ended(0);
    let last = seen.json_lines().last().unwrap().clone();
    assert_eq!(
        (last["type"].as_str(), last["text"].as_str()),
        (Some("turn_finished"), Some("Done."))
    );
    // The finished call was not repeated.
    assert!(!user.work().join("one.txt").exists());
}

#[test]
fn piped_chat_answers_each_line_and_runs_commands() {
    let user = User::new();
    let lines = "How many words are in \"a b c\"?\n/session\n/nwe\n\nHow many words\\\nare in \"d e\"?\n/quit\nnever said\n";
    let seen = user.run_with_input(&["chat", "--tool", "text"], lines).ended(0);
    assert!(
        seen.stdout.contains("words: 3") && seen.stdout.contains("words: 2"),
        "{}",
        seen.stdout
    );
    assert!(
        seen.stderr.contains(
            "unknown command `/nwe`\n hint: did you mean `/new`?\n hint: the commands are /help, /model, "
        ),
        "{}",
        seen.stderr
    );
    assert_eq!(sessions(&user).len(), 1);
    let export = user.run(&["session", "export", "last"]).ended(0).stdout;
    assert!(!export.contains("never said"), "{export}");
}

#[test]
fn failed_turn_keeps_chat_open_and_sets_exit_code() {
    let user = User::new();
    user.file(
        "script.json",
        json!({ "steps": [{ "error": { "kind": "invalid_request", "message": "no" } }, { "text": "Yes." }] })
            .to_string(),
    );
    let flags = [
        "chat",
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--tool",
        "text",
    ];
    let seen = user.run_with_input(&flags, "one\ntwo\n").ended(0);
    assert!(seen.stderr.contains("request to provider"), "{}", seen.stderr);
    assert!(seen.stdout.contains("Yes."), "{}", seen.stdout);
    user.run_with_input(&flags, "one\n").ended(6);
}

#[test]
fn session_changed_elsewhere_is_reported() {
    for (elsewhere, said) in [
        (
            &[
                "resume",
                "last",
                "two",
                "--provider",
                "scripted",
                "--model",
                "b.json",
            ][..],
            "continued by another process",
        ),
        (&["delete", "last"], "deleted by another process"),
    ] {
        let user = User::new();
        let turns = json!({ "steps": [{ "text": "First." }, { "text": "Second." }] }).to_string();
        user.file("a.json", &turns).file("b.json", &turns);
        let mut chat = user
            .command(&["chat", "--provider", "scripted", "--model", "a.json"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = chat.stdin.take().unwrap();
        let mut output = std::io::BufReader::new(chat.stdout.take().unwrap());
        input.write_all(b"one\n").unwrap();
        let mut answer = String::new();
        while !answer.contains("First.") {
            assert!(output.read_line(&mut answer).unwrap() > 0, "{answer}");
        }
        // The end of the turn is in the journal once the next line is read: a resume does not wait for anything else.
        while user
            .run(&["session", "export", "last"])
            .stdout
            .matches("turn_finished")
            .count()
            == 0
        {
            std::thread::yield_now();
        }
        // A program that leaves no mark, such as one that embeds the store.
        std::fs::remove_dir_all(user.home().join(".local/state/toolcell/in-use")).unwrap();
        user.run(&[&["session"], elsewhere].concat()).ended(0);
        input.write_all(b"three\n").unwrap();
        drop(input);
        let ended = chat.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(8), "{stderr}");
        assert!(stderr.contains(said) && stderr.contains("hint: "), "{stderr}");
        assert!(!stderr.contains("internal error of Toolcell"), "{stderr}");
    }
}

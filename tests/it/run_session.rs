//! Sessions on disk, and `toolcell chat`.

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

use crate::cli_person::{Person, Seen};

fn id_of(seen: &Seen) -> String {
    seen.json_lines()[0]["session"].as_str().unwrap().to_owned()
}

fn sessions(person: &Person) -> Vec<Value> {
    person
        .run(&["session", "list", "--json"])
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
fn a_session_is_listed_shown_continued_forked_exported_and_deleted() {
    let person = Person::new();
    let first = person.run(&ASK).ended(0);
    let id = id_of(&first);
    assert_eq!(sessions(&person)[0]["id"], id.as_str());

    let shown = person.run(&["session", "show", "last"]).ended(0);
    assert!(
        shown.stdout.starts_with("› How many words are in \"a b c\"?\n"),
        "{}",
        shown.stdout
    );
    assert!(shown.stdout.contains("words: 3"), "{}", shown.stdout);

    let more = person
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

    let fork = person
        .run(&["session", "fork", &id])
        .ended(0)
        .stdout
        .trim()
        .to_owned();
    assert_ne!(fork, id);
    let export = person.run(&["session", "export", &fork]).ended(0);
    let turns = export
        .json_lines()
        .iter()
        .filter(|event| event["type"] == "turn_started")
        .count();
    assert_eq!(turns, 2);

    person.run(&["session", "delete", &id]).ended(0);
    person.run(&["session", "show", &id]).ended(2);
    // What the fork shares stays.
    assert_eq!(
        person.run(&["session", "export", &fork]).ended(0).stdout,
        export.stdout
    );
    assert_eq!(sessions(&person).len(), 1);
}

#[test]
fn a_session_that_is_not_wanted_is_not_kept() {
    let person = Person::new();
    let mut arguments = ASK.to_vec();
    arguments.push("--no-session");
    person.run(&arguments).ended(0);
    assert!(sessions(&person).is_empty());
}

#[test]
fn names_of_sessions_that_fit_none_or_several_are_refused() {
    let person = Person::new();
    person.run(&["session", "show", "last"]).ended(2);
    person.run(&ASK).ended(0);
    person.run(&ASK).ended(0);
    let seen = person.run(&["session", "show", "0"]).ended(2);
    assert!(seen.stderr.contains("stands for 2 sessions"), "{}", seen.stderr);
    let seen = person.run(&["session", "show", "nope"]).ended(2);
    assert!(
        seen.stderr.contains("there is no session `nope`"),
        "{}",
        seen.stderr
    );
    let seen = person
        .run(&["session", "resume", "last", "--tool", "text"])
        .ended(2);
    assert!(seen.stderr.contains("has no open turn"), "{}", seen.stderr);
}

/// The process is killed while a call runs; another process goes on, and the call that had finished is not run again.
#[cfg(unix)]
#[test]
fn a_turn_that_was_killed_goes_on_in_another_process() {
    use std::io::{BufRead as _, BufReader};
    let person = Person::new();
    let write =
        |path: &str| json!([{ "name": "files_write", "arguments": { "path": path, "content": "x" } }]);
    let script = |last: Value| {
        json!({ "position": "conversation", "steps": [{ "calls": write("one.txt") }, last] }).to_string()
    };
    person.file(
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
    let mut child = person.command(&["run", "x"]).args(flags).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let first: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    lines
        .by_ref()
        .find(|line| line.contains("\"call_finished\""))
        .unwrap();
    // The second step has begun: what came before it is in the journal.
    lines
        .by_ref()
        .find(|line| line.contains("\"step_started\""))
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    std::fs::remove_file(person.work().join("one.txt")).unwrap();
    person.file("script.json", script(json!({ "text": "Done." })));
    let id = first["session"].as_str().unwrap();
    let mut resume = vec!["session", "resume", id];
    resume.extend(flags);
    let seen = person.run(&resume).ended(0);
    let last = seen.json_lines().last().unwrap().clone();
    assert_eq!(
        (last["type"].as_str(), last["text"].as_str()),
        (Some("turn_finished"), Some("Done."))
    );
    // The call that had finished did not run again.
    assert!(!person.work().join("one.txt").exists());
}

#[test]
fn a_chat_from_a_pipe_answers_line_by_line_and_knows_its_commands() {
    let person = Person::new();
    let lines = "How many words are in \"a b c\"?\n/session\n/nwe\n\nHow many words\\\nare in \"d e\"?\n/quit\nnever said\n";
    let seen = person.run_with_input(&["chat", "--tool", "text"], lines).ended(0);
    assert!(
        seen.stdout.contains("words: 3") && seen.stdout.contains("words: 2"),
        "{}",
        seen.stdout
    );
    assert!(
        seen.stderr.contains("there is no `/nwe`; did you mean `/new`?"),
        "{}",
        seen.stderr
    );
    assert_eq!(sessions(&person).len(), 1);
    let export = person.run(&["session", "export", "last"]).ended(0).stdout;
    assert!(!export.contains("never said"), "{export}");
}

#[test]
fn a_turn_that_fails_does_not_end_a_chat_and_a_script_sees_its_code() {
    let person = Person::new();
    person.file(
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
    let seen = person.run_with_input(&flags, "one\ntwo\n").ended(0);
    assert!(seen.stderr.contains("gave no answer"), "{}", seen.stderr);
    assert!(seen.stdout.contains("Yes."), "{}", seen.stdout);
    person.run_with_input(&flags, "one\n").ended(6);
}

#[test]
fn a_session_that_was_changed_elsewhere_is_said_to_be() {
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
            "continued elsewhere",
        ),
        (&["delete", "last"], "deleted elsewhere"),
    ] {
        let person = Person::new();
        let turns = json!({ "steps": [{ "text": "First." }, { "text": "Second." }] }).to_string();
        person.file("a.json", &turns).file("b.json", &turns);
        let mut chat = person
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
        // The end of the turn is in the journal once the next line is read: a resume waits for nothing else.
        while person
            .run(&["session", "export", "last"])
            .stdout
            .matches("turn_finished")
            .count()
            == 0
        {
            std::thread::yield_now();
        }
        person.run(&[&["session"], elsewhere].concat()).ended(0);
        input.write_all(b"three\n").unwrap();
        drop(input);
        let ended = chat.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(8), "{stderr}");
        assert!(stderr.contains(said) && stderr.contains("hint: "), "{stderr}");
        assert!(!stderr.contains("Toolcell itself failed"), "{stderr}");
    }
}

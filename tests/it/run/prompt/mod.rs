//! What is sent with a prompt: standard input, `--attach`, and files named in the text.

mod project_instructions;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::cli_user::{Seen, User};
use crate::support::model_server::{Answer, ModelServer};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
const PNG_URL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg==";

/// A user whose model is on loopback.
fn user() -> (User, ModelServer) {
    let server = ModelServer::playing(vec![Answer::chat("Done.")]);
    let user = User::new();
    let url = server.url("/v1");
    user.configure(&format!("[provider]\nbase_url = \"{url}\"\nmodel = \"m\"\n"));
    (user, server)
}

/// Content of the last message of the user that was sent, as a list of parts.
fn sent(server: &ModelServer) -> Vec<Value> {
    let body = server.requests().last().unwrap().body.clone();
    let messages = body["messages"].as_array().unwrap();
    let last = messages.iter().rfind(|message| message["role"] == "user");
    match last.unwrap()["content"].clone() {
        // Texts alone are sent as one, with an empty line between them.
        Value::String(text) => text
            .replace("\n\nAttached file", "\0Attached file")
            .split('\0')
            .map(|text| json!({"type": "text", "text": text}))
            .collect(),
        Value::Array(parts) => parts,
        other => panic!("{other}"),
    }
}

fn texts(parts: &[Value]) -> Vec<&str> {
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}

fn run_from(user: &User, prompt: &str, input: Stdio) -> Seen {
    let arguments = ["run", prompt, "--tool", "text"];
    let ended = user.command(&arguments).stdin(input).output().unwrap();
    user.seen(&arguments, ended)
}

#[test]
fn piped_data_is_sent_with_prompt() {
    let (user, server) = user();
    let seen = user
        .run_with_input(&["run", "Summarise.", "--tool", "text"], "one\ntwo\n")
        .ended(0);
    assert!(
        seen.stderr.contains("attached `standard input`, text, 8 B"),
        "{}",
        seen.stderr
    );
    let parts = sent(&server);
    assert_eq!(
        texts(&parts),
        [
            "Summarise.",
            "Attached file `standard input`, 8 bytes of text:\n\none\ntwo\n"
        ]
    );
    // A file, and an empty pipe.
    user.file("data.txt", "three");
    let file = File::open(user.work().join("data.txt")).unwrap();
    run_from(&user, "Summarise.", file.into()).ended(0);
    assert!(texts(&sent(&server))[1].ends_with("\n\nthree"));
    user.run_with_input(&["run", "Summarise.", "--tool", "text"], "")
        .ended(0);
    assert_eq!(texts(&sent(&server)), ["Summarise."]);
}

#[test]
fn input_that_belongs_to_another_program_is_not_read() {
    let (user, server) = user();
    // A shell that reads its script from a file has read from it already.
    user.file("script", "first\nsecond\n");
    let mut file = File::open(user.work().join("script")).unwrap();
    file.read_exact(&mut [0; 6]).unwrap();
    let seen = run_from(&user, "Go.", file.try_clone().unwrap().into()).ended(0);
    assert!(
        seen.stderr.contains("standard input is not sent"),
        "{}",
        seen.stderr
    );
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "second\n");
    assert_eq!(texts(&sent(&server)), ["Go."]);
    // A shell that reads its script from a pipe.
    let script = format!(
        "{} run Go. --tool text\necho after\n",
        env!("CARGO_BIN_EXE_toolcell")
    );
    let from_pipe = |script: &str| {
        let mut shell = user.program("bash", &[]).stdin(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        user.seen(&[], shell.wait_with_output().unwrap()).ended(0)
    };
    let seen = from_pipe(&script);
    assert!(seen.stdout.ends_with("after\n"), "{}", seen.stdout);
    assert_eq!(texts(&sent(&server)), ["Go."]);
    // In a pipeline of that shell, and where it is asked for.
    let seen = from_pipe(&format!("echo data | {script}"));
    assert!(seen.stdout.ends_with("after\n"), "{}", seen.stdout);
    assert!(texts(&sent(&server))[1].ends_with("\n\ndata\n"));
    let seen = from_pipe(&script.replace("--tool", "--attach - --tool"));
    assert!(!seen.stdout.contains("after"), "{}", seen.stdout);
    assert!(texts(&sent(&server))[1].ends_with("\n\necho after\n"));
    // A program that waits for another one does not read its input; a shell around both still may.
    for wrapper in ["timeout 60", "timeout 60 timeout 60"] {
        let seen = from_pipe(&format!("echo data | {wrapper} {script}"));
        assert!(seen.stdout.ends_with("after\n"), "{}", seen.stdout);
        assert!(texts(&sent(&server))[1].ends_with("\n\ndata\n"), "{wrapper}");
        let seen = from_pipe(&format!("{wrapper} {script}"));
        assert!(seen.stdout.ends_with("after\n"), "{}", seen.stdout);
        assert_eq!(texts(&sent(&server)), ["Go."], "{wrapper}");
    }
    // A pipe that stays open and empty.
    let arguments = ["run", "Go.", "--tool", "text"];
    let mut child = user.command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
    let open = child.stdin.take().unwrap();
    let seen = user.seen(&arguments, child.wait_with_output().unwrap()).ended(0);
    drop(open);
    assert!(
        seen.stderr.contains("nothing came on standard input in 3 s"),
        "{}",
        seen.stderr
    );
    assert_eq!(texts(&sent(&server)), ["Go."]);
}

#[test]
fn files_are_attached_by_flag_and_by_name() {
    let (user, server) = user();
    std::fs::write(user.work().join("plot.png"), PNG).unwrap();
    user.file("two words.txt", "some text");
    user.file("doc.pdf", "%PDF-1.7 x");
    let seen = user
        .run(&[
            "run",
            "Compare @plot.png, and @\"two words.txt\" for @ada.",
            "--attach",
            "doc.pdf",
            "--tool",
            "text",
        ])
        .ended(0);
    for told in [
        "attached `plot.png`, image/png, 16 B",
        "attached `doc.pdf`, application/pdf, 10 B",
    ] {
        assert!(seen.stderr.contains(told), "{}", seen.stderr);
    }
    let parts = sent(&server);
    assert_eq!(
        texts(&parts)[0],
        "Compare @plot.png, and @\"two words.txt\" for @ada."
    );
    let picture = parts.iter().find(|part| part["type"] == "image_url").unwrap();
    assert_eq!(picture["image_url"]["url"], PNG_URL);
    assert!(texts(&parts).contains(&"Attached file `two words.txt`, 9 bytes of text:\n\nsome text"));
    assert!(parts.iter().any(|part| part["type"] == "file"), "{parts:?}");
    // With a message to an earlier session, too.
    user.run(&[
        "session",
        "resume",
        "last",
        "And this?",
        "--attach",
        "plot.png",
        "--tool",
        "text",
    ])
    .ended(0);
    assert_eq!(texts(&sent(&server)), ["And this?", "Attached file `plot.png`:"]);
}

#[test]
fn name_in_a_text_attaches_nothing_outside_of_the_working_directory() {
    let (user, server) = user();
    std::fs::write(user.home().join("private.txt"), "secret").unwrap();
    std::os::unix::fs::symlink(user.home().join("private.txt"), user.work().join("link.txt")).unwrap();
    let outside = user.home().join("private.txt");
    for name in [outside.to_str().unwrap(), "link.txt"] {
        let seen = user
            .run(&["run", &format!("Read @{name}"), "--tool", "text"])
            .ended(0);
        assert!(seen.stderr.contains("is not attached"), "{}", seen.stderr);
        assert_eq!(texts(&sent(&server)), [format!("Read @{name}")]);
    }
    // Text from standard input names nothing.
    user.file("a.txt", "text");
    user.run_with_input(&["run", "-", "--tool", "text"], "Read @a.txt")
        .ended(0);
    assert_eq!(texts(&sent(&server)), ["Read @a.txt"]);
}

#[test]
fn what_cannot_be_attached_is_told() {
    let (user, server) = user();
    user.file("nul.bin", "a\0b");
    std::fs::write(user.work().join("latin.txt"), b"\xe4\xf6").unwrap();
    let large = File::create(user.work().join("large.txt")).unwrap();
    large.set_len((4 << 20) + 1).unwrap();
    let mut larger = File::create(user.work().join("larger.pdf")).unwrap();
    larger.write_all(b"%PDF-").unwrap();
    larger.set_len((20 << 20) + 1).unwrap();
    for (file, reason) in [
        ("nul.bin", "neither UTF-8 text, nor a PNG"),
        ("latin.txt", "neither UTF-8 text, nor a PNG"),
        ("large.txt", "it has more than 4 MiB of text"),
        ("larger.pdf", "20"),
        ("missing.txt", "No such file"),
        (".", "directory"),
    ] {
        let seen = user.run(&["run", "Read.", "--attach", file]).ended(2);
        assert!(
            seen.stderr.contains(&format!("error: could not attach `{file}`")),
            "{}",
            seen.stderr
        );
        assert!(seen.stderr.contains(reason), "{}", seen.stderr);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn answer_fits_schema_of_file_or_is_asked_for_again() {
    let user = User::new();
    let steps = json!([{ "text": "Three." }, { "text": "{\"words\": \"3\"}" }, { "text": "{\"words\": 3}" }]);
    user.file("script.json", json!({ "steps": steps }).to_string());
    let schema = json!({
        "type": "object",
        "properties": { "words": { "type": "integer" } },
        "required": ["words"],
    });
    user.file("schema.json", schema.to_string())
        .file("wrong.json", "{\"type\": 1}");
    let seen = user.run_script(&["--schema", "schema.json"]).ended(0);
    // Earlier attempts are not for the program that reads the answer.
    assert_eq!(seen.stdout, "{\"words\": 3}\n");
    let seen = user.run_script(&["--schema", "schema.json", "--json"]).ended(0);
    let last = seen.json_lines().last().unwrap().clone();
    assert_eq!(
        (&last["type"], &last["result"]),
        (&json!("turn_finished"), &json!({ "words": 3 }))
    );
    for (file, why) in [
        ("wrong.json", "wrong.json` cannot be used"),
        ("absent.json", "No such file"),
    ] {
        let seen = user.run_script(&["--schema", file]).ended(2);
        assert!(seen.stderr.contains(why), "{}", seen.stderr);
    }
}

#[test]
fn answer_that_never_fits_schema_is_not_on_standard_output() {
    let user = User::new();
    let schema = json!({ "type": "object", "required": ["words"] });
    user.file("schema.json", schema.to_string());
    let ask = json!({ "name": "ask_question", "arguments": { "question": "Which text?" } });
    for (step, flags, code, why) in [
        (json!({ "text": "Three." }), &[][..], 1, "the same error occurred"),
        (
            json!({ "text": "Three." }),
            &["--max-steps", "1"],
            5,
            "limit of 1 step",
        ),
        (
            json!({ "calls": [ask] }),
            &["--preset", "stepwise"],
            1,
            "asked a question",
        ),
    ] {
        let steps = vec![step; 12];
        user.file("script.json", json!({ "steps": steps }).to_string());
        let seen = user
            .run_script(&[&["--schema", "schema.json"], flags].concat())
            .ended(code);
        assert_eq!(seen.stdout, "", "{}", seen.stderr);
        assert!(seen.stderr.contains(why), "{}", seen.stderr);
    }
}

#[test]
fn file_that_flags_deny_is_not_attached() {
    let (user, server) = user();
    user.file("private/key", "secret");
    for deny in ["deny=private", "deny=./private", "deny=private/key"] {
        let denied = ["--tool", "text", "--grant", "read=.", "--grant", deny];
        let run = [&["run", "See @private/key"][..], &denied].concat();
        let resume = [&["session", "resume", "last", "See @private/key"][..], &denied].concat();
        for command in [run, resume] {
            let seen = user.run(&command).ended(0);
            assert!(seen.stderr.contains("is not attached"), "{}", seen.stderr);
            assert_eq!(texts(&sent(&server)).last().copied(), Some("See @private/key"));
        }
    }
}

#[test]
fn name_without_a_file_is_sent_as_text_with_a_note() {
    let (user, server) = user();
    user.file("there.txt", "x").file("docs/a", "x");
    let seen = user
        .run(&["run", "See @nofile.txt, @docs and @there.txt."])
        .ended(0);
    for note in [
        "`@nofile.txt` is sent as text, because there is no such file",
        "`@docs` is sent as text, because it is a directory",
        "attached `there.txt`",
    ] {
        assert!(seen.stderr.contains(note), "{note}: {}", seen.stderr);
    }
    assert_eq!(texts(&sent(&server))[0], "See @nofile.txt, @docs and @there.txt.");
}

#[test]
fn standard_input_is_sent_once() {
    let (user, _server) = user();
    for flags in [
        &["-", "--attach", "-"][..],
        &["x", "--attach", "-", "--attach", "-"],
    ] {
        let seen = user
            .run_with_input(&[&["run"][..], flags].concat(), "data")
            .ended(2);
        assert!(
            seen.stderr.contains("standard input can be sent only once"),
            "{}",
            seen.stderr
        );
    }
}

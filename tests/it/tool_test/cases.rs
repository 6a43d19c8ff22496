//! Cases of an author: what they find, what they expect, and what they cannot reach.

use std::net::TcpListener;

use super::user;
use crate::probe::Probe;
use crate::support::cli_user::{Seen, User};

/// Runs the cases of this text on a shipped component, without generated calls.
fn run(user: &User, component: &str, cases: &str) -> Seen {
    user.file("cases.toml", cases);
    user.run(&[
        "tool",
        "test",
        component,
        "--cases",
        "cases.toml",
        "--generated",
        "0",
    ])
}

#[test]
fn differences_are_shown_with_what_was_expected() {
    let (user, temporary) = user();
    let seen = run(
        &user,
        "text",
        r#"
        [[case]]
        name = "right"
        tool = "text_count"
        arguments = { text = "a b" }
        result = { lines = 1, words = 2, characters = 3, bytes = 3 }
        [[case]]
        name = "wrong result"
        tool = "text_count"
        arguments = { text = "a b" }
        result = { words = 3 }
        [[case]]
        name = "wrong error"
        tool = "text_count"
        arguments = { }
        error = "failed"
        [[case]]
        name = "no error"
        tool = "text_count"
        arguments = { text = "a" }
        error = "failed"
        [[case]]
        name = "beyond the limit"
        tool = "text_count"
        arguments = { text = "a" }
        limits = { fuel = 100 }
        error = "limit"
        "#,
    )
    .ended(1);
    let shown: String = seen
        .stdout
        .lines()
        .skip(1)
        .filter(|line| !line.contains("checks passed"))
        .map(|line| format!("{line}\n"))
        .collect();
    insta::assert_snapshot!(shown, @r#"
    ✓ text_count: right
    ✗ text_count: `wrong result`
      │ expected {"words":3}, and it answered {"bytes":3,"characters":3,"lines":1,"words":2}
    ✗ text_count: `wrong error`
      │ expected the error `failed`, and it is `invalid_arguments`: the arguments were not accepted: give `text` or `path`
    ✗ text_count: `no error`
      │ expected the error `failed`, and it answered {"bytes":1,"characters":1,"lines":1,"words":1}
    ✓ text_count: `beyond the limit`
    "#);
    assert!(seen.stderr.contains(" 0 warned, 3 failed"), "{}", seen.stderr);
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
}

#[test]
fn case_sees_planted_files_and_none_of_the_user() {
    let (user, _) = user();
    user.file("secret.txt", "mine");
    user.configure("[tools.files]\ngrants = [\"write=.\"]\n");
    user.run(&["call", "files_read", r#"{"path": "secret.txt"}"#])
        .ended(0);
    let cases = r#"
        [[case]]
        name = "a file of the user"
        tool = "files_read"
        arguments = { path = "secret.txt" }
        grants = ["read=."]
        error = "failed"
        [[case]]
        name = "a planted file"
        tool = "files_read"
        arguments = { path = "secret.txt" }
        grants = ["read=."]
        files = { "secret.txt" = "planted" }
        pattern = "planted"
        [[case]]
        name = "a changed file"
        tool = "files_edit"
        arguments = { path = "secret.txt", old = "planted", new = "changed" }
        grants = ["write=."]
        files = { "secret.txt" = "planted" }
        files_after = { "secret.txt" = "changed" }
    "#;
    let seen = run(&user, "files", cases);
    assert!(
        seen.stdout.contains("✓ files_read: `a file of the user`"),
        "{}",
        seen.stdout
    );
    assert!(
        seen.stdout.contains("✓ files_read: `a planted file`"),
        "{}",
        seen.stdout
    );
    assert_eq!(
        std::fs::read_to_string(user.work().join("secret.txt")).unwrap(),
        "mine"
    );
    for grant in ["read=/", "read=..", "write=~", "env=HOME"] {
        let case = format!("[[case]]\nname = \"x\"\ntool = \"files_read\"\ngrants = [\"{grant}\"]\n");
        let seen = run(&user, "files", &case).ended(2);
        assert!(seen.stderr.contains("in the case `x`"), "{}", seen.stderr);
    }
}

#[test]
fn requests_reach_planted_answers_alone() {
    let (user, _) = user();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let server = listener.local_addr().unwrap();
    let seen = run(
        &user,
        "fetch",
        &format!(
            r#"
            [[case]]
            name = "over https"
            tool = "fetch"
            arguments = {{ url = "https://a.example/x?y=1" }}
            grants = ["http=a.example"]
            pattern = "planted words"
            http = [{{ url = "https://a.example/x?y=1", body = "planted words" }}]
            [[case]]
            name = "over http, to an address"
            tool = "fetch"
            arguments = {{ url = "http://{server}/" }}
            grants = ["http=http://{server}"]
            pattern = "not the server"
            http = [{{ url = "http://{server}/", body = "not the server" }}]
            [[case]]
            name = "not planted"
            tool = "fetch"
            arguments = {{ url = "http://{server}/" }}
            grants = ["http=http://{server}", "http=b.example"]
            error = "unavailable"
            [[case]]
            name = "another path"
            tool = "fetch"
            arguments = {{ url = "https://a.example/other" }}
            grants = ["http=a.example"]
            http = [{{ url = "https://a.example/x", body = "x" }}]
            [[case]]
            name = "a host without an answer"
            tool = "fetch"
            arguments = {{ url = "https://b.example/" }}
            grants = ["http=b.example"]
            error = "unavailable"
            [[case]]
            name = "not granted"
            tool = "fetch"
            arguments = {{ url = "https://a.example/x" }}
            error = "denied"
            http = [{{ url = "https://a.example/x", body = "x" }}]
            "#
        ),
    )
    .ended(1);
    for line in [
        "✓ fetch: `over https`",
        "✓ fetch: `over http, to an address`",
        "✓ fetch: `not planted`",
        "✗ fetch: `another path`",
        "  │ it sent what no planted answer fits: GET https://a.example/other",
        "  │ it did not request https://a.example/x",
        "  │ it sent what no planted answer fits: a request to `b.example`, a host without a planted answer",
        "✗ fetch: `not granted`",
    ] {
        assert!(seen.stdout.contains(line), "{line}: {}", seen.stdout);
    }
    // Nothing was sent to the real server.
    assert_eq!(
        listener.accept().unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock
    );
}

#[test]
fn buckets_of_a_case_begin_empty_and_are_not_those_of_the_user() {
    let (user, _) = user();
    user.configure("[tools.memory]\nenabled = true\ngrants = [\"keyvalue=memory\"]\n");
    let store = r#"{"content": "kept by the user"}"#;
    user.run(&["call", "memory_store", store]).ended(0);
    let found = user
        .run(&["call", "memory_discover", r#"{"query": "kept"}"#])
        .ended(0);
    assert!(found.stdout.contains("kept by the user"), "{}", found.stdout);
    let case = r#"
        [[case]]
        name = "nothing is found"
        tool = "memory_discover"
        arguments = { query = "kept" }
        grants = ["keyvalue=memory"]
    "#;
    user.file("cases.toml", case);
    let arguments = ["tool", "test", "memory", "--cases", "cases.toml", "--json"];
    let report = user.run(&arguments).ended(0).json();
    assert_eq!(report["findings"][0]["outcome"], "passed", "{report}");
    let case = case.replace("grants", "pattern = \"kept by the user\"\ngrants");
    let seen = run(&user, "memory", &case).ended(1);
    assert!(seen.stdout.contains("is not in"), "{}", seen.stdout);
}

#[test]
fn cases_that_cannot_be_used_are_refused_with_a_reason() {
    let (user, _) = user();
    user.file("broken.toml", "[[case]\n");
    user.file("other.toml", "[[case]]\nname = \"x\"\ntool = \"text_cuont\"\n");
    user.file("nameless.toml", "[[case]]\nname = \"x\"\n");
    user.probe("probe.wasm", &Probe::default());
    for (arguments, code, said) in [
        (
            &["text", "--cases", "gone.toml"][..],
            2,
            "the cases in `gone.toml` cannot be used",
        ),
        (&["text", "--cases", "broken.toml"], 2, "line 1"),
        (&["text", "--cases", "other.toml"], 2, "no tool `text_cuont`"),
        (&["text", "--cases", "nameless.toml"], 2, "does not name its tool"),
        (&["gone"], 2, "there is no tool `gone`"),
        (&["./gone.wasm"], 7, "cannot be read"),
        (&["text", "--generated", "1001"], 2, "1001"),
        (
            &["probe.wasm", "--junit", "absent/x.xml"],
            74,
            "cannot be written",
        ),
    ] {
        let seen = user.run(&[&["tool", "test"][..], arguments].concat()).ended(code);
        assert!(seen.stderr.contains(said), "{arguments:?}: {}", seen.stderr);
    }
}

#[test]
fn directory_has_one_component_and_its_cases() {
    let (user, _) = user();
    user.probe("tool/probe.wasm", &Probe::default());
    user.file(
        "tool/cases/a.json",
        r#"{"case": [{"name": "an echo", "arguments": {"a": 1}, "result": {"a": 1}}]}"#,
    );
    let seen = user
        .run(&["tool", "test", "tool", "--junit", "report.xml"])
        .ended(0);
    assert!(seen.stdout.contains("✓ probe: `an echo`"), "{}", seen.stdout);
    let xml = std::fs::read_to_string(user.work().join("report.xml")).unwrap();
    assert!(
        xml.contains("<testcase classname=\"probe.probe.case\" name=\"an echo\""),
        "{xml}"
    );
    let mut inside = user.command(&["tool", "test", ".", "--strict"]);
    let output = inside.current_dir(user.work().join("tool")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "its schema accepts any parameter");
    user.probe("tool/second.wasm", &Probe::default());
    let seen = user.run(&["tool", "test", "tool"]).ended(2);
    assert!(seen.stderr.contains("several components"), "{}", seen.stderr);
    std::fs::create_dir(user.work().join("empty")).unwrap();
    let seen = user.run(&["tool", "test", "empty"]).ended(2);
    assert!(seen.stderr.contains("build it first"), "{}", seen.stderr);
}

//! What is denied stays denied, whoever grants it and however a tool asks for it.

use serde_json::json;

use crate::cli_person::{Person, SCRIPTED};

/// A person with `private/key` and `notes/a` in the working directory.
fn person() -> Person {
    let person = Person::new();
    person.file("private/key", "the key");
    person.file("notes/a", "a note");
    person
}

fn read(person: &Person, path: &str, grants: &[&str]) -> crate::cli_person::Seen {
    let arguments = json!({ "path": path }).to_string();
    let mut command = vec!["call", "files_read", arguments.as_str()];
    command.extend(grants.iter().flat_map(|grant| ["--grant", grant]));
    person.run(&command)
}

#[test]
fn a_denied_directory_is_read_by_no_tool_and_the_user_is_told_why() {
    let person = person();
    for path in [
        "private/key",
        "./private/key",
        "/private/key",
        "notes/../private/key",
    ] {
        let seen = read(&person, path, &["write=.", "deny=private"]).ended(4);
        assert!(
            seen.stderr.contains("is denied to it by deny=private (--grant)"),
            "{}",
            seen.stderr
        );
        assert!(!seen.stdout.contains("the key"), "{}", seen.stdout);
    }
    read(&person, "notes/a", &["read=.", "deny=private"]).ended(0);
    // For another tool it says nothing.
    let other = [
        "call",
        "text_count",
        r#"{"path":"private/key"}"#,
        "--grant",
        "read=.",
    ];
    person.run(&other).ended(0);
    let seen = person
        .run(&[&other[..], &["--grant", "deny=private"]].concat())
        .ended(4);
    assert!(seen.stderr.contains("deny=private"), "{}", seen.stderr);
}

#[test]
fn a_list_of_denials_holds_for_every_tool() {
    let person = person();
    person.configure(
        "deny = [\"private\", \"deny-http=example.com\"]\n[tools.files]\ngrants = [\"write=.\"]\n",
    );
    let seen = read(&person, "private/key", &["read=private"]);
    seen.ended(4);
    let seen = read(&person, "private/key", &[]).ended(4);
    assert!(
        seen.stderr
            .contains("deny=private (~/.config/toolcell/config.toml:1)"),
        "{}",
        seen.stderr
    );
    let count = [
        "call",
        "text_count",
        r#"{"path":"private/key"}"#,
        "--grant",
        "read=.",
    ];
    person.run(&count).ended(4);
    let shown = person.run(&["tool", "inspect", "text"]).ended(0).stdout;
    assert!(
        shown.contains("denied to it, whatever is granted\n    │ deny=private\n"),
        "{shown}"
    );
    let explained = person
        .run(&["policy", "explain", "--tool", "files"])
        .ended(0)
        .stdout;
    assert!(explained.contains("but for deny=private"), "{explained}");
    let checked = person.run(&["config", "check"]).ended(0).stdout;
    assert!(checked.contains("deny[1]"), "{checked}");
}

#[test]
fn a_denied_host_is_reached_by_no_tool() {
    let person = person();
    let fetch = [
        "call",
        "fetch",
        r#"{"url":"https://www.example.com/x"}"#,
        "--grant",
        "http=*",
        "--grant",
        "deny-http=*.example.com",
    ];
    let seen = person.run(&fetch).ended(4);
    assert!(
        seen.stderr.contains("is denied to it by deny-http=*.example.com"),
        "{}",
        seen.stderr
    );
}

#[test]
fn a_project_adds_denials_and_never_removes_one() {
    let person = person();
    person.file(
        "toolcell.toml",
        "deny = [\"notes\"]\n[tools.files]\ngrants = [\"read=.\"]\n",
    );
    person.configure("[tools.files]\ngrants = [\"write=.\", \"deny=private\"]\n");
    read(&person, "private/key", &[]).ended(4);
    let seen = read(&person, "notes/a", &[]).ended(4);
    assert!(
        seen.stderr.contains("deny=notes (toolcell.toml:1)"),
        "{}",
        seen.stderr
    );
    person.file("toolcell.toml", "[tools.files]\ngrants = [\"deny=notes\"]\n");
    read(&person, "notes/a", &[]).ended(4);
    read(&person, "private/key", &[]).ended(4);
    person.file("other", "x");
    read(&person, "other", &[]).ended(0);
}

/// A person whose model makes these calls of `files_read`, with rules for them.
fn scripted(paths: &[&str], rules: &str) -> (Person, String) {
    let person = person();
    let call = |path: &&str| json!({ "name": "files_read", "arguments": { "path": path } });
    let calls: Vec<_> = paths.iter().map(call).collect();
    let script = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    person.file("script.json", script.to_string());
    person.configure(&format!(
        "[approval]\nflow = \"off\"\nrules = [{rules}]\n[tools.files]\ngrants = [\"read=.\"]\n"
    ));
    std::os::unix::fs::symlink("private", person.work().join("way")).unwrap();
    let seen = person.run(&[&SCRIPTED[..], &["--tool", "files", "--json"]].concat());
    let stdout = seen.ended(0).stdout;
    (person, stdout)
}

#[test]
fn a_rule_that_denies_a_path_holds_in_every_spelling() {
    let rule = r#"{ tool = "*", arguments = { "/path" = "private/*" }, verdict = "deny" }"#;
    let spellings = [
        "private/key",
        "./private/key",
        "/private/key",
        "notes/../private/key",
        "way/key",
        "notes/../way//key",
    ];
    // The same error again and again would end the turn.
    for spellings in spellings.chunks(3) {
        let (_person, stdout) = scripted(spellings, rule);
        assert!(!stdout.contains("the key"), "{stdout}");
    }
    let (_person, stdout) = scripted(&["notes/a"], rule);
    assert!(stdout.contains("a note"), "{stdout}");
}

#[test]
fn a_rule_that_allows_a_path_lets_no_other_pass() {
    let rules = r#"{ tool = "*", verdict = "deny" }, { tool = "*", arguments = { "/path" = "notes/*" }, verdict = "allow" }"#;
    let (_person, stdout) = scripted(&["notes/../private/key", "notes/../way/key"], rules);
    assert!(!stdout.contains("the key"), "{stdout}");
    for path in ["notes/a", "./notes/a", "/notes//a"] {
        let (_person, stdout) = scripted(&[path], rules);
        assert!(stdout.contains("a note"), "{path} {stdout}");
    }
}

#[test]
fn a_project_does_not_choose_where_a_tool_sees_a_directory() {
    let person = person();
    person.configure("[tools.files]\ngrants = [\"write=.\"]\n");
    person.file(
        "toolcell.toml",
        "[tools.files]\ngrants = [\"write=notes:/scratch\"]\n",
    );
    let seen = read(&person, "/scratch/a", &[]).ended(3);
    assert!(
        seen.stderr.contains("cannot choose under which name"),
        "{}",
        seen.stderr
    );
    // What the user says in the same words is the user's choice.
    person.configure("[tools.files]\ngrants = [\"write=.\", \"write=notes:/scratch\"]\n");
    read(&person, "/scratch/a", &[]).ended(0);
}

#[test]
fn a_locked_denial_does_not_go() {
    let person = person();
    let with = ["--tool", "files", "--grant", "read=.", "--grant", "deny=private"];
    person.run(&[&["lock"][..], &with].concat()).ended(0);
    let call = [
        "call",
        "files_read",
        r#"{"path":"notes/a"}"#,
        "--locked",
        "--grant",
        "read=.",
    ];
    let seen = person.run(&call).ended(4);
    assert!(
        seen.stderr
            .contains("the denial `deny=private` is locked and holds no more"),
        "{}",
        seen.stderr
    );
    let more = ["--grant", "deny=private", "--grant", "deny=other"];
    person.run(&[&call[..], &more].concat()).ended(0);
}

#[test]
fn what_toolcell_keeps_is_granted_to_no_tool() {
    let person = person();
    let config = person.home().join(".config/toolcell");
    person.configure("# mine\n");
    std::fs::create_dir_all(person.home().join(".local/state/toolcell")).unwrap();
    let grant = format!("read={}", config.display());
    let seen = person
        .run(&[
            "call",
            "files_read",
            r#"{"path":"x"}"#,
            "--grant",
            &grant,
            "--dangerous",
        ])
        .ended(4);
    assert!(
        seen.stderr.contains("is denied by Toolcell's own directory"),
        "{}",
        seen.stderr
    );
    // A directory above may be granted, and excludes it.
    let above = format!("write={}:/home", person.home().display());
    for (tool, arguments) in [
        (
            "files_read",
            json!({"path": "/home/.config/toolcell/config.toml"}),
        ),
        (
            "files_write",
            json!({"path": "/home/.config/toolcell/new", "content": "x"}),
        ),
        (
            "files_write",
            json!({"path": "/home/.local/state/toolcell/approvals.json", "content": "[]"}),
        ),
    ] {
        let arguments = arguments.to_string();
        let seen = person
            .run(&["call", tool, &arguments, "--grant", &above, "--dangerous"])
            .ended(4);
        assert!(
            seen.stderr.contains("Toolcell's own directory"),
            "{}",
            seen.stderr
        );
    }
    let ordinary = json!({"path": "/home/x", "content": "x"}).to_string();
    person
        .run(&["call", "files_write", &ordinary, "--grant", &above, "--dangerous"])
        .ended(0);
}

#[test]
fn a_tool_in_a_project_changes_neither_its_configuration_nor_its_hooks() {
    let person = person();
    for path in ["sub/x", ".git/hooks/x", ".github/workflows/x"] {
        person.file(path, "x");
    }
    for path in [
        "toolcell.toml",
        "sub/toolcell.lock",
        ".git/hooks/pre-commit",
        ".github/workflows/x.yml",
    ] {
        let arguments = json!({"path": path, "content": "x"}).to_string();
        let write = ["call", "files_write", arguments.as_str(), "--grant", "write=."];
        let seen = person.run(&write).ended(4);
        assert!(
            seen.stderr.contains("is denied to it by built-in"),
            "{path} {}",
            seen.stderr
        );
        let meant = person.run(&[&write[..], &["--dangerous"]].concat());
        assert_eq!(
            meant.code == 0,
            path.starts_with(".git"),
            "{path} {}",
            meant.stderr
        );
    }
}

#[test]
fn a_component_is_not_replaced_by_a_tool() {
    let person = person();
    person.probe("tools/probe.wasm", &crate::probe::Probe::default());
    person.configure(&format!(
        "[tools.mine]\ncomponent = '{}'\n",
        person.work().join("tools/probe.wasm").display()
    ));
    let arguments = json!({"path": "tools/probe.wasm", "content": "x", "mode": "overwrite"}).to_string();
    let seen = person
        .run(&["call", "files_write", &arguments, "--grant", "write=."])
        .ended(4);
    assert!(
        seen.stderr.contains("is denied to it by the component"),
        "{}",
        seen.stderr
    );
}

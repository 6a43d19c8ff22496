//! A denial overrides every grant, in every spelling of a path or URL.

use std::collections::BTreeSet;

use serde_json::json;

use crate::probe::Probe;
use crate::support::cli_user::{SCRIPTED, User};

/// Creates a user with `private/key` and `notes/a` in the working directory.
fn user() -> User {
    let user = User::new();
    user.file("private/key", "the key");
    user.file("notes/a", "a note");
    user
}

fn read(user: &User, path: &str, grants: &[&str]) -> crate::support::cli_user::Seen {
    let arguments = json!({ "path": path }).to_string();
    let mut command = vec!["call", "files_read", arguments.as_str()];
    command.extend(grants.iter().flat_map(|grant| ["--grant", grant]));
    user.run(&command)
}

#[test]
fn denied_directory_is_unreadable_and_user_sees_why() {
    let user = user();
    for path in [
        "private/key",
        "./private/key",
        "/private/key",
        "notes/../private/key",
    ] {
        let seen = read(&user, path, &["write=.", "deny=private"]).ended(4);
        assert!(
            seen.stderr.contains("is denied by `deny=private` (--grant)"),
            "{}",
            seen.stderr
        );
        assert!(!seen.stdout.contains("the key"), "{}", seen.stdout);
    }
    read(&user, "notes/a", &["read=.", "deny=private"]).ended(0);
    // It does not apply to another tool.
    let other = [
        "call",
        "text_count",
        r#"{"path":"private/key"}"#,
        "--grant",
        "read=.",
    ];
    user.run(&other).ended(0);
    let seen = user
        .run(&[&other[..], &["--grant", "deny=private"]].concat())
        .ended(4);
    assert!(seen.stderr.contains("deny=private"), "{}", seen.stderr);
}

#[test]
fn denials_in_configuration_hold_for_every_tool() {
    let user = user();
    user.configure(
        "deny = [\"private\", \"deny-http=example.com\"]\n[tools.files]\ngrants = [\"write=.\"]\n",
    );
    let seen = read(&user, "private/key", &["read=private"]);
    seen.ended(4);
    let seen = read(&user, "private/key", &[]).ended(4);
    assert!(
        seen.stderr
            .contains("`deny=private` (~/.config/toolcell/config.toml:1)"),
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
    user.run(&count).ended(4);
    let shown = user.run(&["tool", "inspect", "text"]).ended(0).stdout;
    assert!(
        shown.contains("denied to it, whatever is granted\n    │ deny=private\n"),
        "{shown}"
    );
    let explained = user
        .run(&["policy", "explain", "--tool", "files"])
        .ended(0)
        .stdout;
    assert!(explained.contains("except deny=private"), "{explained}");
    let checked = user.run(&["config", "check"]).ended(0).stdout;
    assert!(checked.contains("deny[1]"), "{checked}");
}

#[test]
fn denied_host_is_unreachable_for_every_tool() {
    let user = user();
    let fetch = [
        "call",
        "fetch",
        r#"{"url":"https://www.example.com/x"}"#,
        "--grant",
        "http=*",
        "--grant",
        "deny-http=*.example.com",
    ];
    let seen = user.run(&fetch).ended(4);
    assert!(
        seen.stderr.contains("is denied by `deny-http=*.example.com`"),
        "{}",
        seen.stderr
    );
}

#[test]
fn project_adds_denials_and_removes_none() {
    let user = user();
    user.file(
        "toolcell.toml",
        "deny = [\"notes\"]\n[tools.files]\ngrants = [\"read=.\"]\n",
    );
    user.configure("[tools.files]\ngrants = [\"write=.\", \"deny=private\"]\n");
    read(&user, "private/key", &[]).ended(4);
    let seen = read(&user, "notes/a", &[]).ended(4);
    assert!(
        seen.stderr.contains("`deny=notes` (toolcell.toml:1)"),
        "{}",
        seen.stderr
    );
    user.file("toolcell.toml", "[tools.files]\ngrants = [\"deny=notes\"]\n");
    read(&user, "notes/a", &[]).ended(4);
    read(&user, "private/key", &[]).ended(4);
    user.file("other", "x");
    read(&user, "other", &[]).ended(0);
}

/// Creates a user whose model makes these calls of `files_read`, with approval rules for them.
fn scripted(paths: &[&str], rules: &str) -> (User, String) {
    let user = user();
    let stdout = scripted_as(&user, paths, rules, "read=.");
    (user, stdout)
}

fn scripted_as(user: &User, paths: &[&str], rules: &str, grant: &str) -> String {
    let call = |path: &&str| json!({ "name": "files_read", "arguments": { "path": path } });
    let calls: Vec<_> = paths.iter().map(call).collect();
    let script = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    user.file("script.json", script.to_string());
    user.configure(&format!(
        "[approval]\nflow = \"off\"\nrules = [{rules}]\n[tools.files]\ngrants = [\"{grant}\"]\n"
    ));
    let link = user.work().join("way");
    if !link.is_symlink() {
        std::os::unix::fs::symlink("private", link).unwrap();
    }
    let seen = user.run(&[&SCRIPTED[..], &["--tool", "files", "--json"]].concat());
    seen.ended(0).stdout
}

/// Checks that every path argument of a built-in tool has the format.
#[test]
fn paths_of_builtin_tools_are_marked() {
    let listed = User::new().run(&["tool", "list", "--json"]).ended(0).json();
    let mut marked = BTreeSet::new();
    for component in listed.as_array().unwrap() {
        for tool in component["tools"].as_array().into_iter().flatten() {
            let schema = &tool["input"];
            for (name, property) in schema["properties"].as_object().unwrap() {
                let is_path = name.ends_with("path") || ["source", "destination"].contains(&name.as_str());
                assert_eq!(property["format"] == "path", is_path, "{}: {name}", tool["name"]);
                if is_path {
                    marked.insert(tool["name"].as_str().unwrap().to_owned());
                }
            }
        }
    }
    let expected = [
        "files_copy",
        "files_delete",
        "files_edit",
        "files_list",
        "files_make_directory",
        "files_move",
        "files_read",
        "files_search",
        "files_write",
        "json_query",
        "text_count",
        "text_diff",
        "text_hash",
    ];
    assert!(marked.iter().eq(expected), "{marked:?}");
}

#[test]
fn granted_directory_itself_is_not_deleted() {
    let user = User::new();
    user.file("kept.txt", "x");
    user.file("sub/other.txt", "x");
    for path in [".", "/", "sub/.."] {
        let arguments = json!({ "path": path, "recursive": true }).to_string();
        let seen = user
            .run(&["call", "files_delete", &arguments, "--grant", "write=."])
            .ended(1);
        assert!(seen.stderr.contains("nothing deleted"), "{path}: {}", seen.stderr);
        assert!(user.work().join("kept.txt").exists(), "{path}");
    }
    let arguments = json!({ "path": "sub", "recursive": true }).to_string();
    user.run(&["call", "files_delete", &arguments, "--grant", "write=."])
        .ended(0);
    assert!(!user.work().join("sub").exists());
}

#[test]
fn rule_for_a_path_applies_to_a_marked_argument() {
    let user = User::new();
    user.configure(
        "[[approval.rules]]\ntool = \"*\"\narguments = { \"/spot\" = \"private/*\" }\nverdict = \"deny\"\n",
    );
    // Recognized by its format and not by its name.
    let probe = Probe {
        input: r#"{"type":"object","properties":{"spot":{"type":"string","format":"path"},"word":{"type":"string"}}}"#
            .into(),
        ..Probe::default()
    };
    user.probe("any.wasm", &probe);
    for (arguments, is_denied) in [
        (json!({ "spot": "a/../private/key" }), true),
        (json!({ "spot": "./private/key" }), true),
        (json!({ "spot": "public/key" }), false),
        (json!({ "word": "./private/key" }), false),
    ] {
        let calls = json!([{ "name": "probe", "arguments": arguments }]);
        let script = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
        user.file("script.json", script.to_string());
        let seen = user.run_script(&["--tool", "any.wasm", "--grant", "read=.", "--json"]);
        let events = seen.ended(0).json_lines();
        let finished = events
            .iter()
            .find(|event| event["type"] == "call_finished")
            .unwrap();
        assert_eq!(
            finished["error"]["kind"] == "denied",
            is_denied,
            "{arguments}: {finished}"
        );
    }
}

#[test]
fn rule_that_denies_path_holds_in_every_spelling() {
    let rule = r#"{ tool = "*", arguments = { "/path" = "private/*" }, verdict = "deny" }"#;
    let spellings = [
        "private/key",
        "./private/key",
        "/private/key",
        "notes/../private/key",
        "way/key",
        "notes/../way//key",
    ];
    // The same error repeatedly would end the turn.
    for spellings in spellings.chunks(3) {
        let (_user, stdout) = scripted(spellings, rule);
        assert!(!stdout.contains("the key"), "{stdout}");
    }
    let (_user, stdout) = scripted(&["notes/a"], rule);
    assert!(stdout.contains("a note"), "{stdout}");
}

#[test]
fn rule_that_allows_path_lets_no_other_pass() {
    let rules = r#"{ tool = "*", verdict = "deny" }, { tool = "*", arguments = { "/path" = "notes/*" }, verdict = "allow" }"#;
    let (_user, stdout) = scripted(&["notes/../private/key", "notes/../way/key"], rules);
    assert!(!stdout.contains("the key"), "{stdout}");
    for path in ["notes/a", "./notes/a", "/notes//a"] {
        let (_user, stdout) = scripted(&[path], rules);
        assert!(stdout.contains("a note"), "{path} {stdout}");
    }
}

#[test]
fn project_cannot_choose_guest_path_of_directory() {
    let user = user();
    user.configure("[tools.files]\ngrants = [\"write=.\"]\n");
    user.file(
        "toolcell.toml",
        "[tools.files]\ngrants = [\"write=notes:/scratch\"]\n",
    );
    let seen = read(&user, "/scratch/a", &[]).ended(3);
    assert!(
        seen.stderr.contains("cannot choose the guest path or name"),
        "{}",
        seen.stderr
    );
    // The same line in the user's file is the user's decision.
    user.configure("[tools.files]\ngrants = [\"write=.\", \"write=notes:/scratch\"]\n");
    read(&user, "/scratch/a", &[]).ended(0);
}

#[test]
fn narrower_grant_of_project_keeps_guest_path_of_user() {
    let rule = r#"{ tool = "*", arguments = { "/path" = "/w/private/*" }, verdict = "deny" }"#;
    for narrowed in ["write=private", "write=notes/../private", "read=way"] {
        let user = user();
        user.file(
            "toolcell.toml",
            format!("[tools.files]\ngrants = [{narrowed:?}]\n"),
        );
        let paths = ["/w/private/key", "private/key", "/private/key", "way/key"];
        let stdout = scripted_as(&user, &paths, rule, "write=.:/w");
        assert!(!stdout.contains("the key"), "{narrowed}: {stdout}");
        // Without the rule, it is there under the path that the user chose.
        let stdout = scripted_as(&user, &["/w/private/key"], "", "write=.:/w");
        assert!(stdout.contains("the key"), "{narrowed}: {stdout}");
    }
}

#[test]
fn locked_denial_cannot_be_removed() {
    let user = user();
    let with = ["--tool", "files", "--grant", "read=.", "--grant", "deny=private"];
    user.run(&[&["lock"][..], &with].concat()).ended(0);
    let call = [
        "call",
        "files_read",
        r#"{"path":"notes/a"}"#,
        "--locked",
        "--grant",
        "read=.",
    ];
    let seen = user.run(&call).ended(4);
    assert!(
        seen.stderr
            .contains("the denial `deny=private` is locked and no longer applies"),
        "{}",
        seen.stderr
    );
    let more = ["--grant", "deny=private", "--grant", "deny=other"];
    user.run(&[&call[..], &more].concat()).ended(0);
}

#[test]
fn toolcell_directories_are_granted_to_no_tool() {
    let user = user();
    let config = user.home().join(".config/toolcell");
    user.configure("# mine\n");
    std::fs::create_dir_all(user.home().join(".local/state/toolcell")).unwrap();
    let grant = format!("read={}", config.display());
    let seen = user
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
    // A parent directory may be granted, but without it.
    let above = format!("write={}:/home", user.home().display());
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
        let seen = user
            .run(&["call", tool, &arguments, "--grant", &above, "--dangerous"])
            .ended(4);
        assert!(
            seen.stderr.contains("Toolcell's own directory"),
            "{}",
            seen.stderr
        );
    }
    let ordinary = json!({"path": "/home/x", "content": "x"}).to_string();
    user.run(&["call", "files_write", &ordinary, "--grant", &above, "--dangerous"])
        .ended(0);
}

#[test]
fn tool_cannot_change_project_configuration_or_hooks() {
    let user = user();
    for path in ["sub/x", ".git/hooks/x", ".github/workflows/x"] {
        user.file(path, "x");
    }
    for path in [
        "toolcell.toml",
        "sub/toolcell.lock",
        ".git/hooks/pre-commit",
        ".github/workflows/x.yml",
    ] {
        let arguments = json!({"path": path, "content": "x"}).to_string();
        let write = ["call", "files_write", arguments.as_str(), "--grant", "write=."];
        let seen = user.run(&write).ended(4);
        assert!(
            seen.stderr.contains("is denied by built-in"),
            "{path} {}",
            seen.stderr
        );
        let meant = user.run(&[&write[..], &["--dangerous"]].concat());
        assert_eq!(
            meant.code == 0,
            path.starts_with(".git"),
            "{path} {}",
            meant.stderr
        );
    }
}

#[test]
fn tool_cannot_replace_component() {
    let user = user();
    user.probe("tools/probe.wasm", &crate::probe::Probe::default());
    user.configure(&format!(
        "[tools.mine]\ncomponent = '{}'\n",
        user.work().join("tools/probe.wasm").display()
    ));
    let arguments = json!({"path": "tools/probe.wasm", "content": "x", "mode": "overwrite"}).to_string();
    let seen = user
        .run(&["call", "files_write", &arguments, "--grant", "write=."])
        .ended(4);
    assert!(
        seen.stderr.contains("is denied by the component"),
        "{}",
        seen.stderr
    );
}

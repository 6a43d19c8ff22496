//! Project components: names, access, and trust.

use serde_json::json;

use crate::probe::Probe;
use crate::support::cli_user::{SCRIPTED, User};
use crate::support::pty::Terminal;

/// Creates a user in a project that defines `[tools.NAME]`, whose only tool has this name.
fn project(name: &str, tool: &str) -> User {
    let user = User::new();
    user.probe("theirs.wasm", &probe(tool)).file(
        "toolcell.toml",
        format!("[tools.{name}]\ncomponent = \"theirs.wasm\"\n"),
    );
    user
}

fn probe(tool: &str) -> Probe {
    Probe {
        names: vec![tool.into()],
        ..Probe::default()
    }
}

fn trust(user: &User, name: &str) {
    user.run(&["tool", "trust", name]).ended(0);
}

const COUNT: [&str; 3] = ["call", "text_count", r#"{"text": "one two"}"#];

#[test]
fn project_component_cannot_take_existing_name() {
    for name in [
        // Built-in components and their tools, in every spelling.
        "text_count",
        "Text-Count",
        "TEXTCOUNT",
        "files_read",
        "fil-es",
        "TEXT",
        "fetch_",
        "memory_task",
        // Names with such a prefix.
        "text_other",
        "Files-extra",
        "clock_",
        // Tools of the loop.
        "read_result",
        "ask-question",
        // Configuration of the user: a component, an agent, a hook.
        "mine",
        "MINE",
        "mi-ne",
        "mine_more",
        "helper",
        "gu_ard",
    ] {
        let user = project(name, "probe");
        user.configure(
            "[tools.mine]\ncomponent = \"mine.wasm\"\n[agents.helper]\ndescription = \"d\"\n[hooks.guard]\ncomponent = \"g.wasm\"\n",
        );
        for arguments in [&COUNT[..], &["run", "hello"], &["tool", "list"]] {
            let seen = user.run(arguments).ended(3);
            let refused = [
                format!("a component of a project cannot be called `{name}`"),
                // The exact name of a component is reported as a duplicate.
                format!("`{name}` cannot have another component"),
            ];
            assert!(
                refused.iter().any(|text| seen.stderr.contains(text)),
                "{}",
                seen.stderr
            );
        }
    }
    let seen = project("text_count", "probe").run(&COUNT).ended(3);
    insta::assert_snapshot!(seen.stderr, @r"
    error: a component of a project cannot be called `text_count`
      why: in toolcell.toml, line 1, column 8
           │   1 | [tools.text_count]
           │     |        ^^^^^^^^^^
         - the name belongs to a tool of `text`, which is built in
     hint: give it a name that is not in use
    ");
}

#[test]
fn bare_name_never_finds_project_component() {
    let user = project("theirs", "their_tool");
    trust(&user, "project:theirs");
    for name in ["theirs", "their_tool", "theirs#their_tool"] {
        user.run(&["call", name, "{}"]).ended(2);
        user.run(&["tool", "inspect", name]).ended(2);
        user.run(&["run", "hello", "--tool", name]).ended(2);
    }
    insta::assert_snapshot!(user.run(&["call", "theirs", "{}"]).stderr, @r"
    error: there is no tool `theirs`
      why: the project defines a component of that name, which needs the prefix `project:`
     hint: use its full name: project:theirs
    ");
    user.run(&["call", "project:theirs", "{}"]).ended(0);
    user.run(&["call", "project:theirs#their_tool", "{}"]).ended(0);
    user.run(&["call", "project:theirs#other", "{}"]).ended(2);
    user.run(&["call", "project:other", "{}"]).ended(2);
    let seen = user.run(&["run", "hello"]).ended(0);
    assert!(
        seen.stderr.contains("use --tool project:theirs to offer it"),
        "{}",
        seen.stderr
    );
}

#[test]
fn project_component_does_not_run_before_trust() {
    let user = project("theirs", "their_tool");
    user.file("script.json", r#"{"steps": [{"text": "done"}]}"#);
    let run = [&SCRIPTED[..], &["--tool", "project:theirs"]].concat();
    let ways: [&[&str]; 5] = [
        &["call", "project:theirs", "{}"],
        &run,
        &["lock", "--tool", "project:theirs"],
        &["policy", "explain", "--tool", "project:theirs"],
        &["call", "project:theirs#their_tool", "{}", "--locked"],
    ];
    for arguments in ways {
        user.run(arguments).ended(4);
    }
    let seen = user.run(ways[0]);
    let digest = seen.stderr.split("sha256:").nth(1).unwrap()[..64].to_owned();
    insta::assert_snapshot!(seen.stderr.replace(&digest, "[digest]"), @r#"
    error: the component `project:theirs` comes from this project and is not trusted
      why: its file is `theirs.wasm`, sha256:[digest]
         - in toolcell.toml, line 2, column 13
           │   2 | component = "theirs.wasm"
           │     |             ^^^^^^^^^^^^^
     hint: to review it: toolcell tool inspect project:theirs
     hint: to trust it: toolcell tool trust project:theirs
    "#);
    // Everything else works, and inspection needs no trust.
    user.run(&COUNT).ended(0);
    user.run(&["doctor"]).ended(0);
    let listed = user.run(&["tool", "list"]).ended(0).stdout;
    assert!(
        listed.contains("project:theirs") && !listed.contains("their_tool"),
        "{listed}"
    );
    let seen = user.run(&["tool", "inspect", "project:theirs"]).ended(0);
    assert!(seen.stdout.contains("their_tool"), "{}", seen.stdout);

    trust(&user, "theirs");
    user.run(ways[0]).ended(0);
    user.run(&run).ended(0);
    let listed = user.run(&["tool", "list"]).ended(0).stdout;
    assert!(listed.contains("their_tool"), "{listed}");
}

#[test]
fn other_bytes_under_trusted_name_are_not_trusted() {
    let user = project("theirs", "their_tool");
    let call = ["call", "project:theirs", "{}"];
    trust(&user, "project:theirs");
    user.run(&call).ended(0);
    let changed = Probe {
        description: "Something else.".into(),
        ..probe("their_tool")
    };
    user.probe("theirs.wasm", &changed);
    user.run(&call).ended(4);
    // The same bytes are trusted at any path and under any name.
    user.probe("other.wasm", &probe("their_tool"));
    user.file("toolcell.toml", "[tools.renamed]\ncomponent = \"other.wasm\"\n");
    let seen = user.run(&["call", "project:renamed", "{}"]).ended(0);
    let announced = "the component `project:renamed` of this project";
    assert!(
        seen.stderr.contains(announced)
            && seen
                .stderr
                .contains("is the one that you trusted as `project:theirs`"),
        "{}",
        seen.stderr
    );
    // Once.
    let seen = user.run(&["call", "project:renamed", "{}"]).ended(0);
    assert!(!seen.stderr.contains(announced), "{}", seen.stderr);
}

#[test]
fn trust_is_listed_and_taken_back() {
    let user = project("theirs", "their_tool");
    let call = ["call", "project:theirs", "{}"];
    let wrong = format!("sha256:{}", "0".repeat(64));
    user.run(&["tool", "trust", "project:theirs", "--digest", &wrong])
        .ended(4);
    user.run(&call).ended(4);
    user.run(&["tool", "trust", "text"]).ended(2);
    user.run(&["tool", "trust", "project:other"]).ended(2);
    trust(&user, "project:theirs");
    let json = user.run(&["tool", "trusted", "--json"]).ended(0).json();
    assert_eq!(json[0]["component"], "project:theirs");
    assert!(
        json[0]["path"].as_str().unwrap().ends_with("/work/theirs.wasm"),
        "{json}"
    );
    let listed = user.run(&["tool", "trusted"]).ended(0).stdout;
    let digest = json[0]["digest"].as_str().unwrap();
    assert!(
        listed.contains(digest) && listed.contains("project:theirs"),
        "{listed}"
    );
    user.run(&["tool", "forget", "2"]).ended(2);
    user.run(&["tool", "forget", "1"]).ended(0);
    user.run(&call).ended(4);
    user.run(&["tool", "trust", "project:theirs", "--digest", digest])
        .ended(0);
    user.run(&call).ended(0);
    user.run(&["tool", "forget", "--all"]).ended(0);
    assert_eq!(user.run(&["tool", "trusted"]).ended(0).stdout, "");
    user.run(&call).ended(4);
}

#[test]
fn project_cannot_ship_its_own_trust() {
    let user = project("theirs", "their_tool");
    trust(&user, "project:theirs");
    let list = user.home().join(".local/state/toolcell/trusted.json");
    let text = std::fs::read(&list).unwrap();
    user.run(&["tool", "forget", "--all"]).ended(0);
    for place in ["trusted.json", ".local/state/toolcell/trusted.json"] {
        user.file(place, &text);
    }
    user.run(&["call", "project:theirs", "{}"]).ended(4);
}

#[test]
fn project_tool_cannot_impersonate_another() {
    for (tool, owner) in [
        ("text_count", "a tool of `text`"),
        ("Text-Count", "a tool of `text`"),
        ("files_erase", "the component `files`"),
        ("read_result", "a tool of the loop"),
        ("my_tool", "a tool of your component `mine`"),
        ("MYTOOL", "a tool of your component `mine`"),
        ("mine_too", "the component `mine`"),
        ("helper", "the agent `helper`"),
    ] {
        let user = project("theirs", tool);
        user.probe("mine.wasm", &probe("my_tool"));
        let mine = user.work().join("mine.wasm");
        user.configure(&format!(
            "[tools.mine]\ncomponent = {mine:?}\n[agents.helper]\ndescription = \"d\"\n"
        ));
        trust(&user, "project:theirs");
        let seen = user.run(&["call", "project:theirs", "{}"]).ended(4);
        assert!(seen.stderr.contains(owner), "{tool}: {}", seen.stderr);
        // Outside of the project it is a component named by the user.
        std::fs::remove_file(user.work().join("toolcell.toml")).unwrap();
        user.run(&["call", "./theirs.wasm", "{}"]).ended(0);
    }
}

#[test]
fn unnamed_grant_does_not_apply_to_project_component() {
    let user = project("theirs", "their_tool");
    trust(&user, "project:theirs");
    let granted = |flags: &[&str]| {
        let inspect = ["tool", "inspect", "project:theirs", "--json"];
        let seen = user.run(&[&inspect[..], flags].concat()).ended(0);
        let json = seen.json();
        (json["grants"].clone(), json["limits"]["wall_ms"].clone())
    };
    let nothing = serde_json::json!([]);
    assert_eq!(
        granted(&["--grant", "read=.", "--limit", "wall=10m"]),
        (nothing.clone(), 30_000.into())
    );
    assert_eq!(granted(&["--limit", "wall=1s"]), (nothing, 1_000.into()));
    let flags = [
        "--grant",
        "project:theirs:read=.",
        "--limit",
        "project:theirs:wall=10m",
    ];
    assert_eq!(granted(&flags), (serde_json::json!(["read=."]), 600_000.into()));
    // A denial applies to everything.
    let inspect = [
        "tool",
        "inspect",
        "project:theirs",
        "--json",
        "--grant",
        "deny=private",
    ];
    let denied = user.run(&inspect).ended(0).json()["denied"].clone();
    assert_eq!(denied, serde_json::json!(["deny=private"]));
    // An incomplete name matches nothing.
    let seen = user
        .run(&["call", "project:theirs", "{}", "--grant", "theirs:read=."])
        .ended(2);
    assert!(seen.stderr.contains("project:theirs"), "{}", seen.stderr);
    // The user's own configuration cannot configure it either.
    user.configure("[tools.theirs]\ngrants = [\"read=.\"]\n");
    user.run(&["call", "project:theirs", "{}"]).ended(3);
}

#[test]
fn component_named_by_user_needs_no_trust() {
    let user = User::new();
    user.probe("mine.wasm", &probe("my_tool"));
    let path = user.work().join("mine.wasm");
    user.configure(&format!("[tools.mine]\ncomponent = {path:?}\n"));
    user.run(&["call", "mine", "{}", "--grant", "read=."]).ended(0);
    user.run(&["call", "my_tool", "{}"]).ended(0);
    // A project's file can narrow it, and it remains the user's.
    user.file("toolcell.toml", "[tools.mine.limits]\nwall = \"1s\"\n");
    user.run(&["call", "my_tool", "{}"]).ended(0);
    user.run(&["call", "./mine.wasm", "{}"]).ended(0);
}

/// The table in the program matches what built-in components define.
#[test]
fn every_shipped_tool_name_is_reserved() {
    let listed = User::new().run(&["tool", "list", "--json"]).ended(0).json();
    let tools = listed.as_array().unwrap().iter().flat_map(|component| {
        let tools = component["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned())
    });
    // `fetch` is also the name of its component, and refused as such.
    for tool in tools.filter(|tool| tool != "fetch").collect::<Vec<_>>() {
        let seen = project(&tool, "probe").run(&["config", "check"]).ended(3);
        assert!(
            seen.stderr.contains("the name belongs to a tool of"),
            "{tool}: {}",
            seen.stderr
        );
    }
}

#[test]
fn trust_in_project_component_is_asked_at_terminal() {
    let user = project("theirs", "their_tool");
    let call = ["call", "project:theirs", "{}"];
    let asked = |key: &str| {
        let mut terminal = Terminal::start(&user, &call, "xterm", 100, 30);
        terminal
            .wait_for("trust `project:theirs`")
            .wait_for("grants: none");
        terminal.answer(key).end()
    };
    assert_eq!(asked("n"), Some(4));
    user.run(&call).ended(4);
    assert_eq!(asked("y"), Some(0));
    user.run(&call).ended(0);
}

#[test]
fn pattern_that_allows_does_not_match_project_tools() {
    let user = project("theirs", "their_tool");
    trust(&user, "project:theirs");
    let steps = json!([{ "calls": [{ "name": "their_tool", "arguments": {} }] }, { "text": "Done." }]);
    user.file("script.json", json!({ "steps": steps }).to_string());
    for (allowed, is_denied) in [("their_*", true), ("their_tool", false)] {
        user.configure(&format!(
            "[approval]\nrules = [{{ tool = \"*\", verdict = \"deny\" }}, {{ tool = \"{allowed}\", verdict = \"allow\" }}]\n"
        ));
        let events = user
            .run_script(&["--tool", "project:theirs", "--json"])
            .ended(0)
            .json_lines();
        let finished = events
            .iter()
            .find(|event| event["type"] == "call_finished")
            .unwrap();
        assert_eq!(finished["error"]["kind"] == "denied", is_denied, "{finished}");
    }
}

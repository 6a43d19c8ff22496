//! Components that a project brings: their names, what reaches them, and that they run only when the user trusts them.

use crate::cli_person::{Person, SCRIPTED};
use crate::probe::Probe;
use crate::pty::Terminal;

/// A person in a project that brings `[tools.NAME]`, whose only tool has this name.
fn project(name: &str, tool: &str) -> Person {
    let person = Person::new();
    person.probe("theirs.wasm", &probe(tool)).file(
        "toolcell.toml",
        format!("[tools.{name}]\ncomponent = \"theirs.wasm\"\n"),
    );
    person
}

fn probe(tool: &str) -> Probe {
    Probe {
        names: vec![tool.into()],
        ..Probe::default()
    }
}

fn trust(person: &Person, name: &str) {
    person.run(&["tool", "trust", name]).ended(0);
}

const COUNT: [&str; 3] = ["call", "text_count", r#"{"text": "one two"}"#];

#[test]
fn a_project_cannot_take_the_name_of_anything_else() {
    for name in [
        // Components that ship and their tools, in every spelling.
        "text_count",
        "Text-Count",
        "TEXTCOUNT",
        "files_read",
        "fil-es",
        "TEXT",
        "fetch_",
        "memory_task",
        // Names that begin as those do.
        "text_other",
        "Files-extra",
        "clock_",
        // Tools of the loop.
        "read_result",
        "ask-question",
        // What the user has configured: a component, an agent, a hook.
        "mine",
        "MINE",
        "mi-ne",
        "mine_more",
        "helper",
        "gu_ard",
    ] {
        let person = project(name, "probe");
        person.configure(
            "[tools.mine]\ncomponent = \"mine.wasm\"\n[agents.helper]\ndescription = \"d\"\n[hooks.guard]\ncomponent = \"g.wasm\"\n",
        );
        for arguments in [&COUNT[..], &["run", "hello"], &["tool", "list"]] {
            let seen = person.run(arguments).ended(3);
            let refused = [
                format!("a component of a project cannot be called `{name}`"),
                // The very name of a component is said to have one already.
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
         - the name belongs to a tool of `text`, which ships with Toolcell
     hint: give it a name that means nothing else
    ");
}

#[test]
fn a_bare_name_never_finds_what_a_project_brings() {
    let person = project("theirs", "their_tool");
    trust(&person, "project:theirs");
    for name in ["theirs", "their_tool", "theirs#their_tool"] {
        person.run(&["call", name, "{}"]).ended(2);
        person.run(&["tool", "inspect", name]).ended(2);
        person.run(&["run", "hello", "--tool", name]).ended(2);
    }
    insta::assert_snapshot!(person.run(&["call", "theirs", "{}"]).stderr, @r"
    error: there is no tool `theirs`
      why: this project brings a component of that name, which is found by its origin only
     hint: name it so: project:theirs
    ");
    person.run(&["call", "project:theirs", "{}"]).ended(0);
    person.run(&["call", "project:theirs#their_tool", "{}"]).ended(0);
    person.run(&["call", "project:theirs#other", "{}"]).ended(2);
    person.run(&["call", "project:other", "{}"]).ended(2);
    let seen = person.run(&["run", "hello"]).ended(0);
    assert!(
        seen.stderr.contains("offer it with --tool project:theirs"),
        "{}",
        seen.stderr
    );
}

#[test]
fn what_a_project_brings_does_not_run_before_it_is_trusted() {
    let person = project("theirs", "their_tool");
    person.file("script.json", r#"{"steps": [{"text": "done"}]}"#);
    let run = [&SCRIPTED[..], &["--tool", "project:theirs"]].concat();
    let ways: [&[&str]; 5] = [
        &["call", "project:theirs", "{}"],
        &run,
        &["lock", "--tool", "project:theirs"],
        &["policy", "explain", "--tool", "project:theirs"],
        &["call", "project:theirs#their_tool", "{}", "--locked"],
    ];
    for arguments in ways {
        person.run(arguments).ended(4);
    }
    let seen = person.run(ways[0]);
    let digest = seen.stderr.split("sha256:").nth(1).unwrap()[..64].to_owned();
    insta::assert_snapshot!(seen.stderr.replace(&digest, "[digest]"), @r#"
    error: the component `project:theirs` comes from this project and is not trusted
      why: its file is `theirs.wasm`, sha256:[digest]
         - in toolcell.toml, line 2, column 13
           │   2 | component = "theirs.wasm"
           │     |             ^^^^^^^^^^^^^
     hint: look at it: toolcell tool inspect project:theirs
     hint: to let it run: toolcell tool trust project:theirs
    "#);
    // Everything else goes on, and to look at it needs no trust.
    person.run(&COUNT).ended(0);
    person.run(&["doctor"]).ended(0);
    let listed = person.run(&["tool", "list"]).ended(0).stdout;
    assert!(
        listed.contains("project:theirs") && !listed.contains("their_tool"),
        "{listed}"
    );
    let seen = person.run(&["tool", "inspect", "project:theirs"]).ended(0);
    assert!(seen.stdout.contains("their_tool"), "{}", seen.stdout);

    trust(&person, "theirs");
    person.run(ways[0]).ended(0);
    person.run(&run).ended(0);
    let listed = person.run(&["tool", "list"]).ended(0).stdout;
    assert!(listed.contains("their_tool"), "{listed}");
}

#[test]
fn other_bytes_under_a_trusted_name_are_not_trusted() {
    let person = project("theirs", "their_tool");
    let call = ["call", "project:theirs", "{}"];
    trust(&person, "project:theirs");
    person.run(&call).ended(0);
    let changed = Probe {
        description: "Something else.".into(),
        ..probe("their_tool")
    };
    person.probe("theirs.wasm", &changed);
    person.run(&call).ended(4);
    // The same bytes are trusted wherever they lie, and under whatever name.
    person.probe("other.wasm", &probe("their_tool"));
    person.file("toolcell.toml", "[tools.renamed]\ncomponent = \"other.wasm\"\n");
    person.run(&["call", "project:renamed", "{}"]).ended(0);
}

#[test]
fn trust_is_listed_and_taken_back() {
    let person = project("theirs", "their_tool");
    let call = ["call", "project:theirs", "{}"];
    let wrong = format!("sha256:{}", "0".repeat(64));
    person
        .run(&["tool", "trust", "project:theirs", "--digest", &wrong])
        .ended(4);
    person.run(&call).ended(4);
    person.run(&["tool", "trust", "text"]).ended(2);
    person.run(&["tool", "trust", "project:other"]).ended(2);
    trust(&person, "project:theirs");
    let json = person.run(&["tool", "trusted", "--json"]).ended(0).json();
    assert_eq!(json[0]["component"], "project:theirs");
    assert!(
        json[0]["path"].as_str().unwrap().ends_with("/work/theirs.wasm"),
        "{json}"
    );
    let listed = person.run(&["tool", "trusted"]).ended(0).stdout;
    let digest = json[0]["digest"].as_str().unwrap();
    assert!(
        listed.contains(digest) && listed.contains("project:theirs"),
        "{listed}"
    );
    person.run(&["tool", "forget", "2"]).ended(2);
    person.run(&["tool", "forget", "1"]).ended(0);
    person.run(&call).ended(4);
    person
        .run(&["tool", "trust", "project:theirs", "--digest", digest])
        .ended(0);
    person.run(&call).ended(0);
    person.run(&["tool", "forget", "--all"]).ended(0);
    assert_eq!(person.run(&["tool", "trusted"]).ended(0).stdout, "");
    person.run(&call).ended(4);
}

#[test]
fn a_project_cannot_bring_its_trust_along() {
    let person = project("theirs", "their_tool");
    trust(&person, "project:theirs");
    let list = person.home().join(".local/state/toolcell/trusted.json");
    let text = std::fs::read(&list).unwrap();
    person.run(&["tool", "forget", "--all"]).ended(0);
    for place in ["trusted.json", ".local/state/toolcell/trusted.json"] {
        person.file(place, &text);
    }
    person.run(&["call", "project:theirs", "{}"]).ended(4);
}

#[test]
fn a_tool_of_a_project_cannot_pass_for_another() {
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
        let person = project("theirs", tool);
        person.probe("mine.wasm", &probe("my_tool"));
        let mine = person.work().join("mine.wasm");
        person.configure(&format!(
            "[tools.mine]\ncomponent = {mine:?}\n[agents.helper]\ndescription = \"d\"\n"
        ));
        trust(&person, "project:theirs");
        let seen = person.run(&["call", "project:theirs", "{}"]).ended(4);
        assert!(seen.stderr.contains(owner), "{tool}: {}", seen.stderr);
        // Without a project's file around it, it is one that the user named.
        std::fs::remove_file(person.work().join("toolcell.toml")).unwrap();
        person.run(&["call", "./theirs.wasm", "{}"]).ended(0);
    }
}

#[test]
fn what_is_granted_without_its_name_is_not_for_a_project() {
    let person = project("theirs", "their_tool");
    trust(&person, "project:theirs");
    let granted = |flags: &[&str]| {
        let inspect = ["tool", "inspect", "project:theirs", "--json"];
        let seen = person.run(&[&inspect[..], flags].concat()).ended(0);
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
    // A denial holds for everything.
    let inspect = [
        "tool",
        "inspect",
        "project:theirs",
        "--json",
        "--grant",
        "deny=private",
    ];
    let denied = person.run(&inspect).ended(0).json()["denied"].clone();
    assert_eq!(denied, serde_json::json!(["deny=private"]));
    // A name that is not whole is nobody's.
    let seen = person
        .run(&["call", "project:theirs", "{}", "--grant", "theirs:read=."])
        .ended(2);
    assert!(seen.stderr.contains("project:theirs"), "{}", seen.stderr);
    // The user's own configuration cannot speak of it either.
    person.configure("[tools.theirs]\ngrants = [\"read=.\"]\n");
    person.run(&["call", "project:theirs", "{}"]).ended(3);
}

#[test]
fn a_component_that_the_user_named_needs_no_trust() {
    let person = Person::new();
    person.probe("mine.wasm", &probe("my_tool"));
    let path = person.work().join("mine.wasm");
    person.configure(&format!("[tools.mine]\ncomponent = {path:?}\n"));
    person.run(&["call", "mine", "{}", "--grant", "read=."]).ended(0);
    person.run(&["call", "my_tool", "{}"]).ended(0);
    // A project's file may narrow it, and it stays the user's.
    person.file("toolcell.toml", "[tools.mine.limits]\nwall = \"1s\"\n");
    person.run(&["call", "my_tool", "{}"]).ended(0);
    person.run(&["call", "./mine.wasm", "{}"]).ended(0);
}

/// The table in the program is what shipped components define.
#[test]
fn every_tool_that_ships_has_its_name_taken() {
    let listed = Person::new().run(&["tool", "list", "--json"]).ended(0).json();
    let tools = listed.as_array().unwrap().iter().flat_map(|component| {
        let tools = component["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned())
    });
    // `fetch` is the name of its component as well, and refused as that.
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
fn a_component_of_a_project_is_asked_about_at_a_terminal() {
    let person = project("theirs", "their_tool");
    let call = ["call", "project:theirs", "{}"];
    let asked = |key: &str| {
        let mut terminal = Terminal::start(&person, &call, "xterm", 100, 30);
        terminal.wait_for("trust `project:theirs`").answer(key).end()
    };
    assert_eq!(asked("n"), Some(4));
    person.run(&call).ended(4);
    assert_eq!(asked("y"), Some(0));
    person.run(&call).ended(0);
}

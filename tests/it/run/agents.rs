//! Subagents of `[agents]`: tools of the main agent with their own models, tools and budgets.

use serde_json::{Value, json};

use crate::support::cli_user::User;

const COUNTER: &str = "[agents.counter]\ndescription = \"Counts words\"\ninstructions = \"You count.\"\n\
                       tools = [\"text\"]\nprovider = { name = \"scripted\", model = \"inner.json\" }\n";

/// Creates a user whose main model delegates counting, and whose counter makes two calls and answers.
fn user(configuration: &str) -> User {
    user_with(configuration, &json!({ "input": 90, "output": 10 }))
}

/// Like [`user`], with the usage of each request of the counter.
fn user_with(configuration: &str, inner: &Value) -> User {
    let user = User::new();
    user.configure(configuration);
    let usage = json!({ "input": 90, "output": 10 });
    let count = |text: &str| {
        json!({ "calls": [{ "name": "text_count", "arguments": { "text": text } }], "usage": inner,
                "expect": { "instructions": "You count." } })
    };
    let inner = json!({ "model": "small", "steps": [count("a"), count("a b"), { "text": "Two words.", "usage": inner }] });
    user.file("inner.json", inner.to_string());
    let outer = json!({ "model": "large", "steps": [
        { "calls": [{ "name": "counter", "arguments": { "task": "Count the words of `a b`" } }], "usage": usage },
        { "text": "It has two words.", "usage": usage },
    ] });
    user.file("outer.json", outer.to_string());
    user
}

fn ask<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec![
        "run",
        "How many?",
        "--provider",
        "scripted",
        "--model",
        "outer.json",
    ];
    all.extend(["--tool", "clock"]);
    all.extend(more);
    all
}

fn error(user: &User, stderr: &str) -> String {
    let plain = user.plain(stderr);
    let from = plain.find("error:").unwrap_or(0);
    plain[from..].to_owned()
}

#[test]
fn subagent_has_own_model_and_tools_and_visible_calls() {
    let user = user(COUNTER);
    let seen = user.run(&ask(&[])).ended(0);
    assert_eq!(seen.stdout, "It has two words.\n");
    let calls: Vec<&str> = seen
        .stderr
        .lines()
        .filter(|line| line.trim_start().starts_with(['●', '✓']))
        .collect();
    assert_eq!(calls[0], r#"● counter {"task":"Count the words of `a b`"}"#);
    assert_eq!(calls[1], r#"  ● text_count {"text":"a"}"#);
    assert!(calls[2].starts_with("  ✓ text_count │ {"), "{}", calls[2]);
    assert_eq!(calls.last(), Some(&"✓ counter │ Two words."));
    // 200 tokens of its own steps and 300 of the subagent's.
    assert!(seen.stderr.contains("450 tokens in, 50 out"), "{}", seen.stderr);

    let events = user.run(&ask(&["--json"])).ended(0).json_lines();
    let nested: Vec<&Value> = events.iter().filter(|event| event["type"] == "nested").collect();
    assert_eq!(nested[0]["event"]["type"], "turn_started");
    assert_eq!(nested[0]["event"]["model"], "small");
    assert!(nested.iter().all(|event| event["id"] == nested[0]["id"]));
    let ended = events
        .iter()
        .find(|event| event["type"] == "call_finished")
        .unwrap();
    assert_eq!(ended["receipt"]["agent"]["calls"], 2);
    assert_eq!(ended["receipt"]["agent"]["usage"]["input"], 270);
    assert!(ended["receipt"]["fuel"].as_u64().unwrap() > 0);
    // Tools of the subagent are not offered to the main agent.
    let lines = user.run(&["session", "export", "last"]).ended(0).stdout;
    assert!(
        lines.contains("\"nested\""),
        "what an agent does is in the journal"
    );
}

#[test]
fn subagent_use_counts_in_session_and_own_budget() {
    let outer = user(COUNTER);
    let seen = outer.run(&ask(&["--budget", "calls=2"])).ended(5);
    // The call of the subagent counts as one, and one is left for it.
    assert_eq!(
        seen.stderr.matches("  ● text_count").count(),
        1,
        "{}",
        seen.stderr
    );
    insta::assert_snapshot!(error(&outer, &seen.stderr), @r"
    error: the turn exhausted a budget: the budget of 2 calls is used up (2 were used)
     hint: raise the budget with --budget calls=4
           or, in ~/.config/toolcell/config.toml: [budget] calls = 4
    ");

    // The rest after two requests does not suffice for a third.
    let usage = json!({ "input": 500, "output": 50 });
    let own = user_with(&format!("{COUNTER}budget = {{ tokens = 1_200 }}\n"), &usage);
    let seen = own.run(&ask(&[])).ended(0);
    assert!(
        seen.stderr
            .contains("✗ counter │ it stopped: the budget of 1200 tokens (1100 were used) does not suffice"),
        "{}",
        seen.stderr
    );
}

#[test]
fn subagent_approval_is_refused_without_terminal() {
    let user = user(&format!(
        "{COUNTER}[approval]\nrules = [{{ tool = \"text_*\", verdict = \"ask\" }}]\n"
    ));
    let seen = user.run(&ask(&[])).ended(0);
    assert!(
        seen.stderr.contains(
            "no user can be asked here, and this needs an approval: the rule `ask for text_*`, inside `counter`"
        ),
        "{}",
        seen.stderr
    );
    assert!(!seen.stderr.contains("✓ text_count"), "{}", seen.stderr);
}

#[test]
fn config_check_shows_subagents() {
    let user = user(&format!("{COUNTER}max_steps = 7\nbudget = {{ calls = 3 }}\n"));
    let settings = user.run(&["config", "check", "--json"]).ended(0).json();
    for (key, value, line) in [
        ("description", "Counts words", 2),
        ("tools", "text", 4),
        ("provider.name", "scripted", 5),
        ("provider.model", "inner.json", 5),
        ("max_steps", "7", 6),
        ("budget.calls", "3", 7),
    ] {
        let row = &settings["settings"][format!("agents.counter.{key}")];
        assert_eq!(row["value"], value, "{key}");
        assert_eq!(
            row["from"],
            format!("~/.config/toolcell/config.toml:{line}"),
            "{key}"
        );
    }
}

#[test]
fn invalid_subagent_is_refused_with_location() {
    let refused = |toml: &str| {
        let user = user(toml);
        error(&user, &user.run(&ask(&[])).ended(3).stderr)
    };
    insta::assert_snapshot!(refused("[agents.a]\ndescription = \"x\"\ntools = [\"texd\"]\n"), @r#"
    error: there is no tool `texd` for the agent `a`
      why: in ~/.config/toolcell/config.toml, line 3, column 10
           │   3 | tools = ["texd"]
           │     |          ^^^^^^
     hint: did you mean `text`?
    "#);
    insta::assert_snapshot!(refused("[agents.\"a b\"]\ndescription = \"x\"\n"), @r#"
    error: `a b` is not a valid name of an agent
      why: in ~/.config/toolcell/config.toml, line 1, column 9
           │   1 | [agents."a b"]
           │     |         ^^^^^
     hint: use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter
    "#);
    insta::assert_snapshot!(refused("[agents.a]\ndescription = \" \"\n"), @r#"
    error: the agent `a` has an empty description
      why: in ~/.config/toolcell/config.toml, line 2, column 15
           │   2 | description = " "
           │     |               ^^^
     hint: describe what it does and when to call it; the model relies on the description
    "#);
    insta::assert_snapshot!(refused("[agents.a]\ninstructions = \"x\"\n"), @r"
    error: the user configuration `~/.config/toolcell/config.toml` cannot be used
      why: the key `description` is missing
           in ~/.config/toolcell/config.toml, line 1, column 1
           │   1 | [agents.a]
           │     | ^^^^^^^^^^
    ");
    insta::assert_snapshot!(refused("[agents.a]\ndescription = \"x\"\nmax_steps = 0\n"), @r"
    error: the user configuration `~/.config/toolcell/config.toml` cannot be used
      why: `max_steps` takes a whole number of at least 1, not 0
           in ~/.config/toolcell/config.toml, line 3, column 13
           │   3 | max_steps = 0
           │     |             ^
    ");
    insta::assert_snapshot!(refused("[agents.a]\ndescription = \"x\"\nprovider = { name = \"gemini\", strict = true, model = \"m\" }\n"), @r#"
    error: provider `gemini` does not use `strict`
      why: in ~/.config/toolcell/config.toml, line 3, column 40
           │   3 | provider = { name = "gemini", strict = true, model = "m" }
           │     |                                        ^^^^
         - it is for the agent `a`
           in ~/.config/toolcell/config.toml, line 1, column 9
           │   1 | [agents.a]
           │     |         ^
     hint: it is for `openai` and `responses`; remove it, or set the provider
    "#);
    insta::assert_snapshot!(refused("[agents.clock_now]\ndescription = \"x\"\n"), @r"
    error: the tools cannot be offered together
      why: two tools have the name `clock_now`
     hint: choose among them with --tool
    ");
}

#[test]
fn project_cannot_define_agents_or_log() {
    let refused = |toml: &str| {
        let user = user("");
        user.file("toolcell.toml", toml);
        error(&user, &user.run(&ask(&[])).ended(3).stderr)
    };
    insta::assert_snapshot!(refused("[agents.a]\ndescription = \"x\"\n"), @r"
    error: a project's file cannot define agents
      why: in toolcell.toml, line 1, column 9
           │   1 | [agents.a]
           │     |         ^
         - subagents would run its instructions in your name and on your account
     hint: move `[agents]` to your own configuration
    ");
    insta::assert_snapshot!(refused("[log]\ndir = \"log\"\n"), @r#"
    error: a project's file cannot configure logs
      why: in toolcell.toml, line 2, column 7
           │   2 | dir = "log"
           │     |       ^^^^^
         - the log contains your conversations
     hint: move `[log]` to your own configuration
    "#);
}

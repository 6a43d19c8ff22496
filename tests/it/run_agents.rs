//! Agents of `[agents]`: tools of the main one, with models, tools and budgets of their own.

use serde_json::{Value, json};

use crate::cli_person::Person;

const COUNTER: &str = "[agents.counter]\ndescription = \"Counts words\"\ninstructions = \"You count.\"\n\
                       tools = [\"text\"]\nprovider = { name = \"scripted\", model = \"inner.json\" }\n";

/// A person whose main model hands the counting over, and whose counter counts twice and answers.
fn person(configuration: &str) -> Person {
    person_with(configuration, &json!({ "input": 90, "output": 10 }))
}

/// The same, with what each request of the counter costs.
fn person_with(configuration: &str, inner: &Value) -> Person {
    let person = Person::new();
    person.configure(configuration);
    let usage = json!({ "input": 90, "output": 10 });
    let count = |text: &str| {
        json!({ "calls": [{ "name": "text_count", "arguments": { "text": text } }], "usage": inner,
                "expect": { "instructions": "You count." } })
    };
    let inner = json!({ "model": "small", "steps": [count("a"), count("a b"), { "text": "Two words.", "usage": inner }] });
    person.file("inner.json", inner.to_string());
    let outer = json!({ "model": "large", "steps": [
        { "calls": [{ "name": "counter", "arguments": { "task": "Count the words of `a b`" } }], "usage": usage },
        { "text": "It has two words.", "usage": usage },
    ] });
    person.file("outer.json", outer.to_string());
    person
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

fn error(person: &Person, stderr: &str) -> String {
    let plain = person.plain(stderr);
    let from = plain.find("error:").unwrap_or(0);
    plain[from..].to_owned()
}

#[test]
fn an_agent_is_a_tool_with_its_own_model_and_tools_and_its_calls_are_seen() {
    let person = person(COUNTER);
    let seen = person.run(&ask(&[])).ended(0);
    assert_eq!(seen.stdout, "It has two words.\n");
    let calls: Vec<&str> = seen
        .stderr
        .lines()
        .filter(|line| line.trim_start().starts_with(['●', '✓']))
        .collect();
    assert_eq!(calls[0], r#"● counter {"task":"Count the words of `a b`"}"#);
    assert_eq!(calls[1], r#"  ● text_count {"text":"a"}"#);
    assert!(calls[2].starts_with("  ✓ text_count  {"), "{}", calls[2]);
    assert_eq!(calls.last(), Some(&"✓ counter  Two words."));
    // 200 tokens of its own steps and 300 of the agent's.
    assert!(seen.stderr.contains("450 tokens in, 50 out"), "{}", seen.stderr);

    let events = person.run(&ask(&["--json"])).ended(0).json_lines();
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
    // The tools of the agent are not offered to the main one.
    let lines = person.run(&["session", "export", "last"]).ended(0).stdout;
    assert!(
        lines.contains("\"nested\""),
        "what an agent does is in the journal"
    );
}

#[test]
fn what_an_agent_uses_counts_in_the_budget_of_the_session_and_in_its_own() {
    let outer = person(COUNTER);
    let seen = outer.run(&ask(&["--budget", "calls=2"])).ended(5);
    // The call of the agent is one, and one is left for it.
    assert_eq!(
        seen.stderr.matches("  ● text_count").count(),
        1,
        "{}",
        seen.stderr
    );
    insta::assert_snapshot!(error(&outer, &seen.stderr), @r"
    error: the turn was ended by a budget: the budget of 2 calls is used up (2 were used)
     hint: allow more with --budget calls=4
           │ or, in ~/.config/toolcell/config.toml: [budget] calls = 4
    ");

    // What two requests leave does not suffice for a third.
    let usage = json!({ "input": 500, "output": 50 });
    let own = person_with(&format!("{COUNTER}budget = {{ tokens = 1_200 }}\n"), &usage);
    let seen = own.run(&ask(&[])).ended(0);
    assert!(
        seen.stderr
            .contains("✗ counter  it stopped: the budget of 1200 tokens (1100 were used) does not suffice"),
        "{}",
        seen.stderr
    );
}

#[test]
fn what_an_agent_may_not_do_alone_is_asked_outside_and_refused_without_a_terminal() {
    let person = person(&format!(
        "{COUNTER}[approval]\nrules = [{{ tool = \"text_*\", verdict = \"ask\" }}]\n"
    ));
    let seen = person.run(&ask(&[])).ended(0);
    assert!(
        seen.stderr.contains(
            "no approver is available, and the rule `ask for text_*`, inside `counter` requires approval"
        ),
        "{}",
        seen.stderr
    );
    assert!(!seen.stderr.contains("✓ text_count"), "{}", seen.stderr);
}

#[test]
fn agents_are_shown_by_config_check() {
    let person = person(&format!("{COUNTER}max_steps = 7\nbudget = {{ calls = 3 }}\n"));
    let settings = person.run(&["config", "check", "--json"]).ended(0).json();
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
fn an_agent_that_cannot_be_is_refused_with_its_place() {
    let refused = |toml: &str| {
        let person = person(toml);
        error(&person, &person.run(&ask(&[])).ended(3).stderr)
    };
    insta::assert_snapshot!(refused("[agents.a]\ndescription = \"x\"\ntools = [\"texd\"]\n"), @r#"
    error: there is no tool `texd` for the agent `a`
      why: in ~/.config/toolcell/config.toml, line 3, column 10
           │   3 | tools = ["texd"]
           │     |          ^^^^^^
     hint: did you mean `text`?
    "#);
    insta::assert_snapshot!(refused("[agents.\"a b\"]\ndescription = \"x\"\n"), @r#"
    error: `a b` is no name of an agent
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
     hint: say what it does and when to call it; the model decides by it
    "#);
    insta::assert_snapshot!(refused("[agents.a]\ninstructions = \"x\"\n"), @r"
    error: the user configuration `~/.config/toolcell/config.toml` cannot be used
      why: missing field `description`
           │ in ~/.config/toolcell/config.toml, line 1, column 1
           │   1 | [agents.a]
           │     | ^^^^^^^^^^
    ");
    insta::assert_snapshot!(refused("[agents.a]\ndescription = \"x\"\nmax_steps = 0\n"), @r"
    error: the agent `a` cannot have 0 steps
      why: in ~/.config/toolcell/config.toml, line 3, column 13
           │   3 | max_steps = 0
           │     |             ^
     hint: allow at least 1
    ");
    insta::assert_snapshot!(refused("[agents.a]\ndescription = \"x\"\nprovider = { name = \"gemini\", strict = true, model = \"m\" }\n"), @r#"
    error: the provider `gemini` has no use for `strict`
      why: in ~/.config/toolcell/config.toml, line 3, column 40
           │   3 | provider = { name = "gemini", strict = true, model = "m" }
           │     |                                        ^^^^
         - it is for the agent `a`
    │ in ~/.config/toolcell/config.toml, line 1, column 9
           │   1 | [agents.a]
           │     |         ^
     hint: it is for `openai` and `responses`; take it out, or name the provider
    "#);
    insta::assert_snapshot!(refused("[agents.clock_now]\ndescription = \"x\"\n"), @r"
    error: the tools cannot be offered together
      why: two tools have the name `clock_now`
     hint: choose among them with --tool
    ");
}

#[test]
fn a_project_defines_no_agents_and_no_log() {
    let refused = |toml: &str| {
        let person = person("");
        person.file("toolcell.toml", toml);
        error(&person, &person.run(&ask(&[])).ended(3).stderr)
    };
    insta::assert_snapshot!(refused("[agents.a]\ndescription = \"x\"\n"), @r"
    error: a project's file cannot define agents
      why: in toolcell.toml, line 1, column 9
           │   1 | [agents.a]
           │     |         ^
         - what it tells them would be told in your name, and on your account
     hint: put `[agents]` into your own configuration
    ");
    insta::assert_snapshot!(refused("[log]\ndir = \"log\"\n"), @r#"
    error: a project's file cannot say what is logged
      why: in toolcell.toml, line 2, column 7
           │   2 | dir = "log"
           │     |       ^^^^^
         - the log holds your conversations
     hint: put `[log]` into your own configuration
    "#);
}

//! Session budgets, from files and flags to the end of a turn.

use serde_json::json;

use crate::support::cli_user::User;

/// Three sequential calls and an answer; a thousand tokens per step.
fn three_calls(user: &User) {
    let usage = json!({ "input": 900, "output": 100 });
    let call = |text: &str| json!({ "calls": [{ "name": "text_count", "arguments": { "text": text } }], "usage": usage });
    let steps = json!([call("a"), call("b"), call("c"), { "text": "Done.", "usage": usage }]);
    user.file(
        "script.json",
        json!({ "model": "demo", "steps": steps }).to_string(),
    );
}

fn run<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec![
        "run",
        "x",
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--tool",
        "text",
    ];
    all.extend(flags);
    all
}

/// Returns the output from the error on.
fn error(user: &User, stderr: &str) -> String {
    let plain = user.plain(stderr);
    let from = plain.find("error:").unwrap_or(0);
    plain[from..].to_owned()
}

#[test]
fn run_beyond_call_budget_ends_with_reason_and_hint() {
    let user = User::new();
    three_calls(&user);
    let seen = user.run(&run(&["--budget", "calls=2"])).ended(5);
    assert_eq!(seen.stderr.matches("✓ text_count").count(), 2, "{}", seen.stderr);
    insta::assert_snapshot!(error(&user, &seen.stderr), @r"
    error: the turn exhausted a budget: the budget of 2 calls is used up (2 were used)
     hint: raise the budget with --budget calls=4
           or, in ~/.config/toolcell/config.toml: [budget] calls = 4
    ");
    // The budget belongs to the session: another turn needs more, and gets it.
    let resume = |budget| {
        let mut all = vec!["session", "resume", "last", "go on", "--budget", budget];
        all.extend(&run(&[])[2..]);
        user.run(&all)
    };
    resume("calls=2").ended(5);
    resume("calls=9").ended(0);
    // The call that exhausts the budget is the last one; one more suffices for all.
    let seen = user.run(&run(&["--budget", "calls=4"])).ended(0);
    assert_eq!(seen.stdout, "Done.\n");

    user.configure("[budget]\ncalls = 2\n");
    let seen = user.run(&run(&[])).ended(5);
    assert!(
        error(&user, &seen.stderr).contains("or, in ~/.config/toolcell/config.toml: [budget] calls = 4"),
        "{}",
        seen.stderr
    );
    user.run(&run(&["--budget", "calls=4"])).ended(0);
    // The hint is valid configuration.
    user.configure("[budget]\ncalls = 4\n");
    user.run(&run(&[])).ended(0);
    user.run(&run(&["--budget", "cals=4"])).ended(2);
}

#[test]
fn project_file_lowers_budget_and_never_raises_it() {
    let user = User::new();
    three_calls(&user);
    user.configure("[budget]\ncalls = 2\n");
    user.file("toolcell.toml", "[budget]\ncalls = 3\n");
    let seen = user.run(&run(&[])).ended(3);
    insta::assert_snapshot!(error(&user, &seen.stderr), @r"
    error: the project's file raises `budget.calls`
      why: in toolcell.toml, line 2, column 9
           │   2 | calls = 3
           │     |         ^
         - your own configuration allows 2
           in ~/.config/toolcell/config.toml, line 2, column 9
           │   2 | calls = 2
           │     |         ^
     hint: to allow more once: --budget calls=VALUE
           to allow more always: `calls` of `[budget]` in ~/.config/toolcell/config.toml
    ");
    user.run(&["config", "check"]).ended(3);
    // The user can allow it once.
    user.run(&run(&["--budget", "calls=5"])).ended(0);

    user.file("toolcell.toml", "[budget]\ncalls = 1\ntokens = \"10 k\"\n");
    let seen = user.run(&run(&[])).ended(5);
    assert_eq!(seen.stderr.matches("✓ text_count").count(), 1, "{}", seen.stderr);
    let seen = error(&user, &seen.stderr);
    assert!(
        seen.contains("or, in toolcell.toml: [budget] calls = 2"),
        "{seen}"
    );
    let settings = user.run(&["config", "check", "--json"]).ended(0).json();
    let settings = &settings["settings"];
    assert_eq!(settings["budget.calls"]["value"], "1");
    assert_eq!(settings["budget.tokens"]["value"], "10 k");

    user.file("toolcell.toml", "[prices.demo]\ninput = 0\noutput = 0\n");
    let seen = user.run(&run(&[])).ended(3);
    assert!(
        seen.stderr.contains("cannot set the prices of a model"),
        "{}",
        seen.stderr
    );
}

#[test]
fn cost_uses_prices_of_user_configuration() {
    let user = User::new();
    three_calls(&user);
    let seen = user.run(&run(&["--budget", "cost=0.01"])).ended(3);
    insta::assert_snapshot!(error(&user, &seen.stderr), @r#"
    error: the budget `cost` needs prices for `demo`
      why: from --budget
     hint: set the price of a million tokens, in ~/.config/toolcell/config.toml: [prices."demo"] input = …, output = …
    "#);
    // A step costs 0.9 + 0.5 thousandths, four of them 5.6.
    user.configure("[prices.demo]\ninput = 1\noutput = \"5.0\"\n");
    user.run(&run(&["--budget", "cost=0.017701"])).ended(0);
    let seen = user.run(&run(&["--budget", "cost=0.0028"])).ended(5);
    insta::assert_snapshot!(error(&user, &seen.stderr), @r"
    error: the turn exhausted a budget: the budget of 0.0028 in money is used up (0.0028 were used)
     hint: raise the budget with --budget cost=0.0177
           or, in ~/.config/toolcell/config.toml: [budget] cost = 0.0177
    ");
}

#[test]
fn estimates_and_incomplete_costs_are_called_so_everywhere() {
    let user = User::new();
    let step = |usage: Option<serde_json::Value>| {
        let mut step = json!({ "text": "word ".repeat(400) });
        if let Some(usage) = usage {
            step["usage"] = usage;
        }
        json!({ "model": "demo", "steps": [step] }).to_string()
    };
    let ask = |more: &[&'static str]| {
        let all = ["run", "x", "--provider", "scripted", "--model", "script.json"];
        [&all[..], more].concat()
    };
    // The report of 5 tokens cannot be true for 2,000 bytes.
    user.file("script.json", step(Some(json!({ "input": 900, "output": 5 }))));
    let seen = user.run(&ask(&[])).ended(0).stderr;
    assert!(seen.contains("about 900 tokens in, 504 out"), "{seen}");
    assert!(!seen.contains("cost"), "{seen}");
    // A turn with a price does not make the cost of the session whole.
    user.configure("[prices.demo]\ninput = 3\noutput = 15\n");
    user.file("script.json", step(Some(json!({ "input": 900, "output": 504 }))));
    let seen = user.run(&ask(&["--continue"])).ended(0).stderr;
    assert!(seen.contains("· 900 tokens in, 504 out · cost 0.01026"), "{seen}");
    let list = user.run(&["session", "list"]).ended(0).stdout;
    assert!(
        list.contains("about 1.8 k tokens in, 1 k out · cost at least about 0.01026"),
        "{list}"
    );
    let list: serde_json::Value =
        serde_json::from_str(&user.run(&["session", "list", "--json"]).ended(0).stdout).unwrap();
    assert_eq!(
        (&list[0]["usage"]["estimated"], &list[0]["usage"]["unpriced"]),
        (&json!(true), &json!(true))
    );
    let shown = user.run(&["session", "show", "last"]).ended(0).stderr;
    assert!(
        shown.contains("about 900 tokens in, 504 out") && shown.contains("cost 0.01026"),
        "{shown}"
    );
}

//! Budgets of a session, from the files and the flags to the end of the turn.

use serde_json::json;

use crate::cli_person::Person;

/// Three calls, one after the other, and an answer; a thousand tokens for each step.
fn three_calls(person: &Person) {
    let usage = json!({ "input": 900, "output": 100 });
    let call = |text: &str| json!({ "calls": [{ "name": "text_count", "arguments": { "text": text } }], "usage": usage });
    let steps = json!([call("a"), call("b"), call("c"), { "text": "Done.", "usage": usage }]);
    person.file(
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

/// What is said from the error on.
fn error(person: &Person, stderr: &str) -> String {
    let plain = person.plain(stderr);
    let from = plain.find("error:").unwrap_or(0);
    plain[from..].to_owned()
}

#[test]
fn a_run_over_its_budget_of_calls_ends_with_the_reason_and_what_raises_it() {
    let person = Person::new();
    three_calls(&person);
    let seen = person.run(&run(&["--budget", "calls=2"])).ended(5);
    assert_eq!(seen.stderr.matches("✓ text_count").count(), 2, "{}", seen.stderr);
    insta::assert_snapshot!(error(&person, &seen.stderr), @r"
    error: the turn was ended by a budget: the budget of 2 calls is used up (2 were used)
     hint: allow more with --budget calls=4
           │ or, in ~/.config/toolcell/config.toml: [budget] calls = 4
    ");
    // The budget is the session's: another turn of it needs more, and gets it.
    let resume = |budget| {
        let mut all = vec!["session", "resume", "last", "go on", "--budget", budget];
        all.extend(&run(&[])[2..]);
        person.run(&all)
    };
    resume("calls=2").ended(5);
    resume("calls=9").ended(0);
    // The call that uses the budget up is the last one; one more is enough for all of them.
    let seen = person.run(&run(&["--budget", "calls=4"])).ended(0);
    assert_eq!(seen.stdout, "Done.\n");

    person.configure("[budget]\ncalls = 2\n");
    let seen = person.run(&run(&[])).ended(5);
    assert!(
        error(&person, &seen.stderr).contains("or, in ~/.config/toolcell/config.toml: [budget] calls = 4"),
        "{}",
        seen.stderr
    );
    person.run(&run(&["--budget", "calls=4"])).ended(0);
    // What the hint says to write can be written.
    person.configure("[budget]\ncalls = 4\n");
    person.run(&run(&[])).ended(0);
    person.run(&run(&["--budget", "cals=4"])).ended(2);
}

#[test]
fn a_projects_file_lowers_a_budget_and_never_raises_one() {
    let person = Person::new();
    three_calls(&person);
    person.configure("[budget]\ncalls = 2\n");
    person.file("toolcell.toml", "[budget]\ncalls = 3\n");
    let seen = person.run(&run(&[])).ended(3);
    insta::assert_snapshot!(error(&person, &seen.stderr), @r"
    error: the project's file raises `budget.calls`
      why: in toolcell.toml, line 2, column 9
           │   2 | calls = 3
           │     |         ^
         - your own configuration allows 2
           │ in ~/.config/toolcell/config.toml, line 2, column 9
           │   2 | calls = 2
           │     |         ^
     hint: to allow it once: --budget calls=3
    to allow it always, in ~/.config/toolcell/config.toml: [budget] calls = 3
    ");
    person.run(&["config", "check"]).ended(3);
    // The person can allow it for once.
    person.run(&run(&["--budget", "calls=5"])).ended(0);

    person.file("toolcell.toml", "[budget]\ncalls = 1\ntokens = \"10 k\"\n");
    let seen = person.run(&run(&[])).ended(5);
    assert_eq!(seen.stderr.matches("✓ text_count").count(), 1, "{}", seen.stderr);
    let seen = error(&person, &seen.stderr);
    assert!(
        seen.contains("or, in toolcell.toml: [budget] calls = 2"),
        "{seen}"
    );
    let settings = person.run(&["config", "check", "--json"]).ended(0).json();
    let settings = &settings["settings"];
    assert_eq!(settings["budget.calls"]["value"], "1");
    assert_eq!(settings["budget.tokens"]["value"], "10 k");

    person.file("toolcell.toml", "[prices.demo]\ninput = 0\noutput = 0\n");
    let seen = person.run(&run(&[])).ended(3);
    assert!(
        seen.stderr.contains("cannot say what a model costs"),
        "{}",
        seen.stderr
    );
}

#[test]
fn money_is_counted_by_the_prices_of_the_persons_file() {
    let person = Person::new();
    three_calls(&person);
    let seen = person.run(&run(&["--budget", "cost=0.01"])).ended(3);
    insta::assert_snapshot!(error(&person, &seen.stderr), @r#"
    error: the budget `cost` needs to know what `demo` costs
      why: from --budget
     hint: say what a million tokens cost, in ~/.config/toolcell/config.toml: [prices."demo"] input = …, output = …
    "#);
    // A step costs 0.9 + 0.5 thousandths, four of them 5.6.
    person.configure("[prices.demo]\ninput = 1\noutput = \"5.0\"\n");
    person.run(&run(&["--budget", "cost=0.005601"])).ended(0);
    let seen = person.run(&run(&["--budget", "cost=0.0028"])).ended(5);
    insta::assert_snapshot!(error(&person, &seen.stderr), @r"
    error: the turn was ended by a budget: the budget of 0.0028 in money is used up (0.0028 were used)
     hint: allow more with --budget cost=0.0056
           │ or, in ~/.config/toolcell/config.toml: [budget] cost = 0.0056
    ");
}

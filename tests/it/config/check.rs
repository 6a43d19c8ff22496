//! `config check`: what it lists and refuses.

use super::setting;
use crate::support::cli_user::User;

#[test]
fn config_check_lists_rules_and_absent_denials() {
    let user = User::new();
    user.configure(
        "deny = [\"private\", \"there\"]\n[[approval.rules]]\ntool = \"files_*\"\narguments = { \"/path\" = \"private/*\" }\nverdict = \"deny\"\n",
    )
    .file("there/x", "");
    assert_eq!(
        setting(&user, "approval.rules[0]"),
        (
            "deny files_* where /path is private/*".into(),
            "~/.config/toolcell/config.toml:3".into()
        )
    );
    assert_eq!(setting(&user, "approval.flow"), ("ask".into(), "default".into()));
    let seen = user.run(&["config", "check", "--json"]).ended(0);
    assert_eq!(seen.json()["absent_denials"], serde_json::json!(["deny=private"]));
    let shown = user.run(&["config", "check"]).ended(0).stderr;
    assert!(
        shown.contains("`deny=private` denies a path that does not exist now"),
        "{shown}"
    );
}

#[test]
fn config_check_names_rules_that_apply_to_no_call() {
    let user = User::new();
    let rule = |tool: &str, argument: &str| {
        format!(
            "[[approval.rules]]\ntool = \"{tool}\"\nverdict = \"deny\"\narguments = {{ \"{argument}\" = \"private/*\" }}\n"
        )
    };
    let rules = [
        ("file_read", "/path"),
        ("files_*", "/Path"),
        ("files_*", "/path"),
        ("update_plan", "/path"),
    ];
    let rules: String = rules
        .iter()
        .map(|(tool, argument)| rule(tool, argument))
        .collect();
    user.configure(&rules);
    let seen = user.run(&["config", "check", "--json"]).ended(0);
    let unused = seen.json()["unused_rules"].clone();
    assert_eq!(unused.as_array().unwrap().len(), 2, "{unused:#}");
    for (i, parts) in [
        ["file_read", "there is `files_read`"],
        ["argument `/Path`", "there is `/path`"],
    ]
    .iter()
    .enumerate()
    {
        for part in parts {
            assert!(unused[i].as_str().unwrap().contains(part), "{unused:#}");
        }
    }
    let shown = user.run(&["config", "check"]).ended(0).stderr;
    assert!(shown.contains("applies to no call"), "{shown}");
}

#[test]
fn config_check_fails_for_what_cannot_be_loaded() {
    for (toml, code, part) in [
        ("[tools.x]\ncomponent = \"absent.wasm\"\n", 7, "absent.wasm"),
        ("[hooks.x]\ncomponent = \"absent.wasm\"\n", 7, "absent.wasm"),
        ("[tools.x]\ncomponent = \"absent.wasm\"\nenabled = false\n", 0, ""),
    ] {
        let user = User::new();
        user.configure(toml);
        let seen = user.run(&["config", "check"]).ended(code);
        assert!(seen.stderr.contains(part), "{}", seen.stderr);
        let json = user.run(&["config", "check", "--json"]).ended(code).json();
        let failures = json["failures"].as_array().unwrap();
        assert_eq!(failures.len(), usize::from(code != 0), "{json:#}");
    }
}

#[test]
fn hints_name_the_configuration_that_was_given() {
    let user = User::new();
    user.file(
        "mine.toml",
        "[[approval.rules]]\ntool = \"*\"\nverdict = \"ask\"\n",
    );
    let seen = user.run(&["--config", "mine.toml", "call", "files_read", r#"{"path":"x"}"#]);
    assert!(seen.stderr.contains("in mine.toml"), "{}", seen.stderr);
    assert!(!seen.stderr.contains("config.toml"), "{}", seen.stderr);
}

#[test]
fn config_check_names_secrets_without_value() {
    let mut user = User::new();
    user.configure(
        "[secrets.key]\nenv = \"TOKEN\"\n[tools.fetch]\nsecrets = [{ secret = \"key\", origins = [\"https://a.com\"], header = \"x\", template = \"{}\" }]\n",
    );
    let absent = |user: &User| {
        let json = user.run(&["config", "check", "--json"]).ended(0).json();
        json["absent_secrets"].as_array().unwrap().len()
    };
    assert_eq!(absent(&user), 1);
    let shown = user.run(&["config", "check"]).ended(0).stderr;
    assert!(
        shown.contains("the secret `key` of `fetch` has no value now"),
        "{shown}"
    );
    user.var("TOKEN", "planted-value");
    assert_eq!(absent(&user), 0);
}

#[test]
fn offered_tools_must_be_of_their_component() {
    let user = User::new();
    let count = ["call", "text_count", r#"{"text": "one two"}"#];
    for (only, code, shown) in [
        ("text_count", 0, ""),
        ("text_cuont", 3, "did you mean `text_count`?"),
        ("x", 3, "it has `text_"),
    ] {
        user.configure(&format!("[tools.text]\nonly = [\"{only}\"]\n"));
        let seen = user.run(&count).ended(code);
        assert!(seen.stderr.contains(shown), "{only}: {}", seen.stderr);
        assert_eq!(seen.stderr.contains("has no tool"), code == 3, "{}", seen.stderr);
    }
}

#[test]
fn config_check_names_unset_variables_without_which_run_fails() {
    for (toml, variable) in [
        ("[provider]\nname = \"openai\"\n", "OPENAI_API_KEY"),
        ("[provider]\nmodel = \"m\"\n", "OPENAI_API_KEY"),
        ("[provider]\napi_key_env = \"UNSET\"\n", "UNSET"),
        (
            "[provider]\nname = \"ollama\"\nmodel = \"m\"\nheaders = { X = { env = \"UNSET\" } }\n",
            "UNSET",
        ),
        (
            "[provider]\nname = \"ollama\"\nmodel = \"m\"\nfallback = [\"p\"]\n[profiles.p]\nname = \"anthropic\"\nmodel = \"n\"\n",
            "ANTHROPIC_API_KEY",
        ),
    ] {
        let mut user = User::new();
        user.configure(toml);
        let seen = user.run(&["config", "check"]).ended(0);
        let note =
            format!("the variable `{variable}` is not set, or empty: without it, `toolcell run` fails");
        assert!(seen.stderr.contains(&note), "{toml}: {}", seen.stderr);
        let json = user.run(&["config", "check", "--json"]).ended(0).json();
        assert_eq!(json["unset_variables"], serde_json::json!([variable]), "{toml}");
        assert_ne!(user.run(&["run", "x", "--tool", "text"]).code, 0, "{toml}");
        user.var(variable, "k");
        let seen = user.run(&["config", "check"]).ended(0);
        assert!(!seen.stderr.contains(variable), "{toml}: {}", seen.stderr);
    }
}

#[test]
fn config_check_refuses_settings_that_run_refuses() {
    for (toml, part) in [
        (
            "[provider]\nname = \"responses\"\nseed = 1\n",
            "provider `responses` does not use `seed`",
        ),
        (
            "[provider]\nname = \"scripted\"\nmodel = \"x\"\nfallback = [\"p\"]\n[profiles.p]\nname = \"responses\"\nstop = [\"a\"]\n",
            "does not use `stop`",
        ),
        (
            "[agents.a]\ndescription = \"d\"\n[agents.a.provider]\nname = \"responses\"\nmodel = \"m\"\nseed = 1\n",
            "it is for the agent `a`",
        ),
        (
            "[provider]\nmodel = \"\"\n",
            "the setting `model` of the provider is empty",
        ),
        (
            "[provider]\nreasoning = \" \"\n",
            "the setting `reasoning` of the provider is empty",
        ),
        ("[tools.text]\nonly = [\"text_cuont\"]\n", "text_cuont"),
        (
            "[provider]\nbase_url = \"ftp://x\"\nmodel = \"m\"\n",
            "could not be set up",
        ),
        (
            "[provider]\nname = \"anthropic\"\n",
            "no model is set for `anthropic`",
        ),
        ("[provider]\nname = \"ollama\"\n", "no model is set for `ollama`"),
        (
            "[provider]\nname = \"vertex\"\nmodel = \"m\"\n",
            "no Google Cloud project is set",
        ),
        ("[provider]\nname = \"scripted\"\n", "needs a script"),
        (
            "[provider]\nname = \"scripted\"\nmodel = \"absent.json\"\n",
            "could not be set up",
        ),
        ("[budget]\ncost = 1\n", "the budget `cost` needs prices for"),
        (
            "[agents.a]\ndescription = \"d\"\n[agents.a.provider]\nname = \"anthropic\"\n",
            "no model is set for `anthropic`",
        ),
        (
            "[log]\ndir = \"/proc/x\"\n",
            "the log directory `/proc/x` cannot be used",
        ),
    ] {
        let mut user = User::new();
        user.configure(toml);
        user.file("x", r#"{"steps": [{"text": "x"}]}"#);
        user.var("OPENAI_API_KEY", "k");
        for command in [&["config", "check"][..], &["run", "x", "--tool", "text"]] {
            let seen = user.run(command).ended(3);
            assert!(seen.stderr.contains(part), "{command:?}: {}", seen.stderr);
        }
    }
    let user = User::new();
    for flags in [["--model", ""], ["--reasoning", " "], ["--system", ""]] {
        let seen = user.run(&[&["run", "x"][..], &flags].concat()).ended(2);
        assert!(seen.stderr.contains("empty"), "{}", seen.stderr);
    }
}

//! Configuration: layers, and restrictions of a project's file.

use serde_json::Value;

use crate::probe::Probe;
use crate::support::cli_user::User;

fn setting(user: &User, key: &str) -> (String, String) {
    let seen = user.run(&["config", "check", "--json"]).ended(0);
    let setting = &seen.json()["settings"][key];
    let text = |field: &str| setting[field].as_str().unwrap_or("absent").to_owned();
    (text("value"), text("from"))
}

#[test]
fn later_layers_win_and_settings_name_their_source() {
    let mut user = User::new();
    assert_eq!(
        setting(&user, "provider.name"),
        ("offline".into(), "default".into())
    );
    user.configure("[provider]\nname = \"openai\"\nmodel = \"a\"\n[loop]\nmax_steps = 20\n");
    assert_eq!(
        setting(&user, "provider.model"),
        ("a".into(), "~/.config/toolcell/config.toml:3".into())
    );
    user.file("toolcell.toml", "[loop]\nmax_steps = 10\n");
    assert_eq!(
        setting(&user, "loop.max_steps"),
        ("10".into(), "toolcell.toml:2".into())
    );
    user.var("TOOLCELL_MODEL", "b").var("TOOLCELL_MAX_STEPS", "30");
    assert_eq!(
        setting(&user, "provider.model"),
        ("b".into(), "$TOOLCELL_MODEL".into())
    );
    assert_eq!(
        setting(&user, "loop.max_steps"),
        ("30".into(), "$TOOLCELL_MAX_STEPS".into())
    );
}

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
fn value_of_project_does_not_pass_for_its_origin() {
    let user = User::new();
    let rule = "[[approval.rules]]\ntool = \"files_write\"\nverdict = \"ask\"\n\
                arguments = { \"/path\" = \"x  ~/.config/toolcell/config.toml:7\" }\n";
    user.file("toolcell.toml", rule);
    let shown = user.run(&["config", "check"]).ended(0).stdout;
    let row = "`ask for files_write where /path is x  ~/.config/toolcell/config.toml:7`  toolcell.toml:";
    assert!(shown.contains(row), "{shown}");
    user.file(
        "toolcell.toml",
        "[tools.lint]\ncomponent = \"a.wasm  built-in  read=.\"\n",
    );
    let shown = user.run(&["tool", "list"]).stdout;
    assert!(
        shown.contains("project:lint  `a.wasm  built-in  read=.` of this project"),
        "{shown}"
    );
}

#[test]
fn denials_of_project_are_set_apart_from_our_words() {
    let user = User::new();
    user.configure("[tools.files]\ngrants = [\"write=.\"]\n");
    let odd = "x  write=~ granted by you";
    let project = format!(
        "deny = [\"{odd}\"]\n[tools.files]\ngrants = [\"deny=a` is yours\", \"deny=b  · allowed by you\"]\n"
    );
    user.file("toolcell.toml", &project);
    let listed = user.run(&["tool", "list"]).ended(0).stdout;
    let expected = "files  built-in  write=.  `deny=a\\u{60} is yours`  `deny=b  · allowed by you`\n";
    assert!(listed.contains(expected), "{listed}");
    // The words of a component stand behind the gutter.
    let mut descriptions = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  files_read "));
    assert!(
        descriptions.all(|words| words.trim_start().starts_with("│ ")),
        "{listed}"
    );
    let explained = user
        .run(&["policy", "explain", "--tool", "files"])
        .ended(0)
        .stdout;
    for line in [odd, "b  · allowed by you"] {
        let expected = format!("except `deny={line}`\n");
        assert!(explained.contains(&expected), "{explained}");
    }
    let write = serde_json::json!({"path": odd, "content": "x"}).to_string();
    let seen = user.run(&["call", "files_write", &write]).ended(4);
    let expected = format!("is denied by `deny={odd}` (toolcell.toml:1)");
    assert!(seen.stderr.contains(&expected), "{}", seen.stderr);
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
fn key_in_environment_selects_provider_and_is_never_shown() {
    let mut user = User::new();
    user.var("OPENAI_API_KEY", "sk-planted-key");
    let seen = user.run(&["config", "check"]).ended(0);
    assert!(seen.stdout.contains("$OPENAI_API_KEY"), "{}", seen.stdout);
    let doctor = user.run(&["doctor"]);
    for text in [seen.stdout, seen.stderr, doctor.stdout, doctor.stderr] {
        assert!(!text.contains("sk-planted"), "{text}");
    }
}

#[test]
fn project_file_is_found_upwards_and_not_above_home() {
    let user = User::new();
    user.file("toolcell.toml", "[loop]\nmax_steps = 7\n")
        .file("a/b/x", "");
    let mut deep = user.command(&["config", "check", "--json"]);
    deep.current_dir(user.work().join("a/b"));
    let output = deep.output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["settings"]["loop.max_steps"]["value"], "7");

    std::fs::write(
        user.home().parent().unwrap().join("toolcell.toml"),
        "[loop]\nmax_steps = 6\n",
    )
    .unwrap();
    let mut at_home = user.command(&["config", "check", "--json"]);
    at_home.current_dir(user.home());
    let value: Value = serde_json::from_slice(&at_home.output().unwrap().stdout).unwrap();
    assert_eq!(value["settings"]["loop.max_steps"]["value"], "50");
}

#[test]
fn project_file_writes_no_line_of_a_hint() {
    let user = User::new();
    user.configure("[tools.text]\ngrants = [\"read=.\"]\n")
        .file("docs/x", "")
        .file(
            "toolcell.toml",
            "[tools.text]\ngrants = [\"read=docs/y; touch pwned #\"]\n",
        );
    let seen = user
        .run(&["call", "text_count", r#"{"path": "docs/x"}"#])
        .ended(3);
    assert!(!seen.stderr.contains("hint:"), "{}", seen.stderr);
    let foreign = seen.stderr.lines().filter(|line| line.contains("touch pwned"));
    for line in foreign.skip(1) {
        assert!(line.trim_start().starts_with('│'), "{line}");
    }
}

#[test]
fn missing_directory_is_quoted_in_the_hint() {
    let user = User::new();
    let seen = user
        .run(&["call", "text_count", "{}", "--grant", "read=a; touch x"])
        .ended(3);
    assert!(
        seen.stderr.contains("hint: create it first: mkdir 'a; touch x'"),
        "{}",
        seen.stderr
    );
}

#[test]
fn invalid_lock_file_is_not_repeated() {
    let user = User::new();
    user.file("toolcell.lock", format!("version = 1\n{}\n", "x".repeat(400_000)));
    let seen = user
        .run(&["call", "text_count", r#"{"text": "a"}"#, "--locked"])
        .ended(3);
    assert!(seen.stderr.contains("why: line 2"), "{}", seen.stderr);
    assert!(seen.stderr.len() < 1_000, "{} bytes", seen.stderr.len());
}

#[test]
fn project_file_may_narrow() {
    let user = User::new();
    user.file("docs/a.md", "one two").file("b.md", "x");
    user.configure("[tools.text]\ngrants = [\"read=.\"]\n");
    user.run(&["call", "text_count", r#"{"path": "b.md"}"#]).ended(0);
    user.file(
        "toolcell.toml",
        "[tools.text]\ngrants = [\"read=docs\"]\nlimits.wall = \"5s\"\n[tools.files]\nenabled = false\n",
    );
    user.run(&["call", "text_count", r#"{"path": "docs/a.md"}"#])
        .ended(0);
    user.run(&["call", "text_count", r#"{"path": "b.md"}"#]).ended(1);
    let seen = user.run(&["call", "files_list", "{}"]);
    assert_ne!(seen.code, 0);
}

/// Every attempt of a hostile project to widen access, and the resulting error.
#[test]
fn project_file_never_widens() {
    let refused = |own: &str, project: &str| {
        let user = User::new();
        user.file("docs/x", "")
            .file("evil.wasm", Probe::default().build());
        std::fs::create_dir(user.home().join("secret")).unwrap();
        std::os::unix::fs::symlink(user.home().join("secret"), user.work().join("innocent")).unwrap();
        user.configure(own).file("toolcell.toml", project);
        let seen = user.run(&["config", "check"]).ended(3);
        assert_eq!(seen.stdout, "");
        // No command runs with such a file.
        user.run(&["call", "text_count", r#"{"text": "a"}"#]).ended(3);
        user.run(&["run", "hello"]).ended(3);
        user.plain(&seen.stderr)
    };
    insta::assert_snapshot!(refused("", "[tools.text]\ngrants = [\"read=.\"]\n"), @r#"
    error: the project's file grants `text` more than your own configuration does
      why: in toolcell.toml, line 2, column 11
           │   2 | grants = ["read=."]
           │     |           ^^^^^^^^
         - your own configuration grants `text` nothing
     hint: to grant more once: --grant text:GRANT
           to grant more always: `grants` of `[tools.text]` in ~/.config/toolcell/config.toml
    "#);
    insta::assert_snapshot!(refused("[tools.text]\ngrants = [\"read=docs\"]\n", "[tools.text]\ngrants = [\"read=.\"]\n"), @r#"
    error: the project's file grants `text` more than your own configuration does
      why: in toolcell.toml, line 2, column 11
           │   2 | grants = ["read=."]
           │     |           ^^^^^^^^
         - your own configuration grants it only
           in ~/.config/toolcell/config.toml, line 2, column 11
           │   2 | grants = ["read=docs"]
           │     |           ^^^^^^^^^^^
     hint: to grant more once: --grant text:GRANT
           to grant more always: `grants` of `[tools.text]` in ~/.config/toolcell/config.toml
    "#);
    insta::assert_snapshot!(refused("[tools.text]\ngrants = [\"read=.\"]\n", "[tools.text]\ngrants = [\"read=innocent\"]\n"), @r#"
    error: the project's file grants `text` more than your own configuration does
      why: in toolcell.toml, line 2, column 11
           │   2 | grants = ["read=innocent"]
           │     |           ^^^^^^^^^^^^^^^
         - your own configuration grants it only
           in ~/.config/toolcell/config.toml, line 2, column 11
           │   2 | grants = ["read=."]
           │     |           ^^^^^^^^
     hint: to grant more once: --grant text:GRANT
           to grant more always: `grants` of `[tools.text]` in ~/.config/toolcell/config.toml
    "#);
    insta::assert_snapshot!(refused("[tools.files]\ngrants = [\"read=.\"]\n", "[tools.files]\ngrants = [\"write=.\"]\n"), @r#"
    error: the project's file grants `files` more than your own configuration does
      why: in toolcell.toml, line 2, column 11
           │   2 | grants = ["write=."]
           │     |           ^^^^^^^^^
         - your own configuration grants it only
           in ~/.config/toolcell/config.toml, line 2, column 11
           │   2 | grants = ["read=."]
           │     |           ^^^^^^^^
     hint: to grant more once: --grant files:GRANT
           to grant more always: `grants` of `[tools.files]` in ~/.config/toolcell/config.toml
    "#);
    insta::assert_snapshot!(refused("", "[tools.text.limits]\nmemory = \"1 GiB\"\n"), @r#"
    error: the project's file raises `text.limits.memory`
      why: in toolcell.toml, line 2, column 10
           │   2 | memory = "1 GiB"
           │     |          ^^^^^^^
         - the default of `text.limits.memory` is 256 MiB
     hint: to allow more once: --limit text:memory=VALUE
           to allow more always: `memory` of `[tools.text.limits]` in ~/.config/toolcell/config.toml
    "#);
    insta::assert_snapshot!(refused("[tools.text.limits]\nwall = \"1s\"\n", "[tools.text.limits]\nwall = \"2s\"\n"), @r#"
    error: the project's file raises `text.limits.wall`
      why: in toolcell.toml, line 2, column 8
           │   2 | wall = "2s"
           │     |        ^^^^
         - your own configuration allows 1 s
           in ~/.config/toolcell/config.toml, line 2, column 8
           │   2 | wall = "1s"
           │     |        ^^^^
     hint: to allow more once: --limit text:wall=VALUE
           to allow more always: `wall` of `[tools.text.limits]` in ~/.config/toolcell/config.toml
    "#);
    insta::assert_snapshot!(refused("[tools.text]\nenabled = false\n", "[tools.text]\nenabled = true\n"), @r"
    error: the project's file enables `text`
      why: in toolcell.toml, line 2, column 11
           │   2 | enabled = true
           │     |           ^^^^
         - your own configuration disables it
           in ~/.config/toolcell/config.toml, line 2, column 11
           │   2 | enabled = false
           │     |           ^^^^^
     hint: to use it, enable it in your own configuration
    ");
    insta::assert_snapshot!(refused("", "[tools.text]\ncomponent = \"evil.wasm\"\n"), @r#"
    error: `text` cannot have another component
      why: in toolcell.toml, line 2, column 13
           │   2 | component = "evil.wasm"
           │     |             ^^^^^^^^^^^
         - it is built in
     hint: give it another name
    "#);
    insta::assert_snapshot!(refused("[tools.mine]\ncomponent = \"/a.wasm\"\n", "[tools.mine]\ncomponent = \"evil.wasm\"\n"), @r#"
    error: `mine` cannot have another component
      why: in toolcell.toml, line 2, column 13
           │   2 | component = "evil.wasm"
           │     |             ^^^^^^^^^^^
         - it is already defined
           in ~/.config/toolcell/config.toml, line 2, column 13
           │   2 | component = "/a.wasm"
           │     |             ^^^^^^^^^
     hint: give it another name
    "#);
    insta::assert_snapshot!(refused("", "[tools.evil]\ncomponent = \"evil.wasm\"\ngrants = [\"read=.\"]\n"), @r#"
    error: the project's file grants `project:evil` more than your own configuration does
      why: in toolcell.toml, line 3, column 11
           │   3 | grants = ["read=."]
           │     |           ^^^^^^^^
         - your own configuration grants `project:evil` nothing
     hint: to grant more once: --grant project:evil:GRANT
    "#);
    insta::assert_snapshot!(refused("", "[provider]\nbase_url = \"https://evil.example/v1\"\n"), @r#"
    error: a project's file cannot choose the model provider
      why: in toolcell.toml, line 2, column 12
           │   2 | base_url = "https://evil.example/v1"
           │     |            ^^^^^^^^^^^^^^^^^^^^^^^^^
         - the provider receives the conversation, and its key is billed
     hint: move `[provider]` to your own configuration (`toolcell config check` shows its path), or use --provider, --model and --base-url
    "#);
    insta::assert_snapshot!(refused("", "[loop]\nmax_steps = 1000\n"), @r"
    error: the project's file raises `loop.max_steps`
      why: in toolcell.toml, line 2, column 13
           │   2 | max_steps = 1000
           │     |             ^^^^
         - the default of `loop.max_steps` is 50
     hint: to allow more once: --max-steps NUMBER
    ");
    insta::assert_snapshot!(refused("[loop]\ndeadline = \"1m\"\n", "[loop]\ndeadline = \"2m\"\n"), @r#"
    error: the project's file raises `loop.deadline`
      why: in toolcell.toml, line 2, column 12
           │   2 | deadline = "2m"
           │     |            ^^^^
         - your own configuration allows 60 s
           in ~/.config/toolcell/config.toml, line 2, column 12
           │   2 | deadline = "1m"
           │     |            ^^^^
     hint: to allow more once: --deadline TIME
    "#);
}

#[test]
fn user_can_allow_once_what_project_file_requests() {
    let user = User::new();
    user.file("a.md", "one").file(
        "toolcell.toml",
        "[tools.text]\ngrants = [\"read=.\"]\nlimits.memory = \"1 GiB\"\n[loop]\nmax_steps = 60\n",
    );
    let flags = ["--grant", "text:read=.", "--limit", "text:memory=1GiB"];
    let mut call = vec!["call", "text_count", r#"{"path": "a.md"}"#];
    call.extend(flags);
    user.run(&call).ended(3);
    user.file(
        "toolcell.toml",
        "[tools.text]\ngrants = [\"read=.\"]\nlimits.memory = \"1 GiB\"\n",
    );
    user.run(&call).ended(0);
    user.run(&call[..5]).ended(3);
}

#[test]
fn unknown_key_is_error_with_suggestion() {
    let user = User::new();
    user.configure("[tools.text]\ngrnts = []\n");
    let seen = user.run(&["config", "check"]).ended(3);
    insta::assert_snapshot!(user.plain(&seen.stderr), @r"
    error: the user configuration `~/.config/toolcell/config.toml` cannot be used
      why: there is no key `grnts` in `[tools.text]`
           in ~/.config/toolcell/config.toml, line 2, column 1
           │   2 | grnts = []
           │     | ^^^^^
     hint: did you mean `grants`?
    ");
}

#[test]
fn unknown_variable_is_warning_with_suggestion() {
    let mut user = User::new();
    user.var("TOOLCELL_MODLE", "x").var("TOOLCELL_9", "x");
    let seen = user.run(&["call", "text_count", r#"{"text":"a"}"#]).ended(0);
    insta::assert_snapshot!(seen.stderr, @r"
    warning: the variable `TOOLCELL_9` has no effect
    warning: the variable `TOOLCELL_MODLE` has no effect; did you mean `TOOLCELL_MODEL`?
    ");
    let seen = user.run(&["completions", "bash"]).ended(0);
    assert_eq!(seen.stderr, "");
}

#[test]
fn null_device_is_empty_configuration_of_the_user() {
    let mut user = User::new();
    user.configure("[loop]\nmax_steps = 7\n");
    let steps = |seen: &Value| seen["settings"]["loop.max_steps"]["value"].clone();
    let seen = user.run(&["config", "show", "--json"]).ended(0).json();
    assert_eq!(steps(&seen), "7");
    let seen = user
        .run(&["--config", "/dev/null", "config", "show", "--json"])
        .ended(0);
    assert_eq!(steps(&seen.json()), "50");
    user.var("TOOLCELL_CONFIG", "/dev/null");
    assert_eq!(
        steps(&user.run(&["config", "show", "--json"]).ended(0).json()),
        "50"
    );
    // Other devices, and a link in a project, are refused as before.
    let seen = user.run(&["--config", "/dev/zero", "config", "show"]).ended(3);
    assert!(seen.stderr.contains("/dev/zero"), "{}", seen.stderr);
    std::os::unix::fs::symlink("/dev/null", user.work().join("toolcell.toml")).unwrap();
    user.run(&["config", "show"]).ended(3);
}

#[test]
fn config_show_lists_every_setting_with_its_origin() {
    let mut user = User::new();
    user.configure("[loop]\npreset = \"resilient\"\nconcurrency = 2\n[secrets.k]\nenv = \"K\"\n[prices.m]\ninput = 1\noutput = 2\n");
    user.file(
        "toolcell.toml",
        "[loop]\ncall_timeout = \"9s\"\n[tools.text.limits]\nwall = \"2s\"\n",
    );
    user.var("TOOLCELL_DEADLINE", "5m");
    let shown = user
        .run(&["config", "show", "--json", "--summarise-at", "9k"])
        .ended(0)
        .json();
    for (key, value, from) in [
        ("loop.preset", "resilient", "~/.config/toolcell/config.toml:2"),
        ("loop.concurrency", "2", "~/.config/toolcell/config.toml:3"),
        ("loop.max_steps", "10", "preset resilient"),
        ("loop.call_attempts", "2", "preset resilient"),
        ("loop.call_timeout", "9 s", "toolcell.toml:2"),
        ("loop.deadline", "300 s", "$TOOLCELL_DEADLINE"),
        ("context.summarise_at", "9 k", "--summarise-at"),
        ("context.keep_rounds", "4", "default"),
        ("secrets.k.env", "K", "~/.config/toolcell/config.toml:4"),
        ("prices.\"m\".cache_read", "1", "~/.config/toolcell/config.toml:6"),
        ("tools.text.limits.wall", "2 s", "toolcell.toml:4"),
        ("tools.text.limits.memory", "256 MiB", "default"),
        ("tools.memory.enabled", "false", "default"),
    ] {
        let expected = serde_json::json!({"value": value, "from": from});
        assert_eq!(shown["settings"][key], expected, "{key}");
    }
    for key in [
        "provider.model",
        "budget.calls",
        "log.dir",
        "context.max_messages",
    ] {
        let expected = serde_json::json!({"value": null, "from": "default"});
        assert_eq!(shown["settings"][key], expected, "{key}");
    }
    // A key selects; `config check` lists the loop, too.
    let seen = user.run(&["config", "show", "loop.max_steps", "deny"]).ended(2);
    assert!(
        seen.stderr.contains("there is no setting `deny`"),
        "{}",
        seen.stderr
    );
    let shown = user.run(&["config", "show", "loop.max_steps"]).ended(0).stdout;
    assert_eq!(shown, "loop.max_steps  10  preset resilient\n");
    assert_eq!(
        setting(&user, "loop.max_steps"),
        ("10".into(), "preset resilient".into())
    );
}

#[test]
fn project_lowers_numbers_of_preset_and_chooses_nothing() {
    let user = User::new();
    user.configure("[loop]\npreset = \"resilient\"\n");
    user.file("toolcell.toml", "[loop]\nmax_steps = 11\n");
    let seen = user.run(&["config", "show"]).ended(3);
    insta::assert_snapshot!(user.plain(&seen.stderr), @r"
    error: the project's file raises `loop.max_steps`
      why: in toolcell.toml, line 2, column 13
           │   2 | max_steps = 11
           │     |             ^^
         - the preset `resilient` sets `loop.max_steps` to 10
     hint: to allow more once: --max-steps NUMBER
    ");
    user.run(&["config", "show", "--max-steps", "11"]).ended(0);
    user.file("toolcell.toml", "[loop]\nerror_breaker = 0\n");
    let seen = user.run(&["config", "show"]).ended(3);
    let hint = "to allow more always: `error_breaker` of `[loop]` in";
    assert!(seen.stderr.contains(hint), "{}", seen.stderr);
    user.file("toolcell.toml", "[context]\nmax_messages = 3\n");
    let seen = user.run(&["config", "show"]).ended(3);
    assert!(
        seen.stderr.contains("forget your instructions"),
        "{}",
        seen.stderr
    );
}

#[test]
#[cfg(target_os = "linux")]
fn full_disk_is_no_internal_error() {
    use std::process::Stdio;

    let user = User::new();
    let run = |arguments: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = user.command(arguments);
        command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(74), "{stderr}");
        stderr
    };
    // The answer of a turn is lost.
    for arguments in [
        &["run", "--provider", "offline", "How many words has: one two"][..],
        &[
            "run",
            "--provider",
            "offline",
            "How many words has: one two",
            "--json",
        ],
    ] {
        let stderr = run(arguments);
        assert!(stderr.contains("could not write the output"), "{stderr}");
    }
    let stderr = run(&["config", "show"]);
    insta::assert_snapshot!(stderr, @r"
    error: could not write the output
      why: No space left on device (os error 28)
     hint: free some space on the disk, and try again
    ");
}

#[test]
fn invalid_configuration_file_is_refused() {
    let user = User::new();
    let long = format!("# {}\n", "x".repeat(1 << 20));
    for (content, reason) in [
        (&b"\xff\xfe"[..], "invalid UTF-8"),
        (b"[tools", "unclosed table"),
        (long.as_bytes(), "larger than 1 MiB"),
    ] {
        std::fs::write(user.home().join(".config/toolcell/config.toml"), content).unwrap();
        let seen = user.run(&["config", "check"]).ended(3);
        assert!(seen.stderr.contains(reason), "{}", seen.stderr);
    }
}

#[test]
fn printed_schema_accepts_complete_configuration() {
    let schema = User::new().run(&["config", "schema"]).ended(0).json();
    assert_eq!(schema["title"], "Toolcell configuration");
    assert!(schema["properties"]["tools"].is_object());
}

/// A server that echoes the head of each request.
fn echo_server() -> String {
    use std::io::{BufRead as _, BufReader, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head: Vec<String> = BufReader::new(stream.try_clone().unwrap())
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let body = format!("you sent:\n{}\n", head.join("\n"));
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    origin
}

#[test]
fn secret_is_sent_with_request_and_shown_nowhere() {
    let origin = echo_server();
    let mut user = User::new();
    user.configure(&format!(
        "[secrets.token]\nenv = \"MY_TOKEN\"\n[tools.fetch]\ngrants = [\"http={origin}\"]\n\
         secrets = [{{ secret = \"token\", origins = [\"{origin}\"], header = \"x-token\", template = \"Bearer {{}}\" }}]\n"
    ));
    let arguments = serde_json::json!({ "url": format!("{origin}/") }).to_string();
    // Bound to a missing value.
    let seen = user.run(&["call", "fetch", &arguments]).ended(3);
    assert!(
        seen.stderr.contains("the secrets of `fetch` cannot be used"),
        "{}",
        seen.stderr
    );

    user.var("MY_TOKEN", "planted-secret-value");
    let seen = user
        .run(&["call", "fetch", &arguments, "--receipt", "--json"])
        .ended(0);
    let text = seen.json()["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_ascii_lowercase();
    assert!(text.contains("x-token: bearer "), "{text}");
    for output in [
        &seen.stdout,
        &seen.stderr,
        &user.run(&["config", "check"]).ended(0).stdout,
    ] {
        assert!(!output.contains("planted-secret"), "{output}");
    }
    let project = "[secrets.token]\nenv = \"HOME\"\n";
    let seen = user
        .file("toolcell.toml", project)
        .run(&["config", "check"])
        .ended(3);
    assert!(
        seen.stderr.contains("a project's file cannot name secrets"),
        "{}",
        seen.stderr
    );
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
fn config_show_names_the_defaults_of_the_provider() {
    let user = User::new();
    let show = |provider: &str, key: &str| {
        let shown = user.run(&["config", "show", key, "--provider", provider]);
        shown.ended(0).stdout
    };
    let idle = "provider.idle_timeout";
    assert!(
        show("anthropic", idle).contains("5 min"),
        "{}",
        show("anthropic", idle)
    );
    assert!(
        show("offline", idle).contains("none"),
        "{}",
        show("offline", idle)
    );
    assert!(show("anthropic", "provider.temperature").contains("none"));
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

#[test]
fn absent_variable_of_a_header_is_an_error_of_the_configuration() {
    let user = User::new();
    user.configure("[provider]\nname = \"openai\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9\"\nheaders = { X-Key = { env = \"ABSENT\" } }\n");
    let seen = user.run(&["run", "x"]).ended(3);
    for part in [
        "the variable `ABSENT` for the header `X-Key`",
        "hint: set it: export ABSENT=",
    ] {
        assert!(seen.stderr.contains(part), "{}", seen.stderr);
    }
}

#[test]
fn config_show_says_what_ends_a_turn() {
    let user = User::new();
    let seen = user
        .run(&["config", "show", "loop", "--preset", "stepwise"])
        .ended(0);
    let ends =
        "\na turn ends with a call of `task_completion` or `ask_question` or `converse` (preset stepwise)\n";
    assert!(seen.stdout.ends_with(ends), "{}", seen.stdout);
    let seen = user.run(&["config", "show", "loop"]).ended(0);
    let ends = "\na turn ends with an answer without a call (default)\n";
    assert!(seen.stdout.ends_with(ends), "{}", seen.stdout);
    let seen = user.run(&["config", "show", "loop", "--json"]).ended(0).json();
    assert_eq!(seen["turn_ends_with"], "an answer without a call");
    let seen = user.run(&["config", "show", "context"]).ended(0);
    assert!(!seen.stdout.contains("a turn ends"), "{}", seen.stdout);
}

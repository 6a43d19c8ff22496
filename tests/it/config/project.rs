//! Configuration of a project: what its file may narrow, and never widens.

use serde_json::Value;

use crate::probe::Probe;
use crate::support::cli_user::User;

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

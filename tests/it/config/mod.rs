//! Configuration: its layers, `config show`, and errors in its files.

mod check;
mod project;

use serde_json::Value;

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
        "deny",
        "approval.rules",
        "mcp",
        "tools.text.only",
        "context.max_messages",
    ] {
        let expected = serde_json::json!({"value": null, "from": "default"});
        assert_eq!(shown["settings"][key], expected, "{key}");
    }
    assert_eq!(shown["settings"].get("secrets"), None, "one is set");
    // Without a provider, what each one has.
    for (key, value) in [
        ("idle_timeout", "5 min"),
        ("retries", "2"),
        ("tool_calls", "native"),
    ] {
        let shown = &shown["settings"][&format!("provider.{key}")]["value"];
        assert_eq!(*shown, value, "{key}");
    }
    // A key selects; `config check` lists the loop, too.
    let seen = user.run(&["config", "show", "loop.max_steps", "denie"]).ended(2);
    assert!(
        seen.stderr.contains("there is no setting `denie`"),
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

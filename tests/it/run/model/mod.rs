//! Requests to models: calls in text, strict schemas, Vertex, and request parameters.

mod address;
mod waits;

use serde_json::json;

use crate::support::cli_user::User;
use crate::support::model_server::{Answer, ModelServer};

/// Returns the output from the error on.
fn error(user: &User, stderr: &str) -> String {
    let plain = user.plain(stderr);
    let from = plain.find("error:").unwrap_or(0);
    plain[from..].to_owned()
}

fn ask<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["run", "How many words?", "--tool", "text"];
    all.extend(more);
    all
}

#[test]
fn model_without_tool_calling_calls_in_text_format() {
    for (way, call, result) in [
        (
            "hermes",
            "<tool_call>\n{\"name\": \"text_count\", \"arguments\": {\"text\": \"a b\"}}\n</tool_call>",
            "<tool_response>",
        ),
        (
            "labels",
            "TOOL_CALL: text_count\nARGUMENTS: {\"text\": \"a b\"}",
            "TOOL_RESULT: text_count",
        ),
        (
            "tool-tag",
            "<tool>{\"server_name\": \"local\", \"tool_name\": \"text_count\", \"arguments\": {\"text\": \"a b\"}}</tool>",
            "Tool 'text_count' result:",
        ),
        (
            "action",
            "{\"action\": \"text_count\", \"params\": {\"text\": \"a b\"}}",
            "Tool result:",
        ),
    ] {
        let server = ModelServer::playing(vec![Answer::chat(call), Answer::chat("Two.")]);
        let user = User::new();
        let url = server.url("/v1");
        let configured = format!("[provider]\nbase_url = \"{url}\"\nmodel = \"m\"\n");
        // The flag and the file have the same effect.
        let seen = if way == "tool-tag" {
            user.configure(&format!("{configured}tool_calls = \"tool-tag\"\n"));
            user.run(&ask(&[]))
        } else {
            user.configure(&configured);
            user.run(&ask(&["--tool-calls", way]))
        };
        let seen = seen.ended(0);
        assert_eq!(seen.stdout.trim(), "Two.", "{way}: {}", seen.stdout);
        assert!(seen.stderr.contains("✓ text_count"), "{way}: {}", seen.stderr);
        let requests = server.requests();
        assert!(requests[0].body.get("tools").is_none(), "{way}");
        let system = requests[0].body["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains("text_count"), "{way}: {system}");
        let last = requests[1].body["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .to_string();
        assert!(last.contains(result), "{way}: {last}");
    }
}

#[test]
fn call_leaked_into_text_is_parsed_if_enabled() {
    let slip = "<tool_call>{\"name\": \"text_count\", \"arguments\": {\"text\": \"a b\"}}</tool_call>";
    for (way, calls) in [("watch", true), ("native", false)] {
        let server = ModelServer::playing(vec![Answer::chat(slip), Answer::chat("Two.")]);
        let url = server.url("/v1");
        let seen = User::new()
            .run(&ask(&["--base-url", &url, "--model", "m", "--tool-calls", way]))
            .ended(0);
        assert_eq!(seen.stderr.contains("✓ text_count"), calls, "{}", seen.stderr);
        assert!(server.requests()[0].body["tools"].is_array());
    }
}

#[test]
fn request_parameters_come_from_configuration() {
    let server = ModelServer::playing(vec![Answer::chat("Two.")]);
    let user = User::new();
    user.configure(&format!(
        "[provider]\nbase_url = \"{}\"\nmodel = \"m\"\nstrict = true\nreasoning = \"low\"\ntemperature = 0.25\n\
         max_output_tokens = \"2 k\"\n",
        server.url("/v1")
    ));
    user.run(&ask(&[])).ended(0);
    user.run(&ask(&["--reasoning", "high"])).ended(0);
    let requests = server.requests();
    let body = &requests[0].body;
    assert_eq!(body["tools"][0]["function"]["strict"], true);
    assert_eq!(body["temperature"], 0.25);
    let limit = body.get("max_completion_tokens").or(body.get("max_tokens"));
    assert_eq!(limit, Some(&json!(2_000)));
    assert_eq!(body["reasoning_effort"], "low");
    assert_eq!(requests[1].body["reasoning_effort"], "high");
    let check = user.run(&["config", "check"]).ended(0).stdout;
    for row in [
        "provider.strict             true",
        "provider.reasoning          low",
        "provider.temperature        0.25",
        "provider.max_output_tokens  2000",
    ] {
        assert!(check.contains(row), "{check}");
    }
}

#[test]
fn sampling_headers_and_retries_come_from_configuration() {
    let server = ModelServer::playing(vec![Answer::error(503, "busy"), Answer::chat("Two.")]);
    let mut user = User::new();
    let configured = format!(
        "[provider]\nbase_url = \"{}\"\nmodel = \"m\"\ntop_p = 0.5\nstop = [\"END\"]\nseed = 7\n\
         idle_timeout = \"30 s\"\nrequest_timeout = \"1 min\"\n\
         headers = {{ X-Title = \"mine\", X-Gate = {{ env = \"GATE_TOKEN\" }} }}\n",
        server.url("")
    );
    user.configure(&format!("{configured}retries = 0\n"));
    let seen = user.run(&ask(&[])).ended(3);
    assert!(
        seen.stderr.contains("`GATE_TOKEN` for the header `X-Gate`"),
        "{}",
        seen.stderr
    );
    assert!(server.requests().is_empty());

    user.var("GATE_TOKEN", "planted-gate-token");
    let seen = user.run(&ask(&[])).ended(6);
    assert!(
        seen.stderr.contains("busy") && !seen.stderr.contains("planted"),
        "{}",
        seen.stderr
    );
    assert_eq!(server.requests().len(), 1);
    user.configure(&configured);
    user.run(&ask(&["--max-output-tokens", "99"])).ended(0);
    let request = &server.requests()[1];
    for (field, value) in [
        ("top_p", json!(0.5)),
        ("stop", json!(["END"])),
        ("seed", json!(7)),
        ("max_tokens", json!(99)),
    ] {
        assert_eq!(request.body[field], value, "{field}");
    }
    let head = request.head.to_lowercase();
    assert!(
        head.contains("x-title: mine\r\n") && head.contains("x-gate: planted-gate-token\r\n"),
        "{head}"
    );
    assert!(head.starts_with("post /v1/chat/completions "), "{head}");
    let check = user.run(&["config", "check"]).ended(0).stdout;
    assert!(
        check.contains("X-Gate, X-Title") && !check.contains("mine"),
        "{check}"
    );

    user.configure("[provider]\nname = \"responses\"\nmodel = \"m\"\nseed = 7\n");
    let seen = user.run(&ask(&[])).ended(3);
    assert!(
        seen.stderr.contains("`responses` does not use `seed`"),
        "{}",
        seen.stderr
    );
}

#[test]
fn refused_parameter_is_left_out_and_said_once() {
    let server = ModelServer::playing(vec![
        Answer::error(
            400,
            "Unsupported value: 'temperature' does not support 0.25 with this model.",
        ),
        Answer::chat("Two."),
    ]);
    let user = User::new();
    user.configure(&format!(
        "[provider]\nbase_url = \"{}\"\nmodel = \"m\"\ntemperature = 0.25\n",
        server.url("/v1")
    ));
    let seen = user.run(&ask(&[])).ended(0);
    let told = seen
        .stderr
        .matches("does not accept the temperature, left out from now on")
        .count();
    assert_eq!(told, 1, "{}", seen.stderr);
    assert_eq!(server.requests()[1].body.get("temperature"), None);
}

#[test]
fn model_without_tools_gets_a_hint_to_text_formats() {
    let server = ModelServer::playing(vec![Answer::error(400, "`m` does not support tools")]);
    let seen = User::new()
        .run(&ask(&["--base-url", &server.url("/v1"), "--model", "m"]))
        .ended(6);
    assert!(seen.stderr.contains("--tool-calls hermes"), "{}", seen.stderr);
}

#[test]
fn expired_vertex_token_is_fetched_again_by_command() {
    let server = ModelServer::playing(vec![
        Answer::error(401, "token-number-1 has expired"),
        Answer::gemini("Two."),
    ]);
    let user = User::new();
    // Each run prints another token.
    user.file(
        "token.sh",
        "echo x >> made; echo token-number-$(wc -l < made | tr -d ' ')\n",
    );
    let url = server.url("/v1/projects/p/locations/l/publishers/google");
    user.configure(&format!(
        "[provider]\nname = \"vertex\"\nmodel = \"gemini-3-pro\"\nbase_url = \"{url}\"\n\
         token_command = [\"sh\", \"token.sh\"]\n"
    ));
    let seen = user.run(&ask(&[])).ended(0);
    assert_eq!(seen.stdout.trim(), "Two.");
    assert!(!seen.stderr.contains("token-number"), "{}", seen.stderr);
    let heads: Vec<String> = server.requests().iter().map(|r| r.head.to_lowercase()).collect();
    assert!(
        heads[0].contains("authorization: bearer token-number-1\r\n"),
        "{}",
        heads[0]
    );
    assert!(
        heads[1].contains("authorization: bearer token-number-2\r\n"),
        "{}",
        heads[1]
    );
    assert!(
        heads[0].contains("/models/gemini-3-pro:streamgeneratecontent"),
        "{}",
        heads[0]
    );
}

#[test]
fn vertex_reports_missing_setting() {
    let mut user = User::new();
    let vertex = ["--provider", "vertex", "--model", "gemini-3-pro"];
    let seen = user.run(&ask(&vertex)).ended(3);
    insta::assert_snapshot!(error(&user, &seen.stderr), @r#"
    error: no Google Cloud project is set for `vertex`
     hint: set it: `[provider] project = "…"`, or export GOOGLE_CLOUD_PROJECT=…
    "#);
    user.var("GOOGLE_CLOUD_PROJECT", "p")
        .var("GOOGLE_CLOUD_LOCATION", "europe-west4");
    let seen = user.run(&ask(&vertex)).ended(6);
    insta::assert_snapshot!(error(&user, &seen.stderr), @r#"
    error: provider `vertex` could not be set up
      why: no API key is set for the provider `vertex`, and `europe-west4-aiplatform.googleapis.com` requires one
     hint: configure a command that prints tokens: [provider] token_command = ["gcloud", "auth", "print-access-token"]
           or set one: export GOOGLE_OAUTH_ACCESS_TOKEN=…
    "#);
    user.configure("[provider]\ntoken_command = [\"sh\", \"-c\", \"echo log in first >&2; exit 1\"]\n");
    let seen = user.run(&ask(&vertex)).ended(6);
    insta::assert_snapshot!(error(&user, &seen.stderr), @r"
    error: request to provider `vertex` failed
      why: the API key was not accepted
         - │ `sh -c echo log in first >&2; exit 1` printed no access token: exit status: 1: log in first
     hint: check the access token, of `[provider] token_command` or GOOGLE_OAUTH_ACCESS_TOKEN
    ");
}

#[test]
fn unsupported_provider_setting_is_refused_with_location() {
    let refused = |toml: &str, flags: &[&str]| {
        let user = User::new();
        user.configure(toml);
        error(&user, &user.run(&ask(flags)).ended(3).stderr)
    };
    insta::assert_snapshot!(refused("[provider]\ntool_calls = \"hermez\"\n", &[]), @r#"
    error: the user configuration `~/.config/toolcell/config.toml` cannot be used
      why: there is no tool call format `hermez`; did you mean `hermes`?
           in ~/.config/toolcell/config.toml, line 2, column 14
           │   2 | tool_calls = "hermez"
           │     |              ^^^^^^^^
    "#);
    insta::assert_snapshot!(refused("[provider]\nname = \"gemini\"\nmodel = \"m\"\nstrict = true\n", &[]), @r"
    error: provider `gemini` does not use `strict`
      why: in ~/.config/toolcell/config.toml, line 4, column 10
           │   4 | strict = true
           │     |          ^^^^
     hint: it is for `openai` and `responses`; remove it, or set the provider
    ");
    insta::assert_snapshot!(refused("[provider]\nlocation = \"global\"\n", &[]), @r#"
    error: provider `offline` does not use `location`
      why: in ~/.config/toolcell/config.toml, line 2, column 12
           │   2 | location = "global"
           │     |            ^^^^^^^^
     hint: it is for `vertex`; remove it, or set the provider
    "#);
    insta::assert_snapshot!(refused("[provider]\ntemperature = 2.5\n", &[]), @r"
    error: the user configuration `~/.config/toolcell/config.toml` cannot be used
      why: `temperature` takes a number from 0 to 2, not 2.5
           in ~/.config/toolcell/config.toml, line 2, column 15
           │   2 | temperature = 2.5
           │     |               ^^^
    ");
    insta::assert_snapshot!(refused("[provider]\nmax_output_tokens = 0\n", &[]), @r"
    error: the user configuration `~/.config/toolcell/config.toml` cannot be used
      why: 0 tokens are too few; use at least 1
           in ~/.config/toolcell/config.toml, line 2, column 21
           │   2 | max_output_tokens = 0
           │     |                     ^
    ");
    // Settings of the file's provider do not affect another one chosen by a flag.
    let user = User::new();
    user.configure("[provider]\nname = \"vertex\"\nproject = \"p\"\n");
    user.run(&ask(&["--provider", "offline"])).ended(0);
    let seen = user.run(&ask(&["--tool-calls", "hermez"])).ended(2);
    assert!(
        seen.stderr
            .contains("there is no tool call format `hermez`; did you mean `hermes`?"),
        "{}",
        seen.stderr
    );
}

#[test]
fn models_of_each_provider_are_listed() {
    let openai = json!({"data": [{"id": "b-model"}, {"id": "a/model", "context_length": 131072}]});
    let gemini = json!({"models": [{"name": "models/a/model", "inputTokenLimit": 131072}, {"name": "models/b-model"}]});
    for (provider, answer, path) in [
        ("openai", &openai, "GET /v1/models HTTP"),
        ("responses", &openai, "GET /v1/models HTTP"),
        ("anthropic", &openai, "GET /v1/models?limit=1000 HTTP"),
        ("gemini", &gemini, "GET /v1beta/models?pageSize=1000 HTTP"),
        ("ollama", &gemini, "GET /api/tags HTTP"),
    ] {
        let server = ModelServer::playing(vec![Answer::json(answer)]);
        let user = User::new();
        let url = server.url("");
        let listed = ["models", "--provider", provider, "--base-url", &url];
        let seen = user.run(&listed).ended(0);
        assert_eq!(seen.stdout, "a/model  131 k tokens\nb-model\n", "{provider}");
        let request = &server.requests()[0];
        assert!(request.head.starts_with(path), "{provider}: {}", request.head);
        let json = user.run(&[&listed[..], &["--json", "B-"]].concat()).ended(0);
        assert_eq!(json.stdout, "[{\"name\":\"b-model\"}]\n", "{provider}");
        let none = user.run(&[&listed[..], &["x"]].concat()).ended(0);
        assert!(none.stderr.contains("no model matches, of 2"), "{}", none.stderr);
    }
}

#[test]
fn names_of_models_are_shown_as_words_of_others() {
    let names = json!({"data": [{"id": "a\nerror: forged"}, {"id": "\u{1b}[2Jb"}]});
    let server = ModelServer::playing(vec![Answer::json(&names)]);
    let url = server.url("/v1");
    let seen = User::new().run(&["models", "--base-url", &url]).ended(0);
    assert_eq!(seen.stdout.lines().count(), 2, "{}", seen.stdout);
    assert!(
        !seen.stdout.contains('\u{1b}') && !seen.stdout.contains("\nerror"),
        "{}",
        seen.stdout
    );
}

#[test]
fn failed_list_of_models_is_told_without_the_key() {
    for (answer, expected) in [
        (
            Answer::error(401, "wrong key planted-key-of-models"),
            "the API key was not accepted",
        ),
        (
            Answer::json(&json!({"data": 1})),
            "the answer is not a list of models",
        ),
    ] {
        let server = ModelServer::playing(vec![answer]);
        let user = User::new();
        let url = server.url("/v1");
        let mut command = user.command(&["models", "--base-url", &url]);
        command.env("OPENAI_API_KEY", "planted-key-of-models");
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(6), "{stderr}");
        assert!(
            stderr.contains(expected) && !stderr.contains("planted-key"),
            "{stderr}"
        );
    }
    let echo = json!({"data": [{"id": "m-planted-key-of-models"}]});
    let server = ModelServer::playing(vec![Answer::json(&echo)]);
    let mut user = User::new();
    user.var("OPENAI_API_KEY", "planted-key-of-models");
    let url = server.url("/v1");
    for json in [&["--json"][..], &[]] {
        let seen = user
            .run(&[&["models", "--base-url", &url], json].concat())
            .ended(0);
        assert!(
            seen.stdout.contains("m-") && !seen.stdout.contains("planted-key"),
            "{}",
            seen.stdout
        );
    }
    let offline = User::new().run(&["models"]).ended(6);
    assert!(
        offline.stderr.contains("it has no list of models")
            && offline.stderr.contains("--provider or --base-url")
            && !offline.stderr.contains("the name of the model"),
        "{}",
        offline.stderr
    );
}

#[test]
fn refused_key_and_missing_path_are_named_as_configured() {
    let server = ModelServer::playing(vec![Answer::error(401, "bad key")]);
    let mut user = User::new();
    user.var("MY_OWN_KEY", "sk-planted-0123456789");
    let url = server.url("/v1");
    let base = ["run", "x", "--provider", "openai", "--model", "m", "--base-url"];
    let seen = user
        .run(&[&base[..], &[&url, "--api-key-env", "MY_OWN_KEY"]].concat())
        .ended(6);
    assert!(
        seen.stderr.contains("check the key in MY_OWN_KEY"),
        "{}",
        seen.stderr
    );
    let server = ModelServer::playing(vec![Answer::error(404, "Not Found")]);
    let pasted = server.url("/v1/messages");
    let seen = user.run(&[&base[..], &[&pasted]].concat()).ended(6);
    let asked = format!("the request was sent to {pasted}/chat/completions");
    assert!(seen.stderr.contains(&asked), "{}", seen.stderr);
}

#[test]
fn named_model_without_a_key_is_an_error() {
    let mut user = User::new();
    let seen = user.run(&["run", "hi", "--model", "gpt-5"]).ended(6);
    assert!(seen.stderr.contains("OPENAI_API_KEY"), "{}", seen.stderr);
    user.configure("[provider]\nmodel = \"gpt-5\"\n");
    user.run(&["run", "hi"]).ended(6);
    user.run(&["run", "hi", "--provider", "offline"]).ended(0);
    user.configure("");
    user.run(&["run", "hi"]).ended(0);
    user.var("TOOLCELL_MODEL", "gpt-5");
    user.run(&["run", "hi"]).ended(6);
}

#[test]
fn script_is_named_where_one_is_missing() {
    let user = User::new();
    let seen = user.run(&["models", "--provider", "scripted"]).ended(3);
    assert!(seen.stderr.contains("needs a script"), "{}", seen.stderr);
    user.file(
        "script.json",
        r#"{"steps": [{"calls": [{"name": "clock_now", "arguments": {}}]}]}"#,
    );
    let run = [
        "run",
        "x",
        "--tool",
        "clock",
        "--provider",
        "scripted",
        "--model",
        "script.json",
    ];
    let seen = user.run(&run).ended(6);
    assert!(
        seen.stderr.contains("the script does not fit the conversation"),
        "{}",
        seen.stderr
    );
    assert!(!seen.stderr.contains("base URL"), "{}", seen.stderr);
}

#[test]
fn file_that_ollama_cannot_take_is_told_to_the_user() {
    let server = ModelServer::playing(vec![Answer::error(500, "x")]);
    let user = User::new();
    user.file("a.pdf", "%PDF-1.7 x");
    let url = server.url("");
    let seen = user.run(&[
        "run",
        "x",
        "--attach",
        "a.pdf",
        "--provider",
        "ollama",
        "--model",
        "m",
        "--base-url",
        &url,
    ]);
    assert!(
        seen.stderr.contains("takes no application/pdf"),
        "{}",
        seen.stderr
    );
}

//! How a model is asked: calls in text, strict schemas, Vertex, and what every request says.

use serde_json::json;

use crate::cli_person::Person;
use crate::model_server::{Answer, ModelServer};

/// What is said from the error on.
fn error(person: &Person, stderr: &str) -> String {
    let plain = person.plain(stderr);
    let from = plain.find("error:").unwrap_or(0);
    plain[from..].to_owned()
}

fn ask<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["run", "How many words?", "--tool", "text"];
    all.extend(more);
    all
}

#[test]
fn a_model_without_tool_calling_calls_in_the_text_that_it_is_asked_for() {
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
        let person = Person::new();
        let url = server.url("/v1");
        let configured = format!("[provider]\nbase_url = \"{url}\"\nmodel = \"m\"\n");
        // The flag and the file say the same.
        let seen = if way == "tool-tag" {
            person.configure(&format!("{configured}tool_calls = \"tool-tag\"\n"));
            person.run(&ask(&[]))
        } else {
            person.configure(&configured);
            person.run(&ask(&["--tool-calls", way]))
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
fn a_call_that_slips_into_the_text_is_read_where_it_is_watched_for() {
    let slip = "<tool_call>{\"name\": \"text_count\", \"arguments\": {\"text\": \"a b\"}}</tool_call>";
    for (way, calls) in [("watch", true), ("native", false)] {
        let server = ModelServer::playing(vec![Answer::chat(slip), Answer::chat("Two.")]);
        let url = server.url("/v1");
        let seen = Person::new()
            .run(&ask(&["--base-url", &url, "--model", "m", "--tool-calls", way]))
            .ended(0);
        assert_eq!(seen.stderr.contains("✓ text_count"), calls, "{}", seen.stderr);
        assert!(server.requests()[0].body["tools"].is_array());
    }
}

#[test]
fn what_every_request_asks_of_the_model_comes_from_the_configuration() {
    let server = ModelServer::playing(vec![Answer::chat("Two.")]);
    let person = Person::new();
    person.configure(&format!(
        "[provider]\nbase_url = \"{}\"\nmodel = \"m\"\nstrict = true\nreasoning = \"low\"\ntemperature = 0.25\n\
         max_output_tokens = \"2 k\"\n",
        server.url("/v1")
    ));
    person.run(&ask(&[])).ended(0);
    person.run(&ask(&["--reasoning", "high"])).ended(0);
    let requests = server.requests();
    let body = &requests[0].body;
    assert_eq!(body["tools"][0]["function"]["strict"], true);
    assert_eq!(body["temperature"], 0.25);
    let limit = body.get("max_completion_tokens").or(body.get("max_tokens"));
    assert_eq!(limit, Some(&json!(2_000)));
    assert_eq!(body["reasoning_effort"], "low");
    assert_eq!(requests[1].body["reasoning_effort"], "high");
    let check = person.run(&["config", "check"]).ended(0).stdout;
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
fn a_token_for_vertex_is_made_by_a_command_and_made_again_when_it_has_expired() {
    let server = ModelServer::playing(vec![
        Answer::error(401, "token-1 has expired"),
        Answer::gemini("Two."),
    ]);
    let person = Person::new();
    // Each time it prints another token.
    person.file(
        "token.sh",
        "echo x >> made; echo token-$(wc -l < made | tr -d ' ')\n",
    );
    let url = server.url("/v1/projects/p/locations/l/publishers/google");
    person.configure(&format!(
        "[provider]\nname = \"vertex\"\nmodel = \"gemini-3-pro\"\nbase_url = \"{url}\"\n\
         token_command = [\"sh\", \"token.sh\"]\n"
    ));
    let seen = person.run(&ask(&[])).ended(0);
    assert_eq!(seen.stdout.trim(), "Two.");
    assert!(!seen.stderr.contains("token-"), "{}", seen.stderr);
    let heads: Vec<String> = server.requests().iter().map(|r| r.head.to_lowercase()).collect();
    assert!(
        heads[0].contains("authorization: bearer token-1\r\n"),
        "{}",
        heads[0]
    );
    assert!(
        heads[1].contains("authorization: bearer token-2\r\n"),
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
fn vertex_says_what_it_misses() {
    let mut person = Person::new();
    let vertex = ["--provider", "vertex", "--model", "gemini-3-pro"];
    let seen = person.run(&ask(&vertex)).ended(3);
    insta::assert_snapshot!(error(&person, &seen.stderr), @r#"
    error: no project of Google Cloud is named for `vertex`
     hint: name it: `[provider] project = "…"`, or export GOOGLE_CLOUD_PROJECT=…
    "#);
    person
        .var("GOOGLE_CLOUD_PROJECT", "p")
        .var("GOOGLE_CLOUD_LOCATION", "europe-west4");
    let seen = person.run(&ask(&vertex)).ended(6);
    insta::assert_snapshot!(error(&person, &seen.stderr), @r#"
    error: the provider `vertex` cannot be set up
      why: no API key is set for the provider `vertex`, and `europe-west4-aiplatform.googleapis.com` requires one
     hint: have tokens made: [provider] token_command = ["gcloud", "auth", "print-access-token"]
           │ or set one: export GOOGLE_OAUTH_ACCESS_TOKEN=…
    "#);
    person.configure("[provider]\ntoken_command = [\"sh\", \"-c\", \"echo log in first >&2; exit 1\"]\n");
    let seen = person.run(&ask(&vertex)).ended(6);
    insta::assert_snapshot!(error(&person, &seen.stderr), @r"
    error: the provider `vertex` gave no answer
      why: the API key was not accepted
         - `sh -c echo log in first >&2; exit 1` gives no access token: exit status: 1: log in first
     hint: check the key: `toolcell config check` shows which variable holds it
    ");
}

#[test]
fn a_setting_that_the_provider_does_not_know_or_cannot_use_is_refused_with_its_place() {
    let refused = |toml: &str, flags: &[&str]| {
        let person = Person::new();
        person.configure(toml);
        error(&person, &person.run(&ask(flags)).ended(3).stderr)
    };
    insta::assert_snapshot!(refused("[provider]\ntool_calls = \"hermez\"\n", &[]), @r#"
    error: the user configuration `~/.config/toolcell/config.toml` cannot be used
      why: there is no way of calling tools `hermez`; did you mean `hermes`?
           │ in ~/.config/toolcell/config.toml, line 2, column 14
           │   2 | tool_calls = "hermez"
           │     |              ^^^^^^^^
    "#);
    insta::assert_snapshot!(refused("[provider]\nname = \"gemini\"\nmodel = \"m\"\nstrict = true\n", &[]), @r"
    error: the provider `gemini` has no use for `strict`
      why: in ~/.config/toolcell/config.toml, line 4, column 10
           │   4 | strict = true
           │     |          ^^^^
     hint: it is for `openai` and `responses`; take it out, or name the provider
    ");
    insta::assert_snapshot!(refused("[provider]\nlocation = \"global\"\n", &[]), @r#"
    error: the provider `offline` has no use for `location`
      why: in ~/.config/toolcell/config.toml, line 2, column 12
           │   2 | location = "global"
           │     |            ^^^^^^^^
     hint: it is for `vertex`; take it out, or name the provider
    "#);
    insta::assert_snapshot!(refused("[provider]\ntemperature = 2.5\n", &[]), @r"
    error: the user configuration `~/.config/toolcell/config.toml` cannot be used
      why: `2.5` is no temperature: it lies between 0 and 2
           │ in ~/.config/toolcell/config.toml, line 2, column 15
           │   2 | temperature = 2.5
           │     |               ^^^
    ");
    insta::assert_snapshot!(refused("[provider]\nmax_output_tokens = 0\n", &[]), @r"
    error: the user configuration `~/.config/toolcell/config.toml` cannot be used
      why: an answer cannot have 0 tokens; allow at least 1
           │ in ~/.config/toolcell/config.toml, line 2, column 21
           │   2 | max_output_tokens = 0
           │     |                     ^
    ");
    // What a file says of its own provider does not disturb another one that a flag chooses.
    let person = Person::new();
    person.configure("[provider]\nname = \"vertex\"\nproject = \"p\"\n");
    person.run(&ask(&["--provider", "offline"])).ended(0);
    let seen = person.run(&ask(&["--tool-calls", "hermez"])).ended(2);
    assert!(
        seen.stderr
            .contains("there is no way of calling tools `hermez`; did you mean `hermes`?"),
        "{}",
        seen.stderr
    );
}

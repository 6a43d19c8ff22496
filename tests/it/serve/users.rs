//! Clients with names and limits of their own: what one leaves, no other reads.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use serde_json::{Value, json};

use super::{SCRIPTED, Served, is_finished, user};
use crate::probe::Probe;
use crate::support::cli_user::User;

const ADA: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const EVE: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";

/// Starts a server with clients, whose lines these are.
fn serve(user: &User, lines: &[String], flags: &[&str]) -> Served {
    tokens(user, lines);
    Served::with(
        user,
        &[&SCRIPTED[..], &["--token-file", "tokens"], flags].concat(),
    )
}

pub(super) fn tokens(user: &User, lines: &[String]) {
    use std::os::unix::fs::PermissionsExt as _;
    user.file("tokens", lines.join("\n"));
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(user.work().join("tokens"), private).unwrap();
}

fn line(token: &str, settings: &str) -> String {
    format!("{token} {settings}")
}

fn chat(served: &Served, token: &str, model: &str) -> super::Answered {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Go."}]});
    served.send(
        "POST",
        "/v1/chat/completions",
        &served.headers_of(token),
        &body.to_string(),
    )
}

fn audit(user: &User) -> Vec<Value> {
    let file = user.home().join(".local/state/toolcell/serve-audit.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn clients_share_no_session_memory_or_response() {
    let user = user(json!([
        {"calls": [{"name": "memory_discover", "arguments": {"query": "password"}}]},
        {"calls": [{"name": "memory_store", "arguments": {"content": "The password is tulip."}}]},
        {"calls": [{"name": "memory_discover", "arguments": {"query": "password"}}]},
        {"text": "Done."},
    ]));
    user.configure("[tools.memory]\nenabled = true\ngrants = [\"keyvalue=memory\"]\n");
    let served = serve(
        &user,
        &[line(ADA, "name=ada"), line(EVE, "name=eve")],
        &["--tool", "memory"],
    );
    // Each finds nothing at first, stores, and finds what it has stored itself.
    let found = |token: &str| -> Vec<u64> {
        let headers = served.headers_of(token);
        let session = served.send("POST", "/api/sessions", &headers, "{}").json();
        let path = format!("/api/sessions/{}", session["id"].as_str().unwrap());
        let turn = served.send("POST", &format!("{path}/turns"), &headers, r#"{"text": "Go."}"#);
        assert_eq!(turn.status, 202, "{}", turn.body);
        loop {
            let page = served.send("GET", &format!("{path}/events"), &headers, "").json();
            let events = page["events"].as_array().unwrap();
            if events.iter().any(is_finished) {
                let results = events.iter().map(|event| &event["event"]);
                let found = results
                    .filter(|event| event["type"] == "call_finished" && event["tool"] == "memory_discover");
                return found
                    .map(|event| {
                        event["structured"]["total"]
                            .as_u64()
                            .unwrap_or_else(|| panic!("{event}"))
                    })
                    .collect();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    assert_eq!(found(ADA), [0, 1]);
    assert_eq!(found(EVE), [0, 1]);
    assert_eq!(found(&served.token), [0, 1]);
    assert_eq!(found(ADA), [1, 2]);

    let own = |token: &str| {
        served
            .send("GET", "/api/sessions", &served.headers_of(token), "")
            .json()
    };
    let id = own(ADA)["sessions"][0]["id"].as_str().unwrap().to_owned();
    for (method, path) in [
        ("GET", ""),
        ("GET", "/events"),
        ("GET", "/export"),
        ("GET", "/receipts"),
        ("GET", "/questions"),
        ("DELETE", ""),
    ] {
        let path = format!("/api/sessions/{id}{path}");
        for token in [EVE, served.token.as_str()] {
            let answer = served.send(method, &path, &served.headers_of(token), "");
            assert_eq!(answer.status, 404, "{method} {path}");
        }
    }
    let response = json!({"model": "default", "input": "Go."}).to_string();
    let first = served
        .send("POST", "/v1/responses", &served.headers_of(ADA), &response)
        .json();
    let next = json!({"model": "default", "input": "Go.", "previous_response_id": first["id"]});
    let answer = served.send(
        "POST",
        "/v1/responses",
        &served.headers_of(EVE),
        &next.to_string(),
    );
    assert_eq!(answer.json()["error"]["code"], "previous_response_not_found");
    let is_noted = |line: &Value| line["client"] == "eve" && line["decision"] == "access";
    assert!(audit(&user).iter().any(is_noted));
}

#[test]
fn client_keeps_to_its_agents_requests_and_tokens() {
    let user = user(json!([{"text": "One."}]));
    user.configure("[agents.writer]\ndescription = \"Writes.\"\n");
    let served = serve(
        &user,
        &[
            line(ADA, "name=ada agents=writer requests=6"),
            line(EVE, "name=eve tokens=1"),
        ],
        &[],
    );
    let models = served
        .send("GET", "/v1/models", &served.headers_of(ADA), "")
        .json();
    assert_eq!(models["data"].as_array().unwrap().len(), 1);
    assert_eq!(models["data"][0]["id"], "writer");
    assert_eq!(
        chat(&served, ADA, "default").json()["error"]["code"],
        "model_not_found"
    );
    assert_eq!(chat(&served, ADA, "writer").status, 200);
    let refused = served.send("POST", "/api/sessions", &served.headers_of(ADA), "{}");
    assert_eq!(refused.status, 404, "{}", refused.body);
    let mcp = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let headers = format!(
        "{}accept: application/json, text/event-stream\r\n",
        served.headers_of(ADA)
    );
    assert_eq!(served.send("POST", "/mcp", &headers, &mcp).status, 403);
    for _ in 0..2 {
        assert_eq!(chat(&served, ADA, "writer").status, 200);
    }
    let refused = chat(&served, ADA, "writer");
    assert_eq!(refused.status, 429);
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    // Another client goes on, until its tokens of the day are used.
    assert_eq!(
        served
            .send("GET", "/v1/models", &served.headers_of(EVE), "")
            .status,
        200
    );
    assert_eq!(chat(&served, EVE, "default").status, 200);
    let refused = chat(&served, EVE, "default");
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].clone()),
        (429, json!("limit_used_up"))
    );
    assert!(refused.head.contains("x-should-retry: false"), "{}", refused.head);
    drop(served);
    let served = serve(&user, &[line(EVE, "name=eve tokens=1")], &[]);
    assert_eq!(chat(&served, EVE, "default").status, 429);
    assert_eq!(chat(&served, ADA, "default").status, 401);

    let lines = audit(&user);
    let of = |client: Value, decision: &str, is_allowed: bool| {
        lines
            .iter()
            .filter(|line| {
                line["client"] == client && line["decision"] == decision && line["is_allowed"] == is_allowed
            })
            .count()
    };
    assert_eq!(of(json!("ada"), "turn", true), 3, "{lines:?}");
    assert_eq!(of(json!("ada"), "limit", false), 1);
    assert_eq!(of(json!("ada"), "access", false), 3);
    assert_eq!(of(json!("eve"), "limit", false), 2);
    assert_eq!(of(Value::Null, "access", false), 1);
}

#[test]
fn each_refusal_has_a_line_with_the_client_and_no_token() {
    let user = user(json!([{"text": "One."}]));
    let served = serve(&user, &[line(ADA, "name=ada requests=5 turns=1")], &[]);
    let wrong = "wrong-token-of-nobody-wrong-token-of-nobody";
    let ada = served.headers_of(ADA);
    let none = format!("host: {}\r\ncontent-type: application/json\r\n", served.address);
    let foreign = ada.replace(&served.address, "evil.example");
    let origin = format!("{ada}origin: http://evil.example\r\n");
    let nobody = served.headers_of(wrong);
    // In this order: what is refused before the limit of requests counts as none.
    let requests = [
        ("GET", "/metrics", &none, 401, None, "access"),
        ("GET", "/metrics", &nobody, 401, None, "access"),
        ("POST", "/mcp", &none, 401, None, "access"),
        ("POST", "/mcp", &nobody, 401, None, "access"),
        ("GET", "/v1/models", &nobody, 401, None, "access"),
        ("GET", "/api/info", &none, 401, None, "access"),
        ("GET", "/api/info", &foreign, 403, Some("ada"), "access"),
        ("GET", "/metrics", &foreign, 403, Some("ada"), "access"),
        ("GET", "/healthz", &origin, 403, Some("ada"), "access"),
        ("POST", "/mcp", &origin, 403, Some("ada"), "access"),
        ("GET", "/", &origin, 403, Some("ada"), "access"),
        ("GET", "/api/scratch", &ada, 403, Some("ada"), "access"),
        ("GET", "/api/scratch/none", &ada, 403, Some("ada"), "access"),
        (
            "POST",
            "/api/scratch/none/commit",
            &ada,
            403,
            Some("ada"),
            "access",
        ),
        ("GET", "/api/info", &ada, 200, None, ""),
        ("GET", "/api/info", &ada, 429, Some("ada"), "limit"),
        ("POST", "/mcp", &ada, 429, Some("ada"), "limit"),
        ("POST", "/v1/chat/completions", &ada, 429, Some("ada"), "limit"),
        ("HEAD", "/login?code=x", &none, 403, None, "access"),
        ("GET", "/login?code=x", &none, 403, None, "link"),
    ];
    let mut count = 0;
    for (method, path, headers, status, client, decision) in requests {
        let answer = served.send(method, path, headers, if method == "POST" { "{}" } else { "" });
        assert_eq!(
            answer.status, status,
            "{method} {path} {headers}: {}",
            answer.body
        );
        let is_refused = !decision.is_empty();
        count += usize::from(is_refused);
        let lines = match count {
            0 => Vec::new(),
            _ => audit(&user),
        };
        assert_eq!(lines.len(), count, "{method} {path} {status}: {lines:?}");
        if is_refused {
            let last = lines.last().unwrap();
            assert_eq!(
                (&last["client"], &last["decision"], &last["is_allowed"]),
                (&json!(client), &json!(decision), &json!(false)),
                "{method} {path} {status}"
            );
        }
    }
    let file = user.home().join(".local/state/toolcell/serve-audit.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    for token in [ADA, wrong, served.token.as_str()] {
        assert!(!text.contains(token), "{text}");
    }
}

#[test]
fn turn_that_uses_up_the_day_says_so() {
    let user = user(json!([
        {"calls": [{"name": "text_count", "arguments": {"text": "a b"}}]},
        {"text": "One."},
    ]));
    let served = serve(&user, &[line(EVE, "name=eve tokens=1")], &[]);
    let ended = chat(&served, EVE, "default");
    assert_eq!(
        (ended.status, ended.json()["error"]["code"].clone()),
        (429, json!("limit_used_up")),
        "{}",
        ended.body
    );
    assert!(ended.head.contains("retry-after: "), "{}", ended.head);
    let lines = audit(&user);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["client"], &last["decision"], &last["is_allowed"]),
        (&json!("eve"), &json!("limit"), &json!(false))
    );
}

#[test]
fn tools_have_limits_and_the_last_receipts_of_the_client() {
    let user = user(json!([
        {"calls": [{"name": "text_count", "arguments": {"text": "a b"}}]},
        {"text": "One."},
    ]));
    user.configure("[agents.writer]\ndescription = \"Writes.\"\ntools = [\"json\"]\n");
    let served = serve(&user, &[line(EVE, "name=eve")], &["--tool", "json"]);
    let session = served.session();
    served.post(&format!("{session}/turns"), &json!({"text": "Go."}));
    served.stream(&session, 0, is_finished);
    let component = |token: &str| {
        let tools = served
            .send("GET", "/api/tools", &served.headers_of(token), "")
            .json();
        tools["components"][0].clone()
    };
    let own = component(&served.token);
    assert_eq!(own["limits"][0], "memory 256 MiB", "{own}");
    assert_eq!(own["receipts"][0]["tool"], "text_count", "{own}");
    assert!(own["receipts"][0]["receipt"]["fuel"].is_u64(), "{own}");
    assert_eq!(own["is_locked"], false);
    assert_eq!(own["agents"], json!(["default"]), "{own}");
    assert_eq!(component(EVE)["receipts"], json!([]));
    drop(served);
    assert_eq!(user.run(&["lock", "--tool", "text", "--tool", "json"]).code, 0);
    let served = Served::with(&user, &[&SCRIPTED[..], &["--locked"]].concat());
    assert_eq!(
        served.get("/api/tools").json()["components"][0]["is_locked"],
        true
    );
}

#[test]
fn client_sees_the_tools_of_its_own_agents_alone() {
    let user = user(json!([{"text": "One."}]));
    user.configure(
        "[agents.writer]\ndescription = \"Writes.\"\ntools = [\"json\"]\n[agents.counter]\ndescription = \"Counts.\"\ntools = [\"text\"]\n",
    );
    let lines = [
        line(ADA, "name=ada agents=writer"),
        line(EVE, "name=eve agents=default,counter"),
    ];
    let served = serve(&user, &lines, &["--tool", "json"]);
    let seen = |token: &str| {
        let tools = served.send("GET", "/api/tools", &served.headers_of(token), "");
        assert_eq!(tools.status, 200, "{}", tools.body);
        let tools = tools.json();
        let seen = tools["components"].as_array().unwrap().iter();
        json!(
            seen.map(|one| json!([one["name"], one["agents"]]))
                .collect::<Vec<_>>()
        )
    };
    assert_eq!(seen(ADA), json!([["json", ["writer"]]]));
    assert_eq!(
        seen(EVE),
        json!([["text", ["counter", "default"]], ["json", ["default"]]])
    );
    assert_eq!(
        seen(&served.token),
        json!([["text", ["counter", "default"]], ["json", ["default", "writer"]]])
    );
}

#[test]
fn findings_about_a_component_are_told_once() {
    let user = user(json!([{"text": "One."}]));
    let probe = Probe {
        description: "Adds.\u{200b} Quickly.".into(),
        ..Probe::default()
    };
    user.probe("evil.wasm", &probe);
    // Each of these clients has components of its own.
    let lines = [line(ADA, "name=ada calls=1"), line(EVE, "name=eve calls=2")];
    tokens(&user, &lines);
    let mut child = user
        .command(&["serve", "--http", "127.0.0.1:0", "--token-file", "tokens"])
        .args(SCRIPTED)
        .args(["--tool", "evil.wasm"])
        .stdin(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut told = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        told.push_str(&line.unwrap());
        if told.contains("code=") {
            break;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(told.matches("hidden or control characters").count(), 1, "{told}");
}

#[test]
fn wrong_client_ends_the_start() {
    let user = user(json!([{"text": "One."}]));
    for (settings, why) in [
        ("name=ada grants=read=/", "there is no setting"),
        ("name=ada agents=nobody", "there is no agent"),
        ("name=ada cost=1", "prices"),
    ] {
        tokens(&user, &[line(ADA, settings)]);
        let flags = ["serve", "--http", "127.0.0.1:0", "--token-file", "tokens"];
        let seen = user.run(&[&flags[..], &SCRIPTED[..]].concat()).ended(3);
        assert!(seen.stderr.contains(why), "{}", seen.stderr);
    }
}

#[test]
fn files_of_a_directory_are_resources_for_each_mcp_client() {
    let user = user(json!([{"text": "One."}]));
    user.file("notes/a.md", "# A");
    user.file("notes/private/key", "k");
    user.configure("deny = [\"notes/private\"]\n");
    // One shares the components of the server, the other has its own.
    let served = serve(
        &user,
        &[line(ADA, "name=ada"), line(EVE, "name=eve calls=2")],
        &["--resources", "notes"],
    );
    let uri = |path: &str| {
        let work = user.work().canonicalize().unwrap();
        format!("file://{}/{path}", work.display())
    };
    let ask = |token: &str, method: &str, mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let name = params["uri"].as_str().map(|uri| format!("mcp-name: {uri}\r\n"));
        let headers = format!(
            "{}accept: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n{}",
            served.headers_of(token),
            name.unwrap_or_default()
        );
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        served.send("POST", "/mcp", &headers, &message.to_string()).json()
    };
    let uris = |token: &str| -> Vec<String> {
        let listed = ask(token, "resources/list", json!({}));
        let all = listed["result"]["resources"]
            .as_array()
            .unwrap_or_else(|| panic!("{listed}"));
        all.iter()
            .map(|of| of["uri"].as_str().unwrap().to_owned())
            .collect()
    };
    let own = served.token.clone();
    for token in [&own, ADA, EVE] {
        assert_eq!(uris(token), [uri("notes/"), uri("notes/a.md")]);
        let read = ask(token, "resources/read", json!({ "uri": uri("notes/a.md") }));
        assert_eq!(read["result"]["contents"][0]["text"], "# A", "{read}");
        let denied = ask(
            token,
            "resources/read",
            json!({ "uri": uri("notes/private/key") }),
        );
        assert!(denied["error"].is_object(), "{denied}");
    }
    assert!(
        ask("wrong-token-of-nobody", "resources/list", json!({}))
            .to_string()
            .contains("token")
    );
    // The lists of all of them follow.
    user.file("notes/new.md", "n");
    let begun = std::time::Instant::now();
    for token in [&own, ADA, EVE] {
        while !uris(token).contains(&uri("notes/new.md")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{token}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    // One that cannot be offered ends the start.
    let mut flags = vec!["serve", "--http", "127.0.0.1:0", "--resources", "none"];
    flags.extend(SCRIPTED);
    let told = user.run(&flags).ended(2).stderr;
    assert!(told.contains("none") && told.contains("hint:"), "{told}");
}

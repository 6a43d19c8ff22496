//! `toolcell serve`: its page, its API, and OpenAI clients, with the real program.

mod client_calls;
mod crash;
mod described;
mod methods;
mod metrics;
mod openai;
mod openapi;
mod response_parts;
mod scratch;
mod turns;
mod usage;
mod users;
mod waiting;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::cli_user::User;

/// Flags of a server with the scripted model.
const SCRIPTED: [&str; 6] = [
    "--provider",
    "scripted",
    "--model",
    "script.json",
    "--tool",
    "text",
];

/// Server of a user.
struct Served {
    child: Child,
    address: String,
    code: String,
    token: String,
    _stderr: BufReader<ChildStderr>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Response with its body.
struct Answered {
    status: u16,
    head: String,
    body: String,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{} {}", self.head, self.body))
    }
}

fn user(steps: Value) -> User {
    let user = User::new();
    let script = json!({"position": "conversation", "steps": steps});
    user.file("script.json", script.to_string());
    user
}

impl Served {
    fn start(user: &User) -> Self {
        Self::with(user, &SCRIPTED)
    }

    /// Starts a server with these flags.
    fn with(user: &User, flags: &[&str]) -> Self {
        let mut child = user
            .command(&["serve", "--http", "127.0.0.1:0"])
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("code=") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the server ended");
        }
        let link = line.split_once("http://").unwrap().1.trim_end();
        let (address, code) = link.split_once("/login?code=").unwrap();
        let token = user.home().join(".local/state/toolcell/serve-token");
        Self {
            address: address.to_owned(),
            code: code.to_owned(),
            token: std::fs::read_to_string(token).unwrap().trim().to_owned(),
            child,
            _stderr: stderr,
        }
    }

    fn open(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        stream
    }

    /// Sends a request. Its answer is one of the OpenAPI document.
    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answered {
        let answer = self.exchange(method, path, headers, body);
        described::check(self, method, path, &answer);
        answer
    }

    fn exchange(&self, method: &str, path: &str, headers: &str, body: &str) -> Answered {
        let mut answer = String::new();
        self.open(method, path, headers, body)
            .read_to_string(&mut answer)
            .unwrap();
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{answer}"));
        Answered {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    fn authorized(&self) -> String {
        let (address, token) = (&self.address, &self.token);
        format!("host: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n")
    }

    /// Headers of another client.
    fn headers_of(&self, token: &str) -> String {
        self.authorized().replace(&self.token, token)
    }

    fn get(&self, path: &str) -> Answered {
        self.send("GET", path, &self.authorized(), "")
    }

    fn post(&self, path: &str, body: &Value) -> Answered {
        self.send("POST", path, &self.authorized(), &body.to_string())
    }

    /// Creates a session, and returns its path.
    fn session(&self) -> String {
        let session = self.post("/api/sessions", &json!({}));
        assert_eq!(session.status, 201, "{}", session.body);
        format!("/api/sessions/{}", session.json()["id"].as_str().unwrap())
    }

    /// Reads the stream of a session after an event, until one is as wanted. Returns the identifiers and what came.
    fn stream(&self, session: &str, after: u64, is_last: impl Fn(&Value) -> bool) -> (Vec<u64>, Vec<Value>) {
        let headers = format!(
            "{}accept: text/event-stream\r\nlast-event-id: {after}\r\n",
            self.authorized()
        );
        let stream = self.open("GET", &format!("{session}/events"), &headers, "");
        let (mut ids, mut all) = (Vec::new(), Vec::new());
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            if let Some(id) = line.strip_prefix("id: ") {
                ids.push(id.parse().unwrap());
            }
            if let Some(data) = line.strip_prefix("data: ") {
                let value: Value = serde_json::from_str(data).unwrap();
                let is_over = is_last(&value);
                all.push(value);
                if is_over {
                    return (ids, all);
                }
            }
        }
        panic!("the stream ended: {all:?}");
    }
}

fn is_finished(value: &Value) -> bool {
    value["event"]["type"] == "turn_finished"
}

fn is_waiting(value: &Value) -> bool {
    value["state"] == "waiting"
}

#[test]
fn page_and_api_need_the_link_or_a_token() {
    let user = user(json!([{"text": "Hi."}]));
    let served = Served::start(&user);
    let host = format!("host: {}\r\n", served.address);
    assert_eq!(served.send("GET", "/healthz", &host, "").body, "ok\n");
    let page = served.send("GET", "/", &host, "");
    assert_eq!(page.status, 200);
    assert!(
        page.head.contains("content-security-policy: default-src 'none'"),
        "{}",
        page.head
    );
    let bearer = format!("authorization: Bearer {}\r\n", served.token);
    let foreign = format!("host: evil.example\r\n{bearer}");
    let origin = format!("{host}{bearer}origin: http://evil.example\r\n");
    let wrong = format!("{host}authorization: Bearer {}\r\n", "x".repeat(64));
    for (headers, status) in [(&host, 401), (&foreign, 403), (&origin, 403), (&wrong, 401)] {
        for path in ["/api/info", "/api/sessions", "/v1/models"] {
            let answer = served.send("GET", path, headers, "");
            assert_eq!(answer.status, status, "{path} {headers}");
            assert!(answer.json()["error"]["message"].is_string());
        }
    }
    let info = served.get("/api/info").json();
    assert_eq!(info["agents"][0]["id"], "default");
    let link = format!("/login?code={}", served.code);
    assert_eq!(served.send("GET", "/login?code=guess", &host, "").status, 403);
    // Neither a preview of the link nor a picture of another site uses it up.
    assert_eq!(served.send("HEAD", &link, &host, "").status, 403);
    for preview in [
        "sec-purpose: prefetch",
        "purpose: prefetch",
        "sec-fetch-mode: no-cors",
    ] {
        let headers = format!("{host}{preview}\r\n");
        assert_eq!(served.send("GET", &link, &headers, "").status, 403, "{preview}");
    }
    let taken = served.send("GET", &link, &host, "");
    assert_eq!(taken.status, 303);
    let cookie = taken
        .head
        .split_once("set-cookie: ")
        .unwrap()
        .1
        .split(';')
        .next()
        .unwrap();
    assert_eq!(served.send("GET", &link, &host, "").status, 403);
    let own = format!("{host}cookie: {cookie}\r\ncontent-type: application/json\r\n");
    assert_eq!(served.send("GET", "/api/info", &own, "").status, 200);
    assert_eq!(served.send("POST", "/api/sessions", &own, "{}").status, 403);
    let same = format!("{own}origin: http://{}\r\n", served.address);
    assert_eq!(served.send("POST", "/api/sessions", &same, "{}").status, 201);
    assert_eq!(served.send("GET", "/v1/models", &own, "").status, 401);
}

#[test]
fn browser_is_shown_a_page_where_something_failed() {
    let user = user(json!([{"text": "Hi."}]));
    let served = Served::start(&user);
    let browser = format!("host: {}\r\naccept: text/html,*/*;q=0.8\r\n", served.address);
    for (path, status, told) in [
        (
            "/login?code=guess",
            403,
            "<h1>The link was used already, or is wrong</h1>",
        ),
        ("/nothing", 404, "<h1>There is nothing at this path</h1>"),
    ] {
        let answer = served.send("GET", path, &browser, "");
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.body.contains(told), "{}", answer.body);
        assert!(!answer.body.contains('`'), "{}", answer.body);
        for header in [
            "content-type: text/html",
            "content-security-policy: default-src 'none'",
            "vary: accept",
        ] {
            assert!(answer.head.contains(header), "{}", answer.head);
        }
    }
    // Programs read JSON, and so does the page.
    let program = format!("host: {}\r\naccept: */*\r\n", served.address);
    assert_eq!(
        served.send("GET", "/nothing", &program, "").json()["error"]["code"],
        "not_found"
    );
    assert!(served.send("GET", "/api/info", &browser, "").json()["error"].is_object());
}

#[test]
fn tools_that_no_agent_has_are_told_once() {
    let user = user(json!([{"text": "Hi."}]));
    user.configure(
        "[agents.writer]\ndescription = \"Writes.\"\n\n[agents.reader]\ndescription = \"Reads.\"\n",
    );
    let mut child = user
        .command(&[
            "serve",
            "--http",
            "127.0.0.1:0",
            "--provider",
            "scripted",
            "--model",
            "script.json",
        ])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        let is_last = line.contains("code=");
        told.push(line);
        if is_last {
            break;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    let withheld = told
        .iter()
        .filter(|line| line.contains("not offered without a grant"));
    assert_eq!(withheld.count(), 1, "{told:#?}");
}

#[test]
fn wrong_requests_are_refused_with_a_code() {
    let user = user(json!([{"text": "Hi."}]));
    let served = Served::start(&user);
    let session = served.session();
    let turns = format!("{session}/turns");
    let text = |body: &str| served.send("POST", &turns, &served.authorized(), body);
    for body in [
        "",
        "{",
        "[]",
        r#"{"text": ""}"#,
        r#"{"text": "x", "grant": "read=/"}"#,
        r#"{"text": 1}"#,
    ] {
        let answer = text(body);
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"]["code"], "invalid_request");
    }
    // Only `null` takes a name away.
    let rename = |body: &Value| {
        let body = body.to_string();
        served.send("PATCH", &session, &served.authorized(), &body)
    };
    assert_eq!(rename(&json!({"name": "kept"})).status, 200);
    assert_eq!(rename(&json!({})).status, 400);
    assert_eq!(served.get(&session).json()["name"], "kept");
    assert_eq!(rename(&json!({"name": null})).json()["name"], Value::Null);
    let plain = served.authorized().replace("application/json", "text/plain");
    assert_eq!(
        served.send("POST", &turns, &plain, r#"{"text": "x"}"#).status,
        415
    );
    assert_eq!(served.get("/api/sessions/none").status, 404);
    assert_eq!(served.get("/api/nothing").status, 404);
    for (method, path, allow) in [
        ("DELETE", "/api/info", "allow: get, head\r\n"),
        ("PUT", session.as_str(), "allow: get, head, patch, delete\r\n"),
        ("GET", "/v1/responses", "allow: post\r\n"),
        ("DELETE", "/v1/models/default", "allow: get, head\r\n"),
        ("DELETE", "/", "allow: get, head\r\n"),
    ] {
        let answer = served.send(method, path, &served.authorized(), "{}");
        assert_eq!(answer.status, 405, "{path}: {}", answer.body);
        assert!(answer.head.contains(allow), "{path}: {}", answer.head);
    }
    for word in ["resume", "abandon", "cancel"] {
        let answer = served.post(&format!("{session}/{word}"), &json!({}));
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].clone()),
            (409, json!("no_turn")),
            "{word}"
        );
    }
    assert_eq!(
        served.get(&format!("{session}/events?after=1&limit=6000")).status,
        400
    );
    let ahead = format!(
        "{}accept: text/event-stream\r\nlast-event-id: 7\r\n",
        served.authorized()
    );
    assert_eq!(
        served
            .send("GET", &format!("{session}/events"), &ahead, "")
            .status,
        400
    );
}

#[test]
fn stream_goes_on_without_a_gap_or_a_repeat() {
    let user = user(json!([{"text": "One."}, {"text": "Two."}]));
    let served = Served::start(&user);
    let session = served.session();
    let turn = |text: &str| {
        let started = served.post(&format!("{session}/turns"), &json!({ "text": text }));
        assert_eq!(started.status, 202, "{}", started.body);
    };
    turn("first");
    let (ids, all) = served.stream(&session, 0, is_finished);
    assert!(
        all.iter()
            .any(|value| value["event"]["type"] == "turn_started" && value["at_ms"].is_u64())
    );
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    let last = ids[ids.len() - 1];
    // The session is released after its last event.
    while served.get(&session).json()["state"] != "idle" {
        std::thread::sleep(Duration::from_millis(10));
    }
    turn("second");
    let (more, all) = served.stream(&session, last - 1, is_finished);
    assert_eq!(more[0], last);
    assert!(is_finished(&all[1]) || is_finished(&all[0]), "{all:?}");
    let (more, _) = served.stream(&session, last, is_finished);
    assert_eq!(more[0], last + 1);
    let page = served.get(&format!("{session}/events?after=0")).json();
    assert_eq!(page["events_total"].as_u64(), more.last().copied());
    assert_eq!(
        page["events"].as_array().unwrap().len() as u64,
        *more.last().unwrap()
    );
    let usage = served.get("/api/usage").json();
    assert_eq!(usage["days"][0]["agent"], "default");
}

#[test]
fn sessions_are_found_named_forked_and_deleted() {
    let user = user(json!([{"text": "Apples are red."}]));
    let served = Served::start(&user);
    let session = served.session();
    served.post(
        &format!("{session}/turns"),
        &json!({"text": "What about apples?"}),
    );
    served.stream(&session, 0, is_finished);
    let found = served.get("/api/sessions?q=APPLES+red").json();
    assert_eq!(found["sessions"][0]["matches"][0]["role"], "assistant", "{found}");
    assert_eq!(served.get("/api/sessions?q=pears").json()["sessions"], json!([]));
    let named = served.send("PATCH", &session, &served.authorized(), r#"{"name": "fruit"}"#);
    assert_eq!(named.json()["name"], "fruit");
    // The end of its identifier would choose it on the command line.
    let id = &session["/api/sessions/".len()..];
    let part = json!({ "name": id[id.len() - 8..] }).to_string();
    let refused = served.send("PATCH", &session, &served.authorized(), &part);
    assert_eq!(refused.status, 400, "{}", refused.json());
    let fork = served.post(&format!("{session}/fork"), &json!({"before_turn": 1}));
    assert_eq!((fork.status, fork.json()["events"].clone()), (201, json!(0)));
    assert_eq!(
        served
            .post(&format!("{session}/fork"), &json!({"before_turn": 2}))
            .status,
        400
    );
    let export = served.get(&format!("{session}/export")).body;
    assert!(export.contains(r#"{"type":"turn_started""#), "{export}");
    assert!(served.get(&session).json()["budget"]["tokens"]["used"].is_u64());
    while served.get(&session).json()["state"] != "idle" {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(
        served.send("DELETE", &session, &served.authorized(), "").status,
        204
    );
    assert_eq!(served.get(&session).status, 404);
}

fn asking() -> User {
    let user = user(json!([
        {"calls": [{"name": "text_count", "arguments": {"text": "a b"}}]},
        {"text": "Two words."},
    ]));
    user.configure("[[approval.rules]]\ntool = \"text_count\"\nverdict = \"ask\"\n[tools.files]\nscratch = \"scratch\"\n");
    user
}

#[test]
fn question_is_answered_from_another_place() {
    let user = asking();
    let served = Served::start(&user);
    let session = served.session();
    served.post(&format!("{session}/turns"), &json!({"text": "Count."}));
    let (_, all) = served.stream(&session, 0, is_waiting);
    let question = all.last().unwrap()["questions"][0].clone();
    assert_eq!(question["tool"], "text_count");
    assert_eq!(question["subject"], "{\n  \"text\": \"a b\"\n}");
    assert_eq!(served.get("/api/questions").json()["questions"][0], question);
    let path = format!("{session}/questions/{}", question["id"].as_str().unwrap());
    assert_eq!(served.post(&path, &json!({"choice": "always"})).status, 400);
    assert_eq!(
        served
            .post(&path, &json!({"choice": "allow", "words": "x"}))
            .status,
        400
    );
    assert_eq!(served.post(&path, &json!({"choice": "allow"})).status, 200);
    assert_eq!(served.post(&path, &json!({"choice": "allow"})).status, 409);
    let (_, all) = served.stream(&session, 0, is_finished);
    assert_eq!(all.last().unwrap()["event"]["text"], "Two words.");
    let receipts = served.get(&format!("{session}/receipts")).json();
    assert!(receipts["receipts"][0]["receipt"]["fuel"].is_u64(), "{receipts}");
    // Nothing was granted: no approval is saved.
    assert!(!user.home().join(".local/state/toolcell/approvals.json").exists());
}

#[test]
fn killed_server_comes_back_with_every_event() {
    let user = asking();
    let mut served = Served::start(&user);
    let session = served.session();
    served.post(&format!("{session}/turns"), &json!({"text": "Count."}));
    served.stream(&session, 0, is_waiting);
    let last = served.get(&format!("{session}/events")).json()["events_total"]
        .as_u64()
        .unwrap();
    let (ids, _) = served.stream(&session, 0, |value| value["seq"] == last);
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let served = Served::start(&user);
    let (again, _) = served.stream(&session, 0, |value| value["seq"] == last);
    assert_eq!(again, ids);
    assert_eq!(served.get(&session).json()["state"], "open");
    let blocked = served.post(&format!("{session}/turns"), &json!({"text": "More."}));
    assert_eq!(blocked.json()["error"]["code"], "turn_open");
    assert_eq!(served.post(&format!("{session}/resume"), &json!({})).status, 202);
    let (_, all) = served.stream(&session, last, is_waiting);
    let id = all.last().unwrap()["questions"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    served.post(&format!("{session}/questions/{id}"), &json!({"choice": "allow"}));
    let (more, all) = served.stream(&session, last, is_finished);
    assert_eq!(more[0], last + 1);
    assert_eq!(all.last().unwrap()["event"]["text"], "Two words.");
}

#[test]
fn many_streams_and_one_that_is_not_read_hold_up_no_other() {
    let user = user(json!([{"text": "One."}]));
    let served = Served::start(&user);
    let session = served.session();
    let headers = format!("{}accept: text/event-stream\r\n", served.authorized());
    let path = format!("{session}/events");
    let unread: Vec<TcpStream> = (0..64).map(|_| served.open("GET", &path, &headers, "")).collect();
    let started = served.post(&format!("{session}/turns"), &json!({"text": "Go."}));
    assert_eq!(started.status, 202);
    served.stream(&session, 0, is_finished);
    for mut stream in unread {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut all = String::new();
        let mut part = [0; 4096];
        while !all.contains("turn_finished") {
            let bytes = stream.read(&mut part).unwrap();
            assert_ne!(bytes, 0, "{all}");
            all.push_str(&String::from_utf8_lossy(&part[..bytes]));
        }
    }
}

#[test]
fn examples_of_the_page_work_without_a_model() {
    let user = user(json!([{"text": "Hi."}]));
    let served = Served::start(&user);
    let info = served.get("/api/info").json();
    let examples = info["examples"].as_array().unwrap();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let seen = user.run(&["run", example.as_str().unwrap()]).ended(0);
        assert!(seen.stdout.contains(" says:"), "{example}: {}", seen.stdout);
    }
}

//! Methods of the paths: a wrong one is told before anything else of the request is looked at.

use serde_json::Value;

use super::{Served, user};

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

#[test]
fn method_is_judged_before_the_content_type() {
    let user = user(serde_json::json!([{"text": "Hi."}]));
    let served = Served::start(&user);
    let document: Value = served.get("/openapi.json").json();
    let mut paths: Vec<(String, Vec<String>)> = Vec::new();
    for (route, operations) in document["paths"].as_object().unwrap() {
        let path = route.replace(['{', '}'], "");
        let mut methods: Vec<String> = operations
            .as_object()
            .unwrap()
            .keys()
            .map(|method| method.to_uppercase())
            .collect();
        if methods.iter().any(|method| method == "GET") {
            methods.push("HEAD".into());
        }
        paths.push((path, methods));
    }
    let own = |methods: &[&str]| {
        methods
            .iter()
            .map(|method| (*method).to_owned())
            .collect::<Vec<_>>()
    };
    for path in [
        "/",
        "/page/app.js",
        "/openapi.json",
        "/login",
        "/healthz",
        "/readyz",
        "/metrics",
    ] {
        paths.push((path.to_owned(), own(&["GET", "HEAD"])));
    }
    paths.push(("/mcp".to_owned(), own(&["GET", "POST", "DELETE"])));
    let plain = served.authorized().replace("application/json", "text/plain");
    for (path, methods) in &paths {
        for method in METHODS {
            let answer = served.send(method, path, &plain, "");
            if methods.iter().any(|known| known == method) {
                let is_refused = answer.status == 405 && path != "/mcp";
                assert!(!is_refused, "{method} {path}");
                continue;
            }
            assert_eq!(answer.status, 405, "{method} {path}: {}", answer.head);
            let allow = answer.head.lines().find_map(|line| line.strip_prefix("allow: "));
            let mut allowed: Vec<String> = allow
                .unwrap_or_default()
                .split(", ")
                .map(str::to_uppercase)
                .collect();
            allowed.sort();
            let mut expected = methods.clone();
            expected.sort();
            assert_eq!(allowed, expected, "{method} {path}");
        }
    }
    // Where there is nothing, no method is right.
    for path in ["/nothing", "/api/nothing", "/v1/nothing", "/v1/models/a/b"] {
        for method in ["POST", "DELETE", "OPTIONS"] {
            assert_eq!(
                served.send(method, path, &plain, "").status,
                404,
                "{method} {path}"
            );
        }
    }
}

#[test]
fn head_is_that_of_the_answer_to_get() {
    let user = user(serde_json::json!([{"text": "Hi."}]));
    let served = Served::start(&user);
    for path in [
        "/",
        "/api/info",
        "/v1/models",
        "/v1/models/default",
        "/v1/models/none",
        "/healthz",
        "/metrics",
    ] {
        let (get, head) = (
            served.get(path),
            served.send("HEAD", path, &served.authorized(), ""),
        );
        let length = |head: &str| {
            head.lines()
                .find(|line| line.starts_with("content-type: "))
                .map(str::to_owned)
        };
        assert_eq!(
            (head.status, length(&head.head)),
            (get.status, length(&get.head)),
            "{path}"
        );
        assert_eq!(head.body, "", "{path}");
    }
    // A stream without a reader ends.
    let session = served.session();
    let headers = format!("{}accept: text/event-stream\r\n", served.authorized());
    let head = served.send("HEAD", &format!("{session}/events"), &headers, "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

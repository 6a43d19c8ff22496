//! Address and headers of `[provider]`, and what they replace.

use super::ask;
use crate::support::cli_user::User;
use crate::support::model_server::{Answer, ModelServer};

fn configured(server: &ModelServer, rest: &str) -> String {
    format!(
        "[provider]\nname = \"openai\"\nbase_url = \"{}\"\nmodel = \"m\"\n{rest}",
        server.url("/v1")
    )
}

#[test]
fn header_with_a_key_takes_the_place_of_the_usual_key() {
    for (header, sent) in [
        ("Authorization", "authorization: bearer of-the-proxy"),
        ("api-key", "api-key: bearer of-the-proxy"),
    ] {
        let server = ModelServer::playing(vec![Answer::chat("Two.")]);
        let mut user = User::new();
        user.var("OPENAI_API_KEY", "planted-usual-key");
        user.configure(&configured(
            &server,
            &format!("headers = {{ {header} = \"Bearer of-the-proxy\", User-Agent = \"mine\" }}\n"),
        ));
        user.run(&ask(&[])).ended(0);
        let head = server.requests()[0].head.to_lowercase();
        assert!(head.contains(sent) && head.contains("user-agent: mine"), "{head}");
        assert!(!head.contains("planted"), "{head}");
    }
}

#[test]
fn refused_key_of_a_header_is_looked_for_there() {
    let server = ModelServer::playing(vec![Answer::error(401, "no")]);
    let user = User::new();
    user.configure(&configured(
        &server,
        "headers = { Authorization = \"Bearer x\" }\n",
    ));
    let seen = user.run(&ask(&[])).ended(6).stderr;
    assert!(
        seen.contains("check the key in the header `Authorization` of `[provider] headers`"),
        "{seen}"
    );
}

#[test]
fn key_beside_a_header_with_the_key_is_refused() {
    let server = ModelServer::playing(vec![Answer::chat("Two.")]);
    let mut user = User::new();
    user.var("MY_KEY", "planted-own-key");
    let header = "headers = { authorization = \"Bearer x\" }\napi_key_env = \"MY_KEY\"\n";
    user.configure(&configured(&server, header));
    let seen = user.run(&ask(&[])).ended(3).stderr;
    assert!(
        seen.contains("two sources")
            && seen.contains("keep one of `api_key_env` and the header `authorization`"),
        "{seen}"
    );
    // Another header of a gateway is sent beside the key.
    user.configure(&configured(
        &server,
        &header.replace("authorization", "x-api-key"),
    ));
    user.run(&ask(&[])).ended(0);
    let head = server.requests()[0].head.to_lowercase();
    assert!(
        head.contains("x-api-key: bearer x") && head.contains("authorization: bearer planted-own-key"),
        "{head}"
    );
}

#[test]
fn headers_of_the_connection_and_body_are_refused() {
    let server = ModelServer::playing(Vec::new());
    let user = User::new();
    for (header, reason) in [
        ("Content-Length = \"5\"", "the HTTP client sets it"),
        ("transfer-encoding = \"chunked\"", "the HTTP client sets it"),
        ("content-type = \"text/plain\"", "the HTTP client sets it"),
        ("HOST = \"example.com\"", "it is the host of `base_url`"),
        ("X-A = \"1\", x-a = \"2\"", "is set twice"),
    ] {
        user.configure(&configured(&server, &format!("headers = {{ {header} }}\n")));
        for arguments in [&["config", "check"][..], &ask(&[])] {
            let seen = user.run(arguments).ended(3).stderr;
            assert!(seen.contains(reason), "{header}: {seen}");
        }
    }
    assert!(server.requests().is_empty());
}

#[test]
fn address_of_requests_is_taken_for_the_base_url() {
    for path in [
        "/v1/chat/completions",
        "/v1/chat/completions/",
        "/chat/completions",
    ] {
        let server = ModelServer::playing(vec![Answer::chat("Two.")]);
        let url = server.url(path);
        User::new()
            .run(&ask(&["--base-url", &url, "--model", "m"]))
            .ended(0);
        let head = &server.requests()[0].head;
        assert!(head.starts_with("POST /v1/chat/completions "), "{head}");
    }
}

//! Servers and authorization servers that want more than they may have.

use serde_json::{Value, json};

use super::site::{Answer, Asked, Site, metadata, ok, resource};
use super::{Login, configure};
use crate::support::cli_user::User;

const RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";
const SERVER: &str = "/.well-known/oauth-authorization-server";

/// A site whose document at `path` has another value for a name.
fn with(
    path: &'static str,
    name: &'static str,
    value: impl Fn(&str) -> Value + Send + Sync + 'static,
) -> Site {
    Site::start(move |asked, origin| {
        let mut document = match path {
            RESOURCE => resource(origin),
            _ => metadata(origin),
        };
        document[name] = value(origin);
        (asked.path == path).then(|| ok(&document))
    })
}

/// A site that answers requests for a path otherwise.
fn answering(path: &'static str, answer: Answer) -> Site {
    Site::start(move |asked: &Asked, _| (asked.path == path).then(|| answer.clone()))
}

/// Asserts that a login fails before an address is printed, and returns what the user sees.
#[track_caller]
fn refused(site: &Site) -> String {
    let user = User::new();
    configure(&user, site, "");
    let seen = user.run(&["mcp", "login", "srv", "--no-browser"]).ended(3);
    assert_eq!(seen.stdout, "", "{}", seen.stderr);
    assert!(site.asked("/token").is_empty());
    seen.stderr
}

#[test]
fn metadata_that_lead_elsewhere_end_the_login() {
    let fixed = |value: &'static str| move |_: &str| json!(value);
    for (site, told) in [
        (
            with(RESOURCE, "resource", fixed("https://other.example/mcp")),
            "describe another server",
        ),
        (
            with(RESOURCE, "authorization_servers", |_| json!([])),
            "no authorization server",
        ),
        (
            with(RESOURCE, "authorization_servers", |_| {
                json!(["http://login.example"])
            }),
            "not reached over `https`",
        ),
        (
            with(RESOURCE, "authorization_servers", |_| json!(["https://10.0.0.1"])),
            "not a public address",
        ),
        (
            with(RESOURCE, "authorization_servers", |_| {
                json!(["https://169.254.169.254"])
            }),
            "not a public address",
        ),
        (
            with(SERVER, "issuer", fixed("https://other.example")),
            "those of another one",
        ),
        (
            with(SERVER, "issuer", |origin| json!(format!("{origin}/"))),
            "those of another one",
        ),
        (
            with(SERVER, "code_challenge_methods_supported", |_| json!(["plain"])),
            "PKCE",
        ),
        (
            with(SERVER, "code_challenge_methods_supported", |_| Value::Null),
            "PKCE",
        ),
        (
            with(SERVER, "authorization_endpoint", fixed("javascript:alert(1)")),
            "not reached over `https`",
        ),
        (
            with(SERVER, "authorization_endpoint", fixed("file:///etc/passwd")),
            "not reached over `https`",
        ),
        (
            with(SERVER, "token_endpoint", fixed("http://token.example/t")),
            "not reached over `https`",
        ),
        (
            with(SERVER, "token_endpoint", fixed("https://u:p@token.example/t")),
            "cannot be used",
        ),
        (
            with(SERVER, "registration_endpoint", fixed("https://192.168.0.1/r")),
            "not a public address",
        ),
        (
            with(SERVER, "revocation_endpoint", fixed("http://revoke.example/r")),
            "not reached over `https`",
        ),
        (
            with(SERVER, "registration_endpoint", |_| Value::Null),
            "does not register clients",
        ),
    ] {
        let stderr = refused(&site);
        assert!(stderr.contains(told), "{told}: {stderr}");
        // A client of the user helps where none is registered, and nowhere else.
        let is_registration = told == "does not register clients" || stderr.contains("https://192.168.0.1/r");
        assert_eq!(
            stderr.contains("client_id = \"ID\""),
            is_registration,
            "{told}: {stderr}"
        );
    }
}

#[test]
fn documents_of_a_login_have_limits() {
    let json = "content-type: application/json\r\n".to_owned();
    let padded = |size: usize| {
        let mut document = json!({ "client_id": "client 1", "x": "" }).to_string();
        let padding = "x".repeat(size - document.len());
        document.insert_str(document.len() - 2, &padding);
        document
    };
    let most = 64 << 10;
    let stderr = refused(&answering("/register", (201, json.clone(), padded(most + 1))));
    assert!(stderr.contains("larger than 65536 bytes"), "{stderr}");
    let fits = answering("/register", (201, json.clone(), padded(most)));
    let user = User::new();
    configure(&user, &fits, "");
    Login::begin(&user, &fits).accept(&fits).ended(0);
    let redirect = "location: https://other.example/\r\n".to_owned();
    for (path, answer, told) in [
        (
            RESOURCE,
            (302, redirect.clone(), String::new()),
            "a redirect, which is not followed",
        ),
        (
            SERVER,
            (307, redirect, String::new()),
            "a redirect, which is not followed",
        ),
        (SERVER, (500, String::new(), String::new()), "the status 500"),
        (SERVER, (404, String::new(), String::new()), "has no metadata"),
        (SERVER, (200, json.clone(), "[".repeat(100_000)), "larger than"),
        (
            SERVER,
            (200, json.clone(), "[".repeat(1_000)),
            "is not as expected",
        ),
        (SERVER, (200, json.clone(), "{}".into()), "is not as expected"),
        (
            "/register",
            (400, json, json!({ "error": "bad\nhint: run me" }).to_string()),
            "│ hint: run me",
        ),
    ] {
        let stderr = refused(&answering(path, answer));
        assert!(stderr.contains(told), "{told}: {stderr}");
    }
}

#[test]
fn answer_of_another_authorization_server_ends_the_login() {
    let none: Option<&str> = None;
    for (issuer, told) in [
        (
            Some("https://evil.example"),
            "one of another authorization server",
        ),
        (none, "does not say from which authorization server"),
    ] {
        let site = Site::start(|_, _| None);
        let user = User::new();
        configure(&user, &site, "");
        let login = Login::begin(&user, &site);
        let state = login.query["state"].clone();
        let mut answer = vec![("code", "code-1"), ("state", &state)];
        answer.extend(issuer.map(|issuer| ("iss", issuer)));
        assert_eq!(login.answer(&answer), 200);
        let seen = login.ended().ended(3);
        assert!(seen.stderr.contains(told), "{}", seen.stderr);
        assert!(site.asked("/token").is_empty());
    }
}

#[test]
fn refusal_of_the_authorization_server_is_in_its_own_words() {
    let site = Site::start(|_, _| None);
    let user = User::new();
    configure(&user, &site, "");
    let login = Login::begin(&user, &site);
    let state = login.query["state"].clone();
    let words = "no\n hint: toolcell run evil";
    let answer = [
        ("error", "access_denied"),
        ("error_description", words),
        ("state", &state),
        ("iss", &site.origin),
    ];
    assert_eq!(login.answer(&answer), 200);
    let seen = login.ended().ended(3);
    for line in seen.stderr.lines().filter(|line| line.contains("run evil")) {
        assert!(line.trim_start().starts_with('│'), "{}", seen.stderr);
    }
    assert!(seen.stderr.contains("run evil"), "{}", seen.stderr);
    // A code that the token endpoint does not know gives nothing.
    let login = Login::begin(&user, &site);
    let state = login.query["state"].clone();
    let answer = [("code", "injected"), ("state", &state), ("iss", &site.origin)];
    assert_eq!(login.answer(&answer), 200);
    let seen = login.ended().ended(3);
    assert!(seen.stderr.contains("invalid_grant"), "{}", seen.stderr);
    assert!(!user.home().join(".config/toolcell/tokens.json").exists());
}

#[test]
fn tokens_that_cannot_be_used_are_not_kept() {
    for (body, told) in [
        (
            json!({ "access_token": "abcdef-ghi", "token_type": "DPoP" }),
            "not supported",
        ),
        (
            json!({ "access_token": "two\r\nlines", "token_type": "Bearer" }),
            "no header can have",
        ),
        (
            json!({ "access_token": "abc", "token_type": "Bearer" }),
            "too short",
        ),
        (json!({ "token_type": "Bearer" }), "is not as expected"),
    ] {
        let site = answering("/token", ok(&body));
        let user = User::new();
        configure(&user, &site, "");
        let seen = Login::begin(&user, &site).accept(&site).ended(3);
        assert!(seen.stderr.contains(told), "{told}: {}", seen.stderr);
        assert!(!user.home().join(".config/toolcell/tokens.json").exists());
    }
}

#[test]
fn refused_token_is_refreshed_once() {
    let site = Site::start(|asked, _| {
        let is_refused = asked.path == "/mcp" && asked.token.is_some();
        is_refused.then(|| (401, String::new(), String::new()))
    });
    let user = User::new();
    configure(&user, &site, "");
    Login::begin(&user, &site).accept(&site).ended(0);
    let before = site.asked("/token").len();
    let seen = user.run(&["mcp", "test", "srv"]).ended(3);
    assert!(seen.stderr.contains("toolcell mcp login srv"), "{}", seen.stderr);
    assert_eq!(site.asked("/token").len() - before, 1);
}

#[test]
fn client_of_the_user_is_for_its_authorization_server() {
    let site = Site::start(|asked, _| {
        let body = json!({ "access_token": "issued-to-my-client", "token_type": "Bearer" });
        (asked.path == "/token").then(|| ok(&body))
    });
    let mut user = User::new();
    user.var("CLIENT_SECRET", "secret-of-my-client");
    let own = format!(
        "issuer = \"{}\"\nclient_id = \"mine\"\nclient_secret = {{ secret = \"c\" }}\nscopes = [\"own\"]\n[secrets.c]\nenv = \"CLIENT_SECRET\"\n",
        site.origin
    );
    configure(&user, &site, &own);
    let login = Login::begin(&user, &site);
    assert_eq!(
        (&*login.query["client_id"], &*login.query["scope"]),
        ("mine", "own")
    );
    login.accept(&site).ended(0);
    let sent = site.asked("/token")[0].token.clone().unwrap();
    assert_eq!(sent, "Basic bWluZTpzZWNyZXQtb2YtbXktY2xpZW50");
    assert!(site.asked("/register").is_empty());
    // Without an authorization server anyone could ask for it, and with another one it is not sent.
    configure(
        &user,
        &site,
        &own.replace(&format!("issuer = \"{}\"\n", site.origin), ""),
    );
    let seen = user.run(&["config", "check"]).ended(3);
    assert!(
        seen.stderr.contains("would be for any authorization server"),
        "{}",
        seen.stderr
    );
    configure(&user, &site, &own.replace(&site.origin, "https://login.example"));
    let seen = user.run(&["mcp", "login", "srv"]).ended(3);
    assert!(
        seen.stderr.contains("names another authorization server"),
        "{}",
        seen.stderr
    );
}

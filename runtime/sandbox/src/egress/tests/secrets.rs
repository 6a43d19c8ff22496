//! Secrets: where they go, and what a guest sees of them.

use std::sync::Arc;

use toolcell_core::secret::Secrets;
use wasmtime_wasi_http::Error;

use super::world::{Caller, Server, Setup, World, found, ok, request};

const VALUE: &str = "s3cret-value-of-the-person";

/// A tool with a secret for `http://a.example`; `b.example` is granted as well.
async fn caller(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (Caller, Server) {
    let world = Arc::<World>::default();
    let server = Server::start(answer).await;
    for (name, ip) in [("a.example", "8.8.8.8"), ("b.example", "9.9.9.9")] {
        world.name(name, &[&[ip]]);
        world.route(ip, server.address);
    }
    let mut setup = Setup::new(&world, &["http=http://*"]);
    setup.secrets.insert("token", VALUE).unwrap();
    setup.bindings = serde_json::from_str(
        r#"[{"name": "token", "origins": ["http://a.example"], "header": "authorization", "template": "Bearer {}"}]"#,
    )
    .unwrap();
    (setup.caller(), server)
}

#[tokio::test]
async fn a_key_in_the_query_is_filled_in_and_shown_nowhere() {
    let world = Arc::<World>::default();
    let server = Server::start(echo).await;
    world.name("a.example", &[&["8.8.8.8"]]);
    world.route("8.8.8.8", server.address);
    let mut setup = Setup::new(&world, &["http=http://*"]);
    setup.secrets.insert("token", "s3cret/value of+all").unwrap();
    setup.bindings = serde_json::from_str(
        r#"[{"name": "token", "origins": ["http://a.example"], "placeholder": "{{token}}"}]"#,
    )
    .unwrap();
    let mut caller = setup.caller();
    let answer = caller.get("http://a.example/x?q=1&key={{token}}").await.unwrap();
    assert!(server.heads()[0].starts_with("GET /x?q=1&key=s3cret%2Fvalue+of%2Ball HTTP/1.1"));
    let body = String::from_utf8(answer.body.unwrap().to_vec()).unwrap();
    assert!(
        body.starts_with("GET /x?q=1&key=***********************"),
        "{body}"
    );
    assert!(!format!("{:?}", caller.ledger.lock()).contains("s3cret"));
}

/// An answer that holds the head of the request.
fn echo(head: &str) -> Vec<u8> {
    ok(head)
}

#[tokio::test]
async fn the_server_gets_the_secret_and_the_guest_does_not_see_it() {
    let (mut caller, server) = caller(echo).await;
    let answer = caller.get("http://a.example/").await.unwrap();
    assert!(server.heads()[0].contains(&format!("authorization: Bearer {VALUE}\r\n")));
    let body = String::from_utf8(answer.body.unwrap().to_vec()).unwrap();
    assert!(
        !body.contains(VALUE) && body.contains(&"*".repeat(VALUE.len())),
        "{body}"
    );
    assert_eq!(answer.headers["content-length"], body.len().to_string());

    let other = caller.get("http://b.example/").await.unwrap();
    assert!(!server.heads()[1].contains("authorization"));
    assert!(
        String::from_utf8(other.body.unwrap().to_vec())
            .unwrap()
            .contains("host: b.example")
    );
    let receipt = format!("{:?}", caller.ledger.lock());
    assert!(!receipt.contains(VALUE), "{receipt}");
}

#[tokio::test]
async fn an_echo_is_masked_in_every_coding_in_headers_and_across_pieces() {
    for form in [
        VALUE.to_owned(),
        "dXNlcjpzM2NyZXQtdmFsdWUtb2YtdGhlLXBlcnNvbg==".to_owned(), // `user:` and the value in base64
        VALUE.bytes().map(|b| format!("%{b:02X}")).collect(),
        VALUE.bytes().map(|b| format!("{b:02x}")).collect(),
    ] {
        let body = form.clone();
        let (mut caller, _server) = caller(move |_| {
            let mut answer =
                format!("HTTP/1.1 200 OK\r\nx-echo: {body}\r\ntransfer-encoding: chunked\r\n\r\n");
            for byte in format!("<{body}>").chars() {
                answer.push_str(&format!("1\r\n{byte}\r\n"));
            }
            (answer + "0\r\nx-trailer: t\r\n\r\n").into_bytes()
        })
        .await;
        let answer = caller.get("http://a.example/").await.unwrap();
        let header = answer.headers["x-echo"].to_str().unwrap().to_owned();
        let body = String::from_utf8(answer.body.unwrap().to_vec()).unwrap();
        for seen in [&header, &body] {
            assert!(!seen.contains(&form) && seen.contains("********"), "{seen}");
        }
        assert_eq!(body.len(), form.len() + 2);
        assert!(body.starts_with('<') && body.ends_with('>'), "{body}");
    }
}

#[tokio::test]
async fn an_echo_that_could_not_be_seen_is_refused() {
    let (mut caller, server) =
        caller(|_| b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx".to_vec()).await;
    let asked = request("GET", "http://a.example/", &[("accept-encoding", "gzip")]);
    let error = caller.send(asked).await.unwrap_err();
    assert!(matches!(error, Error::HttpResponseContentCoding(Some(c)) if c == "gzip"));
    assert!(server.heads()[0].contains("accept-encoding: identity\r\n"));
    // Without a secret compression is the business of the guest.
    assert_eq!(caller.get("http://b.example/").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_redirect_from_elsewhere_gets_no_secret() {
    let (mut caller, server) = caller(|head| match head.contains("host: b.example") {
        true => found("http://a.example/delete-everything"),
        false if head.contains("GET /start") => found("/next"),
        false => ok(""),
    })
    .await;
    caller.get("http://b.example/").await.unwrap();
    caller.get("http://a.example/delete-everything").await.unwrap();
    assert!(!server.heads()[1].contains("authorization"));
    caller.get("http://a.example/start").await.unwrap();
    caller.get("http://a.example/next").await.unwrap();
    assert!(server.heads()[3].contains(VALUE));
}

#[tokio::test]
async fn a_denied_request_carries_no_secret_anywhere() {
    let (mut caller, server) = caller(ok_always).await;
    let post = request("POST", "http://a.example/", &[]);
    assert!(caller.send(post).await.is_err());
    assert!(server.heads().is_empty());
    assert!(!format!("{:?} {:?}", caller.denials(), caller.egress).contains(VALUE));
}

#[tokio::test]
async fn a_denial_shows_no_half_of_a_secret_where_the_path_is_cut() {
    let (mut caller, _server) = caller(ok_always).await;
    let url = format!("http://a.example/{}{VALUE}", "x".repeat(115));
    assert!(caller.send(request("POST", &url, &[])).await.is_err());
    let (target, _) = caller.denials().remove(0);
    assert!(
        target.contains("x[redacted:t") && !target.contains("s3c"),
        "{target}"
    );
}

fn ok_always(_: &str) -> Vec<u8> {
    ok("")
}

#[test]
fn a_binding_without_a_value_is_an_error() {
    let bindings =
        serde_json::from_str::<Vec<_>>(r#"[{"name": "token", "origins": [], "header": "x"}]"#).unwrap();
    assert!(crate::egress::BoundSecrets::new(&bindings, &Secrets::default()).is_err());
}

//! Secrets: their destinations, and what a guest sees of them.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;
use toolcell_core::secret::Secrets;
use wasmtime_wasi_http::Error;

use super::fake_network::{Caller, FakeNetwork, Server, Setup, found, ok, request};

const VALUE: &str = "s3cret-value-of-the-user";

/// A tool with a secret for `http://a.example`; `b.example` is granted as well.
async fn caller(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (Caller, Server) {
    let network = Arc::<FakeNetwork>::default();
    let server = Server::start(answer).await;
    for (name, ip) in [("a.example", "8.8.8.8"), ("b.example", "9.9.9.9")] {
        network.name(name, &[&[ip]]);
        network.route(ip, server.address);
    }
    let mut setup = Setup::new(&network, &["http=http://*"]);
    setup.secrets.insert("token", VALUE).unwrap();
    setup.bindings = serde_json::from_str(
        r#"[{"name": "token", "origins": ["http://a.example"], "header": "authorization", "template": "Bearer {}"}]"#,
    )
    .unwrap();
    (setup.caller(), server)
}

#[tokio::test]
async fn key_in_the_query_is_replaced_and_never_shown() {
    let network = Arc::<FakeNetwork>::default();
    let server = Server::start(echo).await;
    network.name("a.example", &[&["8.8.8.8"]]);
    network.route("8.8.8.8", server.address);
    let mut setup = Setup::new(&network, &["http=http://*"]);
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
    assert!(!format!("{:?}", caller.recorder.lock()).contains("s3cret"));
}

/// A response that contains the head of the request.
fn echo(head: &str) -> Vec<u8> {
    ok(head)
}

#[tokio::test]
async fn server_receives_the_secret_and_the_guest_does_not_see_it() {
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
    let receipt = format!("{:?}", caller.recorder.lock());
    assert!(!receipt.contains(VALUE), "{receipt}");
}

#[tokio::test]
async fn echo_is_redacted_in_every_coding_headers_and_pieces() {
    for form in [
        VALUE.to_owned(),
        "dXNlcjpzM2NyZXQtdmFsdWUtb2YtdGhlLXVzZXI=".to_owned(), // `user:` and the value in base64
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
async fn response_with_an_undetectable_echo_is_refused() {
    let (mut caller, server) =
        caller(|_| b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx".to_vec()).await;
    let asked = request("GET", "http://a.example/", &[("accept-encoding", "gzip")]);
    let error = caller.send(asked).await.unwrap_err();
    assert!(matches!(error, Error::HttpResponseContentCoding(Some(c)) if c == "gzip"));
    assert!(server.heads()[0].contains("accept-encoding: identity\r\n"));
    // Without a secret, compression is left to the guest.
    assert_eq!(caller.get("http://b.example/").await.unwrap().status, 200);
}

#[tokio::test]
async fn unrequested_transfer_coding_is_refused() {
    for coding in [
        "gzip",
        "gzip, chunked",
        "chunked, gzip",
        "deflate\r\ntransfer-encoding: chunked",
    ] {
        for origin in ["a.example", "b.example"] {
            let head = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n1\r\nx\r\n0\r\n\r\n");
            let (mut caller, _server) = caller(move |_| head.clone().into_bytes()).await;
            assert!(
                caller.get(&format!("http://{origin}/")).await.is_err(),
                "{coding}"
            );
        }
    }
}

#[tokio::test]
async fn undeclared_compression_is_refused_if_it_may_hold_a_secret() {
    let gzip = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let answer = |body: Vec<u8>| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), &body].concat()
    };
    let (with, without) = (answer(gzip(VALUE)), answer(gzip("nothing")));
    let (mut caller, _server) = caller(move |head| match head.contains("/with") {
        true => with.clone(),
        false => without.clone(),
    })
    .await;
    let body = caller.get("http://a.example/with").await.unwrap().body;
    assert!(
        matches!(body, Err(Error::HttpResponseContentCoding(_))),
        "{body:?}"
    );
    assert_eq!(
        caller.get("http://a.example/").await.unwrap().body.unwrap(),
        gzip("nothing")
    );
    // No binding names this host: its responses are not searched.
    assert_eq!(
        caller.get("http://b.example/with").await.unwrap().body.unwrap(),
        gzip(VALUE)
    );
}

#[tokio::test]
async fn range_never_splits_a_secret() {
    // A server that returns the part of its response that a range requests.
    let (mut caller, server) = caller(|head| match head.split_once("range: bytes=") {
        Some((_, range)) => {
            let (from, to) = range.split_once("\r\n").unwrap().0.split_once('-').unwrap();
            let to = head.len().min(to.parse().unwrap());
            ok(&head[from.parse().unwrap()..to])
        }
        None => ok(head),
    })
    .await;
    let headers = [
        ("range", "bytes=0-60"),
        ("if-range", "\"x\""),
        ("te", "gzip"),
        ("a-im", "gzip"),
    ];
    let answer = caller
        .send(request("GET", "http://a.example/", &headers))
        .await
        .unwrap();
    let body = String::from_utf8(answer.body.unwrap().to_vec()).unwrap();
    assert!(
        body.starts_with("GET / HTTP/1.1") && body.ends_with("\r\n\r\n"),
        "{body}"
    );
    assert!(body.contains("******") && !body.contains("s3cret"), "{body}");
    for (name, _) in headers {
        assert!(!server.heads()[0].contains(&format!("\r\n{name}:")), "{name}");
    }
    caller
        .send(request("GET", "http://b.example/", &headers[..1]))
        .await
        .unwrap();
    assert!(server.heads()[1].contains("\r\nrange: bytes=0-60"));
}

#[tokio::test]
async fn secret_stored_by_a_server_is_redacted_in_later_responses() {
    let stored = Mutex::new(String::from("nothing yet"));
    let server = Server::start(move |head| {
        let mut stored = stored.lock().unwrap();
        if head.contains("authorization: ") || head.contains("key=s3cret") {
            head.clone_into(&mut stored);
        }
        ok(&stored)
    })
    .await;
    let network = Arc::<FakeNetwork>::default();
    network.name("a.example", &[&["8.8.8.8"]]);
    network.name("b.example", &[&["9.9.9.9"]]);
    network.route("8.8.8.8", server.address);
    network.route("9.9.9.9", server.address);
    for binding in [
        r#"[{"name": "token", "origins": ["http://a.example"], "header": "authorization", "paths": ["/store"]}]"#,
        r#"[{"name": "token", "origins": ["http://a.example"], "placeholder": "{{token}}"}]"#,
    ] {
        let new = || {
            let mut setup = Setup::new(&network, &["http=http://*", "http=http://a.example:8080"]);
            setup.secrets.insert("token", VALUE).unwrap();
            setup.bindings = serde_json::from_str(binding).unwrap();
            setup.caller()
        };
        new().get("http://a.example/store?key={{token}}").await.unwrap();
        // Another call, which has sent no secret; another path, port and even host.
        for load in [
            "http://a.example/load",
            "http://a.example:8080/",
            "http://b.example/",
        ] {
            let mut later = new();
            let body = later.get(load).await.unwrap().body.unwrap();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert!(
                body.contains("********") && !body.contains("s3cret"),
                "{load}: {body}"
            );
        }
    }
}

#[tokio::test]
async fn header_with_a_secret_in_its_name_is_removed() {
    let (mut caller, _server) = caller(|_| {
        format!("HTTP/1.1 200 OK\r\nx-{VALUE}-y: 1\r\nx-other: 1\r\ncontent-length: 0\r\n\r\n").into_bytes()
    })
    .await;
    let answer = caller.get("http://a.example/").await.unwrap();
    let mut names: Vec<_> = answer.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "x-other"]);
}

/// A tool with restricted responses to requests with the secret.
async fn limited(
    responses: &str,
    answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
) -> (Caller, Server) {
    let network = Arc::<FakeNetwork>::default();
    let server = Server::start(answer).await;
    network.name("a.example", &[&["8.8.8.8"]]);
    network.route("8.8.8.8", server.address);
    let mut setup = Setup::new(&network, &["http=http://*"]);
    setup.secrets.insert("token", VALUE).unwrap();
    setup.bindings = serde_json::from_str(&format!(
        r#"[{{"name": "token", "origins": ["http://a.example"], "header": "x-key", "paths": ["/s"],
             "responses": {responses}}}]"#
    ))
    .unwrap();
    (setup.caller(), server)
}

#[tokio::test]
async fn withheld_response_is_its_status_and_two_plain_headers() {
    let (mut caller, _server) = limited("\"withheld\"", |head| {
        let date = match head.contains("/s/odd") {
            true => "Sun, 06 Nov 1994 08:49:37 GMT; and more",
            false => "Sun, 06 Nov 1994 08:49:37 GMT",
        };
        format!(
            "HTTP/1.1 201 Created\r\ndate: {date}\r\nretry-after: 120\r\nx-other: 1\r\nlocation: /x\r\n\
             content-type: text/plain\r\ncontent-length: 4\r\n\r\nbody"
        )
        .into_bytes()
    })
    .await;
    for (path, headers) in [
        ("/s", vec!["date", "retry-after"]),
        ("/s/odd", vec!["date", "retry-after"]),
    ] {
        let answer = caller.get(&format!("http://a.example{path}")).await.unwrap();
        assert_eq!(answer.status, 201);
        let mut names: Vec<_> = answer.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, headers);
        assert!(answer.body.unwrap().is_empty());
    }
    // Without the secret it is an ordinary response.
    let answer = caller.get("http://a.example/public").await.unwrap();
    assert_eq!(answer.body.unwrap(), "body");
}

#[tokio::test]
async fn response_of_an_unlisted_media_type_is_refused() {
    for (status, headers, is_passed) in [
        (
            "200 OK",
            "content-type: application/json\r\ncontent-length: 4",
            true,
        ),
        (
            "200 OK",
            "content-type: Application/JSON ; charset=utf-8\r\ncontent-length: 4",
            true,
        ),
        (
            "500 X",
            "content-type: application/json\r\ncontent-length: 4",
            true,
        ),
        ("200 OK", "content-type: text/html\r\ncontent-length: 4", false),
        (
            "200 OK",
            "content-type: application/jsonp\r\ncontent-length: 4",
            false,
        ),
        (
            "200 OK",
            "content-type: application/json\r\ncontent-type: application/json\r\ncontent-length: 4",
            false,
        ),
        ("200 OK", "content-type: \r\ncontent-length: 4", false),
        ("200 OK", "content-length: 4", false),
        (
            "302 X",
            "content-type: text/html\r\nlocation: /x\r\ncontent-length: 4",
            false,
        ),
        ("200 OK", "content-length: 0", true),
        ("204 X", "x-y: z", true),
    ] {
        let (mut caller, _server) = limited(r#"["application/json"]"#, move |_| {
            let body = if headers.ends_with('4') { "body" } else { "" };
            format!("HTTP/1.1 {status}\r\n{headers}\r\n\r\n{body}").into_bytes()
        })
        .await;
        let answer = caller.get("http://a.example/s").await;
        assert_eq!(answer.is_ok(), is_passed, "{status} {headers}: {answer:?}");
        if !is_passed {
            let (denied, _) = caller.denials().remove(0);
            assert!(
                denied.contains("is not among the `responses` of the secret `token`"),
                "{denied}"
            );
        }
        assert!(caller.get("http://a.example/public").await.is_ok());
    }
}

#[tokio::test]
async fn redirect_from_another_origin_gets_no_secret() {
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
async fn denied_request_carries_no_secret_anywhere() {
    let (mut caller, server) = caller(ok_always).await;
    let post = request("POST", "http://a.example/", &[]);
    assert!(caller.send(post).await.is_err());
    assert!(server.heads().is_empty());
    assert!(!format!("{:?} {:?}", caller.denials(), caller.egress).contains(VALUE));
}

#[tokio::test]
async fn truncated_path_of_a_denial_shows_no_half_of_a_secret() {
    let (mut caller, _server) = caller(ok_always).await;
    let url = format!("http://a.example/{}{VALUE}", "x".repeat(115));
    assert!(caller.send(request("POST", &url, &[])).await.is_err());
    let (target, _) = caller.denials().remove(0);
    assert!(
        target.contains("x[redacted:t") && !target.contains("s3c"),
        "{target}"
    );
}

/// The user copies the line: one that is cut or masked would allow something else.
#[tokio::test]
async fn proposed_grant_is_neither_long_nor_contains_a_secret() {
    let network = Arc::<FakeNetwork>::default();
    // Limited to a path, so that proposals are as well.
    let mut setup = Setup::new(&network, &["http=http://a.example/api"]);
    setup.secrets.insert("token", VALUE).unwrap();
    setup.bindings =
        serde_json::from_str(r#"[{"name": "token", "origins": ["http://a.example"], "header": "x-key"}]"#)
            .unwrap();
    let mut caller = setup.caller();
    let longest = "x".repeat(256 - "http=http://a.example/".len());
    for (path, is_proposed) in [
        ("other", true),
        (&*longest, true),
        (&*format!("{longest}x"), false),
        (&*format!("x-{VALUE}"), false),
    ] {
        assert!(caller.get(&format!("http://a.example/{path}")).await.is_err());
        let (_, proposed) = caller.denials().pop().unwrap();
        let line = format!("http=http://a.example/{path}");
        assert_eq!(proposed, is_proposed.then_some(line), "{path}");
    }
}

fn ok_always(_: &str) -> Vec<u8> {
    ok("")
}

#[test]
fn binding_without_a_value_is_an_error() {
    let bindings =
        serde_json::from_str::<Vec<_>>(r#"[{"name": "token", "origins": [], "header": "x"}]"#).unwrap();
    assert!(crate::egress::BoundSecrets::new(&bindings, &Secrets::default()).is_err());
}

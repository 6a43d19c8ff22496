//! Chains of redirects, followed by an HTTP client in a guest.

use std::sync::Arc;

use wasmtime_wasi_http::Error;

use super::fake_network::{Caller, FakeNetwork, Server, found, ok, request};

/// A network with the public names `a.example` and `b.example` on one server.
async fn network(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (Arc<FakeNetwork>, Server) {
    let network = Arc::<FakeNetwork>::default();
    let server = Server::start(answer).await;
    for (name, ip) in [("a.example", "8.8.8.8"), ("b.example", "9.9.9.9")] {
        network.name(name, &[&[ip]]);
        network.route(ip, server.address);
    }
    (network, server)
}

#[tokio::test]
async fn redirect_is_returned_to_the_guest() {
    let (network, _server) = network(|_| found("http://127.0.0.1/")).await;
    let mut caller = Caller::new(&network, &["http=http://*"]);
    let answer = caller.get("http://a.example/").await.unwrap();
    assert_eq!(answer.status, 302);
    assert_eq!(answer.headers["location"], "http://127.0.0.1/");
    assert_eq!(network.connected(), ["8.8.8.8:80"]);
}

/// A response with these bytes after its status line.
fn raw(status: u16, headers: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n");
    [head.as_bytes(), headers, b"\r\n\r\n"].concat()
}

#[tokio::test]
async fn redirect_reaches_the_guest_in_canonical_form() {
    for (headers, read) in [
        (b"location: http://b.ex\tample/x".as_slice(), "http://b.example/x"),
        (b"location: \\\\b.example\\x", "http://b.example/x"),
        (b"location: http://b.example/\xfc", "http://b.example/%FC"),
        (
            "location: http://b.example/ü y".as_bytes(),
            "http://b.example/%C3%BC%20y",
        ),
        (b"location: /x\r\nLocation: /x", "http://a.example/x"),
        (b"location: x#f", "http://a.example/x#f"),
        (b"location:", "http://a.example/"),
    ] {
        let (network, _server) = network(move |_| raw(302, headers)).await;
        let mut caller = Caller::new(&network, &["http=http://*"]);
        let answer = caller.get("http://a.example/").await.unwrap();
        let locations: Vec<_> = answer.headers.get_all("location").iter().collect();
        assert_eq!(locations, [read], "{}", headers.escape_ascii());
    }
}

#[tokio::test]
async fn ambiguous_redirect_is_refused() {
    for headers in [
        b"location: /x\r\nlocation: http://b.example/x".as_slice(),
        b"location: http://user@b.example/x",
        b"location: http://b.example:0/x",
        b"location: http://",
    ] {
        for status in [300, 301, 302, 303, 305, 306, 307, 308] {
            let (network, server) = network(move |_| raw(status, headers)).await;
            let mut caller = Caller::new(&network, &["http=http://*"]);
            let error = caller.get("http://a.example/").await.unwrap_err();
            assert!(matches!(error, Error::HttpProtocolError), "{error}");
            let denials = caller.denials();
            assert!(
                denials[0]
                    .0
                    .starts_with("GET http://a.example/ (the response was refused: ")
            );
            // A client that still guesses a target sends no credentials.
            let next = request("GET", "http://b.example/x", &[("authorization", "Bearer t")]);
            caller.send(next).await.ok();
            assert!(!server.heads().last().unwrap().contains("Bearer"), "{denials:?}");
        }
    }
}

#[tokio::test]
async fn refresh_header_never_reaches_the_guest() {
    let (network, server) = network(|_| raw(200, b"refresh: 0; url=http://b.example/x")).await;
    let mut caller = Caller::new(&network, &["http=http://*"]);
    let answer = caller.get("http://a.example/").await.unwrap();
    assert!(!answer.headers.contains_key("refresh"));
    let next = request("GET", "http://b.example/x", &[("authorization", "Bearer t")]);
    caller.send(next).await.unwrap();
    assert!(!server.heads()[1].contains("Bearer"));
}

#[tokio::test]
async fn every_hop_is_checked_like_a_first_request() {
    for location in [
        "http://127.0.0.1/",
        "http://169.254.169.254/latest",
        "http://localhost/",
    ] {
        let (network, _server) = network(move |_| found(location)).await;
        let mut caller = Caller::new(&network, &["http=http://*"]);
        caller.get("http://a.example/").await.unwrap();
        let error = caller.get(location).await.unwrap_err();
        assert!(matches!(error, Error::HttpRequestDenied), "{location}: {error}");
        assert_eq!(caller.denials().pop().unwrap().1, None, "{location}");
        assert_eq!(network.connected().len(), 1);
    }
}

#[tokio::test]
async fn grant_is_proposed_for_a_redirect_to_a_public_host_alone() {
    for (location, proposed) in [
        ("http://b.example/x", Some("http=http://b.example")),
        ("http://10.0.0.1/x", None),
        ("http://nas.local/x", None),
    ] {
        let (network, _server) = network(move |_| found(location)).await;
        let mut caller = Caller::new(&network, &["http=http://a.example"]);
        caller.get("http://a.example/").await.unwrap();
        caller.get(location).await.unwrap_err();
        let denial = caller.denials().pop().unwrap();
        assert_eq!(denial.1.as_deref(), proposed, "{location}");
        // The same request is proposed if nobody redirected to it.
        let mut caller = Caller::new(&network, &["http=http://a.example"]);
        caller.get(location).await.unwrap_err();
        assert!(caller.denials().pop().unwrap().1.is_some(), "{location}");
    }
}

#[tokio::test]
async fn five_redirects_are_followed_and_the_sixth_is_refused() {
    let (network, server) = network(|head| {
        let number: u32 = head.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        found(&format!("/{}", number + 1))
    })
    .await;
    let mut caller = Caller::new(&network, &["http=http://a.example"]);
    for number in 0..=5 {
        let answer = caller.get(&format!("http://a.example/{number}")).await.unwrap();
        assert_eq!(answer.status, 302);
    }
    let error = caller.get("http://a.example/6").await.unwrap_err();
    assert!(matches!(error, Error::LoopDetected), "{error}");
    assert_eq!(server.heads().len(), 6);
    assert_eq!(
        caller.denials(),
        [(
            "GET http://a.example/6 (more than 5 redirects in a row)".to_owned(),
            None
        )]
    );
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    let (network, server) = network(|head| match head.contains("/start") {
        true if head.contains("a.example") => found("http://b.example/next"),
        true => found("/next"),
        false => ok(""),
    })
    .await;
    let headers = [("authorization", "Bearer t"), ("cookie", "c=1"), ("x-other", "y")];
    for (start, next, kept) in [
        ("http://a.example/start", "http://b.example/next", false),
        ("http://b.example/start", "http://b.example/next", true),
    ] {
        let mut caller = Caller::new(&network, &["http=http://*"]);
        caller.send(request("GET", start, &headers)).await.unwrap();
        caller.send(request("GET", next, &headers)).await.unwrap();
        let head = server.heads().pop().unwrap();
        assert_eq!(head.contains("authorization: Bearer t"), kept, "{head}");
        assert_eq!(head.contains("cookie: c=1"), kept, "{head}");
        assert!(head.contains("x-other: y"), "{head}");
    }
}

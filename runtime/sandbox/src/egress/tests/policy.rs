//! Grants, addresses and recorded denials.

use std::sync::Arc;

use toolcell_core::Grant;
use toolcell_core::policy::Limits;
use wasmtime_wasi_http::{Error, WasiHttpHooks};

use super::fake_network::{Caller, FakeNetwork, Server, Setup, get, ok, request};
use crate::cell::receipt::ReceiptRecorder;
use crate::egress::{BoundSecrets, Egress, HostNetwork, Transport};

#[tokio::test]
async fn granted_request_reaches_its_host_and_is_recorded() {
    let network = Arc::<FakeNetwork>::default();
    let server = Server::start(|_| ok("hello")).await;
    network.name("example.com", &[&["93.184.215.14"]]);
    network.route("93.184.215.14", server.address);
    let mut caller = Caller::new(&network, &["http=http://example.com"]);

    let answer = caller.get("http://EXAMPLE.com/a/../b?q=1").await.unwrap();

    assert_eq!(
        (answer.status, answer.body.unwrap().as_ref()),
        (200, b"hello".as_slice())
    );
    assert_eq!(
        server.heads(),
        ["GET /b?q=1 HTTP/1.1\r\nhost: example.com\r\n\r\n"]
    );
    assert_eq!(network.connected(), ["93.184.215.14:80"]);
    assert_eq!(caller.recorder.lock().hosts, ["example.com:80"]);
    assert_eq!(caller.denials(), []);
}

#[tokio::test]
async fn request_without_grant_is_neither_resolved_nor_connected() {
    let network = Arc::<FakeNetwork>::default();
    network.name("api.example.com", &[&["93.184.215.14"]]);
    let mut caller = Caller::new(&network, &["http=other.example"]);

    let error = caller
        .get("https://api.example.com/v1?key=secret")
        .await
        .unwrap_err();

    assert!(matches!(error, Error::HttpRequestDenied), "{error}");
    assert_eq!(*network.lookups.lock().unwrap(), [] as [&str; 0]);
    assert_eq!(network.connected(), [] as [&str; 0]);
    assert_eq!(
        caller.denials(),
        [(
            "GET https://api.example.com/v1".to_owned(),
            Some("http=https://api.example.com".to_owned())
        )]
    );
    assert!(caller.recorder.lock().hosts.is_empty());
}

#[tokio::test]
async fn name_with_private_address_is_refused_with_a_hint() {
    for answer in [
        "127.0.0.1",
        "169.254.169.254",
        "10.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
        "fd00::1",
    ] {
        let network = Arc::<FakeNetwork>::default();
        network.name("example.com", &[&[answer]]);
        let mut caller = Caller::new(&network, &["http=example.com"]);
        let error = caller.get("https://example.com/").await.unwrap_err();
        assert!(
            matches!(error, Error::DestinationIpProhibited),
            "{answer}: {error}"
        );
        assert_eq!(network.connected(), [] as [&str; 0]);
        assert_eq!(
            caller.denials(),
            [(
                "GET https://example.com/".to_owned(),
                Some("http-private=https://example.com".to_owned())
            )],
            "{answer}"
        );
    }
}

#[tokio::test]
async fn hint_of_a_denial_allows_the_same_request() {
    let server = Server::start(|_| ok("inside")).await;
    let network = Arc::<FakeNetwork>::default();
    network.name("intranet.example", &[&["10.1.2.3"]]);
    network.route("10.1.2.3", server.address);
    let mut caller = Caller::new(&network, &["http=*"]);
    let url = "http://intranet.example/";
    let mut lines = vec!["http=*".to_owned()];
    for _ in 0..3 {
        if caller.get(url).await.is_ok() {
            break;
        }
        let (_, hint) = caller.denials().remove(0);
        lines.push(hint.unwrap());
        caller = Caller::new(&network, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
    assert_eq!(
        lines,
        [
            "http=*",
            "http=http://intranet.example",
            "http-private=http://intranet.example"
        ]
    );
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn only_public_addresses_of_several_are_tried() {
    let server = Server::start(|_| ok("")).await;
    let network = Arc::<FakeNetwork>::default();
    network.name("example.com", &[&["127.0.0.1", "8.8.8.8", "::1", "9.9.9.9"]]);
    network.route("9.9.9.9", server.address);
    network.route("127.0.0.1", server.address);
    let mut caller = Caller::new(&network, &["http=http://example.com"]);
    caller.get("http://example.com/").await.unwrap();
    assert_eq!(network.connected(), ["8.8.8.8:80", "9.9.9.9:80"]);
}

#[tokio::test]
async fn checked_address_is_the_one_connected_to() {
    let server = Server::start(|_| ok("")).await;
    let network = Arc::<FakeNetwork>::default();
    network.name("example.com", &[&["8.8.8.8"], &["127.0.0.1"]]);
    network.route("8.8.8.8", server.address);
    network.route("127.0.0.1", server.address);
    let mut caller = Caller::new(&network, &["http=http://example.com"]);
    caller.get("http://example.com/").await.unwrap();
    assert_eq!(*network.lookups.lock().unwrap(), ["example.com"]);
    assert!(caller.get("http://example.com/").await.is_err());
    assert_eq!(network.connected(), ["8.8.8.8:80"]);
}

#[tokio::test]
async fn ambiguous_requests_are_never_sent() {
    let network = Arc::<FakeNetwork>::default();
    network.name("example.com", &[&["8.8.8.8"]]);
    let mut caller = Caller::new(&network, &["http=http://*"]);
    for (headers, url) in [
        (&[("host", "other.example")][..], "http://example.com/"),
        (
            &[("host", "example.com"), ("host", "other.example")],
            "http://example.com/",
        ),
        (
            &[("content-length", "1"), ("content-length", "2")],
            "http://example.com/",
        ),
        (&[("content-length", "+1")], "http://example.com/"),
        (
            &[("content-length", "99999999999999999999")],
            "http://example.com/",
        ),
        (&[("transfer-encoding", "chunked")], "http://example.com/"),
        (&[("connection", "upgrade")], "http://example.com/"),
        (&[("proxy-authorization", "Basic x")], "http://example.com/"),
        (&[], "http://user:pw@example.com/"),
        (&[], "http://example.com@127.0.0.1/"),
    ] {
        let result = caller.send(request("GET", url, headers)).await;
        assert!(result.is_err(), "{headers:?} {url}");
    }
    let connect = caller.send(request("CONNECT", "http://example.com/", &[])).await;
    assert!(matches!(connect, Err(Error::HttpRequestMethodInvalid)));
    assert_eq!(network.connected(), [] as [&str; 0]);
}

#[test]
fn proxy_of_the_environment_is_not_used() {
    // This test again, in a process with unreachable proxies.
    const INSIDE: &str = "TOOLCELL_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(request_goes_straight_to_its_host());
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again
        .args([
            "--exact",
            "egress::tests::policy::proxy_of_the_environment_is_not_used",
        ])
        .env(INSIDE, "1");
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        again
            .env(name, "http://127.0.0.1:1")
            .env(name.to_lowercase(), "http://127.0.0.1:1");
    }
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

async fn request_goes_straight_to_its_host() {
    let server = Server::start(|_| ok("direct")).await;
    let line = format!("http=http://127.0.0.1:{}", server.address.port());
    let Ok(Grant::Http(grant)) = line.parse() else {
        panic!("{line}")
    };
    let outside = Transport::new(Arc::new(HostNetwork), &[]);
    let egress = Arc::new(Egress::new(
        &[grant],
        &Limits::default(),
        BoundSecrets::default(),
        outside,
    ));
    let mut hooks = egress.call(ReceiptRecorder::default());
    let url = format!("http://{}/x", server.address);
    let reply = hooks.send_request(get(&url), None, Box::new(async { Ok(()) }));
    let (response, _driver) = Box::into_pin(reply).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(server.heads()[0].starts_with("GET /x HTTP/1.1\r\n"));
}

#[tokio::test]
async fn network_failures_have_specific_error_codes() {
    let network = Arc::<FakeNetwork>::default();
    network.name("refused.example", &[&["8.8.8.8"]]);
    network.name("empty.example", &[&[]]);
    let mut caller = Caller::new(&network, &["http=http://*"]);
    let error = caller.get("http://refused.example/").await.unwrap_err();
    assert!(matches!(error, Error::ConnectionRefused), "{error}");
    let error = caller.get("http://empty.example/").await.unwrap_err();
    assert!(matches!(error, Error::DestinationNotFound), "{error}");
    let error = caller.get("http://unknown.example/").await.unwrap_err();
    assert!(matches!(error, Error::DnsError { .. }), "{error}");
}

#[tokio::test]
async fn name_that_resolves_to_a_denied_address_is_refused() {
    let network = Arc::<FakeNetwork>::default();
    let server = Server::start(|_| ok("hello")).await;
    network.name("example.com", &[&["93.184.215.14"]]);
    network.name("other.example", &[&["93.184.215.15"]]);
    network.route("93.184.215.14", server.address);
    network.route("93.184.215.15", server.address);
    let Ok(Grant::DenyHttp(denial)) = "deny-http=93.184.215.14".parse() else {
        panic!("no denial")
    };
    let grants = ["http=http://example.com", "http=http://other.example"];
    let mut setup = Setup::new(&network, &grants);
    setup.denials.push(denial);
    let mut caller = setup.caller();

    let error = caller.get("http://example.com/").await.unwrap_err();

    assert!(matches!(error, Error::DestinationIpProhibited), "{error}");
    let denials = caller.recorder.lock().denials.clone();
    assert_eq!(denials[0].denied_by.as_deref(), Some("deny-http=93.184.215.14"));
    assert!(server.heads().is_empty());
    assert_eq!(caller.get("http://other.example/").await.unwrap().status, 200);
}

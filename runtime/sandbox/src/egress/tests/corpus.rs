//! Addresses, spellings and tricks listed in `tests/corpora/ssrf`.

use std::sync::Arc;

use serde_json::Value;
use toolcell_core::policy::HttpGrant;
use wasmtime_wasi_http::Error;

use super::fake_network::{Caller, FakeNetwork, Server, Setup, found, get, ok, request};
use crate::egress::rules::Rules;
use crate::egress::target::Target;

fn rows(file: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/corpora/ssrf/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

/// The widest policy without a host name: every public host over both schemes on the default ports.
fn open_policy() -> Rules {
    Rules::new(&[HttpGrant {
        host: "*".into(),
        ports: vec![80, 443, 8080, 8443],
        schemes: vec!["http".into(), "https".into()],
        methods: Vec::new(),
        path: String::new(),
        private: false,
    }])
}

/// Checks every URL of one category against the expectation in the list.
fn urls_of(category: &str) {
    let rules = open_policy();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for row in rows("urls.json").iter().filter(|row| row["cat"] == category) {
        seen += 1;
        let url = row["url"].as_str().unwrap();
        let target = Target::parse(url);
        let allowed = target.as_ref().is_ok_and(|t| rules.scope("GET", t).is_some());
        let fits = match row["expect"].as_str().unwrap() {
            "allow" => allowed,
            "deny" => !allowed,
            "invalid" => target.is_err(),
            other => panic!("{other}"),
        };
        if !fits {
            wrong.push(format!("{row} gave {target:?}, allowed: {allowed}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 0, "no URL of the category {category}");
}

/// One test for each category of URLs.
macro_rules! url_tests {
    ($($name:ident = $category:literal)*) => {
        const CATEGORIES: &[&str] = &[$($category),*];
        mod urls {
            $(
                #[test]
                fn $name() {
                    super::urls_of($category);
                }
            )*
        }
    };
}

url_tests! {
    every_spelling_of_an_ipv4_address_is_seen_through = "v4-encoding"
    every_range_of_ipv4_that_is_not_public_is_denied = "v4-range"
    every_form_of_an_inner_ipv6_address_is_denied = "v6"
    names_of_this_machine_and_of_inner_networks_are_denied = "hostname"
    schemes_other_than_http_are_denied = "scheme"
    urls_that_parsers_read_in_two_ways_are_denied = "parser-confusion"
    invalid_url_is_rejected = "invalid"
    ports_that_are_not_granted_are_denied = "port"
    services_of_metadata_are_denied = "cloud-metadata"
    urls_with_a_name_and_a_password_are_denied = "userinfo"
    public_hosts_are_allowed = "control"
}

/// One test for each case that requires a server or a look-up.
macro_rules! dynamic_tests {
    ($($name:ident = $id:literal: $check:ident)*) => {
        const CASES: &[&str] = &[$($id),*];
        mod dynamic {
            $(
                #[tokio::test]
                async fn $name() {
                    let rows = super::rows("dynamic.json");
                    super::$check(rows.iter().find(|row| row["id"] == $id).unwrap()).await;
                }
            )*
        }
    };
}

dynamic_tests! {
    redirect_to_loopback_is_denied = "redir-301-loopback": redirect_denied
    redirect_to_a_file_is_denied = "redir-file": redirect_denied
    redirect_with_backslashes_is_denied = "redir-relative-backslash": redirect_denied
    redirect_to_another_origin_loses_its_credentials = "redir-cross-origin-auth": credentials_dropped
    name_with_changing_address_uses_the_checked_one = "dns-rebind-ttl0": answers
    address_mapped_into_ipv6_is_denied = "dns-aaaa-mapped": answers
    public_name_for_the_service_of_metadata_is_denied = "dns-nip-io": answers
    of_a_mixed_answer_the_private_address_is_never_tried = "connect-happy-eyeballs": answers
    body_in_endless_chunks_is_cut = "body-chunked-endless": endless_body
    flood_of_headers_is_an_error = "header-flood": header_flood
    frames_of_http_2_are_a_broken_answer = "http2-rapid": only_http1
}

#[test]
fn every_row_of_the_lists_belongs_to_a_test() {
    let of = |file, key: &str| {
        let mut all: Vec<String> = rows(file)
            .iter()
            .map(|r| r[key].as_str().unwrap().to_owned())
            .collect();
        all.sort();
        all.dedup();
        all
    };
    let sorted = |names: &[&str]| {
        let mut names: Vec<String> = names.iter().map(ToString::to_string).collect();
        names.sort();
        names
    };
    assert_eq!(of("urls.json", "cat"), sorted(CATEGORIES));
    assert_eq!(of("dynamic.json", "id"), sorted(CASES));
    assert!(rows("urls.json").len() > 100);
}

/// `chain`: the first URL is answered with a redirect, and the guest follows it.
async fn redirect_denied(row: &Value) {
    let chain: Vec<&str> = row["chain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s.as_str().unwrap())
        .collect();
    let (_, location) = chain[1].split_once(' ').unwrap();
    let location = location.to_owned();
    let answer = found(&location);
    let server = Server::start(move |_| answer.clone()).await;
    let network = Arc::<FakeNetwork>::default();
    network.name("pub.example", &[&["8.8.8.8"]]);
    network.route("8.8.8.8", server.address);
    network.route("127.0.0.1", server.address);
    let mut caller = Caller::new(&network, &["http=http://*", "http=https://*"]);
    let first = "http://pub.example/";
    caller.get(first).await.unwrap();
    // The client's interpretation of the location; a location that is not an HTTP URL does not even become a request.
    if let Ok((next, _)) = Target::parse(first).unwrap().join(location.as_bytes()) {
        let error = caller.get(&next.to_string()).await.unwrap_err();
        assert!(matches!(error, Error::HttpRequestDenied), "{row}: {error}");
    }
    assert_eq!(network.connected(), ["8.8.8.8:80"], "{row}");
}

async fn credentials_dropped(_row: &Value) {
    let server = Server::start(|head| match head.contains("host: a.example") {
        true => found("http://b.example/"),
        false => ok(""),
    })
    .await;
    let network = Arc::<FakeNetwork>::default();
    for (name, ip) in [("a.example", "8.8.8.8"), ("b.example", "9.9.9.9")] {
        network.name(name, &[&[ip]]);
        network.route(ip, server.address);
    }
    let mut caller = Caller::new(&network, &["http=http://*"]);
    let headers = [("authorization", "Bearer t"), ("cookie", "c=1")];
    for url in ["http://a.example/", "http://b.example/"] {
        caller.send(request("GET", url, &headers)).await.unwrap();
    }
    let heads = server.heads();
    assert!(heads[0].contains("authorization") && heads[0].contains("cookie"));
    assert!(!heads[1].contains("authorization") && !heads[1].contains("cookie"));
}

/// `dns`: results of successive look-ups of one name. In all cases only public addresses are tried.
async fn answers(row: &Value) {
    let lists: Vec<Vec<&str>> = row["dns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| match answer {
            Value::String(ip) => vec![ip.as_str()],
            Value::Array(ips) => ips.iter().map(|ip| ip.as_str().unwrap()).collect(),
            other => panic!("{other}"),
        })
        .collect();
    let server = Server::start(|_| ok("")).await;
    let network = Arc::<FakeNetwork>::default();
    network.name("x.example", &lists.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for ip in lists.iter().flatten() {
        network.route(ip, server.address);
    }
    let mut caller = Caller::new(&network, &["http=http://*"]);
    for _ in 0..=lists.len() {
        let public = network.connected().len();
        match caller.get("http://x.example/").await {
            Ok(answer) => assert_eq!((answer.status, network.connected().len()), (200, public + 1)),
            Err(error) => assert!(matches!(error, Error::DestinationIpProhibited), "{row}: {error}"),
        }
    }
    assert!(
        network.connected().iter().all(|address| address == "8.8.8.8:80"),
        "{row}: {:?}",
        network.connected()
    );
}

async fn endless_body(_row: &Value) {
    let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..64 {
        answer.extend_from_slice(format!("400\r\n{}\r\n", "x".repeat(0x400)).as_bytes());
    }
    let mut caller = public(answer, |setup| setup.limits.http_body = 32 << 10).await;
    let answer = caller.get("http://x.example/").await.unwrap();
    assert!(matches!(
        answer.body,
        Err(Error::HttpResponseBodySize(Some(32_768)))
    ));
}

async fn header_flood(_row: &Value) {
    let headers = "a: b\r\n".repeat(100_000);
    let answer = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
    let mut caller = public(answer.into_bytes(), |_| {}).await;
    let error = caller.get("http://x.example/").await.unwrap_err();
    assert!(
        matches!(error, Error::HttpResponseHeaderSectionSize(_)),
        "{error}"
    );
}

/// HTTP/2 is not supported: its frames are an invalid response.
async fn only_http1(_row: &Value) {
    let frames = [
        &[0u8, 0, 0, 4, 0, 0, 0, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(1000),
    ]
    .concat();
    let mut caller = public(frames, |_| {}).await;
    assert!(caller.send(get("http://x.example/")).await.is_err());
}

async fn public(answer: Vec<u8>, adjust: impl FnOnce(&mut Setup)) -> Caller {
    let server = Server::start(move |_| answer.clone()).await;
    let network = Arc::<FakeNetwork>::default();
    network.name("x.example", &[&["8.8.8.8"]]);
    network.route("8.8.8.8", server.address);
    let mut setup = Setup::new(&network, &["http=http://*"]);
    adjust(&mut setup);
    setup.caller()
}

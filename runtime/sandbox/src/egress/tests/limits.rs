//! Both sides of every limit.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use toolcell_core::Redactor;
use wasmtime_wasi_http::{Error, RequestOptions, WasiHttpHooks as _};

use super::fake_network::{Caller, FakeNetwork, Server, Setup, get, ok, request};
use crate::cell::memory::objects::{CONNECTION, REQUEST};
use crate::cell::memory::{MemoryAccount, MemoryPool};
use crate::cell::receipt::ReceiptRecorder;
use crate::egress::BODY_CHUNK;
use crate::egress::shared::Timeouts;

const URL: &str = "http://example.com/";

fn network(server: &Server) -> Arc<FakeNetwork> {
    let network = Arc::<FakeNetwork>::default();
    network.name("example.com", &[&["8.8.8.8"]]);
    network.route("8.8.8.8", server.address);
    network
}

fn setup(server: &Server) -> Setup {
    Setup::new(&network(server), &["http=http://example.com"])
}

#[tokio::test]
async fn request_beyond_the_limit_of_a_call_is_refused() {
    let server = Server::start(|_| ok("")).await;
    let mut setup = setup(&server);
    setup.limits.http_requests = 2;
    let mut caller = setup.caller();
    assert!(caller.get(URL).await.is_ok());
    assert!(caller.get(URL).await.is_ok());
    let error = caller.get(URL).await.unwrap_err();
    let Error::InternalError(Some(told)) = error else {
        panic!("{error}");
    };
    assert_eq!(told, "more than 2 requests in one call, the limit of this tool");
    assert_eq!(
        caller.denials(),
        [("more than 2 requests in one call".to_owned(), None)]
    );
    // The next call of the tool starts anew.
    caller.hooks = caller.egress.call(caller.recorder.clone());
    assert!(caller.get(URL).await.is_ok());
}

#[tokio::test]
async fn request_that_overrides_its_own_method_or_path_is_refused() {
    let server = Server::start(|_| ok("")).await;
    let mut caller = setup(&server).caller();
    for name in [
        "x-http-method-override",
        "x_http_method",
        "x-original-url",
        "x-forwarded-host",
    ] {
        let error = caller.send(request("GET", URL, &[(name, "DELETE")])).await;
        assert!(
            matches!(error, Err(Error::HttpRequestDenied)),
            "{name}: {error:?}"
        );
    }
    let denials = caller.denials();
    assert_eq!(denials.len(), 4);
    assert!(
        denials.iter().all(|(what, _)| what.contains("(the header `x")),
        "{denials:?}"
    );
    assert!(
        caller
            .send(request("GET", URL, &[("x-forwarded-for", "::1")]))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn request_headers_beyond_32_kib_are_refused() {
    let server = Server::start(|_| ok("")).await;
    let mut caller = setup(&server).caller();
    let value = "v".repeat((32 << 10) - "x-big".len());
    let fits = caller.send(request("GET", URL, &[("x-big", &value)])).await;
    assert_eq!(fits.unwrap().status, 200);
    let value = format!("{value}v");
    let error = caller.send(request("GET", URL, &[("x-big", &value)])).await;
    assert!(
        matches!(error, Err(Error::HttpRequestHeaderSectionSize(Some(n))) if n == (32 << 10) + 1),
        "{error:?}"
    );
}

#[tokio::test]
async fn url_beyond_8_kib_is_refused() {
    let server = Server::start(|_| ok("")).await;
    let mut caller = setup(&server).caller();
    let url = format!("{URL}{}", "a".repeat((8 << 10) - URL.len()));
    assert_eq!(caller.get(&url).await.unwrap().status, 200);
    let error = caller.get(&format!("{url}a")).await.unwrap_err();
    assert!(matches!(error, Error::HttpRequestUriTooLong), "{error}");
}

#[tokio::test]
async fn body_beyond_its_limit_is_cut_in_every_framing() {
    let server = Server::start(|head| {
        let length: usize = head.split(['/', ' ']).nth(3).unwrap().parse().unwrap();
        let body = "b".repeat(length);
        if head.contains("/chunked/") {
            let half = length / 2;
            format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{half:x}\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
                &body[..half],
                length - half,
                &body[half..]
            )
            .into_bytes()
        } else if head.contains("/until-close/") {
            format!("HTTP/1.1 200 OK\r\n\r\n{body}").into_bytes()
        } else {
            ok(&body)
        }
    })
    .await;
    let mut setup = setup(&server);
    setup.limits.http_body = 1000;
    let mut caller = setup.caller();
    for framing in ["length", "chunked", "until-close"] {
        let answer = caller.get(&format!("{URL}{framing}/1000")).await.unwrap();
        assert_eq!(answer.body.unwrap().len(), 1000, "{framing}");
        let error = match caller.get(&format!("{URL}{framing}/1001")).await {
            Ok(answer) => answer.body.unwrap_err(),
            Err(error) => error,
        };
        assert!(
            matches!(error, Error::HttpResponseBodySize(Some(_))),
            "{framing}: {error}"
        );
    }
}

#[tokio::test]
async fn announced_length_alone_is_not_limited() {
    let server =
        Server::start(|_| b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000000\r\n\r\n".to_vec()).await;
    let mut caller = setup(&server).caller();
    let head = caller.send(request("HEAD", URL, &[])).await.unwrap();
    assert_eq!(head.headers["content-length"], "10000000000000");
    let error = caller.get(URL).await.unwrap_err();
    assert!(
        matches!(error, Error::HttpResponseBodySize(Some(10_000_000_000_000))),
        "{error}"
    );
}

#[tokio::test]
async fn response_headers_are_limited_in_number_and_size() {
    let server = Server::start(|head| {
        let mut parts = head.split(['/', ' ']).skip(2);
        let count: usize = parts.next().unwrap().parse().unwrap();
        let length: usize = parts.next().unwrap().parse().unwrap();
        let mut answer = String::from("HTTP/1.1 204 No Content\r\n");
        for i in 0..count {
            answer.push_str(&format!("{i:05}: {}\r\n", "v".repeat(length)));
        }
        (answer + "\r\n").into_bytes()
    })
    .await;
    let mut caller = setup(&server).caller();
    let mut ask = async |count: usize, length: usize| {
        caller
            .get(&format!("{URL}{count}/{length}"))
            .await
            .map(|a| a.headers.len())
    };
    assert_eq!(ask(256, 1).await.unwrap(), 256);
    assert!(matches!(
        ask(257, 1).await,
        Err(Error::HttpResponseHeaderSectionSize(_))
    ));
    assert_eq!(ask(64, 1019).await.unwrap(), 64);
    assert!(matches!(
        ask(64, 1020).await,
        Err(Error::HttpResponseHeaderSectionSize(Some(_)))
    ));
    assert!(ask(1, 1 << 20).await.is_err());
    assert!(ask(100_000, 1).await.is_err());
}

#[tokio::test]
async fn tool_has_at_most_six_connections() {
    let server = Server::start(|_| ok("body")).await;
    let mut setup = setup(&server);
    setup.timeouts.connect = Duration::from_millis(300);
    let mut caller = setup.caller();
    let mut open = Vec::new();
    for _ in 0..6 {
        open.push(caller.open(get(URL), None).await.unwrap());
    }
    let error = caller.open(get(URL), None).await.unwrap_err();
    assert!(matches!(error, Error::ConnectionLimitReached), "{error}");
    // Another call of the same tool shares the six.
    let mut other = caller.egress.call(caller.recorder.clone());
    std::mem::swap(&mut other, &mut caller.hooks);
    assert!(caller.open(get(URL), None).await.is_err());
    // A completely read body releases its connection.
    open.pop().unwrap().into_body().collect().await.unwrap();
    assert!(caller.open(get(URL), None).await.is_ok());
}

/// A server that accepts, sends the given bytes, then stays silent.
async fn silent(says: &'static [u8]) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::at(address);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(says).await;
            held.push(stream);
        }
    });
    server
}

#[tokio::test]
async fn silent_server_does_not_block_the_call() {
    let quick = Duration::from_millis(50);
    let no_head = silent(b"HTTP/1.1 200 OK\r\n").await;
    let mut setup_head = setup(&no_head);
    setup_head.timeouts = Timeouts {
        first_byte: quick,
        ..Timeouts::default()
    };
    let error = setup_head.caller().get(URL).await.unwrap_err();
    assert!(matches!(error, Error::ConnectionReadTimeout), "{error}");

    let half_body = silent(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
    let mut setup_body = setup(&half_body);
    setup_body.timeouts = Timeouts {
        between_bytes: quick,
        ..Timeouts::default()
    };
    let answer = setup_body.caller().get(URL).await.unwrap();
    assert!(matches!(answer.body, Err(Error::ConnectionReadTimeout)));
}

#[tokio::test]
async fn guest_can_shorten_but_not_lengthen_a_timeout() {
    let server = silent(b"").await;
    let mut setup = setup(&server);
    setup.timeouts.first_byte = Duration::from_millis(50);
    let mut caller = setup.caller();
    for asked in [Duration::ZERO, Duration::from_secs(3600), Duration::MAX] {
        let options = RequestOptions {
            connect_timeout: None,
            first_byte_timeout: Some(asked),
            between_bytes_timeout: Some(asked),
        };
        let error = caller.open(get(URL), Some(options)).await.unwrap_err();
        assert!(
            matches!(error, Error::ConnectionReadTimeout),
            "{asked:?}: {error}"
        );
    }
    let options = RequestOptions {
        connect_timeout: Some(Duration::ZERO),
        ..RequestOptions::default()
    };
    assert!(caller.open(get(URL), Some(options)).await.is_err());
}

#[tokio::test]
async fn response_that_violates_the_protocol_is_an_error() {
    for answer in [
        &b"HTTP/2.0 200\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
    ] {
        let server = Server::start(move |_| answer.to_vec()).await;
        let mut caller = setup(&server).caller();
        let failed = match caller.get(URL).await {
            Ok(answer) => answer.body.is_err(),
            Err(_) => true,
        };
        assert!(failed, "{:?}", String::from_utf8_lossy(answer));
    }
}

#[tokio::test]
async fn endless_body_is_cut_while_it_is_received() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::at(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 1024];
        let _ = stream.read(&mut buffer).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
    });
    let mut setup = setup(&server);
    setup.limits.http_body = 1 << 20;
    let answer = setup.caller().get(URL).await.unwrap();
    assert!(matches!(
        answer.body,
        Err(Error::HttpResponseBodySize(Some(1_048_576)))
    ));
}

#[test]
fn guest_may_not_wait_longer_than_the_defaults() {
    let defaults = Timeouts::default();
    assert!(defaults.connect <= Duration::from_secs(10));
    assert!(defaults.first_byte <= Duration::from_secs(60));
    assert!(defaults.between_bytes <= Duration::from_secs(30));
    assert_eq!(Caller::new(&Arc::default(), &[]).egress.body_limit, 16 << 20);
}

#[tokio::test]
async fn request_and_connection_count_as_memory_of_the_call() {
    let server = Server::start(|_| ok("body")).await;
    // Recorded data of a request is kept until the call ends.
    let kept = (16 << 10) + 1_024;
    for (memory, fits) in [(REQUEST + CONNECTION + kept, true), (REQUEST + CONNECTION, false)] {
        let mut caller = setup(&server).caller();
        let account = MemoryAccount::new(memory, MemoryPool::new(u64::MAX));
        caller.recorder = ReceiptRecorder::new(&account, &Redactor::default());
        caller.hooks = caller.egress.call(caller.recorder.clone());
        let response = caller.open(get(URL), None).await;
        if !fits {
            assert!(
                matches!(response, Err(Error::InternalError(Some(_)))),
                "{response:?}"
            );
            continue;
        }
        let held = memory - account.left();
        assert!(held >= REQUEST + CONNECTION, "{held}");
        drop(response);
        let held = memory - account.left();
        assert!(held <= kept, "{held}");
    }
}

#[tokio::test]
async fn request_body_is_queued_in_pieces_of_the_priced_size() {
    let network = Arc::<FakeNetwork>::default();
    let mut caller = Caller::new(&network, &["http=example.com"]);
    assert_eq!(caller.hooks.p2_outgoing_body_chunk_size(), BODY_CHUNK);
}

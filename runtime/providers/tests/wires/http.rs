//! HTTP behaviour shared by all providers, tested with Chat Completions: retries, timeouts, broken streams, proxies,
//! TLS.

use std::time::Duration;

use toolcell_core::ProviderError;
use toolcell_core::provider::{Delta, ProviderErrorKind, WaitLimit};
use toolcell_providers::openai::OpenAi;
use toolcell_providers::{Connection, HttpOptions};

use crate::conversation::*;
use crate::loopback::{CERTIFICATE, Reply, Server};
use crate::openai::{HELLO, model};

#[tokio::test]
async fn stream_cut_before_its_end_is_truncated() {
    let whole: String = HELLO.iter().map(|e| format!("data: {e}\n\n")).collect();
    let finished = whole.find(r#""finish_reason""#).unwrap();
    let first_text = whole.find("Gr").unwrap();
    let mut options = http();
    options.retry.retries = 0;
    for cut in (0..finished).step_by(23).chain([first_text, finished]) {
        for broken in [false, true] {
            let reply = Reply::sse(whole.clone()).cut_at(cut);
            let server = Server::start([if broken { reply.then_break() } else { reply }]).await;
            let (_, end) = play(&model(&server, options.clone()), hello()).await;
            let error = end.unwrap_err();
            assert_eq!(error.kind, ProviderErrorKind::Truncated, "cut at {cut}: {error}");
        }
    }
}

#[tokio::test]
async fn stream_broken_before_the_first_output_is_retried() {
    let server = Server::start([Reply::events(&HELLO[..1]), Reply::events(HELLO)]).await;
    let (deltas, end) = play(&model(&server, http()), hello()).await;
    assert_eq!(end.unwrap().parts, [text("Grüß Gott 🦀")]);
    assert_eq!(retries(&deltas), 1);
    assert!(matches!(deltas[0], Delta::Retry { attempt: 2, .. }));
}

#[tokio::test]
async fn stream_broken_after_the_first_output_is_not_retried() {
    let server = Server::start([Reply::events(&HELLO[..2]), Reply::events(HELLO)]).await;
    let (deltas, end) = play(&model(&server, http()), hello()).await;
    assert_eq!(end.unwrap_err().kind, ProviderErrorKind::Truncated);
    assert_eq!(deltas, [Delta::Text("Grüß ".into())]);
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn error_in_a_stream_is_retried_only_before_output() {
    let overloaded = r#"{"error":{"message":"Overloaded","code":529}}"#;
    let server = Server::start([Reply::events(&[overloaded]), Reply::events(HELLO)]).await;
    let (deltas, end) = play(&model(&server, http()), hello()).await;
    assert!(end.is_ok());
    assert_eq!(retries(&deltas), 1);

    let server = Server::start([Reply::events(&[HELLO[1], overloaded]), Reply::events(HELLO)]).await;
    let (_, end) = play(&model(&server, http()), hello()).await;
    let error = end.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ProviderErrorKind::Unavailable, "Overloaded")
    );
}

#[tokio::test]
async fn rejected_key_is_redacted_from_the_error() {
    let body = r#"{"error":{"message":"Incorrect API key provided: sk-planted-secret.","type":"invalid_request_error","code":"invalid_api_key"}}"#;
    let server = Server::start([Reply::json(401, body)]).await;
    let provider = model(&server, http());
    let (deltas, end) = play(&provider, hello()).await;
    let error = end.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Unauthorized);
    assert_eq!(error.status, Some(401));
    assert_eq!(error.message, "Incorrect API key provided: ***.");
    assert_eq!(deltas, []);
    assert!(!format!("{provider:?}").contains("planted"), "{provider:?}");
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let slow =
        Reply::json(429, r#"{"error":{"message":"Rate limit reached"}}"#).header("retry-after-ms", "15");
    let server = Server::start([slow.clone(), slow, Reply::events(HELLO)]).await;
    let (deltas, end) = play(&model(&server, http()), hello()).await;
    assert!(end.is_ok());
    let retries: Vec<_> = deltas
        .iter()
        .filter_map(|d| match d {
            Delta::Retry {
                attempt,
                delay_ms,
                reason,
            } => Some((*attempt, *delay_ms, reason.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(
        retries,
        [
            (2, 15, "openai: too many requests: Rate limit reached"),
            (3, 15, "openai: too many requests: Rate limit reached"),
        ]
    );
}

#[tokio::test]
async fn too_long_retry_after_is_not_waited_for() {
    let slow =
        Reply::json(429, r#"{"error":{"message":"Come back tomorrow"}}"#).header("retry-after", "86400");
    let server = Server::start([slow, Reply::events(HELLO)]).await;
    let error = play(&model(&server, http()), hello()).await.1.unwrap_err();
    assert_eq!(error.message, "Come back tomorrow");
    assert_eq!(error.wait_limit, Some(WaitLimit::Longest));
    assert_eq!(error.retry_after(), Some(Duration::from_secs(86_400)));
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn wait_beyond_the_deadline_is_told_for_every_status() {
    for status in [408, 429, 500, 503, 529] {
        let slow = Reply::json(status, r#"{"error":{"message":"busy"}}"#).header("retry-after", "90");
        let server = Server::start([slow, Reply::events(HELLO)]).await;
        let mut options = http();
        options.deadline = Some(Duration::from_secs(30));
        let error = play(&model(&server, options), hello()).await.1.unwrap_err();
        assert_eq!(error.message, "busy", "{status}");
        assert_eq!(
            (error.retry_after_ms, error.wait_limit),
            (Some(90_000), Some(WaitLimit::RequestTimeout)),
            "{status}"
        );
        assert_eq!(server.received().len(), 1);
    }
}

#[tokio::test]
async fn configured_headers_replace_ours_and_the_key() {
    let server = Server::start([Reply::events(HELLO)]).await;
    let mut options = http();
    options.headers = [("Authorization", "Bearer of-a-proxy"), ("user-agent", "mine")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    let mut connection = Connection::new("m")
        .with_base_url(server.url("/v1"))
        .with_key("sk-planted-key");
    connection.http = options;
    let provider = OpenAi::new(connection).unwrap();
    play(&provider, hello()).await.1.unwrap();
    let received = server.received();
    assert_eq!(received[0].header("authorization"), Some("Bearer of-a-proxy"));
    assert_eq!(received[0].header("user-agent"), Some("mine"));

    // It is a key for the service of the protocol as well.
    let mut own = Connection::new("m");
    assert!(OpenAi::new(own.clone()).is_err());
    own.http.headers = vec![("authorization".into(), "Bearer of-a-proxy".into())];
    assert!(OpenAi::new(own).is_ok());
}

#[tokio::test]
async fn server_errors_are_retried_up_to_the_limit() {
    let broken = || Reply::new(500, "text/plain", "oops");
    let server = Server::start([broken(), broken(), Reply::events(HELLO)]).await;
    let (deltas, end) = play(&model(&server, http()), hello()).await;
    assert!(end.is_ok());
    assert_eq!(retries(&deltas), 2);

    let server = Server::start([broken(), broken(), broken(), Reply::events(HELLO)]).await;
    let (deltas, end) = play(&model(&server, http()), hello()).await;
    let error = end.unwrap_err();
    assert_eq!(
        (error.kind, error.status),
        (ProviderErrorKind::Unavailable, Some(500))
    );
    assert_eq!(error.message, "oops");
    assert_eq!(retries(&deltas), 2);
}

#[tokio::test]
async fn unreachable_server_is_a_network_error_after_retries() {
    let server = Server::start([]).await;
    let provider = model(&server, http());
    drop(server);
    tokio::task::yield_now().await;
    let (deltas, end) = play(&provider, hello()).await;
    assert_eq!(end.unwrap_err().kind, ProviderErrorKind::Network);
    assert_eq!(retries(&deltas), 2);
}

#[tokio::test]
async fn html_error_page_is_shown_as_text() {
    let page = "<html><head><title>502 Bad Gateway</title></head><body><center>nginx</center></body></html>";
    let mut options = http();
    options.retry.retries = 0;
    let server = Server::start([Reply::new(502, "text/html", page)]).await;
    let error = play(&model(&server, options), hello()).await.1.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ProviderErrorKind::Unavailable, "502 Bad Gateway nginx")
    );

    let server = Server::start([Reply::new(200, "text/html", "<h1>Welcome</h1>")]).await;
    let error = play(&model(&server, http()), hello()).await.1.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Protocol);
    assert!(error.message.contains("base URL is probably wrong"), "{error}");
}

#[tokio::test]
async fn malformed_response_is_quoted_in_a_protocol_error() {
    for (body, shown) in [
        ("data: {\"choices\":\n\n", "a chunk is not valid JSON"),
        ("data: {\"hello\":1}\n\n", "a chunk has no `choices`"),
        ("data: [DONE]\n\n", "without any content"),
        ("data: 7\n\n", "a chunk has no `choices`"),
    ] {
        let server = Server::start([Reply::sse(body)]).await;
        let error = play(&model(&server, http()), hello()).await.1.unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Protocol, "{body}");
        assert!(error.message.contains(shown), "{error}");
    }
    let server = Server::start([Reply::sse(b"data: \xff\xfe\n\n".to_vec())]).await;
    let error = play(&model(&server, http()), hello()).await.1.unwrap_err();
    assert_eq!(error.message, "the response is not UTF-8");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let elsewhere = Reply::new(307, "text/plain", "").header("location", "http://127.0.0.1:9/");
    let server = Server::start([elsewhere]).await;
    let error = play(&model(&server, http()), hello()).await.1.unwrap_err();
    assert_eq!(error.status, Some(307));
    assert!(error.message.contains("redirects are not followed"), "{error}");
}

#[tokio::test]
async fn idle_timeout_ends_silent_streams_only() {
    let mut options = http();
    options.idle_timeout = Duration::from_millis(60);
    for shown in [0, 2] {
        let server = Server::start([Reply::events(&HELLO[..shown]).then_stall()]).await;
        let error = play(&model(&server, options.clone()), hello())
            .await
            .1
            .unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Timeout);
        assert_eq!(error.message, "no data received for 60ms");
    }
    let mut options = http();
    options.idle_timeout = Duration::from_secs(30);
    let server = Server::start([Reply::events(HELLO).in_pieces(9)]).await;
    assert!(play(&model(&server, options), hello()).await.1.is_ok());
}

#[tokio::test]
async fn deadline_ends_a_stream_that_is_never_silent() {
    let mut options = http();
    options.deadline = Some(Duration::from_millis(100));
    let endless = ": still here\n\n".repeat(100_000);
    let server = Server::start([Reply::sse(endless).in_pieces(14)]).await;
    let error = play(&model(&server, options), hello()).await.1.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Timeout);
    assert_eq!(error.message, "the request exceeded the deadline of 100ms");
}

/// The error of a stream that repeats `filler` endlessly.
async fn end_of_endless(filler: &str, bytes: usize, options: HttpOptions) -> ProviderError {
    let mut body = format!("data: {}\n\n", HELLO[0]);
    body.push_str(&filler.repeat(bytes / filler.len()));
    let server = Server::start([Reply::sse(body)]).await;
    play(&model(&server, options), hello()).await.1.unwrap_err()
}

#[tokio::test]
async fn stream_without_content_ends_at_a_limit() {
    let empty_delta = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}\n\n";
    let long_comment = format!(": {}\n\n", "x".repeat(1 << 20));
    for (filler, bytes, limit) in [
        ("\n", 1 << 20, "100000 lines"),
        (": still here\n\n", 4 << 20, "100000 lines"),
        ("event: ping\n", 4 << 20, "100000 lines"),
        (empty_delta, 16 << 20, "100000 lines"),
        ("id: 1\nretry: 1\n", 4 << 20, "100000 lines"),
        (long_comment.as_str(), 40 << 20, "33554432 bytes"),
    ] {
        let error = end_of_endless(filler, bytes, http()).await;
        assert_eq!(error.kind, ProviderErrorKind::Protocol, "{error}");
        let expected = format!("received {limit} without a part of the answer");
        assert_eq!(error.message, expected, "{}", &filler[..filler.len().min(20)]);
    }
    // Below the limit, the request waits as usual.
    let kept = ": still here\n\n".repeat(49_000);
    let answer: String = HELLO.iter().map(|event| format!("data: {event}\n\n")).collect();
    let server = Server::start([Reply::sse(kept + &answer)]).await;
    let end = play(&model(&server, http()), hello()).await.1.unwrap();
    assert_eq!(end.parts, [text("Grüß Gott 🦀")]);
}

#[tokio::test]
async fn stalled_stream_ends_although_it_is_never_silent() {
    for filler in [
        ": still here\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{}}]}\n\n",
    ] {
        let mut options = http();
        options.progress_timeout = Duration::from_millis(100);
        let body = format!("data: {}\n\n{}", HELLO[0], filler.repeat(50_000));
        let server = Server::start([Reply::sse(body).in_pieces(filler.len())]).await;
        let error = play(&model(&server, options), hello()).await.1.unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Timeout);
        let message = "no part of the answer received for 100ms, although the connection is open";
        assert_eq!(error.message, message);
    }
    // A slow stream is not stalled.
    let mut options = http();
    options.progress_timeout = Duration::from_secs(30);
    let server = Server::start([Reply::events(HELLO).in_pieces(9)]).await;
    assert!(play(&model(&server, options), hello()).await.1.is_ok());
}

#[tokio::test]
async fn answer_beyond_the_size_limit_is_refused() {
    let word = "x".repeat(1 << 16);
    let delta = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}}}}]}}\n\n");
    for (more, is_accepted) in [("", true), ("y", false)] {
        let last = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{more}\"}},\"finish_reason\":\"stop\"}}]}}\n\n"
        );
        let body = delta.repeat((8 << 20) / word.len()) + &last;
        let server = Server::start([Reply::sse(body)]).await;
        let end = play(&model(&server, http()), hello()).await.1;
        assert_eq!(end.is_ok(), is_accepted);
    }
}

#[tokio::test]
async fn explained_404_is_not_answered_by_another_url() {
    let tools = Reply::json(
        404,
        r#"{"error":{"message":"No endpoints found that support tool use."}}"#,
    );
    let server = Server::start([tools, Reply::new(404, "text/html", "<p>nothing</p>")]).await;
    let provider = OpenAi::new(connection("m", server.url("/v1"))).unwrap();
    let error = play(&provider, hello()).await.1.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (
            ProviderErrorKind::ToolsUnsupported,
            "No endpoints found that support tool use."
        )
    );
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn of_two_urls_the_error_that_explains_more_is_told() {
    let page = || Reply::new(404, "text/html", "<p>nothing</p>");
    let missing = || Reply::json(404, r#"{"error":"path not found"}"#);
    let key = || Reply::json(401, r#"{"error":{"message":"wrong key"}}"#);
    let gateway = || Reply::new(400, "text/html", "<p>gateway</p>");
    for (first, second, told) in [
        (
            missing(),
            page(),
            "path not found; the request was sent to URL/a/chat/completions",
        ),
        (
            page(),
            missing(),
            "path not found; the request was sent to URL/a/v1/chat/completions",
        ),
        (
            page(),
            page(),
            "nothing; the request was sent to URL/a/chat/completions",
        ),
        (missing(), key(), "wrong key"),
        (
            missing(),
            gateway(),
            "path not found; the request was sent to URL/a/chat/completions",
        ),
        (page(), gateway(), "gateway"),
    ] {
        let server = Server::start([first, second]).await;
        let provider = OpenAi::new(connection("m", server.url("/a"))).unwrap();
        let error = play(&provider, hello()).await.1.unwrap_err();
        assert_eq!(error.message.replace(&server.url(""), "URL"), told);
        assert_eq!(server.received().len(), 2);
    }
}

#[tokio::test]
async fn open_stream_after_a_complete_answer_is_not_awaited() {
    let mut options = http();
    options.idle_timeout = Duration::from_secs(1);
    let server = Server::start([Reply::events(&HELLO[..4]).then_stall()]).await;
    let end = play(&model(&server, options), hello()).await.1.unwrap();
    assert_eq!(end.parts, [text("Grüß Gott 🦀")]);
}

#[tokio::test]
async fn requests_use_the_configured_proxy() {
    let proxy = Server::start([Reply::events(HELLO)]).await;
    let mut connection = connection("gpt-x", "http://model.invalid/v1");
    connection.http.proxy = Some(proxy.url(""));
    play(&OpenAi::new(connection).unwrap(), hello()).await.1.unwrap();
    assert_eq!(
        proxy.received()[0].line,
        "POST http://model.invalid/v1/chat/completions HTTP/1.1"
    );
}

#[tokio::test]
async fn server_needs_a_trusted_certificate() {
    for vouched in [false, true] {
        let server = Server::start_tls([Reply::events(HELLO)]).await;
        let mut connection = connection("gpt-x", server.https_url("/v1")).with_key("sk-planted-secret");
        if vouched {
            connection.http.root_certificates.push(CERTIFICATE.to_vec());
        }
        let (deltas, end) = play(&OpenAi::new(connection).unwrap(), hello()).await;
        assert_eq!(retries(&deltas), 0);
        if vouched {
            assert_eq!(end.unwrap().parts, [text("Grüß Gott 🦀")]);
        } else {
            let error = end.unwrap_err();
            assert_eq!(error.kind, ProviderErrorKind::Network);
            assert!(error.message.contains("certificate"), "{error}");
        }
        assert_eq!(
            server.received().len(),
            usize::from(vouched),
            "the key is not sent to an untrusted server"
        );
    }
}

#[tokio::test]
async fn dropping_a_stream_closes_its_connection() {
    use futures_util::StreamExt;
    use toolcell_core::Provider;
    let server = Server::start([Reply::events(&HELLO[..2]).then_stall()]).await;
    let provider = model(&server, http());
    let mut stream = provider.stream(hello());
    assert_eq!(stream.next().await.unwrap().unwrap(), Delta::Text("Grüß ".into()));
    drop(stream);
    assert_eq!(server.received().len(), 1);
}

//! Decoding of answers, and errors.

use super::*;

#[tokio::test]
async fn stop_reasons_are_mapped() {
    for (reason, stop) in [
        ("end_turn", StopReason::Complete),
        ("stop_sequence", StopReason::Complete),
        ("max_tokens", StopReason::MaxTokens),
        ("model_context_window_exceeded", StopReason::MaxTokens),
        ("pause_turn", StopReason::Paused),
        ("refusal", StopReason::Refused),
        ("odd", StopReason::Other("odd".into())),
    ] {
        let end = format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":1}}}}"#
        );
        let server = Server::start([events(&[START, &end, STOP])]).await;
        assert_eq!(play(&model(&server), hello()).await.1.unwrap().stop, stop);
    }
}

#[tokio::test]
async fn call_truncated_by_the_token_limit_is_dropped() {
    let cut: Vec<&str> = THOUGHT[..14].to_vec();
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":1}}"#;
    let server = Server::start([events(&[&cut[..], &[end, STOP]].concat())]).await;
    let end = play(&model(&server), hello()).await.1.unwrap();
    assert_eq!(calls(&end), []);
    assert_eq!(end.parts.last(), Some(&text("I look.")));
}

#[tokio::test]
async fn stream_that_ends_early_is_truncated() {
    let whole = hello_events();
    for count in 0..whole.len() - 2 {
        let server = Server::start([events(&whole[..count])]).await;
        let mut once = at(&server);
        once.http.retry.retries = 0;
        let error = play(&Anthropic::new(once).unwrap(), hello()).await.1.unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Truncated, "after {count} events");
    }
    let server = Server::start([events(&whole[..whole.len() - 1])]).await;
    assert!(
        play(&model(&server), hello()).await.1.is_ok(),
        "only the end marker is missing"
    );
}

#[tokio::test]
async fn overload_is_retried_only_before_the_first_output() {
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let server = Server::start([
        Reply::json(529, overloaded),
        events(&[START, overloaded]),
        events(&hello_events()),
    ])
    .await;
    let (deltas, end) = play(&model(&server), hello()).await;
    assert!(end.is_ok());
    assert_eq!(retries(&deltas), 2);

    let partial = [&hello_events()[..4], &[overloaded]].concat();
    let server = Server::start([events(&partial), events(&hello_events())]).await;
    let error = play(&model(&server), hello()).await.1.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ProviderErrorKind::Unavailable, "Overloaded")
    );
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn errors_are_mapped_to_kinds() {
    for (status, kind, message, expected) in [
        (
            401,
            "authentication_error",
            "invalid x-api-key",
            ProviderErrorKind::Unauthorized,
        ),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
            ProviderErrorKind::ContextLength,
        ),
        (
            400,
            "invalid_request_error",
            "messages: roles must alternate",
            ProviderErrorKind::InvalidRequest,
        ),
        (
            413,
            "request_too_large",
            "Request exceeds the maximum size",
            ProviderErrorKind::ContextLength,
        ),
        (
            404,
            "not_found_error",
            "model: model-y",
            ProviderErrorKind::InvalidRequest,
        ),
    ] {
        let body = json!({"type": "error", "error": {"type": kind, "message": message}}).to_string();
        let server = Server::start([Reply::json(status, body)]).await;
        let error = play(&model(&server), hello()).await.1.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (expected, message));
    }
}

#[tokio::test]
async fn malformed_events_do_not_break_the_answer() {
    let server = Server::start([events(&[
        START,
        r#"{"type":"content_block_delta","index":9,"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
        r#"{"type":"content_block_stop","index":9}"#,
        r#"{"type":"content_block_start"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"later_kind","data":1}}"#,
        r#"{"type":"later_event"}"#,
        END,
        STOP,
    ])])
    .await;
    assert_eq!(play(&model(&server), hello()).await.1.unwrap().parts, []);
    for nonsense in ["data: {\n\n", "data: {}\n\n", "data: []\n\n"] {
        let server = Server::start([Reply::sse(nonsense)]).await;
        assert_eq!(
            play(&model(&server), hello()).await.1.unwrap_err().kind,
            ProviderErrorKind::Protocol
        );
    }
}

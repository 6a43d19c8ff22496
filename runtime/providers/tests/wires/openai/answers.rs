//! Decoding of answers.

use super::*;

#[tokio::test]
async fn call_fragments_are_joined_by_index() {
    let server = Server::start([Reply::events(&[
        r#"{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_aaaaaa","type":"function","function":{"name":"weather","arguments":""}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"ci"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"call_bbbbbb","function":{"name":"weather","arguments":"{}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"ty\":\"Rome\"}"}}]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ])])
    .await;
    let (deltas, end) = play(&model(&server, http()), hello()).await;
    let end = end.unwrap();
    assert_eq!(
        end.parts,
        [
            call("call_aaaaaa", "weather", r#"{"city":"Rome"}"#),
            call("call_bbbbbb", "weather", "{}")
        ]
    );
    assert_eq!(
        deltas,
        [
            Delta::CallStarted {
                index: 0,
                name: "weather".into()
            },
            Delta::CallArguments {
                index: 0,
                fragment: "{\"ci".into()
            },
            Delta::CallStarted {
                index: 1,
                name: "weather".into()
            },
            Delta::CallArguments {
                index: 1,
                fragment: "{}".into()
            },
            Delta::CallArguments {
                index: 0,
                fragment: "ty\":\"Rome\"}".into()
            },
        ]
    );
    assert_eq!(end.stop, StopReason::Complete);
}

#[tokio::test]
async fn calls_of_compatible_servers_are_decoded() {
    let weather = |city: &str| ("weather".to_owned(), format!("{{\"city\":\"{city}\"}}"));
    let one = vec![weather("Rome")];
    let two = vec![weather("Rome"), weather("Oslo")];
    type Case<'a> = (&'a str, &'a [&'a str], &'a [(String, String)]);
    let cases: &[Case<'_>] = &[
        (
            "a whole call in one chunk, without index and id, ended by `stop`",
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}}]}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            ],
            &one,
        ),
        (
            "arguments as an object",
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"0","function":{"name":"weather","arguments":{"city":"Rome"}}}]},"finish_reason":"tool_calls"}]}"#,
            ],
            &one,
        ),
        (
            "two calls without index and id",
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}},{"function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]},"finish_reason":"tool_calls"}]}"#,
            ],
            &two,
        ),
        (
            "two calls that both say index 0",
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]},"finish_reason":"tool_calls"}]}"#,
            ],
            &two,
        ),
        (
            "pieces without index and id after the first",
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"weather","arguments":"{\"city\":"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"\"Rome\"}"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]},"finish_reason":"tool_calls"}]}"#,
            ],
            &two,
        ),
        (
            "the name again in every piece",
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"weather","arguments":""}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}}]},"finish_reason":"tool_calls"}]}"#,
            ],
            &one,
        ),
        (
            "the name in pieces",
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"wea"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"ther","arguments":"{\"city\":\"Rome\"}"}}]},"finish_reason":"tool_calls"}]}"#,
            ],
            &one,
        ),
    ];
    for (what, events, expected) in cases {
        for done in [true, false] {
            let mut events = events.to_vec();
            if done {
                events.push("[DONE]");
            }
            let server = Server::start([Reply::events(&events)]).await;
            let (_, end) = play(&model(&server, http()), hello()).await;
            let end = end.unwrap();
            assert_eq!(calls(&end), *expected, "{what}");
            assert_eq!(end.stop, StopReason::Complete, "{what}");
            let ids: std::collections::HashSet<_> = end
                .parts
                .iter()
                .map(|p| match p {
                    Part::Call(call) => call.id.clone(),
                    _ => String::new(),
                })
                .collect();
            assert_eq!(
                ids.len(),
                expected.len(),
                "{what}: every call has a unique identifier"
            );
        }
    }
}

#[tokio::test]
async fn call_truncated_by_the_token_limit_is_dropped() {
    let server = Server::start([Reply::events(&[
        r#"{"choices":[{"delta":{"content":"I write it.","tool_calls":[{"index":0,"id":"call_aaaaaa","function":{"name":"write","arguments":"{\"text\":\"abc"}}]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
        "[DONE]",
    ])])
    .await;
    let end = play(&model(&server, http()), hello()).await.1.unwrap();
    assert_eq!(end.parts, [text("I write it.")]);
    assert_eq!(end.stop, StopReason::MaxTokens);
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    for (choice, stop) in [
        (
            r#"{"delta":{"content":"x"},"finish_reason":"content_filter"}"#,
            StopReason::Refused,
        ),
        (
            r#"{"delta":{"refusal":"No."},"finish_reason":"stop"}"#,
            StopReason::Refused,
        ),
        (
            r#"{"delta":{"content":"x"},"finish_reason":"abort"}"#,
            StopReason::Other("abort".into()),
        ),
        (
            r#"{"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}"#,
            StopReason::Complete,
        ),
    ] {
        let server = Server::start([Reply::events(&[
            &format!(r#"{{"choices":[{choice}]}}"#),
            "[DONE]",
        ])])
        .await;
        let end = play(&model(&server, http()), hello()).await.1.unwrap();
        assert_eq!(end.stop, stop);
        assert_eq!(end.parts.len(), 1);
    }
}

#[tokio::test]
async fn answer_that_is_not_streamed_is_decoded() {
    let body = json!({
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "Look:",
            "tool_calls": [{"id": "call_aaaaaa", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        }}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    });
    let server = Server::start([Reply::json(200, body.to_string())]).await;
    let end = play(&model(&server, http()), hello()).await.1.unwrap();
    assert_eq!(end.parts, [text("Look:"), call("call_aaaaaa", "weather", "{}")]);
    assert_eq!(end.usage.map(|u| (u.input, u.output)), Some((3, 4)));
}

#[tokio::test]
async fn stream_without_end_marker_is_complete_after_a_stop_reason() {
    let server = Server::start([Reply::events(&HELLO[..4])]).await;
    let end = play(&model(&server, http()), hello()).await.1.unwrap();
    assert_eq!(end.parts, [text("Grüß Gott 🦀")]);
    assert_eq!(end.usage, None);
}

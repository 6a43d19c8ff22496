//! Property tests: the body of a request is valid for its protocol, whatever conversation was stored.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use toolcell_core::message::CallRequest;
use toolcell_core::provider::Request;
use toolcell_core::{Blob, Content, Message, Part};

use crate::anthropic::Messages;
use crate::gemini::GenerateContent;
use crate::http::{Dialect, Feature, Protocol};
use crate::ollama::Chat;
use crate::openai::ChatCompletions;
use crate::responses::Responses;

fn texts() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", " ", "\n\n", "a", "b ", " c"]).prop_map(str::to_owned)
}

fn content() -> impl Strategy<Value = Content> {
    let blob = |media_type: &str| {
        Content::Blob(Blob {
            media_type: media_type.into(),
            data: b"x".as_slice().into(),
        })
    };
    prop_oneof![
        4 => texts().prop_map(Content::text),
        1 => Just(blob("image/png")),
        1 => Just(blob("application/pdf")),
        1 => Just(blob("application/zip")),
    ]
}

/// Reasoning of each protocol, and of none.
fn reasoning() -> impl Strategy<Value = Part> {
    let opaque = prop::sample::select(vec![
        Value::Null,
        json!({"anthropic": {"type": "thinking", "thinking": "t", "signature": "s"}}),
        json!({"openai_responses": {"type": "reasoning", "id": "rs_1", "summary": []}}),
        json!({"openai_chat": {"field": "reasoning"}}),
        json!({"gemini": {"thoughtSignature": "s"}}),
        json!({"ollama": {}}),
    ]);
    (texts(), opaque).prop_map(|(text, opaque)| Part::Reasoning { text, opaque })
}

#[derive(Debug, Clone)]
enum Piece {
    Part(Part),
    Call(Vec<Content>, bool),
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        3 => texts().prop_map(|text| Piece::Part(Part::text(text))),
        1 => texts().prop_map(|text| Piece::Part(Part::Text {
            text,
            opaque: json!({"gemini": {"thoughtSignature": "s"}}),
        })),
        2 => reasoning().prop_map(Piece::Part),
        2 => (prop::collection::vec(content(), 0..3), any::<bool>())
            .prop_map(|(content, is_error)| Piece::Call(content, is_error)),
    ]
}

/// Messages in which each call has its result; nothing else holds.
fn conversation() -> impl Strategy<Value = Vec<Message>> {
    let round = prop_oneof![
        prop::collection::vec(content(), 0..3).prop_map(|content| (Some(content), Vec::new())),
        prop::collection::vec(piece(), 0..4).prop_map(|pieces| (None, pieces)),
    ];
    prop::collection::vec(round, 0..8).prop_map(|rounds| {
        let mut messages = Vec::new();
        let mut calls = 0;
        for (content, pieces) in rounds {
            if let Some(content) = content {
                messages.push(Message::User { content });
                continue;
            }
            let mut results = Vec::new();
            let mut parts = Vec::new();
            for piece in pieces {
                match piece {
                    Piece::Part(part) => parts.push(part),
                    Piece::Call(content, is_error) => {
                        calls += 1;
                        let id = format!("call_{calls:06}");
                        parts.push(Part::Call(CallRequest {
                            id: id.clone(),
                            name: "tool".into(),
                            arguments: "{}".into(),
                            opaque: Value::Null,
                        }));
                        results.push(Message::Tool {
                            call_id: id,
                            name: "tool".into(),
                            content,
                            is_error,
                        });
                    }
                }
            }
            messages.push(Message::Assistant { parts });
            messages.extend(results);
        }
        messages
    })
}

fn request(messages: Vec<Message>) -> Request {
    Request {
        messages: messages.into_iter().map(Arc::new).collect(),
        ..Request::default()
    }
}

/// Body of a request to this protocol, with pictures and reasoning, or without.
fn body<P: Protocol>(protocol: &P, messages: &[Message], is_refused: bool) -> Value {
    let mut dialect = Dialect::new(false);
    if is_refused {
        dialect = dialect.without(Feature::Pictures).without(Feature::PastReasoning);
    }
    crate::http::body(protocol, &request(messages.to_vec()), "m", dialect)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn is_blank(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.trim().is_empty())
}

/// Roles alternate, begin with the user, and do not end with an answer. `tool` may follow itself and an answer.
fn check_roles(roles: &[&str], answer: &str) {
    assert_eq!(roles.first(), Some(&"user"), "{roles:?}");
    assert_ne!(roles.last(), Some(&answer), "{roles:?}");
    for pair in roles.windows(2) {
        assert!(pair[0] != pair[1] || pair[0] == "tool", "{roles:?}");
    }
}

fn roles(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message["role"].as_str().unwrap_or("?"))
        .collect()
}

fn check_anthropic(body: &Value) {
    let messages = list(body, "messages");
    check_roles(&roles(messages), "assistant");
    let mut open: Vec<&Value> = Vec::new();
    for message in messages {
        let blocks = list(message, "content");
        assert!(!blocks.is_empty(), "{message}");
        for block in blocks {
            assert!(!is_blank(&block["text"]), "{message}");
            for inner in list(block, "content") {
                assert!(!is_blank(&inner["text"]), "{message}");
            }
        }
        let results: Vec<&Value> = blocks.iter().map_while(|b| b.get("tool_use_id")).collect();
        assert_eq!(
            results, open,
            "results come first, in the next message, each once"
        );
        open = blocks
            .iter()
            .filter(|b| b["type"] == "tool_use")
            .map(|b| &b["id"])
            .collect();
        let last = &blocks[blocks.len() - 1]["type"];
        assert!(last != "thinking" && last != "redacted_thinking", "{message}");
    }
    assert!(open.is_empty());
}

fn check_chat(messages: &[Value]) {
    check_roles(&roles(messages), "assistant");
    let mut open: Vec<&Value> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            assert_eq!(&message["tool_call_id"], open.remove(0));
        } else {
            assert!(open.is_empty(), "{message}");
        }
        let calls = list(message, "tool_calls");
        open.extend(calls.iter().map(|call| &call["id"]));
        let parts = list(message, "content");
        match &message["content"] {
            Value::Null => assert!(!calls.is_empty(), "{message}"),
            Value::String(text) if text.trim().is_empty() => {
                // Ollama: a picture without text, or calls.
                assert!(
                    !list(message, "images").is_empty() || !calls.is_empty(),
                    "{message}"
                );
            }
            Value::String(_) => {}
            _ => assert!(
                !parts.is_empty() && parts.iter().all(|part| !is_blank(&part["text"])),
                "{message}"
            ),
        }
    }
    assert!(open.is_empty());
}

fn check_responses(body: &Value) {
    let items = list(body, "input");
    assert_eq!(items[0]["role"], "user");
    assert_ne!(items[items.len() - 1]["role"], "assistant");
    let mut open: Vec<&Value> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match item["type"].as_str() {
            Some("function_call") => open.push(&item["call_id"]),
            Some("function_call_output") => {
                assert_eq!(&item["call_id"], open.remove(0));
                assert!(
                    !is_blank(&item["output"]) && item["output"] != json!([]),
                    "{item}"
                );
            }
            Some("reasoning") => {
                let next = &items[at + 1];
                let follows = next["role"] == "assistant" || next["type"] == "function_call";
                assert!(follows || next["type"] == "reasoning", "{next}");
            }
            _ => {
                assert!(
                    !is_blank(&item["content"]) && item["content"] != json!([]),
                    "{item}"
                );
                assert!(
                    list(item, "content").iter().all(|part| !is_blank(&part["text"])),
                    "{item}"
                );
                if item["role"] == "user" && at > 0 {
                    assert_ne!(items[at - 1]["role"], "user");
                }
            }
        }
    }
    assert!(open.is_empty());
}

fn check_gemini(body: &Value) {
    let contents = list(body, "contents");
    check_roles(&roles(contents), "model");
    let mut open = 0;
    for content in contents {
        let parts = list(content, "parts");
        assert!(!parts.is_empty(), "{content}");
        for part in parts {
            assert!(
                !is_blank(&part["text"]) || part.get("thoughtSignature").is_some(),
                "{content}"
            );
        }
        let responses = parts
            .iter()
            .take_while(|p| p.get("functionResponse").is_some())
            .count();
        assert_eq!(
            responses, open,
            "responses come first, in the next content, each once"
        );
        open = parts.iter().filter(|p| p.get("functionCall").is_some()).count();
    }
    assert_eq!(open, 0);
}

proptest! {
    #[test]
    fn stored_conversations_are_valid_for_every_protocol(
        messages in conversation(),
        is_refused in any::<bool>(),
    ) {
        check_anthropic(&body(&Messages::default(), &messages, is_refused));
        check_chat(list(&body(&ChatCompletions::default(), &messages, is_refused), "messages"));
        check_responses(&body(&Responses::default(), &messages, is_refused));
        check_gemini(&body(&GenerateContent::default(), &messages, is_refused));
        check_chat(list(&body(&Chat::default(), &messages, is_refused), "messages"));
    }

    #[test]
    fn normalised_conversation_is_unchanged_by_normalising(messages in conversation()) {
        let once = crate::history::normalise(&request(messages).messages);
        prop_assert_eq!(&crate::history::normalise(&once), &once);
    }
}

#[test]
fn answer_of_reasoning_alone_is_not_sent() {
    let thinking = Part::Reasoning {
        text: "t".into(),
        opaque: json!({"anthropic": {"type": "thinking", "thinking": "t", "signature": "s"}}),
    };
    let messages = [
        Message::user("a"),
        Message::Assistant {
            parts: vec![thinking.clone()],
        },
        Message::user("b"),
        Message::Assistant {
            parts: vec![thinking.clone(), Part::text("c"), thinking],
        },
    ];
    let sent = body(
        &Messages {
            cache: None,
            ..Messages::default()
        },
        &messages,
        false,
    );
    let block = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(
        sent["messages"],
        json!([
            {"role": "user", "content": [block("a"), block("b")]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, block("c")]},
            {"role": "user", "content": [block("Continue.")]},
        ])
    );
}

#[test]
fn merged_messages_keep_their_texts_apart() {
    let messages = [
        Message::assistant("a"),
        Message::assistant("b"),
        Message::user("c"),
        Message::user("d"),
    ];
    let sent = body(&ChatCompletions::default(), &messages, false);
    assert_eq!(
        sent["messages"],
        json!([
            {"role": "user", "content": "[earlier messages left out]"},
            {"role": "assistant", "content": "a\n\nb"},
            {"role": "user", "content": "c\n\nd"},
        ])
    );
}

/// Half a million copies of a growing message would take minutes.
#[test]
fn many_messages_of_one_side_are_merged_in_one_pass() {
    let user = Arc::new(Message::user("x"));
    let answer = Arc::new(Message::Assistant {
        parts: vec![Part::text("y")],
    });
    let mut messages = vec![user; 100_000];
    messages.extend(vec![answer; 100_000]);
    let merged = super::normalise(&messages);
    assert_eq!(merged.len(), 3);
    let Message::User { content } = &*merged[0] else {
        panic!("{:?}", merged[0]);
    };
    assert_eq!(content.len(), 100_000);
    // What was given is as it was.
    assert_eq!(*messages[0], Message::user("x"));
}

//! Requests for the tests of all providers, and helpers to read streams.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{Completion, Delta, Request};
use toolcell_core::tool::Hints;
use toolcell_core::{
    Blob, Content, Link, Message, Part, Provider, ProviderError, Schema, ToolName, ToolSpec,
};
use toolcell_providers::{Connection, HttpOptions, RetryPolicy};

pub(crate) fn tool(name: &str, description: &str, schema: Value) -> ToolSpec {
    ToolSpec {
        name: ToolName::new(name).unwrap(),
        title: None,
        description: description.into(),
        input: Arc::new(Schema::for_arguments(&schema.to_string()).unwrap()),
        output: None,
        hints: Hints::default(),
        annotations: Default::default(),
    }
}

pub(crate) fn weather() -> ToolSpec {
    tool(
        "weather",
        "The weather in a city.",
        json!({
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city."},
                "unit": {"type": "string", "enum": ["c", "f"]},
            },
            "required": ["city"],
            "additionalProperties": false,
        }),
    )
}

pub(crate) fn request(messages: Vec<Message>) -> Request {
    Request {
        messages: messages.into_iter().map(Arc::new).collect(),
        ..Request::default()
    }
}

pub(crate) fn hello() -> Request {
    request(vec![Message::user("Hello")])
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Part {
    Part::Call(CallRequest {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
        opaque: Value::Null,
    })
}

pub(crate) fn text(text: &str) -> Part {
    Part::text(text)
}

pub(crate) fn result(id: &str, name: &str, content: Vec<Content>, is_error: bool) -> Message {
    Message::Tool {
        call_id: id.into(),
        name: name.into(),
        content,
        is_error,
    }
}

pub(crate) fn blob(media_type: &str, data: &[u8]) -> Content {
    Content::Blob(Blob {
        media_type: media_type.into(),
        data: data.into(),
    })
}

/// A conversation with every kind of content.
pub(crate) fn rich(reasoning: Part) -> Request {
    Request {
        instructions: "Be brief.".into(),
        tools: vec![weather()].into(),
        ..request(vec![
            Message::User {
                content: vec![
                    Content::text("Where is this, and how is the weather there?"),
                    blob("image/png", b"png"),
                    blob("application/zip", b"zip!"),
                    Content::Link(Link {
                        uri: "https://example.com/a".into(),
                        name: "a".into(),
                        media_type: Some("text/html".into()),
                    }),
                ],
            },
            Message::Assistant {
                parts: vec![
                    reasoning,
                    text("I look it up."),
                    call("call_paris_1", "weather", r#"{"city":"Paris"}"#),
                    call("call_rome_22", "weather", r#"{"city":"#),
                ],
            },
            result(
                "call_paris_1",
                "weather",
                vec![
                    Content::text("18 °C"),
                    blob("image/jpeg", b"jpg"),
                    blob("application/zip", b"zip!"),
                ],
                false,
            ),
            result(
                "call_rome_22",
                "weather",
                vec![Content::text("Error: no JSON")],
                true,
            ),
            Message::Assistant {
                parts: vec![text("Paris, 18 °C.")],
            },
            Message::user("Thanks"),
        ])
    }
}

/// Connection of a model to a test server.
pub(crate) fn connection(model: &str, url: impl Into<String>) -> Connection {
    let mut connection = Connection::new(model).with_base_url(url);
    connection.http = http();
    connection
}

pub(crate) fn http() -> HttpOptions {
    let mut options = HttpOptions::default();
    options.retry = RetryPolicy {
        first_pause: Duration::from_millis(1),
        ..RetryPolicy::default()
    };
    options
}

/// Collects a stream: the deltas and the last item. Panics if the stream hangs.
pub(crate) async fn play(
    provider: &dyn Provider,
    request: Request,
) -> (Vec<Delta>, Result<Completion, ProviderError>) {
    let played = collect(provider, request);
    tokio::time::timeout(Duration::from_secs(60), played)
        .await
        .expect("a stream comes to an end")
}

async fn collect(
    provider: &dyn Provider,
    request: Request,
) -> (Vec<Delta>, Result<Completion, ProviderError>) {
    let mut stream = provider.stream(request);
    let mut deltas = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(Delta::Finished(completion)) => {
                assert!(stream.next().await.is_none(), "the end is the last item");
                return (deltas, Ok(completion));
            }
            Ok(delta) => deltas.push(delta),
            Err(error) => {
                assert!(stream.next().await.is_none(), "an error is the last item");
                return (deltas, Err(error));
            }
        }
    }
    panic!("the stream ended without a final event: {deltas:?}");
}

pub(crate) fn retries(deltas: &[Delta]) -> usize {
    deltas.iter().filter(|d| matches!(d, Delta::Retry { .. })).count()
}

/// Notices about changes of requests.
pub(crate) fn notices(deltas: &[Delta]) -> Vec<&str> {
    deltas
        .iter()
        .filter_map(|delta| match delta {
            Delta::Notice(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// Concatenated text deltas.
pub(crate) fn shown(deltas: &[Delta]) -> String {
    deltas
        .iter()
        .map(|d| match d {
            Delta::Text(text) => text.as_str(),
            _ => "",
        })
        .collect()
}

/// Names and arguments of all calls.
pub(crate) fn calls(completion: &Completion) -> Vec<(String, String)> {
    completion
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Call(call) => Some((call.name.clone(), call.arguments.clone())),
            _ => None,
        })
        .collect()
}

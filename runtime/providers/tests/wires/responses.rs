//! Tests of OpenAI Responses.

use insta::assert_json_snapshot;
use serde_json::{Value, json};
use toolcell_core::provider::{Delta, ProviderErrorKind, StopReason, ToolChoice, Usage};
use toolcell_core::{Message, Part, Schema, ToolName};
use toolcell_providers::openai::ToolSchemas;
use toolcell_providers::responses::{OpenAiResponses, Responses};

use crate::conversation::*;
use crate::loopback::{Reply, Server};

fn model(server: &Server) -> OpenAiResponses {
    let mut protocol = Responses::default();
    protocol.project = Some("proj_1".into());
    with(server, protocol)
}

fn with(server: &Server, protocol: Responses) -> OpenAiResponses {
    let connection = connection("gpt-x", server.url("/v1")).with_key("sk-planted");
    OpenAiResponses::with(connection, protocol).unwrap()
}

fn events(events: &[&str]) -> Reply {
    let body: String = (0..)
        .zip(events)
        .map(|(number, data)| {
            let mut data: Value = serde_json::from_str(data).unwrap();
            data["sequence_number"] = json!(number);
            format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
        })
        .collect();
    Reply::sse(body)
}

const COMPLETED: &str = r#"{"type":"response.completed","response":{"object":"response","status":"completed","usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":8,"cache_write_tokens":2},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":4},"total_tokens":29}}}"#;

fn hello_events() -> Vec<&'static str> {
    vec![
        r#"{"type":"response.created","response":{"status":"in_progress"}}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","content":[]}}"#,
        r#"{"type":"response.content_part.added","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Grüß "}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Gott"}"#,
        r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"Grüß Gott"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Grüß Gott"}]}}"#,
        COMPLETED,
    ]
}

const THOUGHT: &[&str] = &[
    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}"#,
    r#"{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0}"#,
    r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"First."}"#,
    r#"{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1}"#,
    r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"Second."}"#,
    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"First."},{"type":"summary_text","text":"Second."}],"encrypted_content":"enc","status":"completed"}}"#,
    r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"fc_1","call_id":"call_aaaaaa","name":"weather","arguments":""}}"#,
    r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"city\":"}"#,
    r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"\"Rome\"}"}"#,
    r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"fc_1","call_id":"call_aaaaaa","name":"weather","arguments":"{\"city\":\"Rome\"}"}}"#,
    r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc_2","call_id":"call_bbbbbb","name":"weather","arguments":"{\"city\":\"Oslo\"}"}}"#,
    COMPLETED,
];

#[tokio::test]
async fn text_is_streamed_and_usage_is_counted() {
    let server = Server::start([events(&hello_events()).in_pieces(11)]).await;
    let (deltas, end) = play(&model(&server), hello()).await;
    let end = end.unwrap();
    assert_eq!(deltas, [Delta::Text("Grüß ".into()), Delta::Text("Gott".into())]);
    assert_eq!(end.parts, [text("Grüß Gott")]);
    assert_eq!(
        end.usage,
        Some(Usage {
            input: 20,
            cache_read: 8,
            cache_write: 2,
            output: 9,
            reasoning: 4,
            ..Usage::default()
        })
    );
    let received = &server.received()[0];
    assert_eq!(received.line, "POST /v1/responses HTTP/1.1");
    assert_eq!(received.header("authorization"), Some("Bearer sk-planted"));
    assert_eq!(received.header("openai-project"), Some("proj_1"));
}

/// With a search through all items at each event, this would take minutes.
#[tokio::test]
async fn item_is_found_among_many_by_its_identifier() {
    let item = |index: usize| {
        format!(
            r#"{{"type":"response.output_item.added","output_index":{index},"item":{{"type":"message","id":"msg_x{index}","content":[]}}}}"#
        )
    };
    let items: Vec<String> = (1..40_000).map(item).collect();
    let mut all: Vec<&str> = items.iter().map(String::as_str).collect();
    all.extend(hello_events());
    let server = Server::start([events(&all)]).await;
    let end = play(&model(&server), hello()).await.1.unwrap();
    assert_eq!(end.parts, [text("Grüß Gott")]);
}

#[tokio::test]
async fn encrypted_reasoning_is_sent_back_in_order() {
    let server = Server::start([events(THOUGHT), events(&hello_events())]).await;
    let provider = model(&server);
    let (deltas, end) = play(&provider, hello()).await;
    let end = end.unwrap();
    assert_eq!(
        deltas[..3],
        [
            Delta::Reasoning("First.".into()),
            Delta::Reasoning("\n\n".into()),
            Delta::Reasoning("Second.".into())
        ]
    );
    assert_eq!(
        calls(&end),
        [
            ("weather".to_owned(), r#"{"city":"Rome"}"#.to_owned()),
            ("weather".to_owned(), r#"{"city":"Oslo"}"#.to_owned())
        ]
    );
    let again = request(vec![
        Message::user("Hello"),
        Message::Assistant { parts: end.parts },
        result("call_aaaaaa", "weather", vec![], false),
        result("call_bbbbbb", "weather", vec![blob("image/png", b"png")], false),
    ]);
    play(&provider, again).await.1.unwrap();
    assert_eq!(
        server.received()[1].body["input"],
        json!([
            {"role": "user", "content": "Hello"},
            {
                "type": "reasoning", "id": "rs_1", "encrypted_content": "enc",
                "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Second."}],
            },
            {"type": "function_call", "call_id": "call_aaaaaa", "name": "weather", "arguments": r#"{"city":"Rome"}"#},
            {"type": "function_call", "call_id": "call_bbbbbb", "name": "weather", "arguments": r#"{"city":"Oslo"}"#},
            {"type": "function_call_output", "call_id": "call_aaaaaa", "output": "[no content]"},
            {
                "type": "function_call_output", "call_id": "call_bbbbbb",
                "output": [{"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cG5n"}],
            },
        ])
    );
}

#[tokio::test]
async fn commentary_and_answer_are_sent_back_with_their_phase() {
    let server = Server::start([
        events(&[
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","phase":"commentary","content":[]}}"#,
            r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"I look."}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"I look."}]}}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"msg_2","role":"assistant","phase":"final_answer","content":[{"type":"output_text","text":"Rome."}]}}"#,
            r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"message","id":"msg_3","role":"assistant","phase":null,"content":[{"type":"output_text","text":"That is all."}]}}"#,
            COMPLETED,
        ]),
        events(&hello_events()),
    ])
    .await;
    let provider = model(&server);
    let end = play(&provider, hello()).await.1.unwrap();
    assert_eq!(end.parts[2], text("That is all."));
    let again = request(vec![
        Message::user("Hello"),
        Message::Assistant { parts: end.parts },
        Message::user("Sure?"),
    ]);
    play(&provider, again).await.1.unwrap();
    assert_eq!(
        server.received()[1].body["input"],
        json!([
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "I look.", "phase": "commentary"},
            {"role": "assistant", "content": "Rome.", "phase": "final_answer"},
            {"role": "assistant", "content": "That is all."},
            {"role": "user", "content": "Sure?"},
        ])
    );
}

#[tokio::test]
async fn reasoning_without_its_next_item_is_not_sent_back() {
    let server = Server::start([events(&hello_events())]).await;
    let lonely = Part::Reasoning {
        text: "x".into(),
        opaque: json!({"openai_responses": {"type": "reasoning", "id": "rs_1", "summary": []}}),
    };
    let request = request(vec![
        Message::user("Hello"),
        Message::Assistant { parts: vec![lonely] },
        Message::user("Go on"),
    ]);
    play(&model(&server), request).await.1.unwrap();
    assert_eq!(
        server.body()["input"],
        json!([{"role": "user", "content": [
            {"type": "input_text", "text": "Hello"},
            {"type": "input_text", "text": "Go on"},
        ]}])
    );
}

#[tokio::test]
async fn conversation_is_sent_with_every_kind_of_content() {
    let server = Server::start([events(&hello_events())]).await;
    let reasoning = Part::Reasoning {
        text: "Looks like Paris.".into(),
        opaque: json!({"openai_responses": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc"}}),
    };
    let mut request = rich(reasoning);
    request.tool_choice = ToolChoice::Tool(ToolName::new("weather").unwrap());
    request.parallel_calls = Some(true);
    request.max_output_tokens = Some(100);
    request.temperature = Some(0.5);
    request.reasoning_effort = Some("low".into());
    request.session = Some("s-1".into());
    request.response_schema = Some(std::sync::Arc::new(
        Schema::parse(r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"#).unwrap(),
    ));
    play(&model(&server), request).await.1.unwrap();
    assert_json_snapshot!(server.body(), @r#"
    {
      "include": [
        "reasoning.encrypted_content"
      ],
      "input": [
        {
          "content": [
            {
              "text": "Where is this, and how is the weather there?",
              "type": "input_text"
            },
            {
              "detail": "auto",
              "image_url": "data:image/png;base64,cG5n",
              "type": "input_image"
            },
            {
              "text": "[application/zip of 4 bytes, not supported by this model]",
              "type": "input_text"
            },
            {
              "text": "[a: https://example.com/a (text/html)]",
              "type": "input_text"
            }
          ],
          "role": "user"
        },
        {
          "encrypted_content": "enc",
          "id": "rs_1",
          "summary": [],
          "type": "reasoning"
        },
        {
          "content": "I look it up.",
          "role": "assistant"
        },
        {
          "arguments": "{\"city\":\"Paris\"}",
          "call_id": "call_paris_1",
          "name": "weather",
          "type": "function_call"
        },
        {
          "arguments": "{\"malformed_arguments\":\"{\\\"city\\\":\"}",
          "call_id": "call_rome_22",
          "name": "weather",
          "type": "function_call"
        },
        {
          "call_id": "call_paris_1",
          "output": [
            {
              "text": "18 °C",
              "type": "input_text"
            },
            {
              "detail": "auto",
              "image_url": "data:image/jpeg;base64,anBn",
              "type": "input_image"
            },
            {
              "text": "[application/zip of 4 bytes, not supported by this model]",
              "type": "input_text"
            }
          ],
          "type": "function_call_output"
        },
        {
          "call_id": "call_rome_22",
          "output": "Error: no JSON",
          "type": "function_call_output"
        },
        {
          "content": "Paris, 18 °C.",
          "role": "assistant"
        },
        {
          "content": "Thanks",
          "role": "user"
        }
      ],
      "instructions": "Be brief.",
      "max_output_tokens": 100,
      "model": "gpt-x",
      "parallel_tool_calls": true,
      "prompt_cache_key": "s-1",
      "reasoning": {
        "effort": "low",
        "summary": "auto"
      },
      "store": false,
      "stream": true,
      "temperature": 0.5,
      "text": {
        "format": {
          "name": "answer",
          "schema": {
            "additionalProperties": false,
            "properties": {
              "a": {
                "type": "string"
              }
            },
            "required": [
              "a"
            ],
            "type": "object"
          },
          "strict": true,
          "type": "json_schema"
        }
      },
      "tool_choice": {
        "name": "weather",
        "type": "function"
      },
      "tools": [
        {
          "description": "The weather in a city.",
          "name": "weather",
          "parameters": {
            "additionalProperties": false,
            "properties": {
              "city": {
                "description": "Name of the city.",
                "type": "string"
              },
              "unit": {
                "enum": [
                  "c",
                  "f"
                ],
                "type": "string"
              }
            },
            "required": [
              "city"
            ],
            "type": "object"
          },
          "strict": false,
          "type": "function"
        }
      ]
    }
    "#);
}

#[tokio::test]
async fn strict_schemas_are_sent_and_arguments_converted_back() {
    let server = Server::start([events(&[
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"call_aaaaaa","name":"weather","arguments":"{\"city\":\"Rome\",\"unit\":null}"}}"#,
        COMPLETED,
    ])])
    .await;
    let mut strict = Responses::default();
    strict.tool_schemas = ToolSchemas::Strict;
    let mut request = hello();
    let open = tool(
        "open",
        "Takes anything.",
        json!({"type": "object", "additionalProperties": true}),
    );
    request.tools = vec![weather(), open].into();
    let end = play(&with(&server, strict), request).await.1.unwrap();
    assert_eq!(
        calls(&end),
        [("weather".to_owned(), r#"{"city":"Rome"}"#.to_owned())]
    );
    let tools = &server.body()["tools"];
    assert_eq!(tools[0]["strict"], true);
    assert_eq!(tools[0]["parameters"]["required"], json!(["city", "unit"]));
    assert_eq!(tools[1]["strict"], false);
    assert_eq!(
        tools[1]["parameters"],
        json!({"type": "object", "additionalProperties": true})
    );
}

#[tokio::test]
async fn text_of_an_item_that_is_not_announced_is_read_once() {
    let reply = || {
        events(&[
            r#"{"type":"response.output_text.delta","item_id":"m_1","output_index":0,"delta":"Hi"}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"m_1",
                "content":[{"type":"output_text","text":"Hi"}]}}"#,
            COMPLETED,
        ])
    };
    let server = Server::start([reply()]).await;
    let end = play(&model(&server), hello()).await.1.unwrap();
    assert_eq!(end.parts, [text("Hi")]);
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    for (response, stop) in [
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
            StopReason::MaxTokens,
        ),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}),
            StopReason::Refused,
        ),
        (
            json!({"status": "incomplete"}),
            StopReason::Other("incomplete".into()),
        ),
    ] {
        let end = json!({"type": "response.incomplete", "response": response}).to_string();
        let server = Server::start([events(&[THOUGHT[6], THOUGHT[7], &end])]).await;
        let end = play(&model(&server), hello()).await.1.unwrap();
        assert_eq!(calls(&end).len(), usize::from(stop != StopReason::MaxTokens));
        assert_eq!(end.stop, stop);
    }
    let server = Server::start([events(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}"#,
        r#"{"type":"response.refusal.delta","output_index":0,"delta":"I can't."}"#,
        COMPLETED,
    ])])
    .await;
    let end = play(&model(&server), hello()).await.1.unwrap();
    assert_eq!(
        (end.stop, &end.parts[..]),
        (StopReason::Refused, &[text("I can't.")][..])
    );
}

#[tokio::test]
async fn failed_response_is_an_error_by_its_code() {
    for (code, kind) in [
        ("context_length_exceeded", ProviderErrorKind::ContextLength),
        ("insufficient_quota", ProviderErrorKind::QuotaExceeded),
        ("invalid_prompt", ProviderErrorKind::InvalidRequest),
    ] {
        let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": code, "message": "m"}}});
        let server = Server::start([events(&[&failed.to_string()])]).await;
        let error = play(&model(&server), hello()).await.1.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (kind, "m"), "{code}");
    }
    let server_error = r#"{"type":"error","code":"server_error","message":"oops","param":null}"#;
    let server = Server::start([events(&[server_error]), events(&hello_events())]).await;
    let (deltas, end) = play(&model(&server), hello()).await;
    assert!(end.is_ok());
    assert_eq!(retries(&deltas), 1);
}

#[tokio::test]
async fn stream_that_ends_before_completion_is_truncated() {
    let whole = hello_events();
    for count in 0..whole.len() {
        let server = Server::start([events(&whole[..count])]).await;
        let mut once = connection("gpt-x", server.url("/v1"));
        once.http.retry.retries = 0;
        let end = play(&OpenAiResponses::new(once).unwrap(), hello()).await.1;
        assert_eq!(
            end.unwrap_err().kind,
            ProviderErrorKind::Truncated,
            "after {count} events"
        );
    }
}

#[tokio::test]
async fn answer_that_is_not_streamed_is_decoded() {
    let body = json!({
        "object": "response", "status": "completed",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Look:"}]},
            {"type": "function_call", "call_id": "call_aaaaaa", "name": "weather", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    });
    let server = Server::start([Reply::json(200, body.to_string())]).await;
    let end = play(&model(&server), hello()).await.1.unwrap();
    assert_eq!(end.parts, [text("Look:"), call("call_aaaaaa", "weather", "{}")]);
    assert_eq!(end.usage.map(|u| u.output), Some(4));
}

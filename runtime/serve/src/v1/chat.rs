//! `POST /v1/chat/completions`.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolcell_core::{EventSink, Message};
use toolcell_http::BoxBody;

use super::call_id::{CallId, TurnResults};
use super::feed::{Feed, Form};
use super::format;
use super::messages::{Conversation, text_of};
use super::{
    NO_LOGPROBS, V1, Wishes, chat_usage, check_absent, error_of, failure_of, finish_reason, is_wanted,
    seconds,
};
use crate::answer::{self, Failure};
use crate::host::{ClientTool, Keep, Start, TurnEnd, TurnRequest};
use crate::server::{Call, Server};

#[derive(Deserialize)]
struct Chat {
    model: String,
    messages: Vec<Said>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    tool_choice: Value,
    #[serde(default)]
    response_format: Value,
    #[serde(default)]
    n: Option<u64>,
    #[serde(default)]
    functions: Value,
    #[serde(default)]
    function_call: Value,
    #[serde(default)]
    modalities: Value,
    #[serde(default)]
    audio: Value,
    #[serde(default)]
    logprobs: Value,
    #[serde(default)]
    top_logprobs: Value,
    #[serde(default)]
    toolcell: Wishes,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Said {
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    tool_calls: Option<Vec<Called>>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    function_call: Value,
}

#[derive(Deserialize)]
struct Called {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: String,
}

impl Said {
    fn add_to(self, conversation: &mut Conversation) -> Result<(), Failure> {
        if self.role == "tool" {
            let id = self.tool_call_id.as_deref();
            let id = id.ok_or_else(|| Failure::invalid("a message of role `tool` has no `tool_call_id`"))?;
            if self.content.is_null() {
                return Err(Failure::invalid("a message of role `tool` has no `content`"));
            }
            conversation.result(id, text_of(self.content)?);
            return Ok(());
        }
        if !self.function_call.is_null() {
            return Err(Failure::invalid(
                "`function_call` is not supported: send `tool_calls`",
            ));
        }
        if self.role != "assistant" && self.tool_calls.iter().flatten().next().is_some() {
            return Err(Failure::invalid(
                "only a message of role `assistant` has `tool_calls`",
            ));
        }
        conversation.say(&self.role, self.content)?;
        for call in self.tool_calls.iter().flatten() {
            conversation.call(&call.id, &call.function.name, &call.function.arguments);
        }
        Ok(())
    }
}

impl Chat {
    /// Checks that nothing is wanted which this server does not have.
    fn check(&self) -> Result<(), Failure> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(Failure::invalid("`n` is 1: a turn has one answer").param("n"));
        }
        let modalities = self.modalities.as_array();
        let is_spoken = modalities.is_some_and(|all| all.iter().any(|one| one != "text"));
        check_absent(&[
            ("functions", is_wanted(&self.functions), "send `tools`"),
            ("function_call", is_wanted(&self.function_call), "send `tools`"),
            ("modalities", is_spoken, "an answer is a text"),
            ("audio", is_wanted(&self.audio), "an answer is a text"),
            ("logprobs", is_wanted(&self.logprobs), NO_LOGPROBS),
            ("top_logprobs", is_wanted(&self.top_logprobs), NO_LOGPROBS),
        ])
    }

    /// Takes the messages.
    fn conversation(&mut self) -> Result<Conversation, Failure> {
        let mut conversation = Conversation::default();
        for (index, said) in std::mem::take(&mut self.messages).into_iter().enumerate() {
            let added = said.add_to(&mut conversation);
            added.map_err(|failure| failure.in_param(&format!("messages[{index}]")))?;
        }
        if conversation.messages.is_empty() {
            return Err(Failure::invalid("`messages` has no message of the user").param("messages"));
        }
        Ok(conversation)
    }

    fn tools(&self) -> Result<Vec<ClientTool>, Failure> {
        if self.tool_choice == "none" {
            return Ok(Vec::new());
        }
        let tools = self.tools.iter().flatten();
        super::tools(
            tools
                .map(|tool| tool_of(&tool["function"]))
                .collect::<Result<_, _>>()?,
        )
    }
}

/// Reads a tool of the client.
pub(super) fn tool_of(function: &Value) -> Result<ClientTool, Failure> {
    let name = function["name"].as_str();
    let name = name.ok_or_else(|| Failure::invalid("a tool has no function with a name").param("tools"))?;
    Ok(ClientTool {
        name: name.to_owned(),
        description: function["description"].as_str().unwrap_or_default().to_owned(),
        schema: match &function["parameters"] {
            Value::Null => json!({"type": "object", "properties": {}}),
            schema => schema.clone(),
        },
    })
}

pub(super) async fn respond(
    server: &Server,
    call: &mut Call,
    held: Option<OwnedSemaphorePermit>,
    place: OwnedSemaphorePermit,
) -> Result<Response<BoxBody>, Failure> {
    let mut chat: Chat = call.parse_once()?;
    let agent = super::agent(server, call, &chat.model)?;
    chat.check()?;
    let conversation = chat.conversation()?;
    let client_tools = chat.tools()?;
    let schema = format::schema_of(&chat.response_format, "response_format").await?;
    let trailing: Vec<(&str, String)> = (conversation.messages.iter().rev())
        .map_while(|message| match message {
            Message::Tool { call_id, .. } => Some((call_id.as_str(), message.text())),
            _ => None,
        })
        .collect();
    let paused = TurnResults::of(trailing);
    let paused = paused.filter(|of_turn| super::take_paused(server, of_turn, &call.caller.owner));
    let (session, keep, start, results) = match paused {
        Some(of_turn) => (of_turn.session, Keep::Paused, Start::Resume, of_turn.results),
        None => {
            conversation.check_results("messages")?;
            let session = uuid::Uuid::now_v7().to_string();
            (
                session,
                Keep::New(conversation.messages),
                Start::Proceed,
                Default::default(),
            )
        }
    };
    let request = TurnRequest {
        client: call.caller.owner.clone(),
        session: session.clone(),
        keep,
        agent,
        start,
        instructions: conversation.instructions,
        asker: None,
        client_tools,
        results,
        answer: schema,
        events: None,
    };
    let cancel = CancellationToken::new();
    let guard = cancel.clone().drop_guard();
    let form = Form::of(request.answer.is_some(), chat.toolcell);
    let feed = Feed::new(form, None);
    run(server, call, (request, held), feed.clone(), cancel, false);
    let answer = Answer {
        id: format!("chatcmpl-{}", uuid::Uuid::now_v7().simple()),
        session,
        owner: call.caller.owner.clone(),
        model: chat.model,
        created: seconds(),
    };
    if chat.stream == Some(true) {
        let with_usage = (chat.stream_options).is_some_and(|options| options.include_usage == Some(true));
        return answer.stream(server, feed, with_usage, guard, place).await;
    }
    let (text, end) = feed.whole().await;
    drop(guard);
    let end = end?;
    match failure_of(&end) {
        Some(failure) => Err(failure),
        None => Ok(answer::ok(&answer.whole(&server.v1, &text, &end))),
    }
}

/// Runs a turn on a task, whose text goes to a feed. A session that was added to the store for it goes if it is refused.
pub(super) fn run(
    server: &Server,
    call: &Call,
    (request, held): (TurnRequest, Option<OwnedSemaphorePermit>),
    feed: Arc<Feed>,
    cancel: CancellationToken,
    is_new: bool,
) {
    let turns = server.turns.clone();
    let client = call.caller.state.clone();
    server.turns.spawn(async move {
        let sink: Arc<dyn EventSink> = feed.clone();
        let session = request.session.clone();
        let end = turns.run_for(&client, (request, held), sink, cancel).await;
        if is_new && end.is_err() {
            // It has no turn, and no client knows of it.
            let _ = turns.host.delete(&session).await;
        }
        feed.finish(end);
    });
}

struct Answer {
    id: String,
    session: String,
    owner: String,
    model: String,
    created: u64,
}

impl Answer {
    /// Returns the calls for the client, and notes that the turn waits for their results.
    fn calls(&self, v1: &V1, end: &TurnEnd, in_stream: bool) -> Vec<Value> {
        if !end.waiting.is_empty() {
            v1.pause(&self.session, &self.owner, &end.waiting);
        }
        let calls = end.waiting.iter().enumerate().map(|(index, call)| {
            let id = CallId {
                session: self.session.clone(),
                turn: 0,
                place: call.place,
            };
            let mut value = json!({
                "id": id.to_string(),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments.to_string()},
            });
            if in_stream {
                value["index"] = json!(index);
            }
            value
        });
        calls.collect()
    }

    fn whole(&self, v1: &V1, text: &str, end: &TurnEnd) -> Value {
        let calls = self.calls(v1, end, false);
        let mut message = json!({"role": "assistant", "content": text, "refusal": null});
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
            if text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(end)}],
            "usage": chat_usage(&end.usage),
        })
    }

    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn delta(&self, delta: Value, finish: Option<&str>) -> Value {
        self.chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]))
    }

    /// Streams the answer. The first part is awaited, so that a turn which does not begin has a status of its own.
    async fn stream(
        self,
        server: &Server,
        feed: Arc<Feed>,
        with_usage: bool,
        guard: DropGuard,
        place: OwnedSemaphorePermit,
    ) -> Result<Response<BoxBody>, Failure> {
        let first = feed.next(0).await;
        if let (_, Some(Err(failure))) = &first {
            return Err(failure.clone());
        }
        if let (text, Some(Ok(end))) = &first
            && text.is_empty()
            && let Some(failure) = failure_of(end)
        {
            return Err(failure);
        }
        let v1 = server.v1.clone();
        let state = (self, feed, Some(first), 0, (guard, place), false);
        let events = futures_util::stream::unfold(state, move |state| {
            let v1 = v1.clone();
            async move {
                let (answer, feed, first, known, held, is_over) = state;
                if is_over {
                    return None;
                }
                let (text, end) = match first {
                    Some(first) => first,
                    None => feed.next(known).await,
                };
                let mut part = String::new();
                if known == 0 {
                    push(
                        &mut part,
                        &answer.delta(json!({"role": "assistant", "content": ""}), None),
                    );
                }
                if !text.is_empty() {
                    push(&mut part, &answer.delta(json!({ "content": text }), None));
                }
                let is_over = end.is_some();
                if let Some(end) = end {
                    answer.end(&v1, end, with_usage, &mut part);
                }
                // One that begins without a text is not begun twice.
                let known = (known + text.len()).max(usize::from(is_over));
                let state = (answer, feed, None, known, held, is_over);
                Some((Bytes::from(part), state))
            }
        });
        Ok(answer::events(events))
    }

    fn end(&self, v1: &V1, end: Result<TurnEnd, Failure>, with_usage: bool, part: &mut String) {
        let end = match end {
            Ok(end) => match failure_of(&end) {
                None => Ok(end),
                Some(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        };
        let end = match end {
            Ok(end) => end,
            Err(failure) => return push(part, &json!({ "error": error_of(&failure) })),
        };
        let calls = self.calls(v1, &end, true);
        if !calls.is_empty() {
            push(part, &self.delta(json!({ "tool_calls": calls }), None));
        }
        push(part, &self.delta(json!({}), Some(finish_reason(&end))));
        if with_usage {
            let mut chunk = self.chunk(json!([]));
            chunk["usage"] = chat_usage(&end.usage);
            push(part, &chunk);
        }
        part.push_str("data: [DONE]\n\n");
    }
}

fn push(part: &mut String, value: &Value) {
    part.push_str(&format!("data: {value}\n\n"));
}

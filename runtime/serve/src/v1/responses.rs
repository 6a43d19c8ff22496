//! `POST /v1/responses`. Its conversations are sessions, which `previous_response_id` continues.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use toolcell_core::Message;
use toolcell_http::BoxBody;

use super::call_id::CallId;
use super::chat::{run, tool_of};
use super::feed::{Feed, Form};
use super::messages::Conversation;
use super::response_id::ResponseId;
use super::response_stream::Stream;
use super::stored::{MAX_KEPT, MadeWith};
use super::{
    MAX_NAME, NO_LOGPROBS, V1, Wishes, check_absent, failure_of, incomplete_reason, is_wanted,
    responses_usage, seconds,
};
use super::{begin, format, references};
use crate::answer::{self, Failure, excerpt};
use crate::host::{ClientTool, Keep, TurnEnd, TurnRequest};
use crate::server::{Call, Server};

/// Maximum number of texts in the metadata of a response, as at OpenAI.
const MAX_METADATA: usize = 16;

/// Maximum length of the name of such a text, in characters.
const MAX_METADATA_KEY: usize = 64;

/// Maximum length of such a text, in characters.
const MAX_METADATA_VALUE: usize = 512;

#[derive(Default, Deserialize)]
struct Wanted {
    model: String,
    input: Value,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    previous_response_id: Option<String>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    store: Option<bool>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    tool_choice: Value,
    #[serde(default)]
    text: Value,
    #[serde(default)]
    metadata: Value,
    #[serde(default)]
    conversation: Value,
    #[serde(default)]
    prompt: Value,
    #[serde(default)]
    background: Value,
    #[serde(default)]
    max_tool_calls: Value,
    #[serde(default)]
    top_logprobs: Value,
    #[serde(default)]
    toolcell: Wishes,
}

impl Wanted {
    /// Checks that nothing is wanted which this server does not have.
    fn check(&self) -> Result<(), Failure> {
        let of_conversation = "continue with `previous_response_id`";
        check_absent(&[
            ("conversation", is_wanted(&self.conversation), of_conversation),
            (
                "prompt",
                is_wanted(&self.prompt),
                "send `instructions` and `input`",
            ),
            (
                "background",
                is_wanted(&self.background),
                "a response is waited for, or streamed",
            ),
            (
                "max_tool_calls",
                !self.max_tool_calls.is_null(),
                "the number of calls is limited by the policy of the server",
            ),
            ("top_logprobs", is_wanted(&self.top_logprobs), NO_LOGPROBS),
        ])?;
        check_metadata(&self.metadata)
    }

    /// Returns what a stored response tells of its request.
    fn made_with(&self) -> MadeWith {
        let kept = |text: &Option<String>| text.clone().filter(|text| text.len() <= MAX_KEPT);
        MadeWith {
            previous_response_id: kept(&self.previous_response_id),
            instructions: kept(&self.instructions),
            metadata: self.metadata.as_object().cloned().unwrap_or_default(),
        }
    }

    /// Takes the input, and the results of calls in it.
    fn conversation(&mut self) -> Result<(Conversation, Vec<(String, String)>), Failure> {
        let mut conversation = Conversation::default();
        if let Some(instructions) = &self.instructions {
            conversation.instruct(instructions);
        }
        let mut results = Vec::new();
        let items = match self.input.take() {
            Value::String(text) => {
                conversation.messages.push(Message::user(text));
                return Ok((conversation, results));
            }
            Value::Array(items) => items,
            _ => return Err(Failure::invalid("`input` is a string or an array of items").param("input")),
        };
        for (index, item) in items.into_iter().enumerate() {
            let added = add_item(&mut conversation, &mut results, item);
            added.map_err(|failure| failure.in_param(&format!("input[{index}]")))?;
        }
        if conversation.messages.is_empty() {
            return Err(Failure::invalid("`input` has no message").param("input"));
        }
        Ok((conversation, results))
    }

    fn tools(&self) -> Result<Vec<ClientTool>, Failure> {
        if self.tool_choice == "none" {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for tool in self.tools.iter().flatten() {
            if tool["type"] != "function" {
                return Err(Failure::invalid(
                    "a tool is of type `function`; this server has no others of OpenAI",
                )
                .param("tools"));
            }
            all.push(tool_of(tool)?);
        }
        super::tools(all)
    }
}

/// Checks the metadata of a response, which are kept with it: texts, as many and as long as those of OpenAI.
fn check_metadata(metadata: &Value) -> Result<(), Failure> {
    let has_length = |text: &str, most: usize| text.chars().count() <= most;
    let is_right = match metadata {
        Value::Null => true,
        Value::Object(all) => {
            all.len() <= MAX_METADATA
                && all.iter().all(|(key, value)| {
                    has_length(key, MAX_METADATA_KEY)
                        && value
                            .as_str()
                            .is_some_and(|value| has_length(value, MAX_METADATA_VALUE))
                })
        }
        _ => false,
    };
    match is_right {
        true => Ok(()),
        false => Err(Failure::invalid(format!(
            "`metadata` is an object of at most {MAX_METADATA} texts of at most {MAX_METADATA_VALUE} characters, whose names have at \
             most {MAX_METADATA_KEY}"
        ))
        .param("metadata")),
    }
}

/// Adds an item of the input to a conversation, and to the results of calls if it is one.
fn add_item(
    conversation: &mut Conversation,
    results: &mut Vec<(String, String)>,
    mut item: Value,
) -> Result<(), Failure> {
    let mut take = |name: &str| item.get_mut(name).map(Value::take).unwrap_or_default();
    let (content, output) = (take("content"), take("output"));
    let text = |name: &str| {
        let text = item[name].as_str();
        text.ok_or_else(|| Failure::invalid(format!("an item of `input` has no `{name}`")))
    };
    let kind = match &item["type"] {
        Value::Null => "message",
        Value::String(kind) => kind,
        _ => {
            return Err(Failure::invalid(
                "the `type` of an item of `input` is not a string",
            ));
        }
    };
    match kind {
        "message" => conversation.say(text("role")?, content)?,
        "function_call" => conversation.call(text("call_id")?, text("name")?, text("arguments")?),
        "function_call_output" => {
            let output = match output {
                Value::Null => return Err(Failure::invalid("an item of `input` has no `output`")),
                output => super::messages::text_of(output)?,
            };
            results.push((text("call_id")?.to_owned(), output.clone()));
            conversation.result(text("call_id")?, output);
        }
        "reasoning" => {}
        kind => {
            let message = format!(
                "an item of `input` has the unknown type `{}`",
                excerpt(kind, MAX_NAME)
            );
            return Err(Failure::invalid(message));
        }
    }
    Ok(())
}

pub(super) async fn respond(
    server: &Server,
    call: &mut Call,
    held: Option<OwnedSemaphorePermit>,
    place: OwnedSemaphorePermit,
) -> Result<Response<BoxBody>, Failure> {
    let mut wanted: Wanted = call.parse_once()?;
    let agent = super::agent(server, call, &wanted.model)?;
    wanted.check()?;
    references::resolve(server, call, &mut wanted.input).await?;
    let (conversation, results) = wanted.conversation()?;
    let client_tools = wanted.tools()?;
    let schema = format::schema_of(&wanted.text["format"], "text.format").await?;
    let is_stored = wanted.store != Some(false);
    let checked = conversation.check_results("input");
    let instructions = conversation.instructions;
    let messages = conversation.messages;
    let begin = match (&wanted.previous_response_id, is_stored) {
        (Some(previous), _) => {
            let after = (agent.as_str(), previous.as_str());
            begin::go_on(server, call, after, is_stored, messages, &results).await?
        }
        (None, false) => begin::in_memory(server, call, messages, &results, checked)?,
        (None, true) => {
            // Results alone continue their turn. Messages before them have their calls; others would be lost.
            let are_alone = messages
                .iter()
                .all(|message| matches!(message, Message::Tool { .. }));
            let waiting = match are_alone || checked.is_ok() {
                true => begin::waiting(server, call, &messages, &results).await?,
                false => None,
            };
            match waiting {
                Some(begin) => begin,
                None => {
                    checked?;
                    begin::new(server, call, &agent, messages).await?
                }
            }
        }
    };
    let is_in_store = matches!(begin.keep, Keep::Stored);
    let id = ResponseId {
        session: begin.session.clone(),
        turn: begin.events,
        at: begin.at,
    };
    if is_in_store {
        let kept = wanted.made_with().keep(server, &id, begin.is_new).await;
        if let (Err(failure), true) = (&kept, begin.is_new) {
            // No client knows of the session.
            let _ = server.turns.host.delete(&begin.session).await;
            return Err(failure.clone());
        }
        kept?;
    }
    let request = TurnRequest {
        events: is_in_store.then_some(begin.at),
        client: call.caller.owner.clone(),
        session: begin.session.clone(),
        keep: begin.keep,
        agent,
        start: begin.start,
        instructions,
        asker: None,
        client_tools,
        results: begin.results,
        answer: schema,
    };
    let cancel = CancellationToken::new();
    let guard = cancel.clone().drop_guard();
    let form = Form::of(request.answer.is_some(), wanted.toolcell);
    let feed = Feed::new(form, begin.beginning);
    run(server, call, (request, held), feed.clone(), cancel, begin.is_new);
    let answer = Answer {
        message: id.message(),
        id,
        owner: call.caller.owner.clone(),
        is_stored,
        created: seconds(),
        wanted,
    };
    if answer.wanted.stream == Some(true) {
        let first = feed.next(0).await;
        if let (_, Some(Err(failure))) = first {
            return Err(failure);
        }
        return Ok(answer.stream(server.v1.clone(), feed, first, (guard, place)));
    }
    let (text, end) = feed.whole().await;
    drop(guard);
    let end = end?;
    if let Some(failure) = failure_of(&end) {
        return Err(failure);
    }
    let output = answer.output(&server.v1, &text, &end);
    Ok(answer::ok(&answer.ended(&output, &end)))
}

pub(super) struct Answer {
    id: ResponseId,
    pub(super) message: String,
    owner: String,
    is_stored: bool,
    created: u64,
    wanted: Wanted,
}

impl Answer {
    /// Creates the answer to a request that was stored.
    pub(super) fn of_store(
        id: ResponseId,
        owner: &str,
        model: String,
        created: u64,
        made_with: MadeWith,
    ) -> Self {
        Self {
            message: id.message(),
            id,
            owner: owner.to_owned(),
            is_stored: true,
            created,
            wanted: Wanted {
                model,
                previous_response_id: made_with.previous_response_id,
                instructions: made_with.instructions,
                metadata: Value::Object(made_with.metadata),
                ..Wanted::default()
            },
        }
    }

    pub(super) fn said(&self, text: &str, status: &str) -> Value {
        let content = match status {
            "in_progress" => json!([]),
            _ => json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]),
        };
        json!({"id": self.message, "type": "message", "role": "assistant", "status": status, "content": content})
    }

    /// Returns the items of the answer, and notes that the turn waits for results.
    pub(super) fn output(&self, v1: &V1, text: &str, end: &TurnEnd) -> Vec<Value> {
        let mut output = Vec::new();
        if !text.is_empty() || end.waiting.is_empty() {
            output.push(self.said(text, "completed"));
        }
        if !end.waiting.is_empty() && !self.is_stored {
            v1.pause(&self.id.session, &self.owner, &end.waiting);
        }
        for call in &end.waiting {
            let id = CallId {
                session: self.id.session.clone(),
                turn: self.id.turn,
                place: call.place,
            };
            let id = id.to_string();
            output.push(json!({
                "id": format!("fc_{}", &id[3..]),
                "type": "function_call",
                "status": "completed",
                "call_id": id,
                "name": call.name,
                "arguments": call.arguments.to_string(),
            }));
        }
        output
    }

    /// Returns the items of an answer that was cut off.
    pub(super) fn cut_off(&self, text: &str) -> Vec<Value> {
        match text.is_empty() {
            true => Vec::new(),
            false => vec![self.said(text, "incomplete")],
        }
    }

    pub(super) fn whole(&self, status: &str, output: &[Value], end: Option<&TurnEnd>) -> Value {
        json!({
            "id": self.id.to_string(),
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": self.wanted.instructions,
            "max_output_tokens": null,
            "metadata": if self.wanted.metadata.is_object() { self.wanted.metadata.clone() } else { json!({}) },
            "model": self.wanted.model,
            "output": output,
            "parallel_tool_calls": true,
            "previous_response_id": self.wanted.previous_response_id,
            "store": self.is_stored,
            "temperature": null,
            "text": {"format": match &self.wanted.text["format"] {
                Value::Null => json!({"type": "text"}),
                format => format.clone(),
            }},
            "tool_choice": "auto",
            "tools": self.wanted.tools.clone().unwrap_or_default(),
            "top_p": null,
            "truncation": "disabled",
            "usage": end.map(|end| responses_usage(&end.usage)),
        })
    }

    /// Returns a response that has ended, complete or not.
    pub(super) fn ended(&self, output: &[Value], end: &TurnEnd) -> Value {
        let reason = incomplete_reason(end);
        let status = if reason.is_some() {
            "incomplete"
        } else {
            "completed"
        };
        let mut response = self.whole(status, output, Some(end));
        if let Some(reason) = reason {
            response["incomplete_details"] = json!({ "reason": reason });
        }
        response
    }

    fn stream(
        self,
        v1: Arc<V1>,
        feed: Arc<Feed>,
        first: (String, Option<Result<TurnEnd, Failure>>),
        held: impl Send + 'static,
    ) -> Response<BoxBody> {
        let state = (Stream::new(self), feed, Some(first), held);
        let events = futures_util::stream::unfold(state, move |(mut stream, feed, first, held)| {
            let v1 = v1.clone();
            async move {
                if stream.is_over {
                    return None;
                }
                let (text, end) = match first {
                    Some(first) => first,
                    None => feed.next(stream.text.len()).await,
                };
                stream.add(&text);
                if let Some(end) = end {
                    stream.end(&v1, end);
                }
                let part = Bytes::from(std::mem::take(&mut stream.part));
                Some((part, (stream, feed, None, held)))
            }
        });
        answer::events(events)
    }
}

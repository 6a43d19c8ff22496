//! The API of OpenAI clients: models, Chat Completions, and Responses.
//!
//! Agents are models. Calls of their own tools run in the server, and are left out of the answer unless the client asks for them;
//! calls of tools that the client sends go back to it, and its next request continues the turn.

mod begin;
mod beginning;
mod call_id;
mod chat;
mod feed;
mod format;
mod messages;
mod parts;
mod references;
mod response_id;
mod response_stream;
mod responses;
mod stored;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::{StopReason, Usage};
use toolcell_http::BoxBody;

use crate::answer::{self, Failure, excerpt};
use crate::host::{CallPlace, ClientCall, ClientTool, TurnEnd};
use crate::server::{Call, Server};
use call_id::TurnResults;

/// Maximum number of turns that wait in memory for a client's results. The oldest ends for a further one; its client continues with
/// the messages that it sends.
const MAX_PAUSED: usize = 256;

/// Maximum number of tools of a client.
pub(crate) const MAX_TOOLS: usize = 128;

/// Maximum length of a foreign name in an error, in characters.
const MAX_NAME: usize = 64;

/// Turns that wait in memory for results, with their owners.
#[derive(Default)]
pub(crate) struct V1 {
    paused: Mutex<HashMap<String, Paused>>,
    beginnings: beginning::Beginnings,
}

/// Turn that waits in memory.
struct Paused {
    owner: String,
    at_ms: u64,
    waiting: HashSet<CallPlace>,
}

impl V1 {
    /// Notes that a turn waits for the results of these calls.
    fn pause(&self, session: &str, owner: &str, waiting: &[ClientCall]) {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        if paused.len() >= MAX_PAUSED
            && let Some(oldest) = paused
                .iter()
                .min_by_key(|(_, paused)| paused.at_ms)
                .map(|(id, _)| id.clone())
        {
            paused.remove(&oldest);
        }
        let turn = Paused {
            owner: owner.to_owned(),
            at_ms: crate::live::now_ms(),
            waiting: waiting.iter().map(|call| call.place).collect(),
        };
        paused.insert(session.to_owned(), turn);
    }

    /// Takes a turn that waits for these results, which one request continues. A client that goes back to earlier results begins
    /// another turn with its messages.
    fn take(&self, of_turn: &TurnResults, owner: &str) -> bool {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        let is_waiting = paused.get(&of_turn.session).is_some_and(|turn| {
            let mut places = of_turn.results.keys();
            turn.owner == owner && places.all(|place| turn.waiting.contains(place))
        });
        is_waiting && paused.remove(&of_turn.session).is_some()
    }
}

/// Takes a turn that waits for these results, as [`V1::take`], if its session is still in memory: the host ends old ones by their
/// size.
fn take_paused(server: &Server, of_turn: &TurnResults, owner: &str) -> bool {
    server.v1.take(of_turn, owner) && server.turns.host.holds(&of_turn.session)
}

/// Wishes of a client that OpenAI's API does not have.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wishes {
    /// Notices of hooks and of the loop are part of the text.
    notices: bool,
    /// Calls that the server runs are told in the text.
    calls: bool,
}

/// Response with an error in OpenAI's form.
pub(crate) fn error(failure: Failure) -> Response<BoxBody> {
    let error = json!({ "error": error_of(&failure) });
    let response = answer::json_of(failure.status, &error);
    let mut response = answer::with_headers(&failure, response);
    let is_final = failure.code == "limit_used_up";
    if is_final || failure.status.is_server_error() && failure.status != StatusCode::SERVICE_UNAVAILABLE {
        // Tools may have run: the request is not to be repeated without the user.
        let header = HeaderName::from_static("x-should-retry");
        response
            .headers_mut()
            .insert(header, HeaderValue::from_static("false"));
    }
    response
}

fn error_of(failure: &Failure) -> Value {
    let kind = match failure.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    };
    json!({"message": message_of(failure), "type": kind, "param": failure.param, "code": failure.code})
}

/// Error of a response that has failed, as Responses has it.
fn response_error(failure: &Failure) -> Value {
    json!({"code": "server_error", "message": message_of(failure)})
}

/// Message with its hints, for which OpenAI's form has no other place.
fn message_of(failure: &Failure) -> String {
    let mut message = failure.message.clone();
    for hint in &failure.hints {
        message.push_str(if message.contains("; ") { ", or " } else { "; " });
        message.push_str(hint);
    }
    message
}

/// Answers a request of `/v1`.
pub(crate) async fn respond(
    server: &Server,
    mut call: Call,
    held: Option<OwnedSemaphorePermit>,
    place: OwnedSemaphorePermit,
) -> Result<Response<BoxBody>, Failure> {
    let path = call.path.clone();
    let parts: Vec<&str> = path.split('/').skip(2).collect();
    match parts.as_slice() {
        ["models"] => {
            let agents = server.turns.host.agents().iter();
            let agents = agents.filter(|agent| call.caller.state.limits.allows(&agent.id));
            let models: Vec<Value> = agents.map(|agent| model(&agent.id)).collect();
            Ok(answer::ok(&json!({"object": "list", "data": models})))
        }
        ["models", name] => {
            let agent = agent(server, &call, &crate::api::part(name)?)?;
            Ok(answer::ok(&model(&agent)))
        }
        ["chat", "completions"] => chat::respond(server, &mut call, held, place).await,
        ["responses"] => responses::respond(server, &mut call, held, place).await,
        ["responses", id] => {
            if crate::api::param(&call.query, "stream")?.is_some_and(|stream| stream != "false") {
                let message = "`stream` is not supported: a stored response is read as a whole";
                return Err(Failure::invalid(message).param("stream"));
            }
            stored::respond(server, &call, id).await
        }
        _ => Err(Failure::not_found("there is nothing at this path")),
    }
}

fn model(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 0, "owned_by": "toolcell"})
}

/// Returns the agent of a model.
fn agent(server: &Server, call: &Call, model: &str) -> Result<String, Failure> {
    let mut agents = server.turns.host.agents().iter();
    let found = agents
        .find(|agent| agent.id == model)
        .filter(|_| server.allows_agent(call, model))
        .map(|agent| agent.id.clone());
    found.ok_or_else(|| {
        Failure::new(
            StatusCode::NOT_FOUND,
            "model_not_found",
            "there is no such model; `GET /v1/models` lists them",
        )
        .param("model")
    })
}

/// Checks the tools of a client.
fn tools(of_client: Vec<ClientTool>) -> Result<Vec<ClientTool>, Failure> {
    if of_client.len() > MAX_TOOLS {
        return Err(Failure::invalid(format!("a request has at most {MAX_TOOLS} tools")).param("tools"));
    }
    let mut names = HashSet::new();
    if let Some(twice) = of_client.iter().find(|tool| !names.insert(tool.name.as_str())) {
        let name = excerpt(&twice.name, MAX_NAME);
        return Err(Failure::invalid(format!("two tools have the name `{name}`")).param("tools"));
    }
    Ok(of_client)
}

/// Error of a turn that ended without an answer.
fn failure_of(end: &TurnEnd) -> Option<Failure> {
    let bad = |message: &str| Failure::new(StatusCode::BAD_GATEWAY, "turn_failed", message);
    if let Some(limit) = &end.limit {
        return Some(limit.clone().into());
    }
    if let Some(failure) = &end.failure {
        return Some(Failure::failed(failure.clone()));
    }
    match end.outcome.as_ref()? {
        TurnOutcome::ProviderFailed { error } => Some(bad(&format!("the model failed: {error}"))),
        TurnOutcome::HostFailed { .. } => Some(Failure::failed("the server failed in this turn")),
        TurnOutcome::Aborted { by, reason } => {
            let message = format!("the hook `{by}` ended the turn: {reason}");
            Some(Failure::new(StatusCode::FORBIDDEN, "aborted", message).noted())
        }
        TurnOutcome::Failing { error, times } => {
            Some(bad(&format!("the same error occurred {times} times: {error}")))
        }
        TurnOutcome::Cancelled => Some(Failure::failed("the turn was cancelled")),
        _ => None,
    }
}

/// Reason for the end of an answer, as Chat Completions has it.
fn finish_reason(end: &TurnEnd) -> &'static str {
    if !end.waiting.is_empty() {
        return "tool_calls";
    }
    match &end.outcome {
        Some(TurnOutcome::Budget { .. } | TurnOutcome::Deadline { .. } | TurnOutcome::StepLimit { .. }) => {
            "length"
        }
        Some(TurnOutcome::Stopped { stop }) => match stop {
            StopReason::MaxTokens => "length",
            _ => "content_filter",
        },
        _ => "stop",
    }
}

/// Reason for which an answer is incomplete, as Responses has it; `None` for a complete one.
fn incomplete_reason(end: &TurnEnd) -> Option<&'static str> {
    match finish_reason(end) {
        "length" => Some("max_output_tokens"),
        "content_filter" => Some("content_filter"),
        _ => None,
    }
}

/// Reason for which probabilities of tokens are refused.
const NO_LOGPROBS: &str = "probabilities of tokens are not known";

/// True for a member that wants something.
fn is_wanted(value: &Value) -> bool {
    !(value.is_null() || value == &Value::Bool(false) || value == &json!(0))
}

/// Checks members of a request that would change the meaning of the answer, which this server does not have: their names, whether
/// they want something, and what to do instead.
///
/// # Errors
/// One is there.
fn check_absent(members: &[(&'static str, bool, &str)]) -> Result<(), Failure> {
    match members.iter().find(|(_, is_wanted, _)| *is_wanted) {
        None => Ok(()),
        Some((name, _, instead)) => {
            Err(Failure::invalid(format!("`{name}` is not supported: {instead}")).param(name))
        }
    }
}

fn seconds() -> u64 {
    crate::live::now_ms() / 1_000
}

fn chat_usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input.saturating_add(usage.output),
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

fn responses_usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input.saturating_add(usage.output),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_an_answer_has_its_reason() {
        let of = |outcome| {
            let end = TurnEnd {
                outcome: Some(outcome),
                ..TurnEnd::default()
            };
            (finish_reason(&end), incomplete_reason(&end))
        };
        let stopped = |stop| of(TurnOutcome::Stopped { stop });
        assert_eq!(
            stopped(StopReason::MaxTokens),
            ("length", Some("max_output_tokens"))
        );
        assert_eq!(
            stopped(StopReason::Refused),
            ("content_filter", Some("content_filter"))
        );
        assert_eq!(
            of(TurnOutcome::Deadline { ms: 1 }),
            ("length", Some("max_output_tokens"))
        );
        assert_eq!(
            of(TurnOutcome::StepLimit { steps: 1 }),
            ("length", Some("max_output_tokens"))
        );
        assert_eq!(of(TurnOutcome::Completed), ("stop", None));
    }

    #[test]
    fn names_of_tools_are_unique() {
        let tool = |name: &str| ClientTool {
            name: name.to_owned(),
            description: String::new(),
            schema: serde_json::json!({}),
        };
        assert_eq!(tools(vec![tool("a"), tool("b")]).unwrap().len(), 2);
        let refused = tools(vec![tool("a"), tool("b\u{202e}"), tool("b\u{202e}")]).unwrap_err();
        assert!(
            refused.message.contains("two tools have the name `b\\u{202e}`"),
            "{}",
            refused.message
        );
    }

    #[test]
    fn paused_turn_is_taken_once_by_its_owner() {
        let v1 = V1::default();
        let place = |step| CallPlace { step, index: 0 };
        let waiting = [ClientCall {
            place: place(2),
            name: "weather".into(),
            arguments: serde_json::json!({}),
        }];
        let results = |step| TurnResults {
            session: "s".into(),
            turn: 0,
            results: [(place(step), "rain".to_owned())].into(),
        };
        v1.pause("s", "ada", &waiting);
        assert!(!v1.take(&results(2), "eve") && !v1.take(&results(1), "ada"));
        assert!(v1.take(&results(2), "ada") && !v1.take(&results(2), "ada"));
        for number in 0..=MAX_PAUSED {
            v1.pause(&number.to_string(), "ada", &waiting);
        }
        assert_eq!(v1.paused.lock().unwrap().len(), MAX_PAUSED);
    }
}

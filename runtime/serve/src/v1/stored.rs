//! `GET /v1/responses/{id}`: a response that was stored.

use hyper::Response;
use toolcell_core::Event;
use toolcell_core::store::Entry;
use toolcell_http::BoxBody;

use super::responses::{Answer, MAX_TURN, of_id};
use super::{failure_of, response_error};
use crate::answer::{self, Failure};
use crate::host::{CallPlace, ClientCall, TurnEnd};
use crate::server::{Call, Server};

pub(super) async fn respond(server: &Server, call: &Call, id: &str) -> Result<Response<BoxBody>, Failure> {
    let none = || Failure::not_found("there is no such response");
    let (session, before) = of_id(id).ok_or_else(none)?;
    let store = server.turns.host.store();
    let info = store.info(&session).await.map_err(|_| none())?;
    if !server.is_of_caller(call, &info) {
        return Err(none());
    }
    let entries = store.entries(&session, before, MAX_TURN, 64 << 20).await?;
    let first = entries
        .first()
        .map(|entry| serde_json::from_str::<Event>(&entry.json));
    if !matches!(first, Some(Ok(Event::TurnStarted { .. }))) {
        return Err(none());
    }
    let StoredTurn { mut end, is_finished } = StoredTurn::of(&entries[1..]);
    let is_running = (server.turns.find(&session)).is_some_and(|live| live.is_running());
    let failure = failure_of(&end);
    let status = match (&failure, is_finished) {
        (Some(_), _) => "failed",
        (None, true) => "completed",
        (None, false) if is_running => "in_progress",
        (None, false) if !end.waiting.is_empty() => "completed",
        (None, false) => "incomplete",
    };
    if is_finished || is_running {
        end.waiting.clear();
    }
    let created = entries.first().and_then(|entry| entry.at_ms).unwrap_or(0) / 1_000;
    let model = info.agent.unwrap_or_else(|| "default".into());
    let answer = Answer::of_store(id, (session, before), &call.caller.owner, model, created);
    let output = match status {
        "completed" => answer.output(&server.v1, &end.text, &end),
        _ => Vec::new(),
    };
    let mut response = match status {
        "completed" => answer.ended(&output, &end),
        status => answer.whole(status, &output, Some(&end)),
    };
    if let Some(failure) = failure {
        response["error"] = response_error(&failure);
    }
    Ok(answer::ok(&response))
}

/// Turn in a journal, as far as it is there.
#[derive(Default)]
pub(super) struct StoredTurn {
    /// Its end, or its text and tokens so far, and the calls that wait for results.
    pub(super) end: TurnEnd,
    pub(super) is_finished: bool,
}

impl StoredTurn {
    /// Reads a turn from the entries after its beginning.
    pub(super) fn of(entries: &[Entry]) -> Self {
        let mut turn = Self::default();
        let mut step = 0;
        // Identifiers of the calls of the latest answer.
        let mut calls: Vec<String> = Vec::new();
        let mut waiting: Vec<(String, ClientCall)> = Vec::new();
        for entry in entries {
            match serde_json::from_str::<Event>(&entry.json) {
                Ok(Event::StepStarted { step: number }) => step = number,
                Ok(Event::StepFinished { message, usage, .. }) => {
                    turn.end.text.push_str(&message.text());
                    turn.end.usage.add(usage.unwrap_or_default());
                    calls = message.calls().map(|call| call.id.clone()).collect();
                }
                Ok(Event::ApprovalRequested {
                    id, tool, arguments, ..
                }) => {
                    let index = calls.iter().position(|known| *known == id);
                    let place = CallPlace {
                        step,
                        index: index.unwrap_or(calls.len()),
                    };
                    let call = ClientCall {
                        place,
                        name: tool,
                        arguments,
                    };
                    waiting.push((id, call));
                }
                Ok(Event::CallFinished { id, .. }) => waiting.retain(|(known, _)| *known != id),
                Ok(Event::TurnFinished {
                    outcome, text, usage, ..
                }) => {
                    (turn.end.outcome, turn.end.text, turn.end.usage) = (Some(outcome), text, usage);
                    turn.is_finished = true;
                    break;
                }
                Ok(Event::TurnStarted { .. }) => break,
                _ => {}
            }
        }
        turn.end.waiting = waiting.into_iter().map(|(_, call)| call).collect();
        turn
    }
}

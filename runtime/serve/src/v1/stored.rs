//! `GET /v1/responses/{id}`: a response that was stored.

use hyper::Response;
use toolcell_core::Event;
use toolcell_http::BoxBody;

use super::responses::{Answer, MAX_TURN, of_id};
use super::{error_of, failure_of};
use crate::answer::{self, Failure};
use crate::host::{ClientCall, TurnEnd};
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
    let mut events = entries
        .iter()
        .map(|entry| serde_json::from_str::<Event>(&entry.json));
    if !matches!(events.next(), Some(Ok(Event::TurnStarted { .. }))) {
        return Err(none());
    }
    let mut end = TurnEnd::default();
    let mut waiting: Vec<(String, ClientCall)> = Vec::new();
    let mut is_finished = false;
    for event in events {
        match event {
            Ok(Event::StepFinished { message, usage, .. }) => {
                end.text.push_str(&message.text());
                if let Some(usage) = usage {
                    end.usage.add(usage);
                }
            }
            Ok(Event::ApprovalRequested {
                id, tool, arguments, ..
            }) => waiting.push((
                id,
                ClientCall {
                    name: tool,
                    arguments,
                },
            )),
            Ok(Event::CallFinished { id, .. }) => waiting.retain(|(known, _)| *known != id),
            Ok(Event::TurnFinished {
                outcome, text, usage, ..
            }) => {
                (end.outcome, end.text, end.usage) = (Some(outcome), text, usage);
                is_finished = true;
                break;
            }
            Ok(Event::TurnStarted { .. }) => break,
            _ => {}
        }
    }
    let is_running = (server.turns.find(&session)).is_some_and(|live| live.is_running());
    let failure = failure_of(&end);
    let status = match (&failure, is_finished) {
        (Some(_), _) => "failed",
        (None, true) => "completed",
        (None, false) if is_running => "in_progress",
        (None, false) if !waiting.is_empty() => "completed",
        (None, false) => "incomplete",
    };
    if !is_finished && !is_running {
        end.waiting = waiting.into_iter().map(|(_, call)| call).collect();
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
        response["error"] = error_of(&failure);
    }
    Ok(answer::ok(&response))
}

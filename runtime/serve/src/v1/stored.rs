//! `GET /v1/responses/{id}`: a response that was stored.

use hyper::Response;
use serde_json::json;
use toolcell_core::event::TurnOutcome;
use toolcell_http::BoxBody;

use super::parts::StoredTurn;
use super::response_id::ResponseId;
use super::responses::Answer;
use super::{failure_of, response_error};
use crate::answer::{self, Failure};
use crate::server::{Call, Server};

/// Reason of a response that is incomplete because the server ended, or its client left.
const INTERRUPTED: &str = "interrupted";

pub(super) async fn respond(server: &Server, call: &Call, id: &str) -> Result<Response<BoxBody>, Failure> {
    let none = || Failure::not_found("there is no such response");
    let id = ResponseId::parse(id).ok_or_else(none)?;
    let store = server.turns.host.store();
    let info = store.info(&id.session).await.map_err(|_| none())?;
    if !server.is_of_caller(call, &info) {
        return Err(none());
    }
    let turn = StoredTurn::read(server, &info, id.turn).await?;
    let mut turn = turn.ok_or_else(none)?;
    let index = turn.part_of(&id).ok_or_else(none)?;
    let is_over = turn.after(index).is_some();
    let part = &turn.parts[index];
    let is_running = || {
        let live = server.turns.find(&id.session);
        live.is_some_and(|live| live.is_running()) || server.turns.host.is_elsewhere(&id.session)
    };
    let is_cancelled = matches!(part.end.outcome, Some(TurnOutcome::Cancelled));
    let failure = failure_of(&part.end).filter(|_| !is_cancelled);
    let status = match &failure {
        Some(_) => "failed",
        None if is_cancelled => "incomplete",
        None if part.is_finished => "completed",
        // Calls of the server can begin after one of the client waits.
        None if !is_over && is_running() => "in_progress",
        None if part.is_paused() => "completed",
        None => "incomplete",
    };
    let model = info.agent.unwrap_or_else(|| "default".into());
    let answer = Answer::of_store(id, &call.caller.owner, model, turn.at_ms / 1_000);
    let mut response = match status {
        "completed" => {
            let output = answer.output(&server.v1, &part.end.text, &part.end);
            answer.ended(&output, &part.end)
        }
        "in_progress" => answer.whole(status, &[], Some(&part.end)),
        status => answer.whole(status, &answer.cut_off(&part.end.text), Some(&part.end)),
    };
    if status == "incomplete" {
        response["incomplete_details"] = json!({ "reason": INTERRUPTED });
    }
    if let Some(failure) = failure {
        response["error"] = response_error(&failure);
    }
    Ok(answer::ok(&response))
}

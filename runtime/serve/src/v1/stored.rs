//! `GET /v1/responses/{id}`: a response that was stored.

use hyper::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
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

/// Maximum length of instructions that are kept with a response, in bytes. Each response of a conversation has its own.
pub(super) const MAX_KEPT: usize = 256 << 10;

/// Parameters of the request of a response that its turn does not store.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MadeWith {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) previous_response_id: Option<String>,
    /// Absent also if they are longer than [`MAX_KEPT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instructions: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) metadata: Map<String, Value>,
}

impl MadeWith {
    /// Keeps it with the session, before the turn begins. Another request with this identifier, which did not begin, can have left
    /// something.
    pub(super) async fn keep(
        &self,
        server: &Server,
        id: &ResponseId,
        is_new_session: bool,
    ) -> Result<(), Failure> {
        if is_new_session && *self == Self::default() {
            return Ok(());
        }
        let json = serde_json::to_string(self).map_err(|error| Failure::failed(error.to_string()))?;
        let store = server.turns.host.store();
        Ok(store.keep_result(&id.session, &id.to_string(), &json).await?)
    }

    async fn of(server: &Server, id: &ResponseId) -> Result<Self, Failure> {
        let store = server.turns.host.store();
        let kept = store.kept_result(&id.session, &id.to_string()).await?;
        // Responses of earlier versions have nothing.
        Ok(kept
            .and_then(|json| serde_json::from_str(&json).ok())
            .unwrap_or_default())
    }
}

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
    let made_with = MadeWith::of(server, &id).await?;
    let answer = Answer::of_store(id, &call.caller.owner, model, turn.at_ms / 1_000, made_with);
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

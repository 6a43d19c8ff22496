//! Turns: start, resume, abandon, cancel, compact, undo.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use toolcell_core::store::SessionInfo;
use toolcell_http::BoxBody;

use crate::answer::{self, Failure};
use crate::host::{Attachment, Start};
use crate::server::{Call, Server};

/// Maximum size of a message, in bytes.
pub(super) const MAX_TEXT: usize = 4 << 20;

/// Maximum size of all attachments of a message, in bytes.
pub(super) const MAX_ATTACHED: usize = 20 << 20;

/// Maximum number of attachments of a message.
pub(super) const MAX_ATTACHMENTS: usize = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    text: String,
    #[serde(default)]
    attachments: Vec<Attached>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attached {
    name: String,
    #[serde(default, rename = "media_type")]
    _media_type: Option<String>,
    data: String,
}

pub(super) async fn respond(
    server: &Server,
    call: &Call,
    info: SessionInfo,
    word: &str,
) -> Result<Response<BoxBody>, Failure> {
    let start = match word {
        "turns" => message(call)?,
        other => {
            call.parse_nothing()?;
            match other {
                "resume" => Start::Resume,
                "abandon" => Start::Abandon,
                "compact" => Start::Compact,
                "cancel" => {
                    let live = server.turns.find(&info.id);
                    if live.is_some_and(|live| live.cancel()) {
                        return Ok(answer::json_of(StatusCode::ACCEPTED, &json!({})));
                    }
                    let message = "no turn of the session runs in this server";
                    return Err(Failure::new(StatusCode::CONFLICT, "no_turn", message));
                }
                _ => return undo(server, call, &info).await,
            }
        }
    };
    let agent = agent(server, call, &info)?;
    server.turns.start(&call.caller, &info.id, agent, start).await?;
    let id = &info.id;
    let mut session: Value = serde_json::to_value(&info).unwrap_or_default();
    if let Some(members) = session.as_object_mut() {
        members.remove("owner");
    }
    let running = server.turns.find(id).and_then(|live| live.running_state());
    session["state"] = json!(running.unwrap_or("idle"));
    Ok(answer::json_of(
        StatusCode::ACCEPTED,
        &json!({ "session": session }),
    ))
}

/// Cancels one call of the running turn, which goes on.
pub(super) fn cancel_call(
    server: &Server,
    call: &Call,
    info: &SessionInfo,
    id: &str,
) -> Result<Response<BoxBody>, Failure> {
    call.parse_nothing()?;
    let live = server.turns.find(&info.id);
    if live.is_some_and(|live| live.cancel_call(id)) {
        return Ok(answer::json_of(StatusCode::ACCEPTED, &json!({})));
    }
    let message = "no such call of the session runs in this server";
    Err(Failure::new(StatusCode::CONFLICT, "no_call", message))
}

/// Returns the agent of a session.
fn agent(server: &Server, call: &Call, info: &SessionInfo) -> Result<String, Failure> {
    let agent = info.agent.as_deref().unwrap_or("default");
    let is_known = server.turns.host.agents().iter().any(|known| known.id == agent);
    if !is_known {
        let message = "the agent of the session is not in the configuration any more";
        return Err(Failure::new(StatusCode::CONFLICT, "conflict", message));
    }
    if !server.allows_agent(call, agent) {
        let message = "the client may not use the agent of the session";
        return Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", message).noted());
    }
    Ok(agent.to_owned())
}

fn message(call: &Call) -> Result<Start, Failure> {
    let turn: Turn = call.parse()?;
    if turn.text.trim().is_empty() {
        return Err(Failure::invalid("`text` is empty"));
    }
    if turn.text.len() > MAX_TEXT {
        return Err(Failure::invalid(format!("`text` has at most {MAX_TEXT} bytes")));
    }
    if turn.attachments.len() > MAX_ATTACHMENTS {
        let message = format!("a message has at most {MAX_ATTACHMENTS} attachments");
        return Err(Failure::invalid(message));
    }
    let mut attachments = Vec::new();
    let mut bytes = 0;
    for attached in turn.attachments {
        let data = STANDARD.decode(&attached.data);
        let data = data.map_err(|_| Failure::invalid("`data` of an attachment is not Base64"))?;
        bytes += data.len();
        if bytes > MAX_ATTACHED {
            let message = format!("the attachments of a message have at most {MAX_ATTACHED} bytes together");
            return Err(Failure::invalid(message));
        }
        attachments.push(Attachment {
            name: attached.name,
            data,
        });
    }
    Ok(Start::Message {
        text: turn.text,
        attachments,
    })
}

async fn undo(server: &Server, call: &Call, info: &SessionInfo) -> Result<Response<BoxBody>, Failure> {
    if server.turns.find(&info.id).is_some_and(|live| live.is_running()) {
        return Err(Failure::turn_running());
    }
    let agent = agent(server, call, info)?;
    let removed = server.turns.host.undo(&info.id, &agent).await?;
    Ok(answer::ok(&json!({ "removed": removed })))
}

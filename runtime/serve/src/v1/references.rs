//! References of a client to items of earlier responses, which it does not send again (`item_reference`).

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toolcell_core::Event;

use super::call_id::CallId;
use crate::answer::Failure;
use crate::server::{Call, Server};

/// Maximum number of references of a request: each is a look into the store.
const MAX_REFERENCES: usize = 1_000;

/// Maximum number of entries after the beginning of an answer in which its end is searched.
const MAX_TURN: usize = 100_000;

/// Identifier of the message of an answer: its session, and the number of events before it.
pub(super) fn message_id(session: &str, events: u64) -> String {
    format!("msg_{}_{events}", session.replace('-', ""))
}

fn of_message_id(id: &str) -> Option<(String, u64)> {
    let (session, events) = id.strip_prefix("msg_")?.split_once('_')?;
    let session = uuid::Uuid::try_parse(session).ok()?;
    Some((session.hyphenated().to_string(), events.parse().ok()?))
}

/// Replaces the references in the input of a request: a message by its text. A call, with its result, is left out unless the
/// turn still waits for it: the answer of that turn tells what came of it.
///
/// # Errors
/// A message does not exist, or belongs to another client.
pub(super) async fn resolve(server: &Server, call: &Call, input: &mut Value) -> Result<(), Failure> {
    let Value::Array(items) = input else {
        return Ok(());
    };
    let is_reference = |item: &Value| item["type"] == "item_reference";
    let count = items.iter().filter(|item| is_reference(item)).count();
    if count == 0 {
        return Ok(());
    }
    if count > MAX_REFERENCES {
        let message = format!("`input` has at most {MAX_REFERENCES} references");
        return Err(Failure::invalid(message));
    }
    let is_result = |item: &Value| item["type"] == "function_call_output";
    let results = items.iter().rev().take_while(|item| is_result(item)).count();
    let trailing = items.len() - results;
    let mut left_out = BTreeSet::new();
    let mut resolved = Vec::new();
    for (index, item) in std::mem::take(items).into_iter().enumerate() {
        if is_result(&item) && index < trailing {
            let id = item["call_id"].as_str().unwrap_or_default();
            if !left_out.contains(id) {
                resolved.push(item);
            }
            continue;
        }
        if !is_reference(&item) {
            resolved.push(item);
            continue;
        }
        let id = item["id"].as_str().unwrap_or_default();
        if let Some(rest) = id.strip_prefix("fc_") {
            let of_call = format!("tc_{rest}");
            CallId::parse(&of_call).ok_or_else(none)?;
            left_out.insert(of_call);
            continue;
        }
        let text = text_of(server, call, id).await?;
        resolved.push(json!({"type": "message", "role": "assistant", "content": text}));
    }
    *items = resolved;
    Ok(())
}

fn none() -> Failure {
    Failure::not_found("a reference in `input` is to no item of this client")
}

/// Returns the text of an answer.
async fn text_of(server: &Server, call: &Call, id: &str) -> Result<String, Failure> {
    let (session, events) = of_message_id(id).ok_or_else(none)?;
    let store = server.turns.host.store();
    let info = store.info(&session).await.map_err(|_| none())?;
    if !server.is_of_caller(call, &info) {
        return Err(none());
    }
    let entries = store.entries(&session, events, MAX_TURN, 64 << 20).await?;
    let mut text = String::new();
    let mut is_paused = false;
    for entry in &entries {
        match serde_json::from_str(&entry.json) {
            Ok(Event::TurnFinished { text, .. }) => return Ok(text),
            Ok(Event::StepFinished { message, .. }) => text.push_str(&message.text()),
            // The turn waited for results of the client here; what follows is of the next answer.
            Ok(Event::ApprovalRequested { .. }) => is_paused = true,
            Ok(Event::StepStarted { .. }) if is_paused => break,
            _ => {}
        }
    }
    match text.is_empty() {
        true => Err(none()),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_of_a_message_names_its_answer() {
        let session = uuid::Uuid::now_v7().to_string();
        let id = message_id(&session, 7);
        assert!(id.len() <= 64, "{id}");
        assert_eq!(of_message_id(&id), Some((session, 7)));
        for foreign in ["msg_1", "msg_x_1", "", "resp_1_2"] {
            assert_eq!(of_message_id(foreign), None, "{foreign}");
        }
    }
}

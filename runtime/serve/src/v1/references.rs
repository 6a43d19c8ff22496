//! References of a client to items of earlier responses, which it does not send again (`item_reference`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Value, json};

use super::call_id::CallId;
use super::parts::{Part, StoredTurn};
use super::response_id::ResponseId;
use crate::answer::Failure;
use crate::server::{Call, Server};

/// Maximum number of references of a request: each is a look into the store.
const MAX_REFERENCES: usize = 1_000;

/// Replaces the references in the input of a request by their items: a message with the text that its client had, or a call.
///
/// # Errors
/// An item does not exist, or belongs to another client.
pub(super) async fn resolve(server: &Server, call: &Call, input: &mut Value) -> Result<(), Failure> {
    let Value::Array(items) = input else {
        return Ok(());
    };
    let is_reference = |item: &&mut Value| item["type"] == "item_reference";
    let count = items.iter_mut().filter(is_reference).count();
    if count > MAX_REFERENCES {
        let message = format!("`input` has at most {MAX_REFERENCES} references");
        return Err(Failure::invalid(message));
    }
    let mut turns = Turns {
        server,
        call,
        read: HashMap::new(),
    };
    for item in items.iter_mut().filter(is_reference) {
        let id = item["id"].as_str().unwrap_or_default();
        *item = match id.strip_prefix("fc_") {
            Some(rest) => turns.call(&format!("tc_{rest}")).await?,
            None => turns.message(id).await?,
        };
    }
    Ok(())
}

fn none() -> Failure {
    Failure::not_found("a reference in `input` is to no item of this client")
}

/// Turns of a client in the store, each of which is read once.
struct Turns<'a> {
    server: &'a Server,
    call: &'a Call,
    read: HashMap<(String, u64), StoredTurn>,
}

impl Turns<'_> {
    async fn of(&mut self, session: &str, turn: u64) -> Result<&mut StoredTurn, Failure> {
        let place = match self.read.entry((session.to_owned(), turn)) {
            Entry::Occupied(known) => return Ok(known.into_mut()),
            Entry::Vacant(place) => place,
        };
        let store = self.server.turns.host.store();
        let info = store.info(session).await.map_err(|_| none())?;
        if !self.server.is_of_caller(self.call, &info) {
            return Err(none());
        }
        let read = StoredTurn::read(self.server, &info, turn).await?;
        Ok(place.insert(read.ok_or_else(none)?))
    }

    async fn call(&mut self, id: &str) -> Result<Value, Failure> {
        let called = CallId::parse(id).ok_or_else(none)?;
        let turn = self.of(&called.session, called.turn).await?;
        let mut waiting = turn.parts.iter().flat_map(|part: &Part| &part.end.waiting);
        let call = waiting.find(|call| call.place == called.place);
        let call = call.ok_or_else(none)?;
        Ok(json!({
            "type": "function_call",
            "call_id": id,
            "name": call.name,
            "arguments": call.arguments.to_string(),
        }))
    }

    async fn message(&mut self, id: &str) -> Result<Value, Failure> {
        let id = ResponseId::of_message(id).ok_or_else(none)?;
        let turn = self.of(&id.session, id.turn).await?;
        let index = turn.part_of(&id).ok_or_else(none)?;
        let text = &turn.parts[index].end.text;
        Ok(json!({"type": "message", "role": "assistant", "content": text}))
    }
}

//! Beginnings of the turns of responses: a session of the store or in memory, a turn that waits for results, or a session that goes on.

use std::collections::BTreeMap;

use hyper::StatusCode;
use toolcell_core::{Event, Message};

use super::call_id::TurnResults;
use super::responses::{MAX_TURN, of_id};
use super::stored::StoredTurn;
use crate::answer::Failure;
use crate::host::{CallPlace, Keep, Start};
use crate::server::{Call, Server};

/// Turn of a response.
pub(super) struct Begin {
    pub(super) session: String,
    pub(super) keep: Keep,
    pub(super) start: Start,
    pub(super) results: BTreeMap<CallPlace, String>,
    /// Number of events before the turn.
    pub(super) events: u64,
    /// Number of events before this part of it.
    pub(super) at: u64,
    /// True if the session was added to the store for it.
    pub(super) is_new: bool,
}

/// Begins a session of the store, whose earlier messages are imported.
pub(super) async fn new(
    server: &Server,
    call: &Call,
    agent: &str,
    mut messages: Vec<Message>,
) -> Result<Begin, Failure> {
    let session = uuid::Uuid::now_v7().to_string();
    let store = server.turns.host.store();
    store.create(&session, agent, &call.caller.owner).await?;
    let last = messages.pop_if(|message| matches!(message, Message::User { .. }));
    let mut events = 0;
    if !messages.is_empty() {
        events = store
            .append(&session, 0, vec![Event::Imported { messages }])
            .await?;
    }
    Ok(Begin {
        session,
        keep: Keep::Stored,
        start: last.map_or(Start::Proceed, Start::Parts),
        results: BTreeMap::new(),
        events,
        at: events,
        is_new: true,
    })
}

/// Continues a stored turn that waits for these results, which the client sends without naming the response before.
pub(super) async fn waiting(
    server: &Server,
    call: &Call,
    messages: &[Message],
    results: &[(String, String)],
) -> Result<Option<Begin>, Failure> {
    let ends_with_results = matches!(messages.last(), Some(Message::Tool { .. }));
    // Results of earlier turns stand before the message that followed them.
    let after = messages
        .iter()
        .rposition(|message| !matches!(message, Message::Tool { .. }));
    let count = messages.len() - after.map_or(0, |at| at + 1);
    let last = &results[results.len().saturating_sub(count)..];
    let of_turn = TurnResults::of(last.iter().map(|(id, text)| (id.as_str(), text.clone())));
    let Some(of_turn) = of_turn.filter(|_| ends_with_results) else {
        return Ok(None);
    };
    let TurnResults {
        session,
        turn,
        results,
    } = of_turn;
    let store = server.turns.host.store();
    let Ok(info) = store.info(&session).await else {
        return Ok(None);
    };
    if !server.is_of_caller(call, &info) || server.turns.state_of(&info).await != "open" {
        return Ok(None);
    }
    let entries = store.entries(&session, turn, MAX_TURN, 64 << 20).await?;
    let is_open = entries.first().is_some_and(|entry| is_start(&entry.json));
    // A client that goes back to earlier results begins another turn with its messages.
    let waiting = StoredTurn::of(entries.get(1..).unwrap_or_default()).end.waiting;
    let mut places = results.keys();
    if !is_open || !places.all(|place| waiting.iter().any(|call| call.place == *place)) {
        return Ok(None);
    }
    Ok(Some(Begin {
        session,
        keep: Keep::Stored,
        start: Start::Resume,
        results,
        events: turn,
        at: info.events,
        is_new: false,
    }))
}

/// True for the JSON of an event that begins a turn.
fn is_start(json: &str) -> bool {
    json.starts_with(r#"{"type":"turn_started""#)
}

/// Begins a session in memory, or continues one that waits for these results.
pub(super) fn in_memory(
    server: &Server,
    call: &Call,
    messages: Vec<Message>,
    results: &[(String, String)],
    checked: Result<(), Failure>,
) -> Result<Begin, Failure> {
    let of_turn = TurnResults::of(results.iter().map(|(id, text)| (id.as_str(), text.clone())));
    let ends_with_results = matches!(messages.last(), Some(Message::Tool { .. }));
    let paused = of_turn
        .filter(|of_turn| ends_with_results && super::take_paused(server, of_turn, &call.caller.owner));
    Ok(match paused {
        Some(of_turn) => Begin {
            session: of_turn.session,
            keep: Keep::Paused,
            start: Start::Resume,
            results: of_turn.results,
            events: 0,
            at: 0,
            is_new: false,
        },
        None => {
            checked?;
            Begin {
                session: uuid::Uuid::now_v7().to_string(),
                keep: Keep::New(messages),
                start: Start::Proceed,
                results: BTreeMap::new(),
                events: 0,
                at: 0,
                is_new: false,
            }
        }
    })
}

/// Continues a session after a response; a copy of it, if it went on already, and a copy in memory if nothing is to be stored.
pub(super) async fn go_on(
    server: &Server,
    call: &Call,
    previous: &str,
    is_stored: bool,
    messages: Vec<Message>,
    results: &[(String, String)],
) -> Result<Begin, Failure> {
    let none = || {
        Failure::new(
            StatusCode::NOT_FOUND,
            "previous_response_not_found",
            "there is no such response",
        )
        .param("previous_response_id")
    };
    let (named, before) = of_id(previous).ok_or_else(none)?;
    let store = server.turns.host.store();
    let info = store.info(&named).await.map_err(|_| none())?;
    if !server.is_of_caller(call, &info) || before > info.events {
        return Err(none());
    }
    let (start, results) = input_of(messages, results, (&named, before))?;
    let entries = store.entries(&named, before, MAX_TURN, 64 << 20).await?;
    // An identifier is that of the beginning of a turn.
    if !entries.first().is_some_and(|entry| is_start(&entry.json)) {
        return Err(none());
    }
    let mut later = entries.iter().skip(1).filter(|entry| is_start(&entry.json));
    let next = later.next().map(|next| next.seq - 1);
    let is_waiting = || {
        !StoredTurn::of(entries.get(1..).unwrap_or_default())
            .end
            .waiting
            .is_empty()
    };
    if next.is_none() && !matches!(start, Start::Resume) && is_waiting() {
        let message = "the previous response waits for the results of its calls: send a `function_call_output` for each";
        return Err(Failure::invalid(message).param("input"));
    }
    let (mut session, mut events) = (named, info.events);
    if next.is_some() && !is_stored {
        let message = "with `store: false`, only the last response of a conversation is continued";
        return Err(Failure::invalid(message).param("previous_response_id"));
    }
    if let Some(next) = next {
        // Another request went on from the same response.
        events = next;
        let fork = uuid::Uuid::now_v7().to_string();
        store.fork(&session, &fork, Some(events)).await?;
        session = fork;
    }
    let is_same_turn = matches!(start, Start::Resume);
    let keep = match is_stored {
        true => Keep::Stored,
        false => Keep::Copied(std::mem::replace(&mut session, uuid::Uuid::now_v7().to_string())),
    };
    Ok(Begin {
        session,
        keep,
        start,
        results,
        events: if is_same_turn { before } else { events },
        at: events,
        is_new: next.is_some(),
    })
}

/// Reads the input after a response, which is of a session and after a number of events: a message of the user, or results of its
/// calls.
fn input_of(
    messages: Vec<Message>,
    results: &[(String, String)],
    (session, events): (&str, u64),
) -> Result<(Start, BTreeMap<CallPlace, String>), Failure> {
    let wrong = |message: &str| Failure::invalid(message).param("input");
    if !results.is_empty() {
        if messages.len() > results.len() {
            return Err(wrong(
                "with `previous_response_id`, `input` has messages of the user, or results of calls: send the results first",
            ));
        }
        let of_turn = TurnResults::of(results.iter().map(|(id, text)| (id.as_str(), text.clone())));
        let of_turn = of_turn.filter(|of| (of.session.as_str(), of.turn) == (session, events));
        let of_turn = of_turn.ok_or_else(|| {
            wrong("the results in `input` are of calls that the previous response does not have")
        })?;
        return Ok((Start::Resume, of_turn.results));
    }
    let mut content = Vec::new();
    for message in messages {
        match message {
            Message::User { content: more } => content.extend(more),
            _ => {
                return Err(wrong(
                    "with `previous_response_id`, `input` has messages of the user, or results of calls",
                ));
            }
        }
    }
    Ok((Start::Parts(Message::User { content }), BTreeMap::new()))
}

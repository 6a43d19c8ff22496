//! Beginnings of the turns of responses: a session of the store or in memory, a turn that waits for results, or a session that goes on.

use std::collections::BTreeMap;

use hyper::StatusCode;
use toolcell_core::{Event, Message};

use super::responses::{MAX_TURN, of_id};
use super::turn_of;
use crate::answer::Failure;
use crate::host::{Keep, Start};
use crate::server::{Call, Server};

/// Turn of a response.
pub(super) struct Begin {
    pub(super) session: String,
    pub(super) keep: Keep,
    pub(super) start: Start,
    pub(super) results: BTreeMap<usize, String>,
    /// Number of events before the turn.
    pub(super) events: u64,
    /// Number of events before this part of it.
    pub(super) at: u64,
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
    let of_turn = turn_of(last.iter().map(|(id, text)| (id.as_str(), text.clone())));
    let Some((session, results)) = of_turn.filter(|_| ends_with_results) else {
        return Ok(None);
    };
    let store = server.turns.host.store();
    let Ok(info) = store.info(&session).await else {
        return Ok(None);
    };
    if !server.is_of_caller(call, &info) || server.turns.state_of(&info).await != "open" {
        return Ok(None);
    }
    let from = info.events.saturating_sub(MAX_TURN as u64);
    let entries = store.entries(&session, from, MAX_TURN, 64 << 20).await?;
    let start = entries
        .iter()
        .rfind(|entry| entry.json.starts_with(r#"{"type":"turn_started""#));
    Ok(start.map(|start| Begin {
        session,
        keep: Keep::Stored,
        start: Start::Resume,
        results,
        events: start.seq - 1,
        at: info.events,
    }))
}

/// Begins a session in memory, or continues one that waits for these results.
pub(super) fn in_memory(
    server: &Server,
    call: &Call,
    messages: Vec<Message>,
    results: &[(String, String)],
    checked: Result<(), Failure>,
) -> Result<Begin, Failure> {
    let of_turn = turn_of(results.iter().map(|(id, text)| (id.as_str(), text.clone())));
    let ends_with_results = matches!(messages.last(), Some(Message::Tool { .. }));
    let paused =
        of_turn.filter(|(session, _)| ends_with_results && server.v1.take(session, &call.caller.owner));
    Ok(match paused {
        Some((session, results)) => Begin {
            session,
            keep: Keep::Paused,
            start: Start::Resume,
            results,
            events: 0,
            at: 0,
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
            }
        }
    })
}

/// Continues a session after a response; a copy of it, if it went on already.
pub(super) async fn go_on(
    server: &Server,
    call: &Call,
    previous: &str,
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
    let (mut session, before) = of_id(previous).ok_or_else(none)?;
    let store = server.turns.host.store();
    let info = store.info(&session).await.map_err(|_| none())?;
    if !server.is_of_caller(call, &info) || before > info.events {
        return Err(none());
    }
    let entries = store.entries(&session, before, MAX_TURN, 64 << 20).await?;
    let is_start = |json: &str| json.starts_with(r#"{"type":"turn_started""#);
    let mut starts = entries.iter().filter(|entry| is_start(&entry.json));
    if starts.next().is_none() {
        return Err(none());
    }
    let mut events = info.events;
    if let Some(next) = starts.next() {
        // Another request went on from the same response.
        events = next.seq - 1;
        let fork = uuid::Uuid::now_v7().to_string();
        store.fork(&session, &fork, Some(events)).await?;
        session = fork;
    }
    if !results.is_empty() {
        let of_turn = turn_of(results.iter().map(|(id, text)| (id.as_str(), text.clone())));
        let (_, results) = of_turn.ok_or_else(|| {
            Failure::invalid("the results in `input` are of calls that the previous response does not have")
        })?;
        return Ok(Begin {
            session,
            keep: Keep::Stored,
            start: Start::Resume,
            results,
            // The turn is the same one.
            events: before,
            at: events,
        });
    }
    let mut content = Vec::new();
    for message in messages {
        match message {
            Message::User { content: more } => content.extend(more),
            _ => {
                let message =
                    "with `previous_response_id`, `input` has messages of the user, or results of calls";
                return Err(Failure::invalid(message));
            }
        }
    }
    Ok(Begin {
        session,
        keep: Keep::Stored,
        start: Start::Parts(Message::User { content }),
        results: BTreeMap::new(),
        events,
        at: events,
    })
}

//! Beginnings of the turns of responses: a session of the store or in memory, a turn that waits for results, or a session that goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hyper::StatusCode;
use tokio_util::sync::CancellationToken;
use toolcell_core::{Event, Message, Part as MessagePart};

use super::beginning::Beginning;
use super::call_id::{CallId, TurnResults};
use super::parts::{Part, StoredTurn};
use super::response_id::ResponseId;
use crate::answer::Failure;
use crate::host::{CallPlace, Keep, Start, TurnRequest};
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
    /// Held until the turn has begun, if it continues a stored session.
    pub(super) beginning: Option<Beginning>,
}

impl Begin {
    /// Goes on in a copy of the session up to a number of events.
    async fn fork(&mut self, server: &Server, events: u64) -> Result<(), Failure> {
        let fork = uuid::Uuid::now_v7().to_string();
        let store = server.turns.host.store();
        store.fork(&self.session, &fork, Some(events)).await?;
        (self.session, self.at, self.is_new) = (fork, events, true);
        self.beginning = None;
        Ok(())
    }
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
        beginning: None,
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
    let beginning = server.v1.beginnings.of(&session).await;
    let store = server.turns.host.store();
    let Ok(info) = store.info(&session).await else {
        return Ok(None);
    };
    if !server.is_of_caller(call, &info) {
        return Ok(None);
    }
    let Some(stored) = StoredTurn::read(server, &info, turn).await? else {
        return Ok(None);
    };
    let Some(index) = (stored.parts.iter()).rposition(|part| waits_for(part, &results)) else {
        return Ok(None);
    };
    let mut begin = Begin {
        session,
        keep: Keep::Stored,
        start: Start::Resume,
        results,
        events: turn,
        at: info.events,
        is_new: false,
        beginning: Some(beginning),
    };
    if let Some(next) = stored.after(index) {
        // A client that goes back to earlier results begins another turn with its messages. Their calls alone say nothing more.
        let own = calls_of(&begin.session, turn, &stored.parts[index]);
        let mut before = messages[..messages.len() - count].iter();
        if !before.all(|message| is_of(message, &own)) {
            return Ok(None);
        }
        begin.fork(server, next).await?;
    }
    Ok(Some(begin))
}

/// True if a part ended with calls of all of these results.
fn waits_for(part: &Part, results: &BTreeMap<CallPlace, String>) -> bool {
    let waiting = &part.end.waiting;
    let mut places = results.keys();
    places.all(|place| waiting.iter().any(|call| call.place == *place))
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
            // It has no events in the store; its parts are told apart by their times.
            at: crate::live::now_ms(),
            is_new: false,
            beginning: None,
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
                beginning: None,
            }
        }
    })
}

/// Continues a session after a response; a copy of it, if it went on already, and a copy in memory if nothing is to be stored.
pub(super) async fn go_on(
    server: &Server,
    call: &Call,
    (agent, previous): (&str, &str),
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
    let id = ResponseId::parse(previous).ok_or_else(none)?;
    let beginning = server.v1.beginnings.of(&id.session).await;
    let store = server.turns.host.store();
    let info = store.info(&id.session).await.map_err(|_| none())?;
    if !server.is_of_caller(call, &info) {
        return Err(none());
    }
    let stored = StoredTurn::read(server, &info, id.turn).await?;
    let mut stored = stored.ok_or_else(none)?;
    let index = stored.part_of(&id).ok_or_else(none)?;
    let (part, next) = (&stored.parts[index], stored.after(index));
    let (start, results) = input_of(messages, results, &id, part)?;
    let is_same_turn = matches!(start, Start::Resume);
    if !is_same_turn && part.is_paused() {
        let message = "the previous response waits for the results of its calls: send a `function_call_output` for each";
        return Err(Failure::invalid(message).param("input"));
    }
    if next.is_some() && !is_stored {
        let message = "with `store: false`, only the last response of a conversation is continued";
        return Err(Failure::invalid(message).param("previous_response_id"));
    }
    let mut begin = Begin {
        session: id.session,
        keep: Keep::Stored,
        start,
        results,
        events: id.turn,
        at: info.events,
        is_new: false,
        beginning: Some(beginning),
    };
    if let Some(next) = next {
        // Another request went on from the same response.
        begin.fork(server, next).await?;
    } else if !is_same_turn && !part.is_finished {
        // It was interrupted, and its client goes on without the rest of it.
        begin.at = abandon(server, call, agent, &begin.session).await?;
    }
    if !is_same_turn {
        begin.events = begin.at;
    }
    if !is_stored {
        let copy = uuid::Uuid::now_v7().to_string();
        begin.beginning = None;
        begin.keep = Keep::Copied(std::mem::replace(&mut begin.session, copy));
    }
    Ok(begin)
}

/// Ends an open turn of a session; returns the number of events then.
async fn abandon(server: &Server, call: &Call, agent: &str, session: &str) -> Result<u64, Failure> {
    let request = TurnRequest {
        client: call.caller.owner.clone(),
        session: session.to_owned(),
        keep: Keep::Stored,
        agent: agent.to_owned(),
        start: Start::Abandon,
        instructions: String::new(),
        asker: None,
        client_tools: Vec::new(),
        results: BTreeMap::new(),
        answer: None,
        events: None,
    };
    let (turns, client) = (server.turns.clone(), call.caller.state.clone());
    // It is not cut off if the client leaves meanwhile.
    let ended = server.turns.spawned(async move {
        let sink = Arc::new(|_: &Event| {});
        turns
            .run_for(&client, (request, None), sink, CancellationToken::new())
            .await
    });
    ended.await?;
    Ok(server.turns.host.store().info(session).await?.events)
}

/// Reads the input after a response: a message of the user, or results of its calls.
fn input_of(
    messages: Vec<Message>,
    results: &[(String, String)],
    id: &ResponseId,
    part: &Part,
) -> Result<(Start, BTreeMap<CallPlace, String>), Failure> {
    let wrong = |message: &str| Failure::invalid(message).param("input");
    let messages = without_own(messages, id, part);
    if messages
        .iter()
        .any(|message| matches!(message, Message::Assistant { .. }))
    {
        return Err(wrong(
            "with `previous_response_id`, `input` has messages of the user, or results of calls: leave out items of earlier responses",
        ));
    }
    if !results.is_empty() {
        if messages.len() > results.len() {
            return Err(wrong(
                "with `previous_response_id`, `input` has messages of the user, or results of calls: send the results first",
            ));
        }
        let of_turn = TurnResults::of(results.iter().map(|(id, text)| (id.as_str(), text.clone())));
        let of_turn = of_turn
            .filter(|of| (of.session.as_str(), of.turn) == (id.session.as_str(), id.turn))
            .filter(|of| waits_for(part, &of.results));
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

/// Leaves out the calls of a response that its client sends back with their results.
fn without_own(messages: Vec<Message>, id: &ResponseId, part: &Part) -> Vec<Message> {
    let own = calls_of(&id.session, id.turn, part);
    let others = messages.into_iter().filter(|message| !is_of(message, &own));
    others.collect()
}

/// Returns the identifiers of the calls with which a part ended.
fn calls_of(session: &str, turn: u64, part: &Part) -> BTreeSet<String> {
    let calls = part.end.waiting.iter().map(|call| {
        let id = CallId {
            session: session.to_owned(),
            turn,
            place: call.place,
        };
        id.to_string()
    });
    calls.collect()
}

/// True for a message of the model with these calls alone.
fn is_of(message: &Message, calls: &BTreeSet<String>) -> bool {
    let is_known = |part: &MessagePart| matches!(part, MessagePart::Call(call) if calls.contains(&call.id));
    matches!(message, Message::Assistant { parts } if parts.iter().all(is_known))
}

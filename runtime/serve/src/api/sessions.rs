//! Sessions: list, create, show, name, fork, export, delete.

use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use toolcell_core::Event;
use toolcell_core::store::{Entry, SessionInfo};
use toolcell_http::BoxBody;

use super::param;
use crate::answer::{self, Failure};
use crate::clients::{AuditLine, Decision};
use crate::server::{Call, Server};

/// Number of sessions of a page, and its maximum.
const PAGE: u64 = 50;
pub(super) const MAX_PAGE: u64 = 200;

/// Maximum length of the words of a search, in bytes.
pub(super) const MAX_QUERY: usize = 1_000;

/// Maximum number of entries and of bytes of a journal that are in memory at a time.
pub(super) const CHUNK: usize = 1_000;
pub(super) const CHUNK_BYTES: usize = 4 << 20;

/// Maximum number of calls whose receipts are listed, from the last.
const MAX_RECEIPTS: usize = 1_000;

/// Returns a session as it is listed.
async fn listed(server: &Server, info: &SessionInfo) -> Value {
    let mut value = serde_json::to_value(info).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.remove("owner");
    }
    value["state"] = json!(server.turns.state_of(info).await);
    value
}

pub(super) async fn list(server: &Server, call: &Call) -> Result<Response<BoxBody>, Failure> {
    let limit = call.number("limit", PAGE, MAX_PAGE)?;
    let limit = usize::try_from(limit).unwrap_or(0);
    let words = param(&call.query, "q")?.unwrap_or_default();
    if words.len() > MAX_QUERY {
        return Err(Failure::invalid(format!("`q` has at most {MAX_QUERY} bytes")));
    }
    let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    let cursor = param(&call.query, "cursor")?;
    let host = &server.turns.host;
    let all = host.store().list().await?;
    let mut all = all
        .into_iter()
        .filter(|info| call.caller.owns(info.owner.as_deref()));
    if let Some(cursor) = cursor {
        // The page begins after that session, or after those that were used later.
        let (used, id) = (cursor.split_once('.'))
            .and_then(|(used, id)| Some((used.parse::<u64>().ok()?, id.to_owned())))
            .ok_or_else(|| Failure::invalid("`cursor` is no cursor"))?;
        let rest: Vec<SessionInfo> = all
            .skip_while(|info| info.used_ms > used || (info.used_ms == used && info.id != id))
            .skip_while(|info| info.id == id)
            .collect();
        return page(server, rest.into_iter(), limit, &words).await;
    }
    let all: Vec<SessionInfo> = all.by_ref().collect();
    page(server, all.into_iter(), limit, &words).await
}

async fn page(
    server: &Server,
    all: impl Iterator<Item = SessionInfo>,
    limit: usize,
    words: &[String],
) -> Result<Response<BoxBody>, Failure> {
    let host = &server.turns.host;
    let candidates = match words.is_empty() {
        true => None,
        false => host.candidates(words).await,
    };
    let mut sessions = Vec::new();
    let mut next = None;
    let mut last = None;
    for info in all {
        let mut found = Vec::new();
        if !words.is_empty() {
            let name = info.name.as_deref().unwrap_or_default().to_lowercase();
            let is_candidate = candidates.as_ref().is_none_or(|all| all.contains(&info.id));
            let matches = match is_candidate {
                true => host.search(&info.id, words).await.unwrap_or_default(),
                false => Vec::new(),
            };
            if matches.is_empty() && !words.iter().all(|word| name.contains(word.as_str())) {
                continue;
            }
            found = matches;
        }
        if sessions.len() == limit {
            next = last;
            break;
        }
        let mut value = listed(server, &info).await;
        if !words.is_empty() {
            value["matches"] = json!(found);
        }
        sessions.push(value);
        last = Some(format!("{}.{}", info.used_ms, info.id));
    }
    let mut page = json!({ "sessions": sessions });
    if let Some(next) = next {
        page["next"] = json!(next);
    }
    Ok(answer::ok(&page))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    agent: Option<String>,
}

pub(super) async fn create(server: &Server, call: &Call) -> Result<Response<BoxBody>, Failure> {
    let wanted: Create = call.parse()?;
    let host = &server.turns.host;
    let agent = wanted.agent.unwrap_or_else(|| "default".into());
    let is_own = server.allows_agent(call, &agent);
    if !is_own || !host.agents().iter().any(|known| known.id == agent) {
        return Err(Failure::not_found("there is no such agent").hint("`GET /api/info` lists them"));
    }
    let id = uuid::Uuid::now_v7().to_string();
    let store = host.store();
    store.create(&id, &agent, &call.caller.owner).await?;
    let info = store.info(&id).await?;
    Ok(answer::json_of(StatusCode::CREATED, &listed(server, &info).await))
}

pub(super) async fn show(server: &Server, info: &SessionInfo) -> Result<Response<BoxBody>, Failure> {
    let mut value = listed(server, info).await;
    let host = &server.turns.host;
    let agent = info.agent.as_deref().unwrap_or("default");
    let budget = host.budget(&info.id, agent).await;
    if let (Some(value), Value::Object(more)) = (value.as_object_mut(), budget) {
        value.extend(more);
    }
    let live = server.turns.find(&info.id);
    value["questions"] = json!(live.map(|live| live.questions()).unwrap_or_default());
    Ok(answer::ok(&value))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rename {
    // `null` takes the name away; a body without the member is wrong.
    #[serde(deserialize_with = "Option::deserialize")]
    name: Option<String>,
}

pub(super) async fn rename(
    server: &Server,
    call: &Call,
    info: &SessionInfo,
) -> Result<Response<BoxBody>, Failure> {
    let wanted: Rename = call.parse()?;
    let host = &server.turns.host;
    let store = host.store();
    if let Some(name) = &wanted.name {
        let mut own = store.list().await?;
        let owner = |info: &SessionInfo| info.owner.clone().unwrap_or_default();
        own.retain(|other| owner(other) == owner(info));
        host.check_name(name, &own).map_err(Failure::invalid)?;
    }
    store.rename(&info.id, wanted.name.as_deref()).await?;
    let info = store.info(&info.id).await?;
    Ok(answer::ok(&listed(server, &info).await))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fork {
    events: Option<u64>,
    before_turn: Option<u64>,
}

pub(super) async fn fork(
    server: &Server,
    call: &Call,
    info: &SessionInfo,
) -> Result<Response<BoxBody>, Failure> {
    let wanted: Fork = call.parse()?;
    let events = match (wanted.events, wanted.before_turn) {
        (Some(_), Some(_)) => {
            return Err(Failure::invalid("a fork has `events` or `before_turn`, not both"));
        }
        (Some(events), None) if events > info.events => {
            let message = format!("the session has {} events, fewer than `events`", info.events);
            return Err(Failure::invalid(message));
        }
        (events, None) => events,
        (None, Some(turn)) => {
            let mut starts = 0;
            let mut before = None;
            each_entry(server, info, |entry| {
                if before.is_none() && entry.json.starts_with(r#"{"type":"turn_started""#) {
                    starts += 1;
                    if starts == turn {
                        before = Some(entry.seq - 1);
                    }
                }
            })
            .await?;
            Some(before.ok_or_else(|| Failure::invalid(format!("the session has no turn {turn}")))?)
        }
    };
    let id = uuid::Uuid::now_v7().to_string();
    let store = server.turns.host.store();
    store.fork(&info.id, &id, events).await?;
    let info = store.info(&id).await?;
    Ok(answer::json_of(StatusCode::CREATED, &listed(server, &info).await))
}

/// Reads a journal in parts.
async fn each_entry(
    server: &Server,
    info: &SessionInfo,
    mut visit: impl FnMut(Entry),
) -> Result<(), Failure> {
    let store = server.turns.host.store();
    let mut after = 0;
    loop {
        let entries = store.entries(&info.id, after, CHUNK, CHUNK_BYTES).await?;
        let Some(last) = entries.last() else {
            return Ok(());
        };
        after = last.seq;
        entries.into_iter().for_each(&mut visit);
    }
}

pub(super) async fn export(
    server: &Server,
    call: &Call,
    info: &SessionInfo,
) -> Result<Response<BoxBody>, Failure> {
    let store = server.turns.host.store();
    let (id, room) = (info.id.clone(), call.caller.state.room.clone());
    let lines = futures_util::stream::unfold(0, move |after| {
        let (store, id, room) = (store.clone(), id.clone(), room.clone());
        async move {
            let mut taken = room.take(CHUNK_BYTES).await;
            loop {
                let entries = store.entries(&id, after, CHUNK, CHUNK_BYTES).await.ok()?;
                let last = entries.last()?.seq;
                let lines: String = entries.iter().map(|entry| format!("{}\n", entry.json)).collect();
                let size = lines.len();
                if taken.fits(size) {
                    return Some((taken.hold(lines), last));
                }
                drop((entries, lines, taken));
                taken = room.take(size).await;
            }
        }
    });
    let mut response = answer::events(lines);
    let media_type = hyper::header::HeaderValue::from_static("application/jsonl");
    (response.headers_mut()).insert(hyper::header::CONTENT_TYPE, media_type);
    Ok(response)
}

/// Returns the tool of a call that finished, and the call with its receipt; `None` for another entry.
pub(super) fn receipt_of(entry: &Entry) -> Option<(String, Value)> {
    if !entry.json.starts_with(r#"{"type":"call_finished""#) {
        return None;
    }
    let Ok(Event::CallFinished { id, tool, result }) = serde_json::from_str(&entry.json) else {
        return None;
    };
    let mut value = json!({"seq": entry.seq, "call": id, "tool": tool});
    if let Some(at_ms) = entry.at_ms {
        value["at_ms"] = json!(at_ms);
    }
    if let Some(error) = &result.error {
        value["error"] = json!(error.kind());
    }
    if let Some(receipt) = &result.receipt {
        value["receipt"] = json!(receipt);
    }
    Some((tool, value))
}

pub(super) async fn receipts(server: &Server, info: &SessionInfo) -> Result<Response<BoxBody>, Failure> {
    let mut receipts = std::collections::VecDeque::new();
    each_entry(server, info, |entry| {
        if let Some((_, value)) = receipt_of(&entry) {
            if receipts.len() == MAX_RECEIPTS {
                receipts.pop_front();
            }
            receipts.push_back(value);
        }
    })
    .await?;
    Ok(answer::ok(&json!({ "receipts": receipts })))
}

pub(super) async fn delete(
    server: &Server,
    call: &Call,
    info: &SessionInfo,
) -> Result<Response<BoxBody>, Failure> {
    let is_running = server.turns.find(&info.id).is_some_and(|live| live.is_running());
    let deleted = match is_running {
        true => Err(Failure::turn_running()),
        false => server.turns.host.delete(&info.id).await.map_err(Failure::from),
    };
    let detail = deleted.as_ref().err().map(|failure| failure.message.as_str());
    let line = AuditLine::new(
        Some(&call.caller.owner),
        Decision::Delete,
        deleted.is_ok(),
        detail.unwrap_or_default(),
    );
    server.turns.host.audit(&line.of(&info.id));
    deleted?;
    server.turns.removed(&info.id);
    Ok(answer::empty(StatusCode::NO_CONTENT))
}

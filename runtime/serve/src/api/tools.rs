//! `GET /api/tools`: what the components can touch, and the last receipts of the client's calls.

use std::collections::BTreeMap;

use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use toolcell_http::BoxBody;

use super::sessions::{CHUNK_BYTES, receipt_of};
use crate::answer::{self, Failure};
use crate::server::{Call, Server};

/// Number of the client's sessions, the last ones, in which receipts are searched.
const SESSIONS: usize = 10;

/// Number of entries at the end of a session in which receipts are searched.
const ENTRIES: u64 = 500;

/// Number of receipts of a component.
const RECEIPTS: usize = 3;

pub(super) async fn respond(server: &Server, call: &Call) -> Result<Response<BoxBody>, Failure> {
    let host = &server.turns.host;
    let main = host.agents().first().map(|agent| agent.id.as_str());
    if !server.allows_agent(call, main.unwrap_or_default()) {
        let message = "the client may not use the main agent, whose tools these are";
        return Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", message).noted());
    }
    let mut tools = host.tools();
    let last = last(server, call).await?;
    for component in tools["components"].as_array_mut().into_iter().flatten() {
        let names = component["tools"].as_array().into_iter().flatten();
        let mut receipts: Vec<&Value> = names
            .filter_map(|tool| last.get(tool["name"].as_str()?))
            .flatten()
            .collect();
        receipts.sort_by_key(|receipt| std::cmp::Reverse(receipt["at_ms"].as_u64()));
        receipts.truncate(RECEIPTS);
        component["receipts"] = json!(receipts);
    }
    Ok(answer::ok(&tools))
}

/// Returns the last receipts of the client's calls, by tool.
async fn last(server: &Server, call: &Call) -> Result<BTreeMap<String, Vec<Value>>, Failure> {
    let store = server.turns.host.store();
    let mut last: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let sessions = store.list().await?.into_iter();
    let own = sessions.filter(|info| call.caller.owns(info.owner.as_deref()));
    for info in own.take(SESSIONS) {
        let after = info.events.saturating_sub(ENTRIES);
        let most = usize::try_from(ENTRIES).unwrap_or(0);
        // A session can be deleted meanwhile.
        let entries = store.entries(&info.id, after, most, CHUNK_BYTES).await;
        for entry in entries.unwrap_or_default().iter().rev() {
            let Some((tool, receipt)) = receipt_of(entry).filter(|(_, value)| value["receipt"].is_object())
            else {
                continue;
            };
            let of_tool = last.entry(tool).or_default();
            if of_tool.len() < RECEIPTS {
                of_tool.push(receipt);
            }
        }
    }
    Ok(last)
}

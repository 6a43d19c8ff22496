//! `GET /api/tools`: what the components can touch, and the last receipts of the client's calls.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Response;
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
    let limits = &call.caller.state.limits;
    let mut tools = server.turns.host.tools();
    if limits.agents.is_some() {
        keep_of_agents(&mut tools, |agent| limits.allows(agent));
    }
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

/// Keeps the components of the agents that a client may use, and the names of these agents. Hooks work for every agent.
fn keep_of_agents(tools: &mut Value, is_allowed: impl Fn(&str) -> bool) {
    let mut names = BTreeSet::new();
    if let Some(components) = tools["components"].as_array_mut() {
        components.retain_mut(|component| {
            let agents = component.get_mut("agents").and_then(Value::as_array_mut);
            let is_kept = match agents {
                Some(agents) => {
                    agents.retain(|agent| agent.as_str().is_some_and(&is_allowed));
                    !agents.is_empty()
                }
                None => component["kind"] == "hook",
            };
            if is_kept && let Some(name) = component["name"].as_str() {
                names.insert(name.to_owned());
            }
            is_kept
        });
    }
    if let Some(combinations) = tools["combinations"].as_array_mut() {
        let is_known = |name: &Value| name.as_str().is_some_and(|name| names.contains(name));
        combinations.retain(|set| set.as_array().is_some_and(|set| set.iter().all(is_known)));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_sees_the_components_of_its_agents() {
        let all = json!({
            "components": [
                {"name": "files", "kind": "tool", "agents": ["default"]},
                {"name": "fetch", "kind": "tool", "agents": ["default", "helper"]},
                {"name": "mail", "kind": "server", "agents": ["helper"]},
                {"name": "idle", "kind": "server"},
                {"name": "unused", "kind": "tool", "agents": []},
                {"name": "filter", "kind": "hook"},
            ],
            "combinations": [["files", "fetch"], ["fetch", "mail"], ["fetch", "filter"]],
            "guard": "ask",
        });
        let seen = |allowed: &[&str]| {
            let mut tools = all.clone();
            keep_of_agents(&mut tools, |agent| allowed.contains(&agent));
            tools
        };
        assert_eq!(
            seen(&["helper"]),
            json!({
                "components": [
                    {"name": "fetch", "kind": "tool", "agents": ["helper"]},
                    {"name": "mail", "kind": "server", "agents": ["helper"]},
                    {"name": "filter", "kind": "hook"},
                ],
                "combinations": [["fetch", "mail"], ["fetch", "filter"]],
                "guard": "ask",
            })
        );
        assert_eq!(seen(&["default"])["components"][1]["agents"], json!(["default"]));
    }
}

//! Words of the terminal for clients: questions, and what components can access.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolcell_agent::AgentBuilder;
use toolcell_core::{ApprovalRequest, Limits};
use toolcell_serve::{QuestionText, TextPart, Words};

use crate::agent::setup::AgentSetup;
use crate::approval::question;
use crate::approval::terminal::Known;
use crate::commands::policy;
use crate::config::{Settings, limits};
use crate::ui::terminal::{Fact, Part, Text};

/// Returns a text by its authors.
pub(super) fn words(text: &Text) -> Words {
    let part = |part: Part<'_>| match part {
        Part::Own(own) => TextPart::Own(own.to_owned()),
        Part::Quoted(text) | Part::Foreign(text) => TextPart::Quoted(text),
    };
    let parts = text.parts().map(part);
    parts
        .filter(|part| !matches!(part, TextPart::Own(own) if own.is_empty()))
        .collect()
}

/// Describes the question about a call.
pub(super) fn question_text(request: &ApprovalRequest, known: Option<&Known>) -> QuestionText {
    let question = question::of_call(request, known, true);
    let facts = question.facts.iter().map(|fact| match fact {
        Fact::Plain(text) => (words(text), false),
        Fact::Warning(text) => (words(text), true),
    });
    QuestionText {
        component: known.map(|known| known.component.clone()),
        title: words(&question.title),
        facts: facts.collect(),
    }
}

/// Describes what the components of an agent can access, and their tools.
pub(super) fn tools(setup: &AgentSetup, settings: &Settings, locked: bool) -> Value {
    let servers = setup.servers.iter().map(|running| &running.settings);
    let access = policy::access(&setup.loaded, &setup.hooks, servers);
    let mut lines = access
        .lines
        .iter()
        .map(|lines| lines.iter().map(words).collect::<Vec<_>>());
    let mut components = Vec::new();
    for loaded in &setup.loaded {
        components.push(json!({
            "name": loaded.settings.name,
            "kind": "tool",
            "digest": loaded.component.digest().to_string(),
            "limits": limits(&loaded.settings.limits.limits),
            "is_locked": locked,
            "is_in_cell": true,
            "access": lines.next(),
            "tools": loaded.tools.iter().map(|tool| spec(tool.spec())).collect::<Vec<_>>(),
        }));
    }
    for hook in &setup.hooks {
        components.push(json!({
            "name": hook.settings.component.name,
            "kind": "hook",
            "digest": hook.component.identity().digest().to_string(),
            "limits": limits(&hook.settings.component.limits.limits),
            "is_locked": locked,
            "is_in_cell": true,
            "access": lines.next(),
            "tools": [],
        }));
    }
    for running in setup.servers.iter() {
        components.push(json!({
            "name": running.settings.name,
            "kind": "server",
            "is_locked": locked,
            "is_in_cell": matches!(running.settings.transport, crate::config::mcp::Transport::Cell { .. }),
            "access": lines.next(),
            "tools": running.tools.iter().map(|tool| spec(tool.spec())).collect::<Vec<_>>(),
        }));
    }
    let plain = |set: &Vec<Text>| set.iter().map(Text::plain).collect::<Vec<_>>();
    json!({
        "components": components,
        "combinations": access.combinations.iter().map(plain).collect::<Vec<_>>(),
        "guard": format!("{:?}", settings.flow.value).to_lowercase(),
    })
}

/// Adds the names of the agents that have tools of a component. Hooks have none.
pub(super) fn add_agents(tools: &mut Value, agents: &BTreeMap<String, AgentBuilder>) {
    for component in tools["components"].as_array_mut().into_iter().flatten() {
        let names: Vec<&str> = (component["tools"].as_array().into_iter().flatten())
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        let has = |agent: &AgentBuilder| names.iter().any(|name| agent.has_name(name));
        let of: Vec<&String> = agents
            .iter()
            .filter(|(_, agent)| has(agent))
            .map(|(name, _)| name)
            .collect();
        if !names.is_empty() {
            component["agents"] = json!(of);
        }
    }
}

/// Returns the limits in the words of the configuration.
fn limits(limits: &Limits) -> Vec<String> {
    let text = |name| format!("{name} {}", limits::exactly(name, limits::get(limits, name)));
    limits::NAMES.into_iter().map(text).collect()
}

fn spec(spec: &toolcell_core::ToolSpec) -> Value {
    json!({"name": spec.name, "description": spec.description, "schema": spec.input})
}

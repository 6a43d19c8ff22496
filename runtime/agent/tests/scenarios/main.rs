//! Scenario tests of the loop with a scripted model, one file per subject.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../support/testing.rs"]
mod testing;

mod answers;
mod approval;
mod budgets;
mod calls;
mod ends;
mod hooks;
mod limits;
mod presets;
mod sessions;
mod subagents;
mod suspended_agents;
mod targets;

use std::sync::{Arc, Mutex};

use serde_json::Value;
use toolcell_core::{Event, EventSink};

use crate::testing::Script;
use toolcell_agent::Agent;
use toolcell_agent::AgentBuilder;
use toolcell_agent::LoopState;

/// Event sink that records all events.
#[derive(Clone, Default)]
pub(crate) struct RecordedEvents(Arc<Mutex<Vec<Event>>>);

impl EventSink for RecordedEvents {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl RecordedEvents {
    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    /// Names of the events in order, without text deltas.
    pub(crate) fn names(&self) -> Vec<String> {
        self.all()
            .iter()
            .filter(|event| !event.is_transient())
            .map(|event| {
                let value = serde_json::to_value(event).unwrap();
                value["type"].as_str().unwrap().to_owned()
            })
            .collect()
    }
}

pub(crate) fn agent(script: &Arc<Script>) -> AgentBuilder {
    Agent::builder(script.clone())
}

/// Removes the times from a state, which differ between runs.
pub(crate) fn timeless(state: &LoopState) -> Value {
    fn forget(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.remove("wall_ms");
                members.values_mut().for_each(forget);
            }
            Value::Array(items) => items.iter_mut().for_each(forget),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(state).unwrap();
    forget(&mut value);
    value
}

//! The loop as a whole, against a scripted model: one file a subject.

mod answers;
mod approval;
mod budgets;
mod calls;
mod ends;
mod forge;
mod heimdall;
mod hooks;
mod limits;
mod sessions;
mod subagents;
mod vertex;
mod waterfell;

use std::sync::{Arc, Mutex};

use toolcell_core::{Event, EventSink};

use crate::Agent;
use crate::AgentBuilder;
use crate::LoopState;
use crate::testing::Script;

/// Keeps all events.
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

    /// The names of the events, in order, without pieces of text.
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

/// A state without the times in it, which are never the same twice.
pub(crate) fn timeless(state: &LoopState) -> LoopState {
    let mut state = state.clone();
    state.spent.wall_ms = 0;
    if let Some(turn) = &mut state.turn {
        turn.wall_ms = 0;
    }
    state
}

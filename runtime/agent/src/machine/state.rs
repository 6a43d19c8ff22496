//! What the loop knows. A state is what the events so far make of an empty one: [`LoopState::apply`] is the only code
//! that changes it, but for arguments that are checked and wait for their turn.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolcell_core::event::{Flow, TurnOutcome};
use toolcell_core::message::CallRequest;
use toolcell_core::provider::Usage;
use toolcell_core::{ApprovalCause, Content, Event, Message, Plan, ToolError};

use crate::budget::{Budget, Spent};
use crate::context::normalise;

/// Calls whose fingerprints are remembered to notice repetitions.
pub(crate) const REMEMBERED_CALLS: usize = 24;

/// Findings that an answer without the model lists.
pub(crate) const MAX_FINDINGS: usize = 50;

/// A session as the loop sees it. Load it, give [`crate::machine::Input::Resume`] to the machine, and it goes on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// Identifier of the session.
    pub session: String,
    /// The conversation.
    pub messages: Vec<Arc<Message>>,
    /// The turn that is open, if one is.
    pub turn: Option<Turn>,
    /// Turns begun so far.
    pub turns: u32,
    /// What the model intends to do.
    pub plan: Option<Plan>,
    /// What the session has touched.
    pub flow: Flow,
    /// What the session has used; the wall time of an open turn is in the turn.
    pub(crate) spent: Spent,
    /// Identifiers of all calls so far, also of those that were summarised away: the journal finds calls by them.
    pub(crate) call_ids: BTreeSet<String>,
    /// How long the conversation was when a provider last counted it.
    pub(crate) measured: Measured,
}

/// Tokens of the first messages of a conversation, as a provider counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) messages: usize,
    pub(crate) tokens: u64,
}

/// A turn that is open.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Requests made so far.
    pub steps: u32,
    /// Tokens so far.
    pub usage: Usage,
    /// Milliseconds so far in which it was not paused, as the driver tells. What a process that crashed had not stored
    /// does not count.
    pub wall_ms: u64,
    /// The calls of the latest answer.
    pub calls: Vec<Call>,
    /// The latest text of the model.
    pub text: String,
    /// How the turn will end, once that is decided.
    pub closing: Option<TurnOutcome>,
    pub(crate) phase: Phase,
    /// Added to the system prompt by hooks.
    pub(crate) instructions: String,
    /// What the person said, for settings that depend on it.
    pub(crate) prompt: String,
    /// Reminders for the next request alone.
    pub(crate) ephemeral_reminders: Vec<String>,
    /// Reminders that wait until all calls have their results.
    pub(crate) after_calls: Vec<String>,
    /// Answers without a call in a row.
    pub(crate) idle: u32,
    /// The latest error and how often it came in a row.
    pub(crate) failing: Option<(String, u32)>,
    /// Failures of the provider in a row.
    pub(crate) provider_failures: u32,
    /// Fingerprints of the latest calls with their results, oldest first.
    pub(crate) recent: VecDeque<u64>,
    /// First words of what the calls brought.
    pub(crate) findings: Vec<String>,
    /// Step before which a summary was tried.
    pub(crate) summarised: Option<u32>,
    /// What hooks share in this turn.
    #[serde(default)]
    pub(crate) shared: Map<String, Value>,
    /// What a session that called this one leaves it, as the driver tells.
    #[serde(skip)]
    pub(crate) outside: Budget,
}

/// What a turn waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// Hooks look at the prompt.
    #[default]
    Preparing,
    /// A summary.
    Summarising,
    /// The model.
    Requesting,
    /// Calls.
    Calling,
    /// Nothing: the answer is there and the next step is to be chosen.
    Deciding,
}

/// A call of the latest answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// As the model asked for it.
    pub request: CallRequest,
    /// How far it is.
    pub stage: Stage,
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// The model asked for it.
    Accepted,
    /// Its arguments are checked; it waits for its turn.
    Ready {
        /// What will be executed.
        arguments: Value,
        /// Once it is approved: what the session had touched when the question was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved: Option<Flow>,
    },
    /// It waits for a decision.
    Held {
        /// What will be executed when it is approved.
        arguments: Value,
        /// What asks.
        #[serde(default)]
        cause: ApprovalCause,
        /// What asks, in words for a person.
        reason: String,
        /// What the session had touched when it asked.
        flow: Flow,
    },
    /// It runs, or ran when the process ended.
    Running {
        /// What is executed.
        arguments: Value,
    },
    /// It has its result.
    Finished(Finished),
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// What was executed.
    pub arguments: Value,
    /// What the model reads.
    pub content: Vec<Content>,
    /// The answer in structured form.
    pub structured: Option<Value>,
    /// Why there is no answer.
    pub error: Option<ToolError>,
}

impl LoopState {
    /// A session in which nothing has happened.
    pub fn new(session: impl Into<String>) -> Self {
        Self {
            session: session.into(),
            ..Self::default()
        }
    }

    /// A session that begins with a conversation from elsewhere. Calls without results get one that says so; results
    /// without calls are left out.
    pub fn with_messages(session: impl Into<String>, messages: impl IntoIterator<Item = Message>) -> Self {
        let messages = normalise(messages.into_iter().map(Arc::new).collect());
        let messages = messages.iter().map(|message| (**message).clone()).collect();
        let mut state = Self::new(session);
        state.apply(&Event::Imported { messages });
        state
    }

    /// The last message, if it is one of the user's that nobody answered.
    pub(crate) fn unanswered(&self) -> Option<Message> {
        let last = self.messages.last()?;
        matches!(last.as_ref(), Message::User { .. }).then(|| (**last).clone())
    }

    /// What the session has used, the open turn included.
    pub fn spent(&self) -> Spent {
        let open = self.turn.as_ref().map_or(0, |turn| turn.wall_ms);
        Spent {
            wall_ms: self.spent.wall_ms.saturating_add(open),
            ..self.spent
        }
    }

    /// Calls that wait for a decision, by identifier.
    pub fn held(&self) -> Vec<String> {
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        calls
            .filter(|call| matches!(call.stage, Stage::Held { .. }))
            .map(|call| call.request.id.clone())
            .collect()
    }

    /// Length of the conversation in tokens: the provider's count for what it has seen, a quarter of the bytes for the
    /// rest.
    pub fn tokens(&self) -> u64 {
        let rest = self.messages.get(self.measured.messages..).unwrap_or_default();
        self.measured
            .tokens
            .saturating_add(crate::context::estimate(rest))
    }

    /// Estimated length of a request with the whole conversation; `overhead` is what else is in it, which is part of a
    /// provider's count.
    pub(crate) fn request_tokens(&self, overhead: u64) -> u64 {
        let overhead = if self.measured.messages == 0 { overhead } else { 0 };
        self.tokens().saturating_add(overhead)
    }
}

impl Turn {
    pub(crate) fn call_mut(&mut self, id: &str) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.request.id == id)
    }

    pub(crate) fn call(&self, id: &str) -> Option<&Call> {
        self.calls.iter().find(|call| call.request.id == id)
    }

    /// Whether every call has its result.
    pub(crate) fn settled(&self) -> bool {
        self.calls.iter().all(|call| call.finished().is_some())
    }
}

impl Call {
    /// The result, if there is one.
    pub fn finished(&self) -> Option<&Finished> {
        match &self.stage {
            Stage::Finished(finished) => Some(finished),
            _ => None,
        }
    }
}

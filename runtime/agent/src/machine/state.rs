//! State of the loop. A state is the fold of its events over an empty one: [`LoopState::apply`] is the only code that
//! changes it, except for checked arguments of calls that wait to start.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolcell_core::event::{DataFlow, TurnOutcome};
use toolcell_core::message::CallRequest;
use toolcell_core::provider::Usage;
use toolcell_core::{ApprovalCause, ArgumentPlace, CallResult, Event, Message, Plan};

use crate::budget::{Budget, Spent};
use crate::context::normalise;

/// Number of calls whose fingerprints are kept to detect repetitions.
pub(crate) const REMEMBERED_CALLS: usize = 24;

/// Maximum findings in an answer composed without the model.
pub(crate) const MAX_FINDINGS: usize = 50;

/// State of a session. To continue after loading it, pass [`crate::machine::Input::Resume`] to the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// Identifier of the session.
    pub session: String,
    /// Messages of the conversation.
    pub messages: Vec<Arc<Message>>,
    /// The open turn, if there is one.
    pub turn: Option<Turn>,
    /// Number of turns started.
    pub turns: u32,
    /// Plan of the model.
    pub plan: Option<Plan>,
    /// Data flow of the session.
    pub flow: DataFlow,
    /// Resources used by the session, without the wall time of an open turn.
    pub(crate) spent: Spent,
    /// Tokens of the finished turns.
    #[serde(default)]
    pub(crate) finished_usage: Usage,
    /// Cost of the finished turns by the prices of their time, in millionths of the currency unit; `None` without any.
    #[serde(default)]
    pub(crate) finished_cost: Option<u64>,
    /// Identifiers of all calls so far, including summarised ones: the journal finds calls by them.
    pub(crate) call_ids: BTreeSet<String>,
    /// Length of the conversation at the provider's last count.
    pub(crate) measured: Measured,
    /// Indices in `messages` at which turns start, as far as no summary has replaced them.
    #[serde(default)]
    pub(crate) starts: Vec<usize>,
    /// True if the user was told that the budget counts estimated tokens.
    #[serde(default)]
    pub(crate) said_estimated: bool,
}

/// Tokens of the first messages of a conversation, as counted by a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) messages: usize,
    pub(crate) tokens: u64,
}

/// Open turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Number of requests so far.
    pub steps: u32,
    /// Token usage so far.
    pub usage: Usage,
    /// Milliseconds so far, without pauses, reported by the driver. Time that a crashed process had not stored is not
    /// counted.
    pub wall_ms: u64,
    /// Resources used by the session before this turn.
    #[serde(default)]
    pub(crate) spent_before: Spent,
    /// True for a summary that the user asked for, which is a turn without a message.
    #[serde(default)]
    pub(crate) only_summary: bool,
    /// Calls of the latest answer.
    pub calls: Vec<Call>,
    /// Latest text of the model.
    pub text: String,
    /// Outcome of the turn, once decided.
    pub closing: Option<TurnOutcome>,
    pub(crate) phase: Phase,
    /// Text that hooks appended to the system prompt.
    pub(crate) instructions: String,
    /// The user's message, for settings that depend on it.
    pub(crate) prompt: String,
    /// Reminders for the next request only.
    pub(crate) ephemeral_reminders: Vec<String>,
    /// Reminders that wait until all calls have results.
    pub(crate) after_calls: Vec<String>,
    /// Number of answers without a call in a row.
    pub(crate) idle: u32,
    /// Latest error and its number of repetitions in a row.
    pub(crate) failing: Option<(String, u32)>,
    /// Number of provider failures in a row.
    pub(crate) provider_failures: u32,
    /// Fingerprints of the latest calls with their results, oldest first.
    pub(crate) recent: VecDeque<u64>,
    /// First words of the results of calls.
    pub(crate) findings: Vec<String>,
    /// Step before which a summary was last attempted.
    pub(crate) summarised: Option<u32>,
    /// Values shared by hooks in this turn.
    #[serde(default)]
    pub(crate) shared: Map<String, Value>,
    /// Remaining budget of the calling session, reported by the driver.
    #[serde(skip)]
    pub(crate) outside: Budget,
}

/// Next input of an open turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// Hooks on the prompt.
    #[default]
    Preparing,
    /// A summary.
    Summarising,
    /// An answer of the model.
    Requesting,
    /// Results of calls.
    Calling,
    /// Nothing: the answer is complete and the next step is to be chosen.
    Deciding,
}

/// Call of the latest answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The call as requested by the model.
    pub request: CallRequest,
    /// Stage of the call.
    pub stage: Stage,
}

/// Stage of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// Requested by the model.
    Accepted,
    /// Arguments are checked; waits to start.
    Ready {
        /// Arguments to execute.
        arguments: Value,
        /// After an approval: the session's data flow when the approval was requested.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved: Option<DataFlow>,
        /// Resolved targets of the arguments when hooks or the user judged them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        places: Option<Vec<ArgumentPlace>>,
    },
    /// Waits for a decision.
    Held {
        /// Arguments to execute if approved.
        arguments: Value,
        /// Cause of the approval request.
        #[serde(default)]
        cause: ApprovalCause,
        /// Reason shown to the user.
        reason: String,
        /// The session's data flow when the approval was requested.
        flow: DataFlow,
        /// Resolved targets of the arguments, as the question showed them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        places: Vec<ArgumentPlace>,
    },
    /// Running, or was running when the process ended.
    Running {
        /// Arguments of the execution.
        arguments: Value,
    },
    /// Waits for a decision about a call inside it.
    Suspended {
        /// Arguments of the execution.
        arguments: Value,
        /// State from which the tool continues.
        state: Value,
    },
    /// Has its result.
    Finished(Finished),
}

/// Call that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Arguments that were executed.
    pub arguments: Value,
    /// Result of the call.
    pub result: CallResult,
}

impl LoopState {
    /// Creates the state of an empty session.
    pub fn new(session: impl Into<String>) -> Self {
        Self {
            session: session.into(),
            ..Self::default()
        }
    }

    /// Creates the state of a session that starts with an existing conversation. Calls without results get an error
    /// result; results without calls are dropped.
    pub fn with_messages(session: impl Into<String>, messages: impl IntoIterator<Item = Message>) -> Self {
        let messages = normalise(messages.into_iter().map(Arc::new).collect());
        let messages = messages.iter().map(|message| (**message).clone()).collect();
        let mut state = Self::new(session);
        state.apply(&Event::Imported { messages });
        state
    }

    /// The last message of the user, if the model has not answered it, or has not answered the results of calls after it.
    pub(crate) fn unanswered(&self) -> Option<Message> {
        match **self.messages.last()? {
            Message::Assistant { .. } => None,
            _ => self.last_of_user().map(|at| (*self.messages[at]).clone()),
        }
    }

    /// Index of the last message of the user.
    pub(crate) fn last_of_user(&self) -> Option<usize> {
        let is_of_user = |message: &Arc<Message>| matches!(**message, Message::User { .. });
        self.messages.iter().rposition(is_of_user)
    }

    /// Tokens and cost of the finished turns, by the prices of their time, as in the list of sessions: the cost in millionths of
    /// the currency unit, `None` if no turn had a price. Without any price, no cost is incomplete.
    pub fn cost(&self) -> (Usage, Option<u64>) {
        let mut usage = self.finished_usage;
        usage.unpriced &= self.finished_cost.is_some();
        (usage, self.finished_cost)
    }

    /// Resources used by the session, including the open turn.
    pub fn spent(&self) -> Spent {
        let open = self.turn.as_ref().map_or(0, |turn| turn.wall_ms);
        Spent {
            wall_ms: self.spent.wall_ms.saturating_add(open),
            ..self.spent
        }
    }

    /// Identifiers of calls that wait for a decision, about themselves or about a call inside them.
    pub fn held(&self) -> Vec<String> {
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        calls
            .filter(|call| matches!(call.stage, Stage::Held { .. } | Stage::Suspended { .. }))
            .map(|call| call.request.id.clone())
            .collect()
    }

    /// Length of the conversation in tokens: the provider's count for the messages it has seen, a quarter of the bytes
    /// for the rest.
    pub fn tokens(&self) -> u64 {
        let rest = self.messages.get(self.measured.messages..).unwrap_or_default();
        self.measured
            .tokens
            .saturating_add(crate::context::estimate(rest))
    }

    /// Estimated length of a request with the whole conversation; `overhead` is the rest of the request, which a
    /// provider's count already includes.
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

    /// True if every call has its result.
    pub(crate) fn settled(&self) -> bool {
        self.calls.iter().all(|call| call.finished().is_some())
    }
}

impl Call {
    /// Result of the call, if it has one.
    pub fn finished(&self) -> Option<&Finished> {
        match &self.stage {
            Stage::Finished(finished) => Some(finished),
            _ => None,
        }
    }
}

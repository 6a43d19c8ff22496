//! State machine of the loop: a state and a transition for each input. It never waits, reads a clock or knows where a
//! request goes; the driver executes the effects and reports the results.
//!
//! ```text
//! Begin ─ hooks ─┬─► request ─► answer ─┬─ calls: check ─► gate ─► run ─► results ─┐
//!                │                      └─ none: finish, remind                    │
//!                └──────────────◄────────────────────◄─────────────────────────────┘
//! ```
//!
//! Invariants: each call of an answer gets exactly one result, for any order of inputs; inputs that are duplicate, late
//! or unexpected change nothing; a state that was stored, loaded and resumed continues as if it had not been.

mod answer;
mod apply;
mod approval;
mod calls;
#[cfg(test)]
mod decision_tests;
mod schema_answer;
mod state;
pub(crate) mod summary;
#[cfg(test)]
mod tests;

pub use state::{Call, Finished, LoopState, Stage, Turn};

pub(crate) use state::Phase;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use toolcell_core::event::{DataFlow, EVENT_VERSION, NoticeLevel, TurnOutcome};
use toolcell_core::provider::{Completion, ProviderError, ProviderInfo, Usage};
use toolcell_core::{ArgumentPlace, CallResult, Event, Limit, Message, Part, Receipt, Schema, ToolError};

use crate::approval::{ApprovalRequest, Approvals, Decision};
use crate::context;
use crate::context::messages;
use crate::policy::{Control, LoopPolicy};

/// Rules of a loop, shared by all of its sessions.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Loop settings.
    pub policy: LoopPolicy,
    /// Approval rules.
    pub approvals: Approvals,
    /// Properties of the tools, by name.
    pub tools: BTreeMap<String, ToolFacts>,
    /// Resolver of paths and URLs in the arguments of calls.
    pub places: Places,
    /// Schema of the answer text as JSON, if set.
    pub answer: Option<Arc<Schema>>,
    /// Estimated tokens of every request besides the conversation: the system prompt and the tools.
    pub overhead: u64,
}

/// Resolves the paths and URLs in the arguments of a call, by the name of its tool. It may read links of the file
/// system; its results are not part of the state. The default resolves nothing.
#[derive(Clone, Default)]
pub struct Places(Option<Arc<LookUp>>);

type LookUp = dyn Fn(&str, &Value) -> Vec<ArgumentPlace> + Send + Sync;

impl Places {
    /// Resolves with this function.
    pub fn new(look_up: impl Fn(&str, &Value) -> Vec<ArgumentPlace> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look_up)))
    }

    /// Places to which these arguments resolve.
    pub fn of(&self, tool: &str, arguments: &Value) -> Vec<ArgumentPlace> {
        self.0
            .as_ref()
            .map_or_else(Vec::new, |look_up| look_up(tool, arguments))
    }
}

impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Places").finish_non_exhaustive()
    }
}

/// Properties of a tool that the machine needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolFacts {
    /// A call whose outcome is unknown may be run again.
    pub idempotent: bool,
    /// Calls run alone: an exclusive call waits for earlier calls, and later calls wait for it.
    pub exclusive: bool,
    /// Repeating the same call is expected.
    pub polling: bool,
    /// Data flow of its calls.
    pub flow: DataFlow,
    /// The control tool, if it is one.
    pub control: Option<Control>,
    /// The client runs it: its calls wait for the client, whatever the rules are.
    pub of_client: bool,
}

/// Input of the machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Message of the user.
    Begin {
        /// The message.
        message: Message,
        /// The provider that will answer.
        provider: ProviderInfo,
        /// The message is already at the end of the conversation.
        unanswered: bool,
        /// Data flow of what is attached to the message.
        flow: DataFlow,
    },
    /// Result of the hooks at the prompt.
    Prompted {
        /// Replacement of the user's message, if it changed.
        message: Option<Message>,
        /// Text appended to the system prompt.
        instructions: String,
    },
    /// A request was answered.
    Answered {
        /// The answer.
        completion: Completion,
        /// Tools of calls that were cut off.
        cut: Vec<String>,
    },
    /// A request failed.
    AnswerFailed {
        /// Error of the provider.
        error: ProviderError,
        /// Partial answer.
        partial: String,
    },
    /// The older part of the conversation was summarised.
    Summarised {
        /// Number of messages that are replaced.
        removed: usize,
        /// Messages in place of the removed ones.
        replacement: Vec<Message>,
        /// Token usage.
        usage: Option<Usage>,
    },
    /// Summarising failed.
    SummaryFailed {
        /// Reason of the failure.
        reason: String,
        /// Token usage of the attempt.
        usage: Option<Usage>,
        /// Outcome of the turn, if a hook ends it.
        outcome: Option<TurnOutcome>,
    },
    /// The arguments of a call were checked.
    Prepared {
        /// Identifier of the call.
        id: String,
        /// Arguments to execute, or the refusal.
        arguments: Result<Value, RefusedCall>,
        /// Resolved targets of the arguments when hooks judged them, if any did.
        places: Option<Vec<ArgumentPlace>>,
    },
    /// Decision of the user on a call.
    Decided {
        /// Identifier of the call.
        id: String,
        /// The decision.
        decision: Decision,
    },
    /// A call ended.
    Returned {
        /// Identifier of the call.
        id: String,
        /// Result of the call.
        result: CallResult,
    },
    /// A call waits for a decision about a call inside it.
    Suspended {
        /// Identifier of the call.
        id: String,
        /// State from which its tool continues.
        state: Value,
        /// Use of the call since it started or was resumed.
        receipt: Option<Receipt>,
    },
    /// The turn is stopped. Running calls were dropped.
    Stop {
        /// Outcome of the turn.
        outcome: TurnOutcome,
        /// Partial answer.
        partial: String,
        /// Results of the calls that were running: those that had just finished keep their results, the others were
        /// cancelled.
        ended: BTreeMap<String, CallResult>,
    },
    /// Summarise the older part of the conversation, between two turns.
    Compact,
    /// The state was loaded: no operation is in progress any more.
    Resume,
}

/// Reason why a call is not executed.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedCall {
    /// Parsed arguments; the model's text if they are not JSON.
    pub arguments: Value,
    /// Error for the model.
    pub error: ToolError,
}

/// Action for the driver. The events of one step are stored atomically before any other effect of that step is
/// executed.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// An event.
    Emit(Event),
    /// Run hooks on the prompt; answer with [`Input::Prompted`] or [`Input::Stop`].
    Prompt,
    /// Send a request to the model; answer with [`Input::Answered`] or [`Input::AnswerFailed`].
    Request {
        /// True if the model may call tools.
        tools: bool,
        /// Maximum tokens of the answer that the budget allows.
        max_output: Option<u64>,
    },
    /// Summarise the first messages; answer with [`Input::Summarised`] or [`Input::SummaryFailed`].
    Summarise {
        /// Number of messages.
        messages: usize,
        /// Maximum tokens of the summary that the budget allows.
        max_output: Option<u64>,
    },
    /// Check the arguments of a call; answer with [`Input::Prepared`].
    Prepare {
        /// Identifier of the call.
        id: String,
        /// Name of the tool, as the model wrote it.
        tool: String,
        /// Arguments as written by the model.
        arguments: String,
    },
    /// Ask the user; answer with [`Input::Decided`], or leave it open.
    Ask(ApprovalRequest),
    /// Run a call; answer with [`Input::Returned`] or [`Input::Suspended`].
    Run {
        /// Identifier of the call.
        id: String,
        /// Name of the tool.
        tool: String,
        /// Arguments, already checked.
        arguments: Value,
        /// Resolved targets of the arguments when rules, hooks or the user judged the call; empty if nothing did.
        places: Vec<ArgumentPlace>,
        /// State of a suspended call, which continues.
        suspended: Option<Value>,
    },
}

impl Machine {
    /// Applies an input to the state and returns the effects. Inputs that do not fit the state change nothing and have
    /// no effect.
    pub fn step(&self, state: &mut LoopState, input: Input) -> Vec<Effect> {
        let mut step = Step {
            machine: self,
            state,
            effects: Vec::new(),
        };
        step.take(input);
        step.effects
    }
}

/// Step in progress: every event is applied at once, so that later code of the step sees it.
struct Step<'a> {
    machine: &'a Machine,
    state: &'a mut LoopState,
    effects: Vec<Effect>,
}

impl Step<'_> {
    fn take(&mut self, input: Input) {
        let phase = self.state.turn.as_ref().map(|turn| turn.phase);
        match (input, phase) {
            (
                Input::Begin {
                    message,
                    provider,
                    unanswered,
                    flow,
                },
                None,
            ) => self.begin(message, provider, unanswered, flow),
            (
                Input::Prompted {
                    message,
                    instructions,
                },
                Some(Phase::Preparing),
            ) => self.prompted(message, instructions),
            (Input::Answered { completion, cut }, Some(Phase::Requesting)) => self.answered(completion, &cut),
            (Input::AnswerFailed { error, partial }, Some(Phase::Requesting)) => {
                self.answer_failed(error, &partial);
            }
            (
                Input::Summarised {
                    removed,
                    replacement,
                    usage,
                },
                Some(Phase::Summarising),
            ) => self.summarised(removed, replacement, usage),
            (
                Input::SummaryFailed {
                    reason,
                    usage,
                    outcome,
                },
                Some(Phase::Summarising),
            ) => {
                self.summary_failed(&reason, usage, outcome);
            }
            (
                Input::Prepared {
                    id,
                    arguments,
                    places,
                },
                Some(Phase::Calling),
            ) => self.prepared(&id, arguments, places),
            (Input::Decided { id, decision }, Some(Phase::Calling)) => self.decided(&id, decision),
            (Input::Returned { id, result }, Some(Phase::Calling)) => self.returned(&id, result),
            (Input::Suspended { id, state, receipt }, Some(Phase::Calling)) => {
                self.suspended(&id, state, receipt);
            }
            (
                Input::Stop {
                    outcome,
                    partial,
                    ended,
                },
                Some(phase),
            ) => self.stop(outcome, &partial, ended, phase),
            (Input::Compact, None) => self.compact(),
            (Input::Resume, Some(phase)) => self.resume(phase),
            _ => {}
        }
    }

    fn emit(&mut self, event: Event) {
        self.state.apply(&event);
        self.effects.push(Effect::Emit(event));
    }

    fn notice(&mut self, level: NoticeLevel, text: String) {
        self.emit(Event::Notice {
            level,
            hook: None,
            text,
        });
    }

    fn begin(&mut self, message: Message, provider: ProviderInfo, unanswered: bool, flow: DataFlow) {
        if self.state.turns == 0 && !self.state.messages.is_empty() {
            // The state has them already, the journal does not.
            let messages = self.state.messages.iter().map(|message| (**message).clone());
            self.effects.push(Effect::Emit(Event::Imported {
                messages: messages.collect(),
            }));
        }
        self.emit(Event::TurnStarted {
            version: EVENT_VERSION,
            session: self.state.session.clone(),
            provider: provider.provider,
            model: provider.model,
            message,
            unanswered,
        });
        let flow = self.state.flow.with_attached(flow);
        if flow != self.state.flow {
            let id = String::new();
            self.emit(Event::FlowChanged { id, flow });
        }
        self.effects.push(Effect::Prompt);
    }

    fn prompted(&mut self, message: Option<Message>, instructions: String) {
        if message.is_some() || !instructions.is_empty() {
            let last = self.state.messages.last().map(|message| (**message).clone());
            if let Some(message) = message.or(last) {
                self.emit(Event::PromptChanged {
                    message,
                    instructions,
                });
            }
        }
        self.advance();
    }

    /// Ends the turn from outside: everything that is open is closed in one step.
    fn stop(
        &mut self,
        outcome: TurnOutcome,
        partial: &str,
        mut ended: BTreeMap<String, CallResult>,
        phase: Phase,
    ) {
        if phase == Phase::Requesting {
            let reason = match &outcome {
                TurnOutcome::Cancelled => "cancelled".to_owned(),
                TurnOutcome::Deadline { ms } => Limit::WallTimeMs(*ms).to_string(),
                TurnOutcome::HostFailed { message } => message.clone(),
                TurnOutcome::Budget { reason } => reason.clone(),
                _ => "stopped".to_owned(),
            };
            self.interrupted(partial, reason);
        }
        for (id, stage) in self.open_calls() {
            match stage {
                Stage::Running { .. } | Stage::Suspended { .. } => {
                    let result = ended.remove(&id);
                    self.finish_call(
                        &id,
                        result.unwrap_or_else(|| CallResult::failed(ToolError::Cancelled)),
                    );
                }
                _ => {
                    let arguments = self.arguments(&id);
                    self.refuse_call(
                        &id,
                        arguments,
                        ToolError::Failed {
                            message: messages::NOT_BEGUN.into(),
                        },
                    );
                }
            }
        }
        self.finish(outcome);
    }

    /// Repeats what the ended process had in progress.
    fn resume(&mut self, phase: Phase) {
        match phase {
            Phase::Preparing => self.effects.push(Effect::Prompt),
            Phase::Requesting => {
                let step = self.turn().steps;
                self.request(step);
            }
            Phase::Summarising | Phase::Deciding => self.advance(),
            Phase::Calling => self.resume_calls(),
        }
    }

    /// Keeps the partial answer in the conversation.
    fn interrupted(&mut self, partial: &str, reason: String) {
        let message = (!partial.is_empty()).then(|| Message::Assistant {
            parts: vec![Part::text(partial)],
        });
        let step = self.turn().steps;
        let input = self.state.request_tokens(self.machine.overhead);
        let usage = message
            .as_ref()
            .map(|message| context::counted(Usage::default(), input, message));
        self.emit(Event::StepInterrupted {
            step,
            message,
            reason,
            usage,
        });
    }

    /// The open turn. Called only from the handlers of an open turn.
    fn turn(&self) -> &Turn {
        self.state
            .turn
            .as_ref()
            .expect("`take` lets this input through only while a turn is open")
    }
}

//! The loop itself: a state, and what follows from each thing that happens. Nothing here waits, reads a clock or knows
//! where a request goes; the driver does what the effects ask for and reports back.
//!
//! ```text
//! Begin ─ hooks ─┬─► request ─► answer ─┬─ calls: check ─► gate ─► run ─► results ─┐
//!                │                      └─ none: finish, remind                    │
//!                └──────────────◄────────────────────◄─────────────────────────────┘
//! ```
//!
//! What always holds: each call of an answer gets exactly one result, whatever comes in and in whatever order; what comes
//! twice, too late or for nobody changes nothing; and a state that was stored, loaded and resumed goes on as if it had
//! not been.

mod answer;
mod apply;
mod calls;
#[cfg(test)]
mod decision_tests;
mod state;
#[cfg(test)]
mod tests;

pub use state::{Call, Finished, LoopState, Stage, Turn};

pub(crate) use state::Phase;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use toolcell_core::event::{EVENT_VERSION, Flow, NoticeLevel, TurnOutcome};
use toolcell_core::provider::{Completion, ProviderError, ProviderInfo, Usage};
use toolcell_core::{ArgumentPlace, Content, Event, Message, Part, Receipt, Schema, ToolError};

use crate::approval::{ApprovalRequest, Approvals, Decision};
use crate::context;
use crate::context::messages;
use crate::policy::{Control, LoopPolicy};

/// The rules of a loop: the same for all of its sessions.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// What is done where loops differ.
    pub policy: LoopPolicy,
    /// Which calls may run.
    pub approvals: Approvals,
    /// What the machine must know of the tools, by name.
    pub tools: BTreeMap<String, ToolFacts>,
    /// Where the arguments of calls lead.
    pub places: Places,
    /// What an answer in text must fit, as JSON.
    pub answer: Option<Arc<Schema>>,
    /// Estimated tokens of every request beside the conversation: the system prompt and the tools.
    pub overhead: u64,
}

/// Looks up where the arguments of a call lead, by the name of its tool. It reads links of the file system; nothing that it
/// says is part of a state. Without it arguments lead nowhere.
#[derive(Clone, Default)]
pub struct Places(Option<Arc<LookUp>>);

type LookUp = dyn Fn(&str, &Value) -> Vec<ArgumentPlace> + Send + Sync;

impl Places {
    /// Looks up with this function.
    pub fn new(look_up: impl Fn(&str, &Value) -> Vec<ArgumentPlace> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look_up)))
    }

    /// Where these arguments lead.
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

/// What the machine must know of a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolFacts {
    /// A call whose outcome is unknown may be run again.
    pub idempotent: bool,
    /// Its calls run alone: not while one before it runs, and none after it before its end.
    pub exclusive: bool,
    /// Repeating the same call is normal.
    pub polling: bool,
    /// What its calls touch.
    pub flow: Flow,
    /// What it means to the loop.
    pub control: Option<Control>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A person says something.
    Begin {
        /// What.
        message: Message,
        /// Which model will answer.
        provider: ProviderInfo,
        /// The message stands at the end of the conversation already.
        unanswered: bool,
    },
    /// Hooks have looked at the prompt.
    Prompted {
        /// What stands for the person's message from now on, if that changed.
        message: Option<Message>,
        /// Added to the system prompt.
        instructions: String,
    },
    /// A request was answered.
    Answered {
        /// The answer.
        completion: Completion,
        /// Names of the tools of calls that began and were cut off.
        cut: Vec<String>,
    },
    /// A request was not answered.
    AnswerFailed {
        /// Why.
        error: ProviderError,
        /// What there was of the answer.
        partial: String,
    },
    /// The older part of the conversation was summarised.
    Summarised {
        /// How many messages are replaced.
        removed: usize,
        /// By what.
        replacement: Vec<Message>,
        /// What it cost.
        usage: Option<Usage>,
    },
    /// No summary could be made.
    SummaryFailed {
        /// Why.
        reason: String,
        /// What it cost all the same.
        usage: Option<Usage>,
    },
    /// The arguments of a call were looked at.
    Prepared {
        /// Identifier of the call.
        id: String,
        /// What will be executed, or why nothing will be.
        arguments: Result<Value, Refusal>,
    },
    /// A person decided on a call.
    Decided {
        /// Identifier of the call.
        id: String,
        /// How.
        decision: Decision,
    },
    /// A call ended.
    Returned {
        /// Identifier of the call.
        id: String,
        /// How.
        outcome: CallOutcome,
    },
    /// The turn ends now. Calls that ran were dropped.
    Stop {
        /// How the turn ends.
        outcome: TurnOutcome,
        /// What there was of an answer.
        partial: String,
        /// How the calls ended that ran: those that were done just then have their results, the others were cancelled.
        ended: BTreeMap<String, CallOutcome>,
    },
    /// The state was loaded: whatever was under way is no longer.
    Resume,
}

/// Why a call is not executed.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The arguments as far as they could be read; otherwise the model's own words.
    pub arguments: Value,
    /// Why.
    pub error: ToolError,
}

/// How a call ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallOutcome {
    /// What the model reads. Ignored when there is an error.
    pub content: Vec<Content>,
    /// The answer in structured form.
    pub structured: Option<Value>,
    /// Why there is no answer.
    pub error: Option<ToolError>,
    /// What it used.
    pub receipt: Option<Receipt>,
    /// It was refused or cancelled before the tool ran.
    pub not_run: bool,
}

/// What is to be done. The events of one step are stored, all or none, before anything else of that step is done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// This happened.
    Emit(Event),
    /// Let hooks look at the prompt; answer with [`Input::Prompted`] or [`Input::Stop`].
    Prompt,
    /// Ask the model; answer with [`Input::Answered`] or [`Input::AnswerFailed`].
    Request {
        /// Whether it may call tools.
        tools: bool,
        /// Most tokens that the budget leaves for the answer.
        max_output: Option<u64>,
    },
    /// Have the first messages summarised; answer with [`Input::Summarised`] or [`Input::SummaryFailed`].
    Summarise {
        /// How many.
        messages: usize,
        /// Most tokens that the budget leaves for the summary.
        max_output: Option<u64>,
    },
    /// Look at the arguments of a call; answer with [`Input::Prepared`].
    Prepare {
        /// Identifier of the call.
        id: String,
        /// Name of the tool, as the model wrote it.
        tool: String,
        /// Arguments as the model wrote them.
        arguments: String,
    },
    /// Ask a person; answer with [`Input::Decided`], or leave it open.
    Ask(ApprovalRequest),
    /// Run a call; answer with [`Input::Returned`].
    Run {
        /// Identifier of the call.
        id: String,
        /// Name of the tool.
        tool: String,
        /// Exactly these arguments.
        arguments: Value,
    },
}

impl CallOutcome {
    /// A call that does not run.
    pub fn refused(error: ToolError) -> Self {
        Self {
            error: Some(error),
            not_run: true,
            ..Self::default()
        }
    }

    /// Bytes that the model reads of it.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match &self.error {
            Some(error) => error.for_model().len(),
            None => self.content.iter().map(Content::byte_len).sum(),
        };
        bytes as u64
    }

    /// A call that was dropped.
    pub fn cancelled() -> Self {
        Self {
            error: Some(ToolError::Cancelled),
            ..Self::default()
        }
    }
}

impl Machine {
    /// What follows from an input. Inputs that do not fit the state change nothing and have no effect.
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

/// One step on its way: every event is applied at once, so that what follows sees it.
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
                },
                None,
            ) => self.begin(message, provider, unanswered),
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
            (Input::SummaryFailed { reason, usage }, Some(Phase::Summarising)) => {
                self.summary_failed(&reason, usage);
            }
            (Input::Prepared { id, arguments }, Some(Phase::Calling)) => self.prepared(&id, arguments),
            (Input::Decided { id, decision }, Some(Phase::Calling)) => self.decided(&id, decision),
            (Input::Returned { id, outcome }, Some(Phase::Calling)) => self.returned(&id, outcome),
            (
                Input::Stop {
                    outcome,
                    partial,
                    ended,
                },
                Some(phase),
            ) => self.stop(outcome, &partial, ended, phase),
            (Input::Resume, Some(phase)) => self.resume(phase),
            _ => {}
        }
    }

    fn emit(&mut self, event: Event) {
        self.state.apply(&event);
        self.effects.push(Effect::Emit(event));
    }

    fn notice(&mut self, level: NoticeLevel, text: String) {
        self.emit(Event::Notice { level, text });
    }

    fn begin(&mut self, message: Message, provider: ProviderInfo, unanswered: bool) {
        if self.state.turns == 0 && !self.state.messages.is_empty() {
            // The state has them already; the journal has not.
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
        self.effects.push(Effect::Prompt);
    }

    fn prompted(&mut self, message: Option<Message>, instructions: String) {
        if message.is_some() || !instructions.is_empty() {
            let said = self.state.messages.last().map(|message| (**message).clone());
            if let Some(message) = message.or(said) {
                self.emit(Event::PromptChanged {
                    message,
                    instructions,
                });
            }
        }
        self.advance();
    }

    /// Ends the turn from outside: everything that is open gets its end, in one step.
    fn stop(
        &mut self,
        outcome: TurnOutcome,
        partial: &str,
        mut ended: BTreeMap<String, CallOutcome>,
        phase: Phase,
    ) {
        if phase == Phase::Requesting {
            let reason = match &outcome {
                TurnOutcome::Cancelled => "cancelled".to_owned(),
                TurnOutcome::Deadline { ms } => format!("not finished after {ms} ms"),
                TurnOutcome::HostFailed { message } => message.clone(),
                TurnOutcome::Budget { reason } => reason.clone(),
                _ => "stopped".to_owned(),
            };
            self.interrupted(partial, reason);
        }
        for (id, stage) in self.open_calls() {
            match stage {
                Stage::Running { .. } => {
                    let outcome = ended.remove(&id).unwrap_or_else(|| CallOutcome::cancelled());
                    self.finish_call(&id, outcome);
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

    /// Does again what the process that ended had under way.
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

    /// What there was of an answer stays in the conversation.
    fn interrupted(&mut self, partial: &str, reason: String) {
        let message = (!partial.is_empty()).then(|| Message::Assistant {
            parts: vec![Part::text(partial)],
        });
        let step = self.turn().steps;
        let usage = message.as_ref().map(|message| self.estimate(message));
        self.emit(Event::StepInterrupted {
            step,
            message,
            reason,
            usage,
        });
    }

    /// Tokens of the request that is under way and of what there is of its answer, where no provider counted them.
    fn estimate(&self, answer: &Message) -> Usage {
        Usage {
            input: self.state.request_tokens(self.machine.overhead),
            output: context::estimate_one(answer),
            ..Usage::default()
        }
    }

    /// The open turn. Only called from the handlers of an open turn.
    fn turn(&self) -> &Turn {
        self.state
            .turn
            .as_ref()
            .expect("`take` lets this input through only while a turn is open")
    }
}

//! Tasks of a turn: hooks, checks, calls, approvals and summaries. Each ends in one [`TaskEnd`], or is dropped.

use std::sync::Arc;

use serde_json::Value;
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::{Completion, Request, ToolChoice, Usage};
use toolcell_core::{ArgumentPlace, Decision, Message, Part, RemainingBudget};
use tracing::Instrument as _;

use super::call::CallTask;
use super::observer::Observer;
use super::{Driver, RunningCall, Summary};
use crate::approval::check_places;
use crate::budget;
use crate::context::{self, messages, normalise};
use crate::definition::AgentDefinition;
use crate::driver::spans;
use crate::hook::{Aborted, FailurePhase, FailureReport, HookTurn, PreparedCall, PromptDraft, Ruling};
use crate::machine::Input;
use crate::tools::dispatch;

/// Result of a task.
pub(super) enum TaskEnd {
    /// Input of the machine that the task produced.
    Input(Box<Input>),
    /// Decisions about calls, by their identifiers.
    Decided(Vec<(String, Decision)>),
    /// Hooks were notified of a failure.
    Reported,
    /// A hook aborts the turn.
    Aborted { by: String, reason: String },
    /// The input of a summary is ready.
    SummaryBegun {
        removed: usize,
        replaced: Vec<Message>,
        request: Request,
        max_output: Option<u64>,
    },
}

impl TaskEnd {
    pub(super) fn of(input: Input) -> Self {
        Self::Input(Box::new(input))
    }
}

impl Driver<'_> {
    pub(super) fn spawn_prompt(&mut self) {
        let inner = self.inner.clone();
        let turn = self.hooks.clone();
        let mut history = self.state.messages.clone();
        let message = history.pop().map_or_else(|| Message::user(""), |m| (*m).clone());
        let limit = inner.machine.policy.context.summarise_at;
        let mut draft = PromptDraft::new(message, history, self.state.tokens(), limit);
        self.tasks.spawn(async move {
            match inner.hooks.before_prompt(&mut draft, &turn).await {
                Ruling::Proceed => {
                    let (message, instructions) = draft.into_parts();
                    TaskEnd::of(Input::Prompted {
                        message,
                        instructions,
                    })
                }
                Ruling::Cancel { by, reason } | Ruling::Abort { by, reason } => {
                    TaskEnd::Aborted { by, reason }
                }
            }
        });
    }

    pub(super) fn spawn_prepare(&mut self, id: String, tool: String, arguments: String) {
        let inner = self.inner.clone();
        let turn = self.hooks.clone();
        self.tasks.spawn(async move {
            match prepare(&inner, &turn, &id, &tool, &arguments).await {
                Ok(arguments) => {
                    let (arguments, places) = match arguments {
                        Ok((arguments, places)) => (Ok(arguments), places),
                        Err(refused) => (Err(refused), None),
                    };
                    TaskEnd::of(Input::Prepared {
                        id,
                        arguments,
                        places,
                    })
                }
                Err(Aborted { by, reason }) => TaskEnd::Aborted { by, reason },
            }
        });
    }

    /// Sends the approval requests that have come together, unless others are open.
    pub(super) fn ask_next(&mut self) {
        if self.asking || self.questions.is_empty() {
            return;
        }
        let requests = std::mem::take(&mut self.questions);
        self.asking = true;
        let account = self.account.clone();
        self.tasks.spawn(async move {
            let decisions = account.ask_all(&requests).await.into_iter();
            let missing = std::iter::repeat_with(|| Decision::Deny { reason: None });
            let ids = requests.into_iter().map(|request| request.id);
            TaskEnd::Decided(ids.zip(decisions.chain(missing)).collect())
        });
    }

    pub(super) fn spawn_call(
        &mut self,
        id: String,
        tool: String,
        arguments: Value,
        judged: Vec<ArgumentPlace>,
        suspended: Option<Value>,
    ) {
        let mut observer = Observer::new(
            id.clone(),
            tool.clone(),
            self.account.clone(),
            self.notes.0.clone(),
        );
        if let Some(state) = suspended {
            observer.continue_from(state);
        }
        if !judged.is_empty() {
            let places = self.inner.machine.places.clone();
            let (tool, arguments) = (tool.clone(), arguments.clone());
            observer.check_start_by(Box::new(move || {
                check_places(&judged, &places.of(&tool, &arguments))
            }));
        }
        let observer = Arc::new(observer);
        let found = self.inner.registry.get(&tool);
        let most = found.map_or(RemainingBudget::NOTHING, |tool| tool.max_use());
        let result = self.inner.machine.policy.result_bytes as u64;
        let waiting = self.account.reserve(&budget::most_of_call(most, result));
        let running = RunningCall {
            observer: observer.clone(),
            ticket: waiting.ticket(),
        };
        self.running.insert(id.clone(), running);
        let call = CallTask {
            inner: self.inner.clone(),
            results: self.results.clone(),
            hooks: self.hooks.clone(),
            observer,
            account: self.account.clone(),
            running: self.calls.begin(&id),
            id,
            tool,
            arguments,
        };
        let span = spans::tool(&self.state.session, &call.tool, &call.id);
        let task = async move { TaskEnd::of(call.complete(waiting).await) };
        self.tasks.spawn(task.instrument(span));
    }

    pub(super) fn spawn_failure(&mut self, phase: FailurePhase, message: String) {
        if self.inner.hooks.is_empty() {
            return;
        }
        let inner = self.inner.clone();
        let turn = self.hooks.clone();
        self.tasks.spawn(async move {
            inner
                .hooks
                .on_error(&FailureReport { phase, message }, &turn)
                .await;
            TaskEnd::Reported
        });
    }

    /// Runs the hooks that choose the messages to summarise, then sends the request.
    pub(super) fn spawn_summary(&mut self, messages: usize, max_output: Option<u64>) {
        let inner = self.inner.clone();
        let turn = self.hooks.clone();
        let messages = messages.min(self.state.messages.len());
        let replaced: Vec<Message> = self.state.messages[..messages]
            .iter()
            .map(|m| (**m).clone())
            .collect();
        let session: Arc<str> = self.state.session.as_str().into();
        self.tasks.spawn(async move {
            let mut chosen = replaced.clone();
            let ruling = inner.hooks.before_summary(&mut chosen, &turn).await;
            if let Some(end) = summary_refused(ruling, None) {
                return end;
            }
            let mut chosen = normalise(chosen.into_iter().map(Arc::new).collect());
            chosen.push(Arc::new(Message::user(messages::SUMMARISE)));
            let request = Request {
                instructions: messages::SUMMARISER.into(),
                messages: chosen,
                // Some providers refuse a conversation with calls if no tools are given.
                tools: inner.specs.clone(),
                tool_choice: ToolChoice::None,
                session: Some(session),
                ..Request::default()
            };
            TaskEnd::SummaryBegun {
                removed: messages,
                replaced,
                request,
                max_output,
            }
        });
    }

    pub(super) fn spawn_summarised(&mut self, summary: Summary, completion: Completion) {
        let inner = self.inner.clone();
        let turn = self.hooks.clone();
        let next_is_user = matches!(
            self.state.messages.get(summary.removed).map(AsRef::as_ref),
            Some(Message::User { .. })
        );
        self.tasks.spawn(async move {
            let answer = Message::Assistant {
                parts: completion.parts.clone(),
            };
            let usage = completion.usage.unwrap_or_default();
            let usage = Some(context::counted(usage, summary.input, &answer));
            let text: String = completion
                .parts
                .iter()
                .filter_map(|part| match part {
                    Part::Text { text, .. } => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            if text.trim().is_empty() {
                let reason = "the model wrote no summary".into();
                return TaskEnd::of(Input::SummaryFailed {
                    reason,
                    usage,
                    outcome: None,
                });
            }
            let mut replacement = vec![Message::user(messages::SUMMARY_HEADING), Message::assistant(text)];
            let hooks = &inner.hooks;
            let ruling = hooks
                .after_summary(&summary.replaced, &mut replacement, &turn)
                .await;
            if let Some(end) = summary_refused(ruling, usage) {
                return end;
            }
            // An answer must not follow an answer, nor begin the conversation.
            if !next_is_user && matches!(replacement.last(), None | Some(Message::Assistant { .. })) {
                replacement.push(Message::user(messages::CONTINUE));
            }
            let replacement = normalise(replacement.into_iter().map(Arc::new).collect());
            TaskEnd::of(Input::Summarised {
                removed: summary.removed,
                replacement: replacement.iter().map(|m| (**m).clone()).collect(),
                usage,
            })
        });
    }
}

/// Returns the end of a summary that hooks refused.
fn summary_refused(ruling: Ruling, usage: Option<Usage>) -> Option<TaskEnd> {
    let (by, reason, ends) = match ruling {
        Ruling::Proceed => return None,
        Ruling::Cancel { by, reason } => (by, reason, false),
        Ruling::Abort { by, reason } => (by, reason, true),
    };
    Some(TaskEnd::of(Input::SummaryFailed {
        reason: format!("the hook `{by}` refused it: {reason}"),
        usage,
        outcome: ends.then_some(TurnOutcome::Aborted { by, reason }),
    }))
}

/// Checks a call, runs the hooks before it, and checks it again if they changed it. Returns the arguments, and where they
/// led when hooks judged them.
///
/// # Errors
/// Fails if a hook aborts the turn.
async fn prepare(
    inner: &AgentDefinition,
    turn: &HookTurn,
    id: &str,
    tool: &str,
    arguments: &str,
) -> Result<PreparedCall, Aborted> {
    let (found, checked) = match dispatch::check(&inner.registry, tool, arguments) {
        Ok(found) => found,
        Err(refusal) => {
            inner.hooks.report_arguments(tool, &refusal.error, turn).await;
            return Ok(Err(refusal));
        }
    };
    inner.hooks.prepare_call(id, &*found, checked, turn).await
}

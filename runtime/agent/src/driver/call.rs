//! One call in its own task: run, truncated for the model, reported to hooks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use toolcell_core::event::NoticeLevel;
use toolcell_core::tool::CallObserver as _;
use toolcell_core::{CallContext, Content, Event, RemainingBudget, ToolCall, ToolError, ToolName};
use tracing::Span;

use super::account::{Account, Waiting};
use super::observer::Observer;
use super::tasks::Done;
use crate::budget::Spent;
use crate::budget::reserve::{Amounts, Exhausted};
use crate::context::messages;
use crate::definition::AgentDefinition;
use crate::driver::spans;
use crate::hook::{CallReport, FailurePhase, FailureReport, HookTurn};
use crate::machine::CallOutcome;
use crate::policy::Control;
use crate::tools::dispatch::{self, Attempt};
use crate::tools::results::{ReadResult, ResultStore};

/// Call in its own task.
pub(super) struct Run {
    pub(super) inner: Arc<AgentDefinition>,
    pub(super) shelf: Arc<ResultStore>,
    pub(super) hooks: HookTurn,
    pub(super) observer: Arc<Observer>,
    pub(super) account: Arc<Account>,
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) arguments: Value,
}

impl Run {
    /// Waits for the reservation and runs the call. Its use is charged before hooks run, so that theirs can be
    /// reserved.
    pub(super) async fn run(self, waiting: Waiting) -> Done {
        let ticket = waiting.ticket();
        let outcome = match waiting.granted().await {
            Ok(grant) => {
                self.observer.begin(grant);
                let begun = Instant::now();
                let outcome = self.outcome(grant).await;
                self.account.end(ticket, self.used(&outcome));
                if let Some(error) = &outcome.error {
                    spans::failed(&Span::current(), error.kind());
                }
                if !self.inner.hooks.is_empty() {
                    self.report(&outcome, begun.elapsed()).await;
                }
                outcome
            }
            Err(Exhausted(unit)) => {
                let reason = format!("the budget of {unit} is used up");
                CallOutcome::refused(ToolError::denied(messages::no_budget(&reason), None))
            }
        };
        Done::Returned {
            id: self.id,
            outcome: Box::new(outcome),
        }
    }

    fn used(&self, outcome: &CallOutcome) -> Amounts {
        let bytes = outcome.bytes();
        let receipt = self.observer.peek_receipt();
        Spent::of_call(bytes, receipt.as_ref(), self.account.prices().as_ref())
    }

    async fn outcome(&self, grant: RemainingBudget) -> CallOutcome {
        let output = match self.attempt() {
            Ok(attempt) => {
                let (id, observer) = (&self.id, &self.observer);
                dispatch::run(attempt, |attempt, delay_ms, error| {
                    observer.note(Event::CallRetried {
                        id: id.clone(),
                        attempt,
                        delay_ms,
                        reason: error.to_string(),
                    });
                })
                .await
            }
            Err(error) => Err(error),
        };
        if let Err(ToolError::Limit { .. }) = &output {
            // Kept by this task and by the driver.
            self.observer.released(2).await;
        }
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                return CallOutcome {
                    error: Some(error),
                    ..CallOutcome::default()
                };
            }
        };
        let (content, structured) = dispatch::readable(output);
        let policy = &self.inner.machine.policy;
        let readable = policy.control.contains(&Control::ReadResult);
        // An agent's reservation also covers the results of its own calls.
        let room = grant.bytes.and(self.observer.left().bytes);
        let room = room.map(|room| usize::try_from(room).unwrap_or(usize::MAX));
        let content = crate::tools::truncate::within(content, room);
        let limit = room.map_or(policy.result_bytes, |room| room.min(policy.result_bytes));
        let cut = crate::tools::truncate::cut(content, limit, readable.then_some(&self.id));
        if let Some(whole) = cut.whole
            && readable
            && let Err(error) = self.shelf.keep(&self.id, whole).await
        {
            self.hooks.notify(
                NoticeLevel::Warning,
                format!(
                    "could not store the full result of `{}`, it is kept in memory only: {error}",
                    self.id
                ),
            );
        }
        CallOutcome {
            content: cut.content,
            structured,
            ..CallOutcome::default()
        }
    }

    /// # Errors
    /// Fails if the tool no longer exists, as after a restart with other tools.
    fn attempt(&self) -> Result<Attempt, ToolError> {
        let facts = self.inner.machine.tools.get(&self.tool);
        let tool = match facts.and_then(|facts| facts.control) {
            Some(Control::ReadResult) => Arc::new(ReadResult::of(self.shelf.clone())),
            _ => self.inner.registry.get(&self.tool)?,
        };
        let Value::Object(arguments) = &self.arguments else {
            return Err(ToolError::invalid("the arguments are not an object"));
        };
        let name =
            ToolName::new(self.tool.as_str()).map_err(|error| ToolError::invalid(error.to_string()))?;
        let policy = &self.inner.machine.policy;
        Ok(Attempt {
            tool,
            call: ToolCall {
                id: self.id.clone(),
                name,
                arguments: arguments.clone(),
            },
            context: CallContext {
                values: self.inner.values.clone(),
                observer: self.observer.clone(),
            },
            timeout: policy.call_timeout_ms.map(Duration::from_millis),
            retry: policy.tool_retry,
        })
    }

    async fn report(&self, outcome: &CallOutcome, took: Duration) {
        let report = CallReport {
            id: self.id.clone(),
            tool: self.tool.clone(),
            arguments: self.arguments.clone(),
            content: match &outcome.error {
                Some(error) => vec![Content::text(error.for_model())],
                None => outcome.content.clone(),
            },
            error: outcome.error.clone(),
            receipt: self.observer.peek_receipt(),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        self.inner.hooks.after_call(&report, &self.hooks).await;
        if let Some(error) = &report.error {
            let failure = FailureReport {
                phase: FailurePhase::Call,
                message: format!("{}: {error}", self.tool),
            };
            self.inner.hooks.on_error(&failure, &self.hooks).await;
        }
    }
}

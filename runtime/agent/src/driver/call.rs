//! One call in its own task: run, truncated for the model, reported to hooks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use toolcell_core::event::NoticeLevel;
use toolcell_core::tool::CallObserver as _;
use toolcell_core::{
    CallContext, CallResult, Event, RemainingBudget, ToolCall, ToolError, ToolName, error_chain,
};
use tracing::Span;

use super::account::{Account, Waiting};
use super::observer::Observer;
use super::running::Cancellable;
use crate::budget::Spent;
use crate::budget::reserve::{Amounts, Exhausted};
use crate::context::messages;
use crate::definition::AgentDefinition;
use crate::driver::spans;
use crate::hook::{CallReport, HookTurn};
use crate::machine::Input;
use crate::policy::Control;
use crate::tools::control;
use crate::tools::dispatch::{self, Invocation};
use crate::tools::results::ResultStore;
use crate::tools::truncate;

/// Call in its own task.
pub(super) struct CallTask {
    pub(super) inner: Arc<AgentDefinition>,
    pub(super) results: Arc<ResultStore>,
    pub(super) hooks: HookTurn,
    pub(super) observer: Arc<Observer>,
    pub(super) account: Arc<Account>,
    pub(super) running: Cancellable,
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) arguments: Value,
}

impl CallTask {
    /// Waits for the reservation and runs the call. Its use is charged before hooks run, so that theirs can be
    /// reserved.
    pub(super) async fn complete(self, waiting: Waiting) -> Input {
        let ticket = waiting.ticket();
        let result = match self.running.run(waiting.granted()).await {
            Some(Ok(grant)) => {
                self.observer.begin(grant);
                let begun = Instant::now();
                let result = self.execute(grant).await;
                self.account.end(ticket, self.used(&result));
                if let Some(state) = self.observer.take_suspension() {
                    let receipt = result.receipt;
                    return Input::Suspended {
                        id: self.id,
                        state,
                        receipt,
                    };
                }
                if let Some(error) = &result.error {
                    spans::failed(&Span::current(), error.kind());
                }
                if !self.inner.hooks.is_empty() {
                    self.report_to_hooks(&result, begun.elapsed()).await;
                }
                result
            }
            None => CallResult::refused(ToolError::Cancelled),
            Some(Err(Exhausted(unit))) => {
                let reason = format!("the budget of {unit} is used up");
                CallResult::refused(ToolError::denied(messages::no_budget(&reason), None))
            }
        };
        Input::Returned { id: self.id, result }
    }

    fn used(&self, result: &CallResult) -> Amounts {
        let bytes = result.byte_len() as u64;
        Spent::of_call(bytes, result.receipt.as_ref(), self.account.prices().as_ref())
    }

    /// Runs the call. Its receipt is that of all attempts together.
    async fn execute(&self, grant: RemainingBudget) -> CallResult {
        let mut result = match self.invocation() {
            Ok(invocation) => {
                let (id, observer) = (&self.id, &self.observer);
                let invoked = dispatch::invoke_with_retry(invocation, |attempt, delay_ms, error| {
                    observer.note(Event::CallRetried {
                        id: id.clone(),
                        attempt,
                        delay_ms,
                        reason: error.to_string(),
                    });
                });
                let ended = self.running.run(invoked).await;
                ended.unwrap_or_else(|| CallResult::failed(ToolError::Cancelled))
            }
            Err(error) => CallResult::failed(error),
        };
        if let Some(ToolError::Limit { .. } | ToolError::Cancelled) = &result.error {
            // Kept by this task and by the driver.
            self.observer.released(2).await;
        }
        if let Some(receipt) = result.receipt.take() {
            self.observer.receipt(receipt);
        }
        result.receipt = self.observer.peek_receipt();
        if result.error.is_none() {
            dispatch::make_readable(&mut result);
            self.truncate(&mut result, grant).await;
        }
        result
    }

    /// Cuts the content to what the policy and the budget allow, and keeps the whole where it can be read again.
    async fn truncate(&self, result: &mut CallResult, grant: RemainingBudget) {
        let policy = &self.inner.machine.policy;
        let readable = policy.control.contains(&Control::ReadResult);
        // An agent's reservation also covers the results of its own calls.
        let room = grant.bytes.and(self.observer.left().bytes);
        let room = room.map(|room| usize::try_from(room).unwrap_or(usize::MAX));
        let content = truncate::within(std::mem::take(&mut result.content), room);
        let limit = room.map_or(policy.result_bytes, |room| room.min(policy.result_bytes));
        let cut = truncate::cut(content, limit, readable.then_some(&self.id));
        result.content = cut.content;
        if let Some(whole) = cut.whole
            && readable
            && let Err(error) = self.results.keep(&self.id, whole).await
        {
            self.hooks.notify(
                NoticeLevel::Warning,
                format!(
                    "could not store the full result of `{}`, it is kept in memory only: {}",
                    self.id,
                    error_chain(&error)
                ),
            );
        }
    }

    /// # Errors
    /// Fails if the tool no longer exists, as after a restart with other tools.
    fn invocation(&self) -> Result<Invocation, ToolError> {
        let facts = self.inner.machine.tools.get(&self.tool);
        let tool = match facts.and_then(|facts| facts.control) {
            Some(Control::ReadResult) => control::read_result(Some(self.results.clone())),
            _ => self.inner.registry.get(&self.tool)?,
        };
        let Value::Object(arguments) = &self.arguments else {
            return Err(ToolError::invalid("the arguments are not an object"));
        };
        let name =
            ToolName::new(self.tool.as_str()).map_err(|error| ToolError::invalid(error.to_string()))?;
        let policy = &self.inner.machine.policy;
        Ok(Invocation {
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

    async fn report_to_hooks(&self, result: &CallResult, took: Duration) {
        let report = CallReport {
            id: self.id.clone(),
            tool: self.tool.clone(),
            arguments: self.arguments.clone(),
            result: result.clone(),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        self.inner.hooks.report_call(&report, &self.hooks).await;
    }
}

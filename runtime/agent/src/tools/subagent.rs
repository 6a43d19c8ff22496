//! Agents as tools of other agents, each with its own model, tools, policy and budget.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use toolcell_core::event::TurnOutcome;
use toolcell_core::tool::{CallObserver, Hints, InvalidToolName, Progress};
use toolcell_core::{
    AgentUse, BoxFuture, CallContext, CallResult, Event, EventSink, Receipt, RemainingBudget, Schema, Tool,
    ToolCall, ToolError, ToolName, ToolSpec,
};

use crate::Agent;
use crate::budget::{Prices, Spent};
use crate::report::TurnReport;

const SCHEMA: &str = r#"{"type":"object","properties":{"task":{"type":"string","minLength":1,"description":"The task, with all the information it needs: nothing else of this conversation is visible"}},"required":["task"],"additionalProperties":false}"#;

/// Agent that another one calls. Each call is a session of its own.
struct SubAgent {
    spec: ToolSpec,
    agent: Agent,
}

impl Agent {
    /// Returns this agent as a tool. A call gives it a task and returns its answer; its use is the receipt. Its budget
    /// is the rest of the calling session's, limited by its own. [`crate::AgentBuilder::agent`] offers it together with
    /// its data flow.
    ///
    /// # Errors
    /// Fails if the name is not a valid tool name.
    pub fn as_tool(&self, name: &str, description: &str) -> Result<Arc<dyn Tool>, InvalidToolName> {
        let input = Schema::for_arguments(SCHEMA).expect("the schema above is one, as a test shows");
        Ok(Arc::new(SubAgent {
            spec: ToolSpec {
                name: ToolName::new(name)?,
                title: None,
                description: description.to_owned(),
                input: Arc::new(input),
                output: None,
                hints: Hints::default(),
                annotations: BTreeMap::new(),
            },
            agent: self.clone(),
        }))
    }
}

impl Tool for SubAgent {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Limits of its own budget. Without limits, the rest of the calling session's budget is reserved, so that such agents
    /// run one after the other.
    fn max_use(&self) -> RemainingBudget {
        let left = self.agent.budget().left(&Spent::default());
        // Its time limit does not apply to the sum of its calls.
        RemainingBudget {
            wall_ms: None,
            prices: None,
            ..left
        }
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            let task = call
                .arguments
                .get("task")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let receipt = Arc::new(SubagentReceipt::new(cx.observer, self.agent.prices()));
            let mut session = self.agent.session();
            let report = session
                .run_inside(task, &SubagentSink(receipt.clone()), receipt)
                .await;
            report
                .map_err(|error| ToolError::host(&error))
                .and_then(answer)
                .into()
        })
    }
}

/// Converts the report of an agent into the result of the call.
fn answer(report: TurnReport) -> Result<CallResult, ToolError> {
    let failed = |why: String| {
        Err(ToolError::Failed {
            message: match report.text.as_str() {
                "" => why.clone(),
                text => format!("{why}; what there is: {text}"),
            },
        })
    };
    match &report.outcome {
        TurnOutcome::Completed | TurnOutcome::StepLimit { .. } | TurnOutcome::ToolsFailed => Ok(CallResult {
            structured: report.result,
            ..CallResult::text(report.text)
        }),
        TurnOutcome::Asked { question, .. } => failed(format!(
            "it needs an answer first: {question}. Call it again with the task and the answer"
        )),
        TurnOutcome::AwaitingApproval { .. } => failed("one of its calls needs an approval".into()),
        TurnOutcome::Cancelled => Err(ToolError::Cancelled),
        TurnOutcome::Budget { reason } => failed(format!("it stopped: {reason}")),
        TurnOutcome::Deadline { ms } => failed(format!("it did not finish within {ms} ms")),
        TurnOutcome::Aborted { reason, .. } => Err(ToolError::denied(reason.clone(), None)),
        TurnOutcome::ProviderFailed { error } => Err(ToolError::Unavailable {
            message: error.to_string(),
        }),
        TurnOutcome::HostFailed { message } => Err(ToolError::Host {
            message: message.clone(),
        }),
        other => failed(format!("it came to no answer: {other:?}")),
    }
}

/// Use of the session of a call. Filed when the session and all its tasks have ended, in any way.
pub(crate) struct SubagentReceipt {
    observer: Arc<dyn CallObserver>,
    prices: Option<Prices>,
    used: Mutex<Used>,
}

/// Use of the session.
#[derive(Default)]
struct Used {
    /// Use of its calls, including nested agents.
    calls: Receipt,
    /// Use of the session itself.
    own: AgentUse,
}

impl Used {
    fn note(&mut self, event: &Event) {
        match event {
            Event::StepFinished { usage, .. } | Event::Compacted { usage, .. } => {
                self.own.steps += 1;
                self.own.usage.add(usage.unwrap_or_default());
            }
            Event::SummaryFailed { usage, .. } | Event::StepInterrupted { usage, .. } => {
                self.own.usage.add(usage.unwrap_or_default());
            }
            Event::HookFinished { receipt, .. } => {
                self.calls.fuel = self.calls.fuel.saturating_add(receipt.fuel);
            }
            Event::CallFinished { result, .. } if !result.not_run => {
                self.call(result.byte_len() as u64, result.receipt.clone());
            }
            _ => {}
        }
    }

    fn call(&mut self, bytes: u64, receipt: Option<Receipt>) {
        self.own.calls += 1;
        self.own.bytes = self.own.bytes.saturating_add(bytes);
        if let Some(receipt) = receipt {
            self.calls.merge(receipt);
        }
    }

    fn receipt(&self, prices: Option<&Prices>) -> Receipt {
        let mut all = AgentUse {
            cost_micros: prices.map(|prices| prices.cost_micros(&self.own.usage)),
            ..self.own
        };
        if let Some(further) = &self.calls.agent {
            all.add(**further);
        }
        Receipt {
            agent: Some(Box::new(all)),
            ..self.calls.clone()
        }
    }
}

impl SubagentReceipt {
    fn new(observer: Arc<dyn CallObserver>, prices: Option<Prices>) -> Self {
        Self {
            observer,
            prices,
            used: Mutex::default(),
        }
    }

    /// Observer of the call in which the session runs.
    pub(crate) fn observer(&self) -> &dyn CallObserver {
        &*self.observer
    }

    /// Counts a call that was dropped with the session and is in no event.
    pub(crate) fn dropped(&self, receipt: Option<Receipt>) {
        self.used().call(0, receipt);
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SubagentReceipt {
    fn drop(&mut self) {
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.observer.receipt(used.receipt(self.prices.as_ref()));
    }
}

/// Forwards events to the calling session.
struct SubagentSink(Arc<SubagentReceipt>);

impl EventSink for SubagentSink {
    fn event(&self, event: &Event) {
        self.0.used().note(event);
        let observer = self.0.observer();
        if let Event::StepStarted { step } = event {
            observer.progress(Progress {
                done: u64::from(*step),
                total: None,
                message: Some(format!("step {step}")),
            });
        }
        // Deltas are part of the complete answer.
        if !matches!(event, Event::TextDelta { .. } | Event::ReasoningDelta { .. }) {
            observer.nested(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use toolcell_core::provider::{StopReason, Usage};

    use crate::budget::Budget;
    use crate::policy::LoopPolicy;
    use crate::testing::Script;

    #[test]
    fn requests_calls_and_hooks_of_an_agent_are_counted() {
        let usage = |output| {
            Some(Usage {
                output,
                ..Usage::default()
            })
        };
        let receipt = |fuel| Receipt {
            fuel,
            ..Receipt::default()
        };
        let mut used = Used::default();
        let finished = |not_run| Event::CallFinished {
            id: "1".into(),
            tool: "t".into(),
            result: CallResult {
                not_run,
                ..CallResult::text("four").with_receipt(receipt(100))
            },
        };
        for event in [
            Event::StepFinished {
                step: 1,
                message: toolcell_core::Message::assistant("x"),
                stop: StopReason::Complete,
                usage: usage(1),
            },
            Event::Compacted {
                removed: 1,
                replacement: Vec::new(),
                usage: usage(2),
            },
            Event::SummaryFailed {
                reason: String::new(),
                usage: usage(4),
            },
            Event::StepInterrupted {
                step: 2,
                message: None,
                reason: String::new(),
                usage: usage(8),
            },
            Event::HookFinished {
                hook: "h".into(),
                moment: "after_turn".into(),
                receipt: receipt(7),
            },
            finished(false),
            finished(true),
        ] {
            used.note(&event);
        }
        assert_eq!((used.own.steps, used.own.usage.output), (2, 15));
        assert_eq!((used.own.calls, used.own.bytes, used.calls.fuel), (1, 4, 107));
    }

    #[test]
    fn agent_call_uses_at_most_its_budget() {
        let policy = LoopPolicy {
            budget: Budget {
                fuel: Some(9),
                wall_ms: Some(5),
                prices: Some(Prices::default()),
                ..Budget::default()
            },
            ..LoopPolicy::default()
        };
        let agent = Agent::builder(Script::new([])).policy(policy).build().unwrap();
        let tool = agent.as_tool("helper", "Helps").unwrap();
        let most = RemainingBudget {
            fuel: Some(9),
            ..RemainingBudget::default()
        };
        assert_eq!(tool.max_use(), most);
    }
}

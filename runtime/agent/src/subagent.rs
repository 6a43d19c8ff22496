//! An agent as a tool of another one, with its own model, tools, policy and budget.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use toolcell_core::event::TurnOutcome;
use toolcell_core::tool::{CallObserver, Hints, InvalidToolName, Progress};
use toolcell_core::{
    AgentUse, BoxFuture, CallContext, Content, Event, EventSink, Receipt, Schema, Tool, ToolCall, ToolError,
    ToolName, ToolOutput, ToolSpec,
};

use crate::Agent;
use crate::budget::{Prices, Spent};
use crate::report::TurnReport;

const SCHEMA: &str = r#"{"type":"object","properties":{"task":{"type":"string","minLength":1,"description":"What to do, with everything that is needed to know: nothing else of this conversation is seen"}},"required":["task"],"additionalProperties":false}"#;

/// An agent that another one calls. Each call is a session of its own.
struct SubAgent {
    spec: ToolSpec,
    agent: Agent,
}

impl Agent {
    /// This agent as a tool. A call gives it a task and returns its answer; what it used is the receipt. What it may use
    /// is what the session of the call has left, and what its own budget allows. [`crate::AgentBuilder::agent`] offers it
    /// together with what its tools touch.
    ///
    /// # Errors
    /// When the name is no tool name.
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

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let task = call
                .arguments
                .get("task")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let watch = Watch {
                observer: cx.observer.clone(),
                prices: self.agent.prices(),
                used: Mutex::default(),
            };
            let mut session = self.agent.session();
            let report = session
                .run_inside(task, &watch, cx.observer)
                .await
                .map_err(|error| ToolError::host(&error))?;
            answer(report)
        })
    }
}

/// What the answer of an agent is to the one that called it.
fn answer(report: TurnReport) -> Result<ToolOutput, ToolError> {
    let failed = |why: String| {
        Err(ToolError::Failed {
            message: match report.text.as_str() {
                "" => why.clone(),
                text => format!("{why}; what there is: {text}"),
            },
        })
    };
    match &report.outcome {
        TurnOutcome::Completed | TurnOutcome::StepLimit { .. } | TurnOutcome::ToolsFailed => Ok(ToolOutput {
            structured: report.result,
            ..ToolOutput::text(report.text)
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

/// Passes on what an outer loop should see, tells it what is used while that happens, and files the receipt whenever the
/// call ends.
struct Watch {
    observer: Arc<dyn CallObserver>,
    prices: Option<Prices>,
    used: Mutex<Used>,
}

/// What the session has used.
#[derive(Default)]
struct Used {
    /// What its calls used, those of further agents included.
    calls: Receipt,
    /// What it used itself.
    own: AgentUse,
}

impl Used {
    fn note(&mut self, event: &Event) {
        match event {
            Event::StepFinished { usage, .. } | Event::Compacted { usage, .. } => {
                self.own.steps += 1;
                self.own.usage.add(usage.unwrap_or_default());
            }
            Event::CallFinished { content, receipt, .. } => {
                self.own.calls += 1;
                self.own.bytes += content.iter().map(Content::byte_len).sum::<usize>() as u64;
                if let Some(receipt) = receipt {
                    self.calls.merge(receipt.clone());
                }
            }
            _ => {}
        }
    }

    fn receipt(&self, prices: Option<&Prices>) -> Receipt {
        let spent = Spent {
            usage: self.own.usage,
            ..Spent::default()
        };
        let mut all = AgentUse {
            cost_micros: prices.map(|prices| spent.cost_micros(prices)),
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

impl EventSink for Watch {
    fn event(&self, event: &Event) {
        {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.note(event);
            if matches!(
                event,
                Event::StepFinished { .. } | Event::Compacted { .. } | Event::CallFinished { .. }
            ) {
                self.observer.used_so_far(&used.receipt(self.prices.as_ref()));
            }
        }
        if let Event::StepStarted { step } = event {
            self.observer.progress(Progress {
                done: u64::from(*step),
                total: None,
                message: Some(format!("step {step}")),
            });
        }
        // The pieces come again in the answer as a whole.
        if !matches!(event, Event::TextDelta { .. } | Event::ReasoningDelta { .. }) {
            self.observer.nested(event);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.observer.receipt(used.receipt(self.prices.as_ref()));
    }
}

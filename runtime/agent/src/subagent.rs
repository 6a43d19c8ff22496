//! An agent as a tool of another one, with its own model, tools, policy and budget.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::tool::{CallObserver, Hints, InvalidToolName, Progress};
use toolcell_core::{
    BoxFuture, CallContext, Event, EventSink, Message, Receipt, Schema, Tool, ToolCall, ToolError, ToolName,
    ToolOutput, ToolSpec,
};

use crate::Agent;
use crate::receipts::together;
use crate::report::TurnReport;

const SCHEMA: &str = r#"{"type":"object","properties":{"task":{"type":"string","minLength":1,"description":"What to do, with everything that is needed to know: nothing else of this conversation is seen"}},"required":["task"],"additionalProperties":false}"#;

/// An agent that another one calls. Each call is a session of its own.
struct SubAgent {
    spec: ToolSpec,
    agent: Agent,
}

impl Agent {
    /// This agent as a tool. A call gives it a task and returns its answer; what its own calls used is the receipt, and
    /// its steps are the progress of the call.
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
                observer: cx.observer,
                receipt: Mutex::default(),
            };
            let mut session = self.agent.session();
            let report = session
                .run(Message::user(task), &watch, CancellationToken::new())
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

/// Passes on what an outer loop should see, and files the receipt whenever the call ends.
struct Watch {
    observer: Arc<dyn CallObserver>,
    receipt: Mutex<Receipt>,
}

impl EventSink for Watch {
    fn event(&self, event: &Event) {
        let tell = |done: u32, message: String| {
            self.observer.progress(Progress {
                done: u64::from(done),
                total: None,
                message: Some(message),
            });
        };
        match event {
            Event::StepStarted { step } => tell(*step, format!("step {step}")),
            Event::CallFinished {
                receipt: Some(receipt),
                ..
            } => {
                let mut sum = self.receipt.lock().unwrap_or_else(PoisonError::into_inner);
                *sum = together(std::mem::take(&mut *sum), receipt.clone());
            }
            _ => {}
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let receipt = self.receipt.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.observer.receipt(std::mem::take(receipt));
    }
}

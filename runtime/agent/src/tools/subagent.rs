//! Agents as tools of other agents, each with its own model, tools, policy and budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use toolcell_core::event::TurnOutcome;
use toolcell_core::tool::{Hints, InvalidToolName};
use toolcell_core::{
    BoxFuture, CallContext, CallResult, RemainingBudget, Schema, Tool, ToolCall, ToolError, ToolName,
    ToolSpec,
};

use crate::Agent;
use crate::budget::Spent;
use crate::driver::receipt::{SubagentReceipt, SubagentSink};
use crate::machine::LoopState;
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

    fn changes_files(&self) -> bool {
        self.agent.changes_files()
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            let task = call
                .arguments
                .get("task")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let observer = cx.observer.clone();
            let receipt = Arc::new(SubagentReceipt::new(cx.observer, self.agent.prices()));
            let sink = SubagentSink(receipt.clone());
            let (report, session) = match observer.suspended() {
                None => {
                    let mut session = self.agent.session();
                    (session.run_inside(task, &sink, receipt).await, session)
                }
                Some(state) => {
                    let state = match serde_json::from_value::<LoopState>(state) {
                        Ok(state) if state.turn.is_some() => state,
                        Ok(_) => return CallResult::failed(cannot_continue("it has no open turn")),
                        Err(error) => return CallResult::failed(cannot_continue(&error.to_string())),
                    };
                    let mut session = self.agent.session_from(state);
                    (session.resume_inside(&sink, receipt).await, session)
                }
            };
            if let Ok(TurnReport {
                outcome: TurnOutcome::AwaitingApproval { .. },
                ..
            }) = &report
            {
                let state = serde_json::to_value(session.state());
                if state.is_ok_and(|state| observer.suspend(state)) {
                    return CallResult::default();
                }
            }
            report
                .map_err(|error| ToolError::host(&error))
                .and_then(answer)
                .into()
        })
    }
}

/// A state that this version cannot read: it was written by another one.
fn cannot_continue(error: &str) -> ToolError {
    ToolError::Failed {
        message: format!("the paused agent could not be continued: {error}"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Prices};
    use crate::policy::LoopPolicy;
    use crate::testing::Script;

    /// A tool that changes files.
    struct Writer(ToolSpec);

    impl Tool for Writer {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn call(&self, _: ToolCall, _: CallContext) -> BoxFuture<'_, CallResult> {
            Box::pin(std::future::ready(CallResult::text("")))
        }

        fn changes_files(&self) -> bool {
            true
        }
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

    #[test]
    fn agent_changes_files_if_one_of_its_tools_does() {
        let with = |tools: Vec<Arc<dyn Tool>>| Agent::builder(Script::new([])).tools(tools).build().unwrap();
        let reader = || crate::testing::tool("read", |_| Ok("".into()));
        let writer = crate::testing::tool("write", |_| Ok("".into())).spec().clone();
        let inner = with(vec![reader(), Arc::new(Writer(writer))]);
        for (agent, expected) in [(with(vec![reader()]), false), (inner, true)] {
            let tool = agent.as_tool("helper", "Helps").unwrap();
            assert_eq!(tool.changes_files(), expected);
            let outer = with(vec![tool]).as_tool("outer", "Helps").unwrap();
            assert_eq!(outer.changes_files(), expected);
        }
    }
}

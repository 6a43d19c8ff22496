//! Report of a turn for the program that ran it.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::Usage;
use toolcell_core::{CallResult, Event, Message, Part, Plan};

use crate::hook::TurnEnd;
use crate::machine::LoopState;

/// Result of a turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TurnReport {
    /// Identifier of the session.
    pub session: String,
    /// Outcome of the turn. [`TurnOutcome::AwaitingApproval`] means that the turn is not over.
    pub outcome: TurnOutcome,
    /// The answer; the partial answer if the turn ended early.
    pub text: String,
    /// Data returned by the model: through `task_complete`, or as an answer that fits
    /// [`crate::AgentBuilder::answer_schema`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Messages of the whole session.
    pub messages: Vec<Arc<Message>>,
    /// The plan, if the model made one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Steps taken.
    pub steps: u32,
    /// Token usage of all steps.
    pub usage: Usage,
    /// Calls that ended in this run, in the order in which they ended.
    pub calls: Vec<CallRecord>,
    /// The model's reasoning, if the provider returns it.
    pub reasoning: Vec<String>,
}

/// One call of a turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallRecord {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool, as the model wrote it.
    pub tool: String,
    /// Arguments that were executed.
    pub arguments: Value,
    /// Result of the call; its content as in the request to the model.
    #[serde(flatten)]
    pub result: CallResult,
}

/// Collects the events of a turn for its report.
#[derive(Debug, Default)]
pub(crate) struct TurnRecorder {
    end: Option<(TurnOutcome, String, Option<Value>)>,
    steps: u32,
    usage: Usage,
    started: Vec<(String, Value)>,
    calls: Vec<CallRecord>,
    reasoning: Vec<String>,
}

impl TurnRecorder {
    pub(crate) fn note(&mut self, event: &Event) {
        match event {
            Event::StepStarted { step } => self.steps = *step,
            Event::StepFinished {
                message: Message::Assistant { parts },
                ..
            } => {
                self.reasoning.extend(parts.iter().filter_map(|part| match part {
                    Part::Reasoning { text, .. } if !text.is_empty() => Some(text.clone()),
                    _ => None,
                }));
            }
            Event::CallStarted { id, arguments, .. } => self.started.push((id.clone(), arguments.clone())),
            Event::CallFinished { id, tool, result } => {
                let at = self.started.iter().position(|(started, _)| started == id);
                let arguments = at.map(|at| self.started.swap_remove(at).1);
                self.calls.push(CallRecord {
                    id: id.clone(),
                    tool: tool.clone(),
                    arguments: arguments.unwrap_or_default(),
                    result: result.clone(),
                });
            }
            Event::TurnFinished {
                outcome,
                text,
                result,
                steps,
                usage,
                ..
            } => {
                self.end = Some((outcome.clone(), text.clone(), result.clone()));
                (self.steps, self.usage) = (*steps, *usage);
            }
            _ => {}
        }
    }

    /// Returns the end of the turn, if it has ended.
    pub(crate) fn end(&self) -> Option<TurnEnd> {
        let (outcome, text, _) = self.end.as_ref()?;
        Some(TurnEnd {
            outcome: outcome.clone(),
            text: text.clone(),
            steps: self.steps,
        })
    }

    pub(crate) fn into_report(self, state: &LoopState) -> TurnReport {
        let usage = state.turn.as_ref().map_or(self.usage, |turn| turn.usage);
        let open = state.turn.as_ref().map(|turn| turn.text.clone());
        let (outcome, text, result) = self.end.unwrap_or_else(|| {
            let outcome = TurnOutcome::AwaitingApproval { calls: state.held() };
            (outcome, open.unwrap_or_default(), None)
        });
        TurnReport {
            session: state.session.clone(),
            outcome,
            text,
            result,
            messages: state.messages.clone(),
            plan: state.plan.clone(),
            steps: self.steps,
            usage,
            calls: self.calls,
            reasoning: self.reasoning,
        }
    }
}

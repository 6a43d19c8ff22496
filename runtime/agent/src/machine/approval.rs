//! Approval of the calls of one step: when the user is asked, and what follows from a decision.

use serde_json::Value;
use toolcell_core::event::DataFlow;
use toolcell_core::{ArgumentPlace, Event, ToolError};

use super::state::Stage;
use super::{Effect, Step};
use crate::approval::{ApprovalCause, ApprovalRequest, Decision, Gate, check_places};
use crate::context::messages;

/// True for the causes whose questions are asked together.
pub(super) fn is_together(cause: ApprovalCause) -> bool {
    matches!(cause, ApprovalCause::Rule | ApprovalCause::Client)
}

impl Step<'_> {
    pub(super) fn decided(&mut self, id: &str, decision: Decision) {
        if !self.is_at(id, |stage| matches!(stage, Stage::Held { .. })) {
            return;
        }
        match decision {
            Decision::Later => return,
            Decision::Approve => {
                self.emit(Event::ApprovalDecided {
                    id: id.to_owned(),
                    approved: true,
                    reason: None,
                });
                self.start_ready();
            }
            Decision::Deny { reason } => {
                self.emit(Event::ApprovalDecided {
                    id: id.to_owned(),
                    approved: false,
                    reason: reason.clone(),
                });
                let arguments = self.arguments(id);
                let message = messages::declined(reason.as_deref());
                self.refuse_call(id, arguments, ToolError::denied(message, None));
                self.start_ready();
            }
        }
        self.after_calls();
    }

    /// Judges a call; `approved` is the data flow of the session when it was approved, if it was.
    pub(super) fn gate(
        &self,
        tool: &str,
        call: (&Value, &[ArgumentPlace]),
        approved: Option<DataFlow>,
    ) -> Gate {
        let facts = self.facts(tool);
        match (facts.of_client, approved) {
            (true, None) => Gate::Ask(ApprovalCause::Client, "the client runs this tool".into()),
            (true, Some(_)) => Gate::Open,
            _ => (self.machine.approvals).gate(tool, call, self.state.flow, facts.flow, approved),
        }
    }

    /// Asks about all calls of the step that a rule stops, or that the client runs, once each is prepared, so that the user sees them together.
    /// Questions of the data-flow guard come when a call starts: they depend on those before.
    pub(super) fn ask_together(&mut self) {
        if self.is_preparing() {
            return;
        }
        for (id, stage) in self.open_calls() {
            let Stage::Ready {
                arguments,
                approved: None,
                places: judged,
            } = stage
            else {
                continue;
            };
            if self.no_budget_for_call().is_some() {
                return;
            }
            let tool = self.tool_of(&id);
            let places = self.machine.places.of(&tool, &arguments);
            // One whose target has changed is refused when it starts.
            if judged.is_some_and(|judged| check_places(&judged, &places).is_err()) {
                continue;
            }
            let gate = self.gate(&tool, (&arguments, &places), None);
            if let Gate::Ask(cause, reason) = gate
                && is_together(cause)
            {
                self.ask(id, tool, (arguments, places), cause, reason);
            }
        }
    }

    /// True if the arguments of a call are still checked.
    pub(super) fn is_preparing(&self) -> bool {
        let mut calls = self.turn().calls.iter();
        calls.any(|call| matches!(call.stage, Stage::Accepted))
    }

    pub(super) fn ask(
        &mut self,
        id: String,
        tool: String,
        (arguments, places): (Value, Vec<ArgumentPlace>),
        cause: ApprovalCause,
        reason: String,
    ) {
        self.emit(Event::ApprovalRequested {
            id: id.clone(),
            tool: tool.clone(),
            arguments: arguments.clone(),
            cause,
            reason: reason.clone(),
            places: places.clone(),
        });
        self.effects.push(Effect::Ask(ApprovalRequest {
            id,
            tool,
            arguments,
            cause,
            reason,
            places,
        }));
    }
}

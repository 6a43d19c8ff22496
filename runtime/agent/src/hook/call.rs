//! Hooks around one call, of the loop or of a client that runs a loop of its own.

use serde_json::Value;
use toolcell_core::hook::{CallReport, FailurePhase, FailureReport, PendingCall};
use toolcell_core::{ArgumentPlace, Tool, ToolError};

use super::runner::{HookRunner, Ruling};
use super::turn::HookTurn;
use crate::context::messages;
use crate::machine::RefusedCall;

/// Arguments after the hooks before a call, and where they led when hooks judged them; or a refusal.
pub(crate) type PreparedCall = Result<(Value, Option<Vec<ArgumentPlace>>), RefusedCall>;

/// Hook that aborts a turn, and its reason.
pub(crate) struct Aborted {
    pub(crate) by: String,
    pub(crate) reason: String,
}

impl HookRunner {
    /// Runs the hooks before a call with checked arguments, and checks the arguments again if hooks changed them.
    ///
    /// # Errors
    /// Fails if a hook aborts the turn.
    pub(crate) async fn prepare_call(
        &self,
        id: &str,
        tool: &dyn Tool,
        checked: Value,
        turn: &HookTurn,
    ) -> Result<PreparedCall, Aborted> {
        let Value::Object(map) = checked.clone() else {
            return Ok(Ok((checked, None)));
        };
        let mut pending = PendingCall {
            id: id.to_owned(),
            tool: tool.spec().name.to_string(),
            arguments: map,
            places: Vec::new(),
        };
        let places = |arguments: &Value| tool.places(arguments);
        match self.before_call(&mut pending, places, turn).await {
            Ruling::Proceed => {}
            Ruling::Cancel { reason, .. } => {
                return Ok(Err(RefusedCall {
                    arguments: checked,
                    error: ToolError::denied(messages::cancelled_by_hook(&reason), None),
                }));
            }
            Ruling::Abort { by, reason } => return Err(Aborted { by, reason }),
        }
        let changed = Value::Object(pending.arguments);
        // Empty without a hook at this point.
        let places = (!pending.places.is_empty()).then_some(pending.places);
        if changed == checked {
            return Ok(Ok((checked, places)));
        }
        Ok(match tool.spec().input.check_arguments(&changed) {
            Ok(()) => Ok((changed, places)),
            Err(error) => {
                self.report_arguments(&pending.tool, &error, turn).await;
                Err(RefusedCall {
                    arguments: changed,
                    error,
                })
            }
        })
    }

    /// Tells the hooks that a call was refused because of its arguments.
    pub(crate) async fn report_arguments(&self, tool: &str, error: &ToolError, turn: &HookTurn) {
        let failure = FailureReport {
            phase: FailurePhase::CallArguments,
            message: format!("{tool}: {error}"),
        };
        self.on_error(&failure, turn).await;
    }

    /// Tells the hooks that a call has ended.
    pub(crate) async fn report_call(&self, report: &CallReport, turn: &HookTurn) {
        self.after_call(report, turn).await;
        if let Some(error) = &report.result.error {
            let failure = FailureReport {
                phase: FailurePhase::Call,
                message: format!("{}: {error}", report.tool),
            };
            self.on_error(&failure, turn).await;
        }
    }
}

//! Failures of turns, as shown to the user.

use toolcell_core::ProviderError;
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::ProviderErrorKind;

use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

/// Creates the failure for a provider error.
pub(crate) fn provider_failure(error: &ProviderError) -> Failure {
    let status = error
        .status
        .map(|status| text!(" (HTTP {})", status))
        .unwrap_or_default();
    let failure = Failure::new(
        Exit::Provider,
        text!("request to provider `{}` failed", error.provider),
    )
    .why(text!("{}{}", error.kind, status))
    .why(error.message.clone());
    match error.kind {
        ProviderErrorKind::Unauthorized => {
            failure.hint("check the key: `toolcell config check` shows its variable")
        }
        ProviderErrorKind::RateLimited => failure.hint(match error.retry_after() {
            Some(wait) => format!("try again in {}", crate::config::units::Span(wait)),
            None => "try again later, or check the limits of your account".into(),
        }),
        ProviderErrorKind::Unavailable | ProviderErrorKind::Truncated | ProviderErrorKind::Timeout => {
            failure.hint("try again later")
        }
        ProviderErrorKind::ContextLength => {
            failure.hint("shorten the prompt, or use a model with a larger context window")
        }
        ProviderErrorKind::InvalidRequest => {
            failure.hint("check the name of the model (--model) and the base URL (--base-url)")
        }
        ProviderErrorKind::Protocol => failure.hint(format!(
            "check the base URL (--base-url): the response of the server is not in the format of `{}`",
            error.provider
        )),
        ProviderErrorKind::Network => {
            failure.hint("check the base URL (--base-url) and that the server is running")
        }
        _ => failure,
    }
}

/// Returns the exit code of a turn, or its failure.
///
/// # Errors
/// Returns an error for every outcome except an answer of the model.
pub(crate) fn of_outcome(outcome: &TurnOutcome) -> Result<Exit, Failure> {
    let limit = |what: Text, hint: &'static str| Err(Failure::new(Exit::Limit, what).hint(hint));
    let failed = |what: Text| Err(Failure::new(Exit::Failed, what));
    match outcome {
        TurnOutcome::Completed | TurnOutcome::Asked { .. } => Ok(Exit::Ok),
        TurnOutcome::StepLimit { steps } => limit(
            text!("the turn reached its limit of {} steps", steps),
            "raise it with --max-steps or `[loop] max_steps`",
        ),
        TurnOutcome::Deadline { ms } => limit(
            text!(
                "the turn reached its deadline of {}",
                crate::config::units::Span(std::time::Duration::from_millis(*ms))
            ),
            "raise it with --deadline or `[loop] deadline`",
        ),
        TurnOutcome::Budget { reason } => Err(Failure::new(
            Exit::Limit,
            text!("the turn exhausted a budget: {}", reason),
        )),
        TurnOutcome::AwaitingApproval { calls } => {
            Err(
                Failure::new(Exit::Denied, "the turn needs an approval").why(match calls.len() {
                    1 => "one call is pending".into(),
                    many => text!("{} calls are pending", many),
                }),
            )
        }
        TurnOutcome::Cancelled => Err(Failure::new(Exit::Cancelled, "cancelled")),
        TurnOutcome::ProviderFailed { error } => Err(provider_failure(error)),
        TurnOutcome::HostFailed { message } => {
            Err(Failure::new(Exit::Internal, "internal error of Toolcell").why(message.clone()))
        }
        TurnOutcome::ToolsFailed => {
            failed("every call failed, and the answer was given without tools".into())
        }
        TurnOutcome::Repeating { tool, times } => failed(text!(
            "the model called `{}` {} times with the same arguments and the same result",
            tool,
            times
        )),
        TurnOutcome::Failing { error, times } => Err(Failure::new(
            Exit::Failed,
            text!("the same error occurred {} times in a row", times),
        )
        .why(error.clone())),
        TurnOutcome::Aborted { by, reason } => {
            Err(Failure::new(Exit::Denied, text!("the hook `{}` ended the turn", by)).why(reason.clone()))
        }
        TurnOutcome::Stopped { stop } => {
            Err(Failure::new(Exit::Failed, "the model stopped without an answer").why(stop_reason(stop)))
        }
        _ => failed("the turn did not end with an answer".into()),
    }
}

fn stop_reason(stop: &toolcell_core::provider::StopReason) -> String {
    use toolcell_core::provider::StopReason;
    match stop {
        StopReason::MaxTokens => "it reached its token limit".into(),
        StopReason::Refused => "the model or a filter of the provider refused".into(),
        StopReason::Paused => "it paused".into(),
        StopReason::Complete => "it was complete".into(),
        StopReason::Other(reason) => reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_requested_provider() {
        for provider in ["anthropic", "gemini", "openai"] {
            let error = ProviderError::new(provider, ProviderErrorKind::Protocol, "no JSON");
            let shown = format!("{:?}", provider_failure(&error));
            assert!(
                shown.contains(&format!("not in the format of `{provider}`")),
                "{shown}"
            );
        }
    }
}

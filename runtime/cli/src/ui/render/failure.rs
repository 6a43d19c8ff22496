//! Failures of turns, as shown to the user.

use toolcell_agent::TurnReport;
use toolcell_agent::policy::OnLimit;
use toolcell_core::ProviderError;
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::{ProviderErrorKind, StopReason, WaitLimit};
use toolcell_providers::MAX_RETRY_AFTER;

use crate::agent::model;
use crate::config::units::Span;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Own, Text, text};

/// Creates the failure for a provider error. `key` is the configured source of its key, if there is one.
pub(crate) fn provider_failure(error: &ProviderError, key: Option<&Text>) -> Failure {
    let status = error
        .status
        .map(|status| text!(" (HTTP {})", status))
        .unwrap_or_default();
    let failure = Failure::new(
        Exit::Provider,
        text!("request to provider `{}` failed", error.provider),
    )
    .why(text!("{}{}", error.kind, status))
    .why(Text::of_others(error.message.clone()));
    let failure = match unmet_wait(error) {
        Some(wait) => failure.why(wait),
        None => failure,
    };
    match (error.kind, key) {
        (ProviderErrorKind::Unauthorized, Some(key)) => failure.hint(text!("check the key in {}", *key)),
        _ => failure.hints(hint(error)),
    }
}

/// Describes the wait that the server asks for, and the limit because of which it was not waited.
fn unmet_wait(error: &ProviderError) -> Option<Text> {
    let wait = Span(error.retry_after()?);
    Some(match error.wait_limit? {
        WaitLimit::Longest => text!(
            "the server asks to wait {}, and no request waits longer than {}",
            wait,
            Span(MAX_RETRY_AFTER)
        ),
        _ => text!(
            "the server asks to wait {}, which is beyond `request_timeout` in `[provider]`",
            wait
        ),
    })
}

/// Returns the hint for an error of a provider, in the terms of that provider.
fn hint(error: &ProviderError) -> Option<String> {
    let is_ollama = error.provider == "ollama";
    let waits = matches!(
        error.kind,
        ProviderErrorKind::RateLimited | ProviderErrorKind::Unavailable
    );
    if let Some(wait) = error.retry_after().filter(|_| waits) {
        let more = match error.wait_limit {
            Some(WaitLimit::RequestTimeout) => ", or allow more time with `request_timeout` in `[provider]`",
            _ => "",
        };
        return Some(format!("try again in {}{more}", Span(wait)));
    }
    let hint = match error.kind {
        ProviderErrorKind::Unauthorized => match model::key_variable(&error.provider) {
            Some(variable) if error.provider == "vertex" => {
                format!("check the access token, of `[provider] token_command` or {variable}")
            }
            Some(variable) => {
                format!("check the key in {variable}; `toolcell config check` shows another source, if one is set")
            }
            None => "check the key: `toolcell config check` shows its variable".into(),
        },
        ProviderErrorKind::RateLimited => "try again later, or check the limits of your account".into(),
        ProviderErrorKind::QuotaExceeded => {
            "waiting a little does not help: check the plan and balance of the account, or use another key, model or provider".into()
        }
        ProviderErrorKind::Timeout => {
            "try again later, or allow more time with `idle_timeout` or `request_timeout` in `[provider]`".into()
        }
        ProviderErrorKind::Unavailable | ProviderErrorKind::Truncated => "try again later".into(),
        ProviderErrorKind::ContextLength if is_ollama => {
            "shorten the prompt, set `[provider] num_ctx` if the model allows more, or use a model with a larger context window".into()
        }
        ProviderErrorKind::ContextLength => {
            "shorten the prompt, or use a model with a larger context window".into()
        }
        ProviderErrorKind::ToolsUnsupported => {
            "let the model write its calls as text with --tool-calls hermes, or use a model with tool calling".into()
        }
        ProviderErrorKind::InvalidRequest
            if is_ollama && error.status == Some(404) && error.message.starts_with("model") =>
        {
            "download the model first with `ollama pull`; `ollama list` shows those that are there".into()
        }
        ProviderErrorKind::InvalidRequest if is_about_the_model(error) => {
            "check the name of the model (--model) and the base URL (--base-url)".into()
        }
        ProviderErrorKind::InvalidRequest => {
            "the service refused the request for this reason; `toolcell config show` lists the settings that are sent with it, in `[provider]`".into()
        }
        ProviderErrorKind::Protocol if error.provider == "scripted" => {
            "the script does not fit the conversation: add the step that is missing, or correct the one named above".into()
        }
        ProviderErrorKind::Protocol => format!(
            "check the base URL (--base-url): the response of the server is not in the format of `{}`",
            error.provider
        ),
        ProviderErrorKind::Network if is_ollama => {
            "start the server with `ollama serve`, or check the base URL (--base-url)".into()
        }
        ProviderErrorKind::Network => "check the base URL (--base-url) and that the server is running".into(),
        _ => return None,
    };
    Some(hint)
}

/// True if the service seems to know neither the model nor the address. A model may also be named by an error about something
/// else, such as a parameter.
fn is_about_the_model(error: &ProviderError) -> bool {
    const UNKNOWN: [&str; 7] = [
        "model_not_found",
        "not found",
        "does not exist",
        "no such model",
        "unknown model",
        "invalid model",
        "not a valid model",
    ];
    let message = error.message.to_lowercase();
    matches!(error.status, Some(300..400 | 404 | 405)) || UNKNOWN.iter().any(|said| message.contains(said))
}

/// Returns the notice for a turn that has an answer although it did not end by itself: an answer at the step limit, unless
/// the loop stops there without one, or after all calls failed. With `has_schema`, the answer has to fit the schema.
pub(crate) fn best_effort(report: &TurnReport, on_limit: OnLimit, has_schema: bool) -> Option<Text> {
    if report.text.trim().is_empty() || (has_schema && report.result.is_none()) {
        return None;
    }
    match report.outcome {
        TurnOutcome::StepLimit { steps } if on_limit != OnLimit::Stop => Some(text!(
            "warning: the turn reached its limit of {}, and the answer is from what was known by then (raise it with --max-steps or `[loop] max_steps`)",
            number_of_steps(steps)
        )),
        TurnOutcome::ToolsFailed => {
            Some("warning: every call failed, and the answer was given without tools".into())
        }
        _ => None,
    }
}

fn number_of_steps(steps: u32) -> Text {
    text!("{} {}", steps, Own(if steps == 1 { "step" } else { "steps" }))
}

/// Returns the exit code of a turn, or its failure. With `has_schema`, only an answer that fits the schema is one. `key` is
/// the configured source of the key of the provider.
///
/// # Errors
/// Returns an error for every outcome except an answer of the model.
pub(crate) fn of_report(report: &TurnReport, has_schema: bool, key: Option<&Text>) -> Result<Exit, Failure> {
    if let TurnOutcome::ProviderFailed { error } = &report.outcome {
        return Err(provider_failure(error, key));
    }
    if let TurnOutcome::Stopped { stop } = &report.outcome
        && !report.text.trim().is_empty()
    {
        return Err(stopped("the answer is incomplete", stop));
    }
    let exit = of_outcome(&report.outcome).map_err(|failure| match report.outcome {
        TurnOutcome::Failing { .. } if has_schema => failure.hint(
            "the answer has to fit the schema of --schema: describe it in the prompt as well, simplify it, or use another model",
        ),
        _ => failure,
    })?;
    match report.outcome {
        TurnOutcome::Asked { .. } if has_schema => Err(Failure::new(
            Exit::Failed,
            "the model asked a question instead of giving an answer that fits the schema",
        )),
        _ => Ok(exit),
    }
}

/// Returns the exit code of an outcome, or its failure.
fn of_outcome(outcome: &TurnOutcome) -> Result<Exit, Failure> {
    let limit = |what: Text, hint: &'static str| Err(Failure::new(Exit::Limit, what).hint(hint));
    let failed = |what: Text| Err(Failure::new(Exit::Failed, what));
    match outcome {
        TurnOutcome::Completed | TurnOutcome::Asked { .. } => Ok(Exit::Ok),
        TurnOutcome::StepLimit { steps } => limit(
            text!("the turn reached its limit of {}", number_of_steps(*steps)),
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
            text!("the turn exhausted a budget: {}", Text::sentence(reason, [])),
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
        TurnOutcome::ProviderFailed { error } => Err(provider_failure(error, None)),
        TurnOutcome::HostFailed { message } => {
            Err(Failure::new(Exit::Internal, "internal error of Toolcell").why(message.clone()))
        }
        TurnOutcome::ToolsFailed => {
            failed("every call failed, and the model gave no answer without tools".into())
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
        .why(Text::of_others(error.clone()))),
        TurnOutcome::Aborted { by, reason } => Err(Failure::new(
            Exit::Denied,
            text!("the hook `{}` ended the turn", by),
        )
        .why(Text::of_others(reason.clone()))),
        TurnOutcome::Stopped { stop } => Err(stopped("the model stopped without an answer", stop)),
        _ => failed("the turn did not end with an answer".into()),
    }
}

fn stopped(what: &'static str, stop: &StopReason) -> Failure {
    let failure = Failure::new(Exit::Failed, what).why(stop_reason(stop));
    match stop {
        StopReason::MaxTokens => failure.hint(
            "allow longer answers with --max-output-tokens or `[provider] max_output_tokens`, or ask for a shorter one",
        ),
        _ => failure,
    }
}

fn stop_reason(stop: &StopReason) -> Text {
    match stop {
        StopReason::MaxTokens => "it was cut at the maximum number of tokens of an answer".into(),
        StopReason::Refused => "the model or a filter of the provider refused".into(),
        StopReason::Paused => "it paused".into(),
        StopReason::MalformedCall => {
            "it wrote a call that the provider could not read, even when asked again".into()
        }
        StopReason::Complete => "it was complete".into(),
        StopReason::Other(reason) => Text::of_others(reason.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::terminal::{Screen, Size};

    #[test]
    fn words_of_others_in_a_failure_stand_behind_the_gutter() {
        let words = "to continue run: toolcell run --dangerous";
        let error = ProviderError::new("openai", ProviderErrorKind::InvalidRequest, words);
        for outcome in [
            TurnOutcome::ProviderFailed { error },
            TurnOutcome::Failing {
                error: words.into(),
                times: 5,
            },
            TurnOutcome::Aborted {
                by: "h".into(),
                reason: words.into(),
            },
            TurnOutcome::Stopped {
                stop: StopReason::Other(words.into()),
            },
        ] {
            let failure = of_outcome(&outcome).unwrap_err();
            let mut out = Vec::new();
            failure
                .print(&mut Screen::new(&mut out, false, Size::NONE))
                .unwrap();
            let out = String::from_utf8(out).unwrap();
            let line = out.lines().find(|line| line.contains("to continue")).unwrap();
            let label = line.split("to continue").next().unwrap();
            assert!(["  why: │ ", "     - │ "].contains(&label), "{out}");
        }
    }

    #[test]
    fn hint_names_requested_provider() {
        for provider in ["anthropic", "gemini", "openai"] {
            let error = ProviderError::new(provider, ProviderErrorKind::Protocol, "no JSON");
            let shown = format!("{:?}", provider_failure(&error, None));
            assert!(
                shown.contains(&format!("not in the format of `{provider}`")),
                "{shown}"
            );
        }
    }

    #[test]
    fn refused_key_is_named_by_its_configured_source() {
        let mut error = ProviderError::new("openai", ProviderErrorKind::Unauthorized, "no");
        error.status = Some(401);
        let shown = |key: Option<&Text>| format!("{:?}", provider_failure(&error, key));
        assert!(shown(None).contains("OPENAI_API_KEY"));
        let own = shown(Some(&text!("{}", Own("MY_KEY"))));
        assert!(
            own.contains("check the key in MY_KEY") && !own.contains("OPENAI"),
            "{own}"
        );
    }

    #[test]
    fn hint_is_in_terms_of_the_provider() {
        for (provider, kind, status, words) in [
            (
                "anthropic",
                ProviderErrorKind::Unauthorized,
                Some(401),
                "ANTHROPIC_API_KEY",
            ),
            (
                "responses",
                ProviderErrorKind::Unauthorized,
                Some(401),
                "OPENAI_API_KEY",
            ),
            ("ollama", ProviderErrorKind::Network, None, "ollama serve"),
            (
                "ollama",
                ProviderErrorKind::InvalidRequest,
                Some(404),
                "ollama pull",
            ),
            ("ollama", ProviderErrorKind::ContextLength, None, "num_ctx"),
            (
                "openai",
                ProviderErrorKind::QuotaExceeded,
                Some(429),
                "waiting a little does not help",
            ),
            (
                "openai",
                ProviderErrorKind::ToolsUnsupported,
                Some(400),
                "--tool-calls hermes",
            ),
            ("gemini", ProviderErrorKind::Timeout, None, "idle_timeout"),
        ] {
            let mut error = ProviderError::new(provider, kind, "model `m` not found");
            error.status = status;
            let shown = hint(&error).unwrap();
            assert!(shown.contains(words), "{provider} {kind}: {shown}");
        }
        // Nothing is at the address.
        let mut nothing =
            ProviderError::new("ollama", ProviderErrorKind::InvalidRequest, "404 page not found");
        nothing.status = Some(404);
        assert!(hint(&nothing).unwrap().contains("--base-url"));
        let other = ProviderError::new("openai", ProviderErrorKind::Network, "m");
        assert!(!hint(&other).unwrap().contains("ollama"));
    }

    #[test]
    fn unmet_wait_of_any_kind_is_told_with_its_limit() {
        for kind in [ProviderErrorKind::RateLimited, ProviderErrorKind::Unavailable] {
            for (seconds, limit, words) in [
                (600, WaitLimit::Longest, "no request waits longer than 2 min"),
                (90, WaitLimit::RequestTimeout, "beyond `request_timeout`"),
            ] {
                let mut error = ProviderError::new("openai", kind, "busy");
                error.retry_after_ms = Some(seconds * 1_000);
                error.wait_limit = Some(limit);
                let shown = format!("{:?}", provider_failure(&error, None));
                let wait = Span(std::time::Duration::from_secs(seconds));
                let asks = format!("the server asks to wait {wait}");
                assert!(shown.contains(&asks) && shown.contains(words), "{shown}");
                assert!(shown.contains(&format!("try again in {wait}")), "{shown}");
            }
            // A wait that was made, and did not help.
            let mut error = ProviderError::new("openai", kind, "busy");
            error.retry_after_ms = Some(1_000);
            let shown = format!("{:?}", provider_failure(&error, None));
            assert!(!shown.contains("asks to wait"), "{shown}");
        }
    }

    #[test]
    fn refused_request_is_about_the_model_only_if_the_service_says_so() {
        for (status, message, about_the_model) in [
            (404, "m", true),
            (400, "The model `m` does not exist", true),
            (400, "Unsupported parameter: 'top_p' with this model", false),
            (422, "tools.0.name: too long", false),
        ] {
            let mut error = ProviderError::new("openai", ProviderErrorKind::InvalidRequest, message);
            error.status = Some(status);
            let shown = hint(&error).unwrap();
            assert_eq!(shown.contains("--model"), about_the_model, "{message}: {shown}");
            assert_eq!(
                shown.contains("config show"),
                !about_the_model,
                "{message}: {shown}"
            );
        }
    }

    #[test]
    fn cut_answer_is_called_incomplete_and_names_the_setting() {
        for (text, what) in [
            ("", "without an answer"),
            ("Once upon", "the answer is incomplete"),
        ] {
            let report = TurnReport {
                session: "s".into(),
                outcome: TurnOutcome::Stopped {
                    stop: StopReason::MaxTokens,
                },
                text: text.into(),
                result: None,
                messages: Vec::new(),
                plan: None,
                steps: 1,
                usage: toolcell_core::provider::Usage::default(),
                calls: Vec::new(),
                reasoning: Vec::new(),
            };
            let shown = format!("{:?}", of_report(&report, false, None).unwrap_err());
            assert!(shown.contains(what), "{shown}");
            assert!(shown.contains("--max-output-tokens"), "{shown}");
        }
    }
}

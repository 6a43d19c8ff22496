//! Loop settings as plain data. Known loop styles are values of [`LoopPolicy`] (see [`crate::preset`]), not code of
//! their own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::Budget;

/// Settings of one agent's loop.
///
/// | setting | default | at the limit |
/// |---|---|---|
/// | `max_steps` | 50 requests per turn, the last one included | [`OnLimit`] |
/// | `concurrency` | 8 concurrent calls | the next call waits |
/// | `deadline_ms` | none | running calls are dropped, the turn ends with the partial answer |
/// | `result_bytes` | 48 KiB of text per call | head and tail with a marker between; the full text is kept for `read_result` |
/// | `error_breaker` | the same error 5 times in a row | the turn ends with an error |
///
/// ```
/// use toolcell_agent::{LoopPolicy, preset};
///
/// let careful = LoopPolicy {
///     max_steps: 5,
///     concurrency: 1,
///     ..preset::resilient()
/// };
/// let read: LoopPolicy = serde_json::from_str(r#"{"max_steps": 5}"#)?;
/// # assert_eq!(careful.max_steps, read.max_steps);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoopPolicy {
    /// Condition that ends a turn.
    pub finish: Finish,
    /// Maximum requests to the model in one turn. A last answer without tools is one of them; summaries are not.
    pub max_steps: u32,
    /// Action at the step limit.
    pub on_limit: OnLimit,
    /// Maximum concurrent calls; 1 runs them in order. Calls of destructive tools always run alone.
    pub concurrency: usize,
    /// Number of calls of one answer that are executed.
    pub calls_per_step: CallsPerStep,
    /// Action for an answer without a call if only a tool ends the turn.
    pub no_call: NoCall,
    /// Retries of failed calls by the loop.
    pub tool_retry: ToolRetry,
    /// Action if all calls of a step fail.
    pub all_failed: AllFailed,
    /// Number of identical errors in a row that ends the turn; 0 disables the limit.
    pub error_breaker: u32,
    /// Visibility of earlier errors in the conversation.
    pub error_visibility: ErrorVisibility,
    /// Limits for identical calls with identical results.
    pub repeats: Repeats,
    /// Failed requests to the model that are reported in the conversation and repeated; 0 ends the turn at once. The
    /// provider's own retries come first.
    pub provider_retries: u32,
    /// Time limit of a turn, in milliseconds.
    pub deadline_ms: Option<u64>,
    /// Time limit of one request to the model, in milliseconds.
    pub request_timeout_ms: Option<u64>,
    /// Time limit of one call, in milliseconds, in addition to the tool's own limits.
    pub call_timeout_ms: Option<u64>,
    /// Maximum text of one result in a request, in bytes.
    pub result_bytes: usize,
    /// Limits of the conversation's length.
    pub context: ContextPolicy,
    /// Budget of the whole session.
    pub budget: Budget,
    /// Control tools offered to the model.
    pub control: Vec<Control>,
    /// Reasoning effort.
    pub reasoning: Reasoning,
}

/// Condition that ends a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// An answer without calls.
    #[default]
    Content,
    /// A control tool that ends the turn, and nothing else.
    Tool,
    /// Either, whichever comes first.
    Either,
}

/// Action at the step limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// The last of the requests is sent without tools; its text is the answer.
    #[default]
    FinalAnswer,
    /// The model's last text is the answer.
    LastContent,
    /// A list of the calls' results is the answer, made without the model.
    BestEffort,
    /// The turn ends without an answer.
    Stop,
}

/// Number of calls of one answer that are executed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallsPerStep {
    /// Every call.
    #[default]
    Many,
    /// The first; the others get an error result that asks for one call at a time.
    One,
}

/// Action for an answer without a call if only a tool ends the turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub enum NoCall {
    /// The turn ends.
    #[default]
    End,
    /// A reminder after this many answers without a call in a row. Each one counts as an error for
    /// [`LoopPolicy::error_breaker`].
    Nudge {
        /// Number of answers.
        after: u32,
    },
    /// A reminder at once. Each one counts as an error for [`LoopPolicy::error_breaker`].
    Reprompt,
}

/// Retries of failed calls. Only idempotent tools are retried, and only after errors that a retry may fix
/// (`unavailable`, or a tool that crashed or failed).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolRetry {
    /// Maximum attempts, including the first.
    pub attempts: u32,
    /// Pause before the second attempt, in milliseconds; each further pause is longer by the same amount.
    pub backoff_ms: u64,
}

/// Action if all calls of a step fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllFailed {
    /// The model gets the errors and continues.
    #[default]
    Continue,
    /// One more request, without tools, answered from the model's own knowledge.
    FallbackAnswer,
}

/// Visibility of earlier errors in the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorVisibility {
    /// Errors stay.
    #[default]
    Stored,
    /// Errors are shown in the next request only. After that reminders are removed and failed results are reduced to
    /// one line.
    Ephemeral,
}

/// Limits for identical calls (same tool, arguments in canonical form, and result). Tools with the annotation `polling`
/// are exempt. 0 disables a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Repeats {
    /// Number of repetitions after which the model gets a warning.
    pub warn: u32,
    /// Number of repetitions after which the turn ends, with one last answer without tools.
    pub stop: u32,
}

/// Limits of the conversation's length, in tokens: the provider's count if there is one, otherwise a quarter of the
/// bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextPolicy {
    /// Length at which the older part is summarised; `None` summarises only after a context error of the provider.
    pub summarise_at: Option<u64>,
    /// Number of most recent rounds that a summary keeps. A round is a user message, or an answer with its results.
    pub keep_rounds: usize,
    /// Pruning of old results; `None` keeps them.
    pub prune: Option<Prune>,
    /// Maximum messages in a request; older rounds are left out. `None` means unlimited.
    pub max_messages: Option<usize>,
}

/// Pruning of the results of old calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prune {
    /// Size of the most recent results that are kept, in tokens.
    pub protect: u64,
    /// Minimum number of tokens that a pruning must save: each one invalidates the provider's prompt cache.
    pub at_least: u64,
}

/// Control tool, provided by the loop itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// `task_completion`: ends the turn with a result in text.
    TaskCompletion,
    /// `task_complete`: ends the turn with a summary and a result in JSON.
    TaskComplete,
    /// `ask_question`: ends the turn with a question to the user.
    AskQuestion,
    /// `converse`: ends the turn with a message to the user.
    Converse,
    /// `update_plan`: sets the plan.
    UpdatePlan,
    /// `read_result`: reads the full text of a result that was cut.
    ReadResult,
}

/// Reasoning effort of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum Reasoning {
    /// The provider's default.
    #[default]
    Provider,
    /// Always this effort, a value of the provider's API.
    Always {
        /// Effort, such as `low` or `high`.
        effort: String,
    },
    /// This effort if the user's message asks for analysis or explanation.
    WhenAsked {
        /// Effort, such as `low` or `high`.
        effort: String,
    },
}

/// Model parameters of every request; `None` uses the provider's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// Maximum tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Probability mass of the tokens that are sampled.
    pub top_p: Option<f64>,
    /// Texts at which an answer ends.
    pub stop: Arc<[String]>,
    /// Seed of the sampling.
    pub seed: Option<u64>,
}

impl Default for LoopPolicy {
    fn default() -> Self {
        Self {
            finish: Finish::Content,
            max_steps: 50,
            on_limit: OnLimit::FinalAnswer,
            concurrency: 8,
            calls_per_step: CallsPerStep::Many,
            no_call: NoCall::End,
            tool_retry: ToolRetry::default(),
            all_failed: AllFailed::Continue,
            error_breaker: 5,
            error_visibility: ErrorVisibility::Stored,
            repeats: Repeats::default(),
            provider_retries: 0,
            deadline_ms: None,
            request_timeout_ms: None,
            call_timeout_ms: None,
            result_bytes: 48 << 10,
            context: ContextPolicy::default(),
            budget: Budget::default(),
            control: vec![Control::ReadResult],
            reasoning: Reasoning::Provider,
        }
    }
}

impl Default for ToolRetry {
    fn default() -> Self {
        Self {
            attempts: 1,
            backoff_ms: 1_000,
        }
    }
}

impl Default for Repeats {
    fn default() -> Self {
        Self { warn: 3, stop: 5 }
    }
}

impl Default for ContextPolicy {
    fn default() -> Self {
        Self {
            summarise_at: None,
            keep_rounds: 4,
            prune: Some(Prune::default()),
            max_messages: None,
        }
    }
}

impl Default for Prune {
    fn default() -> Self {
        Self {
            protect: 40_000,
            at_least: 20_000,
        }
    }
}

impl Reasoning {
    /// Phrases in a message that request reasoning.
    const WORDS: [&'static str; 7] = [
        "analyze",
        "analyse",
        "compare",
        "evaluate",
        "explain why",
        "step by step",
        "think through",
    ];

    /// Returns the effort for a turn that starts with this message.
    pub fn effort(&self, message: &str) -> Option<&str> {
        match self {
            Self::Provider => None,
            Self::Always { effort } => Some(effort),
            Self::WhenAsked { effort } => {
                let message = message.to_lowercase();
                Self::WORDS
                    .iter()
                    .any(|word| message.contains(word))
                    .then_some(effort.as_str())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;
    use serde_json::json;

    #[test]
    fn presets_survive_serialisation() {
        for name in preset::NAMES {
            let policy = preset::named(name).unwrap();
            let text = serde_json::to_string(&policy).unwrap();
            assert_eq!(
                serde_json::from_str::<LoopPolicy>(&text).unwrap(),
                policy,
                "{name}"
            );
        }
        assert_eq!(preset::named("other"), None);
    }

    #[test]
    fn missing_settings_get_defaults_unknown_ones_are_refused() {
        let read = |value| serde_json::from_value::<LoopPolicy>(value);
        let policy = read(json!({"max_steps": 7, "no_call": {"action": "nudge", "after": 2}})).unwrap();
        assert_eq!(
            policy,
            LoopPolicy {
                max_steps: 7,
                no_call: NoCall::Nudge { after: 2 },
                ..LoopPolicy::default()
            }
        );
        assert!(read(json!({"max_step": 7})).is_err());
        assert!(read(json!({"context": {"prune": {"protekt": 1}}})).is_err());
    }

    #[test]
    fn v14_reasoning_phrases_match_in_any_case() {
        let when = Reasoning::WhenAsked {
            effort: "high".into(),
        };
        for (message, effort) in [
            ("Think THROUGH this", Some("high")),
            ("step by step, please", Some("high")),
            ("hello", None),
        ] {
            assert_eq!(when.effort(message), effort, "{message}");
        }
        assert_eq!(Reasoning::Provider.effort("analyse"), None);
        assert_eq!(
            Reasoning::Always { effort: "low".into() }.effort("hello"),
            Some("low")
        );
    }
}

//! What a loop does where loops differ: plain data. Known styles of agent loop are values of [`LoopPolicy`] (see
//! [`crate::preset`]), never code of their own.

use serde::{Deserialize, Serialize};

use crate::budget::Budget;

/// How one agent loops.
///
/// | setting | default | what happens at the edge |
/// |---|---|---|
/// | `max_steps` | 50 requests a turn | [`OnLimit`] |
/// | `concurrency` | 8 calls at one time | the next call waits |
/// | `deadline_ms` | none | running calls are dropped, the turn ends with what there is |
/// | `result_bytes` | 48 KiB of text a call | head and tail with a mark between; the whole is kept for `read_result` |
/// | `error_breaker` | 5 times the same error in a row | the turn ends as failing |
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
    /// What ends a turn.
    pub finish: Finish,
    /// Most requests to the model in one turn. The last answer at the limit is not counted.
    pub max_steps: u32,
    /// What happens when they are used up.
    pub on_limit: OnLimit,
    /// Most calls that run at one time; 1 runs them one after the other, in order. Tools that are destructive run alone
    /// in any case.
    pub concurrency: usize,
    /// How many calls of one answer are executed.
    pub calls_per_step: CallsPerStep,
    /// What an answer without a call means where only a tool ends the turn.
    pub no_call: NoCall,
    /// Whether failed calls are run again by the loop itself.
    pub tool_retry: ToolRetry,
    /// What happens when all calls of a step fail.
    pub all_failed: AllFailed,
    /// The same error this many times in a row ends the turn; 0 never does.
    pub error_breaker: u32,
    /// Whether errors stay in the conversation.
    pub error_visibility: ErrorVisibility,
    /// When repeating one call with one result is noticed.
    pub repeats: Repeats,
    /// How often a failed request to the model is put into the conversation and made again; 0 ends the turn at once.
    /// Retries of the wire come before and are the provider's.
    pub provider_retries: u32,
    /// Milliseconds from the start of a turn to its end at the latest.
    pub deadline_ms: Option<u64>,
    /// Milliseconds that one request to the model may take.
    pub request_timeout_ms: Option<u64>,
    /// Milliseconds that one call may take, beside the limits of its own policy.
    pub call_timeout_ms: Option<u64>,
    /// Bytes of text of one result that the model reads.
    pub result_bytes: usize,
    /// How the conversation is kept within the model's context.
    pub context: ContextPolicy,
    /// What the whole session may use.
    pub budget: Budget,
    /// Tools of the loop itself that the model is offered.
    pub control: Vec<Control>,
    /// How much the model shall reason.
    pub reasoning: Reasoning,
}

/// What ends a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// An answer without calls.
    #[default]
    Content,
    /// A tool that ends the turn, and nothing else.
    Tool,
    /// Whichever comes first.
    Either,
}

/// What happens when the steps of a turn are used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// One more request, without tools; its answer is the answer.
    #[default]
    FinalAnswer,
    /// The last text that the model wrote is the answer.
    LastContent,
    /// A list of what the calls brought is the answer, made without the model.
    BestEffort,
    /// The turn ends without an answer.
    Stop,
}

/// How many calls of one answer are executed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallsPerStep {
    /// All.
    #[default]
    Many,
    /// The first; the others are answered with a request to call them one at a time.
    One,
}

/// What an answer without a call means where only a tool ends the turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub enum NoCall {
    /// The turn ends all the same.
    #[default]
    End,
    /// The model may go on thinking; after this many such answers in a row it is reminded.
    Nudge {
        /// How many.
        after: u32,
    },
    /// It is reminded at once. Each time counts as an error for [`LoopPolicy::error_breaker`].
    Reprompt,
}

/// Whether failed calls are run again. Only tools that claim to be idempotent are, and only where another attempt may
/// help (`unavailable`, or a tool that crashed or failed).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolRetry {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// Milliseconds before the second attempt; each further pause is as much longer.
    pub backoff_ms: u64,
}

/// What happens when all calls of a step fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllFailed {
    /// The model reads the errors and goes on.
    #[default]
    Continue,
    /// One more request, without tools, in which the model answers from what it knows.
    FallbackAnswer,
}

/// Whether errors stay in the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorVisibility {
    /// They stay.
    #[default]
    Stored,
    /// The next request shows them. After that reminders are gone and failed results are down to one line.
    Ephemeral,
}

/// When the same call (tool, arguments in canonical form, result) is noticed as a repetition. Tools with the annotation
/// `polling` are exempt. 0 switches a setting off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Repeats {
    /// After this many the model is told.
    pub warn: u32,
    /// After this many the turn ends, with one last answer without tools.
    pub stop: u32,
}

/// How the conversation is kept within the model's context. Lengths are in tokens: the provider's count where there is
/// one, otherwise a quarter of the bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextPolicy {
    /// Length at which the older part is summarised; `None` never does, short of an error of the provider.
    pub summarise_at: Option<u64>,
    /// Rounds at the end that a summary leaves as they are. A round is a message of the person, or an answer with its
    /// results.
    pub keep_rounds: usize,
    /// Pruning of old results; `None` keeps them.
    pub prune: Option<Prune>,
    /// Most messages that a request carries; older rounds are left out. `None` sends all.
    pub max_messages: Option<usize>,
}

/// Pruning of the results of old calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prune {
    /// The newest results up to this many tokens are left alone.
    pub protect: u64,
    /// Older ones are taken out when at least this many tokens are won: each pruning costs the provider's prompt cache.
    pub at_least: u64,
}

/// A tool of the loop itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// `task_completion`: ends the turn with a result in text.
    TaskCompletion,
    /// `task_complete`: ends the turn with a summary and a result in JSON.
    TaskComplete,
    /// `ask_question`: ends the turn with a question to the person.
    AskQuestion,
    /// `converse`: ends the turn with a message to the person.
    Converse,
    /// `update_plan`: sets the plan.
    UpdatePlan,
    /// `read_result`: reads the whole of a result that was cut.
    ReadResult,
}

/// How much the model shall reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum Reasoning {
    /// As the provider does by itself.
    #[default]
    Provider,
    /// Always with this effort, in the provider's words.
    Always {
        /// Such as `low` or `high`.
        effort: String,
    },
    /// With this effort when the person's message asks for analysis or explanation.
    WhenAsked {
        /// Such as `low` or `high`.
        effort: String,
    },
}

/// What every request asks of the model; `None` leaves it to the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// Most tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
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
    /// Words by which a message asks for reasoning.
    const WORDS: [&'static str; 7] = [
        "analyze",
        "analyse",
        "compare",
        "evaluate",
        "explain why",
        "step by step",
        "think through",
    ];

    /// The effort for a turn that begins with this message.
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
    fn every_preset_is_plain_data_and_comes_back_as_it_was() {
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
    fn settings_that_are_left_out_have_their_defaults_and_unknown_ones_are_refused() {
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
    fn v14_words_that_ask_for_reasoning_are_found_whatever_their_case() {
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

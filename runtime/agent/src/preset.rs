//! Named loop styles, each a value of [`LoopPolicy`].
//!
//! | | [`sequential`] | [`task`] | [`resilient`] | [`stepwise`] | default |
//! |---|---|---|---|---|---|
//! | a turn ends with | text | `task_complete` | text | a tool that ends it | text |
//! | steps | 20 | 50 | 10 | 100 | 50 |
//! | at the limit | last text | no answer | list of results | last answer | last answer |
//! | calls | one after the other | parallel | parallel | one a step | parallel |
//! | text without a call | ends | reminder after 2 | ends | reminder at once | ends |
//! | failed call | error shown to the model | error shown to the model | retried if idempotent, then an answer without tools | error shown once | error shown to the model |

use crate::policy::{
    AllFailed, CallsPerStep, Control, ErrorVisibility, Finish, LoopPolicy, NoCall, OnLimit, Reasoning,
    ToolRetry,
};

/// Server that answers chat requests: calls run one after the other, text ends the turn, 300 seconds at most.
pub fn sequential() -> LoopPolicy {
    LoopPolicy {
        max_steps: 20,
        on_limit: OnLimit::LastContent,
        concurrency: 1,
        deadline_ms: Some(300_000),
        ..LoopPolicy::default()
    }
}

/// Session that works on a task until the model calls `task_complete`.
pub fn task() -> LoopPolicy {
    LoopPolicy {
        finish: Finish::Tool,
        on_limit: OnLimit::Stop,
        no_call: NoCall::Nudge { after: 2 },
        provider_retries: 5,
        control: vec![Control::TaskComplete, Control::ReadResult],
        ..LoopPolicy::default()
    }
}

/// Question answered with the help of tools, and without them when they fail.
pub fn resilient() -> LoopPolicy {
    LoopPolicy {
        max_steps: 10,
        on_limit: OnLimit::BestEffort,
        tool_retry: ToolRetry {
            attempts: 2,
            backoff_ms: 1_000,
        },
        all_failed: AllFailed::FallbackAnswer,
        reasoning: Reasoning::WhenAsked {
            effort: "high".into(),
        },
        ..LoopPolicy::default()
    }
}

/// One call per step until a control tool ends the turn.
pub fn stepwise() -> LoopPolicy {
    LoopPolicy {
        finish: Finish::Tool,
        max_steps: 100,
        calls_per_step: CallsPerStep::One,
        concurrency: 1,
        no_call: NoCall::Reprompt,
        error_visibility: ErrorVisibility::Ephemeral,
        control: vec![
            Control::TaskCompletion,
            Control::AskQuestion,
            Control::Converse,
            Control::UpdatePlan,
            Control::ReadResult,
        ],
        ..LoopPolicy::default()
    }
}

/// Names of the presets.
pub const NAMES: [&str; 5] = ["default", "sequential", "task", "resilient", "stepwise"];

/// Returns the preset with this name, one of [`NAMES`].
pub fn named(name: &str) -> Option<LoopPolicy> {
    Some(match name {
        "default" => LoopPolicy::default(),
        "sequential" => sequential(),
        "task" => task(),
        "resilient" => resilient(),
        "stepwise" => stepwise(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preset_has_its_number_of_steps_and_calls_at_once() {
        let default = LoopPolicy::default();
        for (name, steps, calls) in [
            ("default", default.max_steps, default.concurrency),
            ("sequential", sequential().max_steps, 1),
            ("resilient", 10, default.concurrency),
            ("stepwise", 100, 1),
        ] {
            let policy = named(name).unwrap();
            assert_eq!((policy.max_steps, policy.concurrency), (steps, calls), "{name}");
        }
        assert!(NAMES.iter().all(|name| named(name).is_some()));
        assert_eq!(named("other"), None);
    }
}

//! Hooks: code that runs at fixed points of a turn, and may change or refuse the next operation.
//!
//! A hook of the embedder and a component hook are both an `Arc<dyn Hook>`. A method takes plain data ([`Prompt`],
//! [`PendingCall`], …) and returns plain data ([`PromptAnswer`], [`CallAnswer`], …), which the runner of the hooks
//! applies. The runner also limits the time of a hook and catches its panics.
//!
//! | point | input | result |
//! |---|---|---|
//! | [`Hook::before_prompt`] | [`Prompt`] | [`PromptAnswer`]: changes the message, adds context, examples and instructions, cancels the turn |
//! | [`Hook::before_call`] | [`PendingCall`] | [`CallAnswer`]: changes the arguments (they are validated again), cancels the call, aborts the turn |
//! | [`Hook::after_call`] | [`CallReport`] | [`Effects`] |
//! | [`Hook::before_summary`] | messages | [`SummaryAnswer`]: chooses what is summarised, cancels the summary, aborts the turn |
//! | [`Hook::after_summary`] | [`Summary`] | [`SummaryAnswer`]: chooses what replaces it, cancels the summary, aborts the turn |
//! | [`Hook::after_turn`] | [`TurnEnd`] | [`Effects`] |
//! | [`Hook::on_error`] | [`FailureReport`] | [`Effects`] |
//!
//! A hook that fails, panics or times out is reported to the user, and its result is discarded. If it is a *guard*
//! ([`HookSpec::guard`]), the guarded operation is refused.

mod answer;
mod input;

pub use answer::{CallAnswer, Effects, Example, HookVerdict, Notice, PromptAnswer, SummaryAnswer};
pub use input::{CallReport, FailurePhase, FailureReport, PendingCall, Prompt, Summary, TurnEnd};

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::tool::{CallObserver, Unobserved};
use crate::{BoxFuture, Message, Receipt, RemainingBudget};

/// Future of a hook's result. Dropping it cancels the hook and all its work.
pub type HookFuture<'a, T> = BoxFuture<'a, Result<T, HookError>>;

/// Code that runs at fixed points of a turn. Every method but [`Hook::spec`] has a default that does nothing.
///
/// ```
/// use std::future::ready;
/// use serde_json::json;
/// use toolcell_core::hook::{CallAnswer, Hook, HookContext, HookFuture, HookSpec, PendingCall};
///
/// /// Gives every call a database, and refuses calls that name another one.
/// struct OneDatabase;
///
/// impl Hook for OneDatabase {
///     fn spec(&self) -> HookSpec {
///         HookSpec::guard("one_database")
///     }
///
///     fn before_call(&self, call: PendingCall, _cx: HookContext) -> HookFuture<'_, CallAnswer> {
///         let mut arguments = call.arguments;
///         let database = arguments.entry("database").or_insert(json!("main"));
///         let answer = if *database == "main" {
///             CallAnswer::with_arguments(arguments)
///         } else {
///             CallAnswer::cancel("only the database `main` may be used")
///         };
///         Box::pin(ready(Ok(answer)))
///     }
/// }
/// ```
pub trait Hook: Send + Sync {
    /// Returns name, points and order of the hook. Called once, when the hook is added to an agent.
    fn spec(&self) -> HookSpec;

    /// Returns the time limit of one method, if it differs from the agent's. Called once, like [`Hook::spec`].
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Returns the maximum fuel that the hook uses at this point; 0 for a hook that does not run in a cell. It is
    /// reserved in the budget of the session before the hook runs; [`HookContext::left`] is the granted amount.
    fn max_fuel(&self, _point: HookPoint) -> u64 {
        0
    }

    /// Called before the first request of a turn.
    ///
    /// # Errors
    /// Reported; ends the turn if this is a guard.
    fn before_prompt(&self, _prompt: Prompt, _cx: HookContext) -> HookFuture<'_, PromptAnswer> {
        Box::pin(ready(Ok(PromptAnswer::default())))
    }

    /// Called before each call whose arguments are valid, and before the user is asked to approve it.
    ///
    /// # Errors
    /// Reported; refuses the call if this is a guard.
    fn before_call(&self, _call: PendingCall, _cx: HookContext) -> HookFuture<'_, CallAnswer> {
        Box::pin(ready(Ok(CallAnswer::default())))
    }

    /// Called after each call that ran, successfully or not.
    ///
    /// # Errors
    /// Reported.
    fn after_call(&self, _call: CallReport, _cx: HookContext) -> HookFuture<'_, Effects> {
        Box::pin(ready(Ok(Effects::default())))
    }

    /// Called before the older part of a conversation is summarised. `messages` are those that will be replaced; the
    /// model summarises the returned messages.
    ///
    /// # Errors
    /// Reported; nothing is summarised if this is a guard.
    fn before_summary(&self, _messages: Vec<Message>, _cx: HookContext) -> HookFuture<'_, SummaryAnswer> {
        Box::pin(ready(Ok(SummaryAnswer::default())))
    }

    /// Called after a summary was made. The returned messages replace [`Summary::replaced`].
    ///
    /// # Errors
    /// Reported; nothing is replaced if this is a guard.
    fn after_summary(&self, _summary: Summary, _cx: HookContext) -> HookFuture<'_, SummaryAnswer> {
        Box::pin(ready(Ok(SummaryAnswer::default())))
    }

    /// Called after a turn has ended, with any outcome.
    ///
    /// # Errors
    /// Reported.
    fn after_turn(&self, _end: TurnEnd, _cx: HookContext) -> HookFuture<'_, Effects> {
        Box::pin(ready(Ok(Effects::default())))
    }

    /// Called when a request, a call or the arguments of one fail.
    ///
    /// # Errors
    /// Reported.
    fn on_error(&self, _failure: FailureReport, _cx: HookContext) -> HookFuture<'_, Effects> {
        Box::pin(ready(Ok(Effects::default())))
    }
}

/// A point of a turn at which hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// [`Hook::before_prompt`].
    BeforePrompt,
    /// [`Hook::before_call`].
    BeforeCall,
    /// [`Hook::after_call`].
    AfterCall,
    /// [`Hook::before_summary`].
    BeforeSummary,
    /// [`Hook::after_summary`].
    AfterSummary,
    /// [`Hook::after_turn`].
    AfterTurn,
    /// [`Hook::on_error`].
    OnError,
}

/// Description of a hook: its name, and when it runs. For a component all of it is a claim, which the user's
/// configuration overrides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HookSpec {
    /// Name, unique among the hooks of an agent.
    pub name: String,
    /// Description for the user. The model never reads it.
    pub description: String,
    /// Points at which the hook runs; its other methods are never called.
    #[serde(rename = "moments")]
    pub points: BTreeSet<HookPoint>,
    /// Refuses the checked operation if the hook fails.
    pub guard: bool,
    /// Position among the other hooks.
    #[serde(flatten)]
    pub order: HookOrder,
    /// Further claims of a component, as names and JSON values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, Value>,
}

/// Position of a hook among the others. Hooks named in `before` run after it, those in `after` run before it; names that
/// no hook has are ignored. Otherwise the higher priority comes first, and among equals the smaller name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HookOrder {
    /// Higher comes first. Default 0.
    pub priority: i32,
    /// Names of hooks that this one comes before.
    pub before: Vec<String>,
    /// Names of hooks that this one comes after.
    pub after: Vec<String>,
}

/// Context of a hook: the turn in which it runs.
#[derive(Clone)]
pub struct HookContext {
    /// Identifier of the session.
    pub session: Arc<str>,
    /// Values left by hooks in this turn ([`Effects::values`]), including those from before the turn was resumed by
    /// another process.
    pub values: Map<String, Value>,
    /// Observer that receives the log of a hook in a cell, states its budget, and receives the receipt of a hook whose
    /// future was dropped; all other hooks return their receipt.
    pub observer: Arc<dyn CallObserver>,
}

/// Error of a hook, whose result is discarded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HookError {
    /// Cause of the failure, for the user.
    pub message: String,
    /// Receipt of the hook, if it ran in a cell.
    pub receipt: Option<Box<Receipt>>,
}

impl HookPoint {
    /// All points in the order of a turn.
    pub const ALL: [Self; 7] = [
        Self::BeforePrompt,
        Self::BeforeCall,
        Self::AfterCall,
        Self::BeforeSummary,
        Self::AfterSummary,
        Self::AfterTurn,
        Self::OnError,
    ];

    /// Returns the name used in events, configuration and messages, such as `before_call`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforePrompt => "before_prompt",
            Self::BeforeCall => "before_call",
            Self::AfterCall => "after_call",
            Self::BeforeSummary => "before_summary",
            Self::AfterSummary => "after_summary",
            Self::AfterTurn => "after_turn",
            Self::OnError => "on_error",
        }
    }
}

impl HookSpec {
    /// Creates the description of a hook that runs at every point and is not a guard.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            points: BTreeSet::from(HookPoint::ALL),
            guard: false,
            order: HookOrder::default(),
            annotations: BTreeMap::new(),
        }
    }

    /// Creates the description of a guard that runs at every point.
    pub fn guard(name: impl Into<String>) -> Self {
        Self {
            guard: true,
            ..Self::new(name)
        }
    }
}

impl HookContext {
    /// Creates a context of a session without values, whose observer ignores everything.
    pub fn unobserved(session: &str) -> Self {
        Self {
            session: session.into(),
            values: Map::new(),
            observer: Arc::new(Unobserved),
        }
    }

    /// Returns the budget reserved for the hook.
    pub fn left(&self) -> RemainingBudget {
        self.observer.left()
    }
}

impl HookError {
    /// Creates an error without a receipt.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            receipt: None,
        }
    }
}

impl std::fmt::Debug for HookContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookContext")
            .field("session", &self.session)
            .field("values", &self.values)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for dyn Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hook({})", self.spec().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain;

    impl Hook for Plain {
        fn spec(&self) -> HookSpec {
            HookSpec::new("plain")
        }
    }

    #[test]
    fn hook_guards_nothing_and_uses_no_fuel_by_default() {
        let spec = Plain.spec();
        assert!(!spec.guard);
        for point in HookPoint::ALL {
            assert!(spec.points.contains(&point), "{point:?}");
            assert_eq!(Plain.max_fuel(point), 0, "{point:?}");
        }
        assert_eq!(Plain.timeout(), None);
        assert!(HookSpec::guard("g").guard);
    }

    #[test]
    fn each_hook_point_has_an_event_name() {
        for (point, name) in [
            (HookPoint::BeforePrompt, "before_prompt"),
            (HookPoint::BeforeCall, "before_call"),
            (HookPoint::AfterCall, "after_call"),
            (HookPoint::BeforeSummary, "before_summary"),
            (HookPoint::AfterSummary, "after_summary"),
            (HookPoint::AfterTurn, "after_turn"),
            (HookPoint::OnError, "on_error"),
        ] {
            assert_eq!(point.as_str(), name);
        }
    }

    #[test]
    fn each_failed_part_of_a_turn_has_a_name_for_hooks() {
        for (phase, name) in [
            (FailurePhase::Model, "model"),
            (FailurePhase::CallArguments, "call_arguments"),
            (FailurePhase::Call, "call"),
        ] {
            assert_eq!(phase.as_str(), name);
        }
    }

    #[test]
    fn hook_learns_the_budget_that_is_reserved_for_it() {
        struct Reserved;
        impl CallObserver for Reserved {
            fn left(&self) -> RemainingBudget {
                RemainingBudget {
                    fuel: Some(7),
                    ..RemainingBudget::NOTHING
                }
            }
        }
        let mut cx = HookContext::unobserved("s");
        assert_eq!(cx.left().fuel, None);
        cx.observer = Arc::new(Reserved);
        assert_eq!(cx.left().fuel, Some(7));
    }
}

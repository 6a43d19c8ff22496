//! Running hooks: one after the other, each with its time, each contained.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::Value;
use toolcell_core::event::NoticeLevel;
use toolcell_core::{ArgumentPlace, Message};

use super::order::sort;
use super::{
    CallDraft, CallReport, Failure, Hook, HookContext, HookError, HookPoint, PromptDraft, TurnEnd, Verdict,
};
use crate::budget::reserve::Exhausted;
use crate::error::BuildError;

/// All hooks of an agent, in the order in which they run.
#[derive(Debug, Clone)]
pub(crate) struct Hooks {
    hooks: Vec<Registered>,
}

/// A hook with what it says of itself, which is asked once.
#[derive(Debug, Clone)]
struct Registered {
    hook: Arc<dyn Hook>,
    name: String,
    is_guard: bool,
    timeout: Duration,
}

/// How a round of hooks ended that may refuse something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ruling {
    Continue,
    Cancel { by: String, reason: String },
    Abort { by: String, reason: String },
}

impl Hooks {
    /// Time that one hook has at one moment, unless the agent says otherwise.
    pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

    pub(crate) fn new(hooks: Vec<Arc<dyn Hook>>, timeout: Duration) -> Result<Self, BuildError> {
        let registered = |hook: Arc<dyn Hook>| Registered {
            name: hook.name().to_owned(),
            is_guard: hook.is_guard(),
            timeout: hook.timeout().unwrap_or(timeout),
            hook,
        };
        Ok(Self {
            hooks: sort(hooks)?.into_iter().map(registered).collect(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    pub(crate) async fn before_prompt(&self, prompt: &mut PromptDraft, cx: &HookContext) -> Ruling {
        for hook in &self.hooks {
            let entered = Entered::new(hook, HookPoint::BeforePrompt, cx).await;
            let work = async { hook.hook.before_prompt(prompt, entered.cx()?).await };
            let ruling = self.rule(&entered, work).await;
            if ruling != Ruling::Continue {
                return ruling;
            }
        }
        Ruling::Continue
    }

    /// `places` says what arguments lead to: each hook judges those that the one before it left.
    pub(crate) async fn before_call(
        &self,
        call: &mut CallDraft,
        places: impl Fn(&Value) -> Vec<ArgumentPlace> + Send,
        cx: &HookContext,
    ) -> Ruling {
        for hook in &self.hooks {
            call.places = places(&Value::Object(call.arguments.clone()));
            let entered = Entered::new(hook, HookPoint::BeforeCall, cx).await;
            let work = async { hook.hook.before_call(call, entered.cx()?).await };
            let ruling = self.rule(&entered, work).await;
            if ruling != Ruling::Continue {
                return ruling;
            }
        }
        Ruling::Continue
    }

    pub(crate) async fn after_call(&self, call: &CallReport, cx: &HookContext) {
        for hook in &self.hooks {
            let entered = Entered::new(hook, HookPoint::AfterCall, cx).await;
            let work = async { hook.hook.after_call(call, entered.cx()?).await };
            self.look(&entered, work).await;
        }
    }

    pub(crate) async fn after_turn(&self, end: &TurnEnd, cx: &HookContext) {
        for hook in &self.hooks {
            let entered = Entered::new(hook, HookPoint::AfterTurn, cx).await;
            let work = async { hook.hook.after_turn(end, entered.cx()?).await };
            self.look(&entered, work).await;
        }
    }

    pub(crate) async fn on_error(&self, failure: &Failure, cx: &HookContext) {
        for hook in &self.hooks {
            let entered = Entered::new(hook, HookPoint::OnError, cx).await;
            let work = async { hook.hook.on_error(failure, entered.cx()?).await };
            self.look(&entered, work).await;
        }
    }

    /// # Errors
    /// When a guard fails.
    pub(crate) async fn before_summary(
        &self,
        messages: &mut Vec<Message>,
        cx: &HookContext,
    ) -> Result<(), String> {
        for hook in &self.hooks {
            let entered = Entered::new(hook, HookPoint::BeforeSummary, cx).await;
            let work = async { hook.hook.before_summary(messages, entered.cx()?).await };
            if !self.look(&entered, work).await && hook.is_guard {
                return Err(format!("the hook `{}` failed", hook.name));
            }
        }
        Ok(())
    }

    /// # Errors
    /// When a guard fails.
    pub(crate) async fn after_summary(
        &self,
        replaced: &[Message],
        messages: &mut Vec<Message>,
        cx: &HookContext,
    ) -> Result<(), String> {
        for hook in &self.hooks {
            let entered = Entered::new(hook, HookPoint::AfterSummary, cx).await;
            let work = async { hook.hook.after_summary(replaced, messages, entered.cx()?).await };
            if !self.look(&entered, work).await && hook.is_guard {
                return Err(format!("the hook `{}` failed", hook.name));
            }
        }
        Ok(())
    }

    async fn rule(
        &self,
        entered: &Entered<'_>,
        work: impl Future<Output = Result<Verdict, HookError>>,
    ) -> Ruling {
        let by = entered.hook.name.clone();
        match self.contained(entered, work).await {
            Ok(Verdict::Continue) => Ruling::Continue,
            Ok(Verdict::Cancel { reason }) => Ruling::Cancel { by, reason },
            Ok(Verdict::Abort { reason }) => Ruling::Abort { by, reason },
            Err(_) if entered.hook.is_guard => {
                let reason = "a check that must pass could not be made".to_owned();
                Ruling::Cancel { by, reason }
            }
            Err(_) => Ruling::Continue,
        }
    }

    /// Whether it went well.
    async fn look(&self, entered: &Entered<'_>, work: impl Future<Output = Result<(), HookError>>) -> bool {
        self.contained(entered, work).await.is_ok()
    }

    /// Runs a hook within its time; a panic is a failure, whether it comes before the first `await` or after it. Every
    /// failure is reported.
    ///
    /// # Errors
    /// When the hook failed.
    async fn contained<T>(
        &self,
        entered: &Entered<'_>,
        work: impl Future<Output = Result<T, HookError>>,
    ) -> Result<T, HookFailed> {
        let work = AssertUnwindSafe(work).catch_unwind();
        let timeout = entered.hook.timeout;
        let reason = match tokio::time::timeout(timeout, work).await {
            Ok(Ok(Ok(value))) => return Ok(value),
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(_)) => "it panicked".into(),
            Err(_) => format!("it did not end within {} ms", timeout.as_millis()),
        };
        let text = format!(
            "the hook `{}` failed in `{}`: {reason}",
            entered.hook.name,
            entered.point.as_str()
        );
        entered.outer.must_notify(NoticeLevel::Warning, text);
        Err(HookFailed)
    }
}

/// A hook failed, which was reported.
struct HookFailed;

/// A hook that is about to run, with what it reserved of the budget.
struct Entered<'a> {
    hook: &'a Registered,
    point: HookPoint,
    outer: &'a HookContext,
    own: Result<HookContext, String>,
}

impl<'a> Entered<'a> {
    /// Waits for the reservation of a hook; its time begins afterwards.
    async fn new(hook: &'a Registered, point: HookPoint, cx: &'a HookContext) -> Self {
        let fuel = std::panic::catch_unwind(AssertUnwindSafe(|| hook.hook.max_fuel(point)));
        let own = match fuel {
            Ok(fuel) => cx.reserve(fuel).await.map_err(|Exhausted(unit)| {
                format!("it did not run, because the budget of {unit} is used up")
            }),
            Err(_) => Err("it panicked".into()),
        };
        Self {
            hook,
            point,
            outer: cx,
            own,
        }
    }

    /// # Errors
    /// When it cannot run, because nothing is left that it could use.
    fn cx(&self) -> Result<&HookContext, HookError> {
        self.own.as_ref().map_err(|reason| HookError(reason.clone()))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Ok(own) = &self.own {
            own.end();
        }
    }
}

//! Running hooks: one after the other, each with its time, each contained.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use toolcell_core::event::NoticeLevel;
use toolcell_core::{BoxFuture, Message};

use super::order::sort;
use super::{CallDraft, CallReport, Failure, Hook, HookContext, HookError, PromptDraft, TurnEnd, Verdict};
use crate::error::BuildError;

/// All hooks of an agent, in the order in which they run.
#[derive(Debug, Clone)]
pub(crate) struct Hooks {
    hooks: Vec<Arc<dyn Hook>>,
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
        Ok(Self {
            hooks: sort(hooks)?,
            timeout,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    pub(crate) async fn before_prompt(&self, prompt: &mut PromptDraft, cx: &HookContext) -> Ruling {
        for hook in &self.hooks {
            let ruling = self
                .rule(hook, "before_prompt", hook.before_prompt(prompt, cx), cx)
                .await;
            if ruling != Ruling::Continue {
                return ruling;
            }
        }
        Ruling::Continue
    }

    pub(crate) async fn before_call(&self, call: &mut CallDraft, cx: &HookContext) -> Ruling {
        for hook in &self.hooks {
            let ruling = self
                .rule(hook, "before_call", hook.before_call(call, cx), cx)
                .await;
            if ruling != Ruling::Continue {
                return ruling;
            }
        }
        Ruling::Continue
    }

    pub(crate) async fn after_call(&self, call: &CallReport, cx: &HookContext) {
        for hook in &self.hooks {
            self.look(hook, "after_call", hook.after_call(call, cx), cx).await;
        }
    }

    pub(crate) async fn after_turn(&self, end: &TurnEnd, cx: &HookContext) {
        for hook in &self.hooks {
            self.look(hook, "after_turn", hook.after_turn(end, cx), cx).await;
        }
    }

    pub(crate) async fn on_error(&self, failure: &Failure, cx: &HookContext) {
        for hook in &self.hooks {
            self.look(hook, "on_error", hook.on_error(failure, cx), cx).await;
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
            let ran = self.look(hook, "before_summary", hook.before_summary(messages, cx), cx);
            if !ran.await && hook.is_guard() {
                return Err(format!("the hook `{}` failed", hook.name()));
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
            let ran = self.look(
                hook,
                "after_summary",
                hook.after_summary(replaced, messages, cx),
                cx,
            );
            if !ran.await && hook.is_guard() {
                return Err(format!("the hook `{}` failed", hook.name()));
            }
        }
        Ok(())
    }

    async fn rule(
        &self,
        hook: &Arc<dyn Hook>,
        moment: &str,
        work: BoxFuture<'_, Result<Verdict, HookError>>,
        cx: &HookContext,
    ) -> Ruling {
        let by = hook.name().to_owned();
        match self.contained(hook, work).await {
            Ok(Verdict::Continue) => Ruling::Continue,
            Ok(Verdict::Cancel { reason }) => Ruling::Cancel { by, reason },
            Ok(Verdict::Abort { reason }) => Ruling::Abort { by, reason },
            Err(reason) => {
                report(hook, moment, &reason, cx);
                if hook.is_guard() {
                    let reason = "a check that must pass could not be made".to_owned();
                    Ruling::Cancel { by, reason }
                } else {
                    Ruling::Continue
                }
            }
        }
    }

    /// Whether it went well.
    async fn look(
        &self,
        hook: &Arc<dyn Hook>,
        moment: &str,
        work: BoxFuture<'_, Result<(), HookError>>,
        cx: &HookContext,
    ) -> bool {
        match self.contained(hook, work).await {
            Ok(()) => true,
            Err(reason) => {
                report(hook, moment, &reason, cx);
                false
            }
        }
    }

    async fn contained<T>(
        &self,
        hook: &Arc<dyn Hook>,
        work: BoxFuture<'_, Result<T, HookError>>,
    ) -> Result<T, String> {
        let work = AssertUnwindSafe(work).catch_unwind();
        let timeout = hook.timeout().unwrap_or(self.timeout);
        match tokio::time::timeout(timeout, work).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(_)) => Err("it panicked".into()),
            Err(_) => Err(format!("it did not end within {} ms", timeout.as_millis())),
        }
    }
}

fn report(hook: &Arc<dyn Hook>, moment: &str, reason: &str, cx: &HookContext) {
    let name = hook.name();
    cx.notify(
        NoticeLevel::Warning,
        format!("the hook `{name}` failed in `{moment}`: {reason}"),
    );
}

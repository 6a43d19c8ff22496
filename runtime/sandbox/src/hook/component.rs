//! Components that are hooks, and their instances under a policy.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use toolcell_core::hook::{
    CallAnswer, CallReport, Effects, FailureReport, HookContext, HookError, HookFuture, HookOrder, HookPoint,
    HookSpec, PendingCall, Prompt, PromptAnswer, Summary, SummaryAnswer, TurnEnd,
};
use toolcell_core::{Hook, Message, Policy, Secrets, ToolError};

use super::MAX_VALUES;
use super::linked::LinkedHook;
use super::request::{HookCall, HookRequest};
use super::response::{HookResponse, clean_text};
use super::summary::{AfterSummary, BeforeSummary};
use crate::cell::CellRequest;
use crate::component::{Base, Identity};
use crate::egress::{BoundSecrets, Egress, InvalidBinding};
use crate::structured;
use crate::tool::within;

/// Time beyond the limit of its cell after which a hook counts as failed: the error of the cell is more specific.
const GRACE: Duration = Duration::from_secs(1);

/// A component loaded as a hook. Clones are cheap and share everything.
#[derive(Clone)]
pub struct HookComponent(pub(crate) Arc<LoadedHook>);

pub(crate) struct LoadedHook {
    pub(crate) base: Base,
    pub(crate) pre: LinkedHook,
    pub(crate) spec: HookSpec,
}

/// A hook under a policy. Each request runs in its own cell.
#[derive(Clone)]
pub struct CellHook {
    hook: Arc<LoadedHook>,
    spec: HookSpec,
    policy: Arc<Policy>,
    egress: Arc<Egress>,
}

impl HookComponent {
    /// Returns the identity of the component.
    pub fn identity(&self) -> &Identity {
        &self.0.base.identity
    }

    /// Returns the description of the hook, as claimed by the component.
    pub fn spec(&self) -> &HookSpec {
        &self.0.spec
    }

    /// Returns the hook under `policy`, as described by the component, with the values of the secrets that the policy
    /// binds. As with tools, the hook never holds them, and all `secrets` are redacted in its results.
    ///
    /// # Errors
    /// If a binding of the policy is invalid or its secret has no value.
    pub fn hook(&self, policy: Arc<Policy>, secrets: &Secrets) -> Result<CellHook, InvalidBinding> {
        let bound = BoundSecrets::new(&policy.grants.secrets, secrets)?;
        Ok(CellHook {
            egress: self.0.base.egress(&policy, bound),
            hook: self.0.clone(),
            spec: self.0.spec.clone(),
            policy,
        })
    }
}

impl CellHook {
    /// Sets the name, which defaults to the component's own.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.spec.name = name.into();
        self
    }

    /// Sets whether it is a guard, overriding the component.
    #[must_use]
    pub fn with_guard(mut self, guard: bool) -> Self {
        self.spec.guard = guard;
        self
    }

    /// Sets its position among the other hooks, overriding the component.
    #[must_use]
    pub fn with_order(mut self, order: HookOrder) -> Self {
        self.spec.order = order;
        self
    }

    /// Runs one request in a cell, if the component registered for that point.
    async fn ask<R: HookRequest>(&self, request: R, cx: HookContext) -> Result<Answer<R>, HookError> {
        if !self.spec.points.contains(&R::POINT) {
            return Ok(Answer::<R>::default());
        }
        let call = HookCall::new(request, &cx);
        let cell = CellRequest {
            pre: &self.hook.pre,
            policy: &self.policy,
            limits: within(&self.policy.limits, cx.left()),
            egress: &self.egress,
            observer: cx.observer.clone(),
            footprint: self.hook.base.footprint,
            bytes_in: call.bytes_in(),
        };
        let ended = self.hook.base.cells.run_cell(cell, call).await;
        let receipt = Some(Box::new(ended.receipt));
        match self.answer::<R>(ended.result, &cx.values).await {
            Ok(mut answer) => {
                R::Response::effects(&mut answer).receipt = receipt;
                Ok(answer)
            }
            Err(message) => Err(HookError { message, receipt }),
        }
    }

    /// Converts the result of the cell.
    ///
    /// # Errors
    /// A message to the user.
    async fn answer<R: HookRequest>(
        &self,
        result: Result<Result<R::Response, String>, ToolError>,
        values: &Map<String, Value>,
    ) -> Result<Answer<R>, String> {
        let redactor = self.egress.redactor();
        match result {
            Ok(Ok(response)) => {
                let validated = match response.bytes() {
                    ..=structured::AT_ONCE => response.validate(redactor),
                    // As the structured output of a tool: other calls do not wait for it.
                    _ => {
                        let redactor = redactor.clone();
                        let validated =
                            tokio::task::spawn_blocking(move || response.validate(&redactor)).await;
                        validated.unwrap_or_else(|_| Err("it could not be parsed".into()))
                    }
                };
                let mut answer = validated.map_err(|reason| format!("its response is invalid: {reason}"))?;
                check_values(values, &R::Response::effects(&mut answer).values)?;
                Ok(answer)
            }
            Ok(Err(text)) => Err(clean_text(text, redactor)),
            Err(mut error) => {
                redactor.error(&mut error);
                Err(match error {
                    error @ ToolError::Crashed { .. } => error.to_string().replacen("the tool", "it", 1),
                    other => other.to_string(),
                })
            }
        }
    }
}

/// Result of a request, in the types of `toolcell_core`.
type Answer<R> = <<R as HookRequest>::Response as HookResponse>::Answer;

/// Checks that the values of the turn, including new ones, stay within [`MAX_VALUES`].
///
/// # Errors
/// If they exceed it.
fn check_values(values: &Map<String, Value>, new: &Map<String, Value>) -> Result<(), String> {
    let kept = values.iter().filter(|(name, _)| !new.contains_key(*name));
    let bytes: usize = kept
        .chain(new)
        .map(|(name, value)| name.len() + value.to_string().len())
        .sum();
    if bytes > MAX_VALUES {
        return Err(format!(
            "the values of the hooks of this turn have {bytes} bytes, more than the limit of {MAX_VALUES}"
        ));
    }
    Ok(())
}

impl Hook for CellHook {
    fn spec(&self) -> HookSpec {
        self.spec.clone()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.policy.limits.wall_time().saturating_add(GRACE))
    }

    fn max_fuel(&self, point: HookPoint) -> u64 {
        if self.spec.points.contains(&point) {
            self.policy.limits.fuel
        } else {
            0
        }
    }

    fn before_prompt(&self, prompt: Prompt, cx: HookContext) -> HookFuture<'_, PromptAnswer> {
        Box::pin(self.ask(prompt, cx))
    }

    fn before_call(&self, call: PendingCall, cx: HookContext) -> HookFuture<'_, CallAnswer> {
        Box::pin(self.ask(call, cx))
    }

    fn after_call(&self, call: CallReport, cx: HookContext) -> HookFuture<'_, Effects> {
        Box::pin(self.ask(call, cx))
    }

    fn before_summary(&self, messages: Vec<Message>, cx: HookContext) -> HookFuture<'_, SummaryAnswer> {
        Box::pin(async move {
            let chosen = self.ask(BeforeSummary(&messages), cx).await?;
            chosen.of(messages, Vec::new())
        })
    }

    fn after_summary(&self, summary: Summary, cx: HookContext) -> HookFuture<'_, SummaryAnswer> {
        Box::pin(async move {
            let Summary { replaced, messages } = summary;
            let request = AfterSummary {
                replaced: &replaced,
                messages: &messages,
            };
            let chosen = self.ask(request, cx).await?;
            chosen.of(messages, replaced)
        })
    }

    fn after_turn(&self, end: TurnEnd, cx: HookContext) -> HookFuture<'_, Effects> {
        Box::pin(self.ask(end, cx))
    }

    fn on_error(&self, failure: FailureReport, cx: HookContext) -> HookFuture<'_, Effects> {
        Box::pin(self.ask(failure, cx))
    }
}

impl fmt::Debug for HookComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookComponent")
            .field("identity", self.identity())
            .field("spec", self.spec())
            .finish()
    }
}

impl fmt::Debug for CellHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CellHook")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_turn_are_limited_in_total() {
        let of = |name: &str, bytes: usize| {
            let value = Value::String("x".repeat(bytes - name.len() - 2));
            Map::from_iter([(name.to_owned(), value)])
        };
        let there = of("a", MAX_VALUES - 100);
        assert_eq!(check_values(&there, &of("b", 100)), Ok(()));
        let error = check_values(&there, &of("b", 101)).unwrap_err();
        assert!(error.contains("have 65537 bytes"), "{error}");
        assert_eq!(
            check_values(&there, &of("a", MAX_VALUES)),
            Ok(()),
            "the new value replaces it"
        );
    }
}

//! Runs hooks in order, each within its time limit and budget, with panics contained.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolcell_core::event::NoticeLevel;
use toolcell_core::hook::{
    CallAnswer, CallReport, Effects, FailureReport, Hook, HookContext, HookError, HookFuture, HookPoint,
    HookSpec, HookVerdict, PendingCall, PromptAnswer, Summary, SummaryAnswer, TurnEnd,
};
use toolcell_core::{ArgumentPlace, Message};

use super::order::sort;
use super::prompt::PromptDraft;
use super::turn::{HookRun, HookTurn};
use crate::budget::reserve::Exhausted;
use crate::contained::{Contained, contained};
use crate::error::BuildError;

/// All hooks of an agent, in the order in which they run.
#[derive(Debug, Clone)]
pub(crate) struct HookRunner {
    hooks: Vec<Registered>,
}

/// A hook with its description, which is read once.
#[derive(Debug, Clone)]
pub(super) struct Registered {
    pub(super) spec: HookSpec,
    hook: Arc<dyn Hook>,
    timeout: Duration,
}

/// Decision of all hooks on a prompt, a call or a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ruling {
    Proceed,
    Cancel { by: String, reason: String },
    Abort { by: String, reason: String },
}

impl HookRunner {
    /// Time limit of one method of a hook, unless the agent or the hook has another one.
    pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

    pub(crate) fn new(hooks: Vec<Arc<dyn Hook>>, timeout: Duration) -> Result<Self, BuildError> {
        let hooks = hooks.into_iter().enumerate();
        let hooks = hooks.map(|(i, hook)| Registered::new(i + 1, hook, timeout));
        let hooks: Vec<Registered> = hooks.collect::<Result<_, _>>()?;
        let specs: Vec<&HookSpec> = hooks.iter().map(|hook| &hook.spec).collect();
        let order = sort(&specs)?;
        Ok(Self {
            hooks: order.into_iter().map(|i| hooks[i].clone()).collect(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    fn at(&self, point: HookPoint) -> impl Iterator<Item = &Registered> {
        self.hooks
            .iter()
            .filter(move |hook| hook.spec.points.contains(&point))
    }

    pub(crate) async fn before_prompt(&self, draft: &mut PromptDraft, turn: &HookTurn) -> Ruling {
        let point = HookPoint::BeforePrompt;
        for hook in self.at(point) {
            let prompt = draft.prompt();
            let answer = hook
                .ask(point, turn, |hook, cx| hook.before_prompt(prompt, cx))
                .await;
            match hook.ruling(answer.as_ref().map(|answer| &answer.verdict)) {
                Ruling::Proceed => {}
                ruling => return ruling,
            }
            if let Ok(answer) = answer {
                draft.apply(answer);
            }
        }
        Ruling::Proceed
    }

    /// `places` resolves the paths and URLs of arguments: each hook gets those of the arguments that the previous one
    /// returned.
    pub(crate) async fn before_call(
        &self,
        call: &mut PendingCall,
        places: impl Fn(&Value) -> Vec<ArgumentPlace> + Send,
        turn: &HookTurn,
    ) -> Ruling {
        let point = HookPoint::BeforeCall;
        let mut hooks = self.at(point).peekable();
        if hooks.peek().is_some() {
            call.places = places(&Value::Object(call.arguments.clone()));
        }
        for hook in hooks {
            let pending = call.clone();
            let answer = hook
                .ask(point, turn, |hook, cx| hook.before_call(pending, cx))
                .await;
            match hook.ruling(answer.as_ref().map(|answer| &answer.verdict)) {
                Ruling::Proceed => {}
                ruling => return ruling,
            }
            if let Ok(CallAnswer {
                arguments: Some(arguments),
                ..
            }) = answer
            {
                if arguments != call.arguments {
                    call.places = places(&Value::Object(arguments.clone()));
                }
                call.arguments = arguments;
            }
        }
        Ruling::Proceed
    }

    pub(crate) async fn after_call(&self, call: &CallReport, turn: &HookTurn) {
        let point = HookPoint::AfterCall;
        for hook in self.at(point) {
            let call = call.clone();
            // A failure was already reported and has no further effect.
            let _ = hook.ask(point, turn, |hook, cx| hook.after_call(call, cx)).await;
        }
    }

    pub(crate) async fn after_turn(&self, end: &TurnEnd, turn: &HookTurn) {
        let point = HookPoint::AfterTurn;
        for hook in self.at(point) {
            let end = end.clone();
            let _ = hook.ask(point, turn, |hook, cx| hook.after_turn(end, cx)).await;
        }
    }

    pub(crate) async fn on_error(&self, failure: &FailureReport, turn: &HookTurn) {
        let point = HookPoint::OnError;
        for hook in self.at(point) {
            let failure = failure.clone();
            let _ = hook.ask(point, turn, |hook, cx| hook.on_error(failure, cx)).await;
        }
    }

    pub(crate) async fn before_summary(&self, messages: &mut Vec<Message>, turn: &HookTurn) -> Ruling {
        let point = HookPoint::BeforeSummary;
        for hook in self.at(point) {
            let given = messages.clone();
            let answer = hook
                .ask(point, turn, |hook, cx| hook.before_summary(given, cx))
                .await;
            match hook.ruling(answer.as_ref().map(|answer| &answer.verdict)) {
                Ruling::Proceed => {}
                ruling => return ruling,
            }
            if let Ok(SummaryAnswer {
                messages: Some(new), ..
            }) = answer
            {
                *messages = new;
            }
        }
        Ruling::Proceed
    }

    pub(crate) async fn after_summary(
        &self,
        replaced: &[Message],
        messages: &mut Vec<Message>,
        turn: &HookTurn,
    ) -> Ruling {
        let point = HookPoint::AfterSummary;
        for hook in self.at(point) {
            let summary = Summary {
                replaced: replaced.to_vec(),
                messages: messages.clone(),
            };
            let answer = hook
                .ask(point, turn, |hook, cx| hook.after_summary(summary, cx))
                .await;
            match hook.ruling(answer.as_ref().map(|answer| &answer.verdict)) {
                Ruling::Proceed => {}
                ruling => return ruling,
            }
            if let Ok(SummaryAnswer {
                messages: Some(new), ..
            }) = answer
            {
                *messages = new;
            }
        }
        Ruling::Proceed
    }
}

impl Registered {
    /// # Errors
    /// Fails if the hook, the `number`-th of the agent, panics.
    fn new(number: usize, hook: Arc<dyn Hook>, timeout: Duration) -> Result<Self, BuildError> {
        let described = contained(|| (hook.spec(), hook.timeout()));
        let (spec, own_timeout) = described.map_err(|panicked| BuildError::HookPanicked {
            number,
            cause: panicked.cause,
        })?;
        Ok(Self {
            spec,
            timeout: own_timeout.unwrap_or(timeout),
            hook,
        })
    }

    /// Runs the hook once and applies the effects that it returns. Failures are reported.
    ///
    /// # Errors
    /// Fails if the hook failed.
    async fn ask<'a, A: Answer>(
        &'a self,
        point: HookPoint,
        turn: &HookTurn,
        method: impl FnOnce(&'a dyn Hook, HookContext) -> HookFuture<'a, A> + Send,
    ) -> Result<A, HookFailed> {
        let reason = match self.begin(point, turn).await {
            Ok(run) => match self.call(run.context(), method).await {
                Ok(mut answer) => {
                    let effects = std::mem::take(answer.effects());
                    if let Some(receipt) = effects.receipt {
                        run.charge(*receipt);
                    }
                    run.carry_out(effects.notices, effects.values);
                    return Ok(answer);
                }
                Err(error) => {
                    if let Some(receipt) = error.receipt {
                        run.charge(*receipt);
                    }
                    error.message
                }
            },
            Err(reason) => reason,
        };
        let (name, point) = (&self.spec.name, point.as_str());
        let text = format!("the hook `{name}` failed in `{point}`: {reason}");
        turn.notify(NoticeLevel::Warning, text);
        Err(HookFailed)
    }

    /// Waits for the reservation of the hook; its time limit starts afterwards.
    ///
    /// # Errors
    /// Fails if the budget is used up.
    async fn begin(&self, point: HookPoint, turn: &HookTurn) -> Result<HookRun, String> {
        let fuel = contained(|| self.hook.max_fuel(point)).map_err(|_| PANICKED.to_owned())?;
        let run = turn.begin(&self.spec.name, point, fuel).await;
        run.map_err(|Exhausted(unit)| format!("it did not run, because the budget of {unit} is used up"))
    }

    /// Runs a method within its time limit. A panic is a failure, whether before the first `await`, after it, or while
    /// the future is dropped.
    async fn call<'a, A>(
        &'a self,
        cx: HookContext,
        method: impl FnOnce(&'a dyn Hook, HookContext) -> HookFuture<'a, A> + Send,
    ) -> Result<A, HookError> {
        let mut answer = Contained::new(|| method(&*self.hook, cx));
        match tokio::time::timeout(self.timeout, &mut answer).await {
            Ok(Ok(answer)) => answer,
            Err(_) if answer.discard().is_ok() => Err(HookError::new(format!(
                "it did not end within {} ms",
                self.timeout.as_millis()
            ))),
            Ok(Err(_)) | Err(_) => Err(HookError::new(PANICKED)),
        }
    }

    /// Converts the verdict or failure of this hook.
    fn ruling(&self, verdict: Result<&HookVerdict, &HookFailed>) -> Ruling {
        let by = self.spec.name.clone();
        match verdict {
            Ok(HookVerdict::Proceed) => Ruling::Proceed,
            Ok(HookVerdict::Cancel { reason }) => Ruling::Cancel {
                by,
                reason: reason.clone(),
            },
            Ok(HookVerdict::Abort { reason }) => Ruling::Abort {
                by,
                reason: reason.clone(),
            },
            Err(HookFailed) if self.spec.guard => {
                let reason = "a check that must pass could not be made".to_owned();
                Ruling::Cancel { by, reason }
            }
            Err(HookFailed) => Ruling::Proceed,
        }
    }
}

/// Reason of a failure by a panic.
const PANICKED: &str = "it panicked";

/// Failure of a hook that was reported.
struct HookFailed;

/// Answer of any hook point.
trait Answer: Send {
    fn effects(&mut self) -> &mut Effects;
}

impl Answer for PromptAnswer {
    fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }
}

impl Answer for CallAnswer {
    fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }
}

impl Answer for SummaryAnswer {
    fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }
}

impl Answer for Effects {
    fn effects(&mut self) -> &mut Effects {
        self
    }
}

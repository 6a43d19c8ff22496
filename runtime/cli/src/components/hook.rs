//! Hooks that are components, as the agent takes them. What a hook wants is carried out here, once its whole answer is
//! there and makes sense; a hook that failed wants nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use toolcell_agent::hook::{
    CallDraft, CallReport, Example, Failure, FailurePhase, Hook, HookContext, HookError, HookOrder,
    HookPoint, PromptDraft, TurnEnd, Verdict,
};
use toolcell_core::event::NoticeLevel;
use toolcell_core::tool::{CallObserver, LogLine};
use toolcell_core::{BoxFuture, Content, Grant, Message, Receipt, RemainingBudget};
use toolcell_sandbox::CellHook;
use toolcell_sandbox::hook::{self as cell, Effects, HookFailure};

use crate::config::HookSettings;
use crate::ui::escape;

/// Most bytes of names and values that all hooks leave in one turn, as many as the journal keeps. Each hook is handed all of
/// them each time.
const MAX_VALUES: usize = 64 << 10;

/// Time beyond the limit of its cell after which a hook counts as failed: the cell says better what happened.
const GRACE: Duration = Duration::from_secs(1);

/// A hook that runs in cells.
pub(crate) struct ComponentHook {
    name: String,
    hook: CellHook,
    guard: bool,
    order: HookOrder,
    timeout: Duration,
    asides: Arc<Asides>,
}

/// What a person needs to know of a hook's cells, beside what the hook says.
struct Asides {
    name: String,
    /// The person's configuration, as a person reads it.
    user_file: String,
    /// Denials that the person was told of.
    told: Mutex<BTreeSet<String>>,
}

impl ComponentHook {
    /// A hook under the person's settings; what they leave open is as the component says.
    pub(crate) fn new(settings: &HookSettings, hook: CellHook, user_file: String) -> Self {
        let spec = hook.spec();
        let name = settings.component.name.clone();
        let limits = &settings.component.limits.limits;
        Self {
            guard: is_guard(settings, spec),
            order: HookOrder {
                priority: settings.priority.as_ref().map_or(spec.priority, |p| p.value),
                before: names(settings.before.as_ref().map(|b| &b.value), &spec.before),
                after: names(settings.after.as_ref().map(|a| &a.value), &spec.after),
            },
            timeout: limits.wall_time().saturating_add(GRACE),
            asides: Arc::new(Asides {
                name: name.clone(),
                user_file,
                told: Mutex::default(),
            }),
            name,
            hook,
        }
    }

    fn wants(&self, moment: cell::HookPoint) -> bool {
        self.hook.spec().moments.contains(&moment)
    }

    fn observer(&self, moment: cell::HookPoint, cx: &HookContext) -> Arc<dyn CallObserver> {
        Arc::new(Ear {
            asides: self.asides.clone(),
            moment,
            cx: cx.clone(),
        })
    }
}

/// Whether what a hook looks at must not happen when it fails.
pub(crate) fn is_guard(settings: &HookSettings, spec: &cell::HookSpec) -> bool {
    settings.guard.as_ref().map_or(spec.guard, |guard| guard.value)
}

fn names(said: Option<&Vec<String>>, claimed: &[String]) -> Vec<String> {
    said.map_or_else(|| claimed.to_vec(), Clone::clone)
}

impl Hook for ComponentHook {
    fn name(&self) -> &str {
        &self.name
    }

    fn order(&self) -> HookOrder {
        self.order.clone()
    }

    fn is_guard(&self) -> bool {
        self.guard
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn max_fuel(&self, point: HookPoint) -> u64 {
        let wants = self
            .hook
            .spec()
            .moments
            .iter()
            .any(|moment| moment.as_str() == point.as_str());
        if wants { self.hook.max_fuel() } else { 0 }
    }

    fn before_prompt<'a>(
        &'a self,
        prompt: &'a mut PromptDraft,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<Verdict, HookError>> {
        Box::pin(async move {
            if !self.wants(cell::HookPoint::BeforePrompt) {
                return Ok(Verdict::Continue);
            }
            let (tokens, token_limit) = prompt.tokens();
            let asked = cell::Prompt {
                message: content_of(&prompt.message),
                original: content_of(prompt.original()),
                tokens,
                token_limit,
            };
            let observer = self.observer(cell::HookPoint::BeforePrompt, cx);
            let answer = self.hook.before_prompt(asked, turn(cx), observer).await;
            let answer = answer.map_err(words)?;
            carry_out(answer.effects, cx)?;
            if answer.verdict == cell::Verdict::Proceed {
                if let (Some(new), Message::User { content }) = (answer.message, &mut prompt.message) {
                    *content = new;
                }
                prompt.context.extend(answer.context);
                prompt.instructions.extend(answer.instructions);
                prompt
                    .examples
                    .extend(answer.examples.into_iter().map(|example| Example {
                        says: example.says,
                        tool: example.tool,
                        arguments: Value::Object(example.arguments),
                    }));
            }
            Ok(verdict(answer.verdict))
        })
    }

    fn before_call<'a>(
        &'a self,
        call: &'a mut CallDraft,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<Verdict, HookError>> {
        Box::pin(async move {
            if !self.wants(cell::HookPoint::BeforeCall) {
                return Ok(Verdict::Continue);
            }
            let asked = cell::PendingCall {
                id: call.id.clone(),
                tool: call.tool.clone(),
                arguments: call.arguments.clone(),
                places: call.places.clone(),
            };
            let observer = self.observer(cell::HookPoint::BeforeCall, cx);
            let answer = self.hook.before_call(asked, turn(cx), observer).await;
            let answer = answer.map_err(words)?;
            carry_out(answer.effects, cx)?;
            if let (cell::Verdict::Proceed, Some(arguments)) = (&answer.verdict, answer.arguments) {
                call.arguments = arguments;
            }
            Ok(verdict(answer.verdict))
        })
    }

    fn after_call<'a>(
        &'a self,
        call: &'a CallReport,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(async move {
            if !self.wants(cell::HookPoint::AfterCall) {
                return Ok(());
            }
            let asked = cell::FinishedCall {
                id: call.id.clone(),
                tool: call.tool.clone(),
                arguments: call.arguments.clone(),
                content: call.content.clone(),
                error: call.error.as_ref().map(|error| cell::Failure {
                    kind: error.kind().to_owned(),
                    message: error.for_model(),
                }),
                receipt: call.receipt.clone(),
                duration_ms: call.duration_ms,
            };
            let observer = self.observer(cell::HookPoint::AfterCall, cx);
            let effects = self.hook.after_call(asked, turn(cx), observer).await;
            carry_out(effects.map_err(words)?, cx)
        })
    }

    fn after_turn<'a>(
        &'a self,
        end: &'a TurnEnd,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(async move {
            if !self.wants(cell::HookPoint::AfterTurn) {
                return Ok(());
            }
            let (outcome, context) = outcome(end);
            let asked = cell::FinishedTurn {
                outcome,
                text: end.text.clone(),
                steps: end.steps,
                context,
            };
            let observer = self.observer(cell::HookPoint::AfterTurn, cx);
            let effects = self.hook.after_turn(asked, turn(cx), observer).await;
            carry_out(effects.map_err(words)?, cx)
        })
    }

    fn on_error<'a>(
        &'a self,
        failure: &'a Failure,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(async move {
            if !self.wants(cell::HookPoint::OnError) {
                return Ok(());
            }
            let phase = match failure.phase {
                FailurePhase::Model => "model",
                FailurePhase::CallArguments => "call_arguments",
                FailurePhase::Call => "call",
            };
            let asked = cell::Failure {
                kind: phase.into(),
                message: failure.message.clone(),
            };
            let observer = self.observer(cell::HookPoint::OnError, cx);
            let effects = self.hook.on_error(asked, turn(cx), observer).await;
            carry_out(effects.map_err(words)?, cx)
        })
    }
}

/// Tells the person what the hook says, and leaves its values for later.
///
/// # Errors
/// When the values of the turn become too many. None of them is left then.
fn carry_out(effects: Effects, cx: &HookContext) -> Result<(), HookError> {
    let mut all = cx.values();
    all.extend(effects.values.clone());
    let bytes: usize = all
        .iter()
        .map(|(name, value)| name.len() + value.to_string().len())
        .sum();
    if bytes > MAX_VALUES {
        return Err(HookError(format!(
            "with its values the hooks of this turn leave {bytes} bytes, and {MAX_VALUES} are accepted"
        )));
    }
    for (level, text) in effects.notices {
        cx.notify(level, text);
    }
    for (name, value) in effects.values {
        cx.set(name, value);
    }
    Ok(())
}

fn turn(cx: &HookContext) -> cell::Turn {
    cell::Turn {
        session: cx.session.to_string(),
        values: cx.values(),
    }
}

fn content_of(message: &Message) -> Vec<Content> {
    match message {
        Message::User { content } => content.clone(),
        other => vec![Content::text(other.text())],
    }
}

fn verdict(verdict: cell::Verdict) -> Verdict {
    match verdict {
        cell::Verdict::Proceed => Verdict::Continue,
        cell::Verdict::Cancel { reason } => Verdict::Cancel { reason },
        cell::Verdict::Abort { reason } => Verdict::Abort { reason },
    }
}

/// The outcome of a turn in one word, and what else is known of it.
fn outcome(end: &TurnEnd) -> (String, Map<String, Value>) {
    let mut context = match serde_json::to_value(&end.outcome) {
        Ok(Value::Object(context)) => context,
        _ => Map::new(),
    };
    let word = match context.remove("outcome") {
        Some(Value::String(word)) => word,
        _ => "unknown".into(),
    };
    (word, context)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature that `map_err` asks for"
)]
fn words(failure: HookFailure) -> HookError {
    HookError(failure.to_string())
}

/// Hears what happens in one cell of a hook.
struct Ear {
    asides: Arc<Asides>,
    moment: cell::HookPoint,
    cx: HookContext,
}

impl CallObserver for Ear {
    fn log(&self, line: LogLine) {
        tracing::debug!(
            hook = self.asides.name,
            moment = self.moment.as_str(),
            level = ?line.level,
            "{}",
            line.message.escape_debug()
        );
    }

    fn left(&self) -> RemainingBudget {
        self.cx.left()
    }

    fn receipt(&self, receipt: Receipt) {
        for denial in &receipt.denials {
            let allow = denial.allow_with.as_ref().and_then(|line| line.parse().ok());
            let mut text = self.asides.denied(&denial.what, &denial.target, allow);
            if let Some(by) = &denial.denied_by {
                text = format!("{text}, by {by}");
            }
            let mut told = self.asides.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.len() < Receipt::MAX_ENTRIES && told.insert(text.clone()) {
                self.cx.notify(NoticeLevel::Warning, text);
            }
        }
        self.cx.receipt(&self.asides.name, self.moment.as_str(), receipt);
    }
}

impl Asides {
    /// That a hook was denied something, and the line that would allow it.
    fn denied(&self, what: &str, target: &str, allow: Option<Grant>) -> String {
        let denied = format!("the hook `{}` was denied {what} {target}", self.name);
        match allow {
            Some(grant) => format!(
                "{denied}; to allow it, in {}: [hooks.{}] grants = [{}]",
                self.user_file,
                self.name,
                escape::toml(&grant.to_string())
            ),
            None => denied,
        }
    }
}

//! Transitions after an answer, and choice of the next step.

use std::collections::HashSet;

use toolcell_core::event::{NoticeLevel, ReminderKind, TurnOutcome};
use toolcell_core::provider::{Completion, ProviderError, ProviderErrorKind, StopReason};
use toolcell_core::{Event, Message, Part, ToolError, json};

use super::apply::{EMPTY_ANSWER, error_of};
use super::state::{Call, Stage};
use super::{Effect, Step, schema_answer};
use crate::budget::{Budget, Spent};
use crate::context;
use crate::context::messages;
use crate::policy::{AllFailed, CallsPerStep, Finish, NoCall, OnLimit};

/// Number of empty answers in a row that ends a turn.
const MAX_EMPTY_ANSWERS: u32 = 3;

/// Maximum memory of the arguments of all calls of an answer once they are parsed, in bytes: twice that of one call. Each call holds
/// its arguments until the turn goes on, and needs them several times.
const MAX_ARGUMENTS_MEMORY: u64 = 2 * json::MAX_ARGUMENT_MEMORY;

/// Maximum length of a call identifier, in bytes; those of providers have about 30.
const MAX_ID_BYTES: usize = 256;

impl Step<'_> {
    pub(super) fn answered(&mut self, completion: Completion, cut: &[String]) {
        let Completion { parts, stop, usage } = completion;
        let step = self.turn().steps;
        let message = Message::Assistant {
            parts: self.with_unique_ids(parts),
        };
        let input = self.state.request_tokens(self.machine.overhead);
        let usage = context::counted(usage.unwrap_or_default(), input, &message);
        if usage.estimated {
            self.say_estimated();
        }
        let last_may_be_cut = stop == StopReason::MaxTokens && cut.is_empty();
        self.emit(Event::StepFinished {
            step,
            message,
            stop: stop.clone(),
            usage: Some(usage),
        });
        if let Some(outcome) = self.turn().closing.clone() {
            self.refuse_all(messages::CLOSING);
            return self.finish(outcome);
        }
        if !cut.is_empty() {
            self.remind(ReminderKind::CallCut, messages::call_cut(cut), true);
        }
        if !self.turn().calls.is_empty() {
            return self.accept_calls(last_may_be_cut);
        }
        match stop {
            _ if !cut.is_empty() => self.advance(),
            StopReason::Paused => self.advance(),
            StopReason::MalformedCall => self.malformed_call(stop),
            StopReason::Complete => self.no_call(),
            stop => self.finish(TurnOutcome::Stopped { stop }),
        }
    }

    /// Tells the user once that a budget of tokens or money counts estimates.
    fn say_estimated(&mut self) {
        let is_needed = |budget: &Budget| budget.tokens.is_some() || budget.cost_micros.is_some();
        let is_limited = is_needed(&self.machine.policy.budget) || is_needed(&self.turn().outside);
        if is_limited && !self.state.said_estimated {
            self.notice(NoticeLevel::Warning, messages::ESTIMATED.into());
        }
    }

    /// Replaces identifiers of calls that are empty, too long or already used: results are found by identifier.
    fn with_unique_ids(&self, mut parts: Vec<Part>) -> Vec<Part> {
        let known = &self.state.call_ids;
        let mut number = known.len();
        let mut here = HashSet::new();
        for part in &mut parts {
            let Part::Call(call) = part else { continue };
            let usable = !call.id.is_empty() && call.id.len() <= MAX_ID_BYTES;
            if !usable || known.contains(&call.id) || here.contains(&call.id) {
                let stem = if usable {
                    call.id.clone()
                } else {
                    "call".to_owned()
                };
                call.id = loop {
                    number += 1;
                    let id = format!("{stem}-{number}");
                    if !known.contains(&id) && !here.contains(&id) {
                        break id;
                    }
                };
            }
            here.insert(call.id.clone());
        }
        parts
    }

    fn accept_calls(&mut self, last_may_be_cut: bool) {
        let one = self.machine.policy.calls_per_step == CallsPerStep::One;
        let calls: Vec<_> = self.turn().calls.iter().map(|c| c.request.clone()).collect();
        let last = calls.len() - 1;
        let mut memory: u64 = 0;
        for (i, call) in calls.into_iter().enumerate() {
            let parsed = json::memory_of_text(&call.arguments);
            // One that takes too much alone is refused before it is parsed.
            if parsed <= json::MAX_ARGUMENT_MEMORY {
                memory = memory.saturating_add(parsed);
            }
            // An empty string would parse as a call without arguments.
            let cut = last_may_be_cut
                && i == last
                && (call.arguments.trim().is_empty() || json::parse_object(&call.arguments).is_err());
            if cut {
                self.refuse_call(
                    &call.id,
                    call.arguments.into(),
                    ToolError::invalid(messages::CUT_BY_TOKENS),
                );
            } else if one && i > 0 {
                self.refuse_call(
                    &call.id,
                    call.arguments.into(),
                    ToolError::Failed {
                        message: messages::ONE_CALL.into(),
                    },
                );
            } else if memory > MAX_ARGUMENTS_MEMORY {
                let error = ToolError::invalid(messages::too_many_values(MAX_ARGUMENTS_MEMORY));
                self.refuse_call(&call.id, call.arguments.into(), error);
            } else if !self.one_at_a_time() {
                self.prepare(&call.id);
            }
        }
        self.start_ready();
        self.after_calls();
    }

    /// Handles a complete answer without calls.
    fn no_call(&mut self) {
        let policy = &self.machine.policy;
        let last_is_empty = matches!(self.state.messages.last().map(AsRef::as_ref),
            Some(Message::Assistant { parts }) if parts.iter().any(|p| matches!(p, Part::Text { text, .. } if !text.trim().is_empty())));
        if !last_is_empty {
            let kind = ReminderKind::EmptyAnswer;
            let times = self.turn().times_in_a_row(kind) + 1;
            if times >= MAX_EMPTY_ANSWERS {
                return self.finish(TurnOutcome::Failing {
                    error: EMPTY_ANSWER.into(),
                    times,
                });
            }
            return self.ask_again(kind, messages::EMPTY_ANSWER.into(), None, self.stores_errors());
        }
        if policy.finish != Finish::Tool {
            return self.final_text();
        }
        match policy.no_call {
            NoCall::End => self.finish(TurnOutcome::Completed),
            NoCall::Nudge { after } if self.turn().idle < after => {
                self.remind(ReminderKind::Continue, messages::CONTINUE.into(), true);
                self.go_on();
            }
            NoCall::Nudge { .. } => self.ask_again(ReminderKind::NoToolCall, self.nudge(), None, true),
            NoCall::Reprompt => {
                self.ask_again(ReminderKind::NoToolCall, self.nudge(), None, self.stores_errors());
            }
        }
    }

    /// Asks again once for a call that the provider could not read.
    fn malformed_call(&mut self, stop: StopReason) {
        let kind = ReminderKind::MalformedCall;
        if self.turn().times_in_a_row(kind) > 0 {
            return self.finish(TurnOutcome::Stopped { stop });
        }
        self.ask_again(kind, messages::MALFORMED_CALL.into(), None, self.stores_errors());
    }

    /// Tells the model what is wrong with its answer and asks again, unless the turn ends because it was wrong so often:
    /// the model would read those words in the next turn.
    fn ask_again(&mut self, kind: ReminderKind, text: String, reason: Option<&str>, stored: bool) {
        let times = self.turn().times_in_a_row(kind) + 1;
        let limit = self.machine.policy.error_breaker;
        match error_of(kind) {
            Some(error) if limit > 0 && times >= limit => {
                let error = match reason {
                    Some(reason) => format!("{error}: {reason}"),
                    None => error.to_owned(),
                };
                let times = times.saturating_mul(self.answers_per_reminder(kind));
                self.finish(TurnOutcome::Failing { error, times });
            }
            _ => {
                self.remind(kind, text, stored);
                self.go_on();
            }
        }
    }

    /// Number of answers for each reminder of a kind.
    fn answers_per_reminder(&self, kind: ReminderKind) -> u32 {
        match self.machine.policy.no_call {
            NoCall::Nudge { after } if kind == ReminderKind::NoToolCall => after.max(1),
            _ => 1,
        }
    }

    /// Ends the turn with the answer's text, unless it does not fit a required schema.
    fn final_text(&mut self) {
        let Some(schema) = &self.machine.answer else {
            return self.finish(TurnOutcome::Completed);
        };
        let text = self
            .state
            .messages
            .last()
            .map(|message| message.text())
            .unwrap_or_default();
        match schema_answer::read(&text, schema) {
            Ok((json, value)) => {
                let json = json.to_owned();
                self.finish_with(TurnOutcome::Completed, Some(json), Some(value));
            }
            Err(reason) => {
                let text = messages::answer_mismatch(&reason);
                let stored = self.stores_errors();
                self.ask_again(ReminderKind::AnswerMismatch, text, Some(&reason), stored);
            }
        }
    }

    fn nudge(&self) -> String {
        let enders = self
            .machine
            .tools
            .iter()
            .filter(|(_, facts)| facts.control.is_some_and(super::calls::ends_turn))
            .map(|(name, _)| name.as_str());
        messages::nudge(enders)
    }

    pub(super) fn stores_errors(&self) -> bool {
        self.machine.policy.error_visibility == crate::policy::ErrorVisibility::Stored
    }

    pub(super) fn answer_failed(&mut self, error: ProviderError, partial: &str) {
        self.interrupted(partial, error.to_string());
        let turn = self.turn();
        let keep = self.machine.policy.context.keep_rounds;
        if error.kind == ProviderErrorKind::ContextLength
            && turn.summarised != Some(turn.steps)
            && let Some(messages) = context::summary_cut(&self.state.messages, keep)
        {
            return self.summarise(messages);
        }
        if turn.closing.is_none() && turn.provider_failures < self.machine.policy.provider_retries {
            self.remind(
                ReminderKind::ProviderFailed,
                messages::provider_failed(&error),
                true,
            );
            return self.advance();
        }
        self.finish(TurnOutcome::ProviderFailed { error });
    }

    /// Continues, unless the budget ended a call or the same error occurred too often in a row.
    pub(super) fn go_on(&mut self) {
        if let Some(reason) = self.over_budget().or_else(|| self.budget_of_a_call()) {
            return self.finish(TurnOutcome::Budget { reason });
        }
        if self.is_failing()
            && let Some((error, times)) = self.turn().failing.clone()
        {
            return self.finish(TurnOutcome::Failing { error, times });
        }
        self.advance();
    }

    /// True if the same error occurred so often in a row that the turn ends.
    pub(super) fn is_failing(&self) -> bool {
        let limit = self.machine.policy.error_breaker;
        let times = self.turn().failing.as_ref().map_or(0, |(_, times)| *times);
        limit > 0 && times >= limit
    }

    /// Sends the next request, or ends the turn if a limit is reached.
    pub(super) fn advance(&mut self) {
        if self.turn().only_summary {
            return self.finish(TurnOutcome::Completed);
        }
        let policy = &self.machine.policy;
        if let Some(reason) = self.over_budget() {
            return self.finish(TurnOutcome::Budget { reason });
        }
        let steps = self.turn().steps;
        // One of the requests is the last one, without tools.
        let has_last = policy.on_limit == OnLimit::FinalAnswer && !self.machine.tools.is_empty();
        let last = u32::from(has_last);
        if steps >= policy.max_steps {
            return self.limit_passed();
        }
        if self.turn().closing.is_none() && steps + last >= policy.max_steps {
            return self.limit_reached();
        }
        self.prune();
        let turn = self.turn();
        let step = turn.steps + 1;
        if let Some(limit) = policy.context.summarise_at
            && self.state.tokens() >= limit
            && turn.summarised != Some(step)
            && let Some(messages) = context::summary_cut(&self.state.messages, policy.context.keep_rounds)
        {
            return self.summarise(messages);
        }
        self.request(step);
    }

    /// The exhausted part of the budget, of the session's own or of the calling session's remaining one.
    fn over_budget(&self) -> Option<String> {
        self.exceeded(&self.state.spent())
    }

    /// The part of the budget whose rest ended one of the latest calls. Another call would get as little.
    fn budget_of_a_call(&self) -> Option<String> {
        let spent = self.state.spent();
        let budgets = [&self.machine.policy.budget, &self.turn().outside];
        let prices = self.machine.policy.budget.prices;
        let finished = self.turn().calls.iter().filter_map(Call::finished);
        finished
            .filter_map(|finished| match &finished.result.error {
                Some(ToolError::Limit { limit }) => Some((limit, &finished.result)),
                _ => None,
            })
            .find_map(|(limit, result)| {
                let bytes = result.byte_len() as u64;
                let used = Spent::of_call(bytes, result.receipt.as_ref(), prices.as_ref());
                budgets
                    .iter()
                    .find_map(|budget| budget.ended(&spent, limit, &used))
            })
    }

    /// The same before a call starts: running calls are included in the number of calls.
    pub(super) fn no_budget_for_call(&self) -> Option<String> {
        let mut spent = self.state.spent();
        spent.calls = spent.calls.saturating_add(self.running() as u64);
        self.exceeded(&spent)
    }

    fn exceeded(&self, spent: &Spent) -> Option<String> {
        let own = self.machine.policy.budget.exceeded(spent);
        own.or_else(|| self.turn().outside.exceeded(spent))
    }

    /// Maximum tokens of the answer to a request with the whole conversation that the budget allows.
    ///
    /// # Errors
    /// The reason, if too little is left for it.
    pub(super) fn output_left(&self) -> Result<Option<u64>, String> {
        let spent = self.state.spent();
        let input = self.state.request_tokens(self.machine.overhead);
        let own = self.machine.policy.budget.output_left(&spent, input)?;
        let outside = self.turn().outside.output_left(&spent, input)?;
        Ok([own, outside].into_iter().flatten().min())
    }

    pub(super) fn request(&mut self, step: u32) {
        match self.output_left() {
            Err(reason) => self.finish(TurnOutcome::Budget { reason }),
            Ok(max_output) => {
                let tools = self.turn().closing.is_none();
                self.emit(Event::StepStarted { step });
                self.effects.push(Effect::Request { tools, max_output });
            }
        }
    }

    fn prune(&mut self) {
        if let Some(prune) = &self.machine.policy.context.prune
            && let Some((calls, bytes)) = context::prunable(&self.state.messages, prune)
        {
            self.emit(Event::ResultsPruned { calls, bytes });
        }
    }

    /// Repeats the plan in the conversation, because a summary may have removed it.
    pub(super) fn restate_plan(&mut self) {
        if let Some(plan) = &self.state.plan {
            let text = messages::plan(plan);
            self.remind(ReminderKind::Plan, text, true);
        }
    }

    fn limit_reached(&mut self) {
        let steps = self.machine.policy.max_steps;
        let outcome = TurnOutcome::StepLimit { steps };
        match self.machine.policy.on_limit {
            OnLimit::FinalAnswer => self.close(outcome, ReminderKind::StepLimit, messages::STEP_LIMIT.into()),
            OnLimit::LastContent | OnLimit::BestEffort | OnLimit::Stop => self.finish(outcome),
        }
    }

    /// Ends a turn that has no request left, also if it is closing for another reason.
    fn limit_passed(&mut self) {
        let steps = self.machine.policy.max_steps;
        let outcome = self.turn().closing.clone();
        self.finish(outcome.unwrap_or(TurnOutcome::StepLimit { steps }));
    }

    /// Sends one last request without tools.
    pub(super) fn close(&mut self, outcome: TurnOutcome, kind: ReminderKind, text: String) {
        self.emit(Event::Closing { outcome });
        self.remind(kind, text, false);
        self.advance();
    }

    pub(super) fn remind(&mut self, kind: ReminderKind, text: String, stored: bool) {
        self.emit(Event::Reminder { kind, text, stored });
    }

    pub(super) fn fall_back(&mut self) -> bool {
        if self.machine.policy.all_failed != AllFailed::FallbackAnswer {
            return false;
        }
        let failures: Vec<String> = self
            .turn()
            .calls
            .iter()
            .filter_map(|call| Some((call, call.finished()?.result.error.as_ref()?)))
            .map(|(call, error)| format!("{}: {error}", call.request.name))
            .collect();
        let text = messages::fall_back(&failures, &self.turn().prompt);
        self.close(TurnOutcome::ToolsFailed, ReminderKind::AllToolsFailed, text);
        true
    }

    /// Ends the turn.
    pub(super) fn finish(&mut self, outcome: TurnOutcome) {
        self.finish_with(outcome, None, None);
    }

    pub(super) fn finish_with(
        &mut self,
        outcome: TurnOutcome,
        text: Option<String>,
        result: Option<serde_json::Value>,
    ) {
        debug_assert!(
            self.turn()
                .calls
                .iter()
                .all(|c| matches!(c.stage, Stage::Finished(_)))
        );
        let turn = self.turn();
        let text = text.unwrap_or_else(|| match (&outcome, self.machine.policy.on_limit) {
            (TurnOutcome::StepLimit { steps }, OnLimit::BestEffort) => {
                messages::best_effort(*steps, &turn.findings, &turn.text)
            }
            (TurnOutcome::StepLimit { .. }, OnLimit::LastContent) if turn.text.is_empty() => {
                messages::NOTHING_SAID.into()
            }
            _ => turn.text.clone(),
        });
        let (steps, mut usage, wall_ms) = (turn.steps, turn.usage, turn.wall_ms);
        // Without prices of its own model, a turn has the cost of others: of a fallback, or of agents.
        let prices = self.machine.policy.budget.prices.as_ref();
        let (cost_micros, is_partial) = self.state.spent.cost_since(&turn.spent_before, prices);
        usage.unpriced |= is_partial;
        if let TurnOutcome::Budget { reason } = &outcome {
            self.notice(NoticeLevel::Warning, format!("the turn ends: {reason}"));
        }
        self.emit(Event::TurnFinished {
            outcome,
            text,
            result,
            steps,
            usage,
            wall_ms,
            cost_micros,
        });
    }
}

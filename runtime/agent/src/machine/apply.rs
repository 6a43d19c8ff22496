//! Applies events to a state.

use std::sync::Arc;

use serde_json::Value;
use toolcell_core::event::{DataFlow, ReminderKind};
use toolcell_core::provider::Usage;
use toolcell_core::{CallResult, Content, Event, Message};

use super::state::{Call, Finished, LoopState, MAX_FINDINGS, Measured, Phase, REMEMBERED_CALLS, Stage, Turn};
use crate::context::messages;
use crate::tools::fingerprint::fingerprint;

impl LoopState {
    /// Builds a state from its events.
    pub fn from_events<'a>(session: impl Into<String>, events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::new(session);
        for event in events {
            state.apply(event);
        }
        state
    }

    /// Applies one event. Events that do not fit the state, and unknown kinds, change nothing.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Imported { messages } => {
                let ids = messages.iter().flat_map(Message::calls);
                self.call_ids.extend(ids.map(|call| call.id.clone()));
                self.messages.extend(messages.iter().cloned().map(Arc::new));
            }
            Event::TurnStarted {
                message, unanswered, ..
            } => self.turn_started(message, *unanswered),
            Event::PromptChanged {
                message,
                instructions,
            } => self.prompt_changed(message, instructions),
            Event::StepStarted { step } => {
                if let Some(turn) = &mut self.turn {
                    turn.steps = *step;
                    turn.phase = Phase::Requesting;
                    turn.calls.clear();
                }
            }
            Event::StepFinished { message, usage, .. } => {
                if let Some(turn) = &mut self.turn {
                    turn.provider_failures = 0;
                    turn.ephemeral_reminders.clear();
                    self.count_usage(*usage);
                }
                self.answered(message);
                if let Some(usage) = usage {
                    self.measured = Measured {
                        messages: self.messages.len(),
                        tokens: usage.input.saturating_add(usage.output),
                    };
                }
            }
            Event::StepInterrupted { message, usage, .. } => {
                self.count_usage(*usage);
                if let Some(message) = message {
                    self.answered(message);
                } else if let Some(turn) = &mut self.turn {
                    turn.phase = Phase::Deciding;
                }
            }
            Event::Reminder { kind, text, stored } => self.reminded(*kind, text, *stored),
            Event::Closing { outcome } => {
                if let Some(turn) = &mut self.turn {
                    turn.closing = Some(outcome.clone());
                }
            }
            Event::ApprovalRequested {
                id,
                arguments,
                cause,
                reason,
                places,
                ..
            } => {
                let flow = self.flow;
                self.stage(id, |_| Stage::Held {
                    arguments: arguments.clone(),
                    cause: *cause,
                    reason: reason.clone(),
                    flow,
                    places: places.clone(),
                });
            }
            Event::ApprovalDecided {
                id, approved: true, ..
            } => self.stage(id, |held| match held {
                Stage::Held {
                    arguments,
                    flow,
                    places,
                    ..
                } => Stage::Ready {
                    arguments,
                    approved: Some(flow),
                    places: Some(places),
                },
                other => other,
            }),
            Event::CallStarted { id, arguments, .. } => {
                let arguments = arguments.clone();
                self.stage(id, |_| Stage::Running { arguments });
            }
            Event::CallSuspended { id, state, receipt } => {
                self.stage(id, |running| match running {
                    Stage::Running { arguments } => Stage::Suspended {
                        arguments,
                        state: state.clone(),
                    },
                    other => other,
                });
                let receipt = receipt.as_ref();
                self.spent.count_suspended(receipt);
                let agent = receipt.and_then(|receipt| receipt.agent.as_deref());
                if let (Some(turn), Some(agent)) = (&mut self.turn, agent) {
                    turn.usage.add(agent.usage);
                }
            }
            Event::CallFinished { id, tool, result } => {
                let is_new = self.call_finished(id, tool, result);
                if is_new && !result.not_run {
                    let receipt = result.receipt.as_ref();
                    self.spent.count_call(result.byte_len() as u64, receipt);
                    let agent = receipt.and_then(|receipt| receipt.agent.as_deref());
                    if let (Some(turn), Some(agent)) = (&mut self.turn, agent) {
                        turn.usage.add(agent.usage);
                    }
                }
            }
            Event::Notice { text, .. } if text == messages::ESTIMATED => self.said_estimated = true,
            Event::HookFinished { receipt, .. } => self.spent.count_hook(receipt),
            Event::FlowChanged { flow, .. } => self.flow = *flow,
            Event::PlanUpdated { plan } => self.plan = Some(plan.clone()),
            Event::SummaryStarted { .. } => {
                let spent_before = self.spent;
                let turn = self.turn.get_or_insert_with(|| Turn {
                    only_summary: true,
                    spent_before,
                    ..Turn::default()
                });
                turn.phase = Phase::Summarising;
                turn.summarised = Some(turn.steps + 1);
            }
            Event::Compacted {
                removed,
                replacement,
                usage,
            } => {
                let removed = (*removed).min(self.messages.len());
                self.messages
                    .splice(..removed, replacement.iter().cloned().map(Arc::new));
                self.starts.retain(|start| *start >= removed);
                for start in &mut self.starts {
                    *start = *start - removed + replacement.len();
                }
                self.measured = Measured::default();
                self.count_usage(*usage);
            }
            Event::TurnUndone { removed } => {
                let left = self.messages.len().saturating_sub(*removed);
                self.messages.truncate(left);
                self.starts.retain(|start| *start < left);
                if self.measured.messages > left {
                    self.measured = Measured::default();
                }
            }
            Event::SummaryFailed { usage, .. } => self.count_usage(*usage),
            Event::ValuesShared { values } => {
                if let Some(turn) = &mut self.turn {
                    turn.shared.clone_from(values);
                }
            }
            Event::ResultsPruned { calls, .. } => self.prune(calls),
            Event::TurnFinished {
                usage,
                wall_ms,
                cost_micros,
                ..
            } => {
                self.turn = None;
                (self.finished_usage).add_turn(&mut self.finished_cost, *usage, *cost_micros);
                self.spent.wall_ms = self.spent.wall_ms.saturating_add(*wall_ms);
            }
            _ => {}
        }
    }

    fn count_usage(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.spent.count_usage(usage);
            if let Some(turn) = &mut self.turn {
                turn.usage.add(usage);
            }
        }
    }

    fn turn_started(&mut self, message: &Message, unanswered: bool) {
        if !unanswered {
            self.messages.push(Arc::new(message.clone()));
        }
        // Results of calls can follow an unanswered message.
        self.starts.push(self.last_of_user().unwrap_or(0));
        self.turns += 1;
        // What is attached to a text is a file of the user, or was read by a program of the user.
        if matches!(message, Message::User { content } if content.len() > 1) {
            self.flow = self.flow.with_attached(DataFlow {
                reads_private: true,
                ..DataFlow::default()
            });
        }
        self.turn = Some(Turn {
            prompt: message.text(),
            spent_before: self.spent,
            ..Turn::default()
        });
    }

    fn prompt_changed(&mut self, message: &Message, instructions: &str) {
        if let Some(turn) = &mut self.turn {
            instructions.clone_into(&mut turn.instructions);
            let start = self.starts.last().copied().unwrap_or(0);
            if let Some(changed) = self.messages.get_mut(start) {
                *changed = Arc::new(message.clone());
            }
        }
    }

    /// Adds an answer, complete or partial. An answer without parts is not added: providers refuse empty messages.
    fn answered(&mut self, message: &Message) {
        let Some(turn) = &mut self.turn else { return };
        let Message::Assistant { parts } = message else {
            return;
        };
        let text = message.text();
        if !text.is_empty() {
            turn.text = text;
        }
        turn.calls = message
            .calls()
            .map(|request| Call {
                request: request.clone(),
                stage: Stage::Accepted,
            })
            .collect();
        self.call_ids.extend(message.calls().map(|call| call.id.clone()));
        turn.phase = if turn.calls.is_empty() {
            turn.idle += 1;
            Phase::Deciding
        } else {
            turn.idle = 0;
            Phase::Calling
        };
        if !parts.is_empty() {
            self.messages.push(Arc::new(message.clone()));
        }
    }

    fn reminded(&mut self, kind: ReminderKind, text: &str, stored: bool) {
        let Some(turn) = &mut self.turn else { return };
        if let Some(error) = error_of(kind) {
            turn.failed(error);
        }
        match kind {
            ReminderKind::NoToolCall => turn.idle = 0,
            ReminderKind::ProviderFailed => turn.provider_failures += 1,
            _ => {}
        }
        if !stored {
            turn.ephemeral_reminders.push(text.to_owned());
        } else if turn.settled() {
            self.messages.push(Arc::new(Message::user(text)));
        } else {
            turn.after_calls.push(text.to_owned());
        }
    }

    fn stage(&mut self, id: &str, next: impl FnOnce(Stage) -> Stage) {
        let call = self.turn.as_mut().and_then(|turn| turn.call_mut(id));
        if let Some(call) = call
            && call.finished().is_none()
        {
            let stage = std::mem::replace(&mut call.stage, Stage::Accepted);
            call.stage = next(stage);
        }
    }

    /// Records the result of a call; `false` if there is no such call, or if it has a result already. Results are added
    /// to the conversation when all calls have one, in the order of the calls.
    fn call_finished(&mut self, id: &str, tool: &str, result: &CallResult) -> bool {
        let Some(turn) = &mut self.turn else {
            return false;
        };
        let Some(call) = turn.call_mut(id).filter(|call| call.finished().is_none()) else {
            return false;
        };
        let arguments = match std::mem::replace(&mut call.stage, Stage::Accepted) {
            Stage::Ready { arguments, .. }
            | Stage::Held { arguments, .. }
            | Stage::Running { arguments }
            | Stage::Suspended { arguments, .. } => arguments,
            Stage::Accepted | Stage::Finished(_) => Value::String(call.request.arguments.clone()),
        };
        let print = fingerprint(tool, &arguments, &result.content);
        call.stage = Stage::Finished(Finished {
            arguments,
            result: result.clone(),
        });
        if turn.recent.len() == REMEMBERED_CALLS {
            turn.recent.pop_front();
        }
        turn.recent.push_back(print);
        match &result.error {
            Some(error) => turn.failed(&format!("{tool}: {error}")),
            None => turn.failing = None,
        }
        if turn.findings.len() < MAX_FINDINGS {
            turn.findings.push(finding(tool, &result.content));
        }
        if turn.settled() {
            for call in &turn.calls {
                if let Some(finished) = call.finished() {
                    self.messages.push(Arc::new(Message::Tool {
                        call_id: call.request.id.clone(),
                        name: call.request.name.clone(),
                        content: finished.result.content.clone(),
                        is_error: finished.result.error.is_some(),
                    }));
                }
            }
            for text in std::mem::take(&mut turn.after_calls) {
                self.messages.push(Arc::new(Message::user(text)));
            }
        }
        true
    }

    fn prune(&mut self, calls: &[String]) {
        for message in &mut self.messages {
            if let Message::Tool {
                call_id,
                name,
                is_error,
                ..
            } = message.as_ref()
                && calls.contains(call_id)
            {
                *message = Arc::new(Message::Tool {
                    call_id: call_id.clone(),
                    name: name.clone(),
                    content: vec![Content::text(messages::PRUNED)],
                    is_error: *is_error,
                });
            }
        }
        self.measured = Measured::default();
    }
}

pub(super) const EMPTY_ANSWER: &str = "an empty answer";

/// Returns the error of an answer that a reminder is about, if it is about one.
pub(super) fn error_of(kind: ReminderKind) -> Option<&'static str> {
    match kind {
        ReminderKind::NoToolCall => Some("an answer without a call"),
        ReminderKind::EmptyAnswer => Some(EMPTY_ANSWER),
        ReminderKind::MalformedCall => Some("a malformed call"),
        ReminderKind::AnswerMismatch => Some("an answer that does not fit its schema"),
        _ => None,
    }
}

impl Turn {
    /// Counts an error; the counter restarts if it differs from the last one.
    fn failed(&mut self, error: &str) {
        match &mut self.failing {
            Some((last, times)) if last == error => *times += 1,
            failing => *failing = Some((error.to_owned(), 1)),
        }
    }

    /// Returns how often in a row the model was reminded of the error of this kind.
    pub(super) fn times_in_a_row(&self, kind: ReminderKind) -> u32 {
        match &self.failing {
            Some((last, times)) if error_of(kind) == Some(last) => *times,
            _ => 0,
        }
    }

    /// Number of occurrences of this fingerprint among the latest calls.
    pub(crate) fn times(&self, print: u64) -> u32 {
        let times = self.recent.iter().filter(|seen| **seen == print).count();
        u32::try_from(times).unwrap_or(u32::MAX)
    }
}

/// First words of a result, on one line.
fn finding(tool: &str, content: &[Content]) -> String {
    /// Characters of a result shown in a finding.
    const SHOWN: usize = 100;
    let text = content
        .iter()
        .find_map(|part| match part {
            Content::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .unwrap_or("(no text)");
    let mut words: String = text
        .chars()
        .take(SHOWN)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(SHOWN).is_some() {
        words.push('…');
    }
    format!("{tool}: {words}")
}

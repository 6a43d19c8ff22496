//! Summaries of the older part of a conversation: when it is long, and when the user asks for one.

use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::Usage;
use toolcell_core::{Event, Message};

use super::{Effect, Step};
use crate::context;

/// Number of rounds that a summary keeps if the user asks for it: a message and its answer.
const KEPT_ROUNDS: usize = 2;

/// Number of messages that a summary replaces if the user asks for it; `None` if too few to be worthwhile.
pub(crate) fn on_request(messages: &[std::sync::Arc<Message>]) -> Option<usize> {
    context::summary_cut(messages, KEPT_ROUNDS)
}

impl Step<'_> {
    /// Summarises between two turns, as a turn without a message.
    pub(super) fn compact(&mut self) {
        if let Some(messages) = on_request(&self.state.messages) {
            let tokens = self.state.tokens();
            self.emit(Event::SummaryStarted { messages, tokens });
            match self.output_left() {
                Err(reason) => self.finish(TurnOutcome::Budget { reason }),
                Ok(max_output) => self.effects.push(Effect::Summarise { messages, max_output }),
            }
        }
    }

    pub(super) fn summarise(&mut self, messages: usize) {
        match self.output_left() {
            Err(reason) => self.finish(TurnOutcome::Budget { reason }),
            Ok(max_output) => {
                let tokens = self.state.tokens();
                self.emit(Event::SummaryStarted { messages, tokens });
                self.effects.push(Effect::Summarise { messages, max_output });
            }
        }
    }

    /// Replaces messages by a summary: whole rounds only.
    pub(super) fn summarised(&mut self, removed: usize, replacement: Vec<Message>, usage: Option<Usage>) {
        if !context::is_boundary(&self.state.messages, removed) {
            return self.summary_failed("it does not end at a round", usage, None);
        }
        self.emit(Event::Compacted {
            removed,
            replacement,
            usage,
        });
        self.restate_plan();
        self.advance();
    }

    /// Keeps the conversation as it is, and continues the turn unless a hook ends it.
    pub(super) fn summary_failed(
        &mut self,
        reason: &str,
        usage: Option<Usage>,
        outcome: Option<TurnOutcome>,
    ) {
        let reason = reason.to_owned();
        self.emit(Event::SummaryFailed { reason, usage });
        match outcome {
            Some(outcome) => self.finish(outcome),
            None => self.advance(),
        }
    }
}

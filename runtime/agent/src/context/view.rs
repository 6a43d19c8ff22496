//! Builds a request from a state.

use std::sync::Arc;

use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Content, Message, Schema, ToolSpec};

use super::{normalise, rounds};
use crate::context::messages;
use crate::machine::LoopState;
use crate::policy::{CallsPerStep, ErrorVisibility, LoopPolicy, ModelSettings};

/// Inputs of a request besides the state.
pub(crate) struct View<'a> {
    pub(crate) policy: &'a LoopPolicy,
    pub(crate) instructions: &'a Arc<str>,
    pub(crate) tools: &'a Arc<[ToolSpec]>,
    pub(crate) model: &'a ModelSettings,
    pub(crate) answer: Option<&'a Arc<Schema>>,
}

/// The next request of the open turn: constant parts first (instructions, tools, the conversation from its start),
/// changing parts last, so that prompt caches stay valid.
pub(crate) fn request(state: &LoopState, view: &View<'_>, tools: bool) -> Request {
    let policy = view.policy;
    let mut messages = state.messages.clone();
    if let Some(most) = policy.context.max_messages {
        let dropped: Vec<Arc<Message>> = messages.drain(..oldest_kept(&messages, most)).collect();
        let is_user = |message: &Arc<Message>| matches!(message.as_ref(), Message::User { .. });
        // Providers require a user message first.
        if !messages.first().is_some_and(is_user)
            && let Some(last_user) = dropped.into_iter().rfind(is_user)
        {
            messages.insert(0, last_user);
        }
    }
    if policy.error_visibility == ErrorVisibility::Ephemeral {
        shorten_old_errors(&mut messages);
    }
    let mut messages = normalise(messages);
    let mut instructions = view.instructions.clone();
    let mut effort = None;
    if let Some(turn) = &state.turn {
        if !turn.ephemeral_reminders.is_empty() {
            messages.push(Arc::new(Message::user(turn.ephemeral_reminders.join("\n\n"))));
        }
        if !turn.instructions.is_empty() {
            instructions = [&**view.instructions, &turn.instructions].join("\n\n").into();
        }
        effort = policy.reasoning.effort(&turn.prompt).map(Arc::from);
    }
    Request {
        instructions,
        messages,
        tools: view.tools.clone(),
        tool_choice: if tools { ToolChoice::Auto } else { ToolChoice::None },
        parallel_calls: (policy.calls_per_step == CallsPerStep::One).then_some(false),
        max_output_tokens: view.model.max_output_tokens,
        temperature: view.model.temperature,
        top_p: view.model.top_p,
        stop: view.model.stop.clone(),
        seed: view.model.seed,
        response_schema: view.answer.cloned(),
        reasoning_effort: effort,
        session: Some(state.session.as_str().into()),
    }
}

/// Index at which a request of at most `most` messages starts: at a user message if one is in reach, otherwise at a
/// round; the last round is always included, whatever its length.
fn oldest_kept(messages: &[Arc<Message>], most: usize) -> usize {
    let from = messages.len().saturating_sub(most.max(1));
    if from == 0 {
        return 0;
    }
    let starts = rounds(messages);
    let is_user = |i: usize| matches!(messages[i].as_ref(), Message::User { .. });
    let fitting: Vec<usize> = starts.iter().copied().filter(|i| *i >= from).collect();
    fitting
        .iter()
        .copied()
        .find(|i| is_user(*i))
        .or_else(|| fitting.first().copied())
        .or_else(|| starts.last().copied())
        .unwrap_or(0)
}

/// Reduces errors that the model has already seen to one line.
fn shorten_old_errors(messages: &mut [Arc<Message>]) {
    let Some(last_answer) = messages
        .iter()
        .rposition(|message| matches!(message.as_ref(), Message::Assistant { .. }))
    else {
        return;
    };
    for message in &mut messages[..last_answer] {
        if let Message::Tool {
            call_id,
            name,
            is_error: true,
            ..
        } = message.as_ref()
        {
            *message = Arc::new(Message::Tool {
                call_id: call_id.clone(),
                name: name.clone(),
                content: vec![Content::text(messages::OLD_ERROR)],
                is_error: true,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::normalise::in_order;
    use super::super::tests::{call, result};
    use super::*;

    #[test]
    fn short_request_starts_with_a_user_message_if_possible() {
        let user = || Arc::new(Message::user("u"));
        let messages = vec![
            user(),
            call("1"),
            result("1", "r"),
            user(),
            call("2"),
            result("2", "r"),
        ];
        assert_eq!(oldest_kept(&messages, 6), 0);
        assert_eq!(oldest_kept(&messages, 5), 3);
        assert_eq!(oldest_kept(&messages, 3), 3);
        assert_eq!(oldest_kept(&messages, 2), 4, "a round without a user message");
        assert_eq!(oldest_kept(&messages, 1), 4, "the last round is included whole");
        for most in 1..7 {
            assert!(in_order(&messages[oldest_kept(&messages, most)..]));
        }
    }
}

//! Normalises conversations, so that every message of a request is valid for every protocol.
//!
//! A conversation contains whatever a model answered and a session stored. Services refuse some of it, and would refuse it
//! in every later request. [`normalise`] yields messages with these properties, which the protocols rely on:
//!
//! 1. No message is empty: a message of the user without content, and a result without content, have a placeholder. An
//!    answer without text and calls, such as reasoning alone, is left out.
//! 2. No two neighbours are messages of the user, or answers: they are merged, in order.
//! 3. The first message is one of the user.
//! 4. The last message is one of the user, or a result: many services refuse to continue an answer.
//!
//! The protocols add their own rules, each next to the code that builds the request.

#[cfg(test)]
mod valid_bodies;

use std::sync::Arc;

use toolcell_core::{Content, Message, Part};

/// Content of a message of the user that has none.
const NOTHING: &str = "[nothing]";

/// Content of a result that has none.
const NO_RESULT: &str = "[no content]";

/// Message of the user before a conversation that starts with an answer.
const EARLIER: &str = "[earlier messages left out]";

/// Message of the user after a conversation that ends with an answer.
const CONTINUE: &str = "Continue.";

/// Returns the messages with the properties above. Deterministic, and unchanged messages are shared.
pub(crate) fn normalise(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut out: Vec<Arc<Message>> = Vec::with_capacity(messages.len() + 1);
    for message in messages {
        match &**message {
            Message::User { content } if is_blank(content) => {
                let mut content: Vec<Content> =
                    content.iter().filter(|c| !is_blank_part(c)).cloned().collect();
                content.push(Content::text(NOTHING));
                push(&mut out, Arc::new(Message::User { content }));
            }
            Message::Tool {
                call_id,
                name,
                content,
                is_error,
            } if is_blank(content) => push(
                &mut out,
                Arc::new(Message::Tool {
                    call_id: call_id.clone(),
                    name: name.clone(),
                    content: vec![Content::text(NO_RESULT)],
                    is_error: *is_error,
                }),
            ),
            Message::Assistant { parts } if !parts.iter().any(is_content) => {}
            _ => push(&mut out, message.clone()),
        }
    }
    if matches!(
        out.last().map(AsRef::as_ref),
        None | Some(Message::Assistant { .. })
    ) {
        let text = if out.is_empty() { NOTHING } else { CONTINUE };
        out.push(Arc::new(Message::user(text)));
    }
    out
}

/// Appends a message; merges it with the last one if both are of the user, or both are answers.
fn push(out: &mut Vec<Arc<Message>>, message: Arc<Message>) {
    if out.is_empty() && !matches!(*message, Message::User { .. }) {
        out.push(Arc::new(Message::user(EARLIER)));
    }
    if let Some(last) = out.last_mut() {
        // A merged message is not shared, so that it is copied once, however many follow.
        match (&**last, &*message) {
            (Message::User { .. }, Message::User { content }) => {
                if let Message::User { content: before } = Arc::make_mut(last) {
                    before.extend(content.iter().cloned());
                }
                return;
            }
            (Message::Assistant { .. }, Message::Assistant { parts }) => {
                if let Message::Assistant { parts: before } = Arc::make_mut(last) {
                    before.extend(separated(parts));
                }
                return;
            }
            _ => {}
        }
    }
    out.push(message);
}

/// The parts of an answer behind another one. Their first text starts a paragraph, unless it must be sent unchanged.
fn separated(parts: &[Part]) -> Vec<Part> {
    let mut parts = parts.to_vec();
    if let Some(Part::Text { text, opaque }) = parts.iter_mut().find(|part| matches!(part, Part::Text { .. }))
        && opaque.is_null()
    {
        text.insert_str(0, "\n\n");
    }
    parts
}

/// True for a part that a message can consist of.
fn is_content(part: &Part) -> bool {
    match part {
        Part::Text { text, .. } => !text.trim().is_empty(),
        Part::Call(_) | Part::File { .. } => true,
        Part::Reasoning { .. } => false,
    }
}

fn is_blank(content: &[Content]) -> bool {
    content.iter().all(is_blank_part)
}

/// True for a text of white space only, which some services refuse.
pub(crate) fn is_blank_part(content: &Content) -> bool {
    matches!(content, Content::Text { text } if text.trim().is_empty())
}

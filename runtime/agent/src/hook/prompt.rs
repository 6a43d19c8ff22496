//! Prompt of a turn while hooks change it in order.

use std::sync::Arc;

use serde_json::Value;
use toolcell_core::hook::{Example, Prompt, PromptAnswer};
use toolcell_core::{Content, Message};

/// User message with the changes of the hooks so far.
#[derive(Debug, Clone)]
pub(crate) struct PromptDraft {
    message: Message,
    original: Message,
    context: Vec<String>,
    instructions: Vec<String>,
    examples: Vec<Example>,
    history: Vec<Arc<Message>>,
    tokens: u64,
    token_limit: Option<u64>,
}

impl PromptDraft {
    pub(crate) fn new(
        message: Message,
        history: Vec<Arc<Message>>,
        tokens: u64,
        token_limit: Option<u64>,
    ) -> Self {
        Self {
            original: message.clone(),
            message,
            context: Vec::new(),
            instructions: Vec::new(),
            examples: Vec::new(),
            history,
            tokens,
            token_limit,
        }
    }

    /// The prompt as the next hook gets it.
    pub(super) fn prompt(&self) -> Prompt {
        Prompt {
            message: content(&self.message),
            original: content(&self.original),
            history: self.history.clone(),
            tokens: self.tokens,
            token_limit: self.token_limit,
        }
    }

    /// Applies the changes of a hook.
    pub(super) fn apply(&mut self, answer: PromptAnswer) {
        if let (Some(new), Message::User { content }) = (answer.message, &mut self.message) {
            *content = new;
        }
        self.context.extend(answer.context);
        self.instructions.extend(answer.instructions);
        self.examples.extend(answer.examples);
    }

    /// The message with its context, if hooks changed it, and the text for the system prompt.
    pub(crate) fn into_parts(self) -> (Option<Message>, String) {
        let mut message = self.message;
        if let Message::User { content } = &mut message {
            let blocks = self.context.into_iter();
            content.splice(
                0..0,
                blocks.map(|text| Content::text(format!("<context>\n{text}\n</context>\n"))),
            );
        }
        let mut instructions = self.instructions;
        if !self.examples.is_empty() {
            let examples = self.examples.into_iter().map(|example| {
                format!(
                    "When the user says \"{}\", call `{}` with {}.",
                    example.says,
                    example.tool,
                    Value::Object(example.arguments)
                )
            });
            instructions.push(examples.collect::<Vec<_>>().join("\n"));
        }
        (
            (message != self.original).then_some(message),
            instructions.join("\n\n"),
        )
    }
}

fn content(message: &Message) -> Vec<Content> {
    match message {
        Message::User { content } => content.clone(),
        other => vec![Content::text(other.text())],
    }
}

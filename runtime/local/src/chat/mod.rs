//! Conversations as prompts, and what a model writes as text, reasoning and calls.

mod calls;
mod constraint;
mod escape;
mod split;

use std::sync::Arc;

use jiff::civil::DateTime;
use serde_json::Value;
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Content, Message, Part};

use crate::error::TemplateError;
use crate::template::{ChatCall, ChatMessage, ChatTool, Conversation, Templates};

pub use calls::CallForm;
pub use constraint::{AnswerRules, CallRules, Constraint, Piece};
pub use escape::{ControlNames, MAX_NAMES, Segment};
pub use split::{Said, Splitter};

/// Prompt of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Parts of the text.
    pub segments: Vec<Segment>,
    /// True if it ends within reasoning that the model continues.
    pub is_reasoning: bool,
    /// Number of pictures and files that are not part of it.
    pub left_out: usize,
}

/// Form of conversations with a model.
#[derive(Debug, Clone)]
pub struct ChatForm {
    templates: Templates,
    template: Arc<str>,
    /// True if the template has tools; else they are described in the system prompt.
    has_tools: bool,
    /// Form of calls.
    pub calls: CallForm,
    bos: String,
    eos: String,
}

/// Form of a conversation that templates may refuse.
#[derive(Debug, Clone, Copy)]
struct Manner {
    has_tools: bool,
    has_system: bool,
}

impl ChatForm {
    /// Creates the form of a model: its template, and the tokens with which texts begin and end.
    ///
    /// # Errors
    /// [`TemplateError`] if the template cannot be used.
    pub fn new(
        templates: Templates,
        template: &str,
        bos: String,
        eos: String,
    ) -> Result<Self, TemplateError> {
        let checked = templates.check(template)?;
        Ok(Self {
            has_tools: checked.has_tools,
            calls: match checked.has_tools {
                true => CallForm::of(template),
                false => CallForm::Tags,
            },
            templates,
            template: template.into(),
            bos,
            eos,
        })
    }

    /// Writes the prompt of a request. A template that refuses a system prompt or tools gets them as text.
    ///
    /// # Errors
    /// [`TemplateError`] if the template fails.
    pub fn prompt(
        &self,
        request: &Request,
        names: &ControlNames,
        now: DateTime,
    ) -> Result<Prompt, TemplateError> {
        let first = Manner {
            has_tools: self.has_tools,
            has_system: true,
        };
        let plain = Manner {
            has_tools: self.has_tools,
            has_system: false,
        };
        let plainest = Manner {
            has_tools: false,
            has_system: false,
        };
        let mut failure = None;
        for manner in [first, plain, plainest] {
            let conversation = self.conversation(request, names, now, manner);
            match self.templates.render(&self.template, &conversation) {
                Ok(text) => {
                    return Ok(Prompt {
                        is_reasoning: text.trim_end().ends_with("<think>"),
                        segments: names.segments(&text),
                        left_out: left_out(request),
                    });
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| TemplateError::Failed(String::new())))
    }

    fn conversation(
        &self,
        request: &Request,
        names: &ControlNames,
        now: DateTime,
        manner: Manner,
    ) -> Conversation {
        let tools: Vec<ChatTool> = match request.tool_choice {
            ToolChoice::None => Vec::new(),
            _ => (request.tools.iter())
                .map(|tool| {
                    ChatTool::new(
                        tool.name.as_str(),
                        names.hide(&tool.description),
                        names.hide_in(tool.input.as_value()),
                    )
                })
                .collect(),
        };
        let mut system = names.hide(&request.instructions);
        if !manner.has_tools && !tools.is_empty() {
            system = format!("{system}\n\n{}", described(&tools))
                .trim_start()
                .to_owned();
        }
        let mut messages: Vec<ChatMessage> = Vec::new();
        if !system.is_empty() {
            let role = if manner.has_system { "system" } else { "user" };
            messages.push(ChatMessage::new(role, system));
        }
        let mut ids = Vec::new();
        for message in &request.messages {
            let message = chat_message(message, names, manner, &mut ids);
            match messages.last_mut() {
                Some(last) if !manner.has_system && last.role == message.role => {
                    last.content = format!("{}\n\n{}", last.content, message.content);
                }
                // Templates without tools know only messages that alternate.
                Some(last) if !manner.has_tools && last.role == "user" && message.role == "user" => {
                    last.content = format!("{}\n\n{}", last.content, message.content);
                }
                _ => messages.push(message),
            }
        }
        Conversation {
            messages,
            tools: (manner.has_tools && !tools.is_empty()).then_some(tools),
            add_generation_prompt: true,
            bos_token: self.bos.clone(),
            eos_token: self.eos.clone(),
            enable_thinking: (request.reasoning_effort.as_deref())
                .map(|effort| !matches!(effort, "none" | "off" | "false")),
            now: Some(now),
        }
    }
}

/// Description of tools for templates that have none.
fn described(tools: &[ChatTool]) -> String {
    let lines = tools
        .iter()
        .filter_map(|tool| serde_json::to_string(&tool.function).ok());
    let lines: Vec<String> = lines.collect();
    format!(
        "# Tools\n\nYou can call these functions:\n{}\n\nTo call one, write <tool_call>{{\"name\": \"NAME\", \"arguments\": {{…}}}}</tool_call>. Its result follows in <tool_response>.",
        lines.join("\n")
    )
}

/// Identifier of a call as templates take it: nine digits, the number of the call in the conversation.
fn number_of(id: &str, ids: &mut Vec<String>) -> String {
    let at = ids.iter().rposition(|known| known == id).unwrap_or_else(|| {
        ids.push(id.to_owned());
        ids.len() - 1
    });
    format!("{:09}", at + 1)
}

fn text_of(content: &[Content]) -> String {
    let mut text = String::new();
    for part in content {
        let more = match part {
            Content::Text { text } => text.as_str(),
            Content::Link(link) => link.uri.as_str(),
            Content::Blob(_) => "[a picture or file that is not shown to you]",
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(more);
    }
    text
}

fn chat_message(
    message: &Message,
    names: &ControlNames,
    manner: Manner,
    ids: &mut Vec<String>,
) -> ChatMessage {
    match message {
        Message::User { content } => ChatMessage::new("user", names.hide(&text_of(content))),
        Message::Tool {
            call_id,
            name,
            content,
            ..
        } => {
            let text = names.hide(&text_of(content));
            if !manner.has_tools {
                return ChatMessage::new("user", format!("<tool_response>\n{text}\n</tool_response>"));
            }
            let mut message = ChatMessage::new("tool", text);
            message.tool_call_id = Some(number_of(call_id, ids));
            message.name = Some(names.hide(name));
            message
        }
        Message::Assistant { parts } => {
            let mut chat = ChatMessage::new("assistant", "");
            let mut reasoning = String::new();
            for part in parts {
                match part {
                    Part::Text { text, .. } => chat.content.push_str(&names.hide(text)),
                    Part::Reasoning { text, .. } => reasoning.push_str(&names.hide(text)),
                    Part::File { .. } => chat.content.push_str("[a file that you made and are not shown]"),
                    Part::Call(call) if manner.has_tools => chat.tool_calls.push(chat_call(call, names, ids)),
                    Part::Call(call) => {
                        let name = Value::from(names.hide(&call.name));
                        let arguments = names.hide(&call.arguments);
                        let text = format!(
                            "<tool_call>{{\"name\": {name}, \"arguments\": {arguments}}}</tool_call>"
                        );
                        chat.content.push_str(&text);
                    }
                }
            }
            chat.reasoning_content = (!reasoning.is_empty()).then_some(reasoning);
            chat
        }
    }
}

fn chat_call(call: &CallRequest, names: &ControlNames, ids: &mut Vec<String>) -> ChatCall {
    let arguments =
        serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::from(call.arguments.as_str()));
    ChatCall::new(
        number_of(&call.id, ids),
        names.hide(&call.name),
        names.hide_in(&arguments),
    )
}

/// Number of pictures and files in a conversation.
fn left_out(request: &Request) -> usize {
    let blobs = |content: &[Content]| {
        content
            .iter()
            .filter(|part| matches!(part, Content::Blob(_)))
            .count()
    };
    let messages = request.messages.iter();
    messages
        .map(|message| match message.as_ref() {
            Message::User { content } | Message::Tool { content, .. } => blobs(content),
            Message::Assistant { .. } => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests;

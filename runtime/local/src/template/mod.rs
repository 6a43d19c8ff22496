//! Chat templates: Jinja programs of a model's file that write a conversation as the text the model was trained on.
//!
//! A template is untrusted. It sees the conversation and nothing else, is bounded by [`FUEL`], which limits its time and the memory
//! of what it makes, by [`MAX_RECURSION`] and by [`MAX_OUTPUT_BYTES`], and runs in a process ([`Templates`]) with [`MAX_SECONDS`] and
//! [`MAX_MEMORY`], which also ends what these limits do not cover.

mod generation;
mod json;
mod process;

use std::io::{self, Write};

use jiff::civil::DateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::{Deserialize, Serialize};

use crate::error::TemplateError;

pub use process::{MAX_MEMORY, MAX_SECONDS, Templates, template_child_main};

/// Maximum size of a template, in bytes: 256 KiB, ten times that of the longest published ones.
pub const MAX_TEMPLATE_BYTES: usize = 256 << 10;

/// Work of one text: instructions, and one for each 64 bytes that are made. 4 million allow 256 MiB of intermediate texts,
/// enough to copy a conversation of 16 MiB sixteen times, and take seconds.
pub const FUEL: u64 = 4_000_000;

/// Maximum depth of calls of macros: published templates have 3.
pub const MAX_RECURSION: usize = 64;

/// Maximum length of a text, in bytes: 16 MiB, more than the longest contexts hold.
pub const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// Maximum length of the message of a failed template, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// Conversation to write.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Conversation {
    /// Messages, in order; that of the role `system` is the first.
    pub messages: Vec<ChatMessage>,
    /// Tools that the model may call. Templates distinguish none from an empty list.
    pub tools: Option<Vec<ChatTool>>,
    /// True if the text ends where the answer of the model begins.
    pub add_generation_prompt: bool,
    /// Token with which texts begin.
    pub bos_token: String,
    /// Token with which texts end.
    pub eos_token: String,
    /// True if the model shall reason before it answers, for templates that distinguish it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
    /// Time that templates write, which may differ from call to call; a template that asks without it fails.
    #[serde(skip)]
    pub now: Option<DateTime>,
}

/// Message of a conversation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Text.
    pub content: String,
    /// Reasoning of an assistant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls of an assistant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ChatCall>,
    /// Call of which this is the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Tool of which this is the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Call in a message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChatCall {
    /// Identifier.
    pub id: String,
    #[serde(rename = "type")]
    kind: Function,
    /// Tool and arguments.
    pub function: CalledFunction,
}

/// Tool and arguments of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CalledFunction {
    /// Name of the tool.
    pub name: String,
    /// Arguments.
    pub arguments: serde_json::Value,
}

/// Tool as templates see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChatTool {
    #[serde(rename = "type")]
    kind: Function,
    /// Name, description and schema.
    pub function: ToolFunction,
}

/// Name, description and schema of a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolFunction {
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Schema of the arguments.
    pub parameters: serde_json::Value,
}

/// The only type of tools.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Function {
    Function,
}

impl ChatMessage {
    /// Creates a message of a text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            ..Self::default()
        }
    }
}

impl ChatCall {
    /// Creates a call.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: serde_json::Value) -> Self {
        Self {
            id: id.into(),
            kind: Function::Function,
            function: CalledFunction {
                name: name.into(),
                arguments,
            },
        }
    }
}

impl ChatTool {
    /// Creates a tool.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: serde_json::Value,
    ) -> Self {
        Self {
            kind: Function::Function,
            function: ToolFunction {
                name: name.into(),
                description: description.into(),
                parameters,
            },
        }
    }
}

/// A chat template, which runs in this process.
#[derive(Debug, Clone)]
pub(crate) struct ChatTemplate {
    source: String,
}

/// Facts about a chat template that is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// True if the template writes the names of tools.
    pub has_tools: bool,
}

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// [`TemplateError`] if it is too long or not valid.
    pub(crate) fn parse(source: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            return Err(TemplateError::TooLong);
        }
        let source = generation::without_marks(source);
        environment(None).template_from_str(&source).map_err(failed)?;
        Ok(Self { source })
    }

    /// Writes a conversation.
    ///
    /// # Errors
    /// [`TemplateError`] if the template raises an error, as many do for orders of messages that they do not know, or exceeds a
    /// limit.
    pub(crate) fn render(&self, conversation: &Conversation) -> Result<String, TemplateError> {
        let environment = environment(conversation.now);
        let template = environment.template_from_str(&self.source).map_err(failed)?;
        let mut text = Bounded::default();
        match template.render_captured_to(Serde(conversation), &mut text) {
            Ok(_) => {}
            Err(_) if text.is_full => return Err(TemplateError::OutputTooLong),
            Err(error) => return Err(failed(error)),
        }
        String::from_utf8(text.bytes).map_err(|error| TemplateError::Failed(error.to_string()))
    }

    /// Writes a short conversation, without tools and with one.
    ///
    /// # Errors
    /// [`TemplateError`] if the one without tools fails.
    pub(crate) fn check(&self) -> Result<Checked, TemplateError> {
        const TOOL: &str = "checked_tool";
        let mut conversation = Conversation {
            messages: vec![ChatMessage::new("user", "x")],
            add_generation_prompt: true,
            now: Some(DateTime::constant(2026, 1, 1, 0, 0, 0, 0)),
            ..Conversation::default()
        };
        self.render(&conversation)?;
        let schema = serde_json::json!({ "type": "object", "properties": {} });
        conversation.tools = Some(vec![ChatTool::new(TOOL, "x", schema)]);
        let with_tool = self.render(&conversation);
        Ok(Checked {
            has_tools: with_tool.is_ok_and(|text| text.contains(TOOL)),
        })
    }
}

/// Environment with the functions that templates of models expect, as `transformers` defines them.
fn environment(now: Option<DateTime>) -> Environment<'static> {
    let mut environment = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
    {
        environment.set_syntax(syntax);
    }
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", json::to_json);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", move |format: String| -> Result<String, Error> {
        let wrong = |reason: String| Error::new(ErrorKind::InvalidOperation, reason);
        let now = now.ok_or_else(|| wrong("there is no time".into()))?;
        if format.len() > MAX_FORMAT_BYTES {
            return Err(wrong("the format of the time is too long".into()));
        }
        jiff::fmt::strtime::format(&format, now).map_err(|error| wrong(error.to_string()))
    });
    environment
}

/// Maximum length of a format of times, in bytes. What it makes is not charged as fuel before it is made.
const MAX_FORMAT_BYTES: usize = 256;

/// Error of the template engine, with its causes, bounded.
fn failed(error: Error) -> TemplateError {
    let mut message = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(cause) = next {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        next = cause.source();
    }
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
        message.truncate(end);
        message.push('…');
    }
    TemplateError::Failed(message)
}

/// Text up to [`MAX_OUTPUT_BYTES`].
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT_BYTES {
            self.is_full = true;
            return Err(io::Error::other("the text is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;

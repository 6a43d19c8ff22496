//! Provider without a model: a small, deterministic stand-in that selects tools by the words of the request.
//!
//! It allows the rest of the system to run without a key or network. It compares the words of the user's last message
//! with the names, descriptions and schemas of the tools, extracts arguments from the message (paths, addresses, quoted
//! texts, numbers, dates), makes one call, and returns its result. It has no built-in tool names and no language
//! understanding, and every answer states what it is.

mod entities;
mod fill;
mod plan;
mod tool;
mod words;

use std::sync::Arc;

use serde_json::Value;
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{Completion, Delta, ProviderInfo, Request, StopReason, ToolChoice};
use toolcell_core::{BoxStream, Content, Message, Part, Provider, ProviderError, ToolSpec};

use crate::emit::{self, Emitter};
use plan::{near, plan};
use words::{likeness, words};

/// Prefix of every answer.
pub const MARK: &str = "offline stand-in, no model";

/// Maximum length of a result that is repeated in an answer, in characters; the full result is in the call.
const MAX_RESULT_CHARS: usize = 4000;

/// Provider without a model.
#[derive(Debug)]
pub struct Offline {
    info: ProviderInfo,
}

impl Offline {
    /// Creates the stand-in. It has no settings.
    pub fn new() -> Self {
        Self {
            info: ProviderInfo {
                provider: "offline".into(),
                model: "none".into(),
            },
        }
    }
}

impl Default for Offline {
    fn default() -> Self {
        Self::new()
    }
}

impl Provider for Offline {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        emit::stream(|out| async move { Ok(send(answer(&request), out).await) })
    }
}

/// Next action of the stand-in.
#[derive(Debug, PartialEq)]
enum Next {
    Say(String),
    Call { name: String, arguments: String },
}

async fn send(next: Next, mut out: Emitter) -> Completion {
    let part = match next {
        Next::Say(text) => {
            for piece in text.split_inclusive(' ') {
                out.emit(Delta::Text(piece.into())).await;
            }
            Part::text(text)
        }
        Next::Call { name, arguments } => {
            out.emit(Delta::CallStarted {
                index: 0,
                name: name.clone(),
            })
            .await;
            out.emit(Delta::CallArguments {
                index: 0,
                fragment: arguments.clone(),
            })
            .await;
            Part::Call(CallRequest {
                id: format!("call_{:016x}", fastrand::u64(..)),
                name,
                arguments,
                opaque: Value::Null,
            })
        }
    };
    Completion {
        parts: vec![part],
        stop: StopReason::Complete,
        usage: None,
    }
}

fn answer(request: &Request) -> Next {
    let at = request
        .messages
        .iter()
        .rposition(|m| matches!(**m, Message::User { .. }));
    let Some(at) = at else {
        return Next::Say(format!("{MARK}: the request is empty."));
    };
    let (asked, attached) = prompt_of(&request.messages[at]);
    if let Some((name, text, is_error)) = request.messages[at..].iter().rev().find_map(result) {
        return Next::Say(sentence(&asked, name, &text, is_error));
    }
    let tools: Vec<ToolSpec> = match &request.tool_choice {
        ToolChoice::None => Vec::new(),
        ToolChoice::Tool(name) => request
            .tools
            .iter()
            .filter(|t| t.name == *name)
            .cloned()
            .collect(),
        ToolChoice::Auto | ToolChoice::Required => request.tools.to_vec(),
    };
    match plan(&asked, &attached, &tools) {
        Some(call) => Next::Call {
            name: call.tool,
            arguments: Value::Object(call.arguments).to_string(),
        },
        None => Next::Say(nothing_fits(&asked, request)),
    }
}

/// The prompt in a message, and the texts that are attached to it: `Attached file NAME, SIZE bytes of text:` and the text.
fn prompt_of(message: &Message) -> (String, Vec<String>) {
    let Message::User { content } = message else {
        return (message.text(), Vec::new());
    };
    let (mut asked, mut attached) = (Vec::new(), Vec::new());
    for part in content {
        let Content::Text { text } = part else { continue };
        // What hooks add is not what the user asks for.
        if text.starts_with("<context>\n") {
            continue;
        }
        match text.split_once(":\n\n") {
            Some((title, text)) if title.starts_with("Attached file ") && !title.contains('\n') => {
                attached.push(text.to_owned());
            }
            _ => asked.push(text.as_str()),
        }
    }
    (asked.join("\n"), attached)
}

fn result(message: &Arc<Message>) -> Option<(&str, String, bool)> {
    let Message::Tool {
        name,
        content,
        is_error,
        ..
    } = &**message
    else {
        return None;
    };
    let texts: Vec<String> = content
        .iter()
        .map(|part| match part {
            Content::Text { text } => text.clone(),
            Content::Blob(blob) => crate::fallback_text::blob(blob),
            Content::Link(link) => crate::fallback_text::link(link),
        })
        .collect();
    Some((name, texts.join("\n"), *is_error))
}

fn nothing_fits(asked: &str, request: &Request) -> String {
    if request.tools.is_empty() || request.tool_choice == ToolChoice::None {
        return format!("{MARK}: no tools are available, and it can only call tools.");
    }
    let mut text = format!("{MARK}: no tool fits this request, or the request lacks a required argument.");
    let near: Vec<&ToolSpec> = near(asked, &request.tools);
    let listed: Vec<&ToolSpec> = if near.is_empty() {
        request.tools.iter().collect()
    } else {
        near.into_iter().take(3).collect()
    };
    text.push_str(" It could use:\n");
    for tool in listed {
        let first = tool.description.split(['\n']).next().unwrap_or_default();
        let first = first.split_inclusive(". ").next().unwrap_or_default().trim();
        text.push_str(&format!("- `{}`: {first}\n", tool.name));
    }
    text.trim_end().to_owned()
}

fn sentence(asked: &str, name: &str, result: &str, is_error: bool) -> String {
    let told = told(asked, result);
    let (shown, is_cut) = cut(&told);
    let verb = if is_error { "failed" } else { "says" };
    // Lines are those of the tool, not Markdown.
    let mut text = match shown.contains('\n') {
        true => {
            let fence = "`".repeat(longest_run(shown).max(2) + 1);
            let end = if is_cut { "…" } else { "" };
            format!("{MARK}: `{name}` {verb}:\n\n{fence}\n{shown}{end}\n{fence}")
        }
        false => format!(
            "{MARK}: `{name}` {verb}: {shown}{}",
            if is_cut { "…" } else { "" }
        ),
    };
    if is_cut {
        text.push_str(&format!("\n[cut after {MAX_RESULT_CHARS} characters]"));
    }
    text
}

/// Length of the longest run of backticks in a text, which a fence around it exceeds (CommonMark 0.31, section 4.5).
fn longest_run(text: &str) -> usize {
    let runs = text.split(|character| character != '`');
    runs.map(str::len).max().unwrap_or(0)
}

/// Text of a result. For a flat JSON object, the fields named in the request come first.
fn told(asked: &str, result: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(result) else {
        return result.trim().to_owned();
    };
    if fields.values().any(|v| v.is_object() || v.is_array()) || fields.is_empty() {
        return result.trim().to_owned();
    }
    let asked = words(asked);
    let mut fields: Vec<(bool, String)> = fields
        .iter()
        .map(|(name, value)| {
            let named = words(name)
                .iter()
                .any(|n| asked.iter().any(|a| likeness(&a.stem, &n.stem) >= 1.0));
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (!named, format!("{}: {value}", name.replace('_', " ")))
        })
        .collect();
    fields.sort_by_key(|(unnamed, _)| *unnamed);
    let texts: Vec<String> = fields.into_iter().map(|(_, text)| text).collect();
    texts.join(", ")
}

/// Returns the beginning of a text, and whether something is missing.
fn cut(text: &str) -> (&str, bool) {
    match text.char_indices().nth(MAX_RESULT_CHARS) {
        Some((end, _)) => (&text[..end], true),
        None => (text, false),
    }
}

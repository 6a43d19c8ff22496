//! Text formats of calls, and conversion of a conversation to them.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Content, Message, Part, ToolSpec};

use crate::sanitize;

/// Text format of calls. Choose the one that the model was trained on, or `Hermes` if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextFormat {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`, as Hermes and Qwen models are trained.
    #[default]
    Hermes,
    /// `TOOL_CALL: name` and on the next line `ARGUMENTS: {…}`.
    Labels,
    /// `<tool>{"server_name": "local", "tool_name": …, "arguments": …}</tool>`.
    ToolTag,
    /// `{"action": …, "params": …}` on its own line.
    Action,
}

/// Converts a request for a provider without tool calling: tools, calls and results become text.
pub(super) fn request(request: &Request, format: TextFormat) -> Request {
    let offers = !request.tools.is_empty() && request.tool_choice != ToolChoice::None;
    let instructions = match offers {
        true => instructions(request, format).into(),
        false => request.instructions.clone(),
    };
    Request {
        instructions,
        messages: messages(request, format),
        tools: Arc::from([]),
        tool_choice: ToolChoice::Auto,
        parallel_calls: None,
        ..request.clone()
    }
}

fn instructions(request: &Request, format: TextFormat) -> String {
    let mut text = String::new();
    if !request.instructions.is_empty() {
        let _ = writeln!(text, "{}\n", request.instructions);
    }
    text.push_str("# Tools\n\nYou can call these tools:\n");
    for tool in request.tools.iter() {
        let _ = writeln!(text, "\n{}", described(tool));
    }
    let example = call(
        &CallRequest {
            id: String::new(),
            name: "NAME".into(),
            arguments: r#"{"PARAMETER":"VALUE"}"#.into(),
            opaque: Value::Null,
        },
        format,
    );
    let _ = write!(
        text,
        "\nTo call a tool, write exactly this, with its name and with arguments that fit its schema:\n\n{example}\n\n"
    );
    text.push_str(match request.parallel_calls {
        Some(false) => "Call at most one tool in an answer, and write nothing after the call.",
        _ => "You may write several calls one after another, and nothing after the last one.",
    });
    text.push_str(" The results follow in the next message. Do not make up results. To answer without a tool, just write the answer.");
    match &request.tool_choice {
        ToolChoice::Required => text.push_str(" This time you must call a tool."),
        ToolChoice::Tool(name) => {
            let _ = write!(text, " This time you must call `{name}`.");
        }
        ToolChoice::Auto | ToolChoice::None => {}
    }
    text
}

fn described(tool: &ToolSpec) -> String {
    format!(
        r#"{{"name": "{}", "description": {}, "parameters": {}}}"#,
        tool.name,
        json!(tool.description),
        tool.input.as_value()
    )
}

fn messages(request: &Request, format: TextFormat) -> Vec<Arc<Message>> {
    let mut messages: Vec<Arc<Message>> = Vec::new();
    let mut results: Vec<Content> = Vec::new();
    for message in &request.messages {
        if let Message::Tool {
            name,
            content,
            is_error,
            ..
        } = &**message
        {
            push_result(&mut results, name, content, *is_error, format);
            continue;
        }
        if !results.is_empty() {
            let content = std::mem::take(&mut results);
            messages.push(Arc::new(Message::User { content }));
        }
        messages.push(match &**message {
            Message::Assistant { parts } if message.calls().next().is_some() => {
                Arc::new(assistant(parts, format))
            }
            _ => message.clone(),
        });
    }
    if !results.is_empty() {
        messages.push(Arc::new(Message::User { content: results }));
    }
    messages
}

/// Converts an answer with its calls to text. Opaque provider data stays before it.
fn assistant(parts: &[Part], format: TextFormat) -> Message {
    let mut out: Vec<Part> = Vec::new();
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text { text: more, .. } => text.push_str(more),
            Part::Reasoning { .. } | Part::File { .. } => out.push(part.clone()),
            Part::Call(request) => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&call(request, format));
            }
        }
    }
    out.push(Part::text(text));
    Message::Assistant { parts: out }
}

fn call(call: &CallRequest, format: TextFormat) -> String {
    let arguments = Value::Object(sanitize::arguments(&call.arguments));
    // The name comes first, as in the training data of models.
    let name = json!(call.name);
    match format {
        TextFormat::Hermes => {
            format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>")
        }
        TextFormat::Labels => format!("TOOL_CALL: {}\nARGUMENTS: {arguments}", call.name),
        TextFormat::ToolTag => format!(
            "<tool>{{\"server_name\": \"local\", \"tool_name\": {name}, \"arguments\": {arguments}}}</tool>"
        ),
        TextFormat::Action => format!("{{\"action\": {name}, \"params\": {arguments}}}"),
    }
}

/// Appends a result with a label. Pictures are kept.
fn push_result(out: &mut Vec<Content>, name: &str, content: &[Content], is_error: bool, format: TextFormat) {
    let status = if is_error { "error" } else { "success" };
    let (before, after) = match format {
        TextFormat::Hermes => ("<tool_response>\n".to_owned(), "\n</tool_response>"),
        TextFormat::Labels => (
            format!("TOOL_RESULT: {name}\nSTATUS: {status}\nCONTENT: "),
            "\n---",
        ),
        TextFormat::ToolTag => (format!("Tool '{name}' result:\n"), ""),
        TextFormat::Action => ("Tool result: ".to_owned(), ""),
    };
    let before = if out.is_empty() {
        before
    } else {
        format!("\n{before}")
    };
    let mut text = before;
    for part in content {
        match part {
            Content::Text { text: more } => text.push_str(more),
            other => {
                out.push(Content::text(std::mem::take(&mut text)));
                out.push(other.clone());
            }
        }
    }
    text.push_str(after);
    match out.last_mut() {
        // Results of only text are joined, as minimal servers require.
        Some(Content::Text { text: last }) => last.push_str(&text),
        _ => out.push(Content::text(text)),
    }
}

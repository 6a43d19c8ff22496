//! Invariants of every request from the loop.

use std::collections::HashSet;

use toolcell_core::message::CallRequest;
use toolcell_core::provider::Request;
use toolcell_core::{Content, Message};

/// Checks a request: each call has exactly one result, directly after its message, in the order of the calls and under
/// the same name; identifiers of calls are unique; tools have different names.
///
/// # Errors
/// The first violation, with the number of the message.
pub fn request(request: &Request) -> Result<(), String> {
    let mut seen = HashSet::new();
    let mut open: std::collections::VecDeque<&CallRequest> = std::collections::VecDeque::new();
    for (number, message) in (1..).zip(&request.messages) {
        match &**message {
            Message::Tool { call_id, name, .. } => {
                let call = open.pop_front().ok_or_else(|| {
                    format!("message {number} is a result of `{call_id}`, which no open call has")
                })?;
                if call.id != *call_id || call.name != *name {
                    return Err(format!(
                        "message {number} is the result of `{call_id}` ({name}), but the result of `{}` ({}) is next",
                        call.id, call.name
                    ));
                }
            }
            other => {
                if let Some(call) = open.front() {
                    return Err(format!(
                        "message {number} comes before the result of the call `{}` ({})",
                        call.id, call.name
                    ));
                }
                for call in other.calls() {
                    if !seen.insert(call.id.as_str()) {
                        return Err(format!(
                            "message {number} uses the identifier `{}` again",
                            call.id
                        ));
                    }
                    open.push_back(call);
                }
            }
        }
    }
    if let Some(call) = open.front() {
        return Err(format!("the call `{}` ({}) has no result", call.id, call.name));
    }
    let mut names = HashSet::new();
    match request.tools.iter().find(|tool| !names.insert(&tool.name)) {
        Some(tool) => Err(format!("two tools are called `{}`", tool.name)),
        None => Ok(()),
    }
}

/// True if the last message is an answer, which is sent only after a pause of the provider.
pub(super) fn ends_with_answer(request: &Request) -> bool {
    matches!(
        request.messages.last().map(|m| &**m),
        Some(Message::Assistant { .. })
    )
}

/// Number of answers in a request.
pub(super) fn answers_in(request: &Request) -> usize {
    request
        .messages
        .iter()
        .filter(|m| matches!(***m, Message::Assistant { .. }))
        .count()
}

/// Text of the user's last message.
pub(super) fn last_user_text(request: &Request) -> String {
    request
        .messages
        .iter()
        .rev()
        .find(|m| matches!(***m, Message::User { .. }))
        .map(|m| m.text())
        .unwrap_or_default()
}

/// Results after the last answer: text, and true for an error.
pub(super) fn last_results(request: &Request) -> Vec<(String, bool)> {
    let after = request
        .messages
        .iter()
        .rposition(|m| matches!(**m, Message::Assistant { .. }))
        .map_or(0, |at| at + 1);
    request.messages[after..]
        .iter()
        .filter_map(|m| match &**m {
            Message::Tool {
                content, is_error, ..
            } => Some((content.iter().map(in_words).collect(), *is_error)),
            _ => None,
        })
        .collect()
}

fn in_words(content: &Content) -> String {
    match content {
        Content::Text { text } => text.clone(),
        Content::Blob(blob) => format!("{blob:?}"),
        Content::Link(link) => link.uri.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use toolcell_core::Part;

    fn calls(ids: &[&str]) -> Message {
        Message::Assistant {
            parts: ids
                .iter()
                .map(|id| {
                    Part::Call(CallRequest {
                        id: (*id).into(),
                        name: "f".into(),
                        arguments: "{}".into(),
                        opaque: serde_json::Value::Null,
                    })
                })
                .collect(),
        }
    }

    fn result(id: &str) -> Message {
        Message::Tool {
            call_id: id.into(),
            name: "f".into(),
            content: vec![],
            is_error: false,
        }
    }

    fn checked(messages: Vec<Message>) -> Result<(), String> {
        request(&Request {
            messages: messages.into_iter().map(Arc::new).collect(),
            ..Request::default()
        })
    }

    #[test]
    fn calls_need_one_result_directly_after_them_in_order() {
        let user = || Message::user("hi");
        assert_eq!(
            checked(vec![user(), calls(&["a", "b"]), result("a"), result("b"), user()]),
            Ok(())
        );
        for (messages, broken) in [
            (vec![user(), calls(&["a"])], "the call `a` (f) has no result"),
            (
                vec![user(), calls(&["a", "b"]), result("b"), result("a")],
                "message 3 is the result of `b` (f), but the result of `a` (f) is next",
            ),
            (
                vec![user(), calls(&["a"]), user(), result("a")],
                "message 3 comes before the result of the call `a` (f)",
            ),
            (
                vec![user(), calls(&["a"]), result("a"), result("a")],
                "message 4 is a result of `a`, which no open call has",
            ),
            (
                vec![user(), calls(&["a"]), result("a"), calls(&["a"]), result("a")],
                "message 4 uses the identifier `a` again",
            ),
        ] {
            assert_eq!(checked(messages).unwrap_err(), broken);
        }
    }
}

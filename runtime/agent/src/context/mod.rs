//! Selection of the messages of a request: whole rounds, each call with exactly one result, within a length.
//!
//! A *round* is a user message, or an answer with the results of its calls. Messages are left out or replaced by whole
//! rounds.

pub(crate) mod messages;
mod normalise;
pub(crate) mod prompt;
mod view;

pub(crate) use normalise::normalise;
pub(crate) use view::{View, request};

use std::sync::Arc;

use toolcell_core::provider::Usage;
use toolcell_core::{Content, Message, Part, ToolSpec};

use crate::context::messages::PRUNED;
use crate::policy::Prune;

/// Estimated bytes per token if the provider has not counted.
pub(crate) const BYTES_PER_TOKEN: usize = 4;

/// Estimated tokens of a picture or file of any size: providers count them by area, not by bytes.
const TOKENS_PER_BLOB: u64 = 1_500;

/// Number of estimated tokens that one reported token of an answer can stand for: 64 bytes, as runs of one character have.
const MOST_PER_TOKEN: u64 = 16;

/// Estimated tokens of the role and the separators of a message.
const FRAME: u64 = 4;

/// Estimated tokens of these messages.
pub(crate) fn estimate(messages: &[Arc<Message>]) -> u64 {
    messages.iter().map(|message| estimate_one(message)).sum()
}

/// Estimated tokens of one message.
pub(crate) fn estimate_one(message: &Message) -> u64 {
    let of_content = |content: &[Content]| -> u64 {
        content
            .iter()
            .map(|part| match part {
                Content::Blob(_) => TOKENS_PER_BLOB,
                other => (other.byte_len() / BYTES_PER_TOKEN) as u64,
            })
            .sum()
    };
    FRAME
        + match message {
            Message::User { content } | Message::Tool { content, .. } => of_content(content),
            Message::Assistant { parts } => parts
                .iter()
                .map(|part| {
                    let bytes = match part {
                        Part::Text { text, .. } | Part::Reasoning { text, .. } => text.len(),
                        Part::File { .. } => return TOKENS_PER_BLOB,
                        Part::Call(call) => call.name.len() + call.arguments.len(),
                    };
                    (bytes / BYTES_PER_TOKEN) as u64
                })
                .sum(),
        }
}

/// Returns the usage that counts: what the provider reported, or an estimate of what it did not report, or of an answer that is
/// longer than the report can be true for. `input` is the estimated length of the request. Each of both sides is judged alone, or
/// a budget would miss the other.
pub(crate) fn counted(reported: Usage, input: u64, answer: &Message) -> Usage {
    let output = estimate_one(answer);
    let is_empty = matches!(answer, Message::Assistant { parts } if parts.is_empty());
    let no_output = !is_empty && reported.output.saturating_mul(MOST_PER_TOKEN) < output;
    let no_input = reported.input == 0;
    let input = if no_input { input } else { reported.input };
    let cache_read = reported.cache_read.min(input);
    let estimated = no_input || no_output;
    Usage {
        input,
        cache_read,
        cache_write: reported.cache_write.min(input - cache_read),
        output: if no_output { output } else { reported.output },
        estimated: estimated || reported.estimated,
        // By the prices of the session: what another model costs was told of the report.
        cost_micros: reported.cost_micros.filter(|_| !estimated),
        ..reported
    }
}

/// Estimated tokens of the system prompt and the tools.
pub(crate) fn estimate_overhead(instructions: &str, tools: &[ToolSpec]) -> u64 {
    let of_tool = |tool: &ToolSpec| {
        let schema = tool.input.as_value().to_string();
        tool.name.as_str().len() + tool.description.len() + schema.len()
    };
    let tools: usize = tools.iter().map(of_tool).sum();
    ((instructions.len() + tools) / BYTES_PER_TOKEN) as u64
}

/// Indices at which rounds start.
fn rounds(messages: &[Arc<Message>]) -> Vec<usize> {
    messages
        .iter()
        .enumerate()
        .filter(|(_, message)| !matches!(message.as_ref(), Message::Tool { .. }))
        .map(|(i, _)| i)
        .collect()
}

/// True if the first `at` messages are whole rounds.
pub(crate) fn is_boundary(messages: &[Arc<Message>], at: usize) -> bool {
    let in_a_round = messages
        .get(at)
        .is_some_and(|message| matches!(message.as_ref(), Message::Tool { .. }));
    at <= messages.len() && !in_a_round
}

/// Number of messages that a summary replaces if it keeps the last `keep` rounds; `None` if too few to be worthwhile.
pub(crate) fn summary_cut(messages: &[Arc<Message>], keep: usize) -> Option<usize> {
    /// A summary is two messages; replacing fewer saves nothing.
    const FEWEST: usize = 3;
    let starts = rounds(messages);
    let cut = match keep {
        0 => messages.len(),
        keep => *starts.get(starts.len().checked_sub(keep)?)?,
    };
    (cut >= FEWEST).then_some(cut)
}

/// The calls whose results can be pruned, and the bytes saved; `None` if too few to be worthwhile.
pub(crate) fn prunable(messages: &[Arc<Message>], prune: &Prune) -> Option<(Vec<String>, u64)> {
    let mut kept = 0;
    let mut won = 0;
    let mut bytes = 0;
    let mut calls = Vec::new();
    for message in messages.iter().rev() {
        let Message::Tool { call_id, content, .. } = message.as_ref() else {
            continue;
        };
        let tokens = estimate_one(message);
        if kept + tokens <= prune.protect {
            kept += tokens;
            continue;
        }
        // Everything from the first result that does not fit is old.
        kept = prune.protect;
        let len: usize = content.iter().map(Content::byte_len).sum();
        if len > PRUNED.len() {
            won += tokens;
            bytes += (len - PRUNED.len()) as u64;
            calls.push(call_id.clone());
        }
    }
    calls.reverse();
    (won >= prune.at_least && !calls.is_empty()).then_some((calls, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_core::message::CallRequest;

    pub(super) fn call(id: &str) -> Arc<Message> {
        calls(&[id])
    }

    pub(super) fn calls(ids: &[&str]) -> Arc<Message> {
        Arc::new(Message::Assistant {
            parts: ids
                .iter()
                .map(|id| {
                    Part::Call(CallRequest {
                        id: (*id).into(),
                        name: "t".into(),
                        arguments: "{}".into(),
                        opaque: serde_json::Value::Null,
                    })
                })
                .collect(),
        })
    }

    pub(super) fn result(id: &str, text: &str) -> Arc<Message> {
        Arc::new(Message::Tool {
            call_id: id.into(),
            name: "t".into(),
            content: vec![Content::text(text)],
            is_error: false,
        })
    }

    fn user(text: &str) -> Arc<Message> {
        Arc::new(Message::user(text))
    }

    #[test]
    fn summary_keeps_whole_rounds() {
        let messages = [
            user("a"),
            calls(&["1", "2"]),
            result("1", "x"),
            result("2", "x"),
            call("3"),
            result("3", "x"),
        ];
        assert_eq!(summary_cut(&messages, 0), Some(6));
        assert_eq!(summary_cut(&messages, 1), Some(4));
        assert_eq!(summary_cut(&messages, 2), None, "one message is not worth it");
        assert_eq!(summary_cut(&messages, 9), None);
    }

    #[test]
    fn oldest_results_are_pruned_if_enough_is_saved() {
        let long = "x".repeat(400);
        let messages = [
            call("1"),
            result("1", &long),
            call("2"),
            result("2", &long),
            call("3"),
            result("3", &long),
        ];
        // One result of 400 bytes is 104 tokens.
        let prune =
            |protect, at_least| prunable(&messages, &Prune { protect, at_least }).map(|(calls, _)| calls);
        assert_eq!(prune(104, 208), Some(vec!["1".into(), "2".into()]));
        assert_eq!(prune(104, 209), None);
        assert_eq!(prune(207, 1), Some(vec!["1".into(), "2".into()]));
        assert_eq!(prune(208, 1), Some(vec!["1".into()]));
        assert_eq!(prune(312, 1), None);
    }

    #[test]
    fn usage_is_estimated_where_the_report_cannot_be_true() {
        let counted = |input, output, bytes: usize| {
            let reported = Usage {
                input,
                output,
                cost_micros: Some(9),
                ..Usage::default()
            };
            let usage = super::counted(reported, 70, &Message::assistant("x".repeat(bytes)));
            (usage.input, usage.output, usage.estimated, usage.cost_micros)
        };
        assert_eq!(counted(100, 5, 304), (100, 5, false, Some(9)));
        // One token of 64 bytes more than those that were reported.
        assert_eq!(counted(100, 5, 308), (100, 81, true, None));
        assert_eq!(counted(100, 0, 2), (100, 4, true, None));
        assert_eq!(counted(0, 5, 8), (70, 5, true, None));
        let empty = Message::Assistant { parts: Vec::new() };
        let reported = Usage {
            input: 100,
            ..Usage::default()
        };
        assert_eq!(super::counted(reported, 70, &empty), reported);
    }

    #[test]
    fn length_is_estimated_by_bytes_of_texts_calls_and_tools() {
        let call = |name: &str, arguments: &str| {
            let call = CallRequest {
                id: "1".into(),
                name: name.into(),
                arguments: arguments.into(),
                opaque: serde_json::Value::Null,
            };
            estimate_one(&Message::Assistant {
                parts: vec![Part::Call(call)],
            })
        };
        let frame = call("", "");
        assert_eq!(call(&"n".repeat(40), &"a".repeat(400)), frame + 110);
        assert_eq!(estimate_overhead("", &[]), 0);
        assert_eq!(estimate_overhead(&"x".repeat(402), &[]), 100);
    }

    #[test]
    fn rounds_start_at_an_answer_or_a_message() {
        let messages = [user("a"), call("1"), result("1", "x")];
        let boundaries: Vec<bool> = (0..=4).map(|at| is_boundary(&messages, at)).collect();
        assert_eq!(boundaries, [true, true, false, true, false]);
    }

    #[test]
    fn pruning_saves_a_result_minus_its_marker() {
        let all = Prune {
            protect: 0,
            at_least: 1,
        };
        for (more, expected) in [(0, None), (1, Some((vec!["1".to_owned()], 1)))] {
            let text = "x".repeat(PRUNED.len() + more);
            let messages = [call("1"), result("1", &text)];
            assert_eq!(prunable(&messages, &all), expected, "{more}");
        }
        let text = "x".repeat(PRUNED.len() + 10);
        let messages = [calls(&["1", "2"]), result("1", &text), result("2", &text)];
        let both = vec!["1".to_owned(), "2".to_owned()];
        assert_eq!(prunable(&messages, &all), Some((both, 20)));
    }
}

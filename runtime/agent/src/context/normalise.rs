//! Last check of a conversation before it is sent: each call has exactly one result, directly after its answer, in
//! order. The loop maintains this itself; conversations that were loaded, edited by hooks or written by other programs
//! may not.

use std::collections::HashMap;
use std::sync::Arc;

use toolcell_core::{Content, Message};

use crate::context::messages::INTERRUPTED;

/// Returns the conversation with one result for each call, in order; results without a call are left out. A
/// conversation that is in order is returned unchanged.
pub(crate) fn normalise(messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    if in_order(&messages) {
        return messages;
    }
    let mut results = results_of(&messages).into_iter().rev();
    let mut out: Vec<Arc<Message>> = Vec::with_capacity(messages.len());
    for message in &messages {
        match message.as_ref() {
            // Added with the answer that contains its call.
            Message::Tool { .. } => {}
            Message::Assistant { parts } if parts.is_empty() => {}
            Message::Assistant { .. } => {
                out.push(message.clone());
                for call in message.calls() {
                    out.push(results.next().flatten().unwrap_or_else(|| {
                        Arc::new(Message::Tool {
                            call_id: call.id.clone(),
                            name: call.name.clone(),
                            content: vec![Content::text(INTERRUPTED)],
                            is_error: true,
                        })
                    }));
                }
            }
            Message::User { .. } => out.push(message.clone()),
        }
    }
    out
}

/// Returns for each call, the last one first, the first result behind it with its identifier, unless an answer before that used
/// the identifier again.
fn results_of(messages: &[Arc<Message>]) -> Vec<Option<Arc<Message>>> {
    let mut found = Vec::new();
    let mut later: HashMap<&str, &Arc<Message>> = HashMap::new();
    for message in messages.iter().rev() {
        if let Message::Tool { call_id, .. } = &**message {
            later.insert(call_id, message);
        }
        let ids: Vec<&str> = message.calls().map(|call| call.id.as_str()).collect();
        found.extend(ids.iter().rev().map(|id| later.get(id).copied().cloned()));
        for id in ids {
            later.remove(id);
        }
    }
    found
}

/// True if each call has exactly one result directly after its answer, in order, and there is no other result.
pub(crate) fn in_order(messages: &[Arc<Message>]) -> bool {
    let mut awaited: std::collections::VecDeque<&str> = std::collections::VecDeque::new();
    for message in messages {
        match message.as_ref() {
            Message::Tool { call_id, .. } => {
                if awaited.pop_front() != Some(call_id) {
                    return false;
                }
            }
            Message::Assistant { parts } => {
                if !awaited.is_empty() || parts.is_empty() {
                    return false;
                }
                awaited.extend(message.calls().map(|call| call.id.as_str()));
            }
            Message::User { .. } => {
                if !awaited.is_empty() {
                    return false;
                }
            }
        }
    }
    awaited.is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{call, calls, result};
    use super::*;
    use proptest::prelude::*;

    fn user() -> Arc<Message> {
        Arc::new(Message::user("hello"))
    }

    #[test]
    fn results_follow_their_calls_and_missing_ones_are_added() {
        let messages = vec![
            user(),
            calls(&["1", "2", "3"]),
            result("3", "c"),
            user(),
            result("1", "a"),
            result("1", "again"),
            result("9", "not requested"),
        ];
        let texts: Vec<String> = normalise(messages).iter().map(|m| m.text()).collect();
        assert_eq!(texts, ["hello", "", "a", INTERRUPTED, "c", "hello"]);
    }

    /// At one look through all later messages for each call it would take minutes.
    #[test]
    fn many_calls_and_foreign_results_are_ordered_in_one_pass() {
        let names: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        let ids: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut messages = vec![user(), calls(&ids)];
        messages.extend(names.iter().map(|id| result(&format!("other {id}"), "x")));
        messages.push(result("99999", "mine"));
        let out = normalise(messages);
        assert_eq!(out.len(), 100_002);
        assert_eq!(out[100_001].text(), "mine");
        assert_eq!(out[2].text(), INTERRUPTED);
    }

    #[test]
    fn repeated_identifier_does_not_take_another_result() {
        let messages = vec![call("1"), call("1"), result("1", "second")];
        let texts: Vec<String> = normalise(messages).iter().map(|m| m.text()).collect();
        assert_eq!(texts, ["", INTERRUPTED, "", "second"]);
    }

    fn any_message() -> impl Strategy<Value = Arc<Message>> {
        let id = || prop::sample::select(vec!["1", "2", "3"]);
        prop_oneof![
            Just(user()),
            prop::collection::btree_set(id(), 0..4)
                .prop_map(|ids| calls(&ids.into_iter().collect::<Vec<_>>())),
            id().prop_map(|id| result(id, "r")),
        ]
    }

    proptest! {
        #[test]
        fn any_conversation_is_put_in_order(messages in prop::collection::vec(any_message(), 0..12)) {
            let users = messages.iter().filter(|m| matches!(m.as_ref(), Message::User { .. })).count();
            let out = normalise(messages);
            prop_assert!(in_order(&out));
            prop_assert_eq!(users, out.iter().filter(|m| matches!(m.as_ref(), Message::User { .. })).count());
            prop_assert_eq!(normalise(out.clone()), out);
        }
    }

    #[test]
    fn result_is_found_after_later_answers() {
        let messages = vec![call("1"), call("2"), result("1", "a"), result("2", "b")];
        let texts: Vec<String> = normalise(messages).iter().map(|m| m.text()).collect();
        assert_eq!(texts, ["", "a", "", "b"]);
    }

    #[test]
    fn empty_or_early_answer_is_out_of_order() {
        for messages in [
            vec![calls(&[])],
            vec![call("1"), call("2"), result("1", "a"), result("2", "b")],
            vec![call("1"), user()],
            vec![call("1"), result("2", "a")],
        ] {
            assert!(!in_order(&messages), "{messages:?}");
        }
        assert!(in_order(&[call("1"), result("1", "a"), user()]));
    }
}

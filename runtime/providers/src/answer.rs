//! An answer while it is being read: deltas for the reader, parts for the conversation.
//!
//! Every wire fills one of these, so that what must hold for all of them holds in one place: parts keep the order in
//! which the model produced them, every call has an identifier of its own, a call that was cut off is none, and a server
//! cannot fill the memory.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use toolcell_core::json::parse_object;
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{Completion, Delta, ProviderErrorKind, Request, StopReason, Usage};
use toolcell_core::{Message, Part, ProviderError};

use crate::http::Failure;
use crate::schema::Strict;

/// Longest answer, in bytes of text, reasoning and arguments. Models stop long before.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Most calls in one answer. The largest parallel batches of real models have some dozens.
const MAX_CALLS: usize = 1024;

/// Shortest identifier that is believed to be unique in a conversation. Shorter ones are counters such as `0` or
/// `call_1`, which begin again with every answer.
const MIN_ID_BYTES: usize = 9;

/// An answer while it is being read.
pub(crate) struct Answer {
    provider: String,
    parts: Vec<Part>,
    /// For each call, where it stands in `parts`.
    calls: Vec<usize>,
    /// The last part takes no more.
    closed: bool,
    deltas: Vec<Delta>,
    ids: HashSet<String>,
    bytes: usize,
    /// For tools whose schema was sent in another form, the way back.
    raised: BTreeMap<String, Strict>,
}

impl Answer {
    /// An empty answer to a request, which knows the identifiers that are taken.
    pub(crate) fn to(request: &Request, provider: &str) -> Self {
        let ids = request
            .messages
            .iter()
            .flat_map(|message: &std::sync::Arc<Message>| message.calls())
            .map(|call| call.id.clone())
            .collect();
        Self {
            provider: provider.into(),
            parts: Vec::new(),
            calls: Vec::new(),
            closed: true,
            deltas: Vec::new(),
            ids,
            bytes: 0,
            raised: BTreeMap::new(),
        }
    }

    /// The same for tools, by name, whose schemas were sent in their strict forms.
    pub(crate) fn raising(mut self, tools: impl IntoIterator<Item = (String, Strict)>) -> Self {
        self.raised.extend(tools);
        self
    }

    /// More text.
    pub(crate) fn text(&mut self, more: &str) {
        if more.is_empty() {
            return;
        }
        self.bytes += more.len();
        self.deltas.push(Delta::Text(more.into()));
        match self.parts.last_mut() {
            Some(Part::Text { text, .. }) if !self.closed => text.push_str(more),
            _ => self.open(Part::text(more)),
        }
    }

    /// What the provider must get back with the text that was read last; begins an empty one where there is none. That text
    /// takes no more.
    pub(crate) fn text_opaque(&mut self, value: Value) {
        match self.parts.last_mut() {
            Some(Part::Text { opaque, .. }) if !self.closed => *opaque = value,
            _ => self.open(Part::Text {
                text: String::new(),
                opaque: value,
            }),
        }
        self.close();
    }

    /// More reasoning.
    pub(crate) fn reasoning(&mut self, more: &str) {
        if more.is_empty() {
            return;
        }
        self.bytes += more.len();
        self.deltas.push(Delta::Reasoning(more.into()));
        match self.parts.last_mut() {
            Some(Part::Reasoning { text, .. }) if !self.closed => text.push_str(more),
            _ => self.open(Part::Reasoning {
                text: more.into(),
                opaque: Value::Null,
            }),
        }
    }

    /// What the provider must get back with the reasoning that was read last; begins a part where there is none.
    pub(crate) fn reasoning_opaque(&mut self, value: Value) {
        match self.parts.last_mut() {
            Some(Part::Reasoning { opaque, .. }) if !self.closed => *opaque = value,
            _ => self.open(Part::Reasoning {
                text: String::new(),
                opaque: value,
            }),
        }
    }

    /// What the provider must get back with its reasoning as a whole, where it sends that beside its parts: `first` goes
    /// with the first one, which is made up where there is none, `each` with all others.
    pub(crate) fn all_reasoning_opaque(&mut self, first: Value, each: &Value) {
        if !self
            .parts
            .iter()
            .any(|part| matches!(part, Part::Reasoning { .. }))
        {
            let empty = Part::Reasoning {
                text: String::new(),
                opaque: Value::Null,
            };
            self.parts.insert(0, empty);
            self.calls.iter_mut().for_each(|at| *at += 1);
        }
        let mut first = Some(first);
        for part in &mut self.parts {
            if let Part::Reasoning { opaque, .. } = part {
                *opaque = first.take().unwrap_or_else(|| each.clone());
            }
        }
    }

    /// What follows is a part of its own, also when it is of the same kind.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    fn open(&mut self, part: Part) {
        self.closed = false;
        self.parts.push(part);
    }

    /// A call begins; gives its position among the calls. `id` is the provider's, if it gave one.
    pub(crate) fn call(&mut self, id: Option<&str>, name: &str) -> usize {
        let index = self.calls.len();
        self.bytes += name.len();
        let id = self.unique_id(id);
        self.calls.push(self.parts.len());
        self.open(Part::Call(CallRequest {
            id,
            name: name.into(),
            arguments: String::new(),
            opaque: Value::Null,
        }));
        self.deltas.push(Delta::CallStarted {
            index,
            name: name.into(),
        });
        index
    }

    /// More of a call's arguments.
    pub(crate) fn arguments(&mut self, index: usize, fragment: &str) {
        if fragment.is_empty() {
            return;
        }
        self.bytes += fragment.len();
        if let Some(call) = self.call_at(index) {
            call.arguments.push_str(fragment);
            self.deltas.push(Delta::CallArguments {
                index,
                fragment: fragment.into(),
            });
        }
    }

    /// The call at a position, to read it or to set what the provider must get back.
    pub(crate) fn call_at(&mut self, index: usize) -> Option<&mut CallRequest> {
        match self.parts.get_mut(*self.calls.get(index)?) {
            Some(Part::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// The number of calls that were begun.
    pub(crate) fn calls_len(&self) -> usize {
        self.calls.len()
    }

    /// The deltas since the last time.
    pub(crate) fn take_deltas(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    /// Whether the answer is still of a size that a model may produce.
    pub(crate) fn check_size(&self) -> Result<(), Failure> {
        let refused = |what: String| {
            Err(Failure::fatal(ProviderError::new(
                &self.provider,
                ProviderErrorKind::Protocol,
                what,
            )))
        };
        if self.bytes > MAX_ANSWER_BYTES {
            return refused(format!("the answer is longer than {MAX_ANSWER_BYTES} bytes"));
        }
        if self.calls.len() > MAX_CALLS {
            return refused(format!("the answer has more than {MAX_CALLS} calls"));
        }
        Ok(())
    }

    /// The complete answer.
    pub(crate) fn complete(&mut self, stop: StopReason, usage: Option<Usage>) -> Completion {
        let mut parts = std::mem::take(&mut self.parts);
        // Only the last call can be cut off, and one that has no arguments yet was cut off before them.
        if stop == StopReason::MaxTokens
            && let Some(&last) = self.calls.last()
            && let Part::Call(call) = &parts[last]
            && (call.arguments.trim().is_empty() || parse_object(&call.arguments).is_err())
        {
            parts.remove(last);
        }
        self.calls.clear();
        for part in &mut parts {
            if let Part::Call(call) = part
                && let Some(strict) = self.raised.get(&call.name)
                && let Ok(arguments) = parse_object(&call.arguments)
            {
                let mut arguments = Value::Object(arguments);
                strict.raise(&mut arguments);
                call.arguments = arguments.to_string();
            }
        }
        Completion { parts, stop, usage }
    }

    fn unique_id(&mut self, proposed: Option<&str>) -> String {
        if let Some(id) = proposed.filter(|id| id.len() >= MIN_ID_BYTES)
            && self.ids.insert(id.to_owned())
        {
            return id.to_owned();
        }
        loop {
            let id = format!("call_{:016x}", fastrand::u64(..));
            if self.ids.insert(id.clone()) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn answer() -> Answer {
        Answer::to(&Request::default(), "p")
    }

    #[test]
    fn parts_keep_their_order_and_neighbours_of_one_kind_are_joined() {
        let mut answer = answer();
        answer.reasoning("think");
        answer.reasoning("ing");
        answer.text("a");
        answer.text("b");
        let call = answer.call(Some("call_abcdef"), "f");
        answer.text("c");
        answer.arguments(call, "{}");
        assert_eq!(
            answer.complete(StopReason::Complete, None).parts,
            [
                Part::Reasoning {
                    text: "thinking".into(),
                    opaque: Value::Null
                },
                Part::text("ab"),
                Part::Call(CallRequest {
                    id: "call_abcdef".into(),
                    name: "f".into(),
                    arguments: "{}".into(),
                    opaque: Value::Null
                }),
                Part::text("c"),
            ]
        );
    }

    #[test]
    fn a_call_gets_an_identifier_of_its_own_where_the_provider_gives_none_or_one_that_is_taken() {
        let asked = Message::Assistant {
            parts: vec![Part::Call(CallRequest {
                id: "call_taken".into(),
                name: "f".into(),
                arguments: "{}".into(),
                opaque: Value::Null,
            })],
        };
        let request = Request {
            messages: vec![Arc::new(asked)],
            ..Request::default()
        };
        let mut answer = Answer::to(&request, "p");
        let proposed = [
            None,
            Some(""),
            Some("call_1"),
            Some("call_taken"),
            Some("call_fresh"),
            Some("call_fresh"),
        ];
        for id in proposed {
            answer.call(id, "f");
        }
        let ids: Vec<String> = (0..proposed.len())
            .map(|i| answer.call_at(i).unwrap().id.clone())
            .collect();
        assert_eq!(ids[4], "call_fresh");
        let mut distinct: HashSet<&str> = ids.iter().map(String::as_str).collect();
        distinct.insert("call_taken");
        assert_eq!(distinct.len(), proposed.len() + 1, "{ids:?}");
    }

    #[test]
    fn what_goes_with_reasoning_as_a_whole_finds_its_parts() {
        let mut answer = answer();
        let call = answer.call(None, "f");
        answer.all_reasoning_opaque(1.into(), &2.into());
        answer.arguments(call, "{}");
        answer.reasoning("later");
        answer.all_reasoning_opaque(3.into(), &4.into());
        let parts = answer.complete(StopReason::Complete, None).parts;
        let opaque: Vec<Option<Value>> = parts
            .iter()
            .map(|part| match part {
                Part::Reasoning { opaque, .. } => Some(opaque.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(opaque, [Some(3.into()), None, Some(4.into())]);
        assert!(matches!(&parts[1], Part::Call(call) if call.arguments == "{}"));
    }

    #[test]
    fn only_a_call_that_was_cut_off_is_dropped_at_the_limit_of_tokens() {
        for (arguments, stop, kept) in [
            (r#"{"a":1}"#, StopReason::MaxTokens, true),
            (r#"{"a":1"#, StopReason::MaxTokens, false),
            ("", StopReason::MaxTokens, false),
            (r#"{"a":1"#, StopReason::Complete, true),
            ("", StopReason::Complete, true),
        ] {
            let mut answer = answer();
            let first = answer.call(None, "first");
            answer.arguments(first, "{}");
            let last = answer.call(None, "last");
            answer.arguments(last, arguments);
            let parts = answer.complete(stop.clone(), None).parts;
            assert_eq!(parts.len(), if kept { 2 } else { 1 }, "{arguments} {stop:?}");
        }
    }

    #[test]
    fn the_number_of_calls_is_accepted_up_to_its_limit_and_refused_beyond() {
        let mut answer = answer();
        for _ in 0..MAX_CALLS {
            answer.call(None, "f");
        }
        assert!(answer.check_size().is_ok());
        answer.call(None, "f");
        assert!(answer.check_size().is_err());
    }
}

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
use toolcell_core::redact::Redaction;
use toolcell_core::{Message, Part, ProviderError, Redactor};

use crate::http::Failure;
use crate::schema::Strict;

/// Longest answer, in bytes of text, reasoning, arguments and what the provider wants back. The longest answers of models
/// have some 130,000 tokens, which is less than a megabyte.
pub(crate) const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Most calls in one answer. The largest parallel batches of real models have some dozens.
const MAX_CALLS: usize = 1024;

/// Shortest identifier that is believed to be unique in a conversation. Shorter ones are counters such as `0` or
/// `call_1`, which begin again with every answer.
const MIN_ID_BYTES: usize = 9;

/// An answer while it is being read.
pub(crate) struct ResponseBuilder {
    provider: String,
    parts: Vec<Part>,
    /// For each call, where it stands in `parts`.
    calls: Vec<usize>,
    /// The last part takes no more.
    closed: bool,
    deltas: Vec<Delta>,
    ids: HashSet<String>,
    bytes: usize,
    redactor: Redactor,
    /// Text or reasoning on its way through the redactor.
    stream: Redaction,
    is_reasoning: bool,
    /// Arguments on their way through the redactor, for each call.
    arguments: Vec<Redaction>,
    /// For tools whose schema was sent in another form, the way back.
    raised: BTreeMap<String, Strict>,
}

impl ResponseBuilder {
    /// An empty answer to a request, which knows the identifiers that are taken.
    pub(crate) fn to(request: &Request, provider: &str) -> Self {
        let ids = request
            .messages
            .iter()
            .flat_map(|message: &std::sync::Arc<Message>| message.calls())
            .map(|call| call.id.clone())
            .collect();
        let redactor = Redactor::default();
        Self {
            provider: provider.into(),
            parts: Vec::new(),
            calls: Vec::new(),
            closed: true,
            deltas: Vec::new(),
            ids,
            bytes: 0,
            stream: redactor.live_stream(),
            redactor,
            is_reasoning: false,
            arguments: Vec::new(),
            raised: BTreeMap::new(),
        }
    }

    /// The same without the secrets that `redactor` finds, in no part and no delta.
    pub(crate) fn redacting(mut self, redactor: Redactor) -> Self {
        self.stream = redactor.live_stream();
        self.redactor = redactor;
        self
    }

    /// The same for tools, by name, whose schemas were sent in their strict forms.
    pub(crate) fn raising(mut self, tools: impl IntoIterator<Item = (String, Strict)>) -> Self {
        self.raised.extend(tools);
        self
    }

    /// More text.
    pub(crate) fn text(&mut self, more: &str) {
        self.more(more, false);
    }

    /// More reasoning.
    pub(crate) fn reasoning(&mut self, more: &str) {
        self.more(more, true);
    }

    fn more(&mut self, more: &str, is_reasoning: bool) {
        if more.is_empty() {
            return;
        }
        self.bytes += more.len();
        if is_reasoning != self.is_reasoning {
            self.flush();
            self.is_reasoning = is_reasoning;
        }
        let known = self.stream.push(more.as_bytes()).into_owned();
        self.add(known);
    }

    /// Gives out what was held back because it could have been the beginning of a secret.
    fn flush(&mut self) {
        let rest = self.stream.finish();
        self.add(rest);
    }

    /// Adds to the text or reasoning.
    fn add(&mut self, more: Vec<u8>) {
        if more.is_empty() {
            return;
        }
        let more = into_text(more);
        match self.parts.last_mut() {
            Some(Part::Text { text, .. }) if !self.closed && !self.is_reasoning => text.push_str(&more),
            Some(Part::Reasoning { text, .. }) if !self.closed && self.is_reasoning => text.push_str(&more),
            _ if self.is_reasoning => self.open(Part::Reasoning {
                text: more.clone(),
                opaque: Value::Null,
            }),
            _ => self.open(Part::text(more.clone())),
        }
        self.deltas.push(match self.is_reasoning {
            true => Delta::Reasoning(more),
            false => Delta::Text(more),
        });
    }

    /// What the provider must get back with the text that was read last; begins an empty one where there is none. That text
    /// takes no more.
    pub(crate) fn text_opaque(&mut self, value: Value) {
        self.flush();
        self.bytes += size(&value);
        match self.parts.last_mut() {
            Some(Part::Text { opaque, .. }) if !self.closed => *opaque = value,
            _ => self.open(Part::Text {
                text: String::new(),
                opaque: value,
            }),
        }
        self.close();
    }

    /// What the provider must get back with the reasoning that was read last; begins a part where there is none.
    pub(crate) fn reasoning_opaque(&mut self, value: Value) {
        if !self.is_reasoning {
            self.flush();
            self.is_reasoning = true;
        }
        self.bytes += size(&value);
        match self.parts.last_mut() {
            Some(Part::Reasoning { opaque, .. }) if !self.closed => *opaque = value,
            _ => self.open(Part::Reasoning {
                text: String::new(),
                opaque: value,
            }),
        }
    }

    /// Counts what a decoder keeps of the answer and gives back later.
    pub(crate) fn keeps(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// A number that grows with every piece of the answer.
    pub(crate) fn progress(&self) -> usize {
        self.bytes + self.calls.len()
    }

    /// What the provider must get back with its reasoning as a whole, where it sends that beside its parts: `first` goes
    /// with the first one, which is made up where there is none, `each` with all others.
    pub(crate) fn all_reasoning_opaque(&mut self, first: Value, each: &Value) {
        self.flush();
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

    /// What follows is a part of its own, also when it is of the same kind. What is held back goes with it.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    fn open(&mut self, part: Part) {
        self.closed = false;
        self.parts.push(part);
    }

    /// A call begins; gives its position among the calls. `id` is the provider's, if it gave one.
    pub(crate) fn call(&mut self, id: Option<&str>, name: &str) -> usize {
        self.flush();
        let index = self.calls.len();
        self.bytes += name.len();
        let name = self.redactor.text(name).into_owned();
        let id = self.unique_id(id);
        self.calls.push(self.parts.len());
        self.arguments.push(self.redactor.live_stream());
        self.open(Part::Call(CallRequest {
            id,
            name: name.clone(),
            arguments: String::new(),
            opaque: Value::Null,
        }));
        self.deltas.push(Delta::CallStarted { index, name });
        index
    }

    /// More of a call's arguments.
    pub(crate) fn arguments(&mut self, index: usize, fragment: &str) {
        if fragment.is_empty() {
            return;
        }
        self.bytes += fragment.len();
        if let Some(stream) = self.arguments.get_mut(index) {
            let known = stream.push(fragment.as_bytes()).into_owned();
            self.add_arguments(index, known);
        }
    }

    /// The arguments of a call as a whole, of which the beginning may have come before.
    pub(crate) fn whole_arguments(&mut self, index: usize, whole: &str) {
        if let Some(stream) = self.arguments.get_mut(index) {
            // What it holds back is in the whole.
            *stream = self.redactor.live_stream();
        }
        let whole = self.redactor.text(whole).into_owned();
        let Some(call) = self.call_at(index) else { return };
        match whole.strip_prefix(call.arguments.as_str()) {
            Some(rest) => {
                let rest = rest.as_bytes().to_vec();
                self.bytes += rest.len();
                self.add_arguments(index, rest);
            }
            // The whole is right where it differs from its pieces.
            None => call.arguments = whole,
        }
    }

    fn flush_arguments(&mut self, index: usize) {
        if let Some(stream) = self.arguments.get_mut(index) {
            let rest = stream.finish();
            self.add_arguments(index, rest);
        }
    }

    fn add_arguments(&mut self, index: usize, more: Vec<u8>) {
        if more.is_empty() {
            return;
        }
        let fragment = into_text(more);
        if let Some(call) = self.call_at(index) {
            call.arguments.push_str(&fragment);
            self.deltas.push(Delta::CallArguments { index, fragment });
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
        self.flush();
        for index in 0..self.calls.len() {
            self.flush_arguments(index);
        }
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
        let stop = match stop {
            StopReason::Other(words) => StopReason::Other(self.redactor.text(&words).into_owned()),
            other => other,
        };
        if !self.redactor.is_empty() {
            parts.iter_mut().for_each(|part| self.redact(part));
        }
        Completion { parts, stop, usage }
    }

    /// Takes secrets out of what did not come through a stream: names, identifiers, and what goes back to the provider.
    fn redact(&self, part: &mut Part) {
        match part {
            Part::Text { opaque, .. } | Part::Reasoning { opaque, .. } => self.redactor.json(opaque),
            Part::Call(call) => {
                self.redactor.string(&mut call.id);
                self.redactor.string(&mut call.name);
                self.redactor.string(&mut call.arguments);
                self.redactor.json(&mut call.opaque);
            }
        }
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

/// A stream of text holds back whole characters only where a secret is beyond ASCII.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// Bytes of the texts in a value.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(map) => map.iter().map(|(name, value)| name.len() + size(value)).sum(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn answer() -> ResponseBuilder {
        ResponseBuilder::to(&Request::default(), "p")
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
        let mut answer = ResponseBuilder::to(&request, "p");
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

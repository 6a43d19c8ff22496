//! Builds a response from decoded events: deltas for the reader, parts for the conversation.
//!
//! Shared by all protocols, so that common invariants are enforced once: parts keep the order in which the model
//! produced them, every call has a unique identifier, a truncated call is dropped, and a server cannot exhaust memory.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use toolcell_core::json::parse_object;
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{Completion, Delta, ProviderErrorKind, Request, StopReason, Usage};
use toolcell_core::redact::Redaction;
use toolcell_core::{Blob, Message, Part, ProviderError, Redactor};

use crate::http::{FailedAttempt, bounded};
use crate::schema::Strict;

/// Maximum size of an answer, in bytes of text, reasoning, names, identifiers, arguments and opaque provider data. The longest answers of
/// models have about 130,000 tokens, which is less than a megabyte.
pub(crate) const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Memory of a JSON value, or of the name of a member, beside its text, in bytes.
const VALUE: usize = 64;

/// Maximum number of calls in one answer. The largest parallel batches of real models have some dozens.
pub(crate) const MAX_CALLS: usize = 1024;

/// Maximum length of the name of a call, in bytes. Services allow names of tools of at most 128 characters.
const MAX_NAME_BYTES: usize = 256;

/// Maximum length of the identifier of a call, in bytes. Those of services have less than 100; some gateways append
/// opaque data of a service, which have some kilobytes.
const MAX_ID_BYTES: usize = 64 << 10;

/// Maximum size of a file in an answer, in bytes: that of one in a result of a tool. Pictures of models have about two
/// megabytes.
const MAX_FILE_BYTES: usize = 4 << 20;

/// Minimum length of an identifier that is assumed to be unique in a conversation, in bytes. Shorter ones are counters
/// such as `0` or `call_1`, which restart with every answer.
const MIN_ID_BYTES: usize = 9;

/// Limit that an answer exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Excess {
    #[error("the answer exceeds {MAX_ANSWER_BYTES} bytes")]
    Bytes,
    #[error("the answer exceeds {MAX_CALLS} calls")]
    Calls,
    #[error("the name of a call in the answer exceeds {MAX_NAME_BYTES} bytes")]
    Name,
    #[error("the identifier of a call in the answer exceeds {MAX_ID_BYTES} bytes")]
    Id,
}

/// Response that is being decoded. Beyond a limit nothing more is added: a single event can exceed it by far.
pub(crate) struct ResponseBuilder {
    provider: String,
    parts: Vec<Part>,
    /// Index in `parts` of each call.
    calls: Vec<usize>,
    /// True if the last part is complete.
    closed: bool,
    deltas: Vec<Delta>,
    ids: HashSet<String>,
    bytes: usize,
    excess: Option<Excess>,
    redactor: Redactor,
    /// Redactor of the current text or reasoning.
    stream: Redaction,
    is_reasoning: bool,
    /// Redactors of the arguments of each call.
    arguments: Vec<Redaction>,
    /// Tools whose schema was sent in a different form, with the reverse conversion.
    restored: BTreeMap<String, Strict>,
}

impl ResponseBuilder {
    /// Creates an empty response to a request, which determines the identifiers that are already used.
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
            excess: None,
            stream: redactor.live_stream(),
            redactor,
            is_reasoning: false,
            arguments: Vec::new(),
            restored: BTreeMap::new(),
        }
    }

    /// Redacts the secrets of `redactor` from every part and delta.
    pub(crate) fn redacting(mut self, redactor: Redactor) -> Self {
        self.stream = redactor.live_stream();
        self.redactor = redactor;
        self
    }

    /// Converts arguments back for tools, by name, whose schemas were sent in their strict forms.
    pub(crate) fn raising(mut self, tools: impl IntoIterator<Item = (String, Strict)>) -> Self {
        self.restored.extend(tools);
        self
    }

    /// Appends text.
    pub(crate) fn text(&mut self, more: &str) {
        self.more(more, false);
    }

    /// Appends reasoning.
    pub(crate) fn reasoning(&mut self, more: &str) {
        self.more(more, true);
    }

    fn more(&mut self, more: &str, is_reasoning: bool) {
        if more.is_empty() || !self.keeps(more.len()) {
            return;
        }
        if is_reasoning != self.is_reasoning {
            self.flush();
            self.is_reasoning = is_reasoning;
        }
        let known = self.stream.push(more.as_bytes()).into_owned();
        self.add(known);
    }

    /// Emits text that was held back as a possible prefix of a secret.
    fn flush(&mut self) {
        let rest = self.stream.finish();
        self.add(rest);
    }

    /// Appends to the current text or reasoning.
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

    /// Appends a file. Of one that is too large, a note stays.
    pub(crate) fn file(&mut self, blob: Blob, opaque: Value) {
        self.flush();
        let media_type = media_type(&blob.media_type);
        if blob.data.len() > MAX_FILE_BYTES {
            let bytes = blob.data.len();
            self.close();
            self.text(&format!(
                "[{media_type} of {bytes} bytes left out: more than {MAX_FILE_BYTES}]"
            ));
        } else {
            let data = blob.data;
            if !self.keeps(data.len() + size(&opaque)) {
                return;
            }
            self.open(Part::File {
                blob: Blob { media_type, data },
                opaque,
            });
        }
        self.close();
    }

    /// Sets opaque data for the last text part, creating an empty one if there is none. The part is complete
    /// afterwards.
    pub(crate) fn text_opaque(&mut self, value: Value) {
        self.flush();
        if !self.keeps(size(&value)) {
            return;
        }
        match self.parts.last_mut() {
            Some(Part::Text { opaque, .. }) if !self.closed => *opaque = value,
            _ => self.open(Part::Text {
                text: String::new(),
                opaque: value,
            }),
        }
        self.close();
    }

    /// Sets opaque data for the last reasoning part, creating one if there is none.
    pub(crate) fn reasoning_opaque(&mut self, value: Value) {
        if !self.is_reasoning {
            self.flush();
            self.is_reasoning = true;
        }
        // Some decoders set it again for each delta.
        let replaced = match self.parts.last() {
            Some(Part::Reasoning { opaque, .. }) if !self.closed && !opaque.is_null() => size(opaque),
            _ => 0,
        };
        self.bytes = self.bytes.saturating_sub(replaced);
        if !self.keeps(size(&value)) {
            return;
        }
        match self.parts.last_mut() {
            Some(Part::Reasoning { opaque, .. }) if !self.closed => *opaque = value,
            _ => self.open(Part::Reasoning {
                text: String::new(),
                opaque: value,
            }),
        }
    }

    /// Counts data that this builder or a decoder stores until the end of the answer: its memory, in bytes. Returns
    /// `false` if the answer exceeds a limit; the data must not be stored.
    pub(crate) fn keeps(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_ANSWER_BYTES {
            self.exceeds(Excess::Bytes);
        }
        self.excess.is_none()
    }

    fn exceeds(&mut self, limit: Excess) {
        self.excess.get_or_insert(limit);
    }

    /// A number that grows with every delta of the answer.
    pub(crate) fn progress(&self) -> usize {
        self.bytes + self.calls.len()
    }

    /// Sets opaque data for the reasoning as a whole, if the provider sends it separately: `first` goes to the first
    /// part, which is created if there is none, `each` to all others.
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
        // The decoder has counted the first one.
        let mut more = 0;
        for part in &mut self.parts {
            if let Part::Reasoning { opaque, .. } = part {
                *opaque = first.take().unwrap_or_else(|| {
                    more += size(each);
                    each.clone()
                });
            }
        }
        self.keeps(more);
    }

    /// Completes the current part, so that the next text is a part of its own. Held-back text is emitted.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    fn open(&mut self, part: Part) {
        // Of the first one only the content counts: one text may have the whole size of an answer.
        if !self.parts.is_empty() {
            self.keeps(size_of::<Part>());
        }
        self.closed = false;
        self.parts.push(part);
    }

    /// Starts a call; returns its index among the calls, or `None` beyond a limit. `id` is the provider's identifier,
    /// if there is one.
    pub(crate) fn call(&mut self, id: Option<&str>, name: &str) -> Option<usize> {
        self.flush();
        let index = self.calls.len();
        let id_bytes = id.map_or(0, str::len);
        match () {
            () if index >= MAX_CALLS => self.exceeds(Excess::Calls),
            () if name.len() > MAX_NAME_BYTES => self.exceeds(Excess::Name),
            () if id_bytes > MAX_ID_BYTES => self.exceeds(Excess::Id),
            () => {}
        }
        // The identifier is stored twice.
        if !self.keeps(name.len() + 2 * id_bytes) {
            return None;
        }
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
        Some(index)
    }

    /// Appends to the name of a call whose arguments have not begun. A name arrives once, repeated in every delta, or in
    /// fragments.
    pub(crate) fn name(&mut self, index: usize, more: &str) {
        let Some(call) = self.call_at(index) else { return };
        if call.name == more || !call.arguments.is_empty() {
            return;
        }
        if call.name.len() + more.len() > MAX_NAME_BYTES {
            self.exceeds(Excess::Name);
        }
        if self.keeps(more.len())
            && let Some(call) = self.call_mut(index)
        {
            call.name.push_str(more);
        }
    }

    /// Sets opaque data of a call.
    pub(crate) fn call_opaque(&mut self, index: usize, value: Value) {
        if self.keeps(size(&value))
            && let Some(call) = self.call_mut(index)
        {
            call.opaque = value;
        }
    }

    /// Appends to a call's arguments.
    pub(crate) fn arguments(&mut self, index: usize, fragment: &str) {
        if fragment.is_empty() || !self.keeps(fragment.len()) {
            return;
        }
        if let Some(stream) = self.arguments.get_mut(index) {
            let known = stream.push(fragment.as_bytes()).into_owned();
            self.add_arguments(index, known);
        }
    }

    /// Sets the full arguments of a call, of which a prefix may have been received before.
    pub(crate) fn whole_arguments(&mut self, index: usize, whole: &str) {
        if let Some(stream) = self.arguments.get_mut(index) {
            // Held-back text is part of the full arguments.
            *stream = self.redactor.live_stream();
        }
        let whole = self.redactor.text(whole);
        let Some(call) = self.call_at(index) else { return };
        match whole.strip_prefix(call.arguments.as_str()) {
            Some(rest) => {
                if self.keeps(rest.len()) {
                    self.add_arguments(index, rest.as_bytes().to_vec());
                }
            }
            // The full arguments take precedence over their deltas.
            None => {
                if self.keeps(whole.len())
                    && let Some(call) = self.call_mut(index)
                {
                    call.arguments = whole.into_owned();
                }
            }
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
        if let Some(call) = self.call_mut(index) {
            call.arguments.push_str(&fragment);
            self.deltas.push(Delta::CallArguments { index, fragment });
        }
    }

    /// Returns the call at an index.
    pub(crate) fn call_at(&self, index: usize) -> Option<&CallRequest> {
        match self.parts.get(*self.calls.get(index)?) {
            Some(Part::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// Private: whatever is stored must be counted.
    fn call_mut(&mut self, index: usize) -> Option<&mut CallRequest> {
        match self.parts.get_mut(*self.calls.get(index)?) {
            Some(Part::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// Number of calls that were started.
    pub(crate) fn calls_len(&self) -> usize {
        self.calls.len()
    }

    /// Takes the deltas since the last call.
    pub(crate) fn take_deltas(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    /// Checks that the answer is within the size limits.
    pub(crate) fn check_size(&self) -> Result<(), FailedAttempt> {
        self.excess.map_or(Ok(()), |limit| {
            Err(FailedAttempt::fatal(ProviderError::new(
                &self.provider,
                ProviderErrorKind::Protocol,
                limit.to_string(),
            )))
        })
    }

    /// Tells the provider's own reason for an answer that it or the model refused.
    pub(crate) fn refused(&mut self, reason: &str) {
        let reason = self.redactor.text(reason);
        let told = format!("{}: the answer was refused: {}", self.provider, bounded(&reason));
        self.deltas.push(Delta::Notice(told));
    }

    /// Completes the response.
    pub(crate) fn complete(&mut self, stop: StopReason, usage: Option<Usage>) -> Completion {
        self.flush();
        for index in 0..self.calls.len() {
            self.flush_arguments(index);
        }
        let mut parts = std::mem::take(&mut self.parts);
        // Only the last call can be truncated; a call without arguments was truncated before them.
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
                && let Some(strict) = self.restored.get(&call.name)
                && let Ok(arguments) = parse_object(&call.arguments)
            {
                let mut arguments = Value::Object(arguments);
                strict.restore(&mut arguments);
                call.arguments = arguments.to_string();
            }
        }
        let stop = match stop {
            StopReason::Other(words) => StopReason::Other(bounded(&self.redactor.text(&words))),
            other => other,
        };
        if !self.redactor.is_empty() {
            parts.iter_mut().for_each(|part| self.redact(part));
        }
        Completion { parts, stop, usage }
    }

    /// Redacts content that did not pass a stream redactor: names, identifiers, and opaque data.
    fn redact(&self, part: &mut Part) {
        match part {
            Part::Text { opaque, .. } | Part::Reasoning { opaque, .. } => self.redactor.json(opaque),
            Part::File { blob, opaque } => {
                self.redactor.json(opaque);
                if let Cow::Owned(redacted) = self.redactor.bytes(&blob.data) {
                    blob.data = redacted;
                }
            }
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

/// A media type as its type and subtype (RFC 6838, section 4.2), or the one of unknown bytes.
fn media_type(given: &str) -> String {
    let is_name = |name: &str| {
        (1..=127).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    let essence = given.split(';').next().unwrap_or_default().trim();
    match essence.split_once('/') {
        Some((kind, subtype)) if is_name(kind) && is_name(subtype) => essence.to_ascii_lowercase(),
        _ => "application/octet-stream".to_owned(),
    }
}

/// Converts redacted bytes to text. Only a secret with non-ASCII characters can split a character.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// Memory of a value, in bytes: its strings, and the values themselves, of which a short text can have many.
pub(crate) fn size(value: &Value) -> usize {
    VALUE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size).sum(),
            Value::Object(map) => map
                .iter()
                .map(|(name, value)| VALUE + name.len() + size(value))
                .sum(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn answer() -> ResponseBuilder {
        ResponseBuilder::to(&Request::default(), "p")
    }

    #[test]
    fn values_and_parts_count_with_their_memory() {
        let mut answer = answer();
        for value in [json!([0, 0]), json!({"": ""}), json!("text")] {
            assert!(size(&value) > size_of::<Value>(), "{value}");
        }
        answer.keeps(size(&vec![0; MAX_ANSWER_BYTES / VALUE].into()));
        assert!(answer.check_size().is_err());

        let mut answer = self::answer();
        for _ in 0..MAX_ANSWER_BYTES / (size_of::<Part>() + VALUE) {
            answer.text_opaque(Value::Null);
        }
        assert!(answer.check_size().is_ok());
        answer.text_opaque(Value::Null);
        answer.text_opaque(Value::Null);
        assert!(answer.check_size().is_err());

        // What replaces something counts once.
        let mut answer = self::answer();
        for _ in 0..MAX_ANSWER_BYTES / VALUE {
            answer.reasoning("x");
            answer.reasoning_opaque(json!({"ollama": {}}));
        }
        assert!(answer.check_size().is_ok());
    }

    #[test]
    fn file_at_the_limit_is_a_part_and_larger_one_a_note() {
        let file = |bytes| Blob {
            media_type: "Image/PNG; a=b".into(),
            data: vec![0; bytes],
        };
        let mut answer = ResponseBuilder::to(&Request::default(), "p");
        answer.text("before");
        answer.file(file(MAX_FILE_BYTES), Value::Null);
        answer.text("behind");
        answer.file(file(MAX_FILE_BYTES + 1), Value::Null);
        let parts = answer.complete(StopReason::Complete, None).parts;
        let [
            Part::Text { .. },
            Part::File { blob, .. },
            Part::Text { .. },
            Part::Text { text, .. },
        ] = &*parts
        else {
            panic!("{} parts", parts.len())
        };
        assert_eq!(
            (blob.media_type.as_str(), blob.data.len()),
            ("image/png", MAX_FILE_BYTES)
        );
        assert_eq!(text, "[image/png of 4194305 bytes left out: more than 4194304]");
    }

    #[test]
    fn media_type_with_other_words_is_that_of_unknown_bytes() {
        for (given, kept) in [
            ("image/png", "image/png"),
            ("image/svg+xml; charset=utf-8", "image/svg+xml"),
            ("", "application/octet-stream"),
            ("png", "application/octet-stream"),
            ("image/png\u{1b}[2J", "application/octet-stream"),
            ("image/../../x", "application/octet-stream"),
        ] {
            assert_eq!(media_type(given), kept);
        }
    }

    #[test]
    fn parts_keep_order_and_adjacent_ones_are_merged() {
        let mut answer = answer();
        answer.reasoning("think");
        answer.reasoning("ing");
        answer.text("a");
        answer.text("b");
        let call = answer.call(Some("call_abcdef"), "f").unwrap();
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
    fn missing_and_used_call_identifiers_are_replaced() {
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
    fn opaque_data_of_reasoning_is_assigned_to_its_parts() {
        let mut answer = answer();
        let call = answer.call(None, "f").unwrap();
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
    fn only_truncated_call_is_dropped_at_the_token_limit() {
        for (arguments, stop, kept) in [
            (r#"{"a":1}"#, StopReason::MaxTokens, true),
            (r#"{"a":1"#, StopReason::MaxTokens, false),
            ("", StopReason::MaxTokens, false),
            (r#"{"a":1"#, StopReason::Complete, true),
            ("", StopReason::Complete, true),
        ] {
            let mut answer = answer();
            let first = answer.call(None, "first").unwrap();
            answer.arguments(first, "{}");
            let last = answer.call(None, "last").unwrap();
            answer.arguments(last, arguments);
            let parts = answer.complete(stop.clone(), None).parts;
            assert_eq!(parts.len(), if kept { 2 } else { 1 }, "{arguments} {stop:?}");
        }
    }

    #[test]
    fn calls_beyond_the_limit_are_refused() {
        let mut answer = answer();
        for _ in 0..MAX_CALLS {
            assert!(answer.call(None, "f").is_some());
        }
        assert!(answer.check_size().is_ok());
        assert_eq!(answer.call(None, "f"), None);
        assert!(answer.check_size().is_err());
    }

    #[test]
    fn names_and_identifiers_of_calls_have_limits() {
        let refused = |answer: &ResponseBuilder| answer.check_size().err().map(|e| e.error.message);
        for (name, id, limit) in [
            (MAX_NAME_BYTES, MAX_ID_BYTES, None),
            (MAX_NAME_BYTES + 1, 1, Some(Excess::Name)),
            (1, MAX_ID_BYTES + 1, Some(Excess::Id)),
        ] {
            let mut answer = answer();
            answer.call(Some(&"i".repeat(id)), &"n".repeat(name));
            assert_eq!(refused(&answer), limit.map(|limit| limit.to_string()));
        }
        let mut answer = answer();
        let call = answer.call(None, "n").unwrap();
        answer.name(call, &"m".repeat(MAX_NAME_BYTES - 1));
        assert_eq!(refused(&answer), None);
        answer.name(call, "m");
        assert_eq!(refused(&answer), Some(Excess::Name.to_string()));
        assert_eq!(answer.call_at(call).unwrap().name.len(), MAX_NAME_BYTES);
    }

    #[test]
    fn nothing_is_added_beyond_a_limit() {
        let mut answer = answer();
        let call = answer.call(None, "f").unwrap();
        let full = "x".repeat(MAX_ANSWER_BYTES);
        answer.text(&full);
        answer.take_deltas();
        answer.text("x");
        answer.reasoning("x");
        answer.arguments(call, "{}");
        answer.whole_arguments(call, "{}");
        answer.call_opaque(call, json!({}));
        assert_eq!(answer.call(None, "f"), None);
        assert!(answer.take_deltas().is_empty());
        assert_eq!((answer.parts.len(), answer.calls_len()), (1, 1));
    }
}

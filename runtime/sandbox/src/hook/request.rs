//! Requests to a hook at each point, in the types of the WIT interface.

use std::future::Future;

use serde_json::{Map, Value, json};
use toolcell_core::event::TurnOutcome;
use toolcell_core::hook::{CallReport, FailureReport, HookContext, HookPoint, PendingCall, Prompt, TurnEnd};
use toolcell_core::{Content, ToolError};
use wasmtime::Store;

use super::linked::{HookGuest, LinkedHook};
use super::response::HookResponse;
use crate::bindings::{self, hooks};
use crate::cell::GuestCall;
use crate::cell::memory::MemoryAccount;
use crate::cell::state::CellState;
use crate::structured;
use crate::tool::content_len;

/// A request to a hook at one point.
pub(crate) trait HookRequest: Send {
    /// Hook point of the request.
    const POINT: HookPoint;
    /// Request in the types of the WIT interface.
    type Wire: Send;
    /// Response in the types of the WIT interface.
    type Response: HookResponse + Send + Sync + 'static;

    fn into_wire(self) -> Self::Wire;

    /// Returns the number of bytes that the guest receives.
    fn bytes(wire: &Self::Wire) -> usize;

    fn call_export(
        wire: &Self::Wire,
        turn: &hooks::Turn,
        guest: &HookGuest,
        store: &mut Store<CellState>,
    ) -> impl Future<Output = wasmtime::Result<Result<Self::Response, String>>> + Send;
}

/// Implements the items of [`HookRequest`] that differ only in the function of the interface.
macro_rules! export {
    ($function:ident($wire:ty) -> $response:ty) => {
        type Wire = $wire;
        type Response = $response;

        async fn call_export(
            wire: &$wire,
            turn: &hooks::Turn,
            guest: &HookGuest,
            store: &mut Store<CellState>,
        ) -> wasmtime::Result<Result<$response, String>> {
            guest.hooks.$function(store, wire, turn).await
        }
    };
}

/// One request to a hook.
pub(super) struct HookCall<R: HookRequest> {
    wire: R::Wire,
    turn: hooks::Turn,
}

impl<R: HookRequest> HookCall<R> {
    pub(super) fn new(request: R, cx: &HookContext) -> Self {
        Self {
            wire: request.into_wire(),
            turn: hooks::Turn {
                session: cx.session.to_string(),
                values: pairs(&cx.values),
                context: Vec::new(),
            },
        }
    }

    /// Returns the number of bytes that the guest receives, for the receipt.
    pub(super) fn bytes_in(&self) -> u64 {
        (R::bytes(&self.wire) + pairs_len(&self.turn.values)) as u64
    }
}

impl<R: HookRequest> GuestCall for HookCall<R> {
    type World = LinkedHook;
    type Done = Result<R::Response, String>;

    async fn call_guest(
        self,
        guest: &HookGuest,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Self::Done> {
        R::call_export(&self.wire, &self.turn, guest, store).await
    }

    fn bytes_out(done: &Self::Done) -> u64 {
        match done {
            Ok(response) => response.bytes() as u64,
            Err(text) => text.len() as u64,
        }
    }

    async fn complete(done: Self::Done, account: &MemoryAccount) -> Result<Self::Done, ToolError> {
        if let Ok(response) = &done {
            structured::charge(response.json_texts(), account)?;
        }
        Ok(done)
    }
}

impl HookRequest for Prompt {
    const POINT: HookPoint = HookPoint::BeforePrompt;
    export!(call_before_prompt(hooks::Prompt) -> hooks::PromptAnswer);

    fn into_wire(self) -> hooks::Prompt {
        hooks::Prompt {
            message: contents(self.message),
            original: contents(self.original),
            tokens: self.tokens,
            token_limit: self.token_limit,
            context: Vec::new(),
        }
    }

    fn bytes(wire: &hooks::Prompt) -> usize {
        wire.message.iter().chain(&wire.original).map(content_len).sum()
    }
}

impl HookRequest for PendingCall {
    const POINT: HookPoint = HookPoint::BeforeCall;
    export!(call_before_call(hooks::PendingCall) -> hooks::CallAnswer);

    fn into_wire(self) -> hooks::PendingCall {
        hooks::PendingCall {
            id: self.id,
            tool: self.tool,
            arguments: Value::Object(self.arguments).to_string(),
            context: match self.places.as_slice() {
                [] => Vec::new(),
                places => vec![("places".into(), json!(places).to_string())],
            },
        }
    }

    fn bytes(wire: &hooks::PendingCall) -> usize {
        wire.arguments.len() + pairs_len(&wire.context)
    }
}

impl HookRequest for CallReport {
    const POINT: HookPoint = HookPoint::AfterCall;
    export!(call_after_call(hooks::FinishedCall) -> hooks::Effects);

    fn into_wire(self) -> hooks::FinishedCall {
        let receipt = self.result.receipt.as_ref().map(|receipt| {
            serde_json::to_string(receipt).expect("a receipt consists of numbers, texts and lists of them")
        });
        hooks::FinishedCall {
            id: self.id,
            tool: self.tool,
            arguments: self.arguments.to_string(),
            content: contents(self.result.content),
            error: self.result.error.map(|error| hooks::Failure {
                kind: error.kind().to_owned(),
                message: error.for_model(),
            }),
            receipt,
            duration_ms: self.duration_ms,
            context: Vec::new(),
        }
    }

    fn bytes(wire: &hooks::FinishedCall) -> usize {
        let content: usize = wire.content.iter().map(content_len).sum();
        wire.arguments.len() + content + wire.receipt.as_ref().map_or(0, String::len)
    }
}

impl HookRequest for TurnEnd {
    const POINT: HookPoint = HookPoint::AfterTurn;
    export!(call_after_turn(hooks::FinishedTurn) -> hooks::Effects);

    fn into_wire(self) -> hooks::FinishedTurn {
        let (outcome, context) = outcome(&self.outcome);
        hooks::FinishedTurn {
            outcome,
            text: self.text,
            steps: self.steps,
            context: pairs(&context),
        }
    }

    fn bytes(wire: &hooks::FinishedTurn) -> usize {
        wire.text.len() + pairs_len(&wire.context)
    }
}

impl HookRequest for FailureReport {
    const POINT: HookPoint = HookPoint::OnError;
    export!(call_on_error(hooks::Failure) -> hooks::Effects);

    fn into_wire(self) -> hooks::Failure {
        hooks::Failure {
            kind: self.phase.as_str().to_owned(),
            message: self.message,
        }
    }

    fn bytes(wire: &hooks::Failure) -> usize {
        wire.message.len()
    }
}

/// Returns the outcome of a turn as one word, and further details.
fn outcome(outcome: &TurnOutcome) -> (String, Map<String, Value>) {
    let mut context = match serde_json::to_value(outcome) {
        Ok(Value::Object(context)) => context,
        _ => Map::new(),
    };
    let word = match context.remove("outcome") {
        Some(Value::String(word)) => word,
        _ => "unknown".into(),
    };
    (word, context)
}

fn pairs(values: &Map<String, Value>) -> Vec<(String, String)> {
    let pairs = values.iter();
    pairs
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect()
}

pub(super) fn pairs_len(pairs: &[(String, String)]) -> usize {
    pairs.iter().map(|(name, value)| name.len() + value.len()).sum()
}

pub(super) fn contents(contents: Vec<Content>) -> Vec<bindings::Content> {
    contents.into_iter().map(of_core).collect()
}

pub(super) fn of_core(content: Content) -> bindings::Content {
    match content {
        Content::Text { text } => bindings::Content::Text(text),
        Content::Blob(blob) => bindings::Content::Blob(bindings::Blob {
            media_type: blob.media_type,
            data: blob.data,
        }),
        Content::Link(link) => bindings::Content::Link(bindings::Link {
            uri: link.uri,
            name: link.name,
            media_type: link.media_type,
        }),
    }
}

#[cfg(test)]
mod tests {
    use toolcell_core::hook::FailurePhase;
    use toolcell_core::{ArgumentPlace, Blob, CallResult, Link, PlaceKind, Receipt};

    use super::*;
    use crate::cell::memory::MemoryPool;

    fn text(bytes: usize) -> String {
        "x".repeat(bytes)
    }

    /// Bytes that the guest receives for a request in a turn with one value of 3 bytes.
    fn bytes_in(request: impl HookRequest) -> u64 {
        let mut cx = HookContext::unobserved("s");
        cx.values.insert("v".into(), json!(10));
        HookCall::new(request, &cx).bytes_in()
    }

    #[tokio::test]
    async fn json_of_a_response_takes_memory_of_the_call() {
        let text = format!("{{\"a\":[{}0]}}", r#"{"":0},"#.repeat(1_000));
        let effects = || hooks::Effects {
            notices: Vec::new(),
            values: vec![("v".into(), text.clone())],
            other: Vec::new(),
        };
        let call = || hooks::CallAnswer {
            verdict: hooks::Verdict::Proceed,
            arguments: Some(text.clone()),
            effects: effects(),
        };
        let prompt = || hooks::PromptAnswer {
            verdict: hooks::Verdict::Proceed,
            message: None,
            context: Vec::new(),
            instructions: Vec::new(),
            examples: vec![hooks::Example {
                says: "s".into(),
                tool: "t".into(),
                arguments: text.clone(),
            }],
            effects: effects(),
        };
        let account = |limit| MemoryAccount::new(limit, MemoryPool::new(u64::MAX));
        // Each text is a hundred times as large once it is parsed, and each response has two of them.
        let least = 60 * text.len() as u64;
        for limit in [least, 2 * least] {
            let of_call = HookCall::<PendingCall>::complete(Ok(call()), &account(limit)).await;
            let of_prompt = HookCall::<Prompt>::complete(Ok(prompt()), &account(limit)).await;
            assert!(matches!(of_call, Err(ToolError::Limit { .. })));
            assert!(matches!(of_prompt, Err(ToolError::Limit { .. })));
        }
        let enough = account(u64::MAX / 2);
        assert!(
            HookCall::<PendingCall>::complete(Ok(call()), &enough)
                .await
                .is_ok()
        );
    }

    #[test]
    fn each_request_is_charged_by_what_the_guest_receives() {
        let message = vec![
            Content::text(text(0x10)),
            Content::Blob(Blob {
                media_type: text(0x20),
                data: vec![0; 0x40],
            }),
            Content::Link(Link {
                uri: text(0x80),
                name: text(0x100),
                media_type: Some(text(0x200)),
            }),
        ];
        let prompt = Prompt {
            message: message.clone(),
            original: vec![Content::text(text(0x400))],
            history: Vec::new(),
            tokens: 1,
            token_limit: None,
        };
        assert_eq!(bytes_in(prompt), 3 + 0x7f0);

        let call = |places| PendingCall {
            id: "1".into(),
            tool: "t".into(),
            arguments: Map::from_iter([("a".into(), json!(12))]),
            places,
        };
        assert_eq!(bytes_in(call(Vec::new())), 3 + r#"{"a":12}"#.len() as u64);
        let place = ArgumentPlace {
            pointer: "/a".into(),
            kind: PlaceKind::Url,
            plain: "https://a/".into(),
            named: None,
            real: None,
            is_unresolved: false,
        };
        let described = json!([place]).to_string();
        assert_eq!(
            bytes_in(call(vec![place])),
            (3 + r#"{"a":12}"#.len() + "places".len() + described.len()) as u64
        );

        let receipt = Receipt::default();
        let finished = |error, receipt| CallReport {
            id: "1".into(),
            tool: "t".into(),
            arguments: json!([1, 2]),
            result: CallResult {
                error,
                receipt,
                ..CallResult::text(text(0x10))
            },
            duration_ms: 5,
        };
        let own = 3 + "[1,2]".len() as u64 + 0x10;
        assert_eq!(bytes_in(finished(None, None)), own);
        let filed = serde_json::to_string(&receipt).unwrap().len() as u64;
        assert_eq!(bytes_in(finished(None, Some(receipt))), own + filed);

        let turn = |outcome| TurnEnd {
            outcome,
            text: text(0x10),
            steps: 2,
        };
        assert_eq!(bytes_in(turn(TurnOutcome::Completed)), 3 + 0x10);
        let limit = TurnOutcome::Budget { reason: text(0x20) };
        assert_eq!(
            bytes_in(turn(limit)),
            3 + 0x10 + ("reason".len() + 0x20 + "\"\"".len()) as u64
        );

        let failure = FailureReport {
            phase: FailurePhase::Call,
            message: text(0x10),
        };
        assert_eq!(bytes_in(failure), 3 + 0x10);
    }

    #[test]
    fn hook_receives_values_contents_and_outcome_as_they_are() {
        let mut cx = HookContext::unobserved("s");
        cx.values.insert("k".into(), json!({"n": 1}));
        let report = CallReport {
            id: "1".into(),
            tool: "t".into(),
            arguments: json!({}),
            result: CallResult {
                error: Some(ToolError::Cancelled),
                ..CallResult::text("some")
            },
            duration_ms: 7,
        };
        let call = HookCall::new(report, &cx);
        assert_eq!(call.turn.session, "s");
        assert_eq!(call.turn.values, [("k".to_owned(), r#"{"n":1}"#.to_owned())]);
        assert_eq!(call.wire.duration_ms, 7);
        let [bindings::Content::Text(content)] = call.wire.content.as_slice() else {
            panic!("{:?}", call.wire.content)
        };
        assert_eq!(content, "some");
        let failure = call.wire.error.unwrap();
        assert_eq!(failure.kind, ToolError::Cancelled.kind());

        let (word, context) = outcome(&TurnOutcome::StepLimit { steps: 9 });
        assert_eq!(
            (word.as_str(), pairs(&context)),
            ("step_limit", vec![("steps".into(), "9".into())])
        );
    }
}

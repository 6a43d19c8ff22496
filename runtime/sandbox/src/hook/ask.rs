//! What a hook is asked: each question in the words of the contract.

use std::future::Future;

use serde_json::{Map, Value, json};
use toolcell_core::Content;
use wasmtime::Store;

use super::answer::Answer;
use super::{Failure, FinishedCall, FinishedTurn, PendingCall, Prompt, Turn};
use crate::bindings::{self, HookProvider, HookProviderPre, hooks};
use crate::cell::GuestCall;
use crate::cell::state::CellState;
use crate::tool::content_len;

/// What a hook is asked at one moment.
pub(crate) trait HookRequest: Send {
    /// In the words of the contract.
    type Wire: Send;
    /// What it answers, in the words of the contract.
    type Said: Answer + Send;

    fn wire(self) -> Self::Wire;

    /// Bytes that the guest receives.
    fn bytes(wire: &Self::Wire) -> usize;

    fn put(
        wire: &Self::Wire,
        turn: &hooks::Turn,
        guest: &HookProvider,
        store: &mut Store<CellState>,
    ) -> impl Future<Output = wasmtime::Result<Result<Self::Said, String>>> + Send;
}

/// Asks a hook one question.
pub(super) struct HookCall<Q: HookRequest> {
    wire: Q::Wire,
    turn: hooks::Turn,
}

impl<Q: HookRequest> HookCall<Q> {
    pub(super) fn new(question: Q, turn: Turn) -> Self {
        Self {
            wire: question.wire(),
            turn: hooks::Turn {
                session: turn.session,
                values: pairs(turn.values),
                context: Vec::new(),
            },
        }
    }

    /// Bytes that the guest receives, for the receipt.
    pub(super) fn bytes_in(&self) -> u64 {
        (Q::bytes(&self.wire) + pairs_len(&self.turn.values)) as u64
    }
}

impl<Q: HookRequest> GuestCall for HookCall<Q> {
    type World = HookProviderPre<CellState>;
    type Done = Result<Q::Said, String>;

    async fn run(self, guest: &HookProvider, store: &mut Store<CellState>) -> wasmtime::Result<Self::Done> {
        Q::put(&self.wire, &self.turn, guest, store).await
    }

    fn bytes_out(done: &Self::Done) -> u64 {
        match done {
            Ok(said) => said.bytes() as u64,
            Err(text) => text.len() as u64,
        }
    }
}

impl HookRequest for Prompt {
    type Wire = hooks::Prompt;
    type Said = hooks::PromptAnswer;

    fn wire(self) -> hooks::Prompt {
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

    async fn put(
        wire: &hooks::Prompt,
        turn: &hooks::Turn,
        guest: &HookProvider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Result<hooks::PromptAnswer, String>> {
        guest
            .toolcell_tool_hooks()
            .call_before_prompt(store, wire, turn)
            .await
    }
}

impl HookRequest for PendingCall {
    type Wire = hooks::PendingCall;
    type Said = hooks::CallAnswer;

    fn wire(self) -> hooks::PendingCall {
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

    async fn put(
        wire: &hooks::PendingCall,
        turn: &hooks::Turn,
        guest: &HookProvider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Result<hooks::CallAnswer, String>> {
        guest
            .toolcell_tool_hooks()
            .call_before_call(store, wire, turn)
            .await
    }
}

impl HookRequest for FinishedCall {
    type Wire = hooks::FinishedCall;
    type Said = hooks::Effects;

    fn wire(self) -> hooks::FinishedCall {
        let receipt = self.receipt.as_ref().map(|receipt| {
            serde_json::to_string(receipt).expect("a receipt is numbers, texts and lists of them")
        });
        hooks::FinishedCall {
            id: self.id,
            tool: self.tool,
            arguments: self.arguments.to_string(),
            content: contents(self.content),
            error: self.error.map(Failure::wire),
            receipt,
            duration_ms: self.duration_ms,
            context: Vec::new(),
        }
    }

    fn bytes(wire: &hooks::FinishedCall) -> usize {
        let content: usize = wire.content.iter().map(content_len).sum();
        wire.arguments.len() + content + wire.receipt.as_ref().map_or(0, String::len)
    }

    async fn put(
        wire: &hooks::FinishedCall,
        turn: &hooks::Turn,
        guest: &HookProvider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Result<hooks::Effects, String>> {
        guest
            .toolcell_tool_hooks()
            .call_after_call(store, wire, turn)
            .await
    }
}

impl HookRequest for FinishedTurn {
    type Wire = hooks::FinishedTurn;
    type Said = hooks::Effects;

    fn wire(self) -> hooks::FinishedTurn {
        hooks::FinishedTurn {
            outcome: self.outcome,
            text: self.text,
            steps: self.steps,
            context: pairs(self.context),
        }
    }

    fn bytes(wire: &hooks::FinishedTurn) -> usize {
        wire.text.len() + pairs_len(&wire.context)
    }

    async fn put(
        wire: &hooks::FinishedTurn,
        turn: &hooks::Turn,
        guest: &HookProvider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Result<hooks::Effects, String>> {
        guest
            .toolcell_tool_hooks()
            .call_after_turn(store, wire, turn)
            .await
    }
}

impl HookRequest for Failure {
    type Wire = hooks::Failure;
    type Said = hooks::Effects;

    fn wire(self) -> hooks::Failure {
        hooks::Failure {
            kind: self.kind,
            message: self.message,
        }
    }

    fn bytes(wire: &hooks::Failure) -> usize {
        wire.message.len()
    }

    async fn put(
        wire: &hooks::Failure,
        turn: &hooks::Turn,
        guest: &HookProvider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Result<hooks::Effects, String>> {
        guest.toolcell_tool_hooks().call_on_error(store, wire, turn).await
    }
}

fn pairs(values: Map<String, Value>) -> Vec<(String, String)> {
    values
        .into_iter()
        .map(|(name, value)| (name, value.to_string()))
        .collect()
}

fn pairs_len(pairs: &[(String, String)]) -> usize {
    pairs.iter().map(|(name, value)| name.len() + value.len()).sum()
}

fn contents(contents: Vec<Content>) -> Vec<bindings::Content> {
    contents.into_iter().map(of_core).collect()
}

fn of_core(content: Content) -> bindings::Content {
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

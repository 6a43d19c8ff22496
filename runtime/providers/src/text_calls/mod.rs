//! Calls in text, for models that have no tool calling of their own.
//!
//! [`TextCalls`] wraps any provider: it describes the tools in the system prompt, writes calls and results into the
//! conversation as text, and reads calls out of what the model writes. One format is asked for; all that models are known
//! to write are understood, because a model that was trained on another one falls back to it.
//!
//! What must hold: only the model's own answer is read, never a result or a message of the person; a format that could
//! also be an ordinary answer (bare JSON, a Python call) counts only when it is the whole answer and names a tool that
//! is offered; what is read as a call is not shown.

mod format;
mod names;
mod scan;
mod syntax;
mod value;

use std::sync::Arc;

use toolcell_core::provider::{
    Completion, Delta, ProviderErrorKind, ProviderInfo, Request, StopReason, ToolChoice,
};
use toolcell_core::{BoxStream, Part, Provider, ProviderError};

use crate::answer::Answer;
use crate::emit::{self, Emitter};
pub use format::TextFormat;
use names::Offered;
use scan::{Scanner, Seen};

/// A provider whose model calls tools in text.
#[derive(Debug)]
pub struct TextCalls<P> {
    inner: P,
    format: TextFormat,
}

impl<P: Provider> TextCalls<P> {
    /// Wraps a provider; `format` is the one that the model is asked to write.
    pub fn new(inner: P, format: TextFormat) -> Self {
        Self { inner, format }
    }

    async fn play(&self, request: Request, mut out: Emitter) -> Result<Completion, ProviderError> {
        let offered = Offered::new(match request.tool_choice {
            ToolChoice::None => Arc::from([]),
            _ => request.tools.clone(),
        });
        let mut answer = Answer::to(&request, &self.info().provider);
        let mut scanner = Scanner::new(offered, self.format);
        let mut inner = self.inner.stream(format::request(&request, self.format));
        loop {
            let item = std::future::poll_fn(|cx| inner.as_mut().poll_next(cx)).await;
            let seen = match item {
                Some(Ok(Delta::Text(text))) => scanner.feed(&text),
                Some(Ok(Delta::Finished(completion))) => {
                    let cut = completion.stop == StopReason::MaxTokens;
                    put(scanner.finish(cut), &mut answer, &mut out).await?;
                    return Ok(joined(completion, &mut answer));
                }
                Some(Ok(Delta::CallStarted { .. } | Delta::CallArguments { .. })) => continue,
                Some(Ok(other)) => {
                    out.emit(other).await;
                    continue;
                }
                Some(Err(error)) => return Err(error),
                None => {
                    return Err(ProviderError::new(
                        &self.info().provider,
                        ProviderErrorKind::Truncated,
                        "the stream ended without an end",
                    ));
                }
            };
            put(seen, &mut answer, &mut out).await?;
        }
    }
}

async fn put(seen: Vec<Seen>, answer: &mut Answer, out: &mut Emitter) -> Result<(), ProviderError> {
    for seen in seen {
        match seen {
            Seen::Text(text) => answer.text(&text),
            Seen::Reasoning(text) => answer.reasoning(&text),
            Seen::Call(call) => {
                let position = answer.call(None, &call.name);
                answer.arguments(position, &call.arguments);
            }
        }
    }
    for delta in answer.take_deltas() {
        out.emit(delta).await;
    }
    answer.check_size().map_err(|failure| failure.error)
}

/// The answer as it was read, with what the provider wants back and calls of its own kind.
fn joined(completion: Completion, answer: &mut Answer) -> Completion {
    // A call that is whole in the text is whole, whatever ended the answer after it.
    let read = answer.complete(StopReason::Complete, completion.usage);
    let (reasoning, rest): (Vec<Part>, Vec<Part>) = completion
        .parts
        .into_iter()
        .filter(|part| !matches!(part, Part::Text { .. }))
        .partition(|part| matches!(part, Part::Reasoning { .. }));
    Completion {
        parts: reasoning.into_iter().chain(read.parts).chain(rest).collect(),
        stop: completion.stop,
        usage: completion.usage,
    }
}

impl<P: Provider> Provider for TextCalls<P> {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        emit::stream(|out| self.play(request, out))
    }
}

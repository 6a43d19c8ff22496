//! Calls in text, for models without tool calling or with unreliable tool calling.
//!
//! [`TextCalls`] wraps any provider. [`TextCalls::new`] is for models without tool calling: it describes the tools in
//! the system prompt, writes calls and results into the conversation as text, and parses calls from the model's text.
//! The model is asked for one format; all known formats are parsed, because a model that was trained on another one
//! falls back to it.
//!
//! [`TextCalls::watching`] leaves the request unchanged and only parses the answer, for local models whose server
//! sometimes returns a call as text.
//!
//! Invariants: only the model's own answer is parsed, never a result or a user message; a format that could also be an
//! ordinary answer (bare JSON, a Python call) is a call only if it is the whole answer and names an offered tool; text
//! that is parsed as a call is not shown.

mod bare;
mod format;
mod names;
mod object;
mod scan;
mod syntax;
mod tags;
mod tokens;
mod value;

use std::sync::Arc;

use toolcell_core::provider::{
    Completion, Delta, ModelInfo, ProviderErrorKind, ProviderInfo, Request, StopReason, ToolChoice,
};
use toolcell_core::{BoxFuture, BoxStream, Part, Provider, ProviderError};

use crate::emit::{self, Emitter};
use crate::response_builder::ResponseBuilder;
pub use format::TextFormat;
use names::Offered;
use scan::{Scanner, Seen};

/// Provider whose model calls tools in text.
///
/// ```
/// use toolcell_providers::Connection;
/// use toolcell_providers::ollama::Ollama;
/// use toolcell_providers::text_calls::{TextCalls, TextFormat};
///
/// let model = TextCalls::new(Ollama::new(Connection::new("gemma3"))?, TextFormat::Hermes);
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
#[derive(Debug)]
pub struct TextCalls<P> {
    inner: P,
    /// Requested format; `None` for the provider's own tool calling.
    format: Option<TextFormat>,
}

impl<P: Provider> TextCalls<P> {
    /// Wraps a provider; `format` is the format that the model is asked for.
    pub fn new(inner: P, format: TextFormat) -> Self {
        Self {
            inner,
            format: Some(format),
        }
    }

    /// Wraps a provider with tool calling whose model sometimes writes a call as text.
    pub fn watching(inner: P) -> Self {
        Self { inner, format: None }
    }

    async fn play(&self, request: Request, mut out: Emitter) -> Result<Completion, ProviderError> {
        let offered = Offered::new(match request.tool_choice {
            ToolChoice::None => Arc::from([]),
            _ => request.tools.clone(),
        });
        let mut reading = Reading {
            answer: ResponseBuilder::to(&request, &self.info().provider),
            order: Vec::new(),
        };
        let mut scanner = Scanner::new(offered, self.format.unwrap_or_default());
        let mut inner = self.inner.stream(match self.format {
            Some(format) => format::request(&request, format),
            None => request,
        });
        loop {
            let item = std::future::poll_fn(|cx| inner.as_mut().poll_next(cx)).await;
            match item {
                Some(Ok(Delta::Text(text))) => reading.put(scanner.feed(&text), &mut out).await?,
                Some(Ok(Delta::Finished(completion))) => {
                    let is_cut = completion.stop == StopReason::MaxTokens;
                    reading.put(scanner.finish(is_cut), &mut out).await?;
                    return Ok(reading.joined(completion));
                }
                Some(Ok(other)) => {
                    let other = reading.own(other);
                    out.emit(other).await;
                }
                Some(Err(error)) => return Err(error),
                None => {
                    return Err(ProviderError::new(
                        &self.info().provider,
                        ProviderErrorKind::Truncated,
                        "the stream ended without a final event",
                    ));
                }
            }
        }
    }
}

/// Answer of which one part is parsed from text and another comes from the provider.
struct Reading {
    answer: ResponseBuilder,
    /// Origin of each call, in the order in which they started.
    order: Vec<Origin>,
}

/// Origin of a call, with its index among the calls of that origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Text(usize),
    Provider(usize),
}

impl Reading {
    /// Index of a call in the whole answer; a new one at its first mention.
    fn position(&mut self, origin: Origin) -> usize {
        self.order
            .iter()
            .position(|known| *known == origin)
            .unwrap_or_else(|| {
                self.order.push(origin);
                self.order.len() - 1
            })
    }

    /// A delta with the index of its call in the whole answer.
    fn placed(&mut self, delta: Delta, origin: fn(usize) -> Origin) -> Delta {
        match delta {
            Delta::CallStarted { index, name } => Delta::CallStarted {
                index: self.position(origin(index)),
                name,
            },
            Delta::CallArguments { index, fragment } => Delta::CallArguments {
                index: self.position(origin(index)),
                fragment,
            },
            other => other,
        }
    }

    /// A delta of the provider that is not text.
    fn own(&mut self, delta: Delta) -> Delta {
        self.placed(delta, Origin::Provider)
    }

    async fn put(&mut self, seen: Vec<Seen>, out: &mut Emitter) -> Result<(), ProviderError> {
        for seen in seen {
            match seen {
                Seen::Text(text) => self.answer.text(&text),
                Seen::Reasoning(text) => self.answer.reasoning(&text),
                Seen::Call(call) => {
                    if let Some(position) = self.answer.call(None, &call.name) {
                        self.answer.arguments(position, &call.arguments);
                    }
                }
            }
        }
        for delta in self.answer.take_deltas() {
            let delta = self.placed(delta, Origin::Text);
            out.emit(delta).await;
        }
        self.answer.check_size().map_err(|failure| failure.error)
    }

    /// The whole answer: opaque provider data first, then the parsed text, calls in the order in which they started.
    fn joined(mut self, completion: Completion) -> Completion {
        // A call that is complete in the text stays complete, whatever the stop reason.
        let read = self.answer.complete(StopReason::Complete, completion.usage).parts;
        if text_of(&read) == Some(text_of_provider(&completion)) {
            // Without parsed calls, opaque provider data stays with its text.
            return completion;
        }
        let is_call = |part: &Part| matches!(part, Part::Call(_));
        let (own_calls, own): (Vec<Part>, Vec<Part>) = completion
            .parts
            .into_iter()
            .filter(|part| !matches!(part, Part::Text { .. }))
            .partition(is_call);
        let mut parts = own;
        if own_calls.is_empty() {
            parts.extend(read);
        } else {
            let (read_calls, rest): (Vec<Part>, Vec<Part>) = read.into_iter().partition(is_call);
            parts.extend(rest);
            let (mut read_calls, mut own_calls) = (read_calls.into_iter(), own_calls.into_iter());
            for origin in &self.order {
                parts.extend(match origin {
                    Origin::Text(_) => read_calls.next(),
                    Origin::Provider(_) => own_calls.next(),
                });
            }
            parts.extend(own_calls);
        }
        Completion {
            parts,
            stop: completion.stop,
            usage: completion.usage,
        }
    }
}

/// Text of parts that consist of text only.
fn text_of(parts: &[Part]) -> Option<String> {
    parts
        .iter()
        .map(|part| match part {
            Part::Text { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

fn text_of_provider(completion: &Completion) -> String {
    let texts = completion.parts.iter().filter_map(|part| match part {
        Part::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

impl<P: Provider> Provider for TextCalls<P> {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        emit::stream(|out| self.play(request, out))
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<ModelInfo>, ProviderError>> {
        self.inner.models()
    }
}

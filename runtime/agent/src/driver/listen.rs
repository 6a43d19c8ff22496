//! Request to the model and its streamed answer.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use toolcell_core::event::NoticeLevel;
use toolcell_core::provider::{
    Completion, Delta, Provider, ProviderError, ProviderErrorKind, Request, StopReason,
};
use toolcell_core::{BoxStream, Event, Part};
use tracing::{Instrument as _, Span};

use crate::context::BYTES_PER_TOKEN;
use crate::driver::spans;

/// Request whose answer is streaming.
pub(super) struct ModelStream<'a> {
    provider: &'a dyn Provider,
    stream: BoxStream<'a, Result<Delta, ProviderError>>,
    deadline: Option<(Instant, Duration)>,
    span: Span,
    text: String,
    begun: BTreeMap<usize, String>,
    /// Maximum tokens of the answer that the budget allows.
    max_output: Option<u64>,
    /// Bytes of the answer so far.
    bytes: u64,
}

/// Item of a [`ModelStream`].
pub(super) enum StreamItem {
    /// Event to show.
    Piece(Event),
    /// Nothing to show.
    Nothing,
    /// Complete answer, with the names of the tools of calls that were cut off.
    Answer(Completion, Vec<String>),
    /// Failure, and the partial answer.
    Failure(ProviderError, String),
    /// The answer exceeded the budget's limit, whatever limit was requested.
    TooLong {
        /// Tokens that the budget allowed.
        tokens: u64,
    },
}

/// Token limit of the request. The budget's limit is sent to the provider only if every model accepts a limit of this
/// size; otherwise the answer is cancelled while it streams.
fn limited(own: Option<u64>, left: Option<u64>) -> Option<u64> {
    /// Largest limit that every model accepts, in tokens.
    const ACCEPTED: u64 = 4_096;
    match (own, left) {
        (Some(own), Some(left)) => Some(own.min(left)),
        (None, Some(left)) if left <= ACCEPTED => Some(left),
        (own, _) => own,
    }
}

impl<'a> ModelStream<'a> {
    pub(super) fn new(
        session: &str,
        provider: &'a dyn Provider,
        mut request: Request,
        timeout: Option<Duration>,
        max_output: Option<u64>,
    ) -> Self {
        request.max_output_tokens = limited(request.max_output_tokens, max_output);
        Self {
            provider,
            stream: provider.stream(request),
            span: spans::chat(session, provider.info()),
            deadline: timeout.map(|timeout| (Instant::now() + timeout, timeout)),
            text: String::new(),
            begun: BTreeMap::new(),
            max_output,
            bytes: 0,
        }
    }

    /// The partial answer.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Waits for the next item. Cancel safe.
    pub(super) async fn next(&mut self) -> StreamItem {
        let next = self.stream.next().instrument(self.span.clone());
        let item = match self.deadline {
            None => next.await,
            Some((at, timeout)) => match tokio::time::timeout_at(at, next).await {
                Ok(item) => item,
                Err(_) => {
                    let message = format!("the request timed out after {} ms", timeout.as_millis());
                    return self.failure(ProviderErrorKind::Timeout, message);
                }
            },
        };
        match item {
            None => self.failure(
                ProviderErrorKind::Truncated,
                "the stream ended without a final event".into(),
            ),
            Some(Err(error)) => self.failed(error),
            Some(Ok(delta)) => self.delta(delta),
        }
    }

    fn delta(&mut self, delta: Delta) -> StreamItem {
        let bytes = match &delta {
            Delta::Text(text) | Delta::Reasoning(text) => text.len(),
            Delta::CallStarted { name, .. } => name.len(),
            Delta::CallArguments { fragment, .. } => fragment.len(),
            Delta::Retry { .. } | Delta::Notice(_) | Delta::Finished(_) => 0,
        };
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if let Some(tokens) = self.max_output
            && self.bytes / (BYTES_PER_TOKEN as u64) > tokens
        {
            return StreamItem::TooLong { tokens };
        }
        match delta {
            Delta::Text(text) => {
                self.text.push_str(&text);
                StreamItem::Piece(Event::TextDelta { text })
            }
            Delta::Reasoning(text) => StreamItem::Piece(Event::ReasoningDelta { text }),
            Delta::CallStarted { index, name } => {
                self.begun.insert(index, name);
                StreamItem::Nothing
            }
            Delta::CallArguments { .. } => StreamItem::Nothing,
            Delta::Retry {
                attempt,
                delay_ms,
                reason,
            } => StreamItem::Piece(Event::Retry {
                attempt,
                delay_ms,
                reason,
            }),
            Delta::Notice(text) => StreamItem::Piece(Event::Notice {
                level: NoticeLevel::Warning,
                hook: None,
                text,
            }),
            Delta::Finished(completion) => {
                let cut = self.cut_off(&completion);
                spans::answered(&self.span, &completion);
                StreamItem::Answer(completion, cut)
            }
        }
    }

    /// Calls that started and are missing from an answer that reached its token limit.
    fn cut_off(&self, completion: &Completion) -> Vec<String> {
        if completion.stop != StopReason::MaxTokens {
            return Vec::new();
        }
        let whole = completion
            .parts
            .iter()
            .filter(|part| matches!(part, Part::Call(_)))
            .count();
        self.begun.values().skip(whole).cloned().collect()
    }

    fn failure(&mut self, kind: ProviderErrorKind, message: String) -> StreamItem {
        self.failed(ProviderError::new(&self.provider.info().provider, kind, message))
    }

    fn failed(&mut self, error: ProviderError) -> StreamItem {
        spans::failed(&self.span, &error.kind.to_string());
        StreamItem::Failure(error, std::mem::take(&mut self.text))
    }
}

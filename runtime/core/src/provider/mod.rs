//! The second seam: a model.

pub mod message;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{BoxStream, Message, Part, Schema, ToolName, ToolSpec};

/// A model behind a wire.
pub trait Provider: Send + Sync {
    /// Which model this is.
    fn info(&self) -> &ProviderInfo;

    /// Sends one request and streams the answer.
    ///
    /// The last item is [`Delta::Finished`] or an error; a wire that ends without saying so is
    /// [`ProviderErrorKind::Truncated`]. Dropping the stream closes the connection. A provider retries only before the
    /// first delta; afterwards an error is the caller's to handle.
    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>>;
}

impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn info(&self) -> &ProviderInfo {
        (**self).info()
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        (**self).stream(request)
    }
}

/// Which model a provider stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderInfo {
    /// Name of the provider, such as `openai`; the OpenTelemetry `gen_ai.provider.name` where one is defined.
    pub provider: String,
    /// Name of the model.
    pub model: String,
}

/// One request to a model. Cloning it is cheap.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The system prompt; empty means none.
    pub instructions: Arc<str>,
    /// The conversation. Each call has exactly one result, directly after its message, in order.
    pub messages: Vec<Arc<Message>>,
    /// The tools that the model may call, in a stable order.
    pub tools: Arc<[ToolSpec]>,
    /// Whether it must, may or must not call one.
    pub tool_choice: ToolChoice,
    /// Whether it may ask for several calls at once; `None` leaves it to the provider.
    pub parallel_calls: Option<bool>,
    /// Most tokens to produce; `None` leaves it to the provider.
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature; `None` leaves it to the provider.
    pub temperature: Option<f64>,
    /// A schema that the final text must fit, for providers that can promise it.
    pub response_schema: Option<Arc<Schema>>,
    /// How much the model shall reason, in the provider's own words (`low`, `high`, …); `None` leaves it to the provider.
    pub reasoning_effort: Option<Arc<str>>,
    /// Identifier of the session, for prompt caches.
    pub session: Option<Arc<str>>,
}

/// Whether a model must, may or must not call a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// It may.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must call at least one.
    Required,
    /// It must call this one.
    Tool(ToolName),
}

/// One piece of a streamed answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// More text for the person.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// A call begins; its arguments follow.
    CallStarted {
        /// Position among the calls of this answer.
        index: usize,
        /// Name of the tool.
        name: String,
    },
    /// More of a call's arguments.
    CallArguments {
        /// Position among the calls of this answer.
        index: usize,
        /// The next piece of the JSON text.
        fragment: String,
    },
    /// The request failed and is sent again after a pause. Nothing was produced before it.
    Retry {
        /// Which attempt comes next; the first retry is 2.
        attempt: u32,
        /// How long the pause is, in milliseconds.
        delay_ms: u64,
        /// Why.
        reason: String,
    },
    /// The answer is complete. Always last.
    Finished(Completion),
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// Everything that the model produced, in order.
    pub parts: Vec<Part>,
    /// Why it stopped.
    pub stop: StopReason,
    /// What it cost, if the provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// Why a model stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was done, or it waits for the results of its calls.
    #[default]
    Complete,
    /// It reached the limit of tokens. A call that was cut off is not among the parts.
    MaxTokens,
    /// The provider's filter or the model itself refused.
    Refused,
    /// The provider asks to send the conversation again as it is.
    Paused,
    /// Something else, in the provider's words.
    Other(String),
}

/// Tokens of one request, in one shape for all providers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// All input tokens, with those read from and written to a cache.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// All output tokens, with those of reasoning.
    pub output: u64,
    /// Output tokens of reasoning.
    pub reasoning: u64,
}

/// Why a provider gave no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[error("{provider}: {kind}: {message}")]
pub struct ProviderError {
    /// Name of the provider.
    pub provider: String,
    /// What the receiver can do about it.
    pub kind: ProviderErrorKind,
    /// What the provider said, or the chain of causes.
    pub message: String,
    /// The HTTP status, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the provider asks to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// What can be done about a [`ProviderError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// No key, or a key that is not accepted (401, 403). Set another one.
    Unauthorized,
    /// Too many requests (429). Wait.
    RateLimited,
    /// The provider is overloaded or broken (5xx, 408). Wait.
    Unavailable,
    /// The conversation is too long for the model. Shorten it.
    ContextLength,
    /// The provider does not accept the request (other 4xx).
    InvalidRequest,
    /// The answer ended before it was complete.
    Truncated,
    /// The answer breaks the wire's format.
    Protocol,
    /// No answer within a time limit.
    Timeout,
    /// No connection.
    Network,
}

impl std::fmt::Display for ProviderErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unauthorized => "the key was not accepted",
            Self::RateLimited => "too many requests",
            Self::Unavailable => "the provider is not available",
            Self::ContextLength => "the conversation is too long for the model",
            Self::InvalidRequest => "the request was not accepted",
            Self::Truncated => "the answer ended before it was complete",
            Self::Protocol => "the answer breaks the wire's format",
            Self::Timeout => "no answer in time",
            Self::Network => "no connection",
        })
    }
}

impl ProviderError {
    /// An error without status or waiting time.
    pub fn new(provider: &str, kind: ProviderErrorKind, message: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            kind,
            message: message.into(),
            status: None,
            retry_after_ms: None,
        }
    }

    /// How long the provider asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_ms.map(Duration::from_millis)
    }
}

/// Prices of one million tokens each, in millionths of a unit of money of the user's choice (3 dollars are 3,000,000).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Input tokens that no cache held.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens, with those of reasoning.
    pub output: u64,
}

impl Prices {
    /// Cost of these tokens, in millionths of a unit of money.
    pub fn cost_micros(&self, usage: &Usage) -> u64 {
        let fresh = usage
            .input
            .saturating_sub(usage.cache_read)
            .saturating_sub(usage.cache_write);
        let sum = [
            (fresh, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
            (usage.output, self.output),
        ]
        .into_iter()
        .map(|(tokens, price)| u128::from(tokens) * u128::from(price))
        .fold(0, u128::saturating_add);
        u64::try_from(sum / 1_000_000).unwrap_or(u64::MAX)
    }
}

impl Usage {
    /// Adds another request's tokens.
    pub fn add(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_cost_by_their_kind() {
        let prices = Prices {
            input: 3_000_000,
            cache_read: 300_000,
            cache_write: 3_750_000,
            output: 15_000_000,
        };
        let usage = Usage {
            input: 1_000,
            cache_read: 200,
            cache_write: 100,
            output: 10,
            reasoning: 5,
        };
        // 700 fresh tokens at 3, 200 at 0.3, 100 at 3.75 and 10 at 15 millionths each.
        assert_eq!(prices.cost_micros(&usage), 2_100 + 60 + 375 + 150);
        assert_eq!(prices.cost_micros(&Usage::default()), 0);
        assert_eq!(Prices::default().cost_micros(&usage), 0);
        let most = Usage {
            output: u64::MAX,
            ..Usage::default()
        };
        assert_eq!(prices.cost_micros(&most), u64::MAX);
    }

    #[test]
    fn tokens_of_two_requests_are_summed_by_kind() {
        let usage = |n| Usage {
            input: n,
            cache_read: n + 1,
            cache_write: n + 2,
            output: n + 3,
            reasoning: n + 4,
        };
        let mut sum = usage(10);
        sum.add(usage(100));
        let expected = Usage {
            input: 110,
            cache_read: 112,
            cache_write: 114,
            output: 116,
            reasoning: 118,
        };
        assert_eq!(sum, expected);
        sum.add(Usage {
            input: u64::MAX,
            ..Usage::default()
        });
        assert_eq!(sum.input, u64::MAX);
    }

    #[test]
    fn an_error_says_what_failed_and_how_long_to_wait() {
        let mut error = ProviderError::new("p", ProviderErrorKind::RateLimited, "slow down");
        assert_eq!(error.to_string(), "p: too many requests: slow down");
        assert_eq!(error.retry_after(), None);
        error.retry_after_ms = Some(1_500);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(1_500)));
    }
}

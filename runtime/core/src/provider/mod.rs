//! Providers of language models.

pub mod message;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{BoxFuture, BoxStream, Message, Part, Schema, ToolName, ToolSpec};

/// A language model, accessed over some protocol.
pub trait Provider: Send + Sync {
    /// Returns the identity of the model.
    fn info(&self) -> &ProviderInfo;

    /// Sends one request and streams the response.
    ///
    /// The last item is [`Delta::Finished`] or an error; a connection that ends earlier yields
    /// [`ProviderErrorKind::Truncated`]. Dropping the stream closes the connection. A provider retries only before the
    /// first delta; later errors are returned to the caller.
    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>>;

    /// Lists the models of the service, in its order. By default, there is no list.
    fn models(&self) -> BoxFuture<'_, Result<Vec<ModelInfo>, ProviderError>> {
        let provider = &self.info().provider;
        let none = ProviderError::new(
            provider,
            ProviderErrorKind::InvalidRequest,
            "it has no list of models",
        );
        Box::pin(std::future::ready(Err(none)))
    }
}

impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn info(&self) -> &ProviderInfo {
        (**self).info()
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        (**self).stream(request)
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<ModelInfo>, ProviderError>> {
        (**self).models()
    }
}

/// Identity of a model and its provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderInfo {
    /// Name of the provider, such as `openai`; the OpenTelemetry `gen_ai.provider.name` where one is defined.
    pub provider: String,
    /// Name of the model.
    pub model: String,
}

/// Model in the list of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Name, as requests have it.
    pub name: String,
    /// Length of its context, in tokens, if the service says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
}

/// One request to a model. Cloning it is cheap.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The system prompt; empty means none.
    pub instructions: Arc<str>,
    /// The conversation. Each call has exactly one result, directly after its message, in order.
    pub messages: Vec<Arc<Message>>,
    /// Tools that the model may call, in a stable order.
    pub tools: Arc<[ToolSpec]>,
    /// Constraint on calls in this response.
    pub tool_choice: ToolChoice,
    /// Allows several calls in one response; `None` uses the provider's default.
    pub parallel_calls: Option<bool>,
    /// Maximum number of output tokens; `None` uses the provider's default.
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature; `None` uses the provider's default.
    pub temperature: Option<f64>,
    /// Probability mass of the tokens that are sampled; `None` uses the provider's default.
    pub top_p: Option<f64>,
    /// Texts at which the answer ends. Ignored by protocols without such a parameter (`responses`).
    pub stop: Arc<[String]>,
    /// Seed of the sampling. Ignored by protocols without such a parameter (`responses`, `anthropic`).
    pub seed: Option<u64>,
    /// Schema of the final text, for providers that support structured output.
    pub response_schema: Option<Arc<Schema>>,
    /// Reasoning effort, in the provider's terms (`low`, `high`, …); `None` uses the provider's default.
    pub reasoning_effort: Option<Arc<str>>,
    /// Identifier of the session, for prompt caches.
    pub session: Option<Arc<str>>,
}

/// Constraint on tool calls in a response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// Calls are allowed.
    #[default]
    Auto,
    /// Calls are forbidden.
    None,
    /// At least one call is required.
    Required,
    /// A call to this tool is required.
    Tool(ToolName),
}

/// One item of a streamed response.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// Fragment of text for the user.
    Text(String),
    /// Fragment of reasoning.
    Reasoning(String),
    /// A call begins; its arguments follow.
    CallStarted {
        /// Index among the calls of this response.
        index: usize,
        /// Name of the tool.
        name: String,
    },
    /// Fragment of a call's arguments.
    CallArguments {
        /// Index among the calls of this response.
        index: usize,
        /// Next fragment of the JSON text.
        fragment: String,
    },
    /// The request failed and is retried after a delay. Nothing was produced before.
    Retry {
        /// Number of the next attempt; the first retry is 2.
        attempt: u32,
        /// Delay in milliseconds.
        delay_ms: u64,
        /// Reason of the failure.
        reason: String,
    },
    /// Fact that the user should know, such as a parameter that the server refused and that is left out from now on, a file
    /// that is not sent, or the provider's reason for the end of an answer.
    Notice(String),
    /// The response is complete. Always the last item.
    Finished(Completion),
}

/// A complete response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// Parts of the response, in order.
    pub parts: Vec<Part>,
    /// Reason why the model stopped.
    pub stop: StopReason,
    /// Tokens used, if the provider reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// Reason why a model stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The response is complete, or the model waits for the results of its calls.
    #[default]
    Complete,
    /// The token limit was reached. A truncated call is not among the parts.
    MaxTokens,
    /// The model or the provider's filter refused.
    Refused,
    /// The provider requests that the conversation be sent again unchanged.
    Paused,
    /// The model wrote a call that the provider could not read. The response has no part of it.
    MalformedCall,
    /// Another reason, in the provider's terms.
    Other(String),
}

/// Token counts of one request, with the same meaning for all providers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// All input tokens, including cache reads and writes.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// All output tokens, including reasoning.
    pub output: u64,
    /// Output tokens of reasoning.
    pub reasoning: u64,
    /// True if `input` or `output`, or a part of a sum, is an estimate by length: the provider did not report it, or reported
    /// fewer tokens than the answer can have.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// True if a part of the tokens has no price while others have one: their cost is more than what is known of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
    /// Cost in millionths of the currency unit of the [`Prices`], if another model than the session's own answered. Without
    /// it the prices of the session apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
}

/// Error of a provider.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[error("{provider}: {kind}: {message}{}", unmet_wait(*.retry_after_ms, *.wait_limit))]
pub struct ProviderError {
    /// Name of the provider.
    pub provider: String,
    /// Kind of the error.
    pub kind: ProviderErrorKind,
    /// Message of the provider, or the chain of causes.
    pub message: String,
    /// The HTTP status, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Delay requested by the provider, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Limit that the delay exceeds, so that the provider did not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_limit: Option<WaitLimit>,
}

/// Limit of a delay that a server asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitLimit {
    /// The longest delay that any request is held for.
    Longest,
    /// The time limit of the request.
    RequestTimeout,
}

/// Kind of a [`ProviderError`], by what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// Missing or rejected API key (401, 403). Set another one.
    Unauthorized,
    /// Too many requests (429). Wait.
    RateLimited,
    /// The quota or balance of the account is used up. Pay, or use another account.
    QuotaExceeded,
    /// The provider is overloaded or failing (5xx, 408). Wait.
    Unavailable,
    /// The conversation exceeds the context window of the model. Shorten it.
    ContextLength,
    /// The model does not support tool calling. Use a text format for calls, or another model.
    ToolsUnsupported,
    /// The provider rejects the request (other 4xx).
    InvalidRequest,
    /// The response ended early.
    Truncated,
    /// The response violates the protocol.
    Protocol,
    /// No response within a time limit.
    Timeout,
    /// The connection failed.
    Network,
}

impl std::fmt::Display for ProviderErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unauthorized => "the API key was not accepted",
            Self::RateLimited => "too many requests",
            Self::QuotaExceeded => "the quota of the account is used up",
            Self::Unavailable => "the provider is not available",
            Self::ContextLength => "the conversation is too long for the model",
            Self::ToolsUnsupported => "the model does not support tool calling",
            Self::InvalidRequest => "the request was not accepted",
            Self::Truncated => "the response ended before it was complete",
            Self::Protocol => "the response violates the protocol",
            Self::Timeout => "no response in time",
            Self::Network => "no connection",
        })
    }
}

/// Describes a delay that the provider did not wait for.
fn unmet_wait(retry_after_ms: Option<u64>, limit: Option<WaitLimit>) -> String {
    match (retry_after_ms, limit) {
        (Some(ms), Some(_)) => format!(" (the server asks to wait {} s)", ms.div_ceil(1_000)),
        _ => String::new(),
    }
}

impl ProviderError {
    /// Creates an error without status and delay.
    pub fn new(provider: &str, kind: ProviderErrorKind, message: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            kind,
            message: message.into(),
            status: None,
            retry_after_ms: None,
            wait_limit: None,
        }
    }

    /// Returns the delay requested by the provider.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_ms.map(Duration::from_millis)
    }
}

/// Prices of one million tokens each, in millionths of a currency unit of the user's choice (3 dollars are 3,000,000).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Input tokens that are neither read from nor written to a cache.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
}

impl Prices {
    /// Returns the cost of these tokens, in millionths of a currency unit.
    pub fn cost_micros(&self, usage: &Usage) -> u64 {
        // Cached tokens are a part of the input, whatever a provider reports.
        let cache_read = usage.cache_read.min(usage.input);
        let cache_write = usage.cache_write.min(usage.input - cache_read);
        let sum = [
            (usage.input - cache_read - cache_write, self.input),
            (cache_read, self.cache_read),
            (cache_write, self.cache_write),
            (usage.output, self.output),
        ]
        .into_iter()
        .map(|(tokens, price)| u128::from(tokens) * u128::from(price))
        .fold(0, u128::saturating_add);
        u64::try_from(sum / 1_000_000).unwrap_or(u64::MAX)
    }
}

impl Usage {
    /// Adds the tokens of another request; the cost of either is not part of a sum.
    pub fn add(&mut self, other: Self) {
        // All fields by name, so that a new one cannot be forgotten here.
        let Self {
            input,
            cache_read,
            cache_write,
            output,
            reasoning,
            estimated,
            unpriced,
            cost_micros: _,
        } = other;
        self.cost_micros = None;
        self.input = self.input.saturating_add(input);
        self.cache_read = self.cache_read.saturating_add(cache_read);
        self.cache_write = self.cache_write.saturating_add(cache_write);
        self.output = self.output.saturating_add(output);
        self.reasoning = self.reasoning.saturating_add(reasoning);
        self.estimated |= estimated;
        self.unpriced |= unpriced;
    }

    /// Adds the tokens of a finished turn, and its cost to `cost`. The sum has tokens without a price if one of its turns has.
    pub fn add_turn(&mut self, cost: &mut Option<u64>, usage: Self, cost_micros: Option<u64>) {
        self.add(usage);
        match cost_micros {
            Some(more) => *cost = Some(cost.unwrap_or(0).saturating_add(more)),
            None => self.unpriced |= usage.total() > 0,
        }
    }

    /// All tokens, input and output combined.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
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
            ..Usage::default()
        };
        // 700 fresh tokens at 3, 200 at 0.3, 100 at 3.75 and 10 at 15 millionths each.
        assert_eq!(prices.cost_micros(&usage), 2_100 + 60 + 375 + 150);
        assert_eq!(prices.cost_micros(&Usage::default()), 0);
        assert_eq!(Prices::default().cost_micros(&usage), 0);
        // No more tokens are cached than were sent.
        let lie = Usage {
            cache_read: 1_000_000,
            cache_write: 1_000_000,
            ..usage
        };
        assert_eq!(prices.cost_micros(&lie), 300 + 150);
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
            ..Usage::default()
        };
        let mut sum = usage(10);
        sum.add(usage(100));
        let expected = Usage {
            input: 110,
            cache_read: 112,
            cache_write: 114,
            output: 116,
            reasoning: 118,
            ..Usage::default()
        };
        assert_eq!(sum, expected);
        assert_eq!((expected.estimated, expected.unpriced), (false, false));
        // What is true of a part is true of the sum.
        for (estimated, unpriced) in [(true, false), (false, true)] {
            let mut sum = Usage {
                estimated,
                unpriced,
                ..usage(1)
            };
            sum.add(usage(2));
            assert_eq!((sum.estimated, sum.unpriced), (estimated, unpriced));
            let mut sum = usage(2);
            sum.add(Usage {
                estimated,
                unpriced,
                ..usage(1)
            });
            assert_eq!((sum.estimated, sum.unpriced), (estimated, unpriced));
        }
        sum.add(Usage {
            input: u64::MAX,
            ..Usage::default()
        });
        assert_eq!(sum.input, u64::MAX);
    }

    #[test]
    fn error_says_what_failed_and_how_long_to_wait() {
        let mut error = ProviderError::new("p", ProviderErrorKind::RateLimited, "slow down");
        assert_eq!(error.to_string(), "p: too many requests: slow down");
        assert_eq!(error.retry_after(), None);
        error.retry_after_ms = Some(1_500);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(1_500)));
        assert_eq!(error.to_string(), "p: too many requests: slow down");
        error.wait_limit = Some(WaitLimit::Longest);
        assert_eq!(
            error.to_string(),
            "p: too many requests: slow down (the server asks to wait 2 s)"
        );
    }
}

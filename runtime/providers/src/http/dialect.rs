//! Parts of requests that a server or model does not accept, learnt from its refusals: one mechanism for all protocols.
//!
//! A protocol lists its optional parts. A refusal that names one of them, of a request that contains it, is followed by the
//! same request without it, and all later requests of the provider leave it out. Each part is left out at most once, so
//! that a request is repeated a limited number of times.

use std::sync::Arc;

use serde_json::Value;
use toolcell_core::provider::{ProviderErrorKind, Request};
use toolcell_core::{Content, Message};

use super::protocol::Protocol;
use super::retry::FailedAttempt;
use crate::fallback_text;

/// Minimum limit of an answer that is learnt from a refusal, in tokens. A smaller number is not a limit.
const MIN_OUTPUT: u64 = 16;

/// Part of requests that not every server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Pictures in messages.
    Pictures,
    /// Sampling temperature.
    Temperature,
    /// Nucleus sampling.
    TopP,
    /// Texts at which an answer ends.
    Stop,
    /// Seed of the sampling.
    Seed,
    /// Reasoning effort or budget.
    Effort,
    /// Reasoning of earlier answers.
    PastReasoning,
    /// Schema of the final answer.
    AnswerSchema,
    /// Strict form of tool schemas.
    Strict,
    /// Number of calls in one answer.
    ParallelCalls,
    /// Key of the prompt cache.
    CacheKey,
    /// Cache breakpoints.
    CacheControl,
    /// Token counts in a stream.
    StreamOptions,
    /// Limit of an answer as `max_tokens`.
    MaxTokens,
    /// Limit of an answer as `max_completion_tokens`.
    CompletionTokens,
    /// Tool schemas as JSON Schema.
    JsonSchemas,
}

/// Words of a refusal of strict schemas, of all servers with the protocols of OpenAI.
pub(crate) const STRICT_WORDS: &[&str] = &[
    "'strict'",
    "\"strict\"",
    "`strict`",
    ".strict",
    "strict mode",
    "invalid schema for function",
];

/// Optional part of a protocol's requests.
#[derive(Debug)]
pub(crate) struct OptionalPart {
    pub(crate) feature: Feature,
    /// Name in the notice to the user.
    pub(crate) label: &'static str,
    /// JSON pointers of its fields, which are removed. Other forms are left to the protocol's `body`.
    pub(crate) fields: &'static [&'static str],
    /// Words of a refusal in lower case, besides the quoted names of the fields.
    pub(crate) words: &'static [&'static str],
}

/// Parts that a server accepts, and the limits of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialect {
    refused: u32,
    /// True for the protocol's own service.
    pub(crate) is_own_service: bool,
    /// True if the protocol is at the other URL of the endpoint.
    pub(crate) uses_other_url: bool,
    /// Maximum tokens of an answer, if the model allows less than a request asked for.
    max_output: Option<u64>,
    /// Length of the context in use, in tokens, for a protocol that sets it.
    pub(crate) context: Option<u64>,
    /// Maximum length of the context, by the model; `Some(None)` if it was requested and is unknown.
    pub(crate) model_context: Option<Option<u64>>,
}

/// Lesson of a refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lesson {
    pub(super) dialect: Dialect,
    /// Change of the requests, for the user.
    pub(super) change: String,
}

impl Dialect {
    pub(crate) fn new(is_own_service: bool) -> Self {
        Self {
            refused: 0,
            is_own_service,
            uses_other_url: false,
            max_output: None,
            context: None,
            model_context: None,
        }
    }

    /// True unless the server refused it.
    pub(crate) fn takes(&self, feature: Feature) -> bool {
        self.refused & (1 << feature as u32) == 0
    }

    /// Maximum tokens of an answer: the requested ones, as far as the model allows them.
    pub(crate) fn output_limit(&self, wanted: Option<u64>) -> Option<u64> {
        wanted.map(|wanted| self.max_output.map_or(wanted, |most| wanted.min(most)))
    }

    pub(crate) fn without(mut self, feature: Feature) -> Self {
        self.refused |= 1 << feature as u32;
        self
    }

    /// Both lessons, of concurrent requests.
    pub(super) fn joined(self, other: Self) -> Self {
        Self {
            refused: self.refused | other.refused,
            is_own_service: self.is_own_service,
            uses_other_url: self.uses_other_url || other.uses_other_url,
            max_output: [self.max_output, other.max_output].into_iter().flatten().min(),
            context: self.context.max(other.context),
            model_context: self.model_context.or(other.model_context),
        }
    }
}

/// Builds the body of a request, without the parts that the server refused.
pub(crate) fn body<P: Protocol>(protocol: &P, request: &Request, model: &str, dialect: Dialect) -> Value {
    let mut body = match dialect.takes(Feature::Pictures) {
        true => protocol.body(request, model, dialect),
        false => protocol.body(&without_pictures(request), model, dialect),
    };
    for part in P::OPTIONAL.iter().filter(|part| !dialect.takes(part.feature)) {
        for field in part.fields {
            remove(&mut body, field);
        }
    }
    body
}

/// Returns the change after which the server may accept a request that it refused; `None` if the refusal names no part of
/// the request that can be left out.
pub(super) fn learn<P: Protocol>(
    protocol: &P,
    request: &Request,
    model: &str,
    dialect: Dialect,
    failure: &FailedAttempt,
) -> Option<Lesson> {
    let message = failure.error.message.to_lowercase();
    let sent = body(protocol, request, model, dialect);
    let is_refusal = failure.error.kind == ProviderErrorKind::InvalidRequest;
    if is_refusal
        && let Some(wanted) = P::OUTPUT_LIMITS
            .iter()
            .find_map(|field| sent.pointer(field)?.as_u64())
        && let Some(most) = smaller_limit(&message, wanted)
    {
        let dialect = Dialect {
            max_output: Some(most),
            ..dialect
        };
        let change =
            format!("the model allows at most {most} tokens in one answer, and {wanted} were requested");
        return (body(protocol, request, model, dialect) != sent).then_some(Lesson { dialect, change });
    }
    let is_named = |part: &&OptionalPart| match part.feature {
        Feature::Pictures => refuses_pictures(&message),
        _ => is_refusal && names(part, &message, failure.parameter.as_deref()),
    };
    let mut parts = P::OPTIONAL.iter().filter(|part| dialect.takes(part.feature));
    let part = parts.find(|part| {
        is_named(part) && body(protocol, request, model, dialect.without(part.feature)) != sent
    })?;
    let dialect = dialect.without(part.feature);
    let is_limit = matches!(part.feature, Feature::MaxTokens | Feature::CompletionTokens);
    let other_name = is_limit
        .then(|| {
            let next = body(protocol, request, model, dialect);
            let mut fields = P::OUTPUT_LIMITS.iter();
            let field = fields.find(|field| next.pointer(field).is_some())?;
            field.rsplit('/').next()
        })
        .flatten();
    let change = match other_name {
        Some(name) => format!(
            "the server does not accept {}; `{name}` is sent instead",
            part.label
        ),
        None => format!("the server does not accept {}, left out from now on", part.label),
    };
    Some(Lesson { dialect, change })
}

/// True if a refusal, in lower case, names the part: one of its words, or the quoted name of a field.
fn names(part: &OptionalPart, message: &str, parameter: Option<&str>) -> bool {
    // "messages.1.content.0: …" is about a message, in which words can occur that also name a parameter.
    let is_about_message = message.starts_with("messages.") && part.feature != Feature::PastReasoning;
    if is_about_message && !message.contains("cache_control") {
        return false;
    }
    let is_limit = matches!(part.feature, Feature::MaxTokens | Feature::CompletionTokens);
    if is_limit && !says_unsupported(message) {
        return false;
    }
    let names = part.fields.iter().filter_map(|field| field.rsplit('/').next());
    let is_field = |name: &str| {
        let name = name.to_lowercase();
        let quoted = ['\'', '"', '`']
            .iter()
            .any(|q| message.contains(&format!("{q}{name}{q}")));
        quoted
            || message.starts_with(&format!("{name}:"))
            || (says_unsupported(message) && names_in_words(message, &name))
            || parameter.is_some_and(|p| p.split(['.', '/']).any(|part| part == name))
    };
    names.into_iter().any(is_field) || part.words.iter().any(|word| message.contains(word))
}

/// True if a message is about a parameter that it does not quote: "unrecognized argument supplied: seed", "unsupported
/// parameter seed", "seed is not supported".
fn names_in_words(message: &str, name: &str) -> bool {
    let before = [
        ": ",
        "parameter ",
        "parameters ",
        "argument ",
        "arguments ",
        "field ",
        "property ",
    ];
    let is_inside = |c: char| c.is_alphanumeric() || ['_', '-'].contains(&c);
    message.match_indices(name).any(|(at, _)| {
        let (head, rest) = (&message[..at], &message[at + name.len()..]);
        let is_announced = before.iter().any(|words| head.ends_with(words));
        !rest.starts_with(is_inside) && (is_announced || head.is_empty() && rest.starts_with(" is "))
    })
}

fn says_unsupported(message: &str) -> bool {
    [
        "not support",
        "unsupported",
        "unknown",
        "unrecognized",
        "unrecognised",
        "unexpected",
        "not permitted",
        "not allowed",
        "not enabled",
        "not accept",
        "deprecated",
        "extra ",
        "only supported",
        "no endpoints",
        "must be a string",
        "not a multimodal",
        "missing data",
    ]
    .iter()
    .any(|words| message.contains(words))
}

/// True if a message says that the model takes no pictures, and not that one of them is invalid.
fn refuses_pictures(message: &str) -> bool {
    let about = [
        "image",
        "vision",
        "multimodal",
        "picture",
        "content must be a string",
    ];
    // vLLM: "At most 0 image(s) may be provided in one prompt."; OpenAI Responses: "Invalid value: 'input_image'.
    // Supported values are: 'input_text'."
    let is_type_refused = ["input_image", "image_url", "image"]
        .iter()
        .any(|kind| message.contains(&format!("invalid value: '{kind}'")));
    message.contains("at most 0 image")
        || is_type_refused
        || about.iter().any(|word| message.contains(word)) && says_unsupported(message)
}

/// Largest number below `wanted` in a message about the limit of an answer: "16384 > 8192", "supports at most 16384".
fn smaller_limit(message: &str, wanted: u64) -> Option<u64> {
    let is_about_limit = [
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "maxoutputtokens",
    ]
    .iter()
    .any(|name| message.contains(name));
    if !is_about_limit || message.contains("unsupported parameter") {
        return None;
    }
    let numbers = message.split(|c: char| !c.is_ascii_alphanumeric());
    let most = numbers
        .filter_map(|word| word.parse::<u64>().ok())
        .filter(|number| (MIN_OUTPUT..wanted).contains(number))
        .max()?;
    Some(if message.contains("(exclusive)") {
        most - 1
    } else {
        most
    })
}

/// Removes a field, and the objects that become empty.
fn remove(body: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else {
        return;
    };
    let Some(map) = body.pointer_mut(parent).and_then(Value::as_object_mut) else {
        return;
    };
    map.remove(name);
    if map.is_empty() && !parent.is_empty() {
        remove(body, parent);
    }
}

/// The request with a note in place of each picture.
fn without_pictures(request: &Request) -> Request {
    let replaced = |content: &[Content]| -> Vec<Content> {
        content
            .iter()
            .map(|part| match part {
                Content::Blob(blob) if fallback_text::is_picture(&blob.media_type) => {
                    Content::text(fallback_text::left_out(blob))
                }
                other => other.clone(),
            })
            .collect()
    };
    let messages = request.messages.iter().map(|message| match &**message {
        Message::User { content } => Arc::new(Message::User {
            content: replaced(content),
        }),
        Message::Tool {
            call_id,
            name,
            content,
            is_error,
        } => Arc::new(Message::Tool {
            call_id: call_id.clone(),
            name: name.clone(),
            content: replaced(content),
            is_error: *is_error,
        }),
        Message::Assistant { .. } => message.clone(),
    });
    Request {
        messages: messages.collect(),
        ..request.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn limit_is_read_from_the_messages_of_servers() {
        for (message, most) in [
            (
                "max_tokens: 16384 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku-20241022",
                Some(8192),
            ),
            (
                "max_tokens is too large: 100000. this model supports at most 16384 completion tokens",
                Some(16384),
            ),
            (
                "it has a maxoutputtokens value of 100000 but the supported range is from 1 (inclusive) to 8193 (exclusive)",
                Some(8192),
            ),
            (
                "invalid max_tokens value, the valid range is [1, 8192]",
                Some(8192),
            ),
            ("max_tokens must be positive", None),
            ("unsupported parameter: 'max_tokens' of 4096", None),
            ("the model has 8192 tokens", None),
        ] {
            let wanted = if message.contains('>') { 16_384 } else { 100_000 };
            assert_eq!(smaller_limit(message, wanted), most, "{message}");
        }
    }

    #[test]
    fn invalid_picture_is_not_taken_for_a_text_only_model() {
        for (message, refused) in [
            ("image input is not supported", true),
            ("no endpoints found that support image input", true),
            (
                "invalid content type. image_url is only supported by certain models.",
                true,
            ),
            (
                "failed to deserialize: unknown variant `image_url`, expected `text`",
                true,
            ),
            ("llama is not a multimodal model", true),
            ("at most 0 image(s) may be provided in one prompt.", true),
            ("at most 1 image(s) may be provided in one prompt.", false),
            ("messages.0.content.0.image: image exceeds 5 mb maximum", false),
            (
                "invalid value: 'input_image'. supported values are: 'input_text'.",
                true,
            ),
            (
                "invalid value: 'ultra'. supported values of the image detail are: 'low'.",
                false,
            ),
            ("could not process image", false),
        ] {
            assert_eq!(refuses_pictures(message), refused, "{message}");
        }
    }

    #[test]
    fn parameter_is_named_as_a_whole_word() {
        for (message, is_named) in [
            ("unrecognized request argument supplied: seed", true),
            ("unsupported parameter seed", true),
            ("seed is not supported with this model", true),
            ("unknown field seed, expected one of model", true),
            ("unknown model: seed-oss-36b", false),
            ("unknown model: seedling", false),
            ("unknown model: seed_1", false),
            ("unsupported content in a bag of seed", false),
        ] {
            assert_eq!(names_in_words(message, "seed"), is_named, "{message}");
        }
    }

    #[test]
    fn empty_parents_are_removed_with_their_last_field() {
        let mut body = json!({"a": {"b": {"c": 1}, "d": 2}, "e": {"f": 3}});
        for pointer in ["/a/b/c", "/e/f", "/x/y", "/a/b/c"] {
            remove(&mut body, pointer);
        }
        assert_eq!(body, json!({"a": {"d": 2}}));
    }
}

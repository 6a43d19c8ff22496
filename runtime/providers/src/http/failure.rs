//! Conversion of error responses to [`ProviderError`], on whose kind the loop bases its decisions.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;
use serde_json::Value;
use toolcell_core::ProviderError;
use toolcell_core::provider::ProviderErrorKind;

use crate::framing::{self, Framing, Reader};

use super::retry::{FailedAttempt, duration, is_transient, retry_after, wait_in_words};

/// Maximum length of a provider's message, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// Contents of the body of an error.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ErrorBody {
    pub(crate) message: String,
    /// Values of `code`, `type` and `status`, in lower case.
    pub(crate) codes: Vec<String>,
    /// Parameter of the request that caused it.
    pub(crate) parameter: Option<String>,
    /// Wait that the server asks for.
    pub(crate) wait: Option<Duration>,
    pub(crate) is_json: bool,
}

/// Error for a response whose status is not 2xx.
pub(crate) fn of_response(provider: &str, status: u16, headers: &HeaderMap, body: &str) -> FailedAttempt {
    let parsed = read(body);
    let kind = kind_of(status, &parsed);
    let wait = retry_after(headers, SystemTime::now()).or(parsed.wait);
    let mut message = if parsed.message.is_empty() {
        format!("status {status} without an explanation")
    } else {
        parsed.message.clone()
    };
    if (300..400).contains(&status) {
        message =
            format!("status {status} is a redirect, and redirects are not followed; set the final base URL");
    }
    let is_explained = parsed.is_json && !parsed.message.is_empty();
    let words = parsed.message.to_lowercase();
    let is_missing = matches!(status, 404 | 405) && !words.contains("model");
    let error = ProviderError {
        status: Some(status),
        retry_after_ms: wait.map(millis),
        ..ProviderError::new(provider, kind, message)
    };
    FailedAttempt {
        transient: is_transient(status, headers, kind),
        error,
        parameter: parsed.parameter,
        is_explained,
        is_wrong_path: is_missing && (!is_explained || is_about_path(&words)),
    }
}

/// Error for an error object inside a stream with status 200.
pub(crate) fn in_stream(provider: &str, value: &Value) -> FailedAttempt {
    let parsed = error_body(value);
    let number = parsed.codes.iter().find_map(|code| code.parse().ok());
    let status = number.filter(|n| (400..600).contains(n)).unwrap_or(200);
    let kind = kind_of(status, &parsed);
    let message = if parsed.message.is_empty() {
        bounded(&value.to_string())
    } else {
        parsed.message
    };
    let error = ProviderError {
        retry_after_ms: parsed.wait.map(millis),
        ..ProviderError::new(provider, kind, message)
    };
    FailedAttempt {
        transient: matches!(
            kind,
            ProviderErrorKind::Unavailable | ProviderErrorKind::RateLimited
        ),
        parameter: parsed.parameter,
        ..FailedAttempt::fatal(error)
    }
}

/// True if the message of a missing resource, in lower case, is about the path or the method of the request and not
/// about something in it: "Not Found" (FastAPI), "File Not Found" (llama.cpp), "Unexpected endpoint or method." (LM
/// Studio), "Invalid URL (POST /chat/completions)" (OpenAI), "no Route matched with those values" (Kong), "Cannot POST
/// /chat/completions" (Express).
fn is_about_path(message: &str) -> bool {
    const WORDS: [&str; 8] = [
        "url", "uri", "path", "route", "page", "file", "endpoint", "method",
    ];
    const WHOLE: [&str; 4] = ["not found", "404 not found", "resource not found", "not_found"];
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = message.split(|c| !is_inside(c));
    WHOLE.contains(&message.trim_matches(|c| !is_inside(c)))
        || words.any(|word| WORDS.contains(&word))
        || message.starts_with("cannot post ")
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

fn kind_of(status: u16, parsed: &ErrorBody) -> ProviderErrorKind {
    for code in &parsed.codes {
        match code.as_str() {
            "context_length_exceeded"
            | "exceed_context_size_error"
            | "context_window_exceeded"
            | "model_context_window_exceeded"
            | "request_too_large" => return ProviderErrorKind::ContextLength,
            // A quota that is used up is not restored within seconds.
            "insufficient_quota"
            | "insufficient_balance"
            | "billing_error"
            | "billing_hard_limit_reached"
            | "billing_not_active"
            | "exceeded_current_quota_error"
            | "quota_exceeded" => return ProviderErrorKind::QuotaExceeded,
            "rate_limit_exceeded" | "rate_limit_error" | "resource_exhausted" => {
                return ProviderErrorKind::RateLimited;
            }
            "overloaded_error" | "server_error" | "api_error" | "internal" | "unavailable"
            | "timeout_error" => {
                return ProviderErrorKind::Unavailable;
            }
            "invalid_api_key"
            | "authentication_error"
            | "permission_error"
            | "unauthenticated"
            | "permission_denied" => return ProviderErrorKind::Unauthorized,
            "invalid_prompt" | "invalid_request_error" if status == 200 => {
                return kind_of_message(&parsed.message).unwrap_or(ProviderErrorKind::InvalidRequest);
            }
            _ => {}
        }
    }
    match status {
        402 => ProviderErrorKind::QuotaExceeded,
        401 | 403 => ProviderErrorKind::Unauthorized,
        429 => ProviderErrorKind::RateLimited,
        408 | 409 | 500.. => kind_of_message(&parsed.message).unwrap_or(ProviderErrorKind::Unavailable),
        413 => ProviderErrorKind::ContextLength,
        300..500 => kind_of_message(&parsed.message).unwrap_or(ProviderErrorKind::InvalidRequest),
        _ => kind_of_message(&parsed.message).unwrap_or(ProviderErrorKind::Unavailable),
    }
}

/// Kind of error that only the text of a message identifies. Several servers have no code for a context that is too
/// long or for a model without tools; these are the messages of Anthropic, Gemini, vLLM, llama.cpp, LM Studio, Ollama,
/// OpenRouter, Groq and Mistral.
pub(crate) fn kind_of_message(message: &str) -> Option<ProviderErrorKind> {
    const WORDS: [(ProviderErrorKind, &[&str]); 3] = [
        (
            ProviderErrorKind::ContextLength,
            &[
                "prompt is too long",
                "maximum context length",
                "exceeds the maximum number of tokens",
                "exceeds the available context size",
                "context length exceeded",
                "exceed context limit",
                "exceeds the context window",
                "exceeds the context length",
                "longer than the context",
                "input length exceeds",
                "too many tokens",
                "too large for model",
            ],
        ),
        (
            ProviderErrorKind::ToolsUnsupported,
            &[
                "not support tool",
                "nt support tool",
                "not support function",
                "nt support function",
                "support tool use",
                "tool use is not supported",
                "tool calling is not supported",
                "tools is not supported",
                "tools are not supported",
                "tool calls are not supported",
                "functions are not supported",
                "function calls are not supported",
                "function calling is not enabled",
                "function calling is not supported",
                "--enable-auto-tool-choice",
                "tools param requires --jinja",
            ],
        ),
        (
            ProviderErrorKind::QuotaExceeded,
            &[
                "credit balance is too low",
                "insufficient balance",
                "insufficient credits",
            ],
        ),
    ];
    let message = message.to_ascii_lowercase().replace(['`', '\'', '"'], "");
    let found = WORDS
        .iter()
        .find(|(_, all)| all.iter().any(|words| message.contains(words)));
    found.map(|(kind, _)| *kind)
}

/// Parses the body of an error: JSON in any of the usual forms, the same as a server-sent event, a page of HTML, or text.
fn read(body: &str) -> ErrorBody {
    let json = serde_json::from_str::<Value>(body).ok();
    match json.or_else(|| of_event(body)) {
        Some(value) => error_body(&value),
        None => {
            let message = bounded(&without_tags(body));
            ErrorBody {
                wait: wait_in_words(&message),
                message,
                ..ErrorBody::default()
            }
        }
    }
}

/// The data of the first server-sent event with JSON.
fn of_event(body: &str) -> Option<Value> {
    let mut reader = Reader::new(Framing::Sse);
    reader.push(body.as_bytes());
    reader.end();
    while let Ok(Some(event)) = reader.next() {
        if let Ok(value @ (Value::Object(_) | Value::Array(_))) = framing::parse(&event.data) {
            return Some(value);
        }
    }
    None
}

fn error_body(value: &Value) -> ErrorBody {
    // Gemini answers a streaming request with a list of one error.
    let value = match value {
        Value::Array(items) => items.first().unwrap_or(&Value::Null),
        other => other,
    };
    let inner = match value.get("error") {
        Some(Value::Null) | None => value,
        Some(error) => error,
    };
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        _ => None,
    };
    let message = text(inner)
        .or_else(|| inner.get("message").and_then(text))
        .or_else(|| {
            inner
                .get("detail")
                .map(|d| text(d).unwrap_or_else(|| d.to_string()))
        })
        .or_else(|| value.get("message").and_then(text))
        .unwrap_or_default();
    let mut codes: Vec<String> = ["code", "type", "status"]
        .iter()
        .filter_map(|name| match inner.get(name)? {
            Value::String(code) => Some(code.to_ascii_lowercase()),
            Value::Number(code) => Some(code.to_string()),
            _ => None,
        })
        .collect();
    let parameter = inner.get("param").and_then(text);
    let details = inner.get("details").and_then(Value::as_array);
    let details = || details.into_iter().flatten();
    // Gemini has one status for a quota of a minute, of a day and of nothing.
    if details().any(is_of_a_day) || has_limit_of_zero(&message) {
        codes.insert(0, "quota_exceeded".into());
    }
    // `google.rpc.RetryInfo`, or words.
    let delay = details().find_map(|detail| detail.get("retryDelay")?.as_str());
    let wait = delay.and_then(duration).or_else(|| wait_in_words(&message));
    ErrorBody {
        wait,
        message: bounded(&message),
        codes,
        parameter,
        is_json: true,
    }
}

/// True if a `google.rpc.QuotaFailure` has a quota of a day. The delay that comes with it is one of seconds all the same.
fn is_of_a_day(detail: &Value) -> bool {
    let violations = detail.get("violations").and_then(Value::as_array);
    let mut ids = violations
        .into_iter()
        .flatten()
        .filter_map(|violation| violation.get("quotaId")?.as_str());
    ids.any(|id| id.contains("PerDay"))
}

/// True if the message says that the quota is 0: "Quota exceeded for metric: …, limit: 0".
fn has_limit_of_zero(message: &str) -> bool {
    let mut limits = message.split("limit: 0").skip(1);
    message.contains("uota") && limits.any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// Returns one line of printable text of at most [`MAX_MESSAGE_CHARS`] characters.
pub(crate) fn bounded(text: &str) -> String {
    let mut line = String::new();
    for (count, word) in text.split_whitespace().enumerate() {
        if count > 0 {
            line.push(' ');
        }
        line.extend(word.chars().filter(|c| !c.is_control()));
        // There are at least as many bytes as characters.
        if line.len() > MAX_MESSAGE_CHARS * 4 {
            break;
        }
    }
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Text of a page without tags, styles and scripts.
fn without_tags(page: &str) -> String {
    let mut words = String::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        words.push_str(&rest[..start]);
        words.push(' ');
        let tag = &rest[start..];
        let hidden = ["style", "script"].into_iter().find(|name| {
            tag.get(1..=name.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(name))
        });
        let end = match hidden {
            Some(name) => tag.find(&format!("</{name}")).map(|at| at + name.len() + 2),
            None => tag.find('>').map(|at| at + 1),
        };
        let Some(end) = end else { return words };
        rest = &tag[end..];
        if hidden.is_some() {
            rest = rest.strip_prefix('>').unwrap_or(rest);
        }
    }
    words.push_str(rest);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, body: &str) -> ProviderError {
        of_response("p", status, &HeaderMap::new(), body).error
    }

    #[test]
    fn only_messages_about_the_path_tell_a_wrong_path() {
        for (status, body, is_wrong) in [
            (404, "", true),
            (404, "{}", true),
            (404, "<html>no such thing</html>", true),
            (405, "no such thing", true),
            (404, r#"{"detail":"Not Found"}"#, true),
            (405, r#"{"detail":"Method Not Allowed"}"#, true),
            (404, r#"{"error":{"code":404,"message":"File Not Found"}}"#, true),
            (404, r#"{"error":"path not found"}"#, true),
            (
                404,
                r#"{"error":{"message":"Invalid URL (POST /chat/completions)"}}"#,
                true,
            ),
            (
                200,
                r#"{"error":{"message":"Invalid URL (POST /chat/completions)"}}"#,
                false,
            ),
            (
                404,
                r#"{"error":"Unexpected endpoint or method. (POST /api)"}"#,
                true,
            ),
            (404, r#"{"message":"no Route matched with those values"}"#, true),
            (
                404,
                r#"{"message":"Cannot POST /chat/completions","error":null}"#,
                true,
            ),
            (404, r#"{"error":{"message":"No endpoints found."}}"#, false),
            (
                404,
                r#"{"error":{"message":"image_url is not supported"}}"#,
                false,
            ),
            (404, r#"{"error":{"message":"conversation not found"}}"#, false),
            (404, r#"{"error":"model 'm' not found"}"#, false),
        ] {
            let failure = of_response("p", status, &HeaderMap::new(), body);
            assert_eq!(failure.is_wrong_path, is_wrong, "{status} {body}");
        }
    }

    #[test]
    fn kind_follows_status_and_code() {
        use ProviderErrorKind::*;
        for (status, body, kind) in [
            (401, "{}", Unauthorized),
            (403, "no", Unauthorized),
            (429, "{}", RateLimited),
            (408, "", Unavailable),
            (500, "", Unavailable),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Unavailable,
            ),
            (404, "", InvalidRequest),
            (422, "", InvalidRequest),
            (413, "", ContextLength),
            (
                400,
                r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
                ContextLength,
            ),
            (
                400,
                r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"x"}}"#,
                ContextLength,
            ),
            (
                400,
                r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000"}}"#,
                ContextLength,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens","code":400}"#,
                ContextLength,
            ),
            (402, r#"{"error":{"message":"pay"}}"#, QuotaExceeded),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                QuotaExceeded,
            ),
            (
                400,
                r#"{"error":"registry/gemma does not support tools"}"#,
                ToolsUnsupported,
            ),
            (
                400,
                r#"{"error":{"message":"`tools` is not supported with this model"}}"#,
                ToolsUnsupported,
            ),
            (
                400,
                r#"{"error":{"message":"Functions are not supported with this model","param":"tools"}}"#,
                ToolsUnsupported,
            ),
            (
                400,
                r#"{"error":{"message":"This model doesn't support tools."}}"#,
                ToolsUnsupported,
            ),
            (
                404,
                r#"{"error":{"message":"No endpoints found that support tool use"}}"#,
                ToolsUnsupported,
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]"#,
                InvalidRequest,
            ),
        ] {
            assert_eq!(error(status, body).kind, kind, "{status} {body}");
        }
    }

    #[test]
    fn message_is_found_in_every_usual_form() {
        for (body, message) in [
            (r#"{"error":{"message":"a"}}"#, "a"),
            (r#"{"error":"a"}"#, "a"),
            (r#"{"error":null,"message":"a"}"#, "a"),
            (r#"{"detail":"a"}"#, "a"),
            (r#"{"detail":[{"msg":"a"}]}"#, r#"[{"msg":"a"}]"#),
            ("plain\r\n\u{1b}[31m text", "plain [31m text"),
            (
                "<html><head><style>b{}</style><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>",
                "502 Bad Gateway nginx",
            ),
            ("", "status 400 without an explanation"),
            ("event: error\ndata: {\"error\":{\"message\":\"a\"}}\n\n", "a"),
            ("data: {\"error\":\"a\"}", "a"),
        ] {
            assert_eq!(error(400, body).message, message, "{body}");
        }
    }

    #[test]
    fn message_beyond_the_limit_is_cut() {
        assert_eq!(
            bounded(&"é".repeat(MAX_MESSAGE_CHARS)),
            "é".repeat(MAX_MESSAGE_CHARS)
        );
        let cut = bounded(&"é".repeat(MAX_MESSAGE_CHARS + 1));
        assert_eq!(cut, format!("{}…", "é".repeat(MAX_MESSAGE_CHARS)));
    }

    #[test]
    fn exhausted_quota_is_not_retried() {
        let body = r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#;
        let failure = of_response("p", 429, &HeaderMap::new(), body);
        assert_eq!(failure.error.kind, ProviderErrorKind::QuotaExceeded);
        assert!(!failure.transient);
        assert!(of_response("p", 429, &HeaderMap::new(), "{}").transient);
    }

    #[test]
    fn error_names_a_long_retry_after() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3600".parse().unwrap());
        let error = of_response("p", 429, &headers, r#"{"error":{"message":"slow"}}"#).error;
        // Our words are not among those of the server.
        assert_eq!(error.message, "slow");
        assert_eq!(error.retry_after_ms, Some(3_600_000));
    }

    #[test]
    fn error_in_a_stream_keeps_its_code() {
        for (value, kind, transient) in [
            (
                r#"{"error":{"message":"m","code":503}}"#,
                ProviderErrorKind::Unavailable,
                true,
            ),
            (
                r#"{"error":{"message":"m","code":"context_length_exceeded"}}"#,
                ProviderErrorKind::ContextLength,
                false,
            ),
            (
                r#"{"error":{"message":"m","type":"invalid_request_error"}}"#,
                ProviderErrorKind::InvalidRequest,
                false,
            ),
            (r#"{"error":"m"}"#, ProviderErrorKind::Unavailable, true),
        ] {
            let failure = in_stream("p", &serde_json::from_str(value).unwrap());
            assert_eq!(
                (failure.error.kind, failure.transient),
                (kind, transient),
                "{value}"
            );
            assert_eq!(failure.error.message, "m");
        }
    }

    #[test]
    fn quota_of_a_day_or_of_nothing_is_used_up() {
        let kind = |message: &str, quota: &str| {
            let body = serde_json::json!({"error": {
                "code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": [
                    {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]},
                    {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "22s"},
                ],
            }});
            error(429, &body.to_string()).kind
        };
        let minute = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier";
        let day = "GenerateRequestsPerDayPerProjectPerModel-FreeTier";
        for (message, quota, expected) in [
            (
                "Quota exceeded, limit: 15",
                minute,
                ProviderErrorKind::RateLimited,
            ),
            (
                "Quota exceeded, limit: 0.5",
                minute,
                ProviderErrorKind::RateLimited,
            ),
            (
                "Quota exceeded, limit: 250",
                day,
                ProviderErrorKind::QuotaExceeded,
            ),
            (
                "Quota exceeded, limit: 0",
                minute,
                ProviderErrorKind::QuotaExceeded,
            ),
            (
                "Quota exceeded, limit: 0, model: m",
                minute,
                ProviderErrorKind::QuotaExceeded,
            ),
        ] {
            assert_eq!(kind(message, quota), expected, "{message} {quota}");
        }
    }

    #[test]
    fn wait_is_read_from_the_body_of_an_error() {
        let gemini = r#"[{"error": {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED", "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure"},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "22.5s"}]}}]"#;
        assert_eq!(error(429, gemini).retry_after_ms, Some(22_500));
        let words = r#"{"error": {"message": "Please retry in 22.5s.", "code": "rate_limit_exceeded"}}"#;
        assert_eq!(error(429, words).retry_after_ms, Some(22_500));
        assert_eq!(error(429, "Please try again in 3s.").retry_after_ms, Some(3_000));
        assert_eq!(error(429, "{}").retry_after_ms, None);
        let streamed = in_stream("p", &serde_json::from_str(gemini).unwrap());
        assert_eq!(streamed.error.retry_after_ms, Some(22_500));

        // The header is exact.
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "7".parse().unwrap());
        let failure = of_response("p", 429, &headers, words);
        assert_eq!(failure.error.retry_after_ms, Some(7_000));
    }
}

//! Responses: JSON, errors, and streams of events.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Body as _, Frame};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use toolcell_core::StoreError;
use toolcell_http::BoxBody;

use crate::host::Refusal;
use crate::room::{MAX_UNREAD, Room, SMALL};

/// Returns a message without what exceeds the maximum.
fn shortened(mut message: String) -> String {
    if let Some((at, _)) = message.char_indices().nth(MAX_MESSAGE) {
        message.truncate(at);
        message.push('…');
    }
    message
}

/// Request that is answered with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hints: Vec<String>,
    /// Seconds after which the request may succeed, if they are known.
    pub(crate) retry_after: Option<u64>,
    /// Member or parameter of the request that is wrong, if it is known.
    pub(crate) param: Option<Box<str>>,
    /// Methods of the path, for a wrong one (RFC 9110, section 15.5.6).
    pub(crate) allow: Option<Box<str>>,
    /// True if the audit log has a line about it, or it is no decision about the client.
    pub(crate) is_noted: bool,
}

/// Maximum length of a message, in characters: it can have text of the client.
const MAX_MESSAGE: usize = 1_000;

/// Returns the beginning of a foreign text on one line, with hidden characters by their numbers.
pub(crate) fn excerpt(text: &str, most: usize) -> String {
    let mut excerpt: String = text.chars().take(most).flat_map(visible).collect();
    if text.chars().nth(most).is_some() {
        excerpt.push('…');
    }
    excerpt
}

fn visible(character: char) -> impl Iterator<Item = char> {
    let is_plain = matches!(character, '"' | '\'' | '\\');
    let escaped = (!is_plain).then(|| character.escape_debug());
    let plain = is_plain.then_some(character);
    escaped.into_iter().flatten().chain(plain)
}

impl Failure {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: shortened(message.into()),
            hints: Vec::new(),
            retry_after: None,
            param: None,
            allow: None,
            is_noted: false,
        }
    }

    /// Says that the audit log has a line about it, or needs none.
    pub(crate) fn noted(mut self) -> Self {
        self.is_noted = true;
        self
    }

    pub(crate) fn wrong_method(allow: &[&str]) -> Self {
        let message = "the path does not take this method";
        let mut failure = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
        failure.allow = Some(allow.join(", ").into());
        failure
    }

    /// Names the member or parameter that is wrong.
    pub(crate) fn param(mut self, param: &str) -> Self {
        self.param = Some(excerpt(param, 120).into());
        self
    }

    /// Names the member that is wrong, unless a more exact one is named.
    pub(crate) fn in_param(self, param: &str) -> Self {
        match self.param {
            Some(_) => self,
            None => self.param(param),
        }
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.hints.push(hint.to_owned());
        self
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", message)
    }

    pub(crate) fn no_session() -> Self {
        Self::not_found("there is no such session")
    }

    pub(crate) fn turn_running() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "turn_running",
            "a turn of the session is running",
        )
        .hint("wait for its end, or cancel it")
    }

    pub(crate) fn response(self) -> Response<BoxBody> {
        let mut error = json!({ "code": self.code, "message": self.message });
        if !self.hints.is_empty() {
            error["hints"] = json!(self.hints);
        }
        let response = json_of(self.status, &json!({ "error": error }));
        with_headers(&self, response)
    }
}

/// Adds the headers that belong to a failure.
pub(crate) fn with_headers(failure: &Failure, mut response: Response<BoxBody>) -> Response<BoxBody> {
    let headers = response.headers_mut();
    if let Some(Ok(allow)) = failure.allow.as_deref().map(HeaderValue::from_str) {
        headers.insert(ALLOW, allow);
    }
    match failure.status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, HeaderValue::from(failure.retry_after.unwrap_or(1)));
        }
        _ => {}
    }
    response
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => Self::no_session(),
            Refusal::InUse => Self::new(StatusCode::CONFLICT, "in_use", "another process uses the session")
                .hint("wait until it ends, or fork the session"),
            Refusal::TurnOpen => Self::new(StatusCode::CONFLICT, "turn_open", "the last turn is not over")
                .hint("resume it, or abandon it"),
            Refusal::WaitsForClient => Self::new(
                StatusCode::CONFLICT,
                "waits_for_client",
                "the turn waits for the client of `/v1` that asked, which runs the tool itself",
            )
            .hint("send the results with that client, or abandon the turn"),
            Refusal::NoTurn(message) => Self::new(StatusCode::CONFLICT, "no_turn", message),
            Refusal::Invalid(message) => Self::invalid(message),
            Refusal::InvalidTool(message) => Self::invalid(message).param("tools"),
            Refusal::UsedUp { message, seconds } => {
                // Noted with its turn.
                Self::new(StatusCode::TOO_MANY_REQUESTS, "limit_used_up", message)
                    .retry_after(seconds)
                    .noted()
            }
            Refusal::Conflict(message) => Self::new(StatusCode::CONFLICT, "conflict", message),
            Refusal::Failed(message) => Self::failed(message),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound { .. } => Self::no_session(),
            StoreError::NameTaken { .. } => Self::new(
                StatusCode::CONFLICT,
                "name_taken",
                "another session has this name",
            ),
            StoreError::InUse { .. } => Refusal::InUse.into(),
            // The causes name files of the server.
            _ => Self::failed("the sessions cannot be read or written")
                .hint("the messages of the server say why"),
        }
    }
}

pub(crate) fn bytes(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<BoxBody> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    response
}

pub(crate) fn json_of(status: StatusCode, value: &impl Serialize) -> Response<BoxBody> {
    match serde_json::to_vec(value) {
        Ok(body) => bytes(status, "application/json", body),
        Err(_) => bytes(StatusCode::INTERNAL_SERVER_ERROR, "application/json", "{}"),
    }
}

pub(crate) fn ok(value: &Value) -> Response<BoxBody> {
    json_of(StatusCode::OK, value)
}

/// Charges the body of an answer to its client until it is sent. Streams charge their parts themselves.
///
/// # Errors
/// The client has not read as much as it may.
pub(crate) async fn held(response: Response<BoxBody>, room: &Room) -> Result<Response<BoxBody>, Failure> {
    let size = response.body().size_hint().exact();
    let Some(size) = size
        .and_then(|size| usize::try_from(size).ok())
        .filter(|size| *size > SMALL)
    else {
        return Ok(response);
    };
    let taken = room.try_take(size).ok_or_else(|| {
        let message = format!("answers of {MAX_UNREAD} bytes are not read yet; read one");
        Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
    })?;
    let (parts, body) = response.into_parts();
    // It is complete, and never fails.
    let body = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
    let body = Full::new(taken.hold(body)).boxed_unsync();
    Ok(Response::from_parts(parts, body))
}

pub(crate) fn empty(status: StatusCode) -> Response<BoxBody> {
    let mut response = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Response with server-sent events.
pub(crate) fn events(events: impl Stream<Item = Bytes> + Send + 'static) -> Response<BoxBody> {
    let frames = events.map(|part| Ok::<_, Infallible>(Frame::data(part)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies such as nginx would hold events back.
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

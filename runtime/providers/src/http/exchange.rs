//! Exchange of one request with its retries, shared by all providers.
//!
//! A [`Protocol`] builds the request and decodes the answer; this module implements timeouts, retries before the first
//! delta, the end of the stream, and redaction of errors.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use toolcell_core::provider::{Completion, Delta, ProviderErrorKind, WaitLimit};
use toolcell_core::{ProviderError, Redactor, error_chain};

use super::client::{client, refuses_tls};
use super::failure::{bounded, of_response};
use super::protocol::{Decoder, DecoderState, Protocol};
use super::retry::FailedAttempt;
use super::service::{Adaptation, HttpRequest, ServiceRequest};
use super::stream_limits::{StreamLimit, StreamLimits};
use super::{HttpOptions, failure};
use crate::emit::Emitter;
use crate::framing::{self, Event, Framing, FramingError, MAX_EVENT_BYTES, Reader};
use crate::key::redact;
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, SetupError};

/// Maximum number of bytes read from the body of an error response; the rest is not awaited.
const MAX_ERROR_BODY: usize = 64 << 10;

/// Maximum size of the body of an answer that is not streamed although a stream was requested, in bytes: that of an
/// event of a stream.
pub(super) const MAX_WHOLE_BODY: usize = MAX_EVENT_BYTES;

/// Minimum length of a key that is redacted from answers and errors, in bytes. A shorter one is an ordinary word, such as the
/// `ollama` that some local servers require.
const MIN_SECRET: usize = 8;

/// Maximum time that a stream may stay open after a complete answer. Some servers neither send an end marker nor close
/// the connection; only the usage may follow.
const LINGER: Duration = Duration::from_secs(5);

/// HTTP connection of a provider.
pub(super) struct Http {
    provider: String,
    client: reqwest::Client,
    options: HttpOptions,
    key: Option<ApiKey>,
    redactor: Redactor,
}

impl Http {
    pub(super) fn new(provider: &str, options: HttpOptions, key: Option<ApiKey>) -> Result<Self, SetupError> {
        Ok(Self {
            provider: provider.into(),
            client: client(&options)?,
            redactor: redactor(key.iter(), &options),
            options,
            key,
        })
    }

    pub(super) fn client(&self) -> &reqwest::Client {
        &self.client
    }

    pub(super) fn options(&self) -> &HttpOptions {
        &self.options
    }

    /// Sends a request with retries, and reads the answer.
    pub(super) async fn exchange<P: Protocol>(
        &self,
        mut request: ServiceRequest<'_, P>,
        out: &mut Emitter,
    ) -> Result<Completion, ProviderError> {
        let deadline = self.options.deadline.map(|d| Instant::now() + d);
        let mut attempt = 1;
        let mut retries = 0;
        request.authorize().await?;
        if let Some(lookup) = request.lookup() {
            let answer = self.look_up(lookup).await;
            request.looked_up(answer.as_ref());
        }
        request.fit()?;
        if let Some(notice) = request.unsent() {
            out.emit(Delta::Notice(notice)).await;
        }
        loop {
            request.authorize().await?;
            let redactor = self.redactor(request.secret());
            let failure = match self.attempt(&request, &redactor, deadline, out).await {
                Ok(completion) => {
                    request.remember();
                    if let Some(notice) = request.notice_after(&completion) {
                        out.emit(Delta::Notice(notice)).await;
                    }
                    return Ok(completion);
                }
                Err(failure) => self.without_secrets(failure, request.secret(), &redactor),
            };
            if out.has_emitted() {
                return Err(failure.error);
            }
            let pause = match request.adapt(&failure) {
                Adaptation::Changed(notice) => {
                    if let Some(notice) = notice {
                        out.emit(Delta::Notice(notice)).await;
                    }
                    continue;
                }
                Adaptation::NewToken => Duration::ZERO,
                Adaptation::None => {
                    retries += 1;
                    match self.options.retry.pause(retries, &failure, fastrand::f64()) {
                        Some(pause) => pause,
                        None => {
                            let is_too_long = failure.transient && retries <= self.options.retry.retries;
                            let limit = is_too_long.then_some(WaitLimit::Longest);
                            return Err(not_waiting(request.reported(failure), limit));
                        }
                    }
                }
            };
            if deadline.is_some_and(|deadline| Instant::now() + pause >= deadline) {
                return Err(not_waiting(
                    request.reported(failure),
                    Some(WaitLimit::RequestTimeout),
                ));
            }
            attempt += 1;
            tracing::debug!(provider = self.provider, attempt, ?pause, "retrying a request");
            out.emit(Delta::Retry {
                attempt,
                delay_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                reason: failure.error.to_string(),
            })
            .await;
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a request whose answer is one JSON value. Any failure is `None`: the answer is not required.
    async fn look_up(&self, request: HttpRequest) -> Option<Value> {
        let post = (self.client.post(request.url))
            .headers(HeaderMap::from_iter(request.headers))
            .header(CONTENT_TYPE, "application/json")
            .body(request.body.to_string());
        let until = Instant::now() + LINGER;
        let mut response = timeout_at(until, post.send())
            .await
            .ok()?
            .ok()?
            .error_for_status()
            .ok()?;
        let mut body: Vec<u8> = Vec::new();
        while let Some(chunk) = timeout_at(until, response.chunk()).await.ok()?.ok()? {
            if body.len() + chunk.len() > MAX_WHOLE_BODY {
                return None;
            }
            body.extend_from_slice(&chunk);
        }
        framing::parse(&String::from_utf8(body).ok()?).ok()
    }

    async fn attempt<P: Protocol>(
        &self,
        request: &ServiceRequest<'_, P>,
        redactor: &Redactor,
        deadline: Option<Instant>,
        out: &mut Emitter,
    ) -> Result<Completion, FailedAttempt> {
        let HttpRequest { url, headers, body } = request.outgoing().map_err(FailedAttempt::fatal)?;
        let body = serde_json::to_vec(&body).map_err(|e| {
            FailedAttempt::fatal(self.error(
                ProviderErrorKind::InvalidRequest,
                format!("the request is not valid JSON: {e}"),
            ))
        })?;
        let post = self
            .client
            .post(url)
            .headers(HeaderMap::from_iter(headers))
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let response = self
            .in_time(deadline, post.send())
            .await?
            .map_err(|error| self.of_transport(error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(response, deadline).await);
        }
        let media_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_ascii_lowercase();
        if media_type.starts_with("text/html") {
            let page = self.start_of(response, deadline).await;
            return Err(FailedAttempt::fatal(self.error(
                ProviderErrorKind::Protocol,
                format!(
                    "received a web page instead of an answer, the base URL is probably wrong: {}",
                    bounded(&page)
                ),
            )));
        }
        // Some servers do not stream although a stream was requested.
        let whole = P::FRAMING == Framing::Sse && media_type.starts_with("application/json");
        let answer = request.answer().redacting(redactor.clone());
        self.read(request, answer, response, whole, deadline, out).await
    }

    async fn read<P: Protocol>(
        &self,
        request: &ServiceRequest<'_, P>,
        mut answer: ResponseBuilder,
        mut response: reqwest::Response,
        whole: bool,
        deadline: Option<Instant>,
        out: &mut Emitter,
    ) -> Result<Completion, FailedAttempt> {
        let mut decoder = request.decoder();
        let mut reader = Reader::new(P::FRAMING);
        let mut limits = StreamLimits::new(self.options.progress_timeout);
        let mut collected = Vec::new();
        let mut progress = DecoderState::Open;
        let mut linger: Option<Instant> = None;
        while progress != DecoderState::Done {
            let until = [deadline, linger, Some(limits.until())]
                .into_iter()
                .flatten()
                .min();
            let chunk = match self.in_time(until, response.chunk()).await {
                Ok(Ok(chunk)) => chunk,
                // The missing part is less important than the answer.
                _ if progress == DecoderState::Settled => None,
                Ok(Err(error)) => return Err(self.cut_off(&error_chain(&error.without_url()))),
                Err(_) if limits.until() <= Instant::now() => return Err(self.stalled()),
                Err(failure) => return Err(failure),
            };
            let ended = chunk.is_none();
            let chunk = chunk.unwrap_or_default();
            if whole {
                if collected.len() + chunk.len() > MAX_WHOLE_BODY {
                    return Err(FailedAttempt::fatal(self.error(
                        ProviderErrorKind::Protocol,
                        format!("the answer exceeds {MAX_WHOLE_BODY} bytes"),
                    )));
                }
                collected.extend_from_slice(&chunk);
                if ended {
                    let data = String::from_utf8(std::mem::take(&mut collected))
                        .map_err(|_| self.of_framing(FramingError::NotUtf8))?;
                    let event = Event {
                        name: String::new(),
                        data,
                    };
                    progress = self.take(&mut decoder, event, &mut answer, out).await?;
                }
            } else {
                limits.bytes(chunk.len()).map_err(|e| self.of_limit(e))?;
                reader.push(&chunk);
                if ended {
                    reader.end();
                }
                while progress != DecoderState::Done {
                    let event = reader.next().map_err(|e| self.of_framing(e))?;
                    limits.lines(reader.take_lines()).map_err(|e| self.of_limit(e))?;
                    let Some(event) = event else { break };
                    let before = answer.progress();
                    let next = match self.take(&mut decoder, event, &mut answer, out).await {
                        // An incomplete event means a broken connection, not a broken server.
                        Err(failure) if ended && failure.error.kind == ProviderErrorKind::Protocol => {
                            return Err(self.cut_off("the connection was closed inside an event"));
                        }
                        other => other?,
                    };
                    if answer.progress() != before || (next != progress && next != DecoderState::Open) {
                        limits.progress();
                    }
                    // An answer that was complete stays complete.
                    if next != DecoderState::Open {
                        progress = next;
                    }
                }
            }
            if progress == DecoderState::Settled && linger.is_none() {
                linger = Some(Instant::now() + LINGER);
            }
            if ended {
                break;
            }
        }
        if progress == DecoderState::Open {
            return Err(self.cut_off("the connection was closed"));
        }
        let completion = decoder.finish(&mut answer);
        for delta in answer.take_deltas() {
            out.emit(delta).await;
        }
        answer.check_size()?;
        completion
    }

    async fn take<D: Decoder>(
        &self,
        decoder: &mut D,
        event: Event,
        answer: &mut ResponseBuilder,
        out: &mut Emitter,
    ) -> Result<DecoderState, FailedAttempt> {
        let progress = decoder.event(event, answer);
        for delta in answer.take_deltas() {
            out.emit(delta).await;
        }
        answer.check_size()?;
        progress
    }

    /// Error of a response whose status is not 2xx.
    pub(super) async fn refused(
        &self,
        response: reqwest::Response,
        deadline: Option<Instant>,
    ) -> FailedAttempt {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = self.start_of(response, deadline).await;
        of_response(&self.provider, status, &headers, &body)
    }

    /// Reads the first [`MAX_ERROR_BODY`] bytes of a body, or the part that arrives in time.
    async fn start_of(&self, mut response: reqwest::Response, deadline: Option<Instant>) -> String {
        let linger = Instant::now() + LINGER;
        let until = deadline.map_or(linger, |deadline| deadline.min(linger));
        let mut body: Vec<u8> = Vec::new();
        while body.len() < MAX_ERROR_BODY
            && let Ok(Ok(Some(chunk))) = timeout_at(until, response.chunk()).await
        {
            let chunk: Bytes = chunk;
            let room = MAX_ERROR_BODY - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        String::from_utf8_lossy(&body).into_owned()
    }

    /// Waits for `work`, limited by the idle timeout and the deadline.
    pub(super) async fn in_time<T>(
        &self,
        deadline: Option<Instant>,
        work: impl Future<Output = T>,
    ) -> Result<T, FailedAttempt> {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            // The deadline also applies to a server that sends without pause.
            return Err(self.too_late());
        }
        let idle = now + self.options.idle_timeout;
        match timeout_at(deadline.map_or(idle, |deadline| deadline.min(idle)), work).await {
            Ok(done) => Ok(done),
            Err(_) if deadline.is_some_and(|deadline| deadline < idle) => Err(self.too_late()),
            Err(_) => Err(self.timeout(format!("no data received for {:?}", self.options.idle_timeout))),
        }
    }

    fn too_late(&self) -> FailedAttempt {
        self.timeout(format!(
            "the request exceeded the deadline of {:?}",
            self.options.deadline.unwrap_or(LINGER)
        ))
    }

    fn stalled(&self) -> FailedAttempt {
        self.timeout(format!(
            "no part of the answer received for {:?}, although the connection is open",
            self.options.progress_timeout
        ))
    }

    fn timeout(&self, message: String) -> FailedAttempt {
        FailedAttempt::fatal(self.error(ProviderErrorKind::Timeout, message))
    }

    fn of_limit(&self, limit: StreamLimit) -> FailedAttempt {
        FailedAttempt::fatal(self.error(ProviderErrorKind::Protocol, limit.to_string()))
    }

    pub(super) fn of_transport(&self, error: reqwest::Error) -> FailedAttempt {
        let kind = match () {
            () if error.is_builder() => ProviderErrorKind::InvalidRequest,
            () if error.is_connect() && error.is_timeout() => ProviderErrorKind::Timeout,
            () => ProviderErrorKind::Network,
        };
        // A refused certificate is refused on a retry as well.
        let transient = kind != ProviderErrorKind::InvalidRequest && !refuses_tls(&error);
        // Without the URL, whose query may contain a key.
        let message = error_chain(&error.without_url());
        FailedAttempt {
            transient,
            ..FailedAttempt::fatal(self.error(kind, message))
        }
    }

    fn of_framing(&self, error: FramingError) -> FailedAttempt {
        FailedAttempt::fatal(self.error(FramingError::KIND, error.to_string()))
    }

    fn cut_off(&self, why: &str) -> FailedAttempt {
        FailedAttempt::transient(self.error(ProviderErrorKind::Truncated, why))
    }

    pub(super) fn error(&self, kind: ProviderErrorKind, message: impl Into<String>) -> ProviderError {
        ProviderError::new(&self.provider, kind, message)
    }

    /// Returns the redactor of the key, the headers, and an access token.
    pub(super) fn redactor(&self, token: Option<&ApiKey>) -> Redactor {
        match token {
            None => self.redactor.clone(),
            token => redactor(self.key.iter().chain(token), &self.options),
        }
    }

    /// As [`Self::without_secrets`], of a failure outside of a conversation.
    pub(super) fn without_secrets_of(&self, failure: FailedAttempt, token: Option<&ApiKey>) -> FailedAttempt {
        self.without_secrets(failure, token, &self.redactor(token))
    }

    /// Redacts an error, because a server may repeat the key that it received.
    fn without_secrets(
        &self,
        mut failure: FailedAttempt,
        token: Option<&ApiKey>,
        redactor: &Redactor,
    ) -> FailedAttempt {
        let message = &mut failure.error.message;
        let keys = self.key.iter().chain(token).map(ApiKey::expose);
        for value in keys.filter(is_secret).chain(secret_headers(&self.options)) {
            *message = redact(value, message);
        }
        redactor.string(message);
        failure
    }
}

/// Adds the limit that a wait exceeds to an error, if the server asked for one.
fn not_waiting(mut error: ProviderError, limit: Option<WaitLimit>) -> ProviderError {
    error.wait_limit = limit.filter(|_| error.retry_after_ms.is_some());
    error
}

/// Redactor of keys, tokens and header values in the output of a provider.
fn redactor<'a>(keys: impl Iterator<Item = &'a ApiKey>, options: &'a HttpOptions) -> Redactor {
    let keys = keys.map(ApiKey::expose).filter(is_secret);
    Redactor::new(keys.chain(secret_headers(options)).map(|value| ("key", value)))
}

fn is_secret(value: &&str) -> bool {
    value.len() >= MIN_SECRET
}

/// Values of additional headers. Short ones are words such as `true` rather than secrets; of `Bearer TOKEN`, the token
/// is a secret as well.
fn secret_headers(options: &HttpOptions) -> impl Iterator<Item = &str> {
    let values = options.headers.iter().map(|(_, value)| value.as_str());
    let words = values.clone().filter_map(|value| value.split_whitespace().last());
    values.chain(words).filter(is_secret)
}

/// Error for an event that is not valid JSON or violates the protocol.
pub(crate) fn malformed(provider: &str, why: impl std::fmt::Display, data: &str) -> FailedAttempt {
    FailedAttempt::fatal(ProviderError::new(
        provider,
        ProviderErrorKind::Protocol,
        format!("{why}: {}", bounded(data)),
    ))
}

/// Error for an error object inside a stream.
pub(crate) fn error_in_stream(provider: &str, value: &Value) -> FailedAttempt {
    failure::in_stream(provider, value)
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http")
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

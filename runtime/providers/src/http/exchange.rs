//! One request to a model with its retries, as every provider does it.
//!
//! A [`Protocol`] says what to send and how to read the answer; what happens between is here: time limits, retries before
//! the first delta, the end of the stream, and errors without secrets.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use toolcell_core::provider::{Completion, Delta, ProviderErrorKind};
use toolcell_core::{ProviderError, Redactor};

use super::client::{chain, client, refuses_tls};
use super::failure::{bounded, of_response};
use super::protocol::{Decoder, Header, Progress, Protocol};
use super::provider::Exchange;
use super::retry::Failure;
use super::stream_limits::{StreamLimit, StreamLimits};
use super::{HttpOptions, failure};
use crate::emit::Emitter;
use crate::framing::{Event, Framing, FramingError, MAX_EVENT_BYTES, Reader};
use crate::key::redact;
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, SetupError};

/// Longest body of an error that is read, in bytes; the rest is not waited for.
const MAX_ERROR_BODY: usize = 64 << 10;

/// Longest body of an answer that comes in one piece though a stream was asked for, in bytes: as long as an event of a stream.
const MAX_WHOLE_BODY: usize = MAX_EVENT_BYTES;

/// Bytes of the shortest key that is looked for in answers. A shorter one is a word, such as the `ollama` that some local
/// servers want to hear.
const MIN_SECRET: usize = 8;

/// How long a stream may go on after everything that matters was read. Servers exist that neither send the end marker
/// nor close the connection; what may still come is the usage.
const LINGER: Duration = Duration::from_secs(5);

/// Most times that one request is changed because a server refuses a part of it.
const MAX_ADAPTATIONS: u32 = 8;

/// What goes over the wire.
pub(super) struct Outgoing {
    pub(super) url: String,
    pub(super) headers: Vec<Header>,
    pub(super) body: Value,
}

/// A provider's connection.
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

    /// Sends a request, and again where that may help, and reads the answer.
    pub(super) async fn exchange<P: Protocol>(
        &self,
        mut exchange: Exchange<'_, P>,
        out: &mut Emitter,
    ) -> Result<Completion, ProviderError> {
        let deadline = self.options.deadline.map(|d| Instant::now() + d);
        let mut attempt = 1;
        let mut retries = 0;
        let mut adaptations = 0;
        loop {
            exchange.authorize().await?;
            let redactor = match exchange.secret() {
                None => self.redactor.clone(),
                token => redactor(self.key.iter().chain(token), &self.options),
            };
            let failure = match self.attempt(&exchange, &redactor, deadline, out).await {
                Ok(completion) => return Ok(completion),
                Err(failure) => self.without_secrets(failure, exchange.secret(), &redactor),
            };
            if out.has_emitted() {
                return Err(failure.error);
            }
            let pause = if adaptations < MAX_ADAPTATIONS && exchange.adapt(&failure.error) {
                adaptations += 1;
                Duration::ZERO
            } else {
                retries += 1;
                match self.options.retry.pause(retries, &failure, fastrand::f64()) {
                    Some(pause) => pause,
                    None => return Err(failure.error),
                }
            };
            if deadline.is_some_and(|deadline| Instant::now() + pause >= deadline) {
                return Err(failure.error);
            }
            attempt += 1;
            tracing::debug!(
                provider = self.provider,
                attempt,
                ?pause,
                "a request is sent again"
            );
            out.emit(Delta::Retry {
                attempt,
                delay_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                reason: failure.error.to_string(),
            })
            .await;
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt<P: Protocol>(
        &self,
        exchange: &Exchange<'_, P>,
        redactor: &Redactor,
        deadline: Option<Instant>,
        out: &mut Emitter,
    ) -> Result<Completion, Failure> {
        let Outgoing { url, headers, body } = exchange.outgoing().map_err(Failure::fatal)?;
        let body = serde_json::to_vec(&body).map_err(|e| {
            Failure::fatal(self.error(ProviderErrorKind::InvalidRequest, format!("it is no JSON: {e}")))
        })?;
        let request = self
            .client
            .post(url)
            .headers(HeaderMap::from_iter(headers))
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let response = self
            .in_time(deadline, request.send())
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
            return Err(Failure::fatal(self.error(
                ProviderErrorKind::Protocol,
                format!(
                    "a web page came instead of an answer, so the base URL is probably wrong: {}",
                    bounded(&page)
                ),
            )));
        }
        // Asked for a stream, some servers answer in one piece all the same.
        let whole = P::FRAMING == Framing::Sse && media_type.starts_with("application/json");
        let answer = exchange.answer().redacting(redactor.clone());
        self.read(exchange, answer, response, whole, deadline, out).await
    }

    async fn read<P: Protocol>(
        &self,
        exchange: &Exchange<'_, P>,
        mut answer: ResponseBuilder,
        mut response: reqwest::Response,
        whole: bool,
        deadline: Option<Instant>,
        out: &mut Emitter,
    ) -> Result<Completion, Failure> {
        let mut decoder = exchange.decoder();
        let mut reader = Reader::new(P::FRAMING);
        let mut limits = StreamLimits::new(self.options.progress_timeout);
        let mut collected = Vec::new();
        let mut progress = Progress::Open;
        let mut linger: Option<Instant> = None;
        while progress != Progress::Done {
            let until = [deadline, linger, Some(limits.until())]
                .into_iter()
                .flatten()
                .min();
            let chunk = match self.in_time(until, response.chunk()).await {
                Ok(Ok(chunk)) => chunk,
                // What was missing is worth less than the answer.
                _ if progress == Progress::Settled => None,
                Ok(Err(error)) => return Err(self.cut_off(&chain(&error.without_url()))),
                Err(_) if limits.until() <= Instant::now() => return Err(self.stalled()),
                Err(failure) => return Err(failure),
            };
            let ended = chunk.is_none();
            let chunk = chunk.unwrap_or_default();
            if whole {
                if collected.len() + chunk.len() > MAX_WHOLE_BODY {
                    return Err(Failure::fatal(self.error(
                        ProviderErrorKind::Protocol,
                        format!("the answer is longer than {MAX_WHOLE_BODY} bytes"),
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
                while progress != Progress::Done {
                    let event = reader.next().map_err(|e| self.of_framing(e))?;
                    limits.lines(reader.take_lines()).map_err(|e| self.of_limit(e))?;
                    let Some(event) = event else { break };
                    let before = answer.progress();
                    let next = match self.take(&mut decoder, event, &mut answer, out).await {
                        // Half an event is no broken server but a broken connection.
                        Err(failure) if ended && failure.error.kind == ProviderErrorKind::Protocol => {
                            return Err(self.cut_off("the connection was closed inside an event"));
                        }
                        other => other?,
                    };
                    if answer.progress() != before || (next != progress && next != Progress::Open) {
                        limits.progress();
                    }
                    // An answer that was complete stays so.
                    if next != Progress::Open {
                        progress = next;
                    }
                }
            }
            if progress == Progress::Settled && linger.is_none() {
                linger = Some(Instant::now() + LINGER);
            }
            if ended {
                break;
            }
        }
        if progress == Progress::Open {
            return Err(self.cut_off("the connection was closed"));
        }
        let completion = decoder.finish(&mut answer);
        for delta in answer.take_deltas() {
            out.emit(delta).await;
        }
        completion
    }

    async fn take<D: Decoder>(
        &self,
        decoder: &mut D,
        event: Event,
        answer: &mut ResponseBuilder,
        out: &mut Emitter,
    ) -> Result<Progress, Failure> {
        let progress = decoder.event(event, answer);
        for delta in answer.take_deltas() {
            out.emit(delta).await;
        }
        answer.check_size()?;
        progress
    }

    /// The error of a response whose status is not 2xx.
    async fn refused(&self, response: reqwest::Response, deadline: Option<Instant>) -> Failure {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = self.start_of(response, deadline).await;
        of_response(&self.provider, status, &headers, &body)
    }

    /// The first [`MAX_ERROR_BODY`] bytes of a body, or as much as comes in time.
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

    /// Waits for `work`, at most the idle timeout and at most until the deadline.
    async fn in_time<T>(
        &self,
        deadline: Option<Instant>,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            // A server that always has something to say is not waited for either.
            return Err(self.too_late());
        }
        let idle = now + self.options.idle_timeout;
        match timeout_at(deadline.map_or(idle, |deadline| deadline.min(idle)), work).await {
            Ok(done) => Ok(done),
            Err(_) if deadline.is_some_and(|deadline| deadline < idle) => Err(self.too_late()),
            Err(_) => Err(self.timeout(format!("nothing came for {:?}", self.options.idle_timeout))),
        }
    }

    fn too_late(&self) -> Failure {
        self.timeout(format!(
            "not finished within the deadline of {:?}",
            self.options.deadline.unwrap_or(LINGER)
        ))
    }

    fn stalled(&self) -> Failure {
        self.timeout(format!(
            "nothing of the answer came for {:?}, though the connection was kept",
            self.options.progress_timeout
        ))
    }

    fn timeout(&self, message: String) -> Failure {
        Failure::fatal(self.error(ProviderErrorKind::Timeout, message))
    }

    fn of_limit(&self, limit: StreamLimit) -> Failure {
        Failure::fatal(self.error(ProviderErrorKind::Protocol, limit.to_string()))
    }

    fn of_transport(&self, error: reqwest::Error) -> Failure {
        let kind = match () {
            () if error.is_builder() => ProviderErrorKind::InvalidRequest,
            () if error.is_connect() && error.is_timeout() => ProviderErrorKind::Timeout,
            () => ProviderErrorKind::Network,
        };
        // A certificate that is refused now is refused a second later.
        let transient = kind != ProviderErrorKind::InvalidRequest && !refuses_tls(&error);
        // Without the URL: a key may stand in its query.
        let message = chain(&error.without_url());
        Failure {
            transient,
            error: self.error(kind, message),
        }
    }

    fn of_framing(&self, error: FramingError) -> Failure {
        Failure::fatal(self.error(FramingError::KIND, error.to_string()))
    }

    fn cut_off(&self, why: &str) -> Failure {
        Failure::transient(self.error(ProviderErrorKind::Truncated, why))
    }

    fn error(&self, kind: ProviderErrorKind, message: impl Into<String>) -> ProviderError {
        ProviderError::new(&self.provider, kind, message)
    }

    /// A server may repeat the key that it was sent.
    fn without_secrets(&self, mut failure: Failure, token: Option<&ApiKey>, redactor: &Redactor) -> Failure {
        let message = &mut failure.error.message;
        for key in self.key.iter().chain(token) {
            *message = redact(key.expose(), message);
        }
        for value in secret_headers(&self.options) {
            *message = redact(value, message);
        }
        redactor.string(message);
        failure
    }
}

/// Finds keys and tokens, and the values of further headers, in what a provider says.
fn redactor<'a>(keys: impl Iterator<Item = &'a ApiKey>, options: &'a HttpOptions) -> Redactor {
    let keys = keys.map(ApiKey::expose).filter(|key| key.len() >= MIN_SECRET);
    Redactor::new(keys.chain(secret_headers(options)).map(|value| ("key", value)))
}

/// The values of further headers. Short ones are words such as `true` rather than secrets; of `Bearer TOKEN` the token is one
/// too.
fn secret_headers(options: &HttpOptions) -> impl Iterator<Item = &str> {
    let values = options.headers.iter().map(|(_, value)| value.as_str());
    let words = values.clone().filter_map(|value| value.split_whitespace().last());
    values.chain(words).filter(|value| value.len() >= MIN_SECRET)
}

/// The error for an event that is no JSON or not what the wire prescribes.
pub(crate) fn malformed(provider: &str, why: impl std::fmt::Display, data: &str) -> Failure {
    Failure::fatal(ProviderError::new(
        provider,
        ProviderErrorKind::Protocol,
        format!("{why}: {}", bounded(data)),
    ))
}

/// The error for an error object inside a stream.
pub(crate) fn error_in_stream(provider: &str, value: &Value) -> Failure {
    failure::in_stream(provider, value)
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http")
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

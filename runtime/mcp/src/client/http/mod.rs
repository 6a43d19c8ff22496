//! A server over streamable HTTP: each request is an exchange of its own, whose answer is JSON or a stream of events.
//!
//! The connections have the TLS settings of all others. Redirects are not followed, because the headers would go to
//! another server, and proxies of the environment are not used. An answer is bounded before it is parsed, and one that is
//! compressed is refused, because nothing asks for that.

mod address;
mod authorization;
mod events;
mod exchange;
mod follow;
#[cfg(test)]
mod hostile;
mod plain;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;

use self::events::Events;
use self::exchange::{exchange, form};
use super::error::ServerError;
use super::link::MAX_ANSWER_BYTES;
use super::message::{self, Received};
use crate::param_headers::header_value;
use crate::version::Version;

pub use address::{Remote, RemoteError, check_header_name, check_url};
pub use authorization::{Challenge, MAX_CHALLENGE_BYTES, Refused, TokenSource};
pub(super) use follow::ListenPause;

/// Maximum size of all events of one stream, in bytes: some messages of the maximum size. A stream that never ends is cut
/// there.
pub const MAX_STREAM_BYTES: usize = 8 * MAX_ANSWER_BYTES;

/// Maximum size of the body of a refusal, in bytes. The rest says nothing that is shown.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// Maximum size of the identifier of a session, in bytes.
const MAX_SESSION_ID: usize = 4 << 10;

/// Pause before a closed stream is continued, unless the server states another.
const RETRY: Duration = Duration::from_secs(1);

/// Limits of the pause that a server can state.
const MIN_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Time for a message that has no answer, such as a notification.
pub(super) const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// Time in which a session is ended.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of times that a request is sent again with another token: the one that is kept, and the one after it.
const MAX_RENEWALS: usize = 2;

/// Method of HTTP that opens a stream of messages.
const LISTEN: &str = "GET";

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// A request to be sent.
pub(super) struct Outgoing<'a> {
    pub(super) id: i64,
    pub(super) method: &'static str,
    pub(super) params: &'a Value,
    /// Arguments that the schema of the tool places in headers.
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// Connections to a server, and its session.
pub(super) struct Endpoint {
    client: reqwest::Client,
    remote: Remote,
    session: Mutex<HttpSession>,
}

#[derive(Default)]
struct HttpSession {
    /// Identifier that the server gave to the session.
    id: Option<HeaderValue>,
    /// True once the server did not know the session any more.
    is_lost: bool,
    /// Version that is spoken; `None` during `initialize`.
    version: Option<Version>,
}

/// Form of an answer.
#[derive(PartialEq)]
enum Form {
    Json,
    Events,
}

/// Handles a message of the server. Fails if it was one too many.
pub(super) type Receive<'a> = dyn Fn(Received) -> Result<(), ServerError> + Send + Sync + 'a;

impl Endpoint {
    pub(super) fn new(client: reqwest::Client, remote: Remote) -> Self {
        Self {
            client,
            remote,
            session: Mutex::default(),
        }
    }

    /// Sets the version of the following messages.
    pub(super) fn set_version(&self, version: Option<Version>) {
        self.lock().version = version;
    }

    /// True if the server has plain endpoints instead of the protocol.
    pub(super) fn is_plain(&self) -> bool {
        self.remote.is_plain()
    }

    /// True if closing an answer cancels the request.
    pub(super) fn cancels_by_closing(&self) -> bool {
        self.is_plain() || self.is_stateless()
    }

    /// True if each request is independent.
    pub(super) fn is_stateless(&self) -> bool {
        self.lock().version.is_some_and(Version::is_stateless)
    }

    /// True once the server did not know the session any more, so that another one has to be opened.
    pub(super) fn is_lost(&self) -> bool {
        self.lock().is_lost
    }

    /// Sends a request, and hands all messages of its answer to `receive`, up to the answer itself.
    pub(super) async fn request(
        &self,
        outgoing: Outgoing<'_>,
        receive: &Receive<'_>,
    ) -> Result<(), ServerError> {
        if self.is_plain() {
            return receive(self.plain(outgoing).await?);
        }
        let Outgoing {
            id,
            method,
            params,
            headers,
            body,
        } = outgoing;
        let mut request = self.message(method, Some(params)).headers(headers);
        request = request.body(body);
        let mut response = self.send(request, method).await?;
        if method == "initialize" {
            self.keep_session(&response)?;
        }
        if form(&response, method, &self.redactor())? == Form::Json {
            let body = self.body_of(&mut response, method, MAX_ANSWER_BYTES).await?;
            return match message::parse(&body) {
                received @ Received::Answer { id: theirs, .. } if theirs == id => receive(received),
                _ => Err(ServerError::invalid(method, "is not an answer to it")),
            };
        }
        let mut events = Events::default();
        let mut size = 0;
        // The time of the request, and the pauses, limit how often its stream is continued.
        loop {
            let is_answered = self
                .read_events(
                    &mut response,
                    &mut events,
                    &mut size,
                    method,
                    &|received| match received {
                        Received::Answer { id: theirs, .. } if theirs == id => {
                            receive(received).map(|()| true)
                        }
                        // An answer to another request has no place in this stream.
                        Received::Answer { .. } => receive(Received::Invalid).map(|()| false),
                        other => receive(other).map(|()| false),
                    },
                )
                .await?;
            if is_answered {
                return Ok(());
            }
            let Some(last) = events.last_id.take().filter(|_| !self.is_stateless()) else {
                return Err(ServerError::Cut);
            };
            tokio::time::sleep(events.retry.unwrap_or(RETRY).clamp(MIN_RETRY, MAX_RETRY)).await;
            response = self.listen(Some(&last)).await.map_err(|error| match error {
                // The request itself was accepted, and may have had an effect: it must not count as unsent.
                ServerError::SessionLost
                | ServerError::Unauthorized(_)
                | ServerError::InsufficientScope(_)
                | ServerError::Redirected(_)
                | ServerError::Unreachable(_) => ServerError::Cut,
                error => error,
            })?;
            events.restart(last);
        }
    }

    /// Sends a message that has no answer.
    pub(super) async fn post(&self, body: Vec<u8>, method: &'static str) -> Result<(), ServerError> {
        let request = self.message(method, None).body(body);
        self.send(request, method).await.map(drop)
    }

    /// Ends the session at the server, if there is one.
    pub(super) async fn end(&self) {
        let has_session = {
            let session = self.lock();
            session.id.is_some() && !session.is_lost
        };
        if !has_session {
            return;
        }
        let request = self.with_session(self.client.request(Method::DELETE, self.remote.url()));
        let ended = async {
            let (request, _) = self.with_token(request).await;
            request.send().await
        };
        let _ = tokio::time::timeout(END_TIMEOUT, ended).await;
    }

    /// Opens a stream of events, from the event after `last`.
    async fn listen(&self, last: Option<&str>) -> Result<Response, ServerError> {
        let mut request = self
            .with_session(self.client.get(self.remote.url()))
            .header(ACCEPT, "text/event-stream");
        if let Some(last) = last {
            request = request.header(LAST_EVENT, last);
        }
        let response = self.send(request, LISTEN).await?;
        match form(&response, LISTEN, &self.redactor())? {
            Form::Events => Ok(response),
            Form::Json => Err(ServerError::invalid(LISTEN, "is not a stream of events")),
        }
    }

    /// Builds the request that carries a message.
    fn message(&self, method: &str, params: Option<&Value>) -> RequestBuilder {
        let mut request = self
            .with_session(self.client.post(self.remote.url()))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        if self.is_stateless() {
            request = request.header(METHOD, method);
            let name = params.and_then(|params| {
                let key = match method {
                    "tools/call" | "prompts/get" => "name",
                    "resources/read" => "uri",
                    _ => return None,
                };
                params[key].as_str()
            });
            if let Some(name) = name.and_then(header_value) {
                request = request.header(NAME, name);
            }
        }
        request
    }

    /// Adds the headers of the user, of the session and of the version.
    fn with_session(&self, request: RequestBuilder) -> RequestBuilder {
        let session = self.lock();
        let mut headers = self.remote.headers().clone();
        if let Some(id) = &session.id {
            headers.insert(SESSION, id.clone());
        }
        // Older versions do not have the header.
        if let Some(version) = session.version.filter(|version| *version >= Version::V2025_06_18) {
            headers.insert(VERSION, HeaderValue::from_static(version.as_str()));
        }
        request.headers(headers)
    }

    fn keep_session(&self, response: &Response) -> Result<(), ServerError> {
        let Some(id) = response.headers().get(SESSION) else {
            return Ok(());
        };
        if id.len() > MAX_SESSION_ID {
            let reason = format!("has a session identifier of more than {MAX_SESSION_ID} bytes");
            return Err(ServerError::invalid("initialize", reason));
        }
        let mut id = id.clone();
        id.set_sensitive(true);
        self.lock().id = Some(id);
        Ok(())
    }

    /// Sends a request, and returns its response if it was accepted.
    async fn send(&self, request: RequestBuilder, method: &'static str) -> Result<Response, ServerError> {
        let has_session = self.lock().id.is_some();
        let again = request.try_clone();
        let (request, mut token) = self.with_token(request).await;
        let mut response = exchange(request).await?;
        if let (Some(tokens), Some(again)) = (self.remote.tokens(), again) {
            for _ in 0..MAX_RENEWALS {
                if response.status() != StatusCode::UNAUTHORIZED {
                    break;
                }
                // The request was refused, so it had no effect.
                let Some(renewed) = tokens.source.renewed(token.as_deref()).await else {
                    break;
                };
                let (Some(header), Some(request)) = (tokens.header(&renewed), again.try_clone()) else {
                    break;
                };
                response = exchange(request.header(AUTHORIZATION, header)).await?;
                token = Some(renewed);
            }
        }
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            return Err(ServerError::Redirected(status.as_u16()));
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let refused = Refused {
                challenge: Challenge::of(response.headers(), &self.redactor()),
                hint: self.remote.tokens().map(|tokens| tokens.source.hint()),
            };
            if status == StatusCode::UNAUTHORIZED {
                return Err(ServerError::Unauthorized(refused));
            }
            if refused.challenge.error.as_deref() == Some("insufficient_scope") {
                if let (Some(tokens), Some(scope), true) =
                    (self.remote.tokens(), &refused.challenge.scope, token.is_some())
                {
                    tokens.source.lacks(scope).await;
                }
                return Err(ServerError::InsufficientScope(refused));
            }
        }
        if self.is_plain() && matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) {
            // There is no such endpoint, whatever the body says.
            return Err(ServerError::Status {
                method: method.to_owned(),
                status: status.as_u16(),
            });
        }
        if method == LISTEN && !(status == StatusCode::NOT_FOUND && has_session) {
            // The status tells whether it can be opened later.
            return Err(ServerError::Status {
                method: method.to_owned(),
                status: status.as_u16(),
            });
        }
        let body = self.body_of(&mut response, method, MAX_REFUSAL_BYTES).await;
        let told = body.as_deref().map(message::parse_refusal).unwrap_or_default();
        let is_unknown_method = matches!(told, Some((-32601, _)));
        if status == StatusCode::NOT_FOUND && has_session && !is_unknown_method {
            self.lock().is_lost = true;
            return Err(ServerError::SessionLost);
        }
        Err(match told {
            Some((code, message)) => ServerError::Answered {
                method: method.to_owned(),
                code,
                message,
            },
            None => ServerError::Status {
                method: method.to_owned(),
                status: status.as_u16(),
            },
        })
    }

    fn lock(&self) -> MutexGuard<'_, HttpSession> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

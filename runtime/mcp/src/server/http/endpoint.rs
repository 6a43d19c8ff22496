//! Requests over HTTP: from the path to the exchange of messages.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming as IncomingBody;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use toolcell_http::{BoxBody, BoxFuture, Origin, Peer, Service, Takes};

use super::answer::{self, Answer};
use super::authentication;
use super::client::{Client, MAX_REQUESTS};
use super::headers::{self, SESSION, VERSION};
use super::plain;
use super::refused::{Refused, no_session, unhandled};
use super::sessions::OpenSession;
use super::{Access, Authorization, KnownBy, MAX_CONNECTIONS, Metrics, Reached};
use crate::lines::MAX_MESSAGE_BYTES;
use crate::message::{self, Incoming, RpcError};
use crate::server::DRAIN;
use crate::server::connection::Connection;
use crate::server::in_flight::{MAX_IN_FLIGHT_BYTES, memory_of_message};
use crate::server::outbox::Outbox;
use crate::version::Version;

/// Path of the messages.
pub const PATH: &str = "/mcp";

/// Maximum number of all requests in progress, including cancelled ones that have not ended. The end of the last one is
/// known from it.
const ALL: u32 = 512;
const _: () = assert!(ALL as usize == 2 * MAX_CONNECTIONS);

/// Server of all connections.
pub(crate) struct Endpoint {
    clients: Vec<Client>,
    authorization: Option<Authorization>,
    reached: Reached,
    pub(super) metrics: Arc<Metrics>,
    exchanges: Arc<Semaphore>,
    /// Cancelled when the requests in progress are given up.
    stopped: CancellationToken,
}

/// Message of a request, its session, and whether it begins one.
struct Exchange {
    message: Incoming,
    session: OpenSession,
    begins_session: bool,
}

impl Service for Endpoint {
    fn respond<'a>(
        &'a self,
        request: Request<IncomingBody>,
        origin: Origin<'a>,
    ) -> BoxFuture<'a, Response<BoxBody>> {
        Box::pin(async move {
            let response = self.answer_request(request, origin).await;
            response.map(BodyExt::boxed_unsync)
        })
    }

    fn connected(&self, change: i64) {
        self.metrics.connected(change);
    }

    fn is_open(&self) -> bool {
        (self.clients.iter()).any(|client| matches!(client.known_by, KnownBy::Nothing))
    }

    /// Ends all streams that only tell of changes.
    fn end_streams(&self) {
        for client in &self.clients {
            client.server.0.listeners.closed.cancel();
        }
    }

    fn cancel(&self) {
        self.stopped.cancel();
    }

    /// Waits until the receipts of all requests are recorded.
    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let _ = tokio::time::timeout(2 * DRAIN, self.exchanges.acquire_many(ALL)).await;
        })
    }
}

impl Endpoint {
    pub(crate) fn new(access: Access, reached: Reached, metrics: Arc<Metrics>) -> Self {
        let (known, authorization) = match access {
            Access::Open(server) => (vec![(KnownBy::Nothing, server)], None),
            Access::Clients(clients, authorization) => (clients, authorization),
        };
        let all = known.len();
        let clients = known
            .into_iter()
            .map(|(known_by, server)| Client::new(known_by, server, all));
        Self {
            clients: clients.collect(),
            authorization,
            reached,
            metrics,
            exchanges: Arc::new(Semaphore::new(ALL as usize)),
            stopped: CancellationToken::new(),
        }
    }

    /// Takes the room of all messages that are not written.
    #[cfg(test)]
    pub(crate) fn fill(&self) -> Vec<OwnedSemaphorePermit> {
        let all = self.clients.iter().map(|client| {
            let room = client.unread.free.clone();
            let whole = u32::try_from(room.available_permits()).unwrap();
            room.try_acquire_many_owned(whole).unwrap()
        });
        all.collect()
    }

    /// Takes the room of the messages that are not handled, except for some bytes.
    #[cfg(test)]
    pub(crate) fn fill_messages(&self, rest: usize) -> Vec<OwnedSemaphorePermit> {
        let all = self.clients.iter().map(|client| {
            let taken = u32::try_from(MAX_IN_FLIGHT_BYTES - rest).unwrap();
            client.messages.clone().try_acquire_many_owned(taken).unwrap()
        });
        all.collect()
    }

    /// True if no request is in progress, and no message waits.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.clients
            .iter()
            .all(|client| client.is_idle(self.clients.len()))
            && self.exchanges.available_permits() == ALL as usize
    }

    async fn answer_request(&self, request: Request<IncomingBody>, origin: Origin<'_>) -> Response<Answer> {
        let Origin {
            address,
            is_stopping,
            peer,
        } = origin;
        let plain = self.plain(request.uri().path());
        let response = match self.route(request, address, is_stopping, peer, plain).await {
            Ok(response) => response,
            Err(refused) => refused.response(),
        };
        let response = match plain {
            Some(_) => plain::without_envelope(response),
            None => response,
        };
        self.metrics.responded(response.status().as_u16());
        response
    }

    /// Returns the reader of the bodies of a plain endpoint; `None` for any other path.
    fn plain(&self, path: &str) -> Option<plain::Read> {
        plain::of_path(path).filter(|_| self.reached.plain)
    }

    async fn route(
        &self,
        request: Request<IncomingBody>,
        address: SocketAddr,
        is_stopping: bool,
        peer: &Peer,
        plain: Option<plain::Read>,
    ) -> Result<Response<Answer>, Refused> {
        if !toolcell_http::is_for(request.uri(), request.headers(), address, &self.reached.from) {
            let reason = "the request is for another host, or comes from a page of another origin";
            return Err(Refused::new(StatusCode::FORBIDDEN, reason));
        }
        // The server leaves out the body of an answer to HEAD.
        let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            PATH => {}
            _ if plain.is_some() => {}
            path if path == "/healthz"
                || path == "/readyz"
                || path == "/metrics"
                || self.is_metadata(path) =>
            {
                if !is_get {
                    let reason = "the path does not take this method";
                    return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, reason).allowing("GET, HEAD"));
                }
                return self.supervise(path, request.headers(), is_stopping).await;
            }
            _ => {
                return Err(Refused::new(
                    StatusCode::NOT_FOUND,
                    "there is nothing at this path",
                ));
            }
        }
        let client = self.client_of(request.headers()).await?;
        peer.is_of_client();
        match *request.method() {
            Method::POST => self.post(client, request, peer, plain).await,
            Method::GET if plain.is_none() && request.headers().contains_key(SESSION) => {
                self.listen(client, request.headers(), peer)
            }
            Method::DELETE if plain.is_none() => {
                client.session(request.headers())?;
                let id = toolcell_http::only(request.headers(), SESSION);
                if id.is_some_and(|id| client.sessions.remove(id)) {
                    return Ok(answer::status(StatusCode::NO_CONTENT));
                }
                Err(no_session())
            }
            _ => Err(Refused::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "messages are sent with POST",
            )),
        }
    }

    /// Answers at the paths for supervision, and with the metadata of the server.
    async fn supervise(
        &self,
        path: &str,
        headers: &HeaderMap,
        is_stopping: bool,
    ) -> Result<Response<Answer>, Refused> {
        match path {
            "/readyz" if is_stopping => {
                Ok(answer::text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n".into()))
            }
            "/healthz" | "/readyz" => Ok(answer::text(StatusCode::OK, "ok\n".into())),
            "/metrics" => {
                self.client_of(headers).await?;
                let sessions = self.clients.iter().map(|client| client.sessions.count()).sum();
                Ok(answer::text(StatusCode::OK, self.metrics.render(sessions)))
            }
            _ => {
                let metadata = self.authorization.as_ref().map(|own| own.verifier.metadata());
                Ok(answer::message(
                    StatusCode::OK,
                    metadata.unwrap_or_default().into_bytes(),
                ))
            }
        }
    }

    /// Opens the stream of a session, for notifications that belong to no request.
    fn listen(&self, client: &Client, headers: &HeaderMap, peer: &Peer) -> Result<Response<Answer>, Refused> {
        if !toolcell_http::takes(headers).events {
            let reason = "the answer is of type `text/event-stream`";
            return Err(Refused::new(StatusCode::NOT_ACCEPTABLE, reason));
        }
        let session = client.session(headers)?;
        let Some(stream) = session.state.stream.clone().try_acquire_owned().ok() else {
            let reason = "the session has an open stream";
            return Err(Refused::new(StatusCode::CONFLICT, reason));
        };
        let places = self.places(client)?;
        let (outbox, unwritten) = Outbox::within(client.unread.clone(), true);
        let listeners = client.server.0.listeners.clone();
        let listening = listeners.add_session(outbox.clone(), session.state.followed.clone());
        let (stopped, closed) = (self.stopped.clone(), peer.closed());
        tokio::spawn(async move {
            tokio::select! {
                () = outbox.closed() => {}
                () = closed.cancelled() => {}
                () = session.ended.cancelled() => {}
                () = stopped.cancelled() => {}
                () = listeners.closed.cancelled() => {}
            }
            drop((listening, stream, places, session));
        });
        Ok(answer::stream(unwritten))
    }

    /// Takes the places of a request.
    fn places(&self, client: &Client) -> Result<[OwnedSemaphorePermit; 2], Refused> {
        let places = (
            client.requests.clone().try_acquire_owned(),
            self.exchanges.clone().try_acquire_owned(),
        );
        let (Ok(own), Ok(all)) = places else {
            let reason = format!("{MAX_REQUESTS} requests are not answered yet; wait for one");
            return Err(Refused::new(StatusCode::TOO_MANY_REQUESTS, &reason));
        };
        Ok([own, all])
    }

    /// True for a path of the metadata with which clients find the authorization server.
    fn is_metadata(&self, path: &str) -> bool {
        let own = self.authorization.as_ref();
        own.is_some_and(|own| own.verifier.is_metadata(path))
    }

    async fn client_of(&self, headers: &HeaderMap) -> Result<&Client, Refused> {
        authentication::client(&self.clients, self.authorization.as_ref(), headers).await
    }

    async fn post(
        &self,
        client: &Client,
        request: Request<IncomingBody>,
        peer: &Peer,
        plain: Option<plain::Read>,
    ) -> Result<Response<Answer>, Refused> {
        let places = self.places(client)?;
        let (parts, body) = request.into_parts();
        toolcell_http::check_json(&parts.headers)
            .map_err(|reason| Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason))?;
        let mut takes = toolcell_http::takes(&parts.headers);
        takes.events &= plain.is_none();
        if !takes.json && !takes.events {
            let reason = "the answer is of type `application/json` or `text/event-stream`";
            return Err(Refused::new(StatusCode::NOT_ACCEPTABLE, reason));
        }
        let (body, held) = toolcell_http::read_body(body, &client.messages, MAX_MESSAGE_BYTES)
            .await
            .map_err(|status| {
                let reason = match status {
                    StatusCode::PAYLOAD_TOO_LARGE => {
                        format!("the message has more than {MAX_MESSAGE_BYTES} bytes")
                    }
                    StatusCode::TOO_MANY_REQUESTS => unhandled(),
                    _ => "the body of the request is not complete".to_owned(),
                };
                Refused::new(status, &reason)
            })?;
        let message = client.parse(body, plain.unwrap_or(message::parse)).await;
        let memory = memory_of_message(&message).min(MAX_IN_FLIGHT_BYTES);
        let memory = u32::try_from(memory).unwrap_or(u32::MAX);
        drop(held);
        let Ok(parsed) = client.messages.clone().try_acquire_many_owned(memory) else {
            return Err(Refused::new(StatusCode::TOO_MANY_REQUESTS, &unhandled()));
        };
        let exchange = match plain {
            Some(_) => Exchange {
                message,
                session: OpenSession {
                    state: client.plain_state(),
                    ended: self.stopped.child_token(),
                },
                begins_session: false,
            },
            None => self.exchange(client, &parts.headers, message, takes)?,
        };
        Ok(self.answer(client, exchange, takes, places, parsed, peer).await)
    }

    /// Finds out the session of a message, and checks the headers.
    fn exchange(
        &self,
        client: &Client,
        headers: &HeaderMap,
        message: Incoming,
        takes: Takes,
    ) -> Result<Exchange, Refused> {
        let stated = toolcell_http::only(headers, VERSION);
        let with_session =
            stated.is_none_or(|name| Version::named(name).is_some_and(|version| !version.is_stateless()));
        let in_body = match &message {
            Incoming::Request(request) => headers::version_in(&request.params),
            _ => None,
        };
        if in_body.is_none() {
            headers::check_known(stated, &message).map_err(|error| {
                Refused::of(StatusCode::BAD_REQUEST, message::error(message.id(), &error))
            })?;
        }
        if !with_session || in_body.is_some() {
            if let Incoming::Request(request) = &message {
                let catalog = client.server.0.catalog();
                let schema = |name: &str| catalog.schema_of(name);
                let id = &request.id;
                headers::check(headers, request, schema).map_err(|error| {
                    Refused::of(StatusCode::BAD_REQUEST, message::error(Some(id), &error))
                })?;
            }
            return Ok(Exchange {
                message,
                session: OpenSession {
                    state: client.state(true),
                    ended: self.stopped.child_token(),
                },
                begins_session: false,
            });
        }
        headers::check_in_session(headers, &message)
            .map_err(|error| Refused::of(StatusCode::BAD_REQUEST, message::error(None, &error)))?;
        let begins_session = matches!(&message, Incoming::Request(request) if request.method == "initialize");
        let session = match headers.get(SESSION) {
            None if begins_session => OpenSession {
                state: client.state(false),
                ended: self.stopped.child_token(),
            },
            None => {
                let reason = "the request has no session; begin one with `initialize`, or state the version in `_meta`";
                let lacks_session = RpcError::invalid_request(reason);
                let (id, error) = match &message {
                    Incoming::Request(request) => (Some(&request.id), &lacks_session),
                    // What is no message has no version either: its own error says more.
                    Incoming::Invalid(id, error) => (id.as_ref(), error),
                    _ => (None, &lacks_session),
                };
                return Err(Refused::of(StatusCode::BAD_REQUEST, message::error(id, error)));
            }
            Some(_) => client.session(headers)?,
        };
        if matches!(message, Incoming::Batch(_)) && !takes.events {
            let reason = "a batch is answered with `text/event-stream`";
            return Err(Refused::new(StatusCode::NOT_ACCEPTABLE, reason));
        }
        Ok(Exchange {
            message,
            session,
            begins_session,
        })
    }

    /// Carries out an exchange. It ends with the response: a client that closes its connection cancels its calls.
    async fn answer(
        &self,
        client: &Client,
        exchange: Exchange,
        takes: Takes,
        places: [OwnedSemaphorePermit; 2],
        parsed: OwnedSemaphorePermit,
        peer: &Peer,
    ) -> Response<Answer> {
        let Exchange {
            message,
            session,
            begins_session,
        } = exchange;
        let has_session = session.state.version().is_some();
        let (outbox, unwritten) = Outbox::within(client.unread.clone(), takes.events);
        let mut connection = Connection::new(client.server.0.clone(), session.state.clone(), outbox.clone());
        let (ended, stopped, closed) = (session.ended.clone(), self.stopped.clone(), peer.closed());
        let carried_out = tokio::spawn(async move {
            let work = async {
                // It fails only if the client reads nothing, and its connection is closed then.
                let _ = connection.handle(message).await;
                // What a call keeps of it is counted with the call.
                drop(parsed);
                connection.answered().await;
            };
            tokio::select! {
                () = work => {}
                () = outbox.closed() => {}
                () = closed.cancelled() => {}
                () = ended.cancelled() => {}
                () = stopped.cancelled() => {}
            }
            drop(outbox);
            connection.end(DRAIN).await;
            drop(places);
        });
        drop(carried_out);
        let mut response = answer::of_exchange(unwritten, takes.events).await;
        if begins_session && !has_session && session.state.version().is_some() {
            let id = client.sessions.add(session);
            if let Ok(id) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(SESSION, id);
            }
        } else if has_session
            && response.status().is_client_error()
            && response.status() == StatusCode::NOT_FOUND
        {
            // To a client with a session, this status would tell that the session has ended.
            *response.status_mut() = StatusCode::OK;
        }
        response
    }
}

//! Routes of the listener, and the rules that apply to each request.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION,
    ORIGIN, SET_COOKIE, VARY,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio_util::sync::CancellationToken;
use toolcell_core::store::SessionInfo;
use toolcell_http::{BoxBody, BoxFuture, Origin, Reached, Service};

use crate::access::{Access, Caller, LINK_PATH};
use crate::answer::{self, Failure};
use crate::clients::{AuditLine, Decision, MAX_BODIES, MAX_MESSAGE_BODY};
use crate::host::Host;
use crate::turns::Turns;
use crate::{api, page, v1};

/// Maximum number of connections: one for each stream, and some beside.
pub const MAX_CONNECTIONS: usize = 2_048;

/// Maximum size of any other body, in bytes.
const MAX_BODY: usize = 1 << 20;

/// Paths of the server of the Model Context Protocol.
const MOUNTED: [&str; 4] = [MCP, "/healthz", "/readyz", "/metrics"];

/// Path of the Model Context Protocol.
const MCP: &str = "/mcp";

/// Server of agents.
pub struct Server {
    pub(crate) turns: Arc<Turns>,
    pub(crate) v1: Arc<v1::V1>,
    access: Access,
    reached: Reached,
    mounted: Arc<dyn Service>,
    /// Cancelled when streams end.
    pub(crate) stopping: CancellationToken,
}

/// Request whose client is known.
pub(crate) struct Call {
    pub(crate) caller: Caller,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Server {
    /// Creates a server. `mounted` answers at `/mcp`, `/healthz`, `/readyz` and `/metrics`.
    pub fn new(
        host: Arc<dyn Host>,
        access: Access,
        reached: Reached,
        mounted: Arc<dyn Service>,
    ) -> Arc<Self> {
        Arc::new(Self {
            turns: Turns::new(host),
            v1: Arc::default(),
            access,
            reached,
            mounted,
            stopping: CancellationToken::new(),
        })
    }

    /// Shows the link of the page to the user.
    pub fn print_link(&self) {
        self.access.print_link();
    }

    async fn route(&self, request: Request<Incoming>, origin: Origin<'_>) -> Response<BoxBody> {
        let path = request.uri().path().to_owned();
        if MOUNTED.contains(&path.as_str()) {
            return match self.admit(&request, &path, origin.address.port()) {
                Ok(()) => self.mounted.respond(request, origin).await,
                Err(failure) => failure.response(),
            };
        }
        let is_v1 = path == "/v1" || path.starts_with("/v1/");
        let is_api = path == "/api" || path.starts_with("/api/");
        let accepted = toolcell_http::only(request.headers(), ACCEPT.as_str());
        let is_for_user = !is_v1 && !is_api && accepted.is_some_and(|types| types.contains("text/html"));
        match self.answer(request, origin, path, is_v1).await {
            Ok(response) => response,
            Err(failure) if is_v1 => v1::error(failure),
            Err(failure) if is_for_user => shown(&failure),
            Err(failure) => failure.response(),
        }
    }

    /// Notes a decision about a client.
    pub(crate) fn note(&self, client: Option<&str>, decision: Decision, is_allowed: bool, detail: &str) {
        let line = AuditLine::new(client, decision, is_allowed, detail);
        self.turns.host.audit(&line);
    }

    /// True if a session is that of the client. Notes it if not.
    pub(crate) fn is_of_caller(&self, call: &Call, session: &SessionInfo) -> bool {
        let is_own = call.caller.owns(session.owner.as_deref());
        if !is_own {
            let detail = "the session is that of another client";
            let line = AuditLine::new(Some(&call.caller.owner), Decision::Access, false, detail);
            self.turns.host.audit(&line.of(&session.id));
        }
        is_own
    }

    /// True if the client may use an agent, whether it exists or not. Notes it if not.
    pub(crate) fn allows_agent(&self, call: &Call, agent: &str) -> bool {
        let is_allowed = call.caller.state.limits.allows(agent);
        if !is_allowed {
            let detail = format!("the client may not use the agent `{agent}`");
            self.note(Some(&call.caller.owner), Decision::Access, false, &detail);
        }
        is_allowed
    }

    /// Checks the limits of a client of the Model Context Protocol. Its tools are those of the main agent.
    fn admit(&self, request: &Request<Incoming>, path: &str, port: u16) -> Result<(), Failure> {
        let caller = self.access.caller(request.headers(), port);
        // The server of the protocol refuses requests without a token.
        let Some(caller) = caller.filter(|caller| path == MCP && !caller.is_page) else {
            return Ok(());
        };
        let main = self.turns.host.agents().first().map(|agent| agent.id.as_str());
        let admitted = match caller.state.limits.allows(main.unwrap_or_default()) {
            true => caller.state.count(std::time::Instant::now()),
            false => {
                let message = "the client may not use the main agent, whose tools are those at `/mcp`";
                Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", message))
            }
        };
        admitted.inspect_err(|failure| {
            self.note(Some(&caller.owner), Decision::Limit, false, &failure.message);
        })
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        origin: Origin<'_>,
        path: String,
        is_v1: bool,
    ) -> Result<Response<BoxBody>, Failure> {
        if !toolcell_http::is_for(request.uri(), request.headers(), origin.address, &self.reached) {
            let reason = "the request is for another host, or comes from a page of another origin";
            self.note(None, Decision::Access, false, reason);
            return Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", reason).hint(
                "start the server with `--allow-host HOST`, and with `--allow-origin ORIGIN` for a page",
            ));
        }
        let is_api = path == "/api" || path.starts_with("/api/");
        if !is_api && !is_v1 {
            return self.file(&request, &path, origin.address.port());
        }
        let caller = self.access.caller(request.headers(), origin.address.port());
        // The page speaks the API of Toolcell only.
        let caller = caller.filter(|caller| is_api || !caller.is_page).ok_or_else(|| {
            let hint = match is_api {
                true => "open the link that `toolcell serve` prints, or send `Authorization: Bearer TOKEN`",
                false => "send `Authorization: Bearer TOKEN`",
            };
            let message = "the request needs a valid token";
            self.note(None, Decision::Access, false, message);
            Failure::new(StatusCode::UNAUTHORIZED, "unauthenticated", message).hint(hint)
        })?;
        let is_get = request.method() == Method::GET;
        if caller.is_page && !is_get && !request.headers().contains_key(ORIGIN) {
            let message = "a request of the page that is not `GET` needs an `Origin`";
            return Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", message));
        }
        if origin.is_stopping {
            let message = "the server is stopping";
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message));
        }
        origin.peer.is_of_client();
        let place = caller.state.request().inspect_err(|failure| {
            self.note(Some(&caller.owner), Decision::Limit, false, &failure.message);
        })?;
        let takes_body = matches!(*request.method(), Method::POST | Method::PATCH | Method::PUT);
        if takes_body {
            toolcell_http::check_json(request.headers()).map_err(|message| {
                Failure::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "unsupported_media_type",
                    message,
                )
            })?;
        }
        let (parts, body) = request.into_parts();
        let (body, held) = match takes_body {
            true => {
                let most = match is_v1 || path.ends_with("/turns") {
                    true => MAX_MESSAGE_BODY,
                    false => MAX_BODY,
                };
                let read = toolcell_http::read_body(body, &caller.state.bodies, most).await;
                let (body, held) = read.map_err(|status| of_body(status, most))?;
                (body, Some(held))
            }
            false => (Vec::new(), None),
        };
        let room = caller.state.room.clone();
        let call = Call {
            caller,
            method: parts.method,
            query: parts.uri.query().unwrap_or_default().to_owned(),
            path,
            headers: parts.headers,
            body,
        };
        let response = match is_v1 {
            true => v1::respond(self, call, held, place).await,
            false => api::respond(self, call, held, place).await,
        };
        let response = match response {
            Ok(response) => answer::held(response, &room).await,
            Err(failure) => Err(failure),
        };
        response.or_else(|failure| match is_v1 {
            true => Ok(v1::error(failure)),
            false => Err(failure),
        })
    }

    /// Answers with a file of the page, or takes the code of its link.
    fn file(&self, request: &Request<Incoming>, path: &str, port: u16) -> Result<Response<BoxBody>, Failure> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return Err(Failure::wrong_method(&["GET", "HEAD"]));
        }
        if path == LINK_PATH {
            let is_opened = request.method() == Method::GET
                && !["sec-purpose", "purpose"]
                    .iter()
                    .any(|name| request.headers().contains_key(*name))
                && toolcell_http::only(request.headers(), "sec-fetch-mode")
                    .is_none_or(|mode| mode == "navigate");
            if !is_opened {
                let message = "the link is opened in a browser, as a page";
                return Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", message));
            }
            let code = api::param(request.uri().query().unwrap_or_default(), "code")?.unwrap_or_default();
            let cookie =
                (self.access.take(&code, port)).and_then(|cookie| HeaderValue::from_str(&cookie).ok());
            self.note(None, Decision::Link, cookie.is_some(), "the link of the page");
            let cookie = cookie.ok_or_else(|| {
                let message = "the link was used already, or is wrong";
                Failure::new(StatusCode::FORBIDDEN, "forbidden", message)
                    .hint("open the last link that `toolcell serve` printed")
            })?;
            let mut response = answer::empty(StatusCode::SEE_OTHER);
            let headers = response.headers_mut();
            headers.insert(SET_COOKIE, cookie);
            headers.insert(LOCATION, HeaderValue::from_static("/"));
            headers.insert(
                HeaderName::from_static("referrer-policy"),
                HeaderValue::from_static("no-referrer"),
            );
            return Ok(response);
        }
        if path == "/openapi.json" {
            return Ok(answer::bytes(StatusCode::OK, "application/json", api::openapi()));
        }
        let asset = page::asset(path).ok_or_else(|| Failure::not_found("there is nothing at this path"))?;
        let header = |name: HeaderName| toolcell_http::only(request.headers(), name.as_str());
        let is_known = header(IF_NONE_MATCH) == Some(&asset.etag);
        let is_compressed = page::accepts_gzip(header(ACCEPT_ENCODING).unwrap_or_default());
        let mut response = match (is_known, is_compressed) {
            (true, _) => answer::empty(StatusCode::NOT_MODIFIED),
            (false, true) => answer::bytes(StatusCode::OK, asset.media_type, asset.gzip.as_slice()),
            (false, false) => answer::bytes(StatusCode::OK, asset.media_type, asset.bytes),
        };
        let headers = response.headers_mut();
        if is_compressed && !is_known {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        for (name, value) in page::HEADERS {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if let Ok(etag) = HeaderValue::from_str(&asset.etag) {
            headers.insert(ETAG, etag);
        }
        Ok(response)
    }
}

/// Returns a failure as a page, for a user in a browser.
fn shown(failure: &Failure) -> Response<BoxBody> {
    let page = page::failure(&failure.message, &failure.hints);
    let response = answer::bytes(failure.status, "text/html; charset=utf-8", page);
    let mut response = answer::with_headers(failure, response);
    let headers = response.headers_mut();
    for (name, value) in page::HEADERS.iter().filter(|(name, _)| *name != "cache-control") {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.insert(VARY, HeaderValue::from_static("accept"));
    response
}

fn of_body(status: StatusCode, most: usize) -> Failure {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => Failure::new(
            status,
            "too_large",
            format!("the body has more than {most} bytes"),
        ),
        StatusCode::TOO_MANY_REQUESTS => {
            let message = format!("your bodies that are not handled take {MAX_BODIES} bytes; wait for one");
            Failure::new(status, "too_many_requests", message)
        }
        status => Failure::new(
            status,
            "invalid_request",
            "the body of the request is not complete",
        ),
    }
}

impl Service for Server {
    fn respond<'a>(
        &'a self,
        request: Request<Incoming>,
        origin: Origin<'a>,
    ) -> BoxFuture<'a, Response<BoxBody>> {
        Box::pin(self.route(request, origin))
    }

    fn connected(&self, change: i64) {
        self.mounted.connected(change);
    }

    fn is_open(&self) -> bool {
        false
    }

    fn end_streams(&self) {
        self.stopping.cancel();
        self.turns.pause_questions();
        self.mounted.end_streams();
    }

    fn cancel(&self) {
        self.turns.interrupt();
        self.mounted.cancel();
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if tokio::time::timeout(toolcell_http::DRAIN_TIME, self.turns.ended())
                .await
                .is_err()
            {
                self.turns.interrupt();
                let _ = tokio::time::timeout(toolcell_http::DRAIN_TIME, self.turns.ended()).await;
            }
            self.mounted.ended().await;
        })
    }
}

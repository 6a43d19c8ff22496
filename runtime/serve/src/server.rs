//! Routes of the listener, and the rules that apply to each request.

use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, LOCATION, ORIGIN, SET_COOKIE, VARY,
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
const MOUNTED: [&str; 4] = [MCP, "/healthz", "/readyz", METRICS];

/// Path of the metrics, which are those of all servers.
const METRICS: &str = "/metrics";

/// Path of the OpenAPI document.
const OPENAPI: &str = "/openapi.json";

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
        // Without a thread, the first visit does it.
        let _ = std::thread::Builder::new().spawn(page::prepare);
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
        let begun = Instant::now();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let caller = self.access.caller(request.headers(), origin.address.port());
        let owner = caller.as_ref().map(|caller| caller.owner.clone());
        let is_mounted = MOUNTED.contains(&path.as_str());
        let is_v1 = path == "/v1" || path.starts_with("/v1/");
        let is_api = path == "/api" || path.starts_with("/api/");
        let route = match &path {
            path if is_mounted => MOUNTED.into_iter().find(|mounted| mounted == path),
            path if is_v1 || is_api => api::route(path).map(|found| found.route),
            path if path == LINK_PATH => Some(LINK_PATH),
            path if path == OPENAPI => Some(OPENAPI),
            path => page::asset(path).map(|_| "/"),
        };
        let route = route.unwrap_or("other");
        let accepted = toolcell_http::only(request.headers(), ACCEPT.as_str());
        let is_for_user = !is_v1 && !is_api && accepted.is_some_and(|types| types.contains("text/html"));
        let answered = match is_mounted {
            true => self.mounted(request, origin, &path, caller).await,
            false => self.answer(request, origin, path.clone(), caller).await,
        };
        let response = answered.unwrap_or_else(|failure| {
            if !failure.is_noted {
                let detail = format!("{method} {path}: {}", failure.message);
                self.note_refusal(owner.as_deref(), failure.status, &detail);
            }
            match (is_v1, is_for_user) {
                (true, _) => v1::error(failure),
                (false, true) => shown(&failure),
                (false, false) => failure.response(),
            }
        });
        let metrics = &self.turns.metrics;
        metrics.responded(route, method.as_str(), response.status(), begun.elapsed());
        if is_mounted || response.body().size_hint().exact().is_some() {
            return response;
        }
        let open = metrics.stream(route);
        response.map(|body| {
            let counted = body.map_frame(move |frame| {
                let _ = &open;
                frame
            });
            counted.boxed_unsync()
        })
    }

    /// Answers with the server of the Model Context Protocol.
    async fn mounted(
        &self,
        request: Request<Incoming>,
        origin: Origin<'_>,
        path: &str,
        caller: Option<Caller>,
    ) -> Result<Response<BoxBody>, Failure> {
        // Only programs use it.
        let caller = caller.filter(|caller| !caller.is_page);
        if let Some(caller) = caller.as_ref().filter(|_| path == MCP) {
            self.admit(caller)?;
        }
        let method = request.method().clone();
        let response = self.mounted.respond(request, origin).await;
        let status = response.status();
        let owner = caller.map(|caller| caller.owner);
        let detail = format!("{method} {path} was answered with the status {}", status.as_u16());
        self.note_refusal(owner.as_deref(), status, &detail);
        if path != METRICS || status != StatusCode::OK {
            return Ok(response);
        }
        let (mut head, body) = response.into_parts();
        // It is complete, and never fails.
        let all = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
        let all = [&*all, self.turns.metrics.render().as_bytes()].concat();
        head.headers.remove(CONTENT_LENGTH);
        Ok(Response::from_parts(head, Full::new(all.into()).boxed_unsync()))
    }

    /// Notes an answer that is a decision about the client: without a valid token, forbidden, or beyond a limit.
    fn note_refusal(&self, client: Option<&str>, status: StatusCode, detail: &str) {
        let decision = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Decision::Access,
            StatusCode::TOO_MANY_REQUESTS => Decision::Limit,
            _ => return,
        };
        self.note(client, decision, false, detail);
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
    fn admit(&self, caller: &Caller) -> Result<(), Failure> {
        let main = self.turns.host.agents().first().map(|agent| agent.id.as_str());
        match caller.state.limits.allows(main.unwrap_or_default()) {
            true => caller.state.count(Instant::now()),
            false => {
                let message = "the client may not use the main agent, whose tools are those at `/mcp`";
                Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", message))
            }
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        origin: Origin<'_>,
        path: String,
        caller: Option<Caller>,
    ) -> Result<Response<BoxBody>, Failure> {
        if !toolcell_http::is_for(request.uri(), request.headers(), origin.address, &self.reached) {
            let reason = "the request is for another host, or comes from a page of another origin";
            return Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", reason).hint(
                "start the server with `--allow-host HOST`, and with `--allow-origin ORIGIN` for a page",
            ));
        }
        let is_v1 = path == "/v1" || path.starts_with("/v1/");
        let is_api = path == "/api" || path.starts_with("/api/");
        if !is_api && !is_v1 {
            return self.file(&request, &path, origin.address.port());
        }
        // The page speaks the API of Toolcell only.
        let caller = caller.filter(|caller| is_api || !caller.is_page).ok_or_else(|| {
            let hint = match is_api {
                true => "open the link that `toolcell serve` prints, or send `Authorization: Bearer TOKEN`",
                false => "send `Authorization: Bearer TOKEN`",
            };
            let message = "the request needs a valid token";
            Failure::new(StatusCode::UNAUTHORIZED, "unauthenticated", message).hint(hint)
        })?;
        // The head of an answer is that of the answer to GET; the connection leaves out the body.
        let method = match request.method() {
            &Method::HEAD => Method::GET,
            method => method.clone(),
        };
        let is_get = method == Method::GET;
        if caller.is_page && !is_get && !request.headers().contains_key(ORIGIN) {
            let message = "a request of the page that is not `GET` needs an `Origin`";
            return Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", message));
        }
        if origin.is_stopping {
            let message = "the server is stopping";
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message));
        }
        origin.peer.is_of_client();
        let place = caller.state.request()?;
        let found = api::route(&path).ok_or_else(nothing)?;
        if !found.methods.contains(&method.as_str()) {
            return Err(Failure::wrong_method(&found.methods));
        }
        let takes_body = matches!(method, Method::POST | Method::PATCH);
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
            method,
            query: parts.uri.query().unwrap_or_default().to_owned(),
            path,
            headers: parts.headers,
            body,
        };
        let response = match is_v1 {
            true => v1::respond(self, call, held, place).await,
            false => api::respond(self, call, held, place).await,
        };
        answer::held(response?, &room).await
    }

    /// Answers with a file of the page, or takes the code of its link.
    fn file(&self, request: &Request<Incoming>, path: &str, port: u16) -> Result<Response<BoxBody>, Failure> {
        let asset = page::asset(path);
        if asset.is_none() && path != LINK_PATH && path != OPENAPI {
            return Err(nothing());
        }
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
                    .noted()
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
        let Some(asset) = asset else {
            return Ok(answer::bytes(StatusCode::OK, "application/json", api::openapi()));
        };
        let header = |name: HeaderName| toolcell_http::only(request.headers(), name.as_str());
        let is_known = header(IF_NONE_MATCH) == Some(&asset.etag);
        let is_compressed = page::accepts_gzip(header(ACCEPT_ENCODING).unwrap_or_default());
        let mut response = match (is_known, is_compressed) {
            (true, _) => answer::empty(StatusCode::NOT_MODIFIED),
            (false, true) => answer::bytes(StatusCode::OK, asset.media_type, asset.gzip.clone()),
            (false, false) => answer::bytes(StatusCode::OK, asset.media_type, asset.bytes.clone()),
        };
        let headers = response.headers_mut();
        if is_compressed && !is_known {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        for (name, value) in page::HEADERS {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(page::cache_control(path)));
        if let Ok(etag) = HeaderValue::from_str(&asset.etag) {
            headers.insert(ETAG, etag);
        }
        Ok(response)
    }
}

fn nothing() -> Failure {
    Failure::not_found("there is nothing at this path")
}

/// Returns a failure as a page, for a user in a browser.
fn shown(failure: &Failure) -> Response<BoxBody> {
    let page = page::failure(&failure.message, &failure.hints);
    let response = answer::bytes(failure.status, "text/html; charset=utf-8", page);
    let mut response = answer::with_headers(failure, response);
    let headers = response.headers_mut();
    for (name, value) in page::HEADERS {
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

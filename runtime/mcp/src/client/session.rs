//! A session with a server: negotiation of the version, lists of tools, calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use toolcell_core::tool::CallObserver;

use super::definition::{Definition, LeftOut, Reader};
use super::elicitation::{self, MAX_ELICITATIONS, RunningCall, TOO_MANY};
use super::error::ServerError;
use super::link::{Ask, Link};
use super::process::ServerProgram;
use super::resources::{self, Kind};
use super::server::Options;
use crate::param_headers;
use crate::server::Identity;
use crate::version::Version;

/// Maximum number of pages of a list.
pub const MAX_PAGES: usize = 32;

/// Maximum part of the time for a start in which a server can answer `server/discover`. Servers of older versions answer it
/// with an error at once, and some of them not at all.
const DISCOVER_SHARE: u32 = 3;

/// Maximum number of times that a request is repeated because the server requires input: as many as questions.
pub const MAX_ROUNDS: u32 = MAX_ELICITATIONS;

/// Pause before a request is repeated without new input. It grows by itself with each round.
const ROUND_PAUSE: Duration = Duration::from_millis(100);

/// Session with a server over one connection.
pub(super) struct Session {
    pub(super) link: Link,
    pub(super) version: Version,
    identity: Identity,
    /// Capabilities that the server states.
    capabilities: Value,
}

impl Session {
    /// Negotiates the version: with `discover`, `server/discover` of version 2026-07-28; otherwise, or if the server does
    /// not know that, `initialize` of the older versions.
    pub(super) async fn open(
        link: Link,
        identity: Identity,
        limit: Duration,
        discover: bool,
    ) -> Result<Self, ServerError> {
        let deadline = Instant::now() + limit;
        let mut session = Self {
            link,
            version: Version::V2026_07_28,
            identity,
            capabilities: Value::Null,
        };
        if session.link.is_plain() {
            // Nothing is negotiated; the forms of this version are the nearest.
            session.version = Version::NEWEST_WITH_SESSION;
            return Ok(session);
        }
        if discover {
            let limit = limit / DISCOVER_SHARE;
            session.link.set_version(Some(session.version));
            let ask = || Ask::new("server/discover", json!({}), limit);
            let mut discovered = session.ask(ask()).await;
            // A server that refuses a version names others. There is one to try again with.
            if let Err(ServerError::Answered { code: -32022, .. }) = &discovered {
                discovered = session.ask(ask()).await;
            }
            match discovered {
                Ok(mut result) if supports(&result, Version::V2026_07_28) => {
                    session.capabilities = result["capabilities"].take();
                    if session.capabilities["tools"]["listChanged"] == true {
                        let mut params = json!({ "notifications": { "toolsListChanged": true } });
                        session.add_meta(&mut params);
                        session.link.listen(Some(params), true);
                    }
                    return Ok(session);
                }
                Err(error) if error.is_final() => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        session.link.set_version(None);
        let client = json!({ "name": session.identity.name, "version": session.identity.version });
        let params = json!({
            "protocolVersion": Version::NEWEST_WITH_SESSION.as_str(),
            "capabilities": session.abilities(),
            "clientInfo": client,
        });
        let left = deadline.saturating_duration_since(Instant::now());
        let ask = Ask::new("initialize", params, left);
        let mut result = session.link.request(ask).await?;
        session.capabilities = result
            .get_mut("capabilities")
            .map(Value::take)
            .unwrap_or_default();
        let spoken = result["protocolVersion"].as_str().unwrap_or_default();
        session.version = Version::named(spoken)
            .filter(|version| !version.is_stateless())
            .ok_or_else(|| ServerError::Version(spoken.to_owned()))?;
        session.link.set_version(Some(session.version));
        let left = deadline.saturating_duration_since(Instant::now());
        session
            .link
            .notify_first("notifications/initialized", &json!({}), left)
            .await;
        let tells_changes = session.capabilities["tools"]["listChanged"] == true;
        session.link.listen(None, tells_changes);
        Ok(session)
    }

    /// Version that is spoken; `None` with plain endpoints.
    pub(super) fn spoken(&self) -> Option<Version> {
        (!self.link.is_plain()).then_some(self.version)
    }

    /// Lists all tools, and those for what the server has beside its own tools.
    pub(super) async fn tools(
        &self,
        options: &Options,
        limit: Duration,
    ) -> Result<(Vec<Definition>, Vec<LeftOut>), ServerError> {
        let has_headers = self.link.is_http() && self.version.is_stateless();
        let mut reader = Reader::new(options, has_headers);
        let mut add = |tool| reader.add(Kind::Call, tool);
        self.list("tools/list", "tools", limit, &mut add).await?;
        for (kind, tool) in resources::tools(&self.capabilities) {
            reader.add(kind, tool)?;
        }
        Ok(reader.finish())
    }

    /// Reads all pages of a list, and hands each entry in the member `key` to `add`. No more than one page is kept.
    pub(super) async fn list(
        &self,
        method: &'static str,
        key: &str,
        limit: Duration,
        add: &mut (dyn FnMut(Value) -> Result<(), ServerError> + Send),
    ) -> Result<(), ServerError> {
        let stopwatch = self.link.stopwatch();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = cursor
                .as_ref()
                .map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let left = limit.saturating_sub(stopwatch.elapsed());
            let mut page = match self.ask(Ask::new(method, params, left)).await {
                // A server without any need not know the method.
                Err(ServerError::Answered { code: -32601, .. }) if cursor.is_none() => return Ok(()),
                page => page?,
            };
            match page.get_mut(key).map(Value::take) {
                Some(Value::Array(listed)) => listed.into_iter().try_for_each(&mut *add)?,
                _ => return Err(ServerError::invalid(method, format!("has no list of {key}"))),
            }
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                return Ok(());
            }
        }
        Err(ServerError::invalid(
            method,
            format!("has more than {MAX_PAGES} pages"),
        ))
    }

    /// Calls a tool. Returns the result as the server wrote it.
    pub(super) async fn call(
        &self,
        tool: &Definition,
        arguments: Map<String, Value>,
        limit: Duration,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Value, ServerError> {
        if tool.kind != Kind::Call {
            return self.call_builtin(tool.kind, arguments, limit, observer).await;
        }
        let headers = param_headers::headers(&tool.headers, &arguments);
        let params = json!({ "name": tool.remote, "arguments": arguments });
        self.ask(Ask {
            observer: Some(observer),
            headers,
            ..Ask::new("tools/call", params, limit)
        })
        .await
    }

    /// Adds to the parameters of a request what each request states in versions without sessions.
    fn add_meta(&self, params: &mut Value) {
        if self.version.is_stateless() {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.version.as_str(),
                "io.modelcontextprotocol/clientInfo": {
                    "name": self.identity.name, "version": self.identity.version,
                },
                "io.modelcontextprotocol/clientCapabilities": self.abilities(),
            });
        }
    }

    /// Capabilities of this client.
    fn abilities(&self) -> Value {
        match self.link.asking {
            Some(_) => json!({ "elicitation": {} }),
            None => json!({}),
        }
    }

    /// Makes a request. In versions without sessions a server may want answers of the user first, and gets the request
    /// again with them.
    pub(super) async fn ask(&self, ask: Ask) -> Result<Value, ServerError> {
        let Ask {
            method,
            mut params,
            limit,
            observer,
            headers,
        } = ask;
        self.add_meta(&mut params);
        let stopwatch = self.link.stopwatch();
        let asking = self.link.asking.as_ref().filter(|_| observer.is_some());
        let call = asking.map(|asking| asking.begin_call());
        let mut questions = 0;
        let mut more = Map::new();
        for round in 0..=MAX_ROUNDS {
            // Nothing of an earlier round is sent again.
            let mut params = params.clone();
            if let Value::Object(params) = &mut params {
                params.extend(more);
            }
            let ask = Ask {
                method,
                params,
                limit: limit.saturating_sub(stopwatch.elapsed()),
                observer: observer.clone(),
                headers: headers.clone(),
            };
            let mut result = self.link.request(ask).await?;
            match result["resultType"].as_str() {
                None | Some("complete") => return Ok(result),
                Some("input_required") if round == MAX_ROUNDS => break,
                Some("input_required") => {
                    more = self
                        .input(method, &mut result, call.as_ref(), &mut questions)
                        .await?;
                    if !more.contains_key("inputResponses") {
                        let left = limit.saturating_sub(stopwatch.elapsed());
                        tokio::time::sleep(left.min(ROUND_PAUSE * (round + 1))).await;
                    }
                }
                Some(other) => {
                    let reason = format!("has the unknown type `{other}`");
                    return Err(ServerError::invalid(method, reason));
                }
            }
        }
        Err(ServerError::invalid(method, "requires input again and again"))
    }

    /// Parameters with which a request is repeated: the state that the server wants back, and the answers of the user to its
    /// questions. `count` counts those of the call.
    async fn input(
        &self,
        method: &'static str,
        result: &mut Value,
        call: Option<&RunningCall>,
        count: &mut u32,
    ) -> Result<Map<String, Value>, ServerError> {
        let refused = |reason: String| Err(ServerError::invalid(method, reason));
        let mut more = Map::new();
        if let Some(state) = result.get_mut("requestState").map(Value::take)
            && !state.is_null()
        {
            more.insert("requestState".into(), state);
        }
        let requests = match result.get_mut("inputRequests").map(Value::take) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(requests)) => requests,
            Some(_) => return refused("requires input, and its `inputRequests` are not an object".into()),
        };
        if requests.is_empty() {
            return match more.is_empty() {
                true => refused("requires input, but `inputRequests` and `requestState` are missing".into()),
                // The server wants no more than the request again, such as one that has too much to do.
                false => Ok(more),
            };
        }
        let Some(call) = call else {
            return refused("requires input, which this client does not give".into());
        };
        // The user is asked nothing if one of the questions is refused.
        let mut questions = Vec::new();
        for (name, mut request) in requests {
            let wanted = request["method"].as_str().unwrap_or_default();
            if wanted != elicitation::METHOD {
                return refused(format!("asks for `{wanted}`, which this client refuses"));
            }
            let params = match request["params"].take() {
                Value::Object(params) => params,
                _ => Map::new(),
            };
            *count += 1;
            let question = match *count > MAX_ELICITATIONS {
                true => Err(TOO_MANY),
                false => call.asking().read(params),
            };
            match question {
                Ok(question) => questions.push((name, question)),
                Err(why) => return refused(format!("requires input, and {why}")),
            }
        }
        let mut answers = Map::new();
        for (name, question) in questions {
            let answer = tokio::select! {
                biased;
                ended = self.link.ended() => return Err(ended),
                answer = call.asking().ask(question) => answer,
            };
            answers.insert(name, answer.result());
        }
        more.insert("inputResponses".into(), Value::Object(answers));
        Ok(more)
    }
}

fn supports(discovered: &Value, version: Version) -> bool {
    let versions = discovered["supportedVersions"].as_array();
    versions.is_some_and(|versions| {
        versions
            .iter()
            .any(|name| name.as_str() == Some(version.as_str()))
    })
}

/// A session, and the program at its other end.
pub(super) struct Live {
    pub(super) session: Session,
    program: Arc<Mutex<Option<ServerProgram>>>,
}

impl Live {
    /// The program is ended once the connection has ended: a hung one would run until the next call.
    pub(super) fn new(session: Session, program: Option<ServerProgram>) -> Self {
        let program = Arc::new(Mutex::new(program));
        let left = Arc::downgrade(&program);
        session.link.at_end(async move {
            if let Some(program) = left.upgrade().and_then(|left| take(&left)) {
                program.after_end().await;
            }
        });
        Self { session, program }
    }

    /// Returns the program, which the end of the connection does not end any more.
    pub(super) fn take_program(&self) -> Option<ServerProgram> {
        take(&self.program)
    }
}

fn take(program: &Mutex<Option<ServerProgram>>) -> Option<ServerProgram> {
    program.lock().unwrap_or_else(PoisonError::into_inner).take()
}

//! A session with a server: negotiation of the version, lists of tools, calls.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use toolcell_core::tool::CallObserver;

use super::error::{ServerError, excerpt};
use super::link::Link;
use crate::server::Identity;
use crate::version::Version;

/// Maximum number of pages of a list.
pub const MAX_PAGES: usize = 32;

/// Maximum part of the time for a start in which a server can answer `server/discover`. Servers of older versions answer it
/// with an error at once, and some of them not at all.
const DISCOVER_SHARE: u32 = 3;

/// Session with a server over one connection.
pub(super) struct Session {
    pub(super) link: Link,
    version: Version,
    identity: Identity,
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
        };
        if discover {
            let limit = limit / DISCOVER_SHARE;
            match session.ask("server/discover", json!({}), limit, None).await {
                Ok(result) if supports(&result, Version::V2026_07_28) => return Ok(session),
                Err(error @ (ServerError::Ended { .. } | ServerError::Flood)) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        let client = json!({ "name": session.identity.name, "version": session.identity.version });
        let params = json!({
            "protocolVersion": Version::NEWEST_WITH_SESSION.as_str(),
            "capabilities": {},
            "clientInfo": client,
        });
        let left = deadline.saturating_duration_since(Instant::now());
        let result = session.link.request("initialize", params, left, None).await?;
        let spoken = result["protocolVersion"].as_str().unwrap_or_default();
        session.version = Version::named(spoken)
            .filter(|version| !version.is_stateless())
            .ok_or_else(|| ServerError::Version(excerpt(spoken)))?;
        session.link.notify("notifications/initialized", &json!({}));
        Ok(session)
    }

    /// Lists all tools, as the server describes them.
    pub(super) async fn tools(&self, limit: Duration) -> Result<Vec<Value>, ServerError> {
        const METHOD: &str = "tools/list";
        let deadline = Instant::now() + limit;
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = cursor
                .as_ref()
                .map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let left = deadline.saturating_duration_since(Instant::now());
            let mut page = match self.ask(METHOD, params, left, None).await {
                // A server without tools need not know the method.
                Err(ServerError::Answered { code: -32601, .. }) if cursor.is_none() => return Ok(tools),
                page => page?,
            };
            match page.get_mut("tools").map(Value::take) {
                Some(Value::Array(listed)) => tools.extend(listed),
                _ => return Err(ServerError::invalid(METHOD, "has no list of tools")),
            }
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(ServerError::invalid(
            METHOD,
            format!("has more than {MAX_PAGES} pages"),
        ))
    }

    /// Calls a tool. Returns the result as the server wrote it.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        limit: Duration,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Value, ServerError> {
        let params = json!({ "name": tool, "arguments": arguments });
        self.ask("tools/call", params, limit, Some(observer)).await
    }

    async fn ask(
        &self,
        method: &'static str,
        mut params: Value,
        limit: Duration,
        observer: Option<Arc<dyn CallObserver>>,
    ) -> Result<Value, ServerError> {
        if self.version.is_stateless() {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.version.as_str(),
                "io.modelcontextprotocol/clientInfo": {
                    "name": self.identity.name, "version": self.identity.version,
                },
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let result = self.link.request(method, params, limit, observer).await?;
        match result["resultType"].as_str() {
            None | Some("complete") => Ok(result),
            Some("input_required") => Err(ServerError::invalid(
                method,
                "asks for input, which this client does not give",
            )),
            Some(other) => {
                let reason = format!("has the unknown type `{}`", excerpt(other));
                Err(ServerError::invalid(method, reason))
            }
        }
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

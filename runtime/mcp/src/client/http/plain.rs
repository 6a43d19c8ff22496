//! Plain endpoints of a server that knows nothing of JSON-RPC: `POST /tools/list` and `POST /tools/call` below its address. The
//! body of a request is the `params` of the method, and that of an answer its result.

use reqwest::header::{ACCEPT, CONTENT_TYPE};

use super::exchange::form;
use super::{Endpoint, Form, Outgoing};
use crate::client::error::ServerError;
use crate::client::link::MAX_ANSWER_BYTES;
use crate::client::message::{self, Received};

impl Endpoint {
    /// Makes a request, and returns its answer as the protocol would have it.
    pub(super) async fn plain(&self, outgoing: Outgoing<'_>) -> Result<Received, ServerError> {
        let Outgoing {
            id, method, params, ..
        } = outgoing;
        let mut body = params.clone();
        if let Some(params) = body.as_object_mut() {
            params.remove("_meta");
        }
        let request = self
            .client
            .post(self.remote.endpoint(method))
            .headers(self.remote.headers().clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .body(body.to_string());
        let mut response = self.send(request, method).await?;
        if form(&response, method, &self.redactor())? != Form::Json {
            return Err(ServerError::invalid(method, "is not JSON"));
        }
        let body = self.body_of(&mut response, method, MAX_ANSWER_BYTES).await?;
        Ok(Received::Answer {
            id,
            answer: message::parse_result(&body),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use toolcell_core::ToolError;

    use crate::client::error::StartError;
    use crate::client::http::testing::{Does, JSON, Scripted, Seen, response, said};
    use crate::client::server::{McpServer, Options};
    use crate::client::testing::{call, call_with, fail, identity};

    /// A server with plain endpoints and the tool `t`, which answers its calls by `calls`.
    async fn plain(calls: impl Fn(&Seen) -> Vec<Does> + Send + Sync + 'static) -> Scripted {
        Scripted::new(move |seen| match seen.path.as_str() {
            "/mcp/tools/list" => response(
                200,
                JSON,
                json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}).to_string(),
            ),
            "/mcp/tools/call" => calls(seen),
            _ => response(404, "", ""),
        })
        .await
    }

    async fn start(scripted: &Scripted) -> Result<Arc<McpServer>, StartError> {
        let options = Options {
            call_timeout: std::time::Duration::from_millis(300),
            ..Options::new("srv")
        };
        McpServer::over_http(scripted.remote().plain(), options, identity()).await
    }

    #[tokio::test]
    async fn plain_server_is_listed_and_called_without_envelope() {
        let scripted =
            plain(|seen| response(200, JSON, said(&seen.body["arguments"].to_string()).to_string())).await;
        let server = start(&scripted).await.unwrap();
        assert_eq!(server.version().await, None);
        let called = call_with(&server, "_t", json!({"a": 1}), Arc::default()).await;
        assert_eq!(called.content, [toolcell_core::Content::text("{\"a\":1}")]);
        // Nothing but these two requests was made.
        let bodies: Vec<_> = scripted.all().into_iter().map(|seen| seen.body).collect();
        assert_eq!(bodies, [json!({}), json!({"name": "t", "arguments": {"a": 1}})]);
        let seen = &scripted.all()[1];
        assert_eq!(seen.header("x-key"), Some("mine"));
        assert!(seen.headers.keys().all(|name| !name.starts_with("mcp-")));
        server.stop().await;
        assert_eq!(scripted.all().len(), 2);
    }

    #[tokio::test]
    async fn refusal_of_a_plain_server_fails_its_call() {
        let error = |code: i64, text: &str| json!({"error": {"code": code, "message": text}}).to_string();
        for (answer, told) in [
            (response(400, JSON, error(-32602, "no such tool")), "no such tool"),
            (response(500, JSON, error(-32603, "oh")), "oh"),
            (response(500, "", "oops"), "the status 500"),
            (
                response(200, "content-type: text/html\r\n", "{}"),
                "neither JSON nor",
            ),
            (
                response(200, "content-type: text/event-stream\r\n", "data: {}\n\n"),
                "is not JSON",
            ),
            (
                response(200, JSON, "{\"content\":[],\"content\":[]}"),
                "is not accepted",
            ),
            (response(200, JSON, "[1]"), "is not a JSON object"),
            (vec![Does::Hang], "did not answer within"),
        ] {
            let scripted = plain(move |_| answer.clone()).await;
            let server = start(&scripted).await.unwrap();
            let error = fail(&server).await.to_string();
            assert!(error.contains(told), "{told}: {error}");
        }
    }

    #[tokio::test]
    async fn plain_call_that_is_dropped_closes_its_connection() {
        let scripted = plain(|_| vec![Does::Hang]).await;
        let server = start(&scripted).await.unwrap();
        assert!(matches!(fail(&server).await, ToolError::Unavailable { .. }));
        let is_call = |seen: &Seen| seen.path.ends_with("/tools/call") && seen.is_cut;
        let begun = std::time::Instant::now();
        while !scripted.all().iter().any(is_call) {
            assert!(begun.elapsed().as_secs() < 60);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        // No notification of the protocol tells it.
        assert_eq!(scripted.all().len(), 2);
    }

    #[tokio::test]
    async fn server_without_plain_endpoints_does_not_start() {
        let scripted = Scripted::new(|_| response(404, "", "")).await;
        let error = start(&scripted).await.unwrap_err().to_string();
        assert!(error.contains("the status 404"), "{error}");
        let listed = Scripted::new(|_| response(200, JSON, "{\"tools\":{}}")).await;
        let error = start(&listed).await.unwrap_err().to_string();
        assert!(error.contains("has no list of tools"), "{error}");
        let scripted = plain(|_| response(200, JSON, said("x").to_string())).await;
        let server = start(&scripted).await.unwrap();
        assert_eq!(call(&server).await.error, None);
    }
}

//! Servers over HTTP that want an access token.

use std::sync::{Arc, Mutex};

use serde_json::json;
use toolcell_core::{BoxFuture, ToolError};

use super::{Options, polite, response, result, said, text};
use crate::client::ServerError;
use crate::client::error::StartError;
use crate::client::http::testing::{Scripted, Seen};
use crate::client::http::{Remote, TokenSource};
use crate::client::server::McpServer;
use crate::client::testing::{call, fail, identity};

const FIRST: &str = "first-token-123456";
const SECOND: &str = "second-token-123456";

/// Tokens one after the other, and what was asked of them.
#[derive(Debug, Default)]
struct Source {
    left: Mutex<Vec<&'static str>>,
    current: Mutex<Option<String>>,
    lacking: Mutex<Vec<String>>,
}

impl Source {
    fn of(tokens: &[&'static str]) -> Arc<Self> {
        let left = tokens.iter().rev().copied().collect();
        Arc::new(Self {
            left: Mutex::new(left),
            ..Self::default()
        })
    }
}

impl TokenSource for Source {
    fn current(&self) -> BoxFuture<'_, Option<String>> {
        let current = self.current.lock().unwrap().clone();
        Box::pin(async move { current })
    }

    fn renewed<'a>(&'a self, refused: Option<&'a str>) -> BoxFuture<'a, Option<String>> {
        let mut current = self.current.lock().unwrap();
        assert_eq!(refused, current.as_deref());
        *current = self.left.lock().unwrap().pop().map(str::to_owned);
        let renewed = current.clone();
        Box::pin(async move { renewed })
    }

    fn lacks<'a>(&'a self, scope: &'a str) -> BoxFuture<'a, ()> {
        self.lacking.lock().unwrap().push(scope.to_owned());
        Box::pin(async {})
    }

    fn hint(&self) -> String {
        "log in".into()
    }
}

fn token(seen: &Seen) -> Option<&str> {
    seen.header("authorization")
}

fn refuse(status: u16, error: &str) -> Vec<super::Does> {
    let header = format!("www-authenticate: Bearer error=\"{error}\", scope=\"a b\"\r\n");
    response(status, &header, "")
}

async fn start(scripted: &Scripted, source: &Arc<Source>) -> Result<Arc<McpServer>, StartError> {
    let remote = Remote::new(&format!("http://{}/mcp", scripted.address), []).unwrap();
    let remote = remote.authorized_by(source.clone());
    McpServer::over_http(remote, Options::new("srv"), identity()).await
}

#[tokio::test]
async fn token_is_sent_once_the_server_asks_for_it() {
    let scripted = Scripted::new(|seen| match (seen.does(), token(seen)) {
        ("tools/call", Some(sent)) if sent.ends_with(FIRST) => refuse(401, "invalid_token"),
        ("tools/call", Some(sent)) => result(seen, said(&format!("got {sent}"))),
        (_, Some(_)) => polite(seen),
        (_, None) => refuse(401, "invalid_request"),
    })
    .await;
    let source = Source::of(&[FIRST, SECOND]);
    let server = start(&scripted, &source).await.unwrap();
    // The first request came without one, and was sent again.
    assert_eq!(token(&scripted.all()[0]), None);
    assert_eq!(token(&scripted.all()[1]), Some(&*format!("Bearer {FIRST}")));
    let called = call(&server).await;
    // What the server sends back is not the token.
    assert_eq!(text(&called), "got Bearer [redacted:access token]");
    assert_eq!(scripted.seen("tools/call").len(), 2);
    // Its session ends with the token as well.
    server.stop().await;
    assert_eq!(
        token(&scripted.seen("DELETE")[0]),
        Some(&*format!("Bearer {SECOND}"))
    );
}

#[tokio::test]
async fn refusals_are_told_to_the_user_and_end() {
    let scripted = Scripted::new(|seen| match (seen.does(), token(seen)) {
        ("tools/call", _) => refuse(403, "insufficient_scope"),
        (_, Some(_)) => polite(seen),
        (_, None) => refuse(401, "invalid_request"),
    })
    .await;
    let source = Source::of(&[FIRST]);
    let server = start(&scripted, &source).await.unwrap();
    let error = fail(&server).await;
    let ToolError::Denied { message, hint } = &error else {
        panic!("{error:?}");
    };
    assert!(message.contains("(status 403); nothing was called"), "{message}");
    assert_eq!(hint.as_deref(), Some("log in"));
    assert!(!error.for_model().contains("log in"));
    // The scopes are for the next login; no request is repeated.
    assert_eq!(*source.lacking.lock().unwrap(), ["a b"]);
    assert_eq!(scripted.seen("tools/call").len(), 1);
    // Without a token the server does not start.
    let failed = start(&scripted, &Source::of(&[])).await.unwrap_err().error;
    let ServerError::Unauthorized(refused) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(refused.challenge.scope.as_deref(), Some("a b"));
    assert_eq!(refused.hint.as_deref(), Some("log in"));
}

#[tokio::test]
async fn token_is_in_no_error_or_definition_of_its_server() {
    let scripted = Scripted::new(|seen| match (seen.does(), token(seen)) {
        (_, None) => refuse(401, "invalid_request"),
        ("tools/list", Some(sent)) => result(
            seen,
            json!({"tools": [{"name": "t", "description": sent, "inputSchema": {"type": "object"}}]}),
        ),
        ("tools/call", Some(sent)) => response(200, &format!("content-type: {sent}\r\n"), ""),
        _ => polite(seen),
    })
    .await;
    let source = Source::of(&[FIRST]);
    let server = start(&scripted, &source).await.unwrap();
    let description = &server.definitions()[0].spec.description;
    assert!(!description.contains(FIRST), "{description}");
    let error = fail(&server).await.to_string();
    assert!(error.contains("[redacted:") && !error.contains(FIRST), "{error}");
    // A token that no header can have is not sent.
    let source = Source::of(&["two\nlines"]);
    assert!(start(&scripted, &source).await.is_err());
    assert!(
        !format!(
            "{:?}",
            Remote::new("https://a.example", [])
                .unwrap()
                .authorized_by(source)
        )
        .contains(FIRST)
    );
}

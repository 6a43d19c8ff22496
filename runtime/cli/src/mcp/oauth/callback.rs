//! The browser's answer, which comes to an address of this machine (RFC 8252, section 7.3).
//!
//! Every page and every program can send requests there. An answer counts only with the `state` of the login, which is random
//! and was sent to the authorization server alone, and only once.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcell_http::{BoxBody, BoxFuture, Origin, Service, only};

use super::Reason;
use crate::ui::terminal::text;

/// Maximum number of connections at a time. A browser opens a few.
const MAX_CONNECTIONS: usize = 16;

/// Time in which the browser reads the last answer.
const FAREWELL: Duration = Duration::from_secs(2);

/// Path of the answer.
const PATH: &str = "/callback";

/// Parameters of the answer, by name.
pub(super) type Parameters = BTreeMap<String, String>;

/// Address on this machine that waits for the answer.
pub(super) struct Callback {
    pub(super) redirect: String,
    answer: oneshot::Receiver<Parameters>,
    stop: CancellationToken,
    served: JoinHandle<std::io::Result<()>>,
}

/// Answers the browser.
struct Pages {
    /// Value of the header `host`.
    host: String,
    /// The `state` of the login.
    state: String,
    answer: Mutex<Option<oneshot::Sender<Parameters>>>,
}

impl Callback {
    /// Waits on a free port for the answer with this `state`.
    pub(super) async fn open(state: &str) -> Result<Self, Reason> {
        let failed = |error: std::io::Error| text!("no port of this machine could be opened: {}", error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(failed)?;
        let host = listener.local_addr().map_err(failed)?.to_string();
        let (sender, answer) = oneshot::channel();
        let pages = Arc::new(Pages {
            host: host.clone(),
            state: state.to_owned(),
            answer: Mutex::new(Some(sender)),
        });
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let served =
            tokio::spawn(
                async move { toolcell_http::serve(pages, listener, MAX_CONNECTIONS, &stopped).await },
            );
        Ok(Self {
            redirect: format!("http://{host}{PATH}"),
            answer,
            stop,
            served,
        })
    }

    /// Waits for the answer.
    pub(super) async fn answered(&mut self) -> Option<Parameters> {
        (&mut self.answer).await.ok()
    }

    /// Closes the port, after the browser has read its page.
    pub(super) async fn close(mut self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(FAREWELL, &mut self.served).await;
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.served.abort();
    }
}

impl Pages {
    fn page(&self, request: &Request<Incoming>) -> (StatusCode, &'static str) {
        // A name of another server that leads to this address would give its pages access.
        if only(request.headers(), "host") != Some(&self.host) {
            return (
                StatusCode::FORBIDDEN,
                "This address belongs to a login of Toolcell.",
            );
        }
        if request.uri().path() != PATH {
            return (StatusCode::NOT_FOUND, "There is nothing here.");
        }
        if request.method() != Method::GET {
            return (StatusCode::METHOD_NOT_ALLOWED, "Only GET is answered here.");
        }
        let query = request.uri().query().unwrap_or_default();
        let Some(parameters) = parameters(query) else {
            return (
                StatusCode::BAD_REQUEST,
                "The answer has a parameter twice. The login still waits.",
            );
        };
        if parameters.get("state") != Some(&self.state) {
            return (
                StatusCode::BAD_REQUEST,
                "This is not the answer to the login, which still waits.",
            );
        }
        let sender = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        match sender {
            Some(sender) => {
                let _ = sender.send(parameters);
                (
                    StatusCode::OK,
                    "Toolcell has received the answer. The terminal says whether the login succeeded. You can close this page.",
                )
            }
            None => (StatusCode::GONE, "The answer was received before."),
        }
    }
}

/// Parameters of a query; `None` if a name occurs twice.
fn parameters(query: &str) -> Option<Parameters> {
    let mut all = Parameters::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if all.insert(name.into_owned(), value.into_owned()).is_some() {
            return None;
        }
    }
    Some(all)
}

impl Service for Pages {
    fn respond<'a>(&'a self, request: Request<Incoming>, _: Origin<'a>) -> BoxFuture<'a, Response<BoxBody>> {
        Box::pin(async move {
            let (status, words) = self.page(&request);
            let mut response = Response::new(Full::new(Bytes::from(words)).boxed_unsync());
            *response.status_mut() = status;
            let headers = [
                (CONTENT_TYPE, "text/plain; charset=utf-8"),
                (
                    CONTENT_SECURITY_POLICY,
                    "default-src 'none'; frame-ancestors 'none'",
                ),
                (REFERRER_POLICY, "no-referrer"),
                (CACHE_CONTROL, "no-store"),
                (CONNECTION, "close"),
            ];
            for (name, value) in headers {
                response
                    .headers_mut()
                    .insert(name, HeaderValue::from_static(value));
            }
            response
        })
    }

    fn connected(&self, _: i64) {}

    fn is_open(&self) -> bool {
        true
    }

    fn end_streams(&self) {}

    fn cancel(&self) {}

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    /// Sends the head of a request, and returns the status.
    async fn status(callback: &Callback, method: &str, path: &str, host: Option<&str>) -> u16 {
        let own = callback
            .redirect
            .trim_start_matches("http://")
            .trim_end_matches(PATH);
        let mut stream = TcpStream::connect(own).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n\r\n",
            host.unwrap_or(own)
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("default-src 'none'"), "{answer}");
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn only_the_answer_with_the_state_counts_and_once() {
        let mut callback = Callback::open("right").await.unwrap();
        for (method, path, host, expected) in [
            ("GET", "/callback?code=evil", None, 400),
            ("GET", "/callback?code=evil&state=wrong", None, 400),
            ("GET", "/callback?code=evil&state=right&state=right", None, 400),
            ("GET", "/callback?code=evil&code=b&state=right", None, 400),
            (
                "GET",
                "/callback?code=evil&state=right",
                Some("evil.example"),
                403,
            ),
            ("GET", "/callback?code=evil&state=right", Some("localhost:1"), 403),
            ("POST", "/callback?code=evil&state=right", None, 405),
            ("GET", "/other?code=evil&state=right", None, 404),
            ("GET", "/callback?code=good&state=right", None, 200),
            ("GET", "/callback?code=evil&state=right", None, 410),
        ] {
            assert_eq!(status(&callback, method, path, host).await, expected, "{path}");
        }
        let answer = callback.answered().await.unwrap();
        assert_eq!(answer["code"], "good");
        callback.close().await;
    }

    #[tokio::test]
    async fn connection_that_sends_nothing_delays_no_answer() {
        let mut callback = Callback::open("right").await.unwrap();
        let own = callback
            .redirect
            .trim_start_matches("http://")
            .trim_end_matches(PATH);
        let mut idle = Vec::new();
        for _ in 0..2 * MAX_CONNECTIONS {
            idle.push(TcpStream::connect(own).await.unwrap());
        }
        assert_eq!(status(&callback, "GET", "/callback?state=right", None).await, 200);
        assert!(callback.answered().await.is_some());
    }
}

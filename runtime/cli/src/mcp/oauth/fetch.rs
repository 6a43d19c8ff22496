//! Requests to authorization servers, and for the metadata of servers.

use std::time::Duration;

use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::Reason;
use crate::packages::download::{Answer, Downloader, Outgoing};
use crate::packages::reference::is_local;
use crate::ui::reason;
use crate::ui::terminal::{Own, ShownUrl, Text, text};

/// Maximum size of a document, in bytes. Real ones have some kilobytes.
pub(super) const MAX_DOCUMENT_BYTES: u64 = 64 << 10;

/// Time for one request as a whole.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(20);

/// Sends requests for the login to one server.
#[derive(Debug, Clone)]
pub(super) struct Fetcher {
    /// Address of the server.
    server: Url,
    /// Authorization server that the user named.
    issuer: Option<Url>,
    time: Duration,
}

impl Fetcher {
    pub(super) fn new(server: &Url, issuer: Option<&Url>) -> Self {
        Self {
            server: server.clone(),
            issuer: issuer.cloned(),
            time: REQUEST_TIME,
        }
    }

    #[cfg(test)]
    pub(super) fn within(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Reads an address that a server named: `https`, or `http` on this machine if the server is there itself.
    pub(super) fn address(&self, written: &str) -> Result<Url, Reason> {
        let refused = |why: &'static str| {
            Err(text!(
                "the address {} cannot be used: {}",
                ShownUrl(written),
                Own(why)
            ))
        };
        if written.len() > super::MAX_TEXT_BYTES {
            return refused("it is too long");
        }
        let Ok(url) = Url::parse(written) else {
            return refused("it is not a URL");
        };
        let is_here = url.scheme() == "http" && is_local(&url) && is_local(&self.server);
        if url.scheme() != "https" && !is_here {
            return refused("it is not reached over `https`");
        }
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return refused("it has a user name, a password or a part after `#`");
        }
        Ok(url)
    }

    /// Requests a document; `None` if there is none.
    pub(super) async fn document<T: DeserializeOwned>(&self, url: &Url) -> Result<Option<T>, Reason> {
        let outgoing = Outgoing {
            method: Method::GET,
            url,
            accept: Some("application/json"),
            body: None,
            authorization: None,
            max_bytes: MAX_DOCUMENT_BYTES,
        };
        let answer = self.send(outgoing).await?;
        if answer.status.is_client_error() {
            return Ok(None);
        }
        if answer.status != StatusCode::OK {
            return Err(status(url, answer.status));
        }
        read(url, &answer.body).map(Some)
    }

    /// Sends JSON, and reads the answer.
    pub(super) async fn post_json<T: DeserializeOwned>(&self, url: &Url, body: &Value) -> Result<T, Reason> {
        let answer = self
            .post(url, ("application/json", body.to_string().into_bytes()), None)
            .await?;
        if !answer.status.is_success() {
            return Err(refusal(url, &answer));
        }
        read(url, &answer.body)
    }

    /// Sends a form, and reads the answer. The error has the code of OAuth, if the answer has one.
    pub(super) async fn post_form<T: DeserializeOwned>(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        authorization: Option<&str>,
    ) -> Result<T, PostError> {
        let answer = self.send_form(url, form, authorization).await?;
        read(url, &answer.body).map_err(|reason| PostError { reason, code: None })
    }

    /// Sends a form. What an answer of success says does not matter to the caller of this.
    pub(super) async fn send_form(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        authorization: Option<&str>,
    ) -> Result<Answer, PostError> {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let body = ("application/x-www-form-urlencoded", body.into_bytes());
        let answer = self
            .post(url, body, authorization)
            .await
            .map_err(|reason| PostError { reason, code: None })?;
        match answer.status.is_success() {
            true => Ok(answer),
            false => Err(PostError {
                reason: refusal(url, &answer),
                code: error_of(&answer).map(|(code, _)| code),
            }),
        }
    }

    async fn post(
        &self,
        url: &Url,
        body: (&str, Vec<u8>),
        authorization: Option<&str>,
    ) -> Result<Answer, Reason> {
        self.send(Outgoing {
            method: Method::POST,
            url,
            accept: Some("application/json"),
            body: Some(body),
            authorization,
            max_bytes: MAX_DOCUMENT_BYTES,
        })
        .await
    }

    async fn send(&self, outgoing: Outgoing<'_>) -> Result<Answer, Reason> {
        let url = outgoing.url;
        let is_named = |named: &Url| named.origin() == url.origin();
        // On this machine only if the server is there, which `address` has checked.
        let is_exempt = is_named(&self.server)
            || self.issuer.as_ref().is_some_and(is_named)
            || (is_local(url) && is_local(&self.server));
        let downloader = match is_exempt {
            true => Downloader::new(url, true),
            false => Downloader::public(url),
        };
        let sent = match downloader {
            Ok(downloader) => downloader.send_once(&outgoing, self.time).await,
            Err(error) => Err(error),
        };
        let answer = sent.map_err(|error| {
            let reasons = reason::chain(&error);
            text!(
                "the request to {} failed: {}",
                ShownUrl(url.as_str()),
                Text::join(reasons, ": ")
            )
        })?;
        match answer.status.is_redirection() {
            true => Err(text!(
                "{} answered with the status {}, a redirect, which is not followed",
                ShownUrl(url.as_str()),
                answer.status.as_u16()
            )),
            false => Ok(answer),
        }
    }
}

/// A form that was refused.
#[derive(Debug)]
pub(super) struct PostError {
    pub(super) reason: Reason,
    /// Code of the error, such as `invalid_grant`. Text of the authorization server.
    pub(super) code: Option<String>,
}

fn read<T: DeserializeOwned>(url: &Url, body: &[u8]) -> Result<T, Reason> {
    // The error of the parser could repeat a part of the document.
    serde_json::from_slice(body).map_err(|error| {
        text!(
            "the document {} is not as expected, in line {} and column {}",
            ShownUrl(url.as_str()),
            error.line(),
            error.column()
        )
    })
}

fn status(url: &Url, status: StatusCode) -> Reason {
    text!(
        "{} answered with the status {}",
        ShownUrl(url.as_str()),
        status.as_u16()
    )
}

/// The refusal of a request, with the words of the authorization server.
fn refusal(url: &Url, answer: &Answer) -> Reason {
    let status = status(url, answer.status);
    match error_of(answer) {
        Some((code, words)) => text!("{} and these words: {}", status, told(&code, words.as_deref())),
        None => status,
    }
}

/// Words of an authorization server about an error.
pub(super) fn told(code: &str, description: Option<&str>) -> Text {
    let words = match description {
        Some(description) => format!("{code}: {description}"),
        None => code.to_owned(),
    };
    Text::of_others(words).excerpt(MAX_WORDS)
}

/// Maximum length of words of an authorization server, in characters.
const MAX_WORDS: usize = 500;

/// Code and description of an error (RFC 6749, section 5.2).
fn error_of(answer: &Answer) -> Option<(String, Option<String>)> {
    let error: Value = serde_json::from_slice(&answer.body).ok()?;
    let text = |name: &str| error[name].as_str().map(str::to_owned);
    Some((text("error")?, text("error_description")))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn document_that_never_ends_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/x", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{")
                    .await;
                held.push(stream);
            }
        });
        let fetcher = Fetcher::new(&url, None).within(Duration::from_millis(200));
        let failed = fetcher.document::<Value>(&url).await.unwrap_err().plain();
        assert!(failed.contains("it was not complete after"), "{failed}");
    }

    #[test]
    fn addresses_of_others_are_reached_over_tls() {
        let fetcher = |server| Fetcher::new(&Url::parse(server).unwrap(), None);
        let (far, here) = (
            fetcher("https://mcp.example/mcp"),
            fetcher("http://127.0.0.1:1/mcp"),
        );
        let most = "https://a.example/".len();
        let long = |size: usize| format!("https://a.example/{}", "x".repeat(size - most));
        for (written, of_far, of_here) in [
            ("https://a.example/x?y", true, true),
            ("http://127.0.0.1:2/x", false, true),
            ("http://localhost:2/x", false, true),
            ("http://a.example/x", false, false),
            ("http://10.0.0.1/x", false, false),
            ("javascript:alert(1)", false, false),
            ("https://u@a.example/", false, false),
            ("https://a.example/#x", false, false),
            ("", false, false),
            (&long(super::super::MAX_TEXT_BYTES), true, true),
            (&long(super::super::MAX_TEXT_BYTES + 1), false, false),
        ] {
            assert_eq!(far.address(written).is_ok(), of_far, "{written}");
            assert_eq!(here.address(written).is_ok(), of_here, "{written}");
        }
    }
}

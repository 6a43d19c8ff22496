//! HTTP client of the exporters. Requests run on the runtime of the process, although the exporters have their own
//! threads.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;
use toolcell_core::error_chain;

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of bytes read from a response.
const MAX_ANSWER: usize = 64 << 10;

/// HTTP client that keeps the first failure. Clones share their state.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    runtime: Handle,
    client: Arc<OnceLock<Result<reqwest::Client, String>>>,
    failure: Arc<OnceLock<String>>,
}

impl Sender {
    pub(super) fn new() -> Self {
        Self {
            runtime: Handle::current(),
            client: Arc::default(),
            failure: Arc::default(),
        }
    }

    /// Returns the first failure.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // Loading the certificates takes some milliseconds, so it is done on first use.
        let client = self.client.get_or_init(|| client().map_err(|e| e.to_string()));
        let client = client.clone()?;
        let request = reqwest::Request::try_from(request).map_err(reqwest::Error::without_url)?;
        let exchange = async move {
            let mut answer = client.execute(request).await?;
            let mut response = Response::builder().status(answer.status());
            if let Some(headers) = response.headers_mut() {
                headers.extend(answer.headers().clone());
            }
            let mut body = BytesMut::new();
            while let Some(piece) = answer.chunk().await? {
                let room = MAX_ANSWER - body.len();
                body.extend_from_slice(&piece[..piece.len().min(room)]);
                if body.len() == MAX_ANSWER {
                    break;
                }
            }
            Ok::<_, reqwest::Error>((response, body.freeze()))
        };
        let (response, body) = self
            .runtime
            .spawn(exchange)
            .await?
            .map_err(|error| error_chain(&error.without_url()))?;
        Ok(response.body(body)?)
    }
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let result = self.send(request).await;
        match &result {
            Ok(response) if !response.status().is_success() => {
                let _ = self
                    .failure
                    .set(format!("the collector responded with {}", response.status()));
            }
            Ok(_) => {}
            Err(error) => {
                let _ = self.failure.set(error.to_string());
            }
        }
        result
    }
}

/// Creates a client with the Mozilla and system root certificates, without redirects or proxies: headers may contain a
/// key.
fn client() -> Result<reqwest::Client, HttpError> {
    let tls = toolcell_tls::client_config(&[])?;
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .timeout(TIMEOUT)
        .user_agent(concat!("toolcell/", env!("CARGO_PKG_VERSION")))
        .build()?)
}

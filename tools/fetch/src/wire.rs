//! Requests to the network.

use toolcell_sdk::{Result, http};
use url::Url;

use crate::response::Response;
use crate::send::{self, Request};

/// Name of this client.
pub(crate) const USER_AGENT: &str = concat!("toolcell-fetch/", env!("CARGO_PKG_VERSION"));

const HEADERS: &[(&str, &str)] = &[
    (
        "accept",
        "text/html, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5",
    ),
    ("accept-encoding", "gzip"),
    ("user-agent", USER_AGENT),
];

/// Sends a GET request and reads at most `max_body` bytes of the response.
pub(crate) fn get(url: &Url, max_body: usize) -> Result<Response> {
    let headers = HEADERS
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
        .collect();
    let request = Request {
        method: send::Method::Get,
        url: url.clone(),
        headers,
        body: Vec::new(),
    };
    send(&request, max_body)
}

/// Sends a request and reads at most `max_body` bytes of the response.
pub(crate) fn send(request: &Request, max_body: usize) -> Result<Response> {
    let mut sent = http::Request::new(request.method.name(), request.url.as_str())
        .body(request.body.clone())
        .cut_body(max_body);
    for (name, value) in &request.headers {
        sent = sent.header(name, value.clone());
    }
    let response = sent.send()?;
    Ok(Response {
        status: response.status(),
        headers: response.headers().to_vec(),
        cut: response.is_cut(),
        body: response.into_bytes(),
    })
}

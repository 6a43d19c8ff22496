//! HTTP through `wasi:http` 0.2.

use toolcell_sdk::{Result, ToolError};
use url::Url;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
    http_error_code,
};
use wasip2::io::streams::StreamError;

use crate::response::Response;
use crate::send::{self, Request};

/// Bytes per read.
const CHUNK: u64 = 64 << 10;

/// Maximum bytes that a stream accepts in one blocking write (WASI 0.2).
const WRITE: usize = 4 << 10;

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
    let url = &request.url;
    let headers = Fields::from_list(&request.headers)
        .map_err(|error| ToolError::invalid(format_args!("`headers`: {error}")))?;
    let response = exchange(request, headers).map_err(|error| explain(url, &error))?;
    let mut answer = Response {
        status: response.status(),
        headers: response.headers().entries(),
        ..Response::default()
    };
    let body = response
        .consume()
        .map_err(|()| ToolError::failed("the body was already read"))?;
    let stream = body
        .stream()
        .map_err(|()| ToolError::failed("the body was already read"))?;
    loop {
        match stream.blocking_read(CHUNK) {
            Ok(chunk) => answer.body.extend_from_slice(&chunk),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(match http_error_code(&error) {
                    Some(code) => explain(url, &code),
                    None => ToolError::unavailable(format_args!(
                        "`{url}`: the connection broke: {}",
                        error.to_debug_string()
                    )),
                });
            }
        }
        if answer.body.len() > max_body {
            answer.body.truncate(max_body);
            answer.cut = true;
            break;
        }
    }
    drop(stream);
    drop(IncomingBody::finish(body));
    Ok(answer)
}

fn exchange(sent: &Request, headers: Fields) -> Result<IncomingResponse, ErrorCode> {
    let url = &sent.url;
    let request = OutgoingRequest::new(headers);
    let method = match sent.method {
        send::Method::Get => Method::Get,
        send::Method::Head => Method::Head,
        send::Method::Post => Method::Post,
        send::Method::Put => Method::Put,
        send::Method::Patch => Method::Patch,
        send::Method::Delete => Method::Delete,
    };
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let scheme = if url.scheme() == "http" {
        Scheme::Http
    } else {
        Scheme::Https
    };
    let set = request
        .set_method(&method)
        .and_then(|()| request.set_scheme(Some(&scheme)))
        .and_then(|()| request.set_authority(Some(url.authority())))
        .and_then(|()| request.set_path_with_query(Some(&path)));
    set.map_err(|()| ErrorCode::HttpRequestUriInvalid)?;
    let body = request.body().map_err(|()| ErrorCode::InternalError(None))?;
    let future = outgoing_handler::handle(request, None)?;
    // After the request is on its way, because the host holds only some of the body. A server that answers early stops
    // reading; its response says why.
    if write(&body, &sent.body).is_ok() {
        let _ = OutgoingBody::finish(body, None);
    }
    loop {
        match future.get() {
            Some(Ok(response)) => return response,
            Some(Err(())) => return Err(ErrorCode::InternalError(None)),
            None => future.subscribe().block(),
        }
    }
}

fn write(body: &OutgoingBody, bytes: &[u8]) -> Result<(), StreamError> {
    if bytes.is_empty() {
        return Ok(());
    }
    let stream = body.write().map_err(|()| StreamError::Closed)?;
    for chunk in bytes.chunks(WRITE) {
        stream.blocking_write_and_flush(chunk)?;
    }
    Ok(())
}

/// Converts an error to a message that states the remedy: a grant, a retry, or another URL.
fn explain(url: &Url, error: &ErrorCode) -> ToolError {
    let host = url.host_str().unwrap_or_default();
    match error {
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => {
            ToolError::denied(format_args!("this tool may not send requests to `{url}`"))
        }
        ErrorCode::DnsError(_) | ErrorCode::DestinationNotFound => {
            ToolError::failed(format_args!("unknown host `{host}`"))
        }
        ErrorCode::TlsProtocolError | ErrorCode::TlsCertificateError | ErrorCode::TlsAlertReceived(_) => {
            ToolError::failed(format_args!("no secure connection to `{host}`: {}", words(error)))
        }
        ErrorCode::HttpResponseBodySize(_) => ToolError::failed(format_args!(
            "`{url}`: the response exceeds the limit of this tool"
        )),
        ErrorCode::HttpRequestUriInvalid | ErrorCode::HttpRequestUriTooLong => ToolError::invalid(
            format_args!("`url`: `{url}` cannot be requested: {}", words(error)),
        ),
        _ => ToolError::unavailable(format_args!("`{url}`: {}", words(error))),
    }
}

/// Converts `ErrorCode::ConnectionRefused` to "connection refused".
fn words(error: &ErrorCode) -> String {
    if let ErrorCode::InternalError(Some(message)) = error {
        return message.clone();
    }
    let name = format!("{error:?}");
    let name = name.rsplit("::").next().unwrap_or(&name);
    let name = name.split(['(', ' ', '{']).next().unwrap_or(name);
    let mut words = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(character.to_lowercase());
    }
    words
}

//! Requests through `wasi:http` 0.2.

use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
    http_error_code,
};
use wasip2::io::streams::StreamError;

use super::request::Target;
use super::{Request, Response};
use crate::{Result, ToolError, show};

/// Bytes per read.
const CHUNK: u64 = 64 << 10;

/// Maximum bytes that a stream accepts in one blocking write (WASI 0.2).
const WRITE: usize = 4 << 10;

pub(super) fn send(
    request: &Request,
    target: &Target<'_>,
    headers: &[(String, Vec<u8>)],
) -> Result<Response> {
    let fields =
        Fields::from_list(headers).map_err(|error| ToolError::invalid(format_args!("a header: {error}")))?;
    let response = exchange(request, target, fields).map_err(|error| explain(request, target, &error))?;
    let mut received = Response {
        status: response.status(),
        headers: response.headers().entries(),
        ..Response::default()
    };
    let consumed = |()| ToolError::failed("the body was already read");
    let body = response.consume().map_err(consumed)?;
    let stream = body.stream().map_err(consumed)?;
    // One byte more than wanted tells that there is more.
    while received.body.len() <= request.max_body {
        match stream.blocking_read(CHUNK) {
            Ok(chunk) => received.body.extend_from_slice(&chunk),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(match http_error_code(&error) {
                    Some(code) => explain(request, target, &code),
                    None => ToolError::unavailable(format_args!(
                        "{}: the connection broke: {}",
                        show::quoted(request.url()),
                        error.to_debug_string()
                    )),
                });
            }
        }
    }
    drop(stream);
    drop(IncomingBody::finish(body));
    Ok(received)
}

fn exchange(sent: &Request, target: &Target<'_>, headers: Fields) -> Result<IncomingResponse, ErrorCode> {
    let request = OutgoingRequest::new(headers);
    let scheme = if target.is_https {
        Scheme::Https
    } else {
        Scheme::Http
    };
    request
        .set_method(&method(sent.method()))
        .and_then(|()| request.set_scheme(Some(&scheme)))
        .and_then(|()| request.set_authority(Some(target.authority)))
        .and_then(|()| request.set_path_with_query(Some(&target.path_with_query)))
        .map_err(|()| ErrorCode::HttpRequestUriInvalid)?;
    let body = request.body().map_err(|()| ErrorCode::InternalError(None))?;
    let future = outgoing_handler::handle(request, None)?;
    // After the request is on its way, because the host holds only some of the body. A server that answers early stops
    // reading; its response says why.
    if write(&body, sent.bytes()).is_ok() {
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

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
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
fn explain(request: &Request, target: &Target<'_>, error: &ErrorCode) -> ToolError {
    let (url, host) = (show::quoted(request.url()), show::quoted(target.authority));
    match error {
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => request.denied(),
        ErrorCode::DnsError(_) | ErrorCode::DestinationNotFound => {
            ToolError::failed(format_args!("unknown host {host}"))
        }
        ErrorCode::TlsProtocolError | ErrorCode::TlsCertificateError | ErrorCode::TlsAlertReceived(_) => {
            ToolError::failed(format_args!("no secure connection to {host}: {}", words(error)))
        }
        ErrorCode::HttpResponseBodySize(_) => {
            ToolError::failed(format_args!("{url}: the response exceeds the limit of this tool"))
        }
        ErrorCode::HttpRequestUriInvalid | ErrorCode::HttpRequestUriTooLong => {
            ToolError::invalid(format_args!("{url} cannot be requested: {}", words(error)))
        }
        _ => ToolError::unavailable(format_args!("{url}: {}", words(error))),
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

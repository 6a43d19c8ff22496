//! One exchange: the token of its request, and the parts of its answer, up to their sizes.

use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use reqwest::{RequestBuilder, Response};
use toolcell_core::{Redactor, error_chain};

use super::events::{self, Events};
use super::{Endpoint, Form, MAX_STREAM_BYTES, authorization};
use crate::client::error::ServerError;
use crate::client::link::MAX_ANSWER_BYTES;
use crate::client::message::{self, Received};
use crate::client::searched::searched;

impl Endpoint {
    /// Adds the token that is held. Returns it as well.
    pub(super) async fn with_token(&self, request: RequestBuilder) -> (RequestBuilder, Option<String>) {
        let Some(tokens) = self.remote.tokens() else {
            return (request, None);
        };
        let token = tokens.source.current().await;
        match token.as_deref().and_then(|token| tokens.header(token)) {
            Some(header) => (request.header(AUTHORIZATION, header), token),
            None => (request, None),
        }
    }

    /// Removes the tokens from what the server sends.
    pub(super) fn redactor(&self) -> Redactor {
        self.remote
            .tokens()
            .map(authorization::Tokens::redactor)
            .unwrap_or_default()
    }

    /// Reads a body of at most `limit` bytes.
    pub(super) async fn body_of(
        &self,
        response: &mut Response,
        method: &str,
        limit: usize,
    ) -> Result<Vec<u8>, ServerError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|_| ServerError::Cut)? {
            if body.len() + chunk.len() > limit {
                return Err(ServerError::invalid(
                    method,
                    format!("has more than {limit} bytes"),
                ));
            }
            body.extend_from_slice(&chunk);
        }
        without_tokens(&self.redactor(), body, method).await
    }

    /// Reads events up to the end of the stream, or until `receive` returns true. Returns whether it did.
    pub(super) async fn read_events(
        &self,
        response: &mut Response,
        events: &mut Events,
        size: &mut usize,
        method: &str,
        receive: &(dyn Fn(Received) -> Result<bool, ServerError> + Send + Sync),
    ) -> Result<bool, ServerError> {
        // A stream that breaks off is one that ends.
        let redactor = self.redactor();
        while let Ok(Some(chunk)) = response.chunk().await {
            *size += chunk.len();
            if *size > MAX_STREAM_BYTES {
                let reason = format!("is a stream of more than {MAX_STREAM_BYTES} bytes");
                return Err(ServerError::invalid(method, reason));
            }
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                let (read, data) = events.read(rest).map_err(|events::TooLong| {
                    ServerError::invalid(method, format!("has more than {MAX_ANSWER_BYTES} bytes"))
                })?;
                rest = &rest[read..];
                if let Some(data) = data {
                    let data = without_tokens(&redactor, data, method).await?;
                    if receive(message::parse(&data))? {
                        return Ok(true);
                    }
                }
            }
            // A server that always has a chunk ready does not keep the thread.
            tokio::task::consume_budget().await;
        }
        Ok(false)
    }
}

/// Removes the tokens from a part of an answer.
async fn without_tokens(redactor: &Redactor, part: Vec<u8>, method: &str) -> Result<Vec<u8>, ServerError> {
    if redactor.is_empty() {
        return Ok(part);
    }
    let bytes = part.len();
    let search = move |redactor: &Redactor| redactor.bytes(&part).into_owned();
    let searched = searched(redactor, bytes, search).await;
    searched.ok_or_else(|| ServerError::invalid(method, "could not be searched for secrets"))
}

/// Sends a request once.
pub(super) async fn exchange(request: RequestBuilder) -> Result<Response, ServerError> {
    request.send().await.map_err(|error| {
        let is_unsent = error.is_connect() || error.is_builder();
        let error = error.without_url();
        tracing::debug!(error = error_chain(&error), "a request to an MCP server failed");
        match is_unsent {
            true => ServerError::Unreachable(error_chain(&error)),
            false => ServerError::Cut,
        }
    })
}

/// Form of the body of a response.
pub(super) fn form(response: &Response, method: &str, redactor: &Redactor) -> Result<Form, ServerError> {
    let headers = response.headers();
    let encoded = headers.get(CONTENT_ENCODING);
    if encoded.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(ServerError::invalid(
            method,
            "has an unsupported content-encoding",
        ));
    }
    let written = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = written.unwrap_or_default().split(';').next().unwrap_or_default();
    match essence.trim().to_ascii_lowercase().as_str() {
        "application/json" => Ok(Form::Json),
        "text/event-stream" => Ok(Form::Events),
        other => Err(ServerError::invalid(
            method,
            format!(
                "is neither JSON nor a stream of events, but of type `{}`",
                redactor.text(other)
            ),
        )),
    }
}

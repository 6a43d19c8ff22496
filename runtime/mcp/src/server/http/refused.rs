//! Requests that are answered with an error of HTTP.

use hyper::header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

use super::answer::{self, Answer};
use crate::message::{self, RpcError};
use crate::server::in_flight::MAX_IN_FLIGHT_BYTES;

/// Request that is answered with an error.
pub(super) struct Refused {
    status: StatusCode,
    error: Vec<u8>,
    /// Value of `WWW-Authenticate`.
    challenge: Option<String>,
    /// Methods of the path, for a wrong one.
    allow: &'static str,
}

impl Refused {
    pub(super) fn new(status: StatusCode, reason: &str) -> Self {
        Self::of(status, message::error(None, &RpcError::invalid_request(reason)))
    }

    pub(super) fn of(status: StatusCode, error: Vec<u8>) -> Self {
        Self {
            status,
            error,
            challenge: None,
            allow: "GET, POST, DELETE",
        }
    }

    /// With a value of `WWW-Authenticate`.
    pub(super) fn challenging(self, challenge: String) -> Self {
        Self {
            challenge: Some(challenge),
            ..self
        }
    }

    /// With the methods of a path other than that of the messages.
    pub(super) fn allowing(self, allow: &'static str) -> Self {
        Self { allow, ..self }
    }

    pub(super) fn response(self) -> Response<Answer> {
        let status = self.status;
        let mut response = answer::message(status, self.error);
        let headers = response.headers_mut();
        let challenge = self.challenge.and_then(|challenge| challenge.try_into().ok());
        if let Some(challenge) = challenge {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(ALLOW, HeaderValue::from_static(self.allow));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// Without a token, or with one that is not valid.
pub(super) fn unauthorized(challenge: String, reason: &str) -> Refused {
    Refused::new(StatusCode::UNAUTHORIZED, reason).challenging(challenge)
}

/// Reason of a refusal because of the memory of messages.
pub(super) fn unhandled() -> String {
    format!("the messages that are not handled take {MAX_IN_FLIGHT_BYTES} bytes; wait for one")
}

/// A session that is unknown.
pub(super) fn no_session() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, "there is no such session, or it has ended")
}

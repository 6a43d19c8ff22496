//! Errors of servers.

use std::sync::Arc;

use toolcell_core::{Receipt, Redactor, ToolError};

use super::http::Refused;
use super::process::ServerProgram;
use crate::version::Version;

/// Maximum size of a text of a server in an error, in bytes.
const MAX_TEXT: usize = 1 << 10;

/// A server that did not start.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error}")]
pub struct StartError {
    /// Cause.
    #[source]
    pub error: ServerError,
    /// The end of what it wrote to its standard error, without secrets. Text of the server.
    pub output: String,
    /// What it accessed until then, and what was denied to it; unknown for a process.
    pub accessed: Box<Receipt>,
}

impl StartError {
    pub(super) fn new(error: ServerError, output: String) -> Self {
        Self {
            error,
            output,
            accessed: Box::default(),
        }
    }

    /// Adds how the program of the server ended, and what it wrote.
    pub(super) async fn of(error: ServerError, program: Option<ServerProgram>) -> Self {
        match (error, program) {
            (ServerError::Ended { .. }, Some(program)) => {
                let (status, output) = program.after_end().await;
                Self::new(ServerError::Ended { status }, output)
            }
            (error, program) => Self::new(error, program.map(|program| program.tail()).unwrap_or_default()),
        }
    }
}

/// Failure of a server, or of one request to it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The process could not be started.
    #[error("could not start `{program}`")]
    Spawn {
        /// Path of the program.
        program: String,
        /// Cause.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// The server inside of this process could not be started.
    #[error("{0}")]
    InProcess(String),
    /// The server closed its output, or could not be written to.
    #[error("the server ended{}", status.as_ref().map_or_else(String::new, |status| format!(" ({status})")))]
    Ended {
        /// Exit status of its process, if known.
        status: Option<String>,
    },
    /// The server did not answer in time.
    #[error("no answer to `{method}` within {ms} ms")]
    Timeout {
        /// Method of the request.
        method: String,
        /// Time limit, in milliseconds.
        ms: u64,
    },
    /// The server answered with an error of the protocol.
    #[error("`{method}` was answered with the error {code}: {message}")]
    Answered {
        /// Method of the request.
        method: String,
        /// Code of JSON-RPC.
        code: i64,
        /// Message of the server.
        message: String,
    },
    /// The answer is not one to this request.
    #[error("the answer to `{method}` {reason}")]
    Invalid {
        /// Method of the request.
        method: String,
        /// Defect of the answer.
        reason: String,
    },
    /// The server speaks no version of the protocol that is supported.
    #[error("it speaks version `{0}` of the protocol, which is not supported; supported are {versions}", versions = versions())]
    Version(String),
    /// The server sent too many unsolicited messages.
    #[error(
        "the server sent more than {} messages without being asked",
        super::pending::MAX_UNSOLICITED
    )]
    Flood,
    /// No connection to the server over HTTP, so that nothing was sent.
    #[error("the server could not be reached: {0}")]
    Unreachable(String),
    /// The connection ended before the answer.
    #[error("the connection ended before the answer")]
    Cut,
    /// The server over HTTP refused a request with this status.
    #[error("`{method}` was answered with the status {status}")]
    Status {
        /// Method of the request.
        method: String,
        /// Status of HTTP.
        status: u16,
    },
    /// The server over HTTP sent the client to another address.
    #[error("the server answered with the status {0}, a redirect, which is not followed")]
    Redirected(u16),
    /// The server over HTTP requires credentials, or does not accept these.
    #[error("the server refused the request without a valid authorization (status 401)")]
    Unauthorized(Refused),
    /// The server over HTTP wants more rights than the access token has.
    #[error("the server refused the request: the login does not have the rights that it needs (status 403)")]
    InsufficientScope(Refused),
    /// The server over HTTP does not know its session any more.
    #[error("the server ended the session")]
    SessionLost,
}

fn versions() -> String {
    Version::ALL.map(Version::as_str).join(", ")
}

/// The beginning of a text of a server, without secrets. A secret that the cut would halve is left out.
pub(super) fn excerpt(text: &str, redactor: &Redactor) -> String {
    let mut shown = redactor.beginning(text, MAX_TEXT);
    if text.len() > MAX_TEXT {
        shown.push('…');
    }
    shown
}

impl ServerError {
    /// Removes secrets from the words of the server, and cuts them. Before that they are whole: half a secret would not be
    /// found.
    pub(super) fn redacted(mut self, redactor: &Redactor) -> Self {
        match &mut self {
            Self::Answered { message: text, .. }
            | Self::Invalid { reason: text, .. }
            | Self::Version(text)
            | Self::Unreachable(text)
            | Self::InProcess(text)
            | Self::Ended { status: Some(text) } => *text = excerpt(text, redactor),
            // Without words of the server.
            Self::Spawn { .. }
            | Self::Ended { status: None }
            | Self::Timeout { .. }
            | Self::Flood
            | Self::Cut
            | Self::Status { .. }
            | Self::Redirected(_)
            | Self::Unauthorized(_)
            | Self::InsufficientScope(_)
            | Self::SessionLost => {}
        }
        self
    }

    /// True if another version of the protocol would change nothing.
    pub(super) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Ended { .. }
                | Self::Flood
                | Self::Unreachable(_)
                | Self::Redirected(_)
                | Self::Unauthorized(_)
                | Self::InsufficientScope(_)
        )
    }

    pub(super) fn invalid(method: &str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            method: method.to_owned(),
            reason: reason.into(),
        }
    }

    /// Returns the error of a call whose tool could not be compared with its definition before, as the model reads it.
    pub(super) fn of_list(&self, server: &str) -> ToolError {
        ToolError::Unavailable {
            message: format!(
                "nothing was called, because the MCP server `{server}` did not list its tools: {self}"
            ),
        }
    }

    /// Returns the error of a call, as the model reads it.
    pub(super) fn of_call(&self, server: &str) -> ToolError {
        match self {
            Self::Answered {
                code: -32602,
                message,
                ..
            } => ToolError::invalid(message.clone()),
            Self::Answered { message, code, .. } => ToolError::Failed {
                message: format!("the MCP server `{server}` answered with the error {code}: {message}"),
            },
            Self::Invalid { reason, .. } => ToolError::Failed {
                message: format!("the answer of the MCP server `{server}` {reason}"),
            },
            Self::Timeout { ms, .. } => ToolError::Unavailable {
                message: format!(
                    "the MCP server `{server}` did not answer within {ms} ms; whether the call had an effect is unknown"
                ),
            },
            Self::Ended { .. } | Self::Flood => ToolError::Unavailable {
                message: format!(
                    "the MCP server `{server}` ended during the call; whether the call had an effect is unknown"
                ),
            },
            Self::Spawn { .. } | Self::InProcess(_) | Self::Version(_) => ToolError::Unavailable {
                message: format!("the MCP server `{server}` could not be started"),
            },
            Self::Unreachable(_) => ToolError::Unavailable {
                message: format!("the MCP server `{server}` could not be reached; nothing was called"),
            },
            Self::Cut => ToolError::Unavailable {
                message: format!(
                    "the connection to the MCP server `{server}` ended during the call; whether the call had an effect is unknown"
                ),
            },
            Self::Status { status, .. } => ToolError::Unavailable {
                message: format!(
                    "the MCP server `{server}` answered with the status {status}; whether the call had an effect is unknown"
                ),
            },
            Self::Redirected(status) => ToolError::Unavailable {
                message: format!(
                    "the MCP server `{server}` answered with the status {status}, a redirect, which is not followed; nothing was called"
                ),
            },
            Self::Unauthorized(Refused { hint: Some(hint), .. }) => ToolError::denied(
                format!(
                    "the MCP server `{server}` refused the request without a valid authorization (status 401); nothing was called"
                ),
                Some(hint.clone()),
            ),
            Self::InsufficientScope(Refused { hint, .. }) => ToolError::denied(
                format!(
                    "the MCP server `{server}` refused the request for want of rights (status 403); nothing was called"
                ),
                hint.clone(),
            ),
            Self::Unauthorized(_) => ToolError::Unavailable {
                message: format!(
                    "the MCP server `{server}` refused the request without a valid authorization (status 401); nothing was called"
                ),
            },
            Self::SessionLost => ToolError::Unavailable {
                message: format!("the MCP server `{server}` ended the session again; nothing was called"),
            },
        }
    }
}

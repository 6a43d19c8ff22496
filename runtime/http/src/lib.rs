//! The rules of Toolcell's servers over HTTP: `toolcell mcp serve --http` and `toolcell serve`.
//!
//! | concept | module |
//! |---|---|
//! | connections of a listener: their number, limits, drain | `listener`, `peer`, `stall` |
//! | hosts and origins for which a request is accepted | `headers` |
//! | bearer tokens | `credential` |
//! | access tokens of an authorization server | `access_token` |
//! | bodies up to their size and time | `request_body` |
//!
//! A server implements [`Service`], and [`serve`] runs it.

pub mod access_token;
mod credential;
mod headers;
mod listener;
mod peer;
mod request_body;
mod stall;

pub use credential::{MIN_TOKEN_BYTES, Token, WeakToken};
pub use headers::{Reached, Takes, check_json, is_for, only, takes};
pub use listener::{
    BoxBody, BoxFuture, DRAIN_TIME, HEADER_TIME, MAX_HEADER_BYTES, MAX_HEADERS, Origin, Service, serve,
    serve_connection,
};
pub use peer::Peer;
pub use request_body::{BODY_TIME, read_body};
pub use stall::{MAX_WRITE_STALL, Stalling};

/// Number of connections without a request of a client from which those that have ended are forgotten.
const MAX_STRANGERS: usize = 256;

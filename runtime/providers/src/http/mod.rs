//! HTTP code shared by all protocols: client, retries, timeouts, and errors in one form.

mod client;
mod connection;
mod dialect;
mod exchange;
mod failure;
mod models;
mod options;
mod protocol;
mod provider;
mod retry;
mod service;
mod stream_limits;

pub(crate) use client::{Header, Version, bearer, header};
pub use connection::Connection;
#[cfg(test)]
pub(crate) use dialect::body;
pub(crate) use dialect::{Dialect, Feature, OptionalPart, STRICT_WORDS};
pub(crate) use exchange::{error_in_stream, malformed};
pub(crate) use failure::bounded;
pub use options::HttpOptions;
pub(crate) use protocol::{Decoder, DecoderState, Protocol};
pub use provider::HttpProvider;
pub(crate) use retry::FailedAttempt;
pub use retry::{MAX_RETRY_AFTER, RetryPolicy};

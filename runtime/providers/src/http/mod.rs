//! Everything that the wires share of HTTP: the client, retries, time limits, and errors in one shape.

mod client;
mod exchange;
mod failure;
mod options;
mod retry;
mod stream_limits;

pub(crate) use client::{Endpoint, bearer, endpoint, header};
pub(crate) use exchange::{Decoder, Http, Outgoing, Progress, Protocol, error_in_stream, malformed};
pub use options::HttpOptions;
pub(crate) use retry::Failure;
pub use retry::RetryPolicy;

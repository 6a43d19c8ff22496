//! HTTP requests of guests: one way out for all of them.
//!
//! A guest uses standard `wasi:http`, through any client of its language. Every request ends in
//! `CallEgress`, which decides in this order:
//!
//! 1. The request has one reading: its URL in canonical form (`target`), no user name, no second host, no headers
//!    that change the framing, no more than 8 KiB of URL and 32 KiB of headers.
//! 2. A grant allows method, scheme, host, port and path (`rules`); otherwise nothing is looked up.
//! 3. It is no sixth redirect in a row and does not lead from `https` to `http` (`redirect`).
//! 4. Secrets that are bound to its origin, method and path are added (`secrets`).
//! 5. The name is looked up once; addresses that are not public are taken out unless the grant says `private`
//!    (`address`), and one of the others is connected to (`exchange`). Proxies from the environment are not used.
//! 6. TLS verifies the certificate for the name in the URL; nothing turns that off (`network`).
//! 7. The response is bounded in headers, bytes and silence (`body`); a redirect gets its one spelling, what the bindings
//!    of secrets hold back stays here (`response`), and what is echoed of a secret is masked (`mask`), also where it is
//!    compressed and does not say so (`packed`).
//!
//! Each request has a connection of its own, so that no call sees the state that another has left on one.

mod address;
mod body;
mod call;
mod exchange;
mod network;
mod packed;
mod path;
mod redact_body;
mod redirect;
mod response;
mod rules;
mod secrets;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use call::{BODY_CHUNK, CallEgress, Egress, MAX_REQUEST_HEADERS};
pub(crate) use network::Transport;
pub use network::{HostNetwork, Network};
pub(crate) use secrets::BoundSecrets;
pub use secrets::InvalidBinding;

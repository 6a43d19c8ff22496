//! HTTP egress of guests.
//!
//! A guest uses standard `wasi:http`, through any client of its language. Every request is handled by `CallEgress`, in
//! this order:
//!
//! 1. The request is unambiguous: its URL in canonical form (`target`), no user name, a single host, no headers that
//!    change the framing, at most 8 KiB of URL and 32 KiB of headers.
//! 2. A grant allows method, scheme, host, port and path (`rules`); otherwise no name is resolved.
//! 3. It is not the sixth redirect in a row and not a redirect from `https` to `http` (`redirect`).
//! 4. Secrets bound to its origin, method and path are added (`secrets`).
//! 5. The name is resolved once; addresses that are not public are removed unless the grant says `private` (`address`),
//!    and one of the others is connected to (`exchange`). Proxies from the environment are not used.
//! 6. TLS verifies the certificate for the name in the URL; this cannot be disabled (`network`).
//! 7. The response is limited in headers, bytes and idle time (`body`); a redirect is rewritten to one canonical form,
//!    content restricted by secret bindings is withheld (`response`), and echoed secrets are redacted (`response::redact_body`),
//!    also in undeclared compression (`response::packed`).
//!
//! Each request has its own connection, so that no call sees connection state of another.

pub(crate) mod address;
mod body;
mod call;
mod exchange;
mod network;
mod path;
mod redirect;
mod response;
mod rules;
mod secrets;
mod shared;
pub(crate) mod target;
#[cfg(test)]
mod tests;

pub(crate) use body::{BODY_CHUNK, add_error_code_to_linker};
pub(crate) use call::{CallEgress, MAX_REQUEST_HEADERS};
pub(crate) use network::Transport;
pub use network::{HostNetwork, Network};
pub(crate) use secrets::BoundSecrets;
pub use secrets::InvalidBinding;
pub(crate) use shared::Egress;

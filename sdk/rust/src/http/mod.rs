//! HTTP requests, within the grants of the tool (`wasi:http` 0.2).
//!
//! ```
//! use serde::Deserialize;
//! use toolcell_sdk::http::{self, Request};
//! use toolcell_sdk::{Result, tool};
//!
//! #[derive(Deserialize)]
//! struct Release {
//!     tag_name: String,
//! }
//!
//! /// Name the latest release of a repository.
//! #[tool(read_only, open_world)]
//! fn latest_release(
//!     /// Owner and name, such as `bytecodealliance/wasmtime`.
//!     repository: String,
//! ) -> Result<String> {
//!     let url = format!("https://api.github.com/repos/{repository}/releases/latest");
//!     let release: Release = Request::get(url).send()?.ok()?.json()?;
//!     Ok(release.tag_name)
//! }
//!
//! // In tests, the responses come from a function.
//! http::testing::respond(|request| {
//!     assert_eq!(request.url(), "https://api.github.com/repos/a/b/releases/latest");
//!     Ok(http::testing::response(200, r#"{"tag_name": "v48"}"#))
//! });
//! assert_eq!(latest_release("a/b".into()).unwrap(), "v48");
//! ```
//!
//! A request is sent if the policy grants it (`http=api.github.com`). Secrets are not needed here: the user binds them to a
//! host, and they are added outside of the tool. Redirects are not followed, and a compressed body is not unpacked; none is
//! asked for.

#[cfg(target_family = "wasm")]
mod component;
mod request;
mod response;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

#[cfg(target_family = "wasm")]
use component as backend;
#[cfg(not(target_family = "wasm"))]
use testing as backend;

pub use request::Request;
pub use response::Response;

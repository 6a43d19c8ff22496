//! The tools `fetch`, which reads a web page as Markdown of its main content, and `fetch_send`, which sends any request.

mod charset;
mod coding;
mod fetch;
mod html;
mod indent;
mod page;
mod redirect;
mod response;
mod send;
#[cfg(target_family = "wasm")]
mod wire;

toolcell_sdk::export!(fetch::fetch, send::fetch_send);

/// Replacement without WASI, which has no network: tests provide their own responses.
#[cfg(not(target_family = "wasm"))]
mod wire {
    use toolcell_sdk::{Result, ToolError};
    use url::Url;

    use crate::response::Response;
    use crate::send::Request;

    pub(crate) const USER_AGENT: &str = "toolcell-fetch";

    pub(crate) fn get(url: &Url, _: usize) -> Result<Response> {
        Err(ToolError::unavailable(format_args!(
            "`{url}`: no network outside a cell"
        )))
    }

    pub(crate) fn send(request: &Request, max_body: usize) -> Result<Response> {
        get(&request.url, max_body)
    }
}

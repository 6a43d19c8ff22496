//! The `fetch` tool: reads a web page as Markdown of its main content.

mod charset;
mod coding;
mod fetch;
mod html;
mod indent;
mod page;
mod redirect;
mod response;
#[cfg(target_family = "wasm")]
mod wire;

toolcell_sdk::export!(fetch::fetch);

/// Replacement without WASI, which has no network: tests provide their own responses.
#[cfg(not(target_family = "wasm"))]
mod wire {
    use toolcell_sdk::{Result, ToolError};
    use url::Url;

    use crate::response::Response;

    pub(crate) fn get(url: &Url, _: usize) -> Result<Response> {
        Err(ToolError::unavailable(format_args!(
            "`{url}`: no network outside a cell"
        )))
    }
}

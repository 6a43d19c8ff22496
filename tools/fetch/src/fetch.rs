//! The tool `fetch`.

use toolcell_sdk::{Output, Result, tool};

use crate::page::{Content, Range};
use crate::{coding, page, redirect, wire};

/// Maximum size of a body, in bytes, both received and decompressed.
const MAX_BODY: usize = 8 << 20;

/// Read a web page or another text on the web. A page comes as the Markdown of its main content, JSON indented, a PDF
/// file as its text, a picture as one.
///
/// Long texts come in parts: the answer says how to go on.
#[tool(title = "Read a web page", read_only, idempotent, open_world)]
pub(crate) fn fetch(
    /// Address, such as `https://example.com/page`.
    #[alias("uri", "link", "address")]
    url: String,
    /// Part of the page to read: its main content (`article`), everything on it with menus and links (`page`), or the text as
    /// the server sent it (`raw`).
    #[default(Content::Article)]
    content: Content,
    /// The character to start at, for the next part of a long text.
    #[default(0)]
    #[alias("offset", "start_index")]
    start: u32,
    /// The most characters to read.
    #[default(20_000)]
    #[alias("limit", "max_length")]
    max_chars: u32,
) -> Result<Output> {
    let url = redirect::parse_url(&url)?;
    let (url, mut response) = redirect::follow(url, &mut |url| wire::get(url, MAX_BODY))?;
    coding::unpack(&mut response, MAX_BODY)?;
    let range = Range {
        start: start as usize,
        len: (max_chars as usize).max(1),
    };
    page::read(&url, &response, content, &range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::json;
    use toolcell_sdk::testing;

    #[test]
    fn only_the_address_is_required() {
        let schema = testing::definition::<fetch>().input_schema;
        assert_eq!(schema["required"], json!(["url"]));
        assert_eq!(
            schema["properties"]["content"]["enum"],
            json!(["article", "page", "raw"])
        );
    }

    #[test]
    fn invalid_url_is_refused_before_any_request() {
        let error = testing::call::<fetch>(json!({"url": "file:///etc/passwd"})).unwrap_err();
        assert!(
            error.message().contains("only http and https are supported"),
            "{error}"
        );
    }
}

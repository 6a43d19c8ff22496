//! Markdown of answers as trees of known elements.
//!
//! No HTML is written or passed on: [`render`] returns elements of a fixed set ([`Tag`]) whose attributes are fixed too, and the
//! page creates each of them with the DOM. Text that looks like HTML stays text. So there is nothing to sanitise afterwards,
//! no second parser has to agree with the first one, and the page can forbid HTML from strings altogether (Trusted Types).
//!
//! Links lead to `http`, `https` and `mailto` only and state their host. Images are never elements: their description is shown
//! as a link, so that nothing is fetched before the user clicks. Characters that hide or reorder text are elements that name
//! them. Mathematics stays text. Code has its language and is divided into tokens ([`highlight`]).
//!
//! A text that grows is rendered from the start of the last block but one: all blocks before it are final. The last line may
//! be incomplete, so that it can still become a part of the block above it, such as a row of a table.

mod builder;
#[cfg(test)]
mod corpus;
mod highlight;
mod inert;
mod link;
mod tree;

use serde::{Deserialize, Serialize};

pub(crate) use self::builder::render;
pub(crate) use self::tree::Block;
#[cfg(test)]
pub(crate) use self::tree::Tag;

/// Maximum size of a request and of a text in it, in bytes. An answer of a model is at most a few hundred kilobytes; the
/// time to render is proportional to the size.
pub(crate) const MAX_MARKDOWN_BYTES: usize = 1 << 20;

/// Maximum number of texts in a request. The page asks for the messages that are visible.
pub(crate) const MAX_MARKDOWN_TEXTS: usize = 64;

/// A request that cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MarkdownError {
    /// The body is larger than [`MAX_MARKDOWN_BYTES`].
    #[error("the request has {size} bytes, more than the limit of {MAX_MARKDOWN_BYTES}")]
    TooLarge {
        /// Size of the body, in bytes.
        size: usize,
    },
    /// There are more texts than [`MAX_MARKDOWN_TEXTS`].
    #[error("the request has {count} texts, more than the limit of {MAX_MARKDOWN_TEXTS}")]
    TooMany {
        /// Number of texts.
        count: usize,
    },
    /// The body is not the JSON of a request.
    #[error("the body is not `{{\"texts\": [\"…\"]}}`: {reason}")]
    Invalid {
        /// Reason of the parser.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    texts: Vec<String>,
}

#[derive(Serialize)]
struct Response {
    rendered: Vec<Vec<Block>>,
}

/// Answers a request of the page: `{"texts": ["…"]}` becomes `{"rendered": [[[START, NODE], …]]}`, with the blocks of each text.
///
/// # Errors
/// If the body is too large, has too many texts, or is not such a request.
pub(crate) fn respond(body: &[u8]) -> Result<Vec<u8>, MarkdownError> {
    if body.len() > MAX_MARKDOWN_BYTES {
        return Err(MarkdownError::TooLarge { size: body.len() });
    }
    let request: Request = crate::body::parse(body).map_err(|failure| MarkdownError::Invalid {
        reason: failure.message,
    })?;
    if request.texts.len() > MAX_MARKDOWN_TEXTS {
        return Err(MarkdownError::TooMany {
            count: request.texts.len(),
        });
    }
    let rendered = request.texts.iter().map(|text| render(text)).collect();
    serde_json::to_vec(&Response { rendered }).map_err(|error| MarkdownError::Invalid {
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(texts: usize, bytes: usize) -> Vec<u8> {
        let mut body = serde_json::to_vec(&serde_json::json!({ "texts": vec![""; texts] })).unwrap();
        body.resize(bytes.max(body.len()), b' ');
        body
    }

    #[test]
    fn request_at_the_limits_is_rendered_and_beyond_is_not() {
        assert!(respond(&request(MAX_MARKDOWN_TEXTS, 0)).is_ok());
        let count = MAX_MARKDOWN_TEXTS + 1;
        assert_eq!(respond(&request(count, 0)), Err(MarkdownError::TooMany { count }));
        assert!(respond(&request(1, MAX_MARKDOWN_BYTES)).is_ok());
        let size = MAX_MARKDOWN_BYTES + 1;
        assert_eq!(respond(&request(1, size)), Err(MarkdownError::TooLarge { size }));
    }

    #[test]
    fn malformed_request_is_an_error() {
        for body in [
            "",
            "[]",
            "{}",
            "{\"texts\":[1]}",
            "{\"texts\":[],\"html\":true}",
            "\u{0}",
        ] {
            let answer = respond(body.as_bytes());
            assert!(matches!(answer, Err(MarkdownError::Invalid { .. })), "{body}");
        }
    }

    #[test]
    fn blocks_of_each_text_are_returned() {
        let answer = respond(br#"{"texts":["a\n\nb","*c*"]}"#).unwrap();
        assert_eq!(
            String::from_utf8(answer).unwrap(),
            r#"{"rendered":[[[0,["p","a"]],[3,["p","b"]]],[[0,["p",["em","c"]]]]]}"#
        );
    }
}

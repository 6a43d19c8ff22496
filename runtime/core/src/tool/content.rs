//! Content of tool results and messages.

use serde::{Deserialize, Serialize};

/// One part of a tool's result, in the order in which the model reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Plain text or Markdown.
    Text {
        /// The text itself.
        text: String,
    },
    /// Bytes with a media type, such as a picture.
    Blob(Blob),
    /// Reference to a resource.
    Link(Link),
}

/// Bytes with a media type. In JSON the bytes are base64 (RFC 4648, standard alphabet, padded).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// Media type (RFC 6838), such as `image/png`.
    pub media_type: String,
    /// Raw bytes.
    #[serde(with = "crate::json::base64")]
    pub data: Vec<u8>,
}

/// Reference to a resource that is not included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// URI of the resource.
    pub uri: String,
    /// Name of the resource, for display.
    pub name: String,
    /// Media type, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

impl Content {
    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Returns the number of bytes that this part adds to a conversation, before any encoding.
    pub fn byte_len(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::Blob(blob) => blob.media_type.len() + blob.data.len(),
            Self::Link(link) => {
                link.uri.len() + link.name.len() + link.media_type.as_ref().map_or(0, String::len)
            }
        }
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({}, {} bytes)", self.media_type, self.data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(media_type: &str, data: &[u8]) -> Content {
        Content::Blob(Blob {
            media_type: media_type.into(),
            data: data.into(),
        })
    }

    fn link(media_type: Option<&str>) -> Content {
        Content::Link(Link {
            uri: "file:///a".into(),
            name: "ab".into(),
            media_type: media_type.map(str::to_owned),
        })
    }

    #[test]
    fn length_counts_every_text_and_byte_of_a_part() {
        for (content, bytes) in [
            (Content::text("four"), 4),
            (Content::text(""), 0),
            (blob("image/png", &[0; 5]), 9 + 5),
            (link(None), 9 + 2),
            (link(Some("text/plain")), 9 + 2 + 10),
        ] {
            assert_eq!(content.byte_len(), bytes, "{content:?}");
        }
    }

    #[test]
    fn bytes_are_padded_base64_in_json() {
        let content = blob("image/png", &[255, 0, 1, 2]);
        let json = serde_json::to_string(&content).unwrap();
        assert!(json.contains(r#""data":"/wABAg==""#), "{json}");
        assert_eq!(serde_json::from_str::<Content>(&json).unwrap(), content);
        for bad in ["/wABAg", "_wABAg==", "*"] {
            let json = json.replace("/wABAg==", bad);
            assert!(serde_json::from_str::<Content>(&json).is_err(), "{bad}");
        }
    }
}

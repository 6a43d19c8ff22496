//! What a wire cannot carry is said in text; nothing is dropped silently.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolcell_core::{Blob, Link};

/// A link in words.
pub(crate) fn link(link: &Link) -> String {
    match &link.media_type {
        Some(media_type) => format!("[{}: {} ({media_type})]", link.name, link.uri),
        None => format!("[{}: {}]", link.name, link.uri),
    }
}

/// Bytes that cannot be sent, in words.
pub(crate) fn blob(blob: &Blob) -> String {
    format!(
        "[{} of {} bytes, which cannot be shown to this model]",
        blob.media_type,
        blob.data.len()
    )
}

/// Bytes as base64 (RFC 4648, section 4).
pub(crate) fn base64(data: &[u8]) -> String {
    STANDARD.encode(data)
}

/// Bytes as a `data:` URL (RFC 2397).
pub(crate) fn data_url(blob: &Blob) -> String {
    format!("data:{};base64,{}", blob.media_type, base64(&blob.data))
}

/// Whether models that see at all see this type of picture.
pub(crate) fn is_picture(media_type: &str) -> bool {
    matches!(
        media_type,
        "image/png" | "image/jpeg" | "image/gif" | "image/webp"
    )
}

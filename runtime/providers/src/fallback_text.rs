//! Text in place of content that a provider's protocol cannot carry, so that nothing is dropped silently.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolcell_core::{Blob, Link};

/// Text for a link.
pub(crate) fn link(link: &Link) -> String {
    match &link.media_type {
        Some(media_type) => format!("[{}: {} ({media_type})]", link.name, link.uri),
        None => format!("[{}: {}]", link.name, link.uri),
    }
}

/// Text for bytes that cannot be sent.
pub(crate) fn blob(blob: &Blob) -> String {
    format!(
        "[{} of {} bytes, not supported by this model]",
        blob.media_type,
        blob.data.len()
    )
}

/// Text for a file that a model made, for protocols that do not take it back.
pub(crate) fn made(blob: &Blob) -> String {
    format!(
        "[{} of {} bytes, made by the model]",
        blob.media_type,
        blob.data.len()
    )
}

/// Note in place of a picture for a model that takes none.
pub(crate) fn left_out(blob: &Blob) -> String {
    format!(
        "[{} of {} bytes, left out: this model takes no pictures]",
        blob.media_type,
        blob.data.len()
    )
}

/// Encodes bytes as base64 (RFC 4648, section 4).
pub(crate) fn base64(data: &[u8]) -> String {
    STANDARD.encode(data)
}

/// Encodes bytes as a `data:` URL (RFC 2397).
pub(crate) fn data_url(blob: &Blob) -> String {
    format!("data:{};base64,{}", blob.media_type, base64(&blob.data))
}

/// True for picture types that all vision models support.
pub(crate) fn is_picture(media_type: &str) -> bool {
    matches!(
        media_type,
        "image/png" | "image/jpeg" | "image/gif" | "image/webp"
    )
}

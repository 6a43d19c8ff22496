//! Header of a component, and the sections behind it: which file is no component, and which is not complete.

use crate::error::LoadError;

/// Distinguishes a component from files commonly mistaken for one, and a complete component from a truncated one.
///
/// # Errors
/// Returns the kind of the file, or [`LoadError::Truncated`].
pub(super) fn check(bytes: &[u8]) -> Result<(), LoadError> {
    check_magic(bytes)?;
    if is_cut_short(bytes) {
        return Err(LoadError::Truncated);
    }
    Ok(())
}

fn check_magic(bytes: &[u8]) -> Result<(), LoadError> {
    const MAGIC: &[u8] = b"\0asm";
    match bytes {
        [] => Err(LoadError::NotWasm),
        _ if bytes.len() < 8 && MAGIC.starts_with(&bytes[..bytes.len().min(4)]) => Err(LoadError::Truncated),
        [0, b'a', b's', b'm', _, _, 1, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', _, _, 0, 0, ..] => Err(LoadError::CoreModule),
        [0, b'a', b's', b'm', ..] => Err(LoadError::Malformed {
            reason: "unknown version in the header".into(),
        }),
        _ if looks_like_text(bytes) => Err(LoadError::Text),
        _ => Err(LoadError::NotWasm),
    }
}

/// Detects WebAssembly text: a parenthesis or a comment after white space.
fn looks_like_text(bytes: &[u8]) -> bool {
    let start = bytes.trim_ascii_start();
    start.starts_with(b"(component")
        || start.starts_with(b"(module")
        || start.starts_with(b";;")
        || start.starts_with(b"(;")
}

/// Returns `true` if the last top-level section declares more bytes than there are.
fn is_cut_short(bytes: &[u8]) -> bool {
    let mut rest = &bytes[8..];
    while let Some((_, after_id)) = rest.split_first() {
        let Some((size, body)) = leb128(after_id) else {
            return after_id.len() < 5;
        };
        let Some(next) = body.get(size as usize..) else {
            return true;
        };
        rest = next;
    }
    false
}

/// Decodes an unsigned 32-bit LEB128 number and returns the remaining bytes.
fn leb128(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0u32;
    for (i, byte) in bytes.iter().take(5).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[i + 1..]));
        }
    }
    None
}

//! Detection of binary file types by their first bytes.

/// Media type, and true if models accept it as a picture.
pub(crate) fn sniff(start: &[u8]) -> (&'static str, bool) {
    const KNOWN: &[(&[u8], &str, bool)] = &[
        (b"\x89PNG\r\n\x1a\n", "image/png", true),
        (b"\xff\xd8\xff", "image/jpeg", true),
        (b"GIF8", "image/gif", true),
        (b"BM", "image/bmp", false),
        (b"%PDF-", "application/pdf", false),
        (b"PK\x03\x04", "application/zip", false),
        (b"\x1f\x8b", "application/gzip", false),
        (b"BZh", "application/x-bzip2", false),
        (b"\xfd7zXZ\0", "application/x-xz", false),
        (b"\x28\xb5\x2f\xfd", "application/zstd", false),
        (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed", false),
        (b"\0asm", "application/wasm", false),
        (b"\x7fELF", "application/x-elf", false),
        (b"MZ", "application/vnd.microsoft.portable-executable", false),
        (b"SQLite format 3\0", "application/vnd.sqlite3", false),
        (b"OggS", "audio/ogg", false),
        (b"ID3", "audio/mpeg", false),
        (b"fLaC", "audio/flac", false),
    ];
    if start.starts_with(b"RIFF") {
        return match start.get(8..12) {
            Some(b"WEBP") => ("image/webp", true),
            Some(b"WAVE") => ("audio/wav", false),
            _ => ("application/octet-stream", false),
        };
    }
    if start.get(4..8) == Some(b"ftyp") {
        return ("video/mp4", false);
    }
    KNOWN
        .iter()
        .find(|(magic, ..)| start.starts_with(magic))
        .map_or(("application/octet-stream", false), |(_, media_type, picture)| {
            (media_type, *picture)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_detected_by_their_first_bytes() {
        assert_eq!(sniff(b"\x89PNG\r\n\x1a\n\0"), ("image/png", true));
        assert_eq!(sniff(b"RIFF\0\0\0\0WEBPVP8 "), ("image/webp", true));
        assert_eq!(sniff(b"\0asm\x0d\0\x01\0"), ("application/wasm", false));
        assert_eq!(sniff(b"\0\0"), ("application/octet-stream", false));
    }
}

//! Media types of files, by their first bytes and by their names.

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

/// Media type by the ending of a name; `None` if it is unknown.
pub(crate) fn of_name(name: &str) -> Option<&'static str> {
    const KNOWN: &[(&[&str], &str)] = &[
        (&["txt", "log", "text"], "text/plain"),
        (&["md", "markdown"], "text/markdown"),
        (&["html", "htm"], "text/html"),
        (&["css"], "text/css"),
        (&["csv"], "text/csv"),
        (&["tsv"], "text/tab-separated-values"),
        (&["js", "mjs"], "text/javascript"),
        (&["json"], "application/json"),
        (&["xml"], "application/xml"),
        (&["yaml", "yml"], "application/yaml"),
        (&["toml"], "application/toml"),
        (&["svg"], "image/svg+xml"),
        (&["png"], "image/png"),
        (&["jpg", "jpeg"], "image/jpeg"),
        (&["gif"], "image/gif"),
        (&["webp"], "image/webp"),
        (&["pdf"], "application/pdf"),
        (&["zip"], "application/zip"),
        (&["gz"], "application/gzip"),
        (&["wasm"], "application/wasm"),
        (&["mp3"], "audio/mpeg"),
        (&["wav"], "audio/wav"),
        (&["ogg"], "audio/ogg"),
        (&["mp4"], "video/mp4"),
        (
            &[
                "rs", "py", "ts", "tsx", "jsx", "go", "c", "h", "cpp", "hpp", "java", "rb", "sh", "zig",
                "sql", "ini", "cfg", "wit", "wat",
            ],
            "text/plain",
        ),
    ];
    let name = name.rsplit('/').next().unwrap_or(name);
    let (_, ending) = name.rsplit_once('.')?;
    let ending = ending.to_ascii_lowercase();
    let mut all = KNOWN.iter();
    all.find(|(endings, _)| endings.contains(&ending.as_str()))
        .map(|(_, media_type)| *media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_media_type() {
        assert_eq!(of_name("/a.b/README.MD"), Some("text/markdown"));
        assert_eq!(of_name("a.tar.gz"), Some("application/gzip"));
        for unknown in ["/a.md/b", "Makefile", "x.", "x.unknown"] {
            assert_eq!(of_name(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn pictures_are_detected_by_their_first_bytes() {
        assert_eq!(sniff(b"\x89PNG\r\n\x1a\n\0"), ("image/png", true));
        assert_eq!(sniff(b"RIFF\0\0\0\0WEBPVP8 "), ("image/webp", true));
        assert_eq!(sniff(b"\0asm\x0d\0\x01\0"), ("application/wasm", false));
        assert_eq!(sniff(b"\0\0"), ("application/octet-stream", false));
    }
}

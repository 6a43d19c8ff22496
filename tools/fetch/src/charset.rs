//! Decoding of pages by the rules of browsers.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Number of bytes of a page that are searched for a charset declaration (HTML standard, 13.2.3.2).
const MAX_PRESCAN: usize = 1024;

/// Decodes by byte order mark, then by the header, then by the declaration in the page, then as UTF-8, otherwise as
/// Windows-1252.
pub(crate) fn decode(bytes: &[u8], header: Option<&str>) -> String {
    let named = header
        .and_then(|label| Encoding::for_label(label.as_bytes()))
        .or_else(|| declared(&bytes[..bytes.len().min(MAX_PRESCAN)]));
    let encoding = named.unwrap_or_else(|| if is_utf8(bytes) { UTF_8 } else { WINDOWS_1252 });
    // `decode` gives a byte order mark precedence.
    encoding.decode(bytes).0.into_owned()
}

/// True if bytes are UTF-8, except for an incomplete last character.
fn is_utf8(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}

/// Charset in `<meta charset=...>`, `<meta ... content="...; charset=...">` or `<?xml encoding="..."?>`.
fn declared(start: &[u8]) -> Option<&'static Encoding> {
    let start = start.to_ascii_lowercase();
    let text = String::from_utf8_lossy(&start);
    let at = match text.starts_with("<?xml") {
        true => text.find("encoding").map(|at| at + "encoding".len()),
        false => text
            .find("<meta")
            .and_then(|meta| text[meta..].find("charset").map(|at| meta + at + "charset".len())),
    }?;
    let label = text[at..]
        .trim_start()
        .strip_prefix('=')?
        .trim_start()
        .trim_start_matches(['"', '\'']);
    let end = label
        .find(['"', '\'', ';', '>', ' ', '/', '?'])
        .unwrap_or(label.len());
    let encoding = Encoding::for_label(&label.as_bytes()[..end])?;
    // A page in UTF-16 could not have been parsed this far (HTML standard).
    Some(if encoding.is_ascii_compatible() {
        encoding
    } else {
        UTF_8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charset_comes_from_mark_header_page_or_guess() {
        assert_eq!(decode(b"\xef\xbb\xbf\xc3\xa4", Some("iso-8859-1")), "\u{e4}");
        assert_eq!(decode(b"\xe4", Some("iso-8859-1")), "\u{e4}");
        assert_eq!(
            decode(b"<meta charset=\"windows-1251\">\xe4", None),
            "<meta charset=\"windows-1251\">\u{434}"
        );
        let http_equiv =
            b"<html><META http-equiv=content-type content='text/html; charset=Shift_JIS'>\x82\xa0";
        assert!(decode(http_equiv, None).ends_with('\u{3042}'));
        assert!(decode(b"<?xml version='1.0' encoding='iso-8859-2'?>\xb1", None).ends_with('\u{105}'));
        assert_eq!(decode(b"\xc3\xa4", None), "\u{e4}");
        assert_eq!(decode(b"\xe4\x80 ", None), "\u{e4}\u{20ac} ");
        assert_eq!(decode(b"a\xc3", None), "a\u{fffd}");
        assert_eq!(decode(b"\xc3\xa4", Some("no-such-charset")), "\u{e4}");
    }
}

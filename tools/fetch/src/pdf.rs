//! Text of PDF files.

use toolcell_sdk::{Result, ToolError, show};

/// Maximum size of a message of the library, in bytes.
const MAX_MESSAGE: usize = 200;

/// True for a PDF file, by its declared type or its first bytes.
pub(crate) fn is_pdf(media_type: &str, body: &[u8]) -> bool {
    matches!(media_type, "application/pdf" | "application/x-pdf")
        || (media_type == "application/octet-stream" && body.starts_with(b"%PDF-"))
}

/// Extracts the text of each page.
///
/// # Errors
/// Fails if the file is damaged or encrypted. The library panics for much that it does not support, which ends the call; the
/// last words of the call then are those of the hook that is set here.
pub(crate) fn pages(body: &[u8]) -> Result<Vec<String>> {
    #[cfg(target_family = "wasm")]
    std::panic::set_hook(Box::new(|info| {
        use std::io::Write as _;
        let why = info.payload_as_str().unwrap_or("it has parts of an unknown form");
        let why = show::value(show::cut(why, MAX_MESSAGE).as_ref());
        let _ = writeln!(
            std::io::stderr(),
            "the text of this PDF file cannot be extracted: {why}"
        );
    }));
    pdf_extract::extract_text_from_mem_by_pages(body).map_err(|error| {
        let why = error.to_string();
        let why = show::value(show::cut(&why, MAX_MESSAGE).as_ref());
        ToolError::failed(format_args!(
            "the text of this PDF file cannot be extracted: {why}"
        ))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// PDF file with a line of text on each page.
    pub(crate) fn file(lines: &[&str]) -> Vec<u8> {
        let kids: Vec<String> = (0..lines.len()).map(|i| format!("{} 0 R", 4 + 2 * i)).collect();
        let mut objects = vec![
            "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
            format!(
                "<< /Type /Pages /Count {} /Kids [{}] >>",
                lines.len(),
                kids.join(" ")
            ),
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
        ];
        for (i, line) in lines.iter().enumerate() {
            objects.push(format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {} 0 R /Resources << /Font << /F 3 0 R >> >> >>",
                5 + 2 * i
            ));
            let stream = format!("BT /F 12 Tf 50 700 Td ({line}) Tj ET");
            objects.push(format!(
                "<< /Length {} >>\nstream\n{stream}\nendstream",
                stream.len()
            ));
        }
        let mut text = "%PDF-1.4\n".to_owned();
        let mut places = Vec::new();
        for (i, object) in objects.iter().enumerate() {
            places.push(text.len());
            text += &format!("{} 0 obj\n{object}\nendobj\n", i + 1);
        }
        let table = text.len();
        text += &format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
        for place in places {
            text += &format!("{place:010} 00000 n \n");
        }
        text += &format!(
            "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n",
            objects.len() + 1
        );
        text.into_bytes()
    }

    #[test]
    fn text_of_each_page_is_extracted() {
        let pages = pages(&file(&["First page", "Second page"])).unwrap();
        let trimmed: Vec<&str> = pages.iter().map(|page| page.trim()).collect();
        assert_eq!(trimmed, ["First page", "Second page"]);
    }

    #[test]
    fn damaged_file_is_a_clear_error() {
        for bytes in [&b"%PDF-1.4\n"[..], b"", b"%PDF-1.4\n1 0 obj\n<<"] {
            let error = pages(bytes).unwrap_err();
            assert!(
                error
                    .message()
                    .starts_with("the text of this PDF file cannot be extracted: "),
                "{error}"
            );
        }
    }

    #[test]
    fn pdf_is_known_by_type_or_first_bytes() {
        assert!(is_pdf("application/pdf", b""));
        assert!(is_pdf("application/octet-stream", b"%PDF-1.7"));
        assert!(!is_pdf("application/octet-stream", b"PK"));
        assert!(!is_pdf("text/plain", b"%PDF-1.7"));
    }
}

//! Text of PDF files.

mod prepare;

use pdf_extract::{Document, PlainTextOutput, output_doc_page};
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
    let mut document = Document::load_mem(body).map_err(|error| failed(&error.to_string()))?;
    if document.is_encrypted() {
        let decrypted = document.decrypt("");
        decrypted.map_err(|_| failed("it is encrypted with a password"))?;
    }
    prepare::prepare(&mut document);
    let numbers: Vec<u32> = document.get_pages().into_keys().collect();
    if numbers.is_empty() {
        return Err(failed("no page of it can be found; it may be damaged"));
    }
    let texts = numbers.into_iter().map(|number| {
        let mut text = String::new();
        let extracted = output_doc_page(&document, &mut PlainTextOutput::new(&mut text), number);
        extracted.map_err(|error| failed(&format!("page {number}: {error}")))?;
        Ok(text)
    });
    texts.collect()
}

/// Creates the error of a file whose text cannot be extracted.
fn failed(why: &str) -> ToolError {
    let why = show::value(show::cut(why, MAX_MESSAGE).as_ref());
    ToolError::failed(format_args!(
        "the text of this PDF file cannot be extracted: {why}"
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// PDF file with a line of text on each page.
    pub(crate) fn file(lines: &[&str]) -> Vec<u8> {
        with_font(
            lines,
            "/Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding",
        )
    }

    /// PDF file with a line of text on each page, in a font.
    fn with_font(lines: &[&str], font: &str) -> Vec<u8> {
        let kids: Vec<String> = (0..lines.len()).map(|i| format!("{} 0 R", 4 + 2 * i)).collect();
        let mut objects = vec![
            "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
            format!(
                "<< /Type /Pages /Count {} /Kids [{}] >>",
                lines.len(),
                kids.join(" ")
            ),
            format!("<< /Type /Font {font} >>"),
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
        laid_out(&objects)
    }

    /// File with these objects, the first of which is the catalog.
    fn laid_out(objects: &[String]) -> Vec<u8> {
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

    /// Text of a file with one page, in which `from` is written as `to`.
    fn text_with(from: &str, to: &str) -> String {
        let file = String::from_utf8(file(&["First page"])).unwrap();
        assert!(file.contains(from), "{from}");
        let objects: Vec<String> = (file.replace(from, to).split(" obj\n").skip(1))
            .map(|object| {
                let object = object.split_once("\nendobj").unwrap().0;
                let Some((_, stream)) = object.split_once("stream\n") else {
                    return object.to_owned();
                };
                let length = stream.strip_suffix("\nendstream").unwrap().len();
                format!("<< /Length {length} >>\nstream\n{stream}")
            })
            .collect();
        let pages = pages(&laid_out(&objects)).unwrap();
        let [page] = pages.as_slice() else {
            panic!("{pages:?}")
        };
        page.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn text_is_extracted_from_every_form() {
        for (from, to) in [
            ("(First page) Tj", "[(First) -250 (page)] TJ"),
            ("(First page) Tj", "14 TL (First page) '"),
            ("(First page) Tj", "14 TL 1 2 (First page) \""),
            ("(First page) Tj", "<46697273742070616765> Tj"),
            ("/MediaBox [0 0 600 800]", ""),
            (" /Encoding /WinAnsiEncoding", ""),
            ("/WinAnsiEncoding", "/MacRomanEncoding"),
            ("/WinAnsiEncoding", "/StandardEncoding"),
            (
                "/WinAnsiEncoding",
                "<< /BaseEncoding /StandardEncoding /Differences [65 /A] >>",
            ),
            (
                "/WinAnsiEncoding",
                "/WinAnsiEncoding /FirstChar 32 /LastChar 126 /Widths [500]",
            ),
            (
                "/WinAnsiEncoding",
                "/WinAnsiEncoding /FirstChar 32 /LastChar 126 /Widths []",
            ),
        ] {
            assert_eq!(text_with(from, to), "First page", "{to}");
        }
        // Operators that are no operators.
        assert_eq!(text_with("First page", "It's \" page"), "It's \" page");
    }

    #[test]
    fn file_without_pages_is_a_clear_error() {
        let catalog = [
            "<< /Type /Catalog /Pages 2 0 R >>",
            "<< /Type /Pages /Count 0 /Kids [] >>",
        ];
        let error = pages(&laid_out(&catalog.map(str::to_owned))).unwrap_err();
        assert!(error.message().contains("no page of it can be found"), "{error}");
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

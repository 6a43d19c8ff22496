//! Rewrites parts of a PDF file that are valid, or common, into forms that the library supports: it loses the text of some
//! operators, and panics for others.

use pdf_extract::content::{Content, Operation};
use pdf_extract::{Dictionary, Document, Object, ObjectId};

/// Encodings by name that the library knows. Without a name it takes that of the font, as PDF 32000-1, table 112 says of
/// `StandardEncoding`.
const ENCODINGS: [&[u8]; 3] = [b"MacRomanEncoding", b"MacExpertEncoding", b"WinAnsiEncoding"];

/// Kinds of fonts with single-byte encodings.
const SIMPLE_FONTS: [&[u8]; 4] = [b"Type1", b"MMType1", b"TrueType", b"Type3"];

/// Size of a page that says none: US Letter, in points, as viewers take it.
const PAGE: [i64; 4] = [0, 0, 612, 792];

/// Rewrites what the library does not support.
pub(super) fn prepare(document: &mut Document) {
    for object in document.objects.values_mut() {
        match object {
            Object::Dictionary(dictionary) => dictionaries(dictionary),
            Object::Stream(stream) => {
                dictionaries(&mut stream.dict);
                let is_form = name(&stream.dict, b"Subtype") == Some(b"Form");
                let rewritten = || rewritten(&stream.decompressed_content().ok()?);
                if let Some(content) = is_form.then(rewritten).flatten() {
                    stream.set_plain_content(content);
                }
            }
            _ => {}
        }
    }
    let pages: Vec<ObjectId> = document.get_pages().into_values().collect();
    for page in pages {
        let content = document.get_page_content(page).ok();
        if let Some(content) = content.and_then(|content| rewritten(&content)) {
            let _ = document.change_page_content(page, content);
        }
        if !has_media_box(document, page)
            && let Ok(Object::Dictionary(page)) = document.get_object_mut(page)
        {
            page.set("MediaBox", PAGE.map(Object::Integer).to_vec());
        }
    }
}

/// Rewrites a dictionary and those within it.
fn dictionaries(dictionary: &mut Dictionary) {
    if name(dictionary, b"Subtype").is_some_and(|kind| SIMPLE_FONTS.contains(&kind)) {
        font(dictionary);
    }
    if is_unknown_encoding(dictionary, b"BaseEncoding") {
        dictionary.remove(b"BaseEncoding");
    }
    for (_, value) in dictionary.iter_mut() {
        if let Object::Dictionary(inner) = value {
            dictionaries(inner);
        }
    }
}

fn font(font: &mut Dictionary) {
    if is_unknown_encoding(font, b"Encoding") {
        font.remove(b"Encoding");
    }
    let first = font.get(b"FirstChar").and_then(Object::as_i64);
    let widths = font.get(b"Widths").and_then(Object::as_array).map(Vec::len);
    if let (Ok(first), Ok(widths)) = (first, widths) {
        let last = i64::try_from(widths)
            .ok()
            .and_then(|widths| first.checked_add(widths - 1));
        match last {
            Some(last) => font.set("LastChar", last),
            None => drop(font.remove(b"Widths")),
        }
    }
}

fn is_unknown_encoding(dictionary: &Dictionary, key: &[u8]) -> bool {
    name(dictionary, key).is_some_and(|encoding| !ENCODINGS.contains(&encoding))
}

fn name<'a>(dictionary: &'a Dictionary, key: &[u8]) -> Option<&'a [u8]> {
    dictionary.get(key).and_then(Object::as_name).ok()
}

/// True if the page, or one of the nodes above it, says its size.
fn has_media_box(document: &Document, page: ObjectId) -> bool {
    let mut node = Some(page);
    // A tree of pages that is no tree has no end.
    for _ in 0..MAX_DEPTH {
        let Some(dictionary) = node.and_then(|id| document.get_dictionary(id).ok()) else {
            return false;
        };
        if dictionary.has(b"MediaBox") {
            return true;
        }
        node = dictionary.get(b"Parent").and_then(Object::as_reference).ok();
    }
    false
}

/// Maximum depth of the tree of pages.
const MAX_DEPTH: usize = 64;

/// Writes the operators `'` and `"`, which move to the next line and show a text, as those that they are made of (PDF 32000-1,
/// table 109); `None` if there are none.
fn rewritten(content: &[u8]) -> Option<Vec<u8>> {
    if !content.iter().any(|byte| matches!(byte, b'\'' | b'"')) {
        return None;
    }
    let operations = Content::decode(content).ok()?.operations;
    let is_one = |operation: &Operation| matches!(operation.operator.as_str(), "'" | "\"");
    if !operations.iter().any(is_one) {
        return None;
    }
    let mut written = Vec::with_capacity(operations.len());
    for mut operation in operations {
        if !is_one(&operation) {
            written.push(operation);
            continue;
        }
        let text = operation.operands.pop();
        let mut spaces = operation.operands.into_iter();
        for operator in ["Tw", "Tc"] {
            written.extend(spaces.next().map(|space| Operation::new(operator, vec![space])));
        }
        written.push(Operation::new("T*", Vec::new()));
        written.extend(text.map(|text| Operation::new("Tj", vec![text])));
    }
    Content { operations: written }.encode().ok()
}

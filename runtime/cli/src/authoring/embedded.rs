//! Files of the SDKs and of the contract, embedded by the build script. They are compressed: only commands for the authors of
//! tools read them.

use std::io::Read as _;
use std::sync::LazyLock;

use flate2::read::DeflateDecoder;

/// Paths from the root of the repository, sorted, each with the size of its content in bytes.
const PATHS: &[(&str, usize)] = include!(concat!(env!("OUT_DIR"), "/sdk.rs"));

/// The contents, one after the other and compressed (RFC 1951).
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sdk.deflate"));

static CONTENTS: LazyLock<String> = LazyLock::new(|| {
    let mut contents = String::new();
    let read = DeflateDecoder::new(PACKED).read_to_string(&mut contents);
    read.expect("it was compressed when this program was built");
    contents
});

/// Returns all files, by their paths.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut rest = CONTENTS.as_str();
    PATHS.iter().map(move |(path, size)| {
        let (content, others) = rest.split_at(*size);
        rest = others;
        (*path, content)
    })
}

/// Returns the files below a directory such as `sdk/python/template/`, by their paths below it.
pub(crate) fn below(dir: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    all().filter_map(move |(path, content)| Some((path.strip_prefix(dir)?, content)))
}

/// Returns the content of a file.
pub(crate) fn file(path: &str) -> &'static str {
    let found = all().find(|(name, _)| *name == path);
    found.map_or_else(|| unreachable!("`{path}` is embedded"), |(_, content)| content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_embedded_with_their_content() {
        assert!(file("wit/tools.wit").contains("interface tools"));
        assert!(below("sdk/rust/src/").any(|(path, _)| path == "lib.rs"));
        assert_eq!(below("sdk/rust/tests/").count(), 0);
        assert_eq!(below("wit/frozen/").count(), 0);
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        for (path, content) in all() {
            assert_eq!(
                std::fs::read_to_string(format!("{root}{path}")).unwrap(),
                content,
                "{path}"
            );
        }
    }
}

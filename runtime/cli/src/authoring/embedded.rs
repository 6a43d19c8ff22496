//! Files of the SDKs and of the contract, embedded by the build script.

/// Paths from the root of the repository, sorted, each with the content.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sdk.rs"));

/// Returns the files below a directory such as `sdk/python/template/`, by their paths below it.
pub(crate) fn below(dir: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES
        .iter()
        .filter_map(move |(path, content)| Some((path.strip_prefix(dir)?, *content)))
}

/// Returns the content of a file.
pub(crate) fn file(path: &str) -> &'static str {
    let found = FILES.iter().find(|(name, _)| *name == path);
    found.map_or_else(|| unreachable!("`{path}` is embedded"), |(_, content)| content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_and_rust_sdk_are_embedded() {
        assert!(file("wit/tools.wit").contains("interface tools"));
        assert!(below("sdk/rust/src/").any(|(path, _)| path == "lib.rs"));
        assert_eq!(below("sdk/rust/tests/").count(), 0);
        assert_eq!(below("wit/frozen/").count(), 0);
    }
}

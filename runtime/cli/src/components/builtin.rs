//! Built-in components, embedded in the binary.

use std::io::Read as _;

use flate2::read::DeflateDecoder;
use toolcell_sandbox::{Digest, TrustedComponent};

/// A component embedded in this binary.
#[derive(Debug)]
pub(crate) struct Shipped {
    /// Name of the component.
    pub(crate) name: &'static str,
    /// Its WebAssembly binary, compressed (RFC 1951): it is needed only to compile it.
    packed: &'static [u8],
    /// Size of the binary in bytes.
    size: u64,
    /// SHA-256 digest of the binary, if it was known when this program was built.
    digest: Option<[u8; 32]>,
}

impl TrustedComponent for Shipped {
    fn digest(&self) -> Digest {
        self.digest
            .map_or_else(|| Digest::of(&self.bytes()), Digest::from_bytes)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = DeflateDecoder::new(self.packed).read_to_end(&mut bytes);
        read.expect("it was compressed when this program was built");
        bytes
    }
}

/// All built-in components, sorted by name.
pub(crate) static ALL: &[Shipped] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// Names of the built-in tools, by component. They are reserved: no other component can use them.
pub(crate) const TOOLS: [(&str, &[&str]); 6] = [
    ("clock", &["clock_add", "clock_diff", "clock_now"]),
    ("fetch", &["fetch", "fetch_send"]),
    (
        "files",
        &[
            "files_copy",
            "files_delete",
            "files_edit",
            "files_list",
            "files_make_directory",
            "files_move",
            "files_read",
            "files_search",
            "files_write",
        ],
    ),
    ("json", &["json_query"]),
    (
        "memory",
        &[
            "memory_discover",
            "memory_link",
            "memory_recall",
            "memory_store",
            "memory_task",
            "memory_tasks",
        ],
    ),
    ("text", &["text_count", "text_diff", "text_hash"]),
];

/// Returns the built-in component that has a tool of this name.
pub(crate) fn component_with_tool(tool: &str) -> Option<&'static str> {
    let mut all = TOOLS.iter();
    all.find(|(_, tools)| tools.contains(&tool))
        .map(|(component, _)| *component)
}

/// True if a component with this name would be taken for a built-in one, or for one of its tools.
pub(crate) fn is_taken(name: &str) -> bool {
    let name = name.replace('-', "_");
    TOOLS.iter().any(|(component, _)| *component == name) || component_with_tool(&name).is_some()
}

/// Built-in components that are disabled unless the user's own configuration or command line names them: not every
/// conversation needs them, and their descriptions take up context in each.
pub(crate) const OFF_BY_DEFAULT: [&str; 1] = ["memory"];

/// Built-in components that were not built together with this binary.
pub(crate) static MISSING: &[&str] = include!(concat!(env!("OUT_DIR"), "/missing.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_the_manifest_are_those_of_the_components() {
        for shipped in ALL {
            let digest = shipped.digest.map(Digest::from_bytes);
            let bytes = shipped.bytes();
            assert_eq!(digest, Some(Digest::of(&bytes)), "{}", shipped.name);
            assert_eq!(shipped.size, bytes.len() as u64, "{}", shipped.name);
        }
    }
}

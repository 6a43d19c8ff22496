//! Built-in components, embedded in the binary.

use std::io::Read as _;

use flate2::read::DeflateDecoder;
use toolcell_core::Grant;
use toolcell_core::policy::DirAccess;
use toolcell_sandbox::{Digest, TrustedComponent};

use crate::config::ComponentSource;

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

/// Returns the grant without which a built-in tool can do nothing, if these do not allow it.
pub(crate) fn missing_grant<'a>(
    tool: &str,
    mut granted: impl Iterator<Item = &'a Grant>,
) -> Option<&'static str> {
    let (needed, is_enough): (&str, fn(DirAccess) -> bool) = match tool {
        "fetch" | "fetch_send" => {
            let is_granted = granted.any(|grant| matches!(grant, Grant::Http(_)));
            return (!is_granted).then_some("http=HOST");
        }
        "files_list" | "files_read" | "files_search" => ("read=DIR", |access| access.read),
        "files_edit" => ("write=DIR", |access| access.read && access.write),
        "files_write" => ("write=DIR", |access| access.write || access.create),
        "files_copy" => ("write=DIR", |access| access.read && access.create),
        "files_move" => ("write=DIR", |access| access.create && access.delete),
        "files_make_directory" => ("write=DIR", |access| access.create),
        "files_delete" => ("write=DIR", |access| access.delete),
        _ => return None,
    };
    let none = DirAccess {
        read: false,
        write: false,
        create: false,
        delete: false,
    };
    // A tool can use several directories in one call, each with rights of its own.
    let together = granted.fold(none, |sum, grant| match grant {
        Grant::Dir { access, .. } => DirAccess {
            read: sum.read || access.read,
            write: sum.write || access.write,
            create: sum.create || access.create,
            delete: sum.delete || access.delete,
        },
        _ => sum,
    });
    (!is_enough(together)).then_some(needed)
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

/// Returns the names of the tools of a built-in component, without loading it.
pub(crate) fn tools_of(source: &ComponentSource) -> Option<&'static [&'static str]> {
    let ComponentSource::Shipped(shipped) = source else {
        return None;
    };
    (TOOLS.iter()).find_map(|(name, tools)| (*name == shipped.name).then_some(*tools))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_that_a_tool_needs_is_known() {
        let missing = |tool: &str, grants: &[&str]| {
            let grants: Vec<Grant> = grants.iter().map(|grant| grant.parse().unwrap()).collect();
            missing_grant(tool, grants.iter())
        };
        let (read, write) = (Some("read=DIR"), Some("write=DIR"));
        for (tool, grants, expected) in [
            ("fetch", &["read=."][..], Some("http=HOST")),
            ("fetch_send", &["http=example.com"], None),
            ("files_list", &["create=."], read),
            ("files_search", &["read=."], None),
            ("files_edit", &["read=."], write),
            ("files_edit", &["modify=."], write),
            ("files_edit", &["read+modify=."], None),
            ("files_write", &["read+delete=."], write),
            ("files_write", &["create=."], None),
            ("files_write", &["modify=."], None),
            ("files_copy", &["create=."], write),
            ("files_copy", &["read=a", "create=b"], None),
            ("files_move", &["read+create=."], write),
            ("files_move", &["delete=a", "create=b"], None),
            ("files_make_directory", &["read+modify+delete=."], write),
            ("files_make_directory", &["create=."], None),
            ("files_delete", &["read+modify+create=."], write),
            ("files_delete", &["delete=.", "deny=private"], None),
            ("files_delete", &["write=."], None),
            ("text_count", &[], None),
        ] {
            assert_eq!(missing(tool, grants), expected, "{tool} {grants:?}");
        }
    }

    #[test]
    fn every_tool_of_files_and_fetch_needs_a_grant() {
        for (component, tools) in TOOLS {
            for tool in tools {
                let needs = missing_grant(tool, [].iter()).is_some();
                assert_eq!(needs, ["files", "fetch"].contains(&component), "{tool}");
            }
        }
    }

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

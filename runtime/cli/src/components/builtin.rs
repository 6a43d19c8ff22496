//! The components that ship with Toolcell. Their bytes are part of the binary.

/// A component in this binary.
#[derive(Debug)]
pub(crate) struct Shipped {
    /// Its name.
    pub(crate) name: &'static str,
    /// The component.
    pub(crate) bytes: &'static [u8],
}

/// All of them, by name.
pub(crate) static ALL: &[Shipped] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// The names of their tools, by component. They are taken: nothing else is found under them.
pub(crate) const TOOLS: [(&str, &[&str]); 6] = [
    ("clock", &["clock_add", "clock_diff", "clock_now"]),
    ("fetch", &["fetch"]),
    (
        "files",
        &[
            "files_edit",
            "files_list",
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

/// The shipped component that has a tool of this name.
pub(crate) fn component_with_tool(tool: &str) -> Option<&'static str> {
    let mut all = TOOLS.iter();
    all.find(|(_, tools)| tools.contains(&tool))
        .map(|(component, _)| *component)
}

/// The names of those that are offered only where the person's own configuration switches them on, or names them on the
/// command line: what they offer is not needed in every conversation and takes room in each.
pub(crate) const OFF_BY_DEFAULT: [&str; 1] = ["memory"];

/// The names of those that were not built when this binary was.
pub(crate) static MISSING: &[&str] = include!(concat!(env!("OUT_DIR"), "/missing.rs"));

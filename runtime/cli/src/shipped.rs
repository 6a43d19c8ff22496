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

/// The names of those that are offered only where the person's own configuration switches them on, or names them on the
/// command line: what they offer is not needed in every conversation and takes room in each.
pub(crate) const OFF_BY_DEFAULT: [&str; 1] = ["memory"];

/// The names of those that were not built when this binary was.
pub(crate) static MISSING: &[&str] = include!(concat!(env!("OUT_DIR"), "/missing.rs"));

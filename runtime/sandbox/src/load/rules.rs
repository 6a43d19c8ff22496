//! Version of the rules by which components are checked when they are loaded.

use toolcell_core::schema::RULES as SCHEMA_RULES;

/// Changes with each release, and with the source code of the checks: what passed other rules is checked again.
pub(crate) const RULES: u64 = toolcell_core::schema::version_of(&[
    &SCHEMA_RULES.to_le_bytes(),
    env!("CARGO_PKG_VERSION").as_bytes(),
    include_bytes!("adapt.rs"),
    include_bytes!("header.rs"),
    include_bytes!("imports.rs"),
    include_bytes!("preflight.rs"),
    include_bytes!("complexity.rs"),
    include_bytes!("definitions.rs"),
    include_bytes!("../hook/manifest.rs"),
    include_bytes!("../program/mod.rs"),
    include_bytes!("../typed/docs.rs"),
    include_bytes!("../typed/mod.rs"),
    include_bytes!("../typed/names.rs"),
    include_bytes!("../typed/schema.rs"),
    include_bytes!("../typed/wit_type.rs"),
    include_bytes!("../typed/words.rs"),
]);

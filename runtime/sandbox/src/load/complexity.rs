//! Limits of the complexity of a component.

use std::fmt;

/// Maximum number of core instances of one cell. Components of language runtimes have up to ten, compositions a few
/// dozen.
pub const MAX_CORE_INSTANCES: u32 = 64;

/// Maximum number of linear memories of one cell.
pub(crate) const MAX_MEMORIES: u32 = 64;

/// Maximum number of tables of one cell.
pub(crate) const MAX_TABLES: u32 = 64;

/// Maximum initial number of elements of a table; also the table size in the pool. The largest language runtimes start
/// with about 30,000.
pub(crate) const MAX_TABLE_START: u32 = 100_000;

/// Maximum number of component instances, counted with repetition.
const MAX_COMPONENT_INSTANCES: u32 = 256;

/// Maximum number of imports, exports, aliases, types and canonical functions of components, counted with repetition. A
/// component of ten parts has about 10,000.
const MAX_ITEMS: u32 = 200_000;

/// Maximum number of functions with a body. A JavaScript engine has 20,000; compiling 100,000 empty ones takes half a
/// gigabyte.
pub(super) const MAX_FUNCTIONS: u32 = 64_000;

/// Maximum number of core modules and nested components in the file.
pub(super) const MAX_PARTS: u32 = 256;

/// Maximum nesting depth of components.
pub(super) const MAX_NESTING: u32 = 16;

/// Maximum size of a value of a type in bytes, and of the parameters of a function together. Lists of fixed length declare any
/// size in a few bytes, and the engine adds sizes up in 32 bits.
const MAX_VALUE_BYTES: u32 = 256 << 20;

/// Maximum host memory for each byte that the engine counts when it passes a value of a stream or future from one part of a component
/// to another. The names of flags are texts of their own: 32 flags of one letter would take 25 bytes.
pub(crate) const MAX_PASSED_WEIGHT: u32 = 8;

/// Limit of the complexity of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ComplexityLimit {
    /// Number of core instances, counted with repetition.
    CoreInstances,
    /// Number of component instances, counted with repetition.
    ComponentInstances,
    /// Number of items of components, counted with repetition.
    Items,
    /// Number of imports of a core module that is adapted.
    ModuleImports,
    /// Number of functions with a body.
    Functions,
    /// Number of core modules and nested components.
    Parts,
    /// Depth of nesting.
    Nesting,
    /// Number of memories.
    Memories,
    /// Number of tables.
    Tables,
    /// Initial number of elements of a table.
    TableElements,
    /// Size of a value of a type.
    ValueBytes,
    /// Host memory of a value of a stream or future.
    PassedWeight,
}

impl ComplexityLimit {
    /// Returns the maximum value.
    pub fn limit(self) -> u64 {
        u64::from(match self {
            Self::CoreInstances => MAX_CORE_INSTANCES,
            Self::ComponentInstances => MAX_COMPONENT_INSTANCES,
            Self::Items => MAX_ITEMS,
            Self::ModuleImports => super::adapt::MAX_IMPORTS,
            Self::Functions => MAX_FUNCTIONS,
            Self::Parts => MAX_PARTS,
            Self::Nesting => MAX_NESTING,
            Self::Memories => MAX_MEMORIES,
            Self::Tables => MAX_TABLES,
            Self::TableElements => MAX_TABLE_START,
            Self::ValueBytes => MAX_VALUE_BYTES,
            Self::PassedWeight => MAX_PASSED_WEIGHT,
        })
    }
}

impl fmt::Display for ComplexityLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CoreInstances => "core instances",
            Self::ComponentInstances => "component instances",
            Self::Items => "imports, exports, types and aliases",
            Self::ModuleImports => "imports of a core module",
            Self::Functions => "functions",
            Self::Parts => "modules and nested components",
            Self::Nesting => "levels of nested components",
            Self::Memories => "memories",
            Self::Tables => "tables",
            Self::TableElements => "elements in one table",
            Self::ValueBytes => "bytes in a value of one type, such as a list of fixed length",
            Self::PassedWeight => {
                "bytes of memory for each byte of a value in a stream or future, such as many flags with short names"
            }
        })
    }
}

//! Why a component is not a tool.

use toolcell_core::ToolError;
use toolcell_core::schema::SchemaError;
use toolcell_core::tool::InvalidToolName;

use crate::load::preflight::ComplexityLimit;

/// Why a component cannot be loaded. [`LoadError::hint`] says what may help.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No WebAssembly at all.
    #[error("this is no WebAssembly")]
    NotWasm,
    /// WebAssembly text, which is never compiled.
    #[error("this is WebAssembly in text form, and only the binary form is loaded")]
    Text,
    /// A core module, which is not a component.
    #[error("this is a WebAssembly core module, not a component")]
    CoreModule,
    /// The file ends too early.
    #[error("the component is cut short: it ends inside a section")]
    Truncated,
    /// Not well-formed.
    #[error("the component is malformed: {reason}")]
    Malformed {
        /// What is wrong and where.
        reason: String,
    },
    /// Larger than [`crate::SandboxOptions::max_component_bytes`].
    #[error("the component has {size} bytes, and {limit} are accepted")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The largest size in bytes.
        limit: u64,
    },
    /// A component that provides no tools.
    #[error("the component is no tool: it does not export `toolcell:tool/tools`")]
    NotATool {
        /// Whether it is a hook.
        is_hook: bool,
        /// What it exports instead.
        exports: Vec<String>,
    },
    /// A component that is no hook.
    #[error("the component is no hook: it does not export `toolcell:tool/hooks`")]
    NotAHook {
        /// Whether it provides tools.
        has_tools: bool,
        /// What it exports instead.
        exports: Vec<String>,
    },
    /// A tool or a hook for another version of the contract.
    #[error("the component is for version {version} of the contract, and this host knows 0.1")]
    UnknownContract {
        /// The name of the export, such as `toolcell:tool/tools@0.2.0`.
        export: String,
        /// Its version, or what stands in its place.
        version: String,
    },
    /// The export has the right name and other functions or types.
    #[error("the component does not fit the contract: {reason}")]
    ContractMismatch {
        /// What does not fit.
        reason: String,
    },
    /// Something is imported that this host does not have.
    #[error("the component imports `{name}`, which this host does not provide")]
    UnknownImport {
        /// The import.
        name: String,
        /// What would provide it.
        hint: String,
    },
    /// An interface is known, and the component wants other functions of it.
    #[error("an import of the component does not fit this host: {reason}")]
    ImportMismatch {
        /// What does not fit.
        reason: String,
    },
    /// WebAssembly that this host switches off.
    #[error("the component uses a feature that is switched off: {feature}")]
    UnsupportedFeature {
        /// Which one.
        feature: String,
    },
    /// Absurdly large once everything in it is counted.
    #[error("the component is too complex: more than {} {excess}", excess.limit())]
    TooComplex {
        /// Of what there is too much.
        excess: ComplexityLimit,
    },
    /// The compiler reached a limit.
    #[error("compiling the component was stopped: {limit}")]
    CompileLimit {
        /// Which limit.
        limit: CompileLimit,
    },
    /// As many components wait to be compiled as [`crate::SandboxOptions::compile_queue`] says.
    #[error("too many components are being compiled: {limit} wait already")]
    Busy {
        /// How many may wait.
        limit: usize,
    },
    /// The compiler failed.
    #[error("the component could not be compiled: {reason}")]
    Compile {
        /// The chain of causes.
        reason: String,
    },
    /// Asking the component for its tools, or for what it is as a hook, failed.
    #[error("the component does not say what it is: {error}")]
    Definitions {
        /// How the call ended.
        error: ToolError,
    },
    /// A component without a single tool, or with more than is accepted.
    #[error("the component defines {count} tools, and from 1 to {limit} are accepted")]
    ToolCount {
        /// How many it defines.
        count: usize,
        /// How many are accepted.
        limit: usize,
    },
    /// A tool has a name that no tool may have.
    #[error("{0}")]
    ToolName(#[source] InvalidToolName),
    /// Two tools have one name.
    #[error("the component defines `{name}` twice")]
    DuplicateTool {
        /// The name.
        name: String,
    },
    /// A text of a definition is longer than is accepted.
    #[error("the {field} of the tool `{tool}` has {size} bytes, and {limit} are accepted")]
    TextTooLong {
        /// The tool.
        tool: String,
        /// Which text.
        field: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The largest size.
        limit: usize,
    },
    /// A hook says something of itself that cannot be.
    #[error("what the hook says of itself cannot be used: {reason}")]
    HookManifest {
        /// What is wrong.
        reason: String,
    },
    /// A schema that cannot be used.
    #[error("the {which} schema of the tool `{tool}` cannot be used: {error}")]
    Schema {
        /// The tool.
        tool: String,
        /// `input` or `output`.
        which: &'static str,
        /// What is wrong with it.
        #[source]
        error: SchemaError,
    },
    /// An annotation that is no JSON.
    #[error("the annotation `{annotation}` of the tool `{tool}` is no JSON: {reason}")]
    Annotation {
        /// The tool.
        tool: String,
        /// The name of the annotation.
        annotation: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A limit of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompileLimit {
    /// Bytes of memory of the compiling process.
    #[error("it needs more than {0} bytes of memory")]
    Memory(u64),
    /// Seconds of processor time.
    #[error("it needs more than {0} s of processor time")]
    CpuSeconds(u64),
    /// Milliseconds of wall time.
    #[error("it was not finished after {0} ms")]
    WallMs(u64),
    /// Bytes of compiled code.
    #[error("the compiled code has more than {0} bytes")]
    CodeBytes(u64),
}

impl LoadError {
    /// What may help, in words for a person; `None` where nothing is known that would.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Text => "assemble it first, for example with `wasm-tools parse`".into(),
            Self::CoreModule => {
                "build it for `wasm32-wasip2`, or make a component of it with `wasm-tools component new`"
                    .into()
            }
            Self::Truncated => "the download or copy was perhaps not complete; fetch it again".into(),
            Self::NotATool { is_hook: true, .. } => {
                "it is a hook: name it in your own configuration, `[hooks.NAME] component = \"FILE.wasm\"`"
                    .into()
            }
            Self::NotAHook { has_tools: true, .. } => {
                "it has tools: offer them with --tool, or with `[tools.NAME] component = \"FILE.wasm\"`"
                    .into()
            }
            Self::NotAHook { .. } => "build it against the world `toolcell:tool/hook-provider`".into(),
            Self::NotATool { exports, .. } if exports.is_empty() => {
                "build it against the world `toolcell:tool/provider`".into()
            }
            Self::NotATool { exports, .. } => format!(
                "it exports {}; build it against the world `toolcell:tool/provider`",
                list(exports)
            ),
            Self::UnknownContract { .. } => {
                "rebuild it with an SDK of version 0.1, or use a host that knows its version".into()
            }
            Self::UnknownImport { hint, .. } => hint.clone(),
            Self::UnsupportedFeature { .. } => "build it without that feature".into(),
            Self::Busy { .. } => "load it again in a moment".into(),
            Self::TooLarge { .. } => "build it for size, without debug information".into(),
            Self::Definitions {
                error: ToolError::Limit { .. },
            } => "what it is is read with little fuel and time; it should be constant".into(),
            _ => return None,
        })
    }
}

/// At most five names, quoted.
fn list(names: &[String]) -> String {
    let mut quoted: Vec<String> = names.iter().take(5).map(|n| format!("`{n}`")).collect();
    if names.len() > quoted.len() {
        quoted.push(format!("and {} more", names.len() - quoted.len()));
    }
    quoted.join(", ")
}

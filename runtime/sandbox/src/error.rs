//! Errors of starting the engine, of the cache, and of loading components.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use toolcell_core::json::JsonError;
use toolcell_core::schema::SchemaError;
use toolcell_core::tool::InvalidToolName;
use toolcell_core::{SharedError, ToolError, error_chain};

use crate::load::complexity::ComplexityLimit;
use crate::typed::LeftOut;

/// Error of starting the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine rejects its settings, or the machine cannot run it.
    #[error("could not start the WebAssembly engine")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The epoch thread could not be started.
    #[error("could not start the epoch thread of the WebAssembly engine")]
    EpochThread(#[source] io::Error),
}

/// Error of loading a component. [`LoadError::hint`] suggests a remedy.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The bytes are not WebAssembly.
    #[error("the file is not WebAssembly")]
    NotWasm,
    /// WebAssembly text, which is not supported.
    #[error("the file is WebAssembly in text form; only the binary form is supported")]
    Text,
    /// A core module instead of a component.
    #[error("this is a WebAssembly core module, not a component")]
    CoreModule,
    /// A core module that imports functions of no known system interface.
    #[error("the core module imports `{module}`, which is not part of WASI preview 1")]
    ModuleImport {
        /// Module of the import.
        module: String,
    },
    /// A core module of which no component can be made.
    #[error("could not make a component of the core module: {reason}")]
    NotAdapted {
        /// Chain of causes.
        reason: String,
    },
    /// The component is truncated.
    #[error("the component is truncated: it ends inside a section")]
    Truncated,
    /// The binary is not well-formed.
    #[error("the component is malformed: {reason}")]
    Malformed {
        /// Reason and location.
        reason: String,
    },
    /// The size exceeds [`crate::SandboxOptions::max_component_bytes`].
    #[error("the component is too large: {size} bytes exceed the limit of {limit}")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The component exports no tools.
    #[error("the component is not a tool: it does not export `toolcell:tool/tools`")]
    NotATool {
        /// True if it is a hook.
        is_hook: bool,
        /// Names of its exports.
        exports: Vec<String>,
    },
    /// The component exports functions, of which none can be a tool.
    #[error("no function of the component can be a tool: {}", reasons(left_out))]
    NoFunction {
        /// Its functions, with the reasons.
        left_out: Vec<LeftOut>,
    },
    /// A description was given for a component that is no program.
    #[error("the component describes its tools itself: only a program takes another description")]
    NotAProgram,
    /// Two functions of the component would be tools of the same name.
    #[error("the functions `{}` and `{}` of the component have the same tool name, `{name}`", functions[0], functions[1])]
    SameToolName {
        /// Name of the tool.
        name: String,
        /// Full names of the functions.
        functions: Box<[String; 2]>,
    },
    /// The component is not a hook.
    #[error("the component is not a hook: it does not export `toolcell:tool/hooks`")]
    NotAHook {
        /// True if it exports tools.
        has_tools: bool,
        /// Names of its exports.
        exports: Vec<String>,
    },
    /// The tool or hook uses another version of the interface.
    #[error("unsupported interface version {version}: this host supports 0.1")]
    UnknownContract {
        /// The name of the export, such as `toolcell:tool/tools@0.2.0`.
        export: String,
        /// Version of the export, or the text in its place.
        version: String,
    },
    /// The export has the right name but other functions or types.
    #[error("the component does not match the interface")]
    ContractMismatch {
        /// Description of the mismatch.
        source: SharedError,
    },
    /// An import is not provided by this host.
    #[error("the component imports `{name}`, which this host does not provide")]
    UnknownImport {
        /// Name of the import.
        name: String,
        /// Suggestion of a provider.
        hint: String,
    },
    /// An import of a supported interface uses other functions or types.
    #[error("an import of the component does not match this host")]
    ImportMismatch {
        /// Description of the mismatch.
        source: SharedError,
    },
    /// The component uses a WebAssembly feature that this host disables.
    #[error("the component uses a disabled WebAssembly feature: {feature}")]
    UnsupportedFeature {
        /// Name of the feature.
        feature: String,
    },
    /// The component exceeds a limit of the preflight check, counted with repetition.
    #[error("the component is too complex: more than {} {excess}", excess.limit())]
    TooComplex {
        /// The exceeded limit.
        excess: ComplexityLimit,
    },
    /// The compiler reached a limit.
    #[error("compilation was stopped: {limit}")]
    CompileLimit {
        /// The exceeded limit.
        limit: CompileLimit,
    },
    /// The queue of compilations is full, see [`crate::SandboxOptions::compile_queue`].
    #[error("too many components are being compiled: {limit} are already waiting")]
    Busy {
        /// Maximum length of the queue.
        limit: usize,
    },
    /// The engine of asynchronous components, which is started with the first of them, cannot run.
    #[error("the component is asynchronous, and its engine cannot run")]
    Engine {
        /// Error of starting it.
        source: Arc<EngineError>,
    },
    /// The compiler failed.
    #[error("could not compile the component: {reason}")]
    Compile {
        /// Chain of causes.
        reason: String,
    },
    /// Reading the definitions of the tools, or the manifest of the hook, failed.
    #[error("could not read the definitions of the component")]
    Definitions {
        /// Error of the call.
        source: ToolError,
        /// Lines that the component logged or wrote to standard output and standard error, for its author.
        log: String,
    },
    /// The component defines no tool, or too many.
    #[error("the component defines {count} tools, expected 1 to {limit}")]
    ToolCount {
        /// Number of definitions.
        count: usize,
        /// Maximum number of definitions.
        limit: usize,
    },
    /// A tool has an invalid name.
    #[error(transparent)]
    ToolName(InvalidToolName),
    /// Two tools have the same name.
    #[error("the component defines `{name}` twice")]
    DuplicateTool {
        /// Duplicate name.
        name: String,
    },
    /// A text of a definition exceeds its limit.
    #[error("the {field} of the tool `{tool}` is too long: {size} bytes exceed the limit of {limit}")]
    TextTooLong {
        /// Name of the tool.
        tool: String,
        /// Name of the text field.
        field: &'static str,
        /// Its size in bytes.
        size: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The manifest of a hook is invalid.
    #[error("invalid hook manifest: {reason}")]
    HookManifest {
        /// Reason of the rejection.
        reason: String,
    },
    /// The list of resources or prompts is invalid.
    #[error("invalid list of {kind}: {reason}")]
    Listing {
        /// `resources` or `prompts`.
        kind: &'static str,
        /// Reason of the rejection.
        reason: String,
    },
    /// A schema is invalid.
    #[error("invalid {which} schema of the tool `{tool}`")]
    Schema {
        /// Name of the tool.
        tool: String,
        /// Kind of schema, `input` or `output`.
        which: &'static str,
        /// Error of the schema.
        source: SchemaError,
    },
    /// An annotation is not JSON.
    #[error("the annotation `{annotation}` of the tool `{tool}` is not valid JSON")]
    Annotation {
        /// Name of the tool.
        tool: String,
        /// Name of the annotation.
        annotation: String,
        /// Error of the parser.
        source: JsonError,
    },
}

/// Limit of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompileLimit {
    /// Memory of the compiling process, in bytes.
    #[error("the compiler needs more than {0} bytes of memory")]
    Memory(u64),
    /// CPU time, in seconds.
    #[error("the compiler needs more than {0} s of CPU time")]
    CpuSeconds(u64),
    /// Wall time, in milliseconds.
    #[error("the compiler did not finish within {0} ms")]
    WallMs(u64),
    /// Size of the compiled code, in bytes.
    #[error("the compiled code has more than {0} bytes")]
    CodeBytes(u64),
}

/// Error of opening a cache directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A file or directory cannot be read or created.
    #[error("could not open the cache `{}`", path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another user could have written to it.
    #[error("refusing to use the cache `{}`: {reason}", path.display())]
    Untrusted {
        /// Path of the file or directory.
        path: PathBuf,
        /// Reason of the refusal.
        reason: &'static str,
    },
}

/// Errors are equal if they have the same variant, and they and their sources have the same text; sources of arbitrary
/// types cannot be compared otherwise.
impl PartialEq for LoadError {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && error_chain(self) == error_chain(other)
    }
}

impl LoadError {
    /// Returns a hint for the user; `None` if no remedy is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Text => "assemble it first, for example with `wasm-tools parse`".into(),
            Self::CoreModule => {
                "build it for `wasm32-wasip2`, or make a component of it with `wasm-tools component new`"
                    .into()
            }
            Self::ModuleImport { .. } | Self::NotAdapted { .. } => {
                "build it for `wasm32-wasip2`, or for `wasm32-wasip1` without other imports".into()
            }
            Self::Truncated => "the download or copy may be incomplete; fetch it again".into(),
            Self::NotATool { is_hook: true, .. } => {
                "it is a hook: add it to your own configuration, `[hooks.NAME] component = \"FILE.wasm\"`"
                    .into()
            }
            Self::NotAHook { has_tools: true, .. } => {
                "it has tools: add them with --tool, or with `[tools.NAME] component = \"FILE.wasm\"`".into()
            }
            Self::NotAHook { .. } => "build it against the world `toolcell:tool/hook-provider`".into(),
            Self::NotATool { exports, .. } if exports.is_empty() => {
                "it exports nothing: with the SDK for Rust, add `toolcell_sdk::export!(TOOL, …)`; otherwise build it against the world `toolcell:tool/provider`".into()
            }
            Self::NotATool { exports, .. } => format!(
                "it exports {}; build it against the world `toolcell:tool/provider`",
                list(exports)
            ),
            Self::UnknownContract { .. } => {
                "rebuild it with an SDK of version 0.1, or use a host that supports its version".into()
            }
            Self::UnknownImport { hint, .. } => hint.clone(),
            Self::UnsupportedFeature { feature } if feature.contains("cm-") => {
                "it was built with a part of the component model that is not final; build it with tools for WASI 0.2 \
                 or 0.3, without experimental options"
                    .into()
            }
            Self::UnsupportedFeature { .. } => "build it without that feature".into(),
            Self::NoFunction { .. } => {
                "a tool is a function of plain values, without resources, streams and futures".into()
            }
            Self::SameToolName { .. } => "rename one of the functions or interfaces".into(),
            Self::Busy { .. } => "load it again later".into(),
            Self::Engine { .. } => {
                "it takes a thread and address space of its own: end other programs, or raise their limits \
                 (`ulimit -u`, `ulimit -v`)"
                    .into()
            }
            Self::TooLarge { .. } => "build it for size, without debug information".into(),
            Self::Definitions {
                source: ToolError::Limit { .. },
                ..
            } => {
                "definitions and manifests are read with little fuel and time; they should be constant".into()
            }
            _ => return None,
        })
    }
}

/// Formats at most five functions with their reasons.
fn reasons(left_out: &[LeftOut]) -> String {
    let listed = left_out.iter().take(5);
    let mut reasons: Vec<String> = listed
        .map(|left_out| format!("`{}`: {}", left_out.function, left_out.reason))
        .collect();
    if left_out.len() > reasons.len() {
        reasons.push(format!("and {} more", left_out.len() - reasons.len()));
    }
    reasons.join("; ")
}

/// Formats at most five names, quoted.
fn list(names: &[String]) -> String {
    let mut quoted: Vec<String> = names.iter().take(5).map(|n| format!("`{n}`")).collect();
    if names.len() > quoted.len() {
        quoted.push(format!("and {} more", names.len() - quoted.len()));
    }
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn engine_and_cache_errors_keep_their_sources() {
        let engine = EngineError::Engine(wasmtime::Error::msg("deep").context("outer").into());
        assert_eq!(
            error_chain(&engine),
            "could not start the WebAssembly engine: outer: deep"
        );
        let load = LoadError::Engine {
            source: Arc::new(engine),
        };
        assert!(load.to_string().contains("asynchronous") && load.hint().is_some());
        assert!(error_chain(&load).ends_with("could not start the WebAssembly engine: outer: deep"));
        let cache = CacheError::Io {
            path: "c".into(),
            source: io::ErrorKind::NotFound.into(),
        };
        assert!(cache.source().is_some_and(|source| source.is::<io::Error>()));
    }

    #[test]
    fn load_errors_keep_their_sources() {
        let schema = LoadError::Schema {
            tool: "t".into(),
            which: "input",
            source: SchemaError::RootNotObject,
        };
        assert!(schema.source().is_some_and(|source| source.is::<SchemaError>()));
        assert_eq!(
            error_chain(&schema),
            "invalid input schema of the tool `t`: the root is not of type `object`"
        );
        let definitions = LoadError::Definitions {
            source: ToolError::host(&io::Error::other("x")),
            log: String::new(),
        };
        assert!(
            definitions
                .source()
                .is_some_and(|source| source.is::<ToolError>())
        );
    }
}

//! Compilation of WebAssembly to machine code, and loading of machine code.

mod child;
mod command;
mod isolation;
mod passed_values;
mod type_sizes;

pub use child::compile_child_main;
pub use command::{CompileCommand, CompileLimits, Compiler};
pub use isolation::{CompilerIsolation, Protection};

use std::fs::File;
use std::panic::AssertUnwindSafe;

use wasmparser::{Validator, WasmFeatures};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::error::LoadError;

/// Feature without which an asynchronous component is invalid, as [`LoadError::UnsupportedFeature`] names it.
pub(crate) const ASYNC: &str = "cm-async";

/// Message for a compiler that panicked, here or in a child.
const UNEXPECTED: &str = "the compiler failed unexpectedly";

/// Compiled code and its provenance.
pub(crate) enum Artefact<'a> {
    /// Compiled just now by this process or its compiling child.
    Fresh(&'a [u8]),
    /// Read completely through this handle and verified by the hash of the cache.
    Verified(&'a File),
}

/// Makes a component of a core module in a separate process.
pub(crate) use command::adapt as adapt_in_child;
/// Compiles a component in a separate process.
pub(crate) use command::compile as compile_in_child;
pub(crate) use command::isolation as isolation_of_child;

/// Compiles a component in this process.
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
    validate(engine, bytes)?;
    let compiled = std::panic::catch_unwind(AssertUnwindSafe(|| engine.precompile_component(bytes)));
    match compiled {
        Ok(Ok(code)) => Ok(code),
        Ok(Err(error)) => Err(LoadError::Compile {
            reason: format!("{error:#}"),
        }),
        Err(_) => Err(LoadError::Compile {
            reason: UNEXPECTED.into(),
        }),
    }
}

/// Validates a component and the sizes of its types, and determines whether its only defect is the use of a disabled feature.
fn validate(engine: &Engine, bytes: &[u8]) -> Result<(), LoadError> {
    let ours = engine.get_wasm_features();
    let Err(error) = Validator::new_with_features(ours).validate_all(bytes) else {
        return type_sizes::check(bytes, ours);
    };
    let valid_with = |features| Validator::new_with_features(features).validate_all(bytes).is_ok();
    let everything = WasmFeatures::all();
    if !valid_with(everything) {
        return Err(LoadError::Malformed {
            reason: format!("{} (at byte {})", error.message(), error.offset()),
        });
    }
    // The features without which it is invalid. `GC_TYPES` is not a proposal: it states how the parser was built.
    let needed: Vec<String> = (everything - ours - WasmFeatures::GC_TYPES)
        .iter_names()
        .filter(|(_, feature)| !valid_with(everything - *feature))
        .map(|(name, _)| name.to_ascii_lowercase().replace('_', "-"))
        .collect();
    Err(LoadError::UnsupportedFeature {
        feature: if needed.is_empty() {
            error.message().to_owned()
        } else {
            needed.join(", ")
        },
    })
}

/// Loads a component from compiled code. Fails for code that does not belong to this engine.
#[expect(
    unsafe_code,
    reason = "the engine has no other way to load code that was compiled before; see SAFETY"
)]
pub(crate) fn adopt(engine: &Engine, artefact: Artefact<'_>) -> Result<Component, LoadError> {
    let adopted = std::panic::catch_unwind(AssertUnwindSafe(|| match artefact {
        // SAFETY: the bytes are the unmodified result of `Engine::precompile_component`, in this process or in a child
        // that runs this same program.
        Artefact::Fresh(code) => unsafe { Component::deserialize(engine, code) },
        // SAFETY: the content of this open file was compared with a keyed hash that only code written by
        // `Cache::keep_code` has, which stores the result of `Engine::precompile_component`. The file is in a directory
        // that only this user can write to, is never modified in place, and is mapped through this handle, so that it
        // is the verified file.
        Artefact::Verified(file) => unsafe { Component::deserialize_file(engine, path_of(file)) },
    }));
    match adopted {
        Ok(Ok(component)) => Ok(component),
        Ok(Err(error)) => Err(LoadError::Compile {
            reason: format!("{error:#}"),
        }),
        Err(_) => Err(LoadError::Compile {
            reason: "could not read the compiled code".into(),
        }),
    }
}

/// Returns a path that refers to the open file.
fn path_of(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/dev/fd/{}", file.as_raw_fd())
}

//! From WebAssembly to machine code, and from machine code to a component that runs.

mod child;
mod command;
mod isolation;

pub use child::compile_child_main;
pub use command::{CompileCommand, CompileLimits, Compiler};
pub use isolation::{CompilerIsolation, Protection};

use std::fs::File;
use std::panic::AssertUnwindSafe;

use wasmparser::{Validator, WasmFeatures};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::error::LoadError;

/// What is said of a compiler that panicked, here or in a child.
const UNEXPECTED: &str = "the compiler failed unexpectedly";

/// Compiled code, and why it can be trusted.
pub(crate) enum Artefact<'a> {
    /// This process or its compiling child made it a moment ago.
    Fresh(&'a [u8]),
    /// It was read in full through this handle and carries the hash of the cache.
    Verified(&'a File),
}

/// Compiles a component in a process of its own.
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

/// Checks a component by the rules of WebAssembly, and says whether a feature that is switched off is all that is
/// wrong with it.
fn validate(engine: &Engine, bytes: &[u8]) -> Result<(), LoadError> {
    let ours = engine.get_wasm_features();
    let Err(error) = Validator::new_with_features(ours).validate_all(bytes) else {
        return Ok(());
    };
    let valid_with = |features| Validator::new_with_features(features).validate_all(bytes).is_ok();
    let everything = WasmFeatures::all();
    if !valid_with(everything) {
        return Err(LoadError::Malformed {
            reason: format!("{} (at byte {})", error.message(), error.offset()),
        });
    }
    // The features without which it is not valid. `GC_TYPES` is no proposal: it says how the parser was built.
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

/// Makes a component of compiled code. Code that does not belong to this engine is an error.
#[expect(
    unsafe_code,
    reason = "the engine has no other way to take code that was compiled before; see SAFETY"
)]
pub(crate) fn adopt(engine: &Engine, artefact: Artefact<'_>) -> Result<Component, LoadError> {
    let adopted = std::panic::catch_unwind(AssertUnwindSafe(|| match artefact {
        // SAFETY: the bytes are what `Engine::precompile_component` returned, in this process or in a child that runs
        // this same program, unchanged.
        Artefact::Fresh(code) => unsafe { Component::deserialize(engine, code) },
        // SAFETY: the content of this open file was compared with a keyed hash that only code written by
        // `Cache::keep_code` has, which is given what `Engine::precompile_component` returned. The file lies in a
        // directory that only this user can write to, is never changed in place, and is mapped through this handle, so
        // that it is the file that was checked.
        Artefact::Verified(file) => unsafe { Component::deserialize_file(engine, path_of(file)) },
    }));
    match adopted {
        Ok(Ok(component)) => Ok(component),
        Ok(Err(error)) => Err(LoadError::Compile {
            reason: format!("{error:#}"),
        }),
        Err(_) => Err(LoadError::Compile {
            reason: "the compiled code could not be read".into(),
        }),
    }
}

/// A path that leads to the open file and nowhere else.
fn path_of(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/dev/fd/{}", file.as_raw_fd())
}

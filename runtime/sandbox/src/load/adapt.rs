//! Core modules for WASI preview 1 (`wasi_snapshot_preview1`), of which components are made when they are loaded.
//!
//! The adapter published with Wasmtime implements the functions of preview 1 with those of WASI 0.2. A module with a
//! `_start` function becomes a program. What is made passes the same checks as every component.

use std::panic::AssertUnwindSafe;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as PREVIEW_1, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER as COMMAND,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as REACTOR,
};
use wasmparser::Payload;
use wit_component::ComponentEncoder;

use crate::cell::failure::cut;
use crate::component::Digest;
use crate::error::LoadError;
use crate::load::preflight;

/// Prefix of the sections in which a toolchain leaves the types of the component that a module is meant for.
const COMPONENT_TYPE: &str = "component-type";

/// Maximum length of the reason of a refusal, in bytes.
const MAX_REASON: usize = 500;

/// Function that runs a program.
const START: &str = "_start";

/// Returns `true` for a core module.
pub(crate) fn is_core_module(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm\x01\0\0\0")
}

/// Returns the digest under which the code of an adapted module is stored. Another adapter makes another component.
pub(crate) fn cache_digest(module: Digest) -> Digest {
    let mut hasher = Sha256::new();
    for part in [env!("CARGO_PKG_VERSION").as_bytes(), COMMAND, REACTOR] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.update(module.hex());
    Digest::from_bytes(hasher.finalize().into())
}

/// Parts of a module that decide how it is adapted.
#[derive(Debug, Default)]
struct Module {
    /// Modules of its imports, each once.
    imports: Vec<String>,
    is_program: bool,
    has_component_type: bool,
}

/// Adapter for a kind of module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Adapter {
    /// For a program.
    Command,
    /// For functions.
    Reactor,
}

/// Checks a core module, without decoding what it says about the component that it is meant for, and returns its adapter.
///
/// # Errors
/// If the module has too many parts, imports anything but preview 1, or is neither a program nor meant to be a component.
pub(crate) fn check(bytes: &[u8]) -> Result<Adapter, LoadError> {
    let mut module = Module::default();
    preflight::scan_module(bytes, |payload| module.note(payload))?;
    if !module.has_component_type {
        if let Some(other) = module.imports.iter().find(|import| *import != PREVIEW_1) {
            return Err(LoadError::ModuleImport {
                module: other.escape_debug().to_string(),
            });
        }
        if !module.is_program {
            return Err(LoadError::CoreModule);
        }
    }
    Ok(if module.is_program {
        Adapter::Command
    } else {
        Adapter::Reactor
    })
}

/// Makes a component of a core module that was checked. The encoder is not hardened: a small module can take gigabytes and
/// minutes, as in the compiler.
///
/// # Errors
/// If the module does not fit the adapter.
pub(crate) fn encode(bytes: &[u8], adapter: Adapter) -> Result<Vec<u8>, LoadError> {
    let adapter = match adapter {
        Adapter::Command => COMMAND,
        Adapter::Reactor => REACTOR,
    };
    let encoded = std::panic::catch_unwind(AssertUnwindSafe(|| {
        ComponentEncoder::default()
            .module(bytes)?
            .adapter(PREVIEW_1, adapter)?
            .validate(true)
            .encode()
    }));
    match encoded {
        Ok(Ok(component)) => Ok(component),
        Ok(Err(error)) => Err(LoadError::NotAdapted {
            reason: cut(format!("{error:#}"), MAX_REASON),
        }),
        Err(_) => Err(LoadError::NotAdapted {
            reason: "the adapter failed unexpectedly".into(),
        }),
    }
}

impl Module {
    fn note(&mut self, payload: &Payload<'_>) -> Result<(), wasmparser::BinaryReaderError> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    let name = import?.module;
                    if !self.imports.iter().any(|known| known == name) {
                        self.imports.push(name.to_owned());
                    }
                }
            }
            Payload::ExportSection(section) => {
                for export in section.clone() {
                    self.is_program |= export?.name == START;
                }
            }
            Payload::CustomSection(section) => {
                self.has_component_type |= section.name().starts_with(COMPONENT_TYPE);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::complexity::MAX_FUNCTIONS;

    fn adapt(bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
        encode(bytes, check(bytes)?)
    }

    fn module(text: &str) -> Result<Vec<u8>, LoadError> {
        adapt(&wat::parse_str(text).unwrap())
    }

    #[test]
    fn program_becomes_a_component_that_exports_run() {
        for import in [
            "",
            r#"(import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))"#,
        ] {
            let text = format!(r#"(module {import} (memory (export "memory") 1) (func (export "_start")))"#);
            let component = module(&text).unwrap();
            let shape = preflight::scan(&component).unwrap();
            assert!(crate::program::is_among(&shape.exports), "{:?}", shape.exports);
            // Every import is one that the host provides.
            crate::load::imports::classify(&shape.imports).unwrap();
        }
    }

    #[test]
    fn module_that_is_no_program_is_refused_with_a_reason() {
        for (text, reason) in [
            ("(module)", "this is a WebAssembly core module, not a component"),
            (
                r#"(module (import "env" "puts" (func)) (func (export "_start")))"#,
                "the core module imports `env`, which is not part of WASI preview 1",
            ),
            (
                r#"(module (import "wasi_snapshot_preview1" "fd_fly" (func)) (func (export "_start")))"#,
                "could not make a component of the core module",
            ),
            (
                r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func)) (func (export "_start")))"#,
                "could not make a component of the core module",
            ),
            (
                r#"(module (func (export "_start") (param i32)))"#,
                "could not make a component",
            ),
        ] {
            let refused = module(text).unwrap_err();
            assert!(refused.to_string().contains(reason), "{text}: {refused}");
        }
    }

    #[test]
    fn module_is_checked_before_it_is_adapted() {
        let of = |functions: u32| {
            let functions = "(func)".repeat(usize::try_from(functions).unwrap() - 1);
            module(&format!(
                r#"(module (memory (export "memory") 1) (func (export "_start")) {functions})"#
            ))
        };
        assert!(of(MAX_FUNCTIONS).is_ok());
        let refused = of(MAX_FUNCTIONS + 1).unwrap_err();
        assert!(matches!(refused, LoadError::TooComplex { .. }), "{refused}");
        assert!(matches!(
            adapt(b"\0asm\x01\0\0\0\x01"),
            Err(LoadError::Malformed { .. })
        ));
        assert!(matches!(
            adapt(b"\0asm\x0d\0\x01\0"),
            Err(LoadError::Malformed { .. })
        ));
    }

    #[test]
    fn changed_module_is_refused_or_adapted_without_a_panic() {
        let text = r#"(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1) (data (i32.const 0) "x") (func (export "_start") (drop (i32.const 1))))"#;
        let whole = wat::parse_str(text).unwrap();
        assert!(adapt(&whole).is_ok());
        let cut = (0..whole.len()).map(|length| whole[..length].to_vec());
        let changed = (8..whole.len()).flat_map(|at| {
            [0x01, 0x7f].map(|flip| {
                let mut changed = whole.clone();
                changed[at] ^= flip;
                changed
            })
        });
        for bytes in cut.chain(changed) {
            if let Err(LoadError::NotAdapted { reason }) = adapt(&bytes) {
                assert!(!reason.contains("unexpectedly"), "{bytes:x?}");
            }
        }
    }

    #[test]
    fn code_of_an_adapted_module_has_its_own_place_in_the_cache() {
        let (first, second) = (Digest::of(b"a"), Digest::of(b"b"));
        assert_eq!(cache_digest(first), cache_digest(first));
        assert_ne!(cache_digest(first), cache_digest(second));
        assert_ne!(cache_digest(first), first);
    }
}

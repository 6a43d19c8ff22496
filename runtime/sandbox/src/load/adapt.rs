//! Core modules for WASI preview 1 (`wasi_snapshot_preview1`), of which components are made when they are loaded.
//!
//! The adapter published with Wasmtime implements the functions of preview 1 with those of WASI 0.2. A module with a
//! `_start` function becomes a program. What is made passes the same checks as every component.
//!
//! The published adapter makes 1 of every exit code other than 0. For `proc_exit` a second adapter takes its place, which ends
//! the program by `exit-with-code` of WASI 0.2.12 (`exit_code.wat`).

use std::panic::AssertUnwindSafe;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as PREVIEW_1, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER as COMMAND,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as REACTOR,
};
use wasmparser::{Imports, Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::cell::failure::cut;
use crate::component::Digest;
use crate::error::LoadError;
use crate::load::complexity::ComplexityLimit;
use crate::load::preflight;

/// Name that takes the place of [`PREVIEW_1`] in imports of `proc_exit`. It is as long, so that nothing in the module moves.
const EXIT_CODE: &str = "toolcell_exit_preview1";

/// Module made of `exit_code.wat`.
const EXIT_ADAPTER: &[u8] = include_bytes!("exit_code.wasm");

/// Imports of [`EXIT_ADAPTER`]: those of `wasi:cli` that end a program.
const EXIT_WIT: &str = "
    package toolcell:exit-code;
    world adapter { import wasi:cli/exit@0.2.12; }
    package wasi:cli@0.2.12 {
        interface exit {
            exit: func(status: result);
            exit-with-code: func(status-code: u8);
        }
    }";

/// Prefix of the sections in which a toolchain leaves the types of the component that a module is meant for.
const COMPONENT_TYPE: &str = "component-type";

/// Maximum length of the reason of a refusal, in bytes.
const MAX_REASON: usize = 500;

/// Maximum number of imports of a core module. Preview 1 has 46 functions; the time of the encoder grows with the square of
/// their number.
pub(crate) const MAX_IMPORTS: u32 = 1_000;

/// Function that runs a program.
const START: &str = "_start";

/// Returns `true` for a core module.
pub(crate) fn is_core_module(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm\x01\0\0\0")
}

/// Returns the digest under which the code of an adapted module is stored. Another adapter makes another component.
pub(crate) fn cache_digest(module: Digest) -> Digest {
    let mut hasher = Sha256::new();
    for part in [
        env!("CARGO_PKG_VERSION").as_bytes(),
        COMMAND,
        REACTOR,
        EXIT_ADAPTER,
    ] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.update(module.hex());
    Digest::from_bytes(hasher.finalize().into())
}

/// Parts of a module that decide how it is adapted.
#[derive(Debug, Default)]
struct Module {
    /// The first module of its imports that is not preview 1.
    other_import: Option<String>,
    /// Number of its imports.
    imports: u32,
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
        if let Some(other) = module.other_import {
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
        let module = with_exit_code(bytes)?;
        let mut encoder = ComponentEncoder::default()
            .module(module.as_deref().unwrap_or(bytes))?
            .adapter(PREVIEW_1, adapter)?
            .validate(true);
        if module.is_some() {
            let mut resolve = Resolve::default();
            let package = resolve.push_str("exit-code.wit", EXIT_WIT)?;
            let world = resolve.select_world(&[package], Some("adapter"))?;
            let mut exit = EXIT_ADAPTER.to_vec();
            embed_component_metadata(&mut exit, &resolve, world, StringEncoding::UTF8)?;
            encoder = encoder.adapter(EXIT_CODE, &exit)?;
        }
        encoder.encode()
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

/// Returns a module whose imports of `proc_exit` are of [`EXIT_CODE`]; `None` if there are none.
fn with_exit_code(bytes: &[u8]) -> Result<Option<Vec<u8>>, wasmparser::BinaryReaderError> {
    let mut renamed: Option<Vec<u8>> = None;
    for payload in Parser::new(0).parse_all(bytes) {
        let Payload::ImportSection(section) = payload? else {
            continue;
        };
        for group in section {
            let Imports::Single(at, import) = group? else {
                continue;
            };
            // The name stands behind its length, which is written in one byte.
            let name = at + 1..at + 1 + PREVIEW_1.len();
            let is_exit = (import.module, import.name) == (PREVIEW_1, "proc_exit");
            if is_exit && bytes.get(name.clone()) == Some(PREVIEW_1.as_bytes()) {
                let renamed = renamed.get_or_insert_with(|| bytes.to_vec());
                renamed[name].copy_from_slice(EXIT_CODE.as_bytes());
            }
        }
    }
    Ok(renamed)
}

impl Module {
    fn note(&mut self, payload: &Payload<'_>) -> Result<(), LoadError> {
        match payload {
            Payload::ImportSection(section) => {
                // One entry of the section can be a group of imports.
                for import in section.clone().into_imports() {
                    let name = import.map_err(preflight::malformed)?.module;
                    self.imports += 1;
                    if self.imports > MAX_IMPORTS {
                        return Err(LoadError::TooComplex {
                            excess: ComplexityLimit::ModuleImports,
                        });
                    }
                    if name != PREVIEW_1 {
                        self.other_import.get_or_insert_with(|| name.to_owned());
                    }
                }
            }
            Payload::ExportSection(section) => {
                for export in section.clone() {
                    self.is_program |= export.map_err(preflight::malformed)?.name == START;
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
    fn checked_in_adapter_of_exit_codes_is_made_of_its_text() {
        let text = include_str!("exit_code.wat");
        assert_eq!(wat::parse_str(text).unwrap(), EXIT_ADAPTER);
        assert_eq!(EXIT_CODE.len(), PREVIEW_1.len());
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
    fn imports_of_a_module_are_limited_in_number() {
        let of = |count: u32| {
            let import = r#"(import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))"#;
            let imports = import.repeat(usize::try_from(count).unwrap());
            let text = format!(r#"(module {imports} (memory (export "memory") 1) (func (export "_start")))"#);
            check(&wat::parse_str(text).unwrap())
        };
        assert_eq!(of(MAX_IMPORTS).unwrap(), Adapter::Command);
        let refused = of(MAX_IMPORTS + 1).unwrap_err();
        assert!(matches!(refused, LoadError::TooComplex { .. }), "{refused}");
        // Many different modules are no more work than one.
        let imports: String = (0..200_000)
            .map(|n| format!(r#"(import "{n}" "f" (func))"#))
            .collect();
        let other = check(&wat::parse_str(format!("(module {imports})")).unwrap()).unwrap_err();
        assert!(matches!(other, LoadError::TooComplex { .. }), "{other}");
    }

    /// One entry of the section stands for all imports of a module, or for all of a module and a type.
    #[test]
    fn imports_in_groups_count_each() {
        let count = |count: u32, with_types: bool| {
            let of_type = "(func (param i32))";
            let item = match with_types {
                true => format!(r#"(item "proc_exit" {of_type})"#),
                false => r#"(item "proc_exit")"#.to_owned(),
            };
            let items = item.repeat(usize::try_from(count).unwrap());
            let rest = if with_types { "" } else { of_type };
            let text = format!(r#"(module (import "wasi_snapshot_preview1" {items} {rest}))"#);
            let bytes = wat::parse_str(text).unwrap();
            for payload in Parser::new(0).parse_all(&bytes) {
                if let Payload::ImportSection(section) = payload.unwrap() {
                    assert_eq!(section.count(), 1);
                }
            }
            check(&bytes)
        };
        for with_types in [true, false] {
            assert!(matches!(
                count(MAX_IMPORTS, with_types),
                Err(LoadError::CoreModule)
            ));
            let refused = count(MAX_IMPORTS + 1, with_types).unwrap_err();
            assert!(matches!(refused, LoadError::TooComplex { .. }), "{refused}");
        }
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

//! Components made of the output of other toolchains, for `toolcell tool build`.
//!
//! [`componentize`] makes a tool component of a core module that has the exports of `toolcell:tool/tools`.
//! [`rename_imports`] replaces the namespace of imports of a component.

use std::panic::AssertUnwindSafe;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as PREVIEW_1, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as REACTOR,
};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::cell::failure::cut;
use crate::load::{adapt, preflight};

/// The package `toolcell:tool`, one file after the other: only the first of them names the package.
const CONTRACT: [&str; 9] = [
    include_str!("../../wit/world.wit"),
    include_str!("../../wit/types.wit"),
    include_str!("../../wit/tools.wit"),
    include_str!("../../wit/hooks.wit"),
    include_str!("../../wit/summary-hooks.wit"),
    include_str!("../../wit/resources.wit"),
    include_str!("../../wit/prompts.wit"),
    include_str!("../../wit/log.wit"),
    include_str!("../../wit/progress.wit"),
];

/// World of a component with tools.
const PROVIDER: &str = "toolcell:tool/provider@0.1.0";

/// World of a module: that of a component with tools, and the interfaces that it may import beyond.
const WORLD: &str = "component";

/// Module made of `no_wasi.wat`.
const NO_WASI: &[u8] = include_bytes!("no_wasi.wasm");

/// Maximum length of the reason of a failure, in bytes.
const MAX_REASON: usize = 2_000;

/// Meaning of the functions of WASI preview 1 that a core module imports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preview1 {
    /// They become imports of WASI 0.2, each of which a policy can allow.
    Adapted,
    /// They stay within the component, which imports nothing of WASI: no files, no environment, output is dropped, the clock
    /// counts its readings, and random numbers are the same in each call.
    Removed,
}

/// Encoding of the strings in the memory of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// UTF-8.
    Utf8,
    /// UTF-16, as in AssemblyScript.
    Utf16,
}

/// Interfaces that a module may import besides those of the contract.
#[derive(Debug, Clone, Copy, Default)]
pub struct Interfaces<'a> {
    /// WIT of packages, each after those that it refers to.
    pub packages: &'a [&'a str],
    /// Identifiers of the interfaces, such as `wasi:http/types@0.2.12`.
    pub imports: &'a [String],
}

/// Error of making a component.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ComponentizeError {
    /// The bytes are not a core module.
    #[error("the compiler did not write a WebAssembly core module")]
    NotAModule,
    /// The module has no component with the world of tools.
    #[error("the module does not fit the interface of tools: {reason}")]
    Unfit {
        /// Chain of causes.
        reason: String,
    },
    /// The bytes are no component that can be changed.
    #[error("the compiler did not write a valid component: {reason}")]
    NotAComponent {
        /// Chain of causes.
        reason: String,
    },
}

/// Makes a component with tools of a core module that exports the functions of `toolcell:tool/tools` in the canonical ABI.
///
/// Imports of the interfaces `log` and `progress`, and of further interfaces, stay only if the module uses them. Names of
/// functions are kept, other sections for debuggers are removed.
///
/// # Errors
/// If the module is malformed, imports anything else, or does not fit the interface of tools.
pub fn componentize(
    module: &[u8],
    strings: Strings,
    preview_1: Preview1,
    interfaces: Interfaces<'_>,
) -> Result<Vec<u8>, ComponentizeError> {
    if !adapt::is_core_module(module) {
        return Err(ComponentizeError::NotAModule);
    }
    let unfit = |reason: String| ComponentizeError::Unfit {
        reason: cut(reason, MAX_REASON),
    };
    preflight::scan_module(module, |_| Ok(())).map_err(|error| unfit(error.to_string()))?;
    let mut resolve = Resolve::default();
    let strings = match strings {
        Strings::Utf8 => StringEncoding::UTF8,
        Strings::Utf16 => StringEncoding::UTF16,
    };
    let adapter = match preview_1 {
        Preview1::Adapted => REACTOR,
        Preview1::Removed => NO_WASI,
    };
    let mut encode = || {
        resolve.push_str("toolcell.wit", &CONTRACT.concat())?;
        for package in interfaces.packages {
            resolve.push_str("interfaces.wit", package)?;
        }
        let package = resolve.push_str("component.wit", &world(interfaces.imports))?;
        let world = resolve.select_world(&[package], Some(WORLD))?;
        let mut module = without_debug_sections(module)?;
        embed_component_metadata(&mut module, &resolve, world, strings)?;
        ComponentEncoder::default()
            .module(&module)?
            .adapter(PREVIEW_1, adapter)?
            .validate(true)
            .encode()
    };
    // The encoder reads what a compiler has written.
    match std::panic::catch_unwind(AssertUnwindSafe(&mut encode)) {
        Ok(Ok(component)) => Ok(component),
        Ok(Err(error)) => Err(unfit(format!("{error:#}"))),
        Err(_) => Err(unfit("the encoder failed unexpectedly".into())),
    }
}

fn world(imports: &[String]) -> String {
    let imports: String = imports.iter().map(|name| format!(" import {name};")).collect();
    format!("package local:tool; world {WORLD} {{ include {PROVIDER};{imports} }}")
}

/// Returns a module without its sections for debuggers, which nothing at run time reads.
fn without_debug_sections(module: &[u8]) -> Result<Vec<u8>, wasmparser::BinaryReaderError> {
    // The header: magic number and version.
    let mut kept = module.get(..8).unwrap_or_default().to_vec();
    let mut start = kept.len();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        let Some((_, range)) = payload.as_section() else {
            continue;
        };
        let end = range.end;
        let is_removed = matches!(&payload, Payload::CustomSection(section)
            if section.name().starts_with(".debug_") || section.name() == "producers");
        // The entries of the code section are no sections of their own.
        if end > start {
            if !is_removed {
                kept.extend_from_slice(module.get(start..end).unwrap_or_default());
            }
            start = end;
        }
    }
    Ok(kept)
}

/// Replaces the namespace of the imports of a component, such as `host:http/types@0.2.12` by `wasi:http/types@0.2.12`.
/// Components inside of it stay as they are.
///
/// # Errors
/// If the component is malformed.
///
/// # Panics
/// If the namespaces differ in length: every offset in the component would change.
pub fn rename_imports(component: &[u8], from: &str, to: &str) -> Result<Vec<u8>, ComponentizeError> {
    assert_eq!(from.len(), to.len(), "namespaces of the same length");
    let malformed = |error: wasmparser::BinaryReaderError| ComponentizeError::NotAComponent {
        reason: cut(error.to_string(), MAX_REASON),
    };
    let mut renamed = component.to_vec();
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(malformed)? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section.into_iter_with_offsets() {
                    let (at, import) = import.map_err(malformed)?;
                    let name = import.name.name;
                    if name.strip_prefix(from).is_none_or(|rest| !rest.starts_with(':')) {
                        continue;
                    }
                    // The name stands behind its kind and its length, which has at most five bytes.
                    let entry = component.get(at..).unwrap_or_default();
                    let window = entry.get(..name.len() + 6).unwrap_or(entry);
                    let found = window
                        .windows(name.len())
                        .position(|part| part == name.as_bytes());
                    if let Some(offset) = found
                        && let Some(place) = renamed.get_mut(at + offset..at + offset + to.len())
                    {
                        place.copy_from_slice(to.as_bytes());
                    }
                }
            }
            _ => {}
        }
    }
    Ok(renamed)
}

#[cfg(test)]
mod tests;

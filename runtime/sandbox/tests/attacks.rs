//! Every attack of the corpus, each as a separate test, ends as its manifest states, and the next call succeeds.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::path::Path;

use serde_json::Value;
use support::{Probe, TYPES, call, load, only_tool, sandbox};
use toolcell_core::{CallResult, Limit, Limits, Policy, ToolError};
use toolcell_sandbox::{LoadError, Sandbox};

/// Small limits, so that each attack ends quickly.
fn policy() -> Policy {
    Policy {
        limits: Limits {
            fuel: 200_000_000,
            wall_ms: 10_000,
            memory: 80 << 20,
            ..Limits::default()
        },
        ..Policy::default()
    }
}

/// Result of an attack.
#[derive(Debug)]
enum End {
    Load(LoadError),
    Call(Result<CallResult, ToolError>),
}

fn corpus() -> &'static Path {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/corpora/attacks"
    ))
}

/// Wraps the attack as a tool: nested if it exports a function to call, spliced if it attacks during loading.
fn wrapped(name: &str, text: &str) -> Vec<u8> {
    match name {
        "a23_no_exports" | "a24_core_module" => return wat::parse_str(text).unwrap(),
        _ => {}
    }
    if !text.contains("(func (export \"run\")") || name.starts_with("a2") && name >= "a25" {
        let inner = text.trim().strip_prefix("(component").unwrap();
        let inner = inner.strip_suffix(')').unwrap();
        return Probe {
            items: inner.into(),
            ..Probe::default()
        }
        .build();
    }
    let nested = text.replacen("(component", "(component $attack", 1);
    // The type of `run`, its lowering, and the call.
    let (kind, lowered, call) = if text.contains("(result (list string))") {
        ("(result (list string))", "(param i32)", RETURNING)
    } else if text.contains("(result string)") {
        ("(result string)", "(param i32)", RETURNING)
    } else if text.contains("(param \"s\" string)") {
        (
            "(param \"s\" string)",
            "(param i32 i32)",
            "(call $attack (i32.const 256) (i32.const 1)) (call $text (i32.const 256) (i32.const 0))",
        )
    } else {
        (
            "",
            "",
            "(call $attack) (call $text (i32.const 256) (i32.const 0))",
        )
    };
    let tool = Probe {
        items: format!(
            r#"(import "attack" (func $attack {kind}))
            (core func $lowered (canon lower (func $attack) (memory $memory) (realloc (core func $realloc))))
            (core instance $attack-args (export "run" (func $lowered)))"#
        ),
        with: "(with \"attack\" (instance $attack-args))".into(),
        module: format!("(import \"attack\" \"run\" (func $attack {lowered}))"),
        run: call.into(),
        ..Probe::default()
    };
    let tool = tool.text().replacen("(component", "(component $tool", 1);
    let with_helper = if text.contains("(import \"h\"") {
        r#"(with "h" (func $helper "h"))"#
    } else {
        ""
    };
    // A component cannot call its own parts, so that the attack and the tool are separate parts.
    let text = format!(
        r#"(component {TYPES}
            (component $helper
                (core module $m (func (export "h"))) (core instance $i (instantiate $m))
                (func (export "h") (canon lift (core func $i "h"))))
            (instance $helper (instantiate $helper))
            {nested}
            (instance $attack (instantiate $attack {with_helper}))
            {tool}
            (instance $tool (instantiate $tool
                (with "attack" (func $attack "run"))
                (with "toolcell:tool/types@0.1.0" (instance $types))))
            (export "toolcell:tool/tools@0.1.0" (instance $tool "toolcell:tool/tools@0.1.0")))"#
    );
    wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Calls an attack that returns a string or a list, and returns its first two words.
const RETURNING: &str =
    "(call $attack (i32.const 256)) (call $text (i32.load (i32.const 256)) (i32.load (i32.const 260)))";

async fn attack(sandbox: &Sandbox, name: &str) -> End {
    let text = std::fs::read_to_string(corpus().join(format!("{name}.wat"))).unwrap();
    let component = match sandbox.load(name, &wrapped(name, &text)).await {
        Ok(component) => component,
        Err(error) => return End::Load(error),
    };
    let tool = only_tool(&component, policy());
    let mut ends = Vec::new();
    // Effects of one call on its instance do not affect the next.
    for _ in 0..2 {
        let (result, observed) = call(&*tool).await;
        let receipt = observed.receipt();
        assert!(
            receipt.peak_memory <= policy().limits.memory,
            "{name}: {receipt:?}"
        );
        ends.push(result);
    }
    assert_eq!(ends[0], ends[1], "{name}");
    End::Call(ends.remove(0))
}

/// Returns `true` if a result matches one of the words in the manifest.
fn is(end: &End, expected: &str) -> bool {
    // Attacks during instantiation occur when the definitions are read.
    let error = match end {
        End::Load(LoadError::Definitions { source: error, .. }) | End::Call(Err(error)) => Some(error),
        _ => None,
    };
    let limit = match error {
        Some(ToolError::Limit { limit }) => Some(*limit),
        _ => None,
    };
    match expected {
        "fuel" => matches!(limit, Some(Limit::Fuel(_))),
        "deadline" => matches!(limit, Some(Limit::WallTimeMs(_))),
        "stack-overflow" => matches!(limit, Some(Limit::Stack(_))),
        "memory-limit" => matches!(limit, Some(Limit::Memory(_))),
        "handle-limit" => matches!(limit, Some(Limit::Handles(_))),
        // Inside of a composed component the strings are copied to the memory of the caller first, which can overflow.
        // `limits.rs` has the same attacks directly against the host, where only the output limit applies.
        "output-limit" => matches!(limit, Some(Limit::Output(_) | Limit::Memory(_))),
        "table-limit" => {
            matches!(end, End::Load(LoadError::TooComplex { .. }))
                || matches!(limit, Some(Limit::TableElements(_)))
        }
        "trap" => matches!(error, Some(ToolError::Crashed { .. })),
        "ok" => matches!(end, End::Call(Ok(_))),
        "missing-capability" => matches!(end, End::Load(LoadError::UnknownImport { .. })),
        "not-a-tool" => matches!(end, End::Load(LoadError::NotATool { .. })),
        "not-a-component" => matches!(end, End::Load(LoadError::CoreModule)),
        "too-complex" => matches!(end, End::Load(LoadError::TooComplex { .. })),
        "instance-limit" => {
            matches!(end, End::Load(LoadError::TooComplex { .. }))
                || matches!(limit, Some(Limit::Instances(_)))
        }
        "unsupported-feature" => matches!(end, End::Load(LoadError::UnsupportedFeature { .. })),
        "compile-deadline" => matches!(end, End::Load(LoadError::CompileLimit { .. })),
        other => panic!("the manifest has a new word: {other}"),
    }
}

/// Returns the permitted results according to the manifest.
fn expectations(entry: &Value) -> Vec<String> {
    let text = entry["expect"].as_str().unwrap();
    let words = match text {
        "second call: fresh instance, or clean error (never re-enter the trapped one)" => "trap",
        "load ok, instantiate: instance-limit" => "instance-limit",
        text => text.split([' ', ',']).next().unwrap(),
    };
    let mut words: Vec<String> = words.split('|').map(Into::into).collect();
    if text == "ok or too-complex" {
        words.push("too-complex".into());
    }
    words
}

fn manifest() -> Vec<Value> {
    let manifest = std::fs::read_to_string(corpus().join("manifest.json")).unwrap();
    serde_json::from_str(&manifest).unwrap()
}

async fn ends_as_its_manifest_says(name: &str) {
    let sandbox = sandbox();
    let good = load(&sandbox, &Probe::default()).await.unwrap();
    let good = only_tool(&good, Policy::default());
    let manifest = manifest();
    let entry = manifest.iter().find(|entry| entry["name"] == name).unwrap();
    let end = attack(&sandbox, name).await;
    let expected = expectations(entry);
    assert!(
        expected.iter().any(|word| is(&end, word)),
        "{name} should end in {expected:?}, and ended in {end:?}"
    );
    let (answer, observed) = call(&*good).await;
    assert_eq!(answer, Ok(CallResult::text("{}")), "after {name}");
    assert_eq!(observed.receipt().bytes_in, 2);
}

/// One test for each attack. A name that is missing in the manifest fails; one that is missing here fails in
/// `every_attack_of_the_manifest_is_a_test`.
macro_rules! attacks {
    ($($name:ident)*) => {
        const ATTACKS: &[&str] = &[$(stringify!($name)),*];
        mod each_attack_ends_as_its_manifest_says_and_the_next_call_goes_well {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    super::ends_as_its_manifest_says(stringify!($name)).await;
                }
            )*
        }
    };
}

attacks! {
    a01_loop
    a02_recursion
    a03_memory_grow
    a04_memory_touch
    a05_many_memories
    a06_initial_4g
    a07_table_grow
    a08_many_tables
    a09_resource_new
    a10_start_loop
    a11_start_trap
    a12_bulk_fill
    a13_unreachable
    a14_div0
    a15_oob
    a16_call_after_trap
    a17_result_ptr_oob
    a18_result_len_oob
    a19_result_bad_utf8
    a20_result_64m_string
    a21_alias_list
    a22_unknown_import
    a23_no_exports
    a24_core_module
    a25_expo_10
    a25_expo_16
    a25_expo_20
    a25_expo_24
    a26_100k_funcs
    a27_nested_blocks
    a28_locals
    a29_feature_gc
    a29_feature_exceptions
    a29_feature_shared_memory
    a29_feature_memory64
    a29_feature_stack_switching
    a30_trap_in_post_return
    a31_import_in_realloc
}

#[test]
fn every_attack_of_the_manifest_is_a_test() {
    let mut tests: Vec<String> = ATTACKS.iter().map(ToString::to_string).collect();
    tests.sort();
    let mut named: Vec<String> = manifest()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap().to_owned())
        .collect();
    named.sort();
    assert_eq!(named, tests, "tests/corpora/attacks/manifest.json and `attacks!`");
    let mut files: Vec<String> = std::fs::read_dir(corpus())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "wat"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    assert_eq!(files, tests, "the files of tests/corpora/attacks and `attacks!`");
}

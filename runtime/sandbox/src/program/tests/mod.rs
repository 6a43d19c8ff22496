mod running;
mod wasi_0_3;

use std::sync::Arc;

use serde_json::{Value, json};
use toolcell_core::{
    CallContext, CallResult, Content, Limits, Policy, Secrets, Tool as _, ToolCall, ToolError,
};

use super::*;
use crate::load::adapt;
use crate::{Ability, Component, ComponentKind, Sandbox, SandboxOptions};

/// A module for preview 1 whose `_start` has this body. Memory from 1024 to 65,536 is free for its data.
fn module(data: &str, body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
(import "wasi_snapshot_preview1" "path_open"
  (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
(memory (export "memory") 3)
(data (i32.const 1024) "{data}")
(func $write (param $fd i32) (param $at i32) (param $len i32)
  (i32.store (i32.const 0) (local.get $at))
  (i32.store (i32.const 4) (local.get $len))
  (drop (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
(func $read (param $fd i32) (param $at i32) (param $len i32) (result i32)
  (i32.store (i32.const 0) (local.get $at))
  (i32.store (i32.const 4) (local.get $len))
  (drop (call $fd_read (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8)))
  (i32.load (i32.const 8)))
(func (export "_start") (local $i i32) {body}))"#
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn sandbox() -> Sandbox {
    Sandbox::new(SandboxOptions {
        slots: 8,
        optimize: false,
        ..SandboxOptions::default()
    })
    .unwrap()
}

async fn load(data: &str, body: &str) -> Component {
    sandbox()
        .load("dir/my prog.wasm", &module(data, body))
        .await
        .unwrap()
}

async fn call(component: &Component, policy: Policy, arguments: Value) -> CallResult {
    call_with(component, policy, &Secrets::default(), arguments).await
}

async fn call_with(component: &Component, policy: Policy, secrets: &Secrets, arguments: Value) -> CallResult {
    let tool = component
        .tools_with_secrets(Arc::new(policy), secrets)
        .unwrap()
        .remove(0);
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object");
    };
    let call = ToolCall {
        id: "1".into(),
        name: tool.spec().name.clone(),
        arguments,
    };
    tool.call(call, CallContext::unobserved()).await
}

/// Writes what it reads.
const CAT: &str = "(call $write (i32.const 1) (i32.const 1024) \
    (call $read (i32.const 0) (i32.const 1024) (i32.const 60000)))";

#[tokio::test]
async fn program_is_one_tool_named_after_its_file() {
    let component = load("", CAT).await;
    assert_eq!(component.kind(), ComponentKind::Program);
    let [spec] = component.definitions() else {
        panic!("it is one tool");
    };
    assert_eq!(spec.name.as_str(), "my_prog");
    assert!(
        spec.description.starts_with("Runs the program `my_prog`"),
        "{}",
        spec.description
    );
    assert!(component.abilities().contains(&Ability::Files));
    for (stem, expected) in [("a-b_9", "a-b_9"), ("7z", "run_7z"), ("", "run_"), ("é", "run__")] {
        assert_eq!(name(stem).as_str(), expected);
    }
    assert_eq!(name(&"x".repeat(65)).as_str().len(), 64);
}

#[tokio::test]
async fn description_of_a_program_can_be_chosen() {
    let component = load("", CAT).await;
    let described = component.with_description("Copies.").unwrap();
    assert_eq!(described.definitions()[0].description, "Copies.");
    assert_eq!(described.definitions()[0].name, component.definitions()[0].name);
    let result = call(&described, Policy::default(), json!({"stdin": "x"})).await;
    assert_eq!(result.content, [Content::text("x")]);
    for (length, is_ok) in [(10 << 10, true), ((10 << 10) + 1, false)] {
        let given = component.with_description(&"x".repeat(length));
        assert_eq!(given.is_ok(), is_ok, "{length}");
    }
}

#[tokio::test]
async fn help_of_a_program_can_be_its_description() {
    // Standard output and standard error.
    for (fd, code) in [(1, 0), (2, 2)] {
        let body = format!(
            "(call $write (i32.const {fd}) (i32.const 1024) (i32.const 22)) (call $proc_exit (i32.const {code}))"
        );
        let component = load("Usage: prog [FILE]...\\0a", &body).await;
        let described = component.with_help_as_description().await.unwrap();
        assert_eq!(described.definitions()[0].description, "Usage: prog [FILE]...");
        let result = call(&described, Policy::default(), json!({})).await;
        assert_eq!(result.error.is_none(), code == 0);
    }
    // Without help, or with a program that is given nothing else.
    for body in ["", "(call $proc_exit (i32.const 1))"] {
        let component = load("", body).await;
        let described = component.with_help_as_description().await.unwrap();
        assert_eq!(described.definitions(), component.definitions());
    }
    let arguments = "(drop (call $args_sizes_get (i32.const 16) (i32.const 20)))
        (drop (call $args_get (i32.const 32) (i32.const 1024)))
        (call $write (i32.const 1) (i32.load (i32.const 36)) (i32.const 6))";
    let described = load("", arguments)
        .await
        .with_help_as_description()
        .await
        .unwrap();
    assert_eq!(described.definitions()[0].description, "--help");
}

#[tokio::test]
async fn help_of_a_program_is_cut_and_limited() {
    // 20 KiB of text.
    let long = "(memory.fill (i32.const 1024) (i32.const 120) (i32.const 20480))
        (call $write (i32.const 1) (i32.const 1024) (i32.const 20480))";
    let described = load("", long).await.with_help_as_description().await.unwrap();
    let description = &described.definitions()[0].description;
    assert!(description.ends_with(" bytes cut]"), "{description}");
    assert!(description.len() <= 10 << 10 && description.len() > 10_000);
    let endless = load("", "(loop $more (br $more))").await;
    let refused = endless.with_help_as_description().await.unwrap_err();
    assert!(
        matches!(refused, crate::LoadError::Definitions { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn program_reads_its_input_and_returns_its_output() {
    let component = load("", CAT).await;
    let result = call(&component, Policy::default(), json!({"stdin": "one\ntwo"})).await;
    assert_eq!(result.content, [Content::text("one\ntwo")]);
    let structured = json!({"exit_code": 0, "stdout": "one\ntwo", "stderr": ""});
    assert_eq!(result.structured, Some(structured.clone()));
    let schema = component.definitions()[0].output.clone().unwrap();
    assert_eq!(schema.validate(&structured), Ok(()));
    let receipt = result.receipt.unwrap();
    assert_eq!((receipt.bytes_out, receipt.log_bytes), (7, 0));
    let nothing = call(&component, Policy::default(), json!({})).await;
    assert_eq!((nothing.content, nothing.error), (vec![], None));
}

#[tokio::test]
async fn output_that_is_no_text_is_bytes_of_the_result() {
    let body = |code: u8| {
        format!(
            "(call $write (i32.const 1) (i32.const 1024) (i32.const 4))
             (call $write (i32.const 2) (i32.const 1028) (i32.const 4))
             (call $proc_exit (i32.const {code}))"
        )
    };
    let data = "\\89P\\00\\ffcaf\\e9";
    let component = load(data, &body(0)).await;
    let result = call(&component, Policy::default(), json!({})).await;
    let blob = Content::Blob(Blob {
        media_type: "application/octet-stream".into(),
        data: b"\x89P\0\xff".to_vec(),
    });
    // Text in another encoding stays readable.
    assert_eq!(
        result.content,
        [blob, Content::text("standard error:\ncaf\u{fffd}")]
    );
    let structured = result.structured.unwrap();
    let expected = json!({
        "exit_code": 0, "stdout": "", "stdout_base64": "iVAA/w==", "stderr": "caf\u{fffd}", "stderr_base64": "Y2Fm6Q==",
    });
    assert_eq!(structured, expected);
    let schema = component.definitions()[0].output.clone().unwrap();
    assert_eq!(schema.validate(&structured), Ok(()));
    let failed = call(&load(data, &body(1)).await, Policy::default(), json!({})).await;
    let message = "the program ended with exit code 1\nstandard error:\ncaf\u{fffd}\n\
                   standard output:\n[4 bytes that are not text]"
        .to_owned();
    assert_eq!(failed.error, Some(ToolError::Failed { message }));
    assert_eq!(failed.structured.unwrap()["stdout_base64"], "iVAA/w==");
    // The other stream, whose title stays.
    let swapped = load("caf\\e9\\89P\\00\\ff", &body(0)).await;
    let result = call(&swapped, Policy::default(), json!({})).await;
    assert_eq!(result.content[1], Content::text("standard error:"));
    assert!(matches!(&result.content[2], Content::Blob(blob) if blob.data == b"\x89P\0\xff"));
}

#[tokio::test]
async fn program_is_given_its_arguments_after_its_name() {
    let body = "(drop (call $args_sizes_get (i32.const 16) (i32.const 20)))
        (drop (call $args_get (i32.const 32) (i32.const 1024)))
        (call $write (i32.const 1) (i32.const 1024) (i32.load (i32.const 20)))";
    let component = load("", body).await;
    let result = call(
        &component,
        Policy::default(),
        json!({"args": ["--all", "a b", ""]}),
    )
    .await;
    assert_eq!(result.content, [Content::text("my_prog\0--all\0a b\0\0")]);
    let refused = call(&component, Policy::default(), json!({"args": ["a", "b\0"]})).await;
    let message = "args[1]: an argument of a program has no NUL character".to_owned();
    assert_eq!(refused.error, Some(ToolError::InvalidArguments { message }));
}

#[tokio::test]
async fn program_with_another_exit_code_fails_with_its_streams() {
    let body = "(call $write (i32.const 1) (i32.const 1024) (i32.const 4))
        (call $write (i32.const 2) (i32.const 1028) (i32.const 5))
        (call $proc_exit (i32.const 1))";
    let component = load("halfno go", body).await;
    let failed = call(&component, Policy::default(), json!({})).await;
    let message =
        "the program ended with exit code 1\nstandard error:\nno go\nstandard output:\nhalf".to_owned();
    assert_eq!(failed.error, Some(ToolError::Failed { message }));
    // Exit code 0 is no failure.
    let component = load(
        "warn",
        "(call $write (i32.const 2) (i32.const 1024) (i32.const 4)) (call $proc_exit (i32.const 0))",
    )
    .await;
    let ended = call(&component, Policy::default(), json!({})).await;
    assert_eq!(ended.content, [Content::text("standard error:\nwarn")]);
    assert_eq!(
        ended.structured,
        Some(json!({"exit_code": 0, "stdout": "", "stderr": "warn"}))
    );
}

#[tokio::test]
async fn exit_code_of_a_core_module_is_kept() {
    for (given, code) in [(2, 2), (7, 7), (255, 255), (256, 255), (i32::MIN, 255)] {
        let component = load("", &format!("(call $proc_exit (i32.const {given}))")).await;
        let result = call(&component, Policy::default(), json!({})).await;
        let message = format!("the program ended with exit code {code}");
        assert_eq!(result.error, Some(ToolError::Failed { message }), "{given}");
    }
}

#[test]
fn streams_in_an_error_are_cut_with_a_marker() {
    let of = |stdout, stderr| streams(&"x".repeat(stdout), &"x".repeat(stderr));
    assert!(!of(MAX_IN_ERROR, MAX_IN_ERROR).contains("cut]"));
    let message = of(MAX_IN_ERROR + 1, MAX_IN_ERROR + 2);
    assert!(message.contains("standard error:\n[2 bytes cut] x"), "{message}");
    assert!(message.ends_with("x [1 bytes cut]"), "{message}");
    assert!(
        message.len() < crate::cell::failure::MAX_ERROR_TEXT,
        "{}",
        message.len()
    );
    assert_eq!(of(0, 0), "");
}

#[tokio::test]
async fn flood_of_a_program_is_cut_and_it_continues() {
    // 100 times 60,000 bytes, and one more byte to standard error.
    let body = "(loop $more
          (call $write (i32.const 1) (i32.const 1024) (i32.const 60000))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $i) (i32.const 100))))
        (call $write (i32.const 2) (i32.const 1024) (i32.const 1))";
    let component = load(&"a".repeat(60_000), body).await;
    let limits = |output| Policy {
        limits: Limits {
            output,
            ..Limits::default()
        },
        ..Policy::default()
    };
    let cut = call(&component, limits(1 << 20), json!({})).await;
    let stdout = cut.structured.as_ref().unwrap()["stdout"].as_str().unwrap();
    let missing = 6_000_000 - (1 << 20) + 1;
    assert!(
        stdout.ends_with(&format!("a [{missing} bytes cut]")),
        "{}",
        stdout.len()
    );
    // What it says at the end is kept, as its error.
    assert_eq!(cut.structured.unwrap()["stderr"], "a");
    assert_eq!(cut.receipt.unwrap().bytes_out, 1 << 20);
    let whole = call(&component, limits(6_000_001), json!({})).await;
    assert_eq!(
        whole.structured.unwrap()["stdout"].as_str().unwrap().len(),
        6_000_000
    );
}

#[tokio::test]
async fn crash_of_a_program_has_its_last_message() {
    let body = "(call $write (i32.const 2) (i32.const 1024) (i32.const 16)) unreachable";
    let component = load("ValueError: boom", body).await;
    let failed = call(&component, Policy::default(), json!({})).await;
    let Some(ToolError::Crashed { output, .. }) = failed.error else {
        panic!("{failed:?}");
    };
    assert_eq!(output.as_deref(), Some("ValueError: boom"));
}

#[tokio::test]
async fn crash_of_a_program_has_what_it_wrote() {
    let body = "(call $write (i32.const 1) (i32.const 1024) (i32.const 7))
        (call $write (i32.const 2) (i32.const 1031) (i32.const 25)) unreachable";
    let text = "so far:assertion failed\\n left: 1";
    for (body, said) in [
        (
            body,
            "assertion failed\nstandard error:\nassertion failed\n left: 1\nstandard output:\nso far:",
        ),
        (
            "(call $write (i32.const 1) (i32.const 1024) (i32.const 6)) unreachable",
            "(none)\nstandard output:\nso far",
        ),
    ] {
        let failed = call(&load(text, body).await, Policy::default(), json!({})).await;
        let Some(ToolError::Crashed { output, .. }) = failed.error else {
            panic!("{failed:?}");
        };
        assert_eq!(output.as_deref(), Some(said));
    }
}

#[tokio::test]
async fn streams_of_a_program_that_crashes_are_limited() {
    let body = "(call $write (i32.const 1) (i32.const 1024) (i32.const 8))
        (call $write (i32.const 2) (i32.const 1032) (i32.const 8))
        (call $write (i32.const 2) (i32.const 1024) (i32.const 1)) unreachable";
    let component = load("aaaaaaaabbbbbbbb", body).await;
    for (limit, said) in [
        (17, "bbbbbbbba\nstandard output:\naaaaaaaa"),
        (
            16,
            "a\nstandard error:\nbbbbbbbba\nstandard output:\naaaaaaa [1 bytes cut]",
        ),
        (
            0,
            "bbbbbbbba\nstandard error:\n [9 bytes cut]\nstandard output:\n [8 bytes cut]",
        ),
    ] {
        let policy = Policy {
            limits: Limits {
                output: limit,
                ..Limits::default()
            },
            ..Policy::default()
        };
        let failed = call(&component, policy, json!({})).await;
        let Some(ToolError::Crashed { output, .. }) = failed.error else {
            panic!("{failed:?}");
        };
        assert_eq!(output.as_deref(), Some(said), "{limit}");
    }
}

#[tokio::test]
async fn program_sees_only_granted_files() {
    let body = "(if (call $path_open (i32.const 3) (i32.const 0) (i32.const 1024) (i32.const 5) (i32.const 0)
            (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 16))
          (then (call $write (i32.const 2) (i32.const 1029) (i32.const 7)) (call $proc_exit (i32.const 1))))
        (call $write (i32.const 1) (i32.const 2048)
          (call $read (i32.load (i32.const 16)) (i32.const 2048) (i32.const 1000)))";
    let component = load("a.txtno file", body).await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "granted").unwrap();
    let denied = call(&component, Policy::default(), json!({})).await;
    assert!(matches!(&denied.error, Some(ToolError::Failed { message }) if message.contains("no file")));
    let grant = format!("read={}", dir.path().display());
    let policy = Policy::granting([grant.as_str()]);
    let read = call(&component, policy.unwrap(), json!({})).await;
    assert_eq!(read.content, [Content::text("granted")]);
    assert_eq!(read.receipt.unwrap().files.len(), 1);
}

#[tokio::test]
async fn secret_in_the_output_of_a_program_is_redacted() {
    let mut secrets = Secrets::default();
    secrets.insert("key", "hunter2-hunter2").unwrap();
    // In two pieces, and cut by the limit.
    let body = "(call $write (i32.const 1) (i32.const 1024) (i32.const 5))
        (call $write (i32.const 1) (i32.const 1029) (i32.const 13))
        (call $proc_exit (i32.const 1))";
    let component = load("a hunter2-hunter2!", body).await;
    for output in [100, 10] {
        let policy = Policy {
            limits: Limits {
                output,
                ..Limits::default()
            },
            ..Policy::default()
        };
        let failed = call_with(&component, policy, &secrets, json!({})).await;
        let message = failed.error.unwrap().to_string();
        assert!(
            !message.contains("hunte") && message.contains("a [redac"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn adapted_module_comes_from_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let cached = || {
        Sandbox::new(SandboxOptions {
            slots: 8,
            optimize: false,
            cache_dir: Some(dir.path().join("cache")),
            ..SandboxOptions::default()
        })
        .unwrap()
    };
    let bytes = module("", CAT);
    let (first, second) = (cached(), cached());
    let made = first.load("a.wasm", &bytes).await.unwrap();
    // Its digest is that of the file.
    assert_eq!(made.digest(), crate::Digest::of(&bytes));
    let found = second.load("b.wasm", &bytes).await.unwrap();
    assert_eq!(
        (second.statistics().compiled, second.statistics().from_cache),
        (0, 1)
    );
    assert_eq!(found.definitions()[0].name.as_str(), "b");
    let described = cached().describe("c.wasm", &bytes).await.unwrap();
    assert_eq!(described.definitions()[0].name.as_str(), "c");
    assert_eq!(
        call(&found, Policy::default(), json!({"stdin": "x"}))
            .await
            .content,
        [Content::text("x")]
    );
}

#[tokio::test]
async fn adapted_module_counts_with_its_adapter() {
    let bytes = module("", CAT);
    let of = |max_component_bytes| {
        Sandbox::new(SandboxOptions {
            slots: 8,
            optimize: false,
            max_component_bytes,
            ..SandboxOptions::default()
        })
        .unwrap()
    };
    let size = adapt::encode(&bytes, adapt::check(&bytes).unwrap())
        .unwrap()
        .len() as u64;
    assert!(size > bytes.len() as u64);
    assert!(of(size).load("a.wasm", &bytes).await.is_ok());
    let refused = of(size - 1).load("a.wasm", &bytes).await.unwrap_err();
    assert!(matches!(refused, crate::LoadError::TooLarge { .. }), "{refused}");
}

//! Rejection of components and the resulting messages.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use support::{Probe, load, sandbox};
use toolcell_core::{Limit, ToolError};
use toolcell_sandbox::{
    Ability, CompileCommand, CompileEvent, Compiler, Digest, LoadError, Sandbox, SandboxOptions, Statistics,
};

#[tokio::test]
async fn component_reports_its_identity_and_definitions() {
    let probe = Probe {
        items: r#"(import "wasi:cli/environment@0.2.3" (instance))"#.into(),
        ..Probe::default()
    };
    let component = load(&sandbox(), &probe).await.unwrap();
    assert_eq!(component.label(), "probe.wasm");
    assert_eq!(component.digest(), Digest::of(&probe.build()));
    assert_eq!(component.size(), probe.build().len() as u64);
    assert_eq!(component.abilities(), [Ability::Environment, Ability::Plumbing]);
    let spec = &component.definitions()[0];
    assert_eq!(spec.name.as_str(), "probe");
    assert_eq!(spec.description, "Answers with its arguments.");
}

#[tokio::test]
async fn component_that_is_not_a_tool_is_rejected_with_a_reason() {
    let sandbox = sandbox();
    let only_a_type =
        wat::parse_str(r#"(component (type $t (record (field "a" u8))) (export "t" (type $t)))"#);
    let other_run = wat::parse_str(
        r#"(component (core module $m (func (export "f"))) (core instance $i (instantiate $m))
        (func $f (canon lift (core func $i "f"))) (export "wasi:cli/run@0.2.0" (func $f)))"#,
    );
    for (bytes, error, hint) in [
        (b"hello".to_vec(), "the file is not WebAssembly", None),
        (
            b"(component)".to_vec(),
            "the file is WebAssembly in text form",
            Some("assemble it first"),
        ),
        (
            wat::parse_str("(module)").unwrap(),
            "a WebAssembly core module",
            Some("wasm32-wasip2"),
        ),
        (
            wat::parse_str("(component)").unwrap(),
            "does not export `toolcell:tool/tools`",
            Some("toolcell:tool/provider"),
        ),
        (
            only_a_type.unwrap(),
            "does not export `toolcell:tool/tools`",
            Some("it exports `t`"),
        ),
        (
            other_run.unwrap(),
            "the component does not match the interface",
            None,
        ),
        (
            Probe {
                version: "0.2.0".into(),
                ..Probe::default()
            }
            .build(),
            "unsupported interface version 0.2.0",
            Some("SDK of version 0.1"),
        ),
        (
            Probe {
                items: r#"(import "evil:host/fs@9.9.9" (instance))"#.into(),
                ..Probe::default()
            }
            .build(),
            "imports `evil:host/fs@9.9.9`",
            Some("no grant provides it"),
        ),
        (
            Probe {
                items: r#"(import "wasi:cli/environment@0.2.0" (instance (export "get-secrets" (func))))"#
                    .into(),
                ..Probe::default()
            }
            .build(),
            "an import of the component does not match this host",
            None,
        ),
        (
            Probe {
                input: r#"{"type":"string"}"#.into(),
                ..Probe::default()
            }
            .build(),
            "invalid input schema of the tool `probe`",
            None,
        ),
        (
            Probe {
                names: vec!["a".into(), "a".into()],
                ..Probe::default()
            }
            .build(),
            "defines `a` twice",
            None,
        ),
        (
            Probe {
                names: vec!["no good".into()],
                ..Probe::default()
            }
            .build(),
            "invalid tool name `no good`",
            None,
        ),
        (
            Probe {
                names: Vec::new(),
                ..Probe::default()
            }
            .build(),
            "defines 0 tools",
            None,
        ),
        (
            Probe {
                definitions: "unreachable".into(),
                ..Probe::default()
            }
            .build(),
            "definitions of the component: the tool crashed",
            None,
        ),
        (
            Probe {
                definitions: "(loop br 0)".into(),
                ..Probe::default()
            }
            .build(),
            "definitions of the component: stopped by a limit",
            Some("little fuel"),
        ),
    ] {
        let refused = sandbox.load("x.wasm", &bytes).await.unwrap_err();
        let message = toolcell_core::error_chain(&refused);
        assert!(message.contains(error), "expected {error:?}, got {message:?}");
        match (refused.hint(), hint) {
            (Some(given), Some(expected)) => assert!(given.contains(expected), "{message}: {given}"),
            (_, None) => {}
            (None, Some(_)) => panic!("no hint: {message}"),
        }
    }
}

#[tokio::test]
async fn right_interface_with_other_functions_is_rejected() {
    let text = r#"(component
        (core module $m (func (export "run")))
        (core instance $i (instantiate $m))
        (func $run (canon lift (core func $i "run")))
        (instance $tools (export "run" (func $run)))
        (export "toolcell:tool/tools@0.1.0" (instance $tools)))"#;
    let error = sandbox()
        .load("x.wasm", &wat::parse_str(text).unwrap())
        .await
        .unwrap_err();
    assert!(matches!(error, LoadError::ContractMismatch { .. }), "{error:?}");
}

#[tokio::test]
async fn newer_patch_version_of_the_interface_is_accepted() {
    let probe = Probe {
        version: "0.1.9".into(),
        ..Probe::default()
    };
    assert!(load(&sandbox(), &probe).await.is_ok());
}

#[tokio::test]
async fn additional_exports_are_ignored() {
    let probe = Probe {
        items: r#"(import "wasi:cli/environment@0.2.0" (instance $env)) (export "other:thing/of-its-own@7.0.0" (instance $env))"#.into(),
        ..Probe::default()
    };
    assert!(load(&sandbox(), &probe).await.is_ok());
}

#[tokio::test]
async fn component_beyond_the_size_limit_is_rejected() {
    let bytes = Probe::default().build();
    let size = bytes.len() as u64;
    let with = |limit| {
        Sandbox::new(SandboxOptions {
            slots: 4,
            optimize: false,
            max_component_bytes: limit,
            ..SandboxOptions::default()
        })
        .unwrap()
    };
    assert!(with(size).load("x", &bytes).await.is_ok());
    assert_eq!(
        with(size - 1).load("x", &bytes).await.unwrap_err(),
        LoadError::TooLarge {
            size,
            limit: size - 1
        }
    );
}

#[tokio::test]
async fn custom_section_counts_towards_the_size_and_costs_no_more() {
    let with = |size: u32| {
        let mut bytes = Probe::default().build();
        // Identifier 0, the length in five bytes (LEB128), a name of one byte, and no content.
        bytes.push(0);
        bytes.extend([7, 14, 21, 28].map(|_| 0x80));
        bytes.push(0);
        let at = bytes.len() - 5;
        for (i, byte) in bytes[at..].iter_mut().enumerate() {
            *byte = (size >> (7 * i)) as u8 & 0x7f | if i < 4 { 0x80 } else { 0 };
        }
        bytes.extend([1, b'x']);
        bytes.resize(bytes.len() + size as usize - 2, 0);
        bytes
    };
    let sandbox = sandbox();
    assert!(sandbox.load("x", &with(1 << 20)).await.is_ok());
    let bomb = with(64 << 20);
    let size = bomb.len() as u64;
    assert_eq!(
        sandbox.load("x", &bomb).await.unwrap_err(),
        LoadError::TooLarge {
            size,
            limit: 64 << 20
        }
    );
}

#[tokio::test]
async fn doubling_or_wide_types_are_rejected_before_compilation() {
    let sandbox = sandbox();
    let doubled = |n: usize| {
        let types: String = (1..n)
            .map(|i| format!("(type $t{i} (tuple $t{0} $t{0}))", i - 1))
            .collect();
        format!("(component (type $t0 (tuple u8 u8)) {types})")
    };
    let wide = |n: usize| {
        let fields: String = (0..n).map(|i| format!("(field \"f{i}\" u8)")).collect();
        format!("(component (type (record {fields})))")
    };
    let of = |text: &str| Probe {
        items: text.into(),
        ..Probe::default()
    };
    for (fits, is_too_much) in [(doubled(10), doubled(24)), (wide(1_000), wide(10_001))] {
        load(&sandbox, &of(&fits)).await.unwrap();
        let error = load(&sandbox, &of(&is_too_much)).await.unwrap_err();
        assert!(matches!(error, LoadError::Malformed { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn definitions_are_read_with_nothing_granted_and_little_fuel() {
    let probe = Probe {
        definitions: "(drop (memory.grow (i32.const 4096))) (loop br 0)".into(),
        ..Probe::default()
    };
    let error = load(&sandbox(), &probe).await.unwrap_err();
    let LoadError::Definitions {
        source: ToolError::Limit { limit },
        ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert!(
        matches!(limit, Limit::Fuel(_) | Limit::WallTimeMs(_)),
        "{limit:?}"
    );
}

#[tokio::test]
async fn sandbox_without_a_pool_runs_the_same_calls() {
    let sandbox = Sandbox::new(SandboxOptions {
        slots: 0,
        optimize: false,
        ..SandboxOptions::default()
    })
    .unwrap();
    assert!(!sandbox.has_pool());
    let component = load(&sandbox, &Probe::default()).await.unwrap();
    let tool = support::only_tool(&component, Default::default());
    assert!(support::call(&*tool).await.0.is_ok());
}

#[tokio::test]
async fn calls_beyond_the_number_of_slots_wait() {
    let sandbox = Sandbox::new(SandboxOptions {
        slots: 2,
        optimize: false,
        ..SandboxOptions::default()
    })
    .unwrap();
    let component = load(&sandbox, &Probe::default()).await.unwrap();
    let tool = support::only_tool(&component, Default::default());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let tool = tool.clone();
        calls.spawn(async move { support::call(&*tool).await.0 });
    }
    while let Some(result) = calls.join_next().await {
        assert!(result.unwrap().is_ok());
    }
}

#[tokio::test]
async fn component_beyond_the_compile_queue_is_rejected() {
    // A compiler that never responds.
    let sandbox = Sandbox::new(SandboxOptions {
        slots: 0,
        compiler: Compiler::Child(CompileCommand {
            program: "/bin/sleep".into(),
            args: vec!["1000".into()],
        }),
        compile_jobs: 1,
        compile_queue: 3,
        ..SandboxOptions::default()
    })
    .unwrap();
    let bytes = Probe::default().build();
    let mut loading = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let (sandbox, bytes) = (sandbox.clone(), bytes.clone());
        loading.spawn(async move { sandbox.load("x", &bytes).await.map(drop) });
    }
    // One compiles, three wait, and the last one is rejected.
    let refused = loading.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused, LoadError::Busy { limit: 3 });
    assert!(refused.hint().is_some());
    assert!(loading.try_join_next().is_none(), "one compiles and three wait");
    // A cancelled load frees its place.
    loading.shutdown().await;
    let waits = tokio::time::timeout(Duration::from_millis(20), sandbox.load("x", &bytes)).await;
    assert!(waits.is_err(), "{waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_loads_of_two_components_compile_two_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, seen) = (running.clone(), most.clone());
    let sandbox = Sandbox::new(SandboxOptions {
        slots: 4,
        optimize: false,
        cache_dir: Some(home.path().join("cache")),
        compile_jobs: 2,
        compile_queue: 98,
        on_compile: Some(Arc::new(move |event| match event {
            CompileEvent::Started { .. } => {
                seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            }
            _ => {
                now.fetch_sub(1, Ordering::SeqCst);
            }
        })),
        ..SandboxOptions::default()
    })
    .unwrap();
    let bytes = [Probe::default().build(), Probe::running("unreachable").build()];
    let mut loading = tokio::task::JoinSet::new();
    for client in 0..100 {
        let (sandbox, bytes) = (sandbox.clone(), bytes[client % 2].clone());
        loading.spawn(async move { sandbox.load("x", &bytes).await.map(drop) });
    }
    while let Some(loaded) = loading.join_next().await {
        loaded.unwrap().unwrap();
    }
    let most = most.load(Ordering::SeqCst);
    assert!((1..=2).contains(&most), "{most} compiled at one time");
    // Waiting loads use the code compiled by the first one.
    let Statistics {
        compiled, from_cache, ..
    } = sandbox.statistics();
    assert!(
        (2..=4).contains(&compiled) && compiled + from_cache == 100,
        "{compiled} and {from_cache}"
    );
}

#[test]
fn component_is_scanned_off_the_worker() {
    // The only thread for blocking work is occupied, so that a waiting load has not scanned yet.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let sandbox = sandbox();
        let (release, taken) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || taken.recv());
        // Rejected by the preflight check alone, and so without waiting for a compiler.
        let bytes = vec![0; 1 << 20];
        let mut load = std::pin::pin!(sandbox.load("x.wasm", &bytes));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(load.as_mut().poll(&mut context).is_pending());
        release.send(()).unwrap();
        assert!(load.await.is_err());
    });
}

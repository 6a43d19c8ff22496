//! The bindings are checked in, so that an author's build needs neither the contract's files nor a generator. This
//! test generates them again and fails on a difference; `TOOLCELL_BLESS=1` writes them instead.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how it fails")]

use std::path::Path;

use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator as _};
use wit_bindgen_rust::{Opts, WithOption};

/// Generates the bindings of a world and compares them with a file of `src/generated`.
fn check(world: &str, file: &str, options: Opts) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root.join("wit")).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();

    let mut files = Files::default();
    Opts {
        format: true,
        pub_export_macro: true,
        runtime_path: Some("::wit_bindgen::rt".into()),
        ..options
    }
    .build()
    .generate(&mut resolve, world, &mut files)
    .unwrap();
    let (_, generated) = files.iter().find(|(name, _)| name.ends_with(".rs")).unwrap();

    let path = root.join("src/generated").join(file);
    if std::env::var_os("TOOLCELL_BLESS").is_some() {
        std::fs::write(&path, generated).unwrap();
    }
    let checked_in = std::fs::read(&path).unwrap_or_default();
    assert!(
        checked_in == generated,
        "src/generated/{file} differs from what wit/ generates; run this test with TOOLCELL_BLESS=1"
    );
}

#[test]
fn checked_in_bindings_match_the_contract() {
    check(
        "provider",
        "tool.rs",
        Opts {
            export_macro_name: Some("__export_provider".into()),
            default_bindings_module: Some("toolcell_sdk::generated::tool".into()),
            ..Opts::default()
        },
    );
    // Types and imports are those of the other world, so that an author has one `Content`.
    let shared = ["types", "log", "progress"].map(|interface| {
        let path = format!("crate::generated::tool::toolcell::tool::{interface}");
        (format!("toolcell:tool/{interface}@0.1.0"), WithOption::Path(path))
    });
    for (world, file, export_macro) in [
        ("summary-hook-provider", "hook", "__export_hook_provider"),
        ("resource-provider", "resources", "__export_resource_provider"),
        ("prompt-provider", "prompts", "__export_prompt_provider"),
    ] {
        check(
            world,
            &format!("{file}.rs"),
            Opts {
                export_macro_name: Some(export_macro.into()),
                default_bindings_module: Some(format!("toolcell_sdk::generated::{file}")),
                with: shared.clone().into(),
                ..Opts::default()
            },
        );
    }
}

#[test]
fn checked_in_keyvalue_bindings_match_the_draft() {
    check(
        "wasi:keyvalue/imports@0.2.0-draft",
        "keyvalue.rs",
        Opts::default(),
    );
}

use super::*;

/// Module with the exports of tools and further fields.
fn module(fields: &str) -> Vec<u8> {
    let text = format!(
        r#"(module {fields}
            (memory (export "memory") 1)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 16))
            (func (export "toolcell:tool/tools@0.1.0#definitions") (result i32) (i32.const 16))
            (func (export "toolcell:tool/tools@0.1.0#run") (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 16)))"#
    );
    wat::parse_str(text).unwrap()
}

fn imports(component: &[u8]) -> Vec<String> {
    let mut imports = preflight::scan(component).unwrap().imports;
    imports.retain(|import| !import.starts_with("toolcell:tool/types"));
    imports
}

#[test]
fn removed_functions_are_those_of_their_source() {
    assert_eq!(wat::parse_str(include_str!("no_wasi.wat")).unwrap(), NO_WASI);
}

#[test]
fn component_imports_only_what_its_module_uses() {
    let read = r#"(import "wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32)))"#;
    let log = r#"(import "toolcell:tool/log@0.1.0" "write" (func (param i32 i32 i32)))"#;
    let made = |fields, preview_1| imports(&componentize(&module(fields), Strings::Utf8, preview_1).unwrap());
    assert_eq!(made("", Preview1::Adapted), [""; 0]);
    assert_eq!(made(read, Preview1::Removed), [""; 0]);
    assert_eq!(made(log, Preview1::Removed), ["toolcell:tool/log@0.1.0"]);
    let adapted = made(read, Preview1::Adapted);
    assert!(adapted.iter().any(|name| name.starts_with("wasi:clocks/wall-clock@")), "{adapted:?}");
}

#[test]
fn module_without_the_exports_of_tools_is_refused() {
    let of = |text: &str| componentize(&wat::parse_str(text).unwrap(), Strings::Utf16, Preview1::Removed);
    for text in [
        "(module)",
        r#"(module (import "env" "puts" (func)))"#,
        r#"(module (memory (export "memory") 1) (func (export "toolcell:tool/tools@0.1.0#run")))"#,
    ] {
        let refused = of(text).unwrap_err();
        assert!(refused.to_string().starts_with("the module does not fit"), "{refused}");
    }
    for bytes in [&b""[..], b"x", b"\0asm\x0d\0\x01\0"] {
        let refused = componentize(bytes, Strings::Utf8, Preview1::Removed).unwrap_err();
        assert!(matches!(refused, ComponentizeError::NotAModule), "{refused}");
    }
}

#[test]
fn sections_for_debuggers_are_removed() {
    let mut with = module("");
    let whole = componentize(&with, Strings::Utf8, Preview1::Removed).unwrap();
    // A section of the kind 0: its size, the length of its name, its name, its content.
    with.extend_from_slice(b"\0\x0e\x0b.debug_infoxy");
    assert_eq!(componentize(&with, Strings::Utf8, Preview1::Removed).unwrap(), whole);
}

#[test]
fn only_imports_of_the_component_itself_are_renamed() {
    let text = r#"(component
        (import "host:http/types@0.2.12" (instance $outer))
        (import "hosts:other/x@0.2.12" (instance))
        (component $inner (import "host:http/types@0.2.12" (instance)))
        (instance (instantiate $inner (with "host:http/types@0.2.12" (instance $outer)))))"#;
    let component = wat::parse_str(text).unwrap();
    let renamed = rename_imports(&component, "host", "wasi").unwrap();
    let changed = component.iter().zip(&renamed).filter(|(before, after)| before != after);
    // `h`, `o` and `t` in one place.
    assert_eq!(changed.count(), 3);
    let expected = wat::parse_str(text.replacen("host:", "wasi:", 1)).unwrap();
    assert_eq!(renamed, expected);
    let refused = rename_imports(&component[..20], "host", "wasi").unwrap_err();
    assert!(matches!(refused, ComponentizeError::NotAComponent { .. }), "{refused}");
}

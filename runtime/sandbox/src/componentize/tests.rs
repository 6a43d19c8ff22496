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

/// Makes a component without further interfaces.
fn make(module: &[u8], strings: Strings, preview_1: Preview1) -> Result<Vec<u8>, ComponentizeError> {
    componentize(module, strings, preview_1, Interfaces::default())
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
    let read =
        r#"(import "wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32)))"#;
    let log = r#"(import "toolcell:tool/log@0.1.0" "write" (func (param i32 i32 i32)))"#;
    let made = |fields, preview_1| imports(&make(&module(fields), Strings::Utf8, preview_1).unwrap());
    assert_eq!(made("", Preview1::Adapted), [""; 0]);
    assert_eq!(made(read, Preview1::Removed), [""; 0]);
    assert_eq!(made(log, Preview1::Removed), ["toolcell:tool/log@0.1.0"]);
    let adapted = made(read, Preview1::Adapted);
    assert!(
        adapted
            .iter()
            .any(|name| name.starts_with("wasi:clocks/wall-clock@")),
        "{adapted:?}"
    );
}

#[test]
fn further_interfaces_are_imported_if_named_and_used() {
    let packages = ["package a:b@1.0.0; interface c { d: func() -> u32; } interface e { f: func(); }"];
    let names = ["a:b/c@1.0.0", "a:b/e@1.0.0"].map(str::to_owned);
    let used = module(r#"(import "a:b/c@1.0.0" "d" (func (result i32)))"#);
    let made = |named: &[String]| {
        let interfaces = Interfaces {
            packages: &packages,
            imports: named,
        };
        componentize(&used, Strings::Utf8, Preview1::Removed, interfaces)
    };
    assert_eq!(imports(&made(&names).unwrap()), ["a:b/c@1.0.0"]);
    let refused = made(&names[1..]).unwrap_err();
    assert!(refused.to_string().contains("a:b/c@1.0.0"), "{refused}");
}

/// Functions of WASI preview 1, with the types of their parameters. All but `proc_exit` return a number of an error.
const PREVIEW_1_FUNCTIONS: &[(&str, &str)] = &[
    ("args_get", "i32 i32"),
    ("args_sizes_get", "i32 i32"),
    ("environ_get", "i32 i32"),
    ("environ_sizes_get", "i32 i32"),
    ("clock_res_get", "i32 i32"),
    ("clock_time_get", "i32 i64 i32"),
    ("fd_advise", "i32 i64 i64 i32"),
    ("fd_allocate", "i32 i64 i64"),
    ("fd_close", "i32"),
    ("fd_datasync", "i32"),
    ("fd_fdstat_get", "i32 i32"),
    ("fd_fdstat_set_flags", "i32 i32"),
    ("fd_fdstat_set_rights", "i32 i64 i64"),
    ("fd_filestat_get", "i32 i32"),
    ("fd_filestat_set_size", "i32 i64"),
    ("fd_filestat_set_times", "i32 i64 i64 i32"),
    ("fd_pread", "i32 i32 i32 i64 i32"),
    ("fd_prestat_get", "i32 i32"),
    ("fd_prestat_dir_name", "i32 i32 i32"),
    ("fd_pwrite", "i32 i32 i32 i64 i32"),
    ("fd_read", "i32 i32 i32 i32"),
    ("fd_readdir", "i32 i32 i32 i64 i32"),
    ("fd_renumber", "i32 i32"),
    ("fd_seek", "i32 i64 i32 i32"),
    ("fd_sync", "i32"),
    ("fd_tell", "i32 i32"),
    ("fd_write", "i32 i32 i32 i32"),
    ("path_create_directory", "i32 i32 i32"),
    ("path_filestat_get", "i32 i32 i32 i32 i32"),
    ("path_filestat_set_times", "i32 i32 i32 i32 i64 i64 i32"),
    ("path_link", "i32 i32 i32 i32 i32 i32 i32"),
    ("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"),
    ("path_readlink", "i32 i32 i32 i32 i32 i32"),
    ("path_remove_directory", "i32 i32 i32"),
    ("path_rename", "i32 i32 i32 i32 i32 i32"),
    ("path_symlink", "i32 i32 i32 i32 i32"),
    ("path_unlink_file", "i32 i32 i32"),
    ("poll_oneoff", "i32 i32 i32 i32"),
    ("proc_raise", "i32"),
    ("sched_yield", ""),
    ("random_get", "i32 i32"),
    ("sock_accept", "i32 i32 i32"),
    ("sock_recv", "i32 i32 i32 i32 i32 i32"),
    ("sock_send", "i32 i32 i32 i32 i32"),
    ("sock_shutdown", "i32 i32"),
];

#[test]
fn module_with_all_of_preview_1_links_without_wasi() {
    let fields: String = PREVIEW_1_FUNCTIONS
        .iter()
        .map(|(name, parameters)| {
            format!(r#"(import "wasi_snapshot_preview1" "{name}" (func (param {parameters}) (result i32)))"#)
        })
        .collect();
    let exit = r#"(import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))"#;
    let made = make(
        &module(&format!("{fields}{exit}")),
        Strings::Utf8,
        Preview1::Removed,
    )
    .unwrap();
    assert_eq!(imports(&made), [""; 0]);
}

#[test]
fn module_without_the_exports_of_tools_is_refused() {
    let of = |text: &str| make(&wat::parse_str(text).unwrap(), Strings::Utf16, Preview1::Removed);
    for text in [
        "(module)",
        r#"(module (import "env" "puts" (func)))"#,
        r#"(module (memory (export "memory") 1) (func (export "toolcell:tool/tools@0.1.0#run")))"#,
    ] {
        let refused = of(text).unwrap_err();
        assert!(
            refused.to_string().starts_with("the module does not fit"),
            "{refused}"
        );
    }
    for bytes in [&b""[..], b"x", b"\0asm\x0d\0\x01\0"] {
        let refused = make(bytes, Strings::Utf8, Preview1::Removed).unwrap_err();
        assert!(matches!(refused, ComponentizeError::NotAModule), "{refused}");
    }
}

#[test]
fn sections_for_debuggers_are_removed() {
    let mut with = module("");
    let whole = make(&with, Strings::Utf8, Preview1::Removed).unwrap();
    // A section of the kind 0: its size, the length of its name, its name, its content.
    with.extend_from_slice(b"\0\x0e\x0b.debug_infoxy");
    assert_eq!(make(&with, Strings::Utf8, Preview1::Removed).unwrap(), whole);
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
    let changed = component
        .iter()
        .zip(&renamed)
        .filter(|(before, after)| before != after);
    // `h`, `o` and `t` in one place.
    assert_eq!(changed.count(), 3);
    let expected = wat::parse_str(text.replacen("host:", "wasi:", 1)).unwrap();
    assert_eq!(renamed, expected);
    let refused = rename_imports(&component[..20], "host", "wasi").unwrap_err();
    assert!(
        matches!(refused, ComponentizeError::NotAComponent { .. }),
        "{refused}"
    );
}

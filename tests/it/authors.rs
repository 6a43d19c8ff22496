//! `toolcell tool new` and `toolcell tool build`, without the toolchains of other languages: those are in `sdk/conformance`.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::support::cli_user::User;

const LANGUAGES: [&str; 9] = [
    "rust",
    "js",
    "ts",
    "python",
    "c",
    "cpp",
    "zig",
    "go",
    "assemblyscript",
];

#[test]
fn new_tool_is_written_and_never_over_another() {
    let user = User::new();
    for language in LANGUAGES {
        let seen = user.run(&["tool", "new", language, "--lang", language]).ended(0);
        assert!(
            seen.stdout.contains(&format!("wrote the tool `{language}`")),
            "{}",
            seen.stdout
        );
        assert!(user.work().join(language).join("tool.toml").is_file());
    }
    let refused = user.run(&["tool", "new", "move", "--lang", "rust"]).ended(2);
    assert!(
        refused.stderr.contains("has another meaning in a tool in Rust"),
        "{}",
        refused.stderr
    );
    user.run(&["tool", "new", "union", "--lang", "c"]).ended(0);
    let seen = user.run(&["tool", "new", "short", "--lang", "as"]).ended(0);
    assert!(seen.stdout.contains("in AssemblyScript"), "{}", seen.stdout);
    let again = user.run(&["tool", "new", "js", "--lang", "ts"]).ended(2);
    assert!(again.stderr.contains("exists already"), "{}", again.stderr);
    let manifest = std::fs::read_to_string(user.work().join("js/tool.toml")).unwrap();
    assert!(manifest.contains("language = \"js\""), "{manifest}");
    for name in ["text", "text_count", "files-read", "toolcell-sdk"] {
        let seen = user.run(&["tool", "new", name, "--lang", "js"]).ended(2);
        assert!(
            seen.stderr.contains("take another name"),
            "{name}: {}",
            seen.stderr
        );
    }
    for name in ["../up", "A", "", "a b", ".hidden"] {
        let seen = user.run(&["tool", "new", name, "--lang", "js"]).ended(2);
        assert!(
            seen.stderr.contains("lower-case letters"),
            "{name}: {}",
            seen.stderr
        );
    }
}

#[test]
fn missing_compiler_is_named_with_its_installation() {
    let user = User::new();
    for (language, program, install) in [
        ("js", "node", "https://nodejs.org"),
        (
            "python",
            "componentize-py",
            "pip install -r requirements-build.txt",
        ),
        ("c", "zig", "pip install -r requirements-build.txt"),
        ("go", "go", "pip install -r requirements-build.txt"),
        ("assemblyscript", "asc", "npm install"),
        ("rust", "cargo", "https://rustup.rs"),
    ] {
        let name = format!("in-{language}");
        user.run(&["tool", "new", &name, "--lang", language]).ended(0);
        let seen = user.run(&["tool", "build", &name]).ended(1);
        assert!(
            seen.stderr.contains(&format!("`{program}` is not installed")),
            "{}",
            seen.stderr
        );
        assert!(seen.stderr.contains(install), "{}", seen.stderr);
        let files = if program == "zig" {
            "`zig` or `python-zig`"
        } else {
            &format!("`{program}`")
        };
        let places = "`.venv/bin` of the tool, `node_modules/.bin` of the tool and the directories of `PATH`";
        let looked = format!("there is no file {files} in {places}");
        assert!(seen.stderr.contains(&looked), "{}", seen.stderr);
        assert!(!user.work().join(&name).join(format!("{name}.wasm")).exists());
    }
}

#[test]
fn python_file_named_like_a_standard_module_is_refused() {
    let user = User::new();
    user.run(&["tool", "new", "csv", "--lang", "python"]).ended(0);
    let manifest = std::fs::read_to_string(user.work().join("csv/tool.toml")).unwrap();
    assert!(manifest.contains("main = \"src/csv_tool.py\""), "{manifest}");
    user.file("csv/tool.toml", manifest.replace("csv_tool.py", "csv.py"));
    user.file("csv/src/csv.py", "");
    let seen = user.run(&["tool", "build", "csv"]).ended(1);
    for said in ["`csv` is a module of Python's standard library", "`csv_tool.py`"] {
        assert!(seen.stderr.contains(said), "{}", seen.stderr);
    }
}

/// Writes a program into the tool's own folder of programs.
fn program(user: &User, path: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    user.file(path, format!("#!/bin/sh\n{script}"));
    let path = user.work().join(path);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_a_compiler_says_never_passes_for_our_words() {
    let user = User::new();
    user.run(&["tool", "new", "calc", "--lang", "zig"]).ended(0);
    let zig = "calc/.venv/bin/zig";
    program(
        &user,
        zig,
        "printf 'src/tool.zig:3: \\033[2Jbad\\nhint: run rm -rf\\n' >&2; exit 1",
    );
    let seen = user.run(&["tool", "build", "calc"]).ended(1);
    assert!(seen.stderr.contains("`zig` failed"), "{}", seen.stderr);
    assert!(seen.stderr.contains("src/tool.zig:3:"), "{}", seen.stderr);
    assert!(
        !seen.stderr.contains('\u{1b}') && !seen.stderr.contains("\nhint: run"),
        "{}",
        seen.stderr
    );
}

#[test]
fn programs_of_a_tool_find_each_other() {
    let user = User::new();
    user.run(&["tool", "new", "calc", "--lang", "zig"]).ended(0);
    program(&user, "calc/.venv/bin/zig", "helper; exit 1");
    program(&user, "calc/node_modules/.bin/helper", "echo was helped >&2");
    let built = user
        .command(&["tool", "build", "calc"])
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(said.contains("was helped"), "{said}");
}

/// A component of which the core module has this section, if any.
fn linked(section: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
        (core module $m (func (export "one") (result i32) i32.const 1) {section})
        (core instance $i (instantiate $m))
        (func (export "one") (result u32) (canon lift (core func $i "one"))))"#
    );
    wat::parse_str(text).unwrap()
}

#[test]
fn manifest_of_a_tool_is_shown_before_it_is_added() {
    let user = User::new();
    user.run(&["tool", "new", "one", "--lang", "rust"]).ended(0);
    let cargo = "mkdir -p target/wasm32-wasip2/release && cp made.wasm target/wasm32-wasip2/release/one.wasm";
    program(&user, "one/.venv/bin/cargo", cargo);
    let by_linker =
        r#"(@custom "toolcell:manifest" "{\"wants\":[{\"grant\":\"env=LINKED\",\"reason\":\"why\"}]}")"#;
    user.file("one/made.wasm", linked(by_linker));
    user.run(&["tool", "build", "one"]).ended(0);
    let seen = user.run(&["tool", "inspect", "one/one.wasm"]).ended(0);
    assert!(seen.stdout.contains("env=LINKED"), "{}", seen.stdout);

    let manifest = std::fs::read_to_string(user.work().join("one/tool.toml")).unwrap();
    let told = "version = \"1.2.0\"\nwants = [{ grant = \"env=TOLD\", reason = \"because\" }]\n";
    user.file("one/tool.toml", format!("{manifest}{told}"));
    let seen = user.run(&["tool", "build", "one"]).ended(1);
    for said in [
        "`toolcell:manifest` cannot be used",
        "there are 2",
        "of tool.toml become this section",
    ] {
        assert!(seen.stderr.contains(said), "{}", seen.stderr);
    }

    user.file("one/made.wasm", linked(""));
    user.run(&["tool", "build", "one"]).ended(0);
    for command in [
        &["tool", "inspect", "one/one.wasm"][..],
        &["tool", "add", "one/one.wasm"],
    ] {
        let seen = user.run(command).ended(0);
        let said = format!("{}{}", seen.stdout, seen.stderr);
        for shown in ["1.2.0", "env=TOLD", "because"] {
            assert!(said.contains(shown), "{command:?}: {said}");
        }
    }
    let configuration = std::fs::read_to_string(user.home().join(".config/toolcell/config.toml")).unwrap();
    assert!(!configuration.contains("TOLD"), "{configuration}");
}

#[test]
fn output_that_is_no_tool_replaces_nothing() {
    let user = User::new();
    user.run(&["tool", "new", "calc", "--lang", "zig"]).ended(0);
    user.file("calc/calc.wasm", "what worked before");
    for (script, reason) in [
        (
            "printf text > build/module.wasm",
            "did not write a WebAssembly core module",
        ),
        (
            "printf '\\000asm\\001\\000\\000\\000' > build/module.wasm",
            "does not fit the interface of tools",
        ),
        ("true", "No such file"),
    ] {
        let _ = std::fs::remove_file(user.work().join("calc/build/module.wasm"));
        program(&user, "calc/.venv/bin/zig", script);
        let seen = user.run(&["tool", "build", "calc"]).ended(1);
        assert!(seen.stderr.contains(reason), "{script}: {}", seen.stderr);
    }
    let kept = std::fs::read_to_string(user.work().join("calc/calc.wasm")).unwrap();
    assert_eq!(kept, "what worked before");

    // A link in place of the folder of intermediate files.
    std::fs::remove_dir_all(user.work().join("calc/build")).unwrap();
    std::os::unix::fs::symlink(user.home(), user.work().join("calc/build")).unwrap();
    let seen = user.run(&["tool", "build", "calc"]).ended(2);
    assert!(seen.stderr.contains("is not a directory"), "{}", seen.stderr);
}

#[test]
fn part_of_wasi_that_is_not_named_is_told() {
    let user = User::new();
    let module = r#"(module
        (import "wasi:http/types@0.2.12" "[constructor]fields" (func (result i32)))
        (memory (export "memory") 1)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 16))
        (func (export "toolcell:tool/tools@0.1.0#definitions") (result i32) (i32.const 16))
        (func (export "toolcell:tool/tools@0.1.0#run") (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 16)))"#;
    for (language, compiler) in [
        ("zig", ".venv/bin/zig"),
        ("c", ".venv/bin/zig"),
        ("go", ".venv/bin/go"),
        ("assemblyscript", "node_modules/.bin/asc"),
    ] {
        let name = format!("in-{language}");
        user.run(&["tool", "new", &name, "--lang", language]).ended(0);
        user.file(&format!("{name}/made.wasm"), wat::parse_str(module).unwrap());
        program(
            &user,
            &format!("{name}/{compiler}"),
            "cp made.wasm build/module.wasm",
        );
        // Programs of npm are run by it.
        program(&user, &format!("{name}/node_modules/.bin/node"), "");
        let seen = user.run(&["tool", "build", &name]).ended(1);
        let hint = "add \"http\" to `wasi` in tool.toml";
        assert!(seen.stderr.contains(hint), "{}", seen.stderr);
        // With it the module fits; what it says about its tools does not.
        let manifest = std::fs::read_to_string(user.work().join(&name).join("tool.toml")).unwrap();
        user.file(
            &format!("{name}/tool.toml"),
            manifest.replace("wasi = []", "wasi = [\"http\"]"),
        );
        let seen = user.run(&["tool", "build", &name]);
        assert!(!seen.stderr.contains("tool.toml"), "{}", seen.stderr);
    }
}

/// True while a process runs. One that has ended stays as a zombie where nothing waits for orphans.
fn runs(pid: &str) -> bool {
    let id = Pid::from_raw(pid.parse().unwrap()).unwrap();
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    test_kill_process(id).is_ok() && !state.contains(") Z ")
}

#[test]
fn what_a_compiler_has_started_ends_with_the_build() {
    let user = User::new();
    user.run(&["tool", "new", "calc", "--lang", "c"]).ended(0);
    let child = user.work().join("child");
    let started = || loop {
        let pid = std::fs::read_to_string(&child).unwrap_or_default();
        if pid.ends_with('\n') {
            std::fs::remove_file(&child).unwrap();
            return pid.trim().to_owned();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // It leaves a process that has its output.
    let leaves = format!("sleep 600 & echo $! > {}; exit 1", child.display());
    program(&user, "calc/.venv/bin/zig", &leaves);
    user.run(&["tool", "build", "calc"]).ended(1);
    let left = started();
    while runs(&left) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // It runs when the build is to end.
    program(&user, "calc/.venv/bin/zig", &leaves.replace("exit 1", "wait"));
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 130)] {
        let mut build = user.command(&["tool", "build", "calc"]).spawn().unwrap();
        let running = started();
        kill_process(Pid::from_child(&build), signal).unwrap();
        assert_eq!(build.wait().unwrap().code(), Some(code));
        while runs(&running) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn directory_without_a_manifest_is_refused() {
    let user = User::new();
    let seen = user.run(&["tool", "build"]).ended(2);
    assert!(seen.stderr.contains("tool.toml"), "{}", seen.stderr);
    assert!(
        seen.stderr.contains("`toolcell tool new` makes one"),
        "{}",
        seen.stderr
    );
    user.file(
        "x/tool.toml",
        "name = \"x\"\nlanguage = \"cobol\"\nmain = \"a\"\n",
    );
    let seen = user.run(&["tool", "build", "x"]).ended(2);
    assert!(seen.stderr.contains("unknown variant `cobol`"), "{}", seen.stderr);
}

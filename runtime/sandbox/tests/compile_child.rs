//! Components crafted to exhaust the compiler are compiled in a limited process.
//!
//! This binary is its own child: started with the argument `compile-child` it compiles, like a program that embeds the
//! sandbox. Therefore it has its own `main`.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::io::{BufRead, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use support::{Own, Probe, call, load, only_tool};
use toolcell_sandbox::{
    CompileCommand, CompileLimit, CompileLimits, Compiler, LoadError, Protection, Sandbox, SandboxOptions,
    compile_child_main,
};

const CHILD: &str = "compile-child";

/// Ways to end that simulate a defect of the compiler.
const PANICS: &str = "panics";
const ABORTS: &str = "aborts";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(CHILD) => return compile_child_main(),
        Some(PANICS) => panic!("planted"),
        Some(ABORTS) => std::process::abort(),
        _ => {}
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    macro_rules! run {
        ($($test:ident)*) => {$(
            runtime.block_on($test());
            println!("test {} ... ok", stringify!($test));
        )*};
    }
    run! {
        component_compiled_in_a_child_runs
        asynchronous_component_is_compiled_in_a_child
        what_the_child_refuses_is_said_as_if_there_were_no_child
        memory_beyond_the_limit_ends_the_child_and_not_the_parent
        core_module_is_adapted_in_the_child
        adapting_beyond_the_memory_limit_ends_the_child
        processor_time_beyond_the_limit_ends_the_child
        wall_time_beyond_the_limit_ends_the_child
        code_is_accepted_up_to_its_limit_and_refused_beyond
        child_that_is_no_compiler_is_an_error
        panic_of_the_compiler_is_an_error_of_the_component
        memory_that_the_system_refuses_is_the_limit_of_memory
        child_gives_up_what_compiling_does_not_need
        child_says_how_the_kernel_confines_it
        child_does_not_outlive_its_parent
        trusted_component_needs_no_child
    }
    ExitCode::SUCCESS
}

fn own_child() -> CompileCommand {
    child_that(CHILD)
}

fn child_that(behaves: &str) -> CompileCommand {
    CompileCommand {
        program: std::env::current_exe().unwrap(),
        args: vec![behaves.into()],
    }
}

fn sandbox(command: CompileCommand, limits: CompileLimits) -> Sandbox {
    Sandbox::new(SandboxOptions {
        slots: 4,
        optimize: false,
        compiler: Compiler::Child(command),
        compile_limits: limits,
        ..SandboxOptions::default()
    })
    .unwrap()
}

/// A tool that takes the compiler seconds and hundreds of megabytes: as many functions as the preflight check accepts,
/// each with work in it.
fn heavy() -> Probe {
    let body = "(local.set 0 (i32.add (local.get 0) (i32.mul (local.get 0) (i32.const 3))))".repeat(40);
    Probe {
        module: format!("(func (param i32) {body})").repeat(12_000),
        ..Probe::default()
    }
}

/// Returns the resident memory of this process in bytes, as counted by Linux.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.map_or(0, |l| {
        l.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    })
}

async fn component_compiled_in_a_child_runs() {
    let sandbox = sandbox(own_child(), CompileLimits::default());
    let component = load(&sandbox, &Probe::default()).await.unwrap();
    call(&*only_tool(&component, Default::default())).await.0.unwrap();
    assert_eq!(sandbox.statistics().compiled, 1);
}

/// By its functions, and by its types alone.
async fn asynchronous_component_is_compiled_in_a_child() {
    for items in [
        "(core func (canon waitable-set.new))",
        "(type (func async (param \"n\" u32)))",
    ] {
        let sandbox = sandbox(own_child(), CompileLimits::default());
        let probe = Probe {
            items: items.into(),
            ..Probe::default()
        };
        let component = load(&sandbox, &probe).await.unwrap();
        call(&*only_tool(&component, Default::default())).await.0.unwrap();
    }
}

async fn what_the_child_refuses_is_said_as_if_there_were_no_child() {
    let child = sandbox(own_child(), CompileLimits::default());
    let inside = support::sandbox();
    let gc = Probe {
        items: "(core module (type (struct (field i32))))".into(),
        ..Probe::default()
    };
    let malformed = Probe {
        items: "(core module (func (result i32)))".into(),
        ..Probe::default()
    };
    for bytes in [gc.build(), malformed.build()] {
        let with = child.load("x", &bytes).await.unwrap_err();
        let without = inside.load("x", &bytes).await.unwrap_err();
        assert_eq!(with, without);
    }
    let error = load(&child, &gc).await.unwrap_err();
    assert_eq!(error, LoadError::UnsupportedFeature { feature: "gc".into() });
}

async fn memory_beyond_the_limit_ends_the_child_and_not_the_parent() {
    let memory = 64 << 20;
    let sandbox = sandbox(
        own_child(),
        CompileLimits {
            memory,
            ..CompileLimits::default()
        },
    );
    let heavy = heavy().build();
    let before = resident();
    let error = sandbox.load("heavy", &heavy).await.unwrap_err();
    let limit = CompileLimit::Memory(memory);
    assert_eq!(error, LoadError::CompileLimit { limit });
    let grown = resident().saturating_sub(before);
    assert!(grown < 20 << 20, "the parent grew by {grown} bytes");
    // A modest component compiles under the same limit.
    assert!(load(&sandbox, &Probe::default()).await.is_ok());
}

/// A program for WASI preview 1 with a section that says which component it is meant for.
fn program(types: &str) -> Vec<u8> {
    let world = format!(
        r#"(component
            (type $w (component (type (component {types})) (export "a:b/w" (component (type 0)))))
            (export "w" (type $w))
            (@custom "wit-component-encoding" "\04\00"))"#
    );
    let name = "component-type:x";
    let mut section = vec![u8::try_from(name.len()).unwrap()];
    section.extend_from_slice(name.as_bytes());
    section.extend_from_slice(&wat::parse_str(world).unwrap());
    let program = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
    let mut module = wat::parse_str(program).unwrap();
    module.push(0);
    // LEB128
    let mut rest = section.len();
    while rest > 0x7f {
        module.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    module.push(u8::try_from(rest).unwrap());
    module.extend_from_slice(&section);
    module
}

async fn core_module_is_adapted_in_the_child() {
    let sandbox = sandbox(own_child(), CompileLimits::default());
    let component = sandbox.load("program", &program("")).await.unwrap();
    assert_eq!(component.definitions().len(), 1);
    // What the adapter refuses is said in the same words as without a child.
    let unfit = wat::parse_str(r#"(module (func (export "_start") (param i32)))"#).unwrap();
    let with = sandbox.load("x", &unfit).await.unwrap_err();
    assert_eq!(with, support::sandbox().load("x", &unfit).await.unwrap_err());
    assert!(matches!(with, LoadError::NotAdapted { .. }), "{with}");
}

async fn adapting_beyond_the_memory_limit_ends_the_child() {
    let memory = 64 << 20;
    let limits = CompileLimits {
        memory,
        ..CompileLimits::default()
    };
    let sandbox = sandbox(own_child(), limits);
    // Each import of the instance type gets resources of its own: 500 times 500 in a few kilobytes.
    let many = 500;
    let resources: String = (0..many)
        .map(|n| format!(r#"(export "r{n}" (type (sub resource)))"#))
        .collect();
    let imports: String = (0..many)
        .map(|n| format!(r#"(import "a{n}" (instance (type 0)))"#))
        .collect();
    let bomb = program(&format!("(type (instance {resources})) {imports}"));
    let before = resident();
    let error = sandbox.load("bomb", &bomb).await.unwrap_err();
    let limit = CompileLimit::Memory(memory);
    assert_eq!(error, LoadError::CompileLimit { limit });
    let grown = resident().saturating_sub(before);
    assert!(grown < 20 << 20, "the parent grew by {grown} bytes");
    assert!(sandbox.load("program", &program("")).await.is_ok());
}

async fn processor_time_beyond_the_limit_ends_the_child() {
    let limits = CompileLimits {
        cpu_seconds: 1,
        ..CompileLimits::default()
    };
    let error = load(&sandbox(own_child(), limits), &heavy()).await.unwrap_err();
    let limit = CompileLimit::CpuSeconds(1);
    assert_eq!(error, LoadError::CompileLimit { limit });
}

async fn wall_time_beyond_the_limit_ends_the_child() {
    let limits = CompileLimits {
        wall_ms: 50,
        ..CompileLimits::default()
    };
    let error = load(&sandbox(own_child(), limits), &heavy()).await.unwrap_err();
    let limit = CompileLimit::WallMs(50);
    assert_eq!(error, LoadError::CompileLimit { limit });
}

async fn code_is_accepted_up_to_its_limit_and_refused_beyond() {
    let with = |code_bytes| {
        sandbox(
            own_child(),
            CompileLimits {
                code_bytes,
                ..CompileLimits::default()
            },
        )
    };
    // The exact size depends on the engine; it is determined by trying.
    let fits = async |n| load(&with(n), &Probe::default()).await;
    let (mut small, mut large) = (1_u64, 1 << 20);
    assert!(fits(large).await.is_ok());
    while small + 1 < large {
        let middle = u64::midpoint(small, large);
        match fits(middle).await {
            Ok(_) => large = middle,
            Err(error) => {
                let limit = CompileLimit::CodeBytes(middle);
                assert_eq!(error, LoadError::CompileLimit { limit });
                small = middle;
            }
        }
    }
    assert!(fits(large).await.is_ok() && fits(large - 1).await.is_err());
}

async fn child_that_is_no_compiler_is_an_error() {
    for (program, words) in [
        ("/nonexistent/compiler", "could not be started"),
        ("/bin/false", "ended unexpectedly"),
        ("/bin/true", "ended unexpectedly"),
        // Echoes its input, which is not a valid response.
        ("/bin/cat", "ended unexpectedly"),
    ] {
        let command = CompileCommand {
            program: program.into(),
            args: Vec::new(),
        };
        let error = load(&sandbox(command, CompileLimits::default()), &Probe::default())
            .await
            .unwrap_err();
        let LoadError::Compile { reason } = &error else {
            panic!("{program}: {error:?}")
        };
        assert!(reason.contains(words), "{program}: {reason}");
    }
}

async fn panic_of_the_compiler_is_an_error_of_the_component() {
    let sandbox = sandbox(child_that(PANICS), CompileLimits::default());
    let error = load(&sandbox, &Probe::default()).await.unwrap_err();
    let reason = "the compiler failed unexpectedly".to_owned();
    assert_eq!(error, LoadError::Compile { reason });
}

async fn memory_that_the_system_refuses_is_the_limit_of_memory() {
    let limits = CompileLimits::default();
    let error = load(&sandbox(child_that(ABORTS), limits), &Probe::default())
        .await
        .unwrap_err();
    let limit = CompileLimit::Memory(limits.memory);
    assert_eq!(error, LoadError::CompileLimit { limit });
}

/// Request to a child that then waits for a component of ten bytes.
const WAITING: &str = r#"{"size":10,"optimize":false,"engine":"sequential","memory":1000000000,"cpu_seconds":7,"work":"compile"}"#;

/// Polls a condition that depends on another process.
fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1_000 {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not happen");
}

async fn child_gives_up_what_compiling_does_not_need() {
    if !cfg!(target_os = "linux") {
        println!("test skipped: only Linux shows the limits of another process");
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(CHILD)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{WAITING}").unwrap();
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap();
    let status = until("no_new_privs", || {
        Some(read("status")).filter(|status| status.contains("NoNewPrivs:\t1"))
    });
    assert!(status.contains("Name:"), "{status}");
    let limits = read("limits");
    for (name, most) in [
        ("Max core file size", "0"),
        ("Max file size", "0"),
        ("Max open files", "16"),
        ("Max cpu time", "7"),
        ("Max data size", "1250000000"),
    ] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert_eq!(line.split_whitespace().next(), Some(most), "{name}");
    }
    drop(input);
    assert!(
        child.wait().unwrap().success(),
        "no bytes are no component, and that is its answer"
    );
}

async fn child_says_how_the_kernel_confines_it() {
    let sandbox = sandbox(own_child(), CompileLimits::default());
    let isolation = sandbox.compiler_isolation().await.unwrap().unwrap();
    // Linux reports whether the system calls of a process are filtered, which is compared with the child's own report.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(CHILD)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{WAITING}").unwrap();
    if cfg!(target_os = "linux") {
        let path = format!("/proc/{}/status", child.id());
        let status = until("the child confines itself", || {
            // The second thread is started after all rights were dropped.
            std::fs::read_to_string(&path)
                .ok()
                .filter(|status| status.contains("Threads:\t2"))
        });
        let is_filtered = status.contains("Seccomp:\t2");
        assert_eq!(
            isolation.seccomp == Protection::On(None),
            is_filtered,
            "{isolation:?}\n{status}"
        );
    } else {
        assert!(matches!(isolation.seccomp, Protection::Off(_)), "{isolation:?}");
        assert!(matches!(isolation.landlock, Protection::Off(_)), "{isolation:?}");
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    let inside = support::sandbox();
    assert_eq!(inside.compiler_isolation().await.unwrap(), None);
}

async fn child_does_not_outlive_its_parent() {
    if !cfg!(target_os = "linux") {
        println!("test skipped: whether a process is there is read in /proc");
        return;
    }
    // A shell between this process and the child. Its input stays open when the shell exits, so that only the loss of
    // its parent can end the child.
    let script = format!("exec 3<&0; \"$0\" {CHILD} <&3 >/dev/null & echo $!; wait");
    let mut shell = Command::new("/bin/sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    let mut number = String::new();
    std::io::BufReader::new(shell.stdout.take().unwrap())
        .read_line(&mut number)
        .unwrap();
    let status = format!("/proc/{}/status", number.trim());
    writeln!(input, "{WAITING}").unwrap();
    let alive = || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        status.contains("State:") && !status.contains("State:\tZ")
    };
    until("the child confines itself", || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        // The second thread is the watcher.
        status.contains("Threads:\t2").then_some(())
    });
    assert!(alive());
    shell.kill().unwrap();
    shell.wait().unwrap();
    until("the end of the child", || (!alive()).then_some(()));
    drop(input);
}

async fn trusted_component_needs_no_child() {
    let missing = CompileCommand {
        program: "/nonexistent/compiler".into(),
        args: Vec::new(),
    };
    let sandbox = sandbox(missing, CompileLimits::default());
    let bytes = Probe::default().build();
    let own = Own::leaked(bytes);
    assert!(sandbox.load_trusted("probe", own).await.is_ok());
}

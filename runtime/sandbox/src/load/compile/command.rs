//! The parent's side of the compiling process.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::UNEXPECTED;
use super::child::{ChildError, ISOLATION, OK, OUT_OF_MEMORY, REFUSED, Task, Work};
use super::isolation::CompilerIsolation;
use crate::engine::EngineKind;
use crate::error::{CompileLimit, LoadError};
use crate::load::adapt::Adapter;

/// Signal that ends a process which has exhausted its CPU time: 24 on Linux and macOS.
const SIGXCPU: i32 = rustix::process::Signal::XCPU.as_raw();

/// Signal with which a Rust program aborts when an allocation fails or its stack overflows. Both indicate memory: the
/// child's data limit (`child::confine`) makes allocations fail.
const SIGABRT: i32 = rustix::process::Signal::ABORT.as_raw();

/// Exit status of a Rust program with an uncaught panic.
const PANICKED: i32 = 101;

/// Place of compilation.
///
/// The compiler is not hardened against components crafted to exhaust it: one of a kilobyte can take gigabytes. A
/// separate process can be limited.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Compiler {
    /// In this process, without limits. For components as trusted as the program itself.
    #[default]
    InProcess,
    /// In a child process for each component, limited by [`CompileLimits`].
    Child(CompileCommand),
}

/// Command that starts a process which calls [`crate::compile_child_main`]: usually this same program with a hidden
/// argument. It must be built from the same version of this crate. Its environment is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments of the program.
    pub args: Vec<OsString>,
}

/// Limits of compiling one component.
///
/// | limit | default | reason |
/// |---|---|---|
/// | `memory` | 2 GiB | a JavaScript engine of 12 MB takes less than 1 GiB |
/// | `cpu_seconds` | 300 | the same engine takes 30 with optimisation on a slow machine |
/// | `wall_ms` | 300,000 | the same, on a busy machine |
/// | `code_bytes` | 256 MiB | compiled code is about three times the size of the component |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// Memory of the compiling process, in bytes.
    pub memory: u64,
    /// CPU time in seconds, in total over all threads.
    pub cpu_seconds: u64,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
    /// Size of the compiled code, in bytes.
    pub code_bytes: u64,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self {
            memory: 2 << 30,
            cpu_seconds: 300,
            wall_ms: 300_000,
            code_bytes: 256 << 20,
        }
    }
}

/// Compiles in a child process. Dropping the future kills it.
pub(crate) async fn compile(
    command: &CompileCommand,
    limits: &CompileLimits,
    engine: EngineKind,
    optimize: bool,
    bytes: &[u8],
) -> Result<Vec<u8>, LoadError> {
    let task = Task {
        optimize,
        engine,
        ..task(limits, Work::Compile, bytes)
    };
    let (answer, status) = ask(command, limits, &task, bytes).await?;
    read_answer(answer, status, limits)
}

/// Makes a component of a core module in a child process. Dropping the future kills it.
pub(crate) async fn adapt(
    command: &CompileCommand,
    limits: &CompileLimits,
    adapter: Adapter,
    bytes: &[u8],
) -> Result<Vec<u8>, LoadError> {
    let task = task(limits, Work::Adapt(adapter), bytes);
    let (answer, status) = ask(command, limits, &task, bytes).await?;
    read_answer(answer, status, limits)
}

/// Returns how the kernel confines a compiling child process, as reported by such a process.
pub(crate) async fn isolation(
    command: &CompileCommand,
    limits: &CompileLimits,
) -> Result<CompilerIsolation, LoadError> {
    let task = task(limits, Work::Isolation, &[]);
    let (answer, status) = ask(command, limits, &task, &[]).await?;
    match answer.split_first() {
        Some((&ISOLATION, json)) => serde_json::from_slice(json).map_err(unreadable),
        _ => Err(read_answer(answer, status, limits)
            .err()
            .unwrap_or_else(|| LoadError::Compile {
                reason: "the compiling process did not report its confinement".into(),
            })),
    }
}

fn task(limits: &CompileLimits, work: Work, bytes: &[u8]) -> Task {
    Task {
        size: bytes.len() as u64,
        optimize: false,
        engine: EngineKind::default(),
        memory: limits.memory,
        cpu_seconds: limits.cpu_seconds,
        work,
    }
}

/// Starts a child, sends it the request and the bytes, and returns its response and exit status.
async fn ask(
    command: &CompileCommand,
    limits: &CompileLimits,
    task: &Task,
    bytes: &[u8],
) -> Result<(Vec<u8>, Option<ExitStatus>), LoadError> {
    let failed = |what: &str, error: io::Error| LoadError::Compile {
        reason: format!("the compiling process {what}: {error}"),
    };
    let mut child = Command::new(&command.program)
        .args(&command.args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failed("could not be started", e))?;
    let talk = talk(&mut child, task, bytes, limits.code_bytes);
    match tokio::time::timeout(Duration::from_millis(limits.wall_ms), talk).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(failed("could not be reached", error)),
        Err(_) => Err(LoadError::CompileLimit {
            limit: CompileLimit::WallMs(limits.wall_ms),
        }),
    }
}

/// Sends the request and reads the response, up to one byte more than the limit.
async fn talk(
    child: &mut Child,
    task: &Task,
    bytes: &[u8],
    code_bytes: u64,
) -> io::Result<(Vec<u8>, Option<ExitStatus>)> {
    let mut input = child.stdin.take().expect("it is piped");
    let output = child.stdout.take().expect("it is piped");
    let mut line = serde_json::to_vec(task)?;
    line.push(b'\n');
    let send = async move {
        input.write_all(&line).await?;
        input.write_all(bytes).await
    };
    let mut answer = Vec::new();
    // The status byte, the code, and one more byte to detect an excess.
    let most = code_bytes.saturating_add(2);
    let receive = async {
        output.take(most).read_to_end(&mut answer).await?;
        io::Result::Ok(())
    };
    // A child that ended early stops reading; its exit status gives the reason.
    let (_sent, received) = tokio::join!(send, receive);
    received?;
    if answer.len() as u64 == most {
        child.kill().await?;
        return Ok((answer, None));
    }
    Ok((answer, Some(child.wait().await?)))
}

fn unreadable(error: serde_json::Error) -> LoadError {
    LoadError::Compile {
        reason: format!("the compiling process sent an invalid response: {error}"),
    }
}

fn read_answer(
    mut answer: Vec<u8>,
    status: Option<ExitStatus>,
    limits: &CompileLimits,
) -> Result<Vec<u8>, LoadError> {
    let limit = |limit| LoadError::CompileLimit { limit };
    let Some(status) = status else {
        return Err(limit(CompileLimit::CodeBytes(limits.code_bytes)));
    };
    if status.code() == Some(i32::from(OUT_OF_MEMORY)) || status.signal() == Some(SIGABRT) {
        return Err(limit(CompileLimit::Memory(limits.memory)));
    }
    if status.signal() == Some(SIGXCPU) {
        return Err(limit(CompileLimit::CpuSeconds(limits.cpu_seconds)));
    }
    match (status.success(), answer.first()) {
        (true, Some(&OK)) => {
            answer.remove(0);
            Ok(answer)
        }
        (true, Some(&REFUSED)) => {
            Err(serde_json::from_slice::<ChildError>(&answer[1..]).map_or_else(unreadable, LoadError::from))
        }
        _ if status.code() == Some(PANICKED) => Err(LoadError::Compile {
            reason: UNEXPECTED.into(),
        }),
        _ => Err(LoadError::Compile {
            reason: format!("the compiling process ended unexpectedly ({status})"),
        }),
    }
}

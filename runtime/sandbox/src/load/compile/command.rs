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
use super::child::{ISOLATION, OK, OUT_OF_MEMORY, REFUSED, Refusal, Task};
use super::isolation::CompilerIsolation;
use crate::error::{CompileLimit, LoadError};

/// Number of the signal that ends a process which has used its processor time: 24 on Linux and macOS.
const SIGXCPU: i32 = rustix::process::Signal::XCPU.as_raw();

/// Number of the signal by which a Rust program ends itself when an allocation fails or its stack is full. Both are
/// memory: the child's limit of data (`child::confine`) is what makes an allocation fail.
const SIGABRT: i32 = rustix::process::Signal::ABORT.as_raw();

/// Exit status of a Rust program that panicked outside of what catches panics.
const PANICKED: i32 = 101;

/// Where components are compiled.
///
/// The compiler is not hardened against components that are made to exhaust it: one of a kilobyte can take gigabytes.
/// In a process of its own it has limits.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Compiler {
    /// In this process, without limits. For components that one trusts as the program itself.
    #[default]
    InProcess,
    /// In a child process for each component, with the limits of [`CompileLimits`].
    Child(CompileCommand),
}

/// How to start a process that calls [`crate::compile_child_main`]: usually this same program with a hidden argument.
/// It must be built from the same version of this crate. Its environment is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// What compiling one component may use.
///
/// | limit | default | why |
/// |---|---|---|
/// | `memory` | 2 GiB | a JavaScript engine of 12 MB takes less than one |
/// | `cpu_seconds` | 300 | the same engine takes 30 with optimisation on a slow machine |
/// | `wall_ms` | 300,000 | the same, where other work goes on |
/// | `code_bytes` | 256 MiB | compiled code has some three times the size of the component |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// Bytes of memory of the compiling process.
    pub memory: u64,
    /// Seconds of processor time, all threads together.
    pub cpu_seconds: u64,
    /// Milliseconds of wall time.
    pub wall_ms: u64,
    /// Bytes of compiled code.
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
    optimize: bool,
    bytes: &[u8],
) -> Result<Vec<u8>, LoadError> {
    let task = Task {
        size: bytes.len() as u64,
        optimize,
        memory: limits.memory,
        cpu_seconds: limits.cpu_seconds,
        only_isolation: false,
    };
    let (answer, status) = ask(command, limits, &task, bytes).await?;
    read_answer(answer, status, limits)
}

/// How the kernel confines a child process that compiles, as such a process says after it was confined.
pub(crate) async fn isolation(
    command: &CompileCommand,
    limits: &CompileLimits,
) -> Result<CompilerIsolation, LoadError> {
    let task = Task {
        size: 0,
        optimize: false,
        memory: limits.memory,
        cpu_seconds: limits.cpu_seconds,
        only_isolation: true,
    };
    let (answer, status) = ask(command, limits, &task, &[]).await?;
    match answer.split_first() {
        Some((&ISOLATION, json)) => serde_json::from_slice(json).map_err(unreadable),
        _ => Err(read_answer(answer, status, limits)
            .err()
            .unwrap_or_else(|| LoadError::Compile {
                reason: "the compiling process does not say how it is confined".into(),
            })),
    }
}

/// Starts a child, sends it the task and the bytes, and returns what it answers and how it ended.
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
        .map_err(|e| failed("does not start", e))?;
    let talk = talk(&mut child, task, bytes, limits.code_bytes);
    match tokio::time::timeout(Duration::from_millis(limits.wall_ms), talk).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(failed("cannot be spoken to", error)),
        Err(_) => Err(LoadError::CompileLimit {
            limit: CompileLimit::WallMs(limits.wall_ms),
        }),
    }
}

/// Sends the task and reads the answer, up to one byte more than is accepted.
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
    // The status byte, the code, and one more to see that there is more.
    let most = code_bytes.saturating_add(2);
    let receive = async {
        output.take(most).read_to_end(&mut answer).await?;
        io::Result::Ok(())
    };
    // A child that ended early does not read on; its exit status says why.
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
        reason: format!("the compiling process gave an answer that cannot be read: {error}"),
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
            Err(serde_json::from_slice::<Refusal>(&answer[1..]).map_or_else(unreadable, LoadError::from))
        }
        _ if status.code() == Some(PANICKED) => Err(LoadError::Compile {
            reason: UNEXPECTED.into(),
        }),
        _ => Err(LoadError::Compile {
            reason: format!("the compiling process ended early ({status})"),
        }),
    }
}

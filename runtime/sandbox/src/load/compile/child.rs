//! The compiling process: reads a component from standard input, writes compiled code to standard output, and limits
//! its own resources. It also makes components of core modules.
//!
//! The parent sends one line of JSON (`Task`) and then the bytes. The response is one byte, then the compiled code or the
//! component (after `OK`), an error as JSON (after `REFUSED`), or the confinement of the process as JSON (after
//! `ISOLATION`). For any other output or exit, the parent derives an error from the exit status.

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getppid, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use toolcell_core::error_chain;

use super::isolation::{CompilerIsolation, isolate};
use crate::engine::{self, EngineKind};
use crate::error::LoadError;
use crate::load::adapt::{self, Adapter};
use crate::load::compile;

/// First byte of a response with code.
pub(super) const OK: u8 = 0;

/// First byte of a response with an error.
pub(super) const REFUSED: u8 = 1;

/// First byte of a response with a [`CompilerIsolation`].
pub(super) const ISOLATION: u8 = 2;

/// Exit status of a process that detected excessive memory use.
pub(super) const OUT_OF_MEMORY: u8 = 70;

/// Interval at which the process checks its own memory use and its parent. It can exceed its limit by the memory
/// touched in that time.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Status of this process on Linux, proc_pid_status(5). Other systems have no such file.
const STATUS: &str = "/proc/self/status";

/// Maximum size of [`STATUS`] in bytes; it has about 1,500.
const MAX_STATUS: usize = 8 << 10;

/// Maximum number of open files: the three standard streams, [`STATUS`], and some for the standard library.
const OPEN_FILES: u64 = 16;

/// Request of the parent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// Size of the component, which follows, in bytes.
    pub(super) size: u64,
    /// As [`crate::SandboxOptions::optimize`].
    pub(super) optimize: bool,
    /// Engine for which it is compiled.
    pub(super) engine: EngineKind,
    /// Memory limit in bytes.
    pub(super) memory: u64,
    /// CPU time limit in seconds.
    pub(super) cpu_seconds: u64,
    /// Work to do.
    pub(super) work: Work,
}

/// Work of a compiling process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    /// Compiles a component.
    Compile,
    /// Makes a component of a core module.
    Adapt(Adapter),
    /// Only reports the confinement.
    Isolation,
}

/// An error that the child can describe better than its exit status.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChildError {
    Malformed(String),
    UnsupportedFeature(String),
    Compile(String),
    NotAdapted(String),
}

impl From<LoadError> for ChildError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Malformed { reason } => Self::Malformed(reason),
            LoadError::UnsupportedFeature { feature } => Self::UnsupportedFeature(feature),
            LoadError::Compile { reason } => Self::Compile(reason),
            LoadError::NotAdapted { reason } => Self::NotAdapted(reason),
            other => Self::Compile(error_chain(&other)),
        }
    }
}

impl From<ChildError> for LoadError {
    fn from(refusal: ChildError) -> Self {
        match refusal {
            ChildError::Malformed(reason) => Self::Malformed { reason },
            ChildError::UnsupportedFeature(feature) => Self::UnsupportedFeature { feature },
            ChildError::Compile(reason) => Self::Compile { reason },
            ChildError::NotAdapted(reason) => Self::NotAdapted { reason },
        }
    }
}

/// Runs a process that was started as described in [`crate::CompileCommand`]: reads a request from standard input,
/// responds on standard output, and returns the exit status. A program that sets [`crate::Compiler::Child`] calls only
/// this function when it is started with the corresponding arguments.
pub fn compile_child_main() -> ExitCode {
    match serve(io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut line = Vec::new();
    (&mut input).take(4096).read_until(b'\n', &mut line)?;
    let task: Task = serde_json::from_slice(&line)?;
    let isolation = confine(&task)?;
    let mut read = || {
        let mut bytes = Vec::new();
        (&mut input).take(task.size).read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    let made = match task.work {
        Work::Isolation => {
            output.write_all(&[ISOLATION])?;
            serde_json::to_writer(&mut output, &isolation)?;
            return output.flush();
        }
        Work::Adapt(adapter) => adapt::encode(&read()?, adapter),
        Work::Compile => {
            let bytes = read()?;
            let engine = engine::compiler(task.engine, task.optimize).map_err(|error| LoadError::Compile {
                reason: error_chain(&error),
            });
            engine.and_then(|engine| compile::compile(&engine, &bytes))
        }
    };
    match made {
        Ok(made) => {
            output.write_all(&[OK])?;
            output.write_all(&made)?;
        }
        Err(error) => {
            output.write_all(&[REFUSED])?;
            serde_json::to_writer(&mut output, &ChildError::from(error))?;
        }
    }
    output.flush()
}

/// Drops all rights that compilation does not need, before the first byte of the component is read.
fn confine(task: &Task) -> io::Result<CompilerIsolation> {
    let limit = |resource, most: u64| {
        // Rights already dropped by the parent cannot be regained.
        let had = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let maximum = most.saturating_add(1).min(had);
        setrlimit(
            resource,
            Rlimit {
                current: Some(most.min(maximum)),
                maximum: Some(maximum),
            },
        )
    };
    // The process is killed by SIGXCPU.
    limit(Resource::Cpu, task.cpu_seconds.max(1))?;
    // No core dump, no growing file, and few open files.
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Nofile, OPEN_FILES)?;
    // A second, wider limit: beyond it an allocation fails and the process aborts.
    limit(Resource::Data, task.memory.saturating_add(task.memory / 4))?;
    // No program started from here gains rights (PR_SET_NO_NEW_PRIVS, prctl(2)).
    #[cfg(target_os = "linux")]
    rustix::thread::set_no_new_privs(true)?;
    // Opened while opening files is allowed.
    let status = File::open(STATUS).ok();
    let isolation = isolate();
    watch(task.memory, status)?;
    Ok(isolation)
}

/// Ends the process when it uses more than `most` bytes of memory, or when its parent is gone.
fn watch(most: u64, status: Option<File>) -> io::Result<()> {
    let parent = getppid();
    std::thread::Builder::new()
        .name("watch".into())
        .spawn(move || {
            loop {
                if status
                    .as_ref()
                    .and_then(resident)
                    .is_some_and(|bytes| bytes > most)
                {
                    std::process::exit(i32::from(OUT_OF_MEMORY));
                }
                if is_orphan(parent) {
                    std::process::exit(1);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        })
        .map(drop)
}

/// A process whose parent has exited is reparented.
fn is_orphan(parent: Option<Pid>) -> bool {
    getppid() != parent
}

/// Returns the resident memory of the process in bytes: the line `VmRSS: 1234 kB` of [`STATUS`], read anew. Where it is
/// unavailable, as on other systems, the second limit applies.
fn resident(status: &File) -> Option<u64> {
    let mut text = [0; MAX_STATUS];
    let len = status.read_at(&mut text, 0).ok()?;
    let line = std::str::from_utf8(&text[..len])
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes << 10)
}

//! The compiling process: reads a component on its standard input, writes compiled code to its standard output, and
//! cannot use more than it was told it may.
//!
//! The parent sends one line of JSON (`Task`) and then the bytes of the component. The answer is one byte, then the
//! compiled code (after `OK`), an error as JSON (after `REFUSED`), or how the kernel confines the process, as JSON (after
//! `ISOLATION`). Anything else, and every other way to end, is an error of the parent's making from the exit status.

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getppid, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::isolation::{CompilerIsolation, isolate};
use crate::engine;
use crate::error::LoadError;
use crate::load::compile;

/// First byte of an answer with code.
pub(super) const OK: u8 = 0;

/// First byte of an answer with an error.
pub(super) const REFUSED: u8 = 1;

/// First byte of an answer with a [`CompilerIsolation`].
pub(super) const ISOLATION: u8 = 2;

/// Exit status of a process that saw itself use too much memory.
pub(super) const OUT_OF_MEMORY: u8 = 70;

/// How often the process looks at its own memory and for its parent. It can pass its limit by what it touches in that
/// time.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What Linux says of this process, proc_pid_status(5). Other systems have no such file.
const STATUS: &str = "/proc/self/status";

/// Most bytes of [`STATUS`]: it has some 1,500.
const MAX_STATUS: usize = 8 << 10;

/// Most open files: the three that it is started with, the one in which it reads how much memory it has, and some for
/// the standard library.
const OPEN_FILES: u64 = 16;

/// What the parent asks for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// Bytes of the component, which follow.
    pub(super) size: u64,
    /// As [`crate::SandboxOptions::optimize`].
    pub(super) optimize: bool,
    /// Bytes of memory.
    pub(super) memory: u64,
    /// Seconds of processor time.
    pub(super) cpu_seconds: u64,
    /// Only says how the kernel confines it, and compiles nothing.
    #[serde(default)]
    pub(super) only_isolation: bool,
}

/// An error that the child can explain better than its exit status.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Refusal {
    Malformed(String),
    UnsupportedFeature(String),
    Compile(String),
}

impl From<LoadError> for Refusal {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Malformed { reason } => Self::Malformed(reason),
            LoadError::UnsupportedFeature { feature } => Self::UnsupportedFeature(feature),
            LoadError::Compile { reason } => Self::Compile(reason),
            other => Self::Compile(other.to_string()),
        }
    }
}

impl From<Refusal> for LoadError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed(reason) => Self::Malformed { reason },
            Refusal::UnsupportedFeature(feature) => Self::UnsupportedFeature { feature },
            Refusal::Compile(reason) => Self::Compile { reason },
        }
    }
}

/// The whole of a process that was started as [`crate::CompileCommand`] says: does what its parent asks for on standard
/// input, answers on standard output, and gives the exit status. A program that sets [`crate::Compiler::Child`] calls
/// this and nothing else when it is started with the arguments that it put there.
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
    if task.only_isolation {
        output.write_all(&[ISOLATION])?;
        serde_json::to_writer(&mut output, &isolation)?;
        return output.flush();
    }
    let mut bytes = Vec::new();
    input.take(task.size).read_to_end(&mut bytes)?;
    let compiled = engine::compiler(task.optimize)
        .map_err(|error| LoadError::Compile {
            reason: error.to_string(),
        })
        .and_then(|engine| compile::compile(&engine, &bytes));
    match compiled {
        Ok(code) => {
            output.write_all(&[OK])?;
            output.write_all(&code)?;
        }
        Err(error) => {
            output.write_all(&[REFUSED])?;
            serde_json::to_writer(&mut output, &Refusal::from(error))?;
        }
    }
    output.flush()
}

/// Gives up what compiling does not need, before the first byte of the component is read.
fn confine(task: &Task) -> io::Result<CompilerIsolation> {
    let limit = |resource, most: u64| {
        // What the parent gave up already cannot be taken back.
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
    // No image of its memory, no file that grows, and no files to speak of.
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Nofile, OPEN_FILES)?;
    // A second net, wider than the first: where it holds, an allocation fails and the process aborts.
    limit(Resource::Data, task.memory.saturating_add(task.memory / 4))?;
    // No program that it could start gains a right (PR_SET_NO_NEW_PRIVS, prctl(2)).
    #[cfg(target_os = "linux")]
    rustix::thread::set_no_new_privs(true)?;
    // Opened while files can be opened.
    let status = File::open(STATUS).ok();
    let isolation = isolate();
    watch(task.memory, status)?;
    Ok(isolation)
}

/// Ends the process when it holds more than `most` bytes of memory, or when nobody is left to want its answer.
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

/// A process whose parent is gone is given another one.
fn is_orphan(parent: Option<Pid>) -> bool {
    getppid() != parent
}

/// Bytes of memory that the process holds: the line `VmRSS: 1234 kB` of [`STATUS`], read anew. A process that cannot
/// look at itself, as on other systems, has the second net.
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

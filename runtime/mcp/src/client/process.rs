//! The process of a server, in a process group or a session of its own, or a server inside of this process.

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use toolcell_core::redact::Redactor;

use super::error::ServerError;
use super::server::Streams;
use crate::lines::{Line, Lines};

/// Maximum size of the end of the standard error of a server that is kept, in bytes, to be shown when it fails.
pub const MAX_OUTPUT_TAIL: usize = 4 << 10;

/// Maximum size of a line of standard error, in bytes; a longer one is skipped.
const MAX_OUTPUT_LINE: usize = 4 << 10;

/// Maximum size of the standard error of a process that is logged, in bytes.
const MAX_LOGGED: usize = 1 << 20;

/// Time in which a process can end by itself after its input was closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// Time in which the process that closed its output ends by itself, so that its exit status is known.
const EXIT_GRACE: Duration = Duration::from_millis(200);

/// Process groups that run, so that a process that exits without unwinding can end them.
static RUNNING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Ends the process groups of all servers, for a program that is about to exit without dropping them.
pub fn end_all_processes() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    for pid in running.iter().copied().filter_map(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Command line and environment of a server.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment: nothing is inherited.
    pub environment: Vec<(String, OsString)>,
    /// Its working directory.
    pub directory: PathBuf,
    /// Program, with its first argument, that starts the program in its remaining arguments in a session of its own
    /// (setsid(2)), so that it has no controlling terminal. Without it, the server is only in a process group of its own.
    pub new_session: Option<(PathBuf, OsString)>,
}

/// The process of a server. Dropping it ends its process group.
pub(super) struct Process {
    child: Child,
    group: Option<Pid>,
    output: Arc<Mutex<Tail>>,
    reader: Option<JoinHandle<()>>,
}

impl Launch {
    /// Starts the process.
    pub(super) fn start(&self, server: &str, redactor: &Redactor) -> Result<Streams, ServerError> {
        let failed = |source: std::io::Error| ServerError::Spawn {
            program: self.program.display().to_string(),
            source: Arc::new(source),
        };
        let mut command = match &self.new_session {
            // The leader of a process group cannot start a session, which brings a group of its own.
            Some((starter, first)) => {
                let mut command = Command::new(starter);
                command.arg(first).arg(&self.program);
                command
            }
            None => {
                let mut command = Command::new(&self.program);
                command.process_group(0);
                command
            }
        };
        let mut child = command
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let (input, output, errors) = (child.stdout.take(), child.stdin.take(), child.stderr.take());
        let tail = Arc::new(Mutex::new(Tail::default()));
        let reader = errors.map(|errors| {
            let (server, redactor) = (server.to_owned(), redactor.clone());
            tokio::spawn(log(errors, server, redactor, tail.clone()))
        });
        let process = Process {
            child,
            group,
            output: tail,
            reader,
        };
        if let Some(group) = group {
            running(|groups| groups.insert(group.as_raw_nonzero().get()));
        }
        let missing = || failed(std::io::ErrorKind::BrokenPipe.into());
        Ok(Streams {
            input: Box::new(input.ok_or_else(missing)?),
            output: Box::new(output.ok_or_else(missing)?),
            program: Some(ServerProgram::Process(process)),
        })
    }
}

fn running(change: impl FnOnce(&mut BTreeSet<i32>) -> bool) {
    change(&mut RUNNING.lock().unwrap_or_else(PoisonError::into_inner));
}

impl Process {
    /// Ends the process after its output was closed. Returns its exit status, and the end of its standard error.
    pub(super) async fn after_end(mut self) -> (Option<String>, String) {
        let status = match tokio::time::timeout(EXIT_GRACE, self.child.wait()).await {
            Ok(Ok(status)) => Some(status.to_string()),
            _ => None,
        };
        self.kill();
        if let Some(reader) = self.reader.take() {
            // Closed by the end of the group, unless a process left it.
            let _ = tokio::time::timeout(EXIT_GRACE, reader).await;
        }
        (status, self.tail())
    }

    /// Ends a process whose input was closed: by itself in time, or else by signals.
    pub(super) async fn end(mut self) {
        if tokio::time::timeout(GRACE, self.child.wait()).await.is_err() {
            self.signal(Signal::TERM);
            let _ = tokio::time::timeout(GRACE, self.child.wait()).await;
        }
    }

    /// The end of what the process wrote to its standard error.
    pub(super) fn tail(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(group) = self.group.take() {
            running(|groups| groups.remove(&group.as_raw_nonzero().get()));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

/// Server that runs inside of this process.
pub struct InProcessServer {
    /// Its output to read, and its input to write.
    pub stream: Box<dyn ByteStream>,
    /// Ends the server when it is dropped.
    pub guard: Box<dyn Any + Send + Sync>,
    /// The end of what it writes to its standard error.
    pub errors: OutputTail,
    /// Its exit code, once it ended by itself.
    pub exit_code: Arc<OnceLock<i32>>,
}

/// Stream in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for S {}

/// The end of an output, of at most [`MAX_OUTPUT_TAIL`] bytes.
#[derive(Clone, Default)]
pub struct OutputTail(Arc<Mutex<Tail>>);

impl OutputTail {
    /// Adds a line.
    pub fn push(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
}

/// A server that was started: a process, or one inside of this one. Dropping it ends it.
pub(super) enum ServerProgram {
    Process(Process),
    InProcess(InProcessProgram),
}

/// A server inside of this process, without its streams.
pub(super) struct InProcessProgram {
    _guard: Box<dyn Any + Send + Sync>,
    errors: OutputTail,
    exit_code: Arc<OnceLock<i32>>,
}

impl ServerProgram {
    /// Ends a program whose output was closed. Returns its exit status, and the end of its standard error.
    pub(super) async fn after_end(self) -> (Option<String>, String) {
        match self {
            Self::Process(process) => process.after_end().await,
            Self::InProcess(program) => {
                // What it says about its end comes with its end.
                tokio::time::sleep(EXIT_GRACE).await;
                // As the standard library writes the status of a process.
                let status = program.exit_code.get().map(|code| format!("exit status: {code}"));
                (status, program.errors.text())
            }
        }
    }

    /// Ends a program whose input was closed.
    pub(super) async fn end(self) {
        match self {
            Self::Process(process) => process.end().await,
            Self::InProcess(program) => drop(program),
        }
    }

    /// The end of what it wrote to its standard error.
    pub(super) fn tail(&self) -> String {
        match self {
            Self::Process(process) => process.tail(),
            Self::InProcess(program) => program.errors.text(),
        }
    }
}

impl InProcessServer {
    /// Returns its streams as those of a process.
    pub(super) fn streams(self) -> Streams {
        let (input, output) = tokio::io::split(self.stream);
        Streams {
            input: Box::new(input),
            output: Box::new(output),
            program: Some(ServerProgram::InProcess(InProcessProgram {
                _guard: self.guard,
                errors: self.errors,
                exit_code: self.exit_code,
            })),
        }
    }
}

/// Last lines of an output.
#[derive(Default)]
struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Tail {
    fn push(&mut self, line: String) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > MAX_OUTPUT_TAIL {
            match self.lines.pop_front() {
                Some(first) => self.bytes -= first.len() + 1,
                None => return,
            }
        }
    }

    fn text(&self) -> String {
        self.lines
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Reads standard error to its end, so that the server never waits for it.
async fn log(errors: ChildStderr, server: String, redactor: Redactor, tail: Arc<Mutex<Tail>>) {
    let mut lines = Lines::up_to(errors, MAX_OUTPUT_LINE);
    let mut logged = 0;
    while let Ok(Some(line)) = lines.next().await {
        let line = match line {
            Line::Whole(line) => redactor.text(&String::from_utf8_lossy(line)).into_owned(),
            Line::TooLong => format!("[a line of more than {MAX_OUTPUT_LINE} bytes]"),
        };
        logged += line.len() + 1;
        if logged <= MAX_LOGGED {
            tracing::info!(server, line, "standard error of an MCP server");
        }
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_an_output_is_kept_up_to_its_size() {
        let mut tail = Tail::default();
        tail.push("first".into());
        let rest = "x".repeat(MAX_OUTPUT_TAIL - 7);
        tail.push(rest.clone());
        assert_eq!(tail.text(), format!("first\n{rest}"));
        tail.push("y".into());
        assert_eq!(tail.text(), format!("{rest}\ny"));
        tail.push("z".repeat(MAX_OUTPUT_TAIL));
        assert_eq!(tail.text(), "");
    }
}

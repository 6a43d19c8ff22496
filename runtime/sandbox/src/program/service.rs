//! Programs that run on, such as servers on standard input and output: one cell from the start to the end of the program.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use toolcell_core::tool::CallObserver;
use toolcell_core::{Policy, Receipt, Secrets, ToolError};
use wasmtime::Store;
use wasmtime_wasi::cli::{AsyncStdinStream, AsyncStdoutStream};

use crate::cell::receipt::ReceiptRecorder;
use crate::cell::state::CellState;
use crate::cell::{CellRequest, GuestCall};
use crate::component::{Code, Component};
use crate::egress::{BoundSecrets, InvalidBinding};
use crate::program::{Program, ProgramInstance};

/// Size of the buffer of a running program, in bytes, for each direction. The side that writes waits while it is full.
pub const PROGRAM_BUFFER: usize = 64 << 10;

/// Memory of a running program's buffers, in bytes: those of both directions, and as much in the streams of the engine.
const BUFFERS: u64 = 4 * PROGRAM_BUFFER as u64;

/// Program that runs in a cell. Its standard error is logged.
#[derive(Debug)]
pub struct RunningProgram {
    /// Its standard output to read, and its standard input to write. Both end with the program.
    pub stream: ProgramStream,
    /// Its cell.
    pub cell: RunningCell,
    /// Record of its hosts, files, buckets and denials.
    pub accessed: AccessRecord,
    /// Its exit code, once it ended by itself.
    pub exit_code: Arc<OnceLock<i32>>,
}

/// Standard output and input of a running program. Their end is seen after the record of the program is complete.
#[derive(Debug)]
pub struct ProgramStream {
    pipe: DuplexStream,
    /// For the side that reads and the side that writes, which can wait in two tasks.
    over: [Over; 2],
}

/// Ends with the task of a program.
#[derive(Debug)]
struct Over(Option<oneshot::Receiver<()>>);

impl Over {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(over) = &mut self.0 {
            // Nothing is ever sent: an error is the end.
            _ = ready!(Pin::new(over).poll(context));
            self.0 = None;
        }
        Poll::Ready(())
    }
}

impl AsyncRead for ProgramStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.pipe).poll_read(context, buffer));
        if buffer.filled().len() == before && buffer.remaining() > 0 {
            ready!(self.over[0].poll(context));
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for ProgramStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.pipe).poll_write(context, bytes));
        if written.is_err() {
            ready!(self.over[1].poll(context));
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

/// Cell of a program. Dropping it ends the program.
pub struct RunningCell {
    task: JoinHandle<()>,
    accessed: AccessRecord,
}

/// Hosts, files and buckets that a running program has accessed, and what was denied to it.
#[derive(Debug, Clone, Default)]
pub struct AccessRecord(Arc<Mutex<Recorded>>);

#[derive(Debug)]
enum Recorded {
    /// By the cell that runs.
    Running(ReceiptRecorder),
    /// Until the end of the cell, or before its start.
    Until(Receipt),
}

impl Default for Recorded {
    fn default() -> Self {
        Self::Until(Receipt::default())
    }
}

impl AccessRecord {
    /// Returns the entries since the last time, as a receipt that has nothing else.
    pub fn take(&self) -> Receipt {
        match &mut *self.lock() {
            Recorded::Running(recorder) => recorder.take_entries(),
            Recorded::Until(receipt) => receipt.take_entries(),
        }
    }

    /// Keeps the entries, and nothing else of the cell, which is charged for its memory until then.
    fn end(&self) {
        let mut recorded = self.lock();
        if let Recorded::Running(recorder) = &*recorded {
            *recorded = Recorded::Until(recorder.take_entries());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reason why a program was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartProgramError {
    /// The component is no program.
    #[error("it is no program: it does not export `wasi:cli/run`")]
    NotAProgram,
    /// As many run as may at one time.
    #[error("too many programs run: half of the cells are kept for calls; end one, or start fewer")]
    TooMany,
    /// A binding of the policy is invalid or its secret has no value.
    #[error(transparent)]
    Binding(#[from] InvalidBinding),
}

impl Drop for RunningCell {
    fn drop(&mut self) {
        self.task.abort();
        self.accessed.end();
    }
}

impl fmt::Debug for RunningCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunningCell")
    }
}

impl Component {
    /// Starts a program with these arguments, of which the first is its name. It runs in one cell, under the grants and limits of
    /// the policy, until it ends, a limit ends it, or its cell is dropped. What it writes to standard error is logged by the
    /// observer, which gets the receipt, too.
    ///
    /// # Errors
    /// Fails if the component is no program, or a secret of the policy has no value.
    pub fn start_program(
        &self,
        policy: Arc<Policy>,
        secrets: &Secrets,
        arguments: Vec<String>,
        observer: Arc<dyn CallObserver>,
    ) -> Result<RunningProgram, StartProgramError> {
        let loaded = self.0.clone();
        if !matches!(loaded.code, Code::Program(_)) {
            return Err(StartProgramError::NotAProgram);
        }
        let lasting = loaded.base.cells.lasting.clone();
        let lasting = lasting
            .try_acquire_many_owned(loaded.base.footprint.slots)
            .map_err(|_| StartProgramError::TooMany)?;
        let bound = BoundSecrets::new(&policy.grants.secrets, secrets)?;
        let egress = loaded.base.egress(&policy, bound);
        let (pipe, guest) = tokio::io::duplex(PROGRAM_BUFFER);
        let [(read, read_over), (written, write_over)] = [oneshot::channel::<()>(), oneshot::channel()];
        let accessed = AccessRecord::default();
        let record = accessed.clone();
        let exit_code = Arc::new(OnceLock::new());
        let exited = exit_code.clone();
        let running = async move {
            let _over = (read, written);
            let _lasting = lasting;
            let Code::Program(pre) = &loaded.code else { return };
            let request = CellRequest {
                pre,
                policy: &policy,
                limits: policy.limits.clone(),
                egress: &egress,
                observer: observer.clone(),
                footprint: loaded.base.footprint,
                bytes_in: 0,
            };
            let call = ServiceCall {
                arguments,
                stream: Some(guest),
                accessed: record.clone(),
            };
            let ended = loaded.base.cells.run_cell(request, call).await;
            match ended.result {
                Ok(code) => {
                    tracing::info!(code, "a program in a cell ended");
                    // Set once: a program ends once.
                    _ = exited.set(code);
                }
                Err(error) => {
                    let message = egress.redactor().text(&error.to_string()).into_owned();
                    tell_end(&*observer, message);
                }
            }
            *record.lock() = Recorded::Until(ended.receipt.clone());
            observer.receipt(ended.receipt);
        };
        Ok(RunningProgram {
            stream: ProgramStream {
                pipe,
                over: [Over(Some(read_over)), Over(Some(write_over))],
            },
            cell: RunningCell {
                task: tokio::spawn(running),
                accessed: accessed.clone(),
            },
            accessed,
            exit_code,
        })
    }
}

/// Logs the reason for which a program was ended.
fn tell_end(observer: &dyn CallObserver, message: String) {
    use toolcell_core::tool::{LogLevel, LogLine, LogSource};
    observer.log(LogLine {
        level: LogLevel::Error,
        source: LogSource::Host,
        message,
    });
}

/// Standard input and output of a program that runs on.
pub(crate) struct Pipes {
    pub(crate) stdin: AsyncStdinStream,
    pub(crate) stdout: AsyncStdoutStream,
}

/// Runs a program to its end.
struct ServiceCall {
    arguments: Vec<String>,
    stream: Option<DuplexStream>,
    accessed: AccessRecord,
}

impl GuestCall for ServiceCall {
    type World = Program;
    type Done = i32;

    fn prepare(&mut self, state: &mut CellState) -> Result<(), ToolError> {
        let arguments = std::mem::take(&mut self.arguments);
        let Some(stream) = self.stream.take() else {
            return Ok(());
        };
        *self.accessed.lock() = Recorded::Running(state.recorder.clone());
        let (stdin, stdout) = tokio::io::split(stream);
        let pipes = Pipes {
            stdin: AsyncStdinStream::new(stdin),
            stdout: AsyncStdoutStream::new(PROGRAM_BUFFER, stdout),
        };
        let started = state.start_service(arguments, pipes, BUFFERS);
        started.map_err(|refused| refused.into_error())
    }

    async fn call_guest(
        self,
        guest: &ProgramInstance,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<i32> {
        Program::run(guest, store).await
    }

    fn bytes_out(_: &i32) -> u64 {
        0
    }
}

//! The engine's process, as its parent sees it.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::protocol::{FromEngine, Load, MAX_MESSAGE_BYTES, ToEngine};
use crate::ChildCommand;
use crate::chat::ControlNames;

/// Size of the end of the standard error stream that is kept, in bytes: the last messages of llama.cpp.
const TAIL_BYTES: usize = 4 << 10;

/// Maximum length of the message of the engine in an error, in characters.
const MAX_WORDS_CHARS: usize = 300;

/// Time in which a process that closed its output must end.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Error of the process.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// It could not be started.
    #[error("the engine could not be started: {0}")]
    Start(io::Error),
    /// It ended.
    #[error("the engine ended unexpectedly ({0})")]
    Ended(String),
    /// It wrote something else.
    #[error("the engine wrote an invalid message")]
    Message,
}

/// A running engine. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    tail: Arc<Mutex<Vec<u8>>>,
    /// Names of the control tokens of its model.
    pub(super) names: ControlNames,
}

impl Process {
    /// Starts the process and gives it its model, which [`FromEngine::Loaded`] confirms.
    pub(super) async fn start(command: &ChildCommand, load: &Load) -> Result<Self, Broken> {
        let mut child = Command::new(&command.program)
            .args(&command.args)
            .env_clear()
            // An abort would start a debugger.
            .env("GGML_NO_BACKTRACE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Broken::Start)?;
        let missing = || Broken::Start(io::ErrorKind::BrokenPipe.into());
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let errors = child.stderr.take().ok_or_else(missing)?;
        let tail = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(keep_tail(errors, Arc::clone(&tail)));
        let mut process = Self {
            child,
            input,
            output: BufReader::new(output),
            line: Vec::new(),
            tail,
            names: ControlNames::default(),
        };
        process.send(&ToEngine::Load(load.clone())).await?;
        Ok(process)
    }

    /// Sends a message.
    pub(super) async fn send(&mut self, message: &ToEngine) -> Result<(), Broken> {
        let mut line = serde_json::to_vec(message).map_err(|_| Broken::Message)?;
        line.push(b'\n');
        match self.input.write_all(&line).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.end().await),
        }
    }

    /// Returns the next message. It can be dropped and called again: no byte is lost.
    pub(super) async fn next(&mut self) -> Result<FromEngine, Broken> {
        loop {
            let Ok(bytes) = self.output.fill_buf().await else {
                return Err(self.end().await);
            };
            if bytes.is_empty() {
                return Err(self.end().await);
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            self.line.extend_from_slice(&bytes[..taken]);
            self.output.consume(taken);
            if self.line.len() > MAX_MESSAGE_BYTES {
                return Err(Broken::Message);
            }
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return serde_json::from_slice(&line).map_err(|_| Broken::Message);
            }
        }
    }

    /// Reason for which the process ended.
    async fn end(&mut self) -> Broken {
        let status = match tokio::time::timeout(END_WITHIN, self.child.wait()).await {
            Ok(Ok(status)) => said(status),
            _ => "it closed its output".to_owned(),
        };
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        match last_words(&tail) {
            Some(words) => Broken::Ended(format!("{status}: {words}")),
            None => Broken::Ended(status),
        }
    }
}

fn said(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (_, Some(code)) => format!("exit status {code}"),
        _ => status.to_string(),
    }
}

/// Keeps the end of what the process writes to its standard error stream.
async fn keep_tail(mut errors: impl AsyncRead + Unpin, tail: Arc<Mutex<Vec<u8>>>) {
    let mut bytes = [0; 1024];
    while let Ok(length @ 1..) = errors.read(&mut bytes).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&bytes[..length]);
        let excess = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..excess);
    }
}

/// Last line about an error, or the last line of all.
fn last_words(tail: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(tail);
    let lines = || text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let is_error = |line: &&str| {
        ["error", "ASSERT", "what()", "panicked"]
            .iter()
            .any(|word| line.contains(word))
    };
    let line = lines().find(is_error).or_else(|| lines().next())?;
    Some(line.chars().take(MAX_WORDS_CHARS).collect())
}

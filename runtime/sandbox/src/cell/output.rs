//! What a guest says beside its answer: log messages, standard output, standard error, progress. All of it is bounded,
//! and none of it can stop the guest: what is too much is counted and dropped. Secrets are taken out first, before anything
//! is divided or cut.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use toolcell_core::Redactor;
use toolcell_core::redact::{Redaction, Replacement};
use toolcell_core::tool::{CallObserver, LogLevel, LogLine, LogSource, Progress};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::bindings::{log, progress};

/// Most lines of one call, in bytes or not: an observer has work with each of them.
pub(crate) const MAX_LINES: u32 = 1_000;

/// Longest line, in bytes; a longer one is cut, or divided where it comes from a stream.
pub(crate) const MAX_LINE: usize = 8 << 10;

/// Shortest time between two progress reports. A person sees no more; the last report of a call is always passed on.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// Longest message of a progress report, in bytes.
const MAX_PROGRESS_MESSAGE: usize = 256;

/// Most bytes that a guest may write to a stream at once.
const WRITE_AT_ONCE: usize = 64 << 10;

/// The voice of one call. Clones speak for the same call.
#[derive(Clone)]
pub(crate) struct GuestOutput(Arc<Mutex<GuestOutputState>>);

struct GuestOutputState {
    observer: Arc<dyn CallObserver>,
    /// Bytes and lines that will still be passed on.
    bytes_left: u64,
    lines_left: u32,
    /// The limit, for the words about it.
    limit: u64,
    /// Bytes that the guest wrote, kept or not.
    written: u64,
    dropped_lines: u64,
    stdout: Stream,
    stderr: Stream,
    redactor: Redactor,
    last_report: Option<Instant>,
    held_back: Option<Progress>,
}

/// Standard output or standard error.
struct Stream {
    redaction: Redaction,
    /// The line that has not ended.
    pending: Vec<u8>,
}

impl Stream {
    fn new(redactor: &Redactor) -> Self {
        Self {
            redaction: redactor.stream(Replacement::Name),
            pending: Vec::new(),
        }
    }
}

impl GuestOutput {
    /// A voice that is heard up to `limit` bytes.
    pub(crate) fn new(observer: Arc<dyn CallObserver>, limit: u64, redactor: &Redactor) -> Self {
        Self(Arc::new(Mutex::new(GuestOutputState {
            observer,
            bytes_left: limit,
            lines_left: MAX_LINES,
            limit,
            written: 0,
            dropped_lines: 0,
            stdout: Stream::new(redactor),
            stderr: Stream::new(redactor),
            redactor: redactor.clone(),
            last_report: None,
            held_back: None,
        })))
    }

    /// Passes on what is left (unfinished lines, the last progress report, how much was dropped) and says how many
    /// bytes the guest wrote in all.
    pub(crate) fn finish(&self) -> u64 {
        let mut speech = self.lock();
        for source in [LogSource::Stdout, LogSource::Stderr] {
            let held = speech.stream(source).redaction.finish();
            speech.divide(source, &held);
            let rest = std::mem::take(&mut speech.stream(source).pending);
            if !rest.is_empty() {
                speech.line(LogLevel::Info, source, &rest);
            }
        }
        if let Some(progress) = speech.held_back.take() {
            speech.observer.progress(progress);
        }
        if speech.dropped_lines > 0 {
            let message = format!(
                "{} lines dropped: a call may log {} bytes in {MAX_LINES} lines",
                speech.dropped_lines, speech.limit
            );
            speech.dropped_lines = 0;
            speech.observer.log(LogLine {
                level: LogLevel::Warn,
                source: LogSource::Host,
                message,
            });
        }
        speech.written
    }

    /// A whole message of the guest.
    pub(crate) fn say(&self, level: LogLevel, source: LogSource, message: &str) {
        let mut speech = self.lock();
        speech.written += message.len() as u64;
        let message = speech.redactor.text(message);
        speech.line(level, source, message.as_bytes());
    }

    /// A line of the host about the guest, for somebody who looks for an error in it. Does not count as the guest's.
    pub(crate) fn explain(&self, message: String) {
        let speech = self.lock();
        let message = speech.redactor.text(&message).into_owned();
        speech.observer.log(LogLine {
            level: LogLevel::Debug,
            source: LogSource::Host,
            message,
        });
    }

    fn write(&self, source: LogSource, bytes: &[u8]) {
        self.lock().write(source, bytes);
    }

    fn report(&self, mut progress: Progress) {
        let mut speech = self.lock();
        if let Some(message) = &mut progress.message {
            speech.redactor.string(message);
            // A copy, because a text that is cut in place keeps all of its memory.
            *message = message[..message.floor_char_boundary(MAX_PROGRESS_MESSAGE)].to_owned();
        }
        let now = Instant::now();
        if (speech.last_report).is_none_or(|last| now.duration_since(last) >= PROGRESS_EVERY) {
            speech.last_report = Some(now);
            speech.held_back = None;
            speech.observer.progress(progress);
        } else {
            speech.held_back = Some(progress);
        }
    }

    fn lock(&self) -> MutexGuard<'_, GuestOutputState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GuestOutputState {
    fn stream(&mut self, source: LogSource) -> &mut Stream {
        if source == LogSource::Stderr {
            &mut self.stderr
        } else {
            &mut self.stdout
        }
    }

    fn write(&mut self, source: LogSource, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        // A guest that was heard enough is not heard again, so that nothing has to be kept of what it goes on to say.
        if self.is_silent() {
            let ends = bytes.iter().filter(|b| **b == b'\n').count();
            self.dropped_lines += ends as u64;
            return;
        }
        let clean = self.stream(source).redaction.push(bytes);
        self.divide(source, &clean);
    }

    /// Makes lines of a stream.
    fn divide(&mut self, source: LogSource, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            if self.is_silent() {
                self.dropped_lines += u64::from(piece.ends_with(b"\n"));
                continue;
            }
            let (text, ends) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let mut text = text;
            while self.stream(source).pending.len() + text.len() > MAX_LINE {
                let room = MAX_LINE - self.stream(source).pending.len();
                let (now, later) = text.split_at(room);
                self.stream(source).pending.extend_from_slice(now);
                self.flush(source);
                text = later;
            }
            self.stream(source).pending.extend_from_slice(text);
            if ends {
                self.flush(source);
            }
        }
    }

    fn flush(&mut self, source: LogSource) {
        let line = std::mem::take(&mut self.stream(source).pending);
        let line_end = line.strip_suffix(b"\r").unwrap_or(&line);
        self.line(LogLevel::Info, source, line_end);
    }

    fn is_silent(&self) -> bool {
        self.bytes_left == 0 || self.lines_left == 0
    }

    /// Passes on one line, cut to what is left.
    fn line(&mut self, level: LogLevel, source: LogSource, text: &[u8]) {
        if self.is_silent() {
            self.dropped_lines += 1;
            return;
        }
        let room = usize::try_from(self.bytes_left)
            .unwrap_or(usize::MAX)
            .min(MAX_LINE);
        let kept = text.len().min(room);
        let mut message = String::from_utf8_lossy(&text[..kept]).into_owned();
        if kept < text.len() {
            message.push_str(&format!(" [{} bytes cut]", text.len() - kept));
        }
        // An empty line costs as well: it is a line to deal with.
        self.bytes_left -= (kept.max(1) as u64).min(self.bytes_left);
        self.lines_left -= 1;
        self.observer.log(LogLine {
            level,
            source,
            message,
        });
    }
}

impl log::Host for GuestOutput {
    fn write(&mut self, level: log::Level, message: String) {
        let level = match level {
            log::Level::Trace => LogLevel::Trace,
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.say(level, LogSource::Log, &message);
    }
}

impl progress::Host for GuestOutput {
    fn report(&mut self, done: u64, total: Option<u64>, message: Option<String>) {
        GuestOutput::report(self, Progress { done, total, message });
    }
}

/// Standard output or standard error of a guest.
#[derive(Clone)]
pub(crate) struct GuestStdio {
    pub(crate) voice: GuestOutput,
    pub(crate) source: LogSource,
}

impl IsTerminal for GuestStdio {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestStdio {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for GuestStdio {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.voice.write(self.source, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_AT_ONCE)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for GuestStdio {
    async fn ready(&mut self) {}
}

impl AsyncWrite for GuestStdio {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.voice.write(self.source, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "hunter2-hunter2";

    #[derive(Default)]
    struct Ear(Mutex<(Vec<LogLine>, Vec<Progress>)>);

    impl CallObserver for Ear {
        fn log(&self, line: LogLine) {
            self.0.lock().unwrap().0.push(line);
        }

        fn progress(&self, progress: Progress) {
            self.0.lock().unwrap().1.push(progress);
        }
    }

    fn redactor() -> Redactor {
        Redactor::new([("token", SECRET)])
    }

    fn heard(limit: u64, speak: impl FnOnce(&mut GuestOutput)) -> (Vec<String>, u64) {
        let ear = Arc::new(Ear::default());
        let mut voice = GuestOutput::new(ear.clone(), limit, &redactor());
        speak(&mut voice);
        let written = voice.finish();
        let lines = ear.0.lock().unwrap().0.clone();
        (lines.into_iter().map(|l| l.message).collect(), written)
    }

    #[test]
    fn a_stream_becomes_lines_wherever_it_is_divided() {
        let (lines, written) = heard(1_000, |voice| {
            for piece in ["on", "e\r\ntw", "o\n", "\nrest"] {
                voice.write(LogSource::Stdout, piece.as_bytes());
            }
        });
        assert_eq!(lines, ["one", "two", "", "rest"]);
        assert_eq!(written, 14);
    }

    #[test]
    fn bytes_are_kept_up_to_the_limit_and_the_rest_is_counted() {
        let (lines, written) = heard(4, |voice| {
            voice.write(LogSource::Stderr, b"abcd\n");
        });
        assert_eq!((lines, written), (vec!["abcd".to_owned()], 5));
        let (lines, written) = heard(4, |voice| {
            voice.write(LogSource::Stderr, b"abcdef\nx\ny\n");
        });
        assert_eq!(
            lines,
            [
                "abcd [2 bytes cut]",
                "2 lines dropped: a call may log 4 bytes in 1000 lines"
            ]
        );
        assert_eq!(written, 11);
    }

    #[test]
    fn lines_are_kept_up_to_the_limit_and_the_rest_is_said_in_one_line() {
        let say = |n: u32| {
            heard(1 << 20, |voice| {
                for _ in 0..n {
                    log::Host::write(voice, log::Level::Info, "x".into());
                }
            })
            .0
        };
        assert_eq!(say(MAX_LINES).len(), MAX_LINES as usize);
        let lines = say(MAX_LINES + 7);
        assert_eq!(lines.len(), MAX_LINES as usize + 1);
        assert!(lines.last().unwrap().starts_with("7 lines dropped"), "{lines:?}");
    }

    #[test]
    fn a_long_line_of_a_stream_is_divided_and_a_long_message_is_cut() {
        let (lines, _) = heard(1 << 20, |voice| {
            voice.write(LogSource::Stdout, &[b'x'; MAX_LINE + 1]);
            voice.say(LogLevel::Info, LogSource::Log, &"y".repeat(MAX_LINE + 1));
        });
        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [MAX_LINE, MAX_LINE + " [1 bytes cut]".len(), 1]);
    }

    #[test]
    fn a_secret_is_not_heard_wherever_it_is_divided_or_cut() {
        let (lines, written) = heard(1 << 20, |voice| {
            for byte in format!("a {SECRET}\n").bytes() {
                voice.write(LogSource::Stdout, &[byte]);
            }
            // Over the end of a line that is divided, and over the end of a message that is cut.
            let filler = "x".repeat(MAX_LINE - 5);
            voice.write(LogSource::Stderr, format!("{filler}{SECRET}").as_bytes());
            voice.say(LogLevel::Info, LogSource::Log, &format!("{filler}{SECRET}"));
        });
        let text = lines.concat();
        for part in ["hunter2", "hunte", "nter2"] {
            assert!(!text.contains(part), "{part}");
        }
        assert_eq!(lines[0], "a [redacted:token]");
        assert!(written > 2 * MAX_LINE as u64);

        let ear = Arc::new(Ear::default());
        let mut voice = GuestOutput::new(ear.clone(), 0, &redactor());
        let message = format!("{}{SECRET}", "y".repeat(MAX_PROGRESS_MESSAGE - 5));
        progress::Host::report(&mut voice, 1, None, Some(message));
        let reports = ear.0.lock().unwrap().1.clone();
        assert!(!reports[0].message.as_ref().unwrap().contains("hunte"));
    }

    #[test]
    fn the_first_and_the_last_progress_report_are_passed_on() {
        let ear = Arc::new(Ear::default());
        let mut voice = GuestOutput::new(ear.clone(), 0, &redactor());
        for done in 0..1_000 {
            progress::Host::report(&mut voice, done, None, Some("é".repeat(1_000)));
        }
        voice.finish();
        let reports = ear.0.lock().unwrap().1.clone();
        assert_eq!(reports.first().unwrap().done, 0);
        assert_eq!(reports.last().unwrap().done, 999);
        assert!(reports.len() < 1_000, "{}", reports.len());
        assert!(reports[0].message.as_ref().unwrap().len() <= MAX_PROGRESS_MESSAGE);
    }
}

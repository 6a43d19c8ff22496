//! Output of a guest beside its result: log messages, standard output, standard error, progress. All of it is bounded
//! and never blocks the guest: excess output is counted and dropped. Secrets are redacted first, before anything is
//! split or truncated.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::time::Instant;
use toolcell_core::Redactor;
use toolcell_core::redact::{Redaction, Replacement};
use toolcell_core::tool::{CallObserver, LogLevel, LogLine, LogSource, Progress};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::bindings::{log, progress};
use crate::cell::last_message::LastMessage;
use crate::program::capture::{Capture, StreamText};

/// Maximum number of lines of one call, whatever their length, because the observer handles each of them.
pub(crate) const MAX_LINES: u32 = 1_000;

/// Maximum length of a line in bytes; a longer message is truncated, a longer line of a stream is split.
pub(crate) const MAX_LINE: usize = 8 << 10;

/// Minimum interval between two progress reports, for display. The last report of a call is always passed on.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// Maximum length of the message of a progress report, in bytes.
const MAX_PROGRESS_MESSAGE: usize = 256;

/// Maximum number of bytes that a guest may write to a stream at once.
const WRITE_AT_ONCE: usize = 64 << 10;

/// Output of one call. Clones share it.
#[derive(Clone)]
pub(crate) struct GuestOutput(Arc<Mutex<GuestOutputState>>);

struct GuestOutputState {
    observer: Arc<dyn CallObserver>,
    /// Number of bytes and lines that will still be passed on.
    bytes_left: u64,
    lines_left: u32,
    /// Configured limit, for the message about dropped lines.
    limit: u64,
    /// Bytes written by the guest, including dropped ones.
    written: u64,
    dropped_lines: u64,
    stdout: Stream,
    stderr: Stream,
    last_message: LastMessage,
    /// Streams of a program, which are its result.
    capture: Option<Capture>,
    redactor: Redactor,
    last_report: Option<Instant>,
    held_back: Option<Progress>,
}

/// Standard output or standard error.
struct Stream {
    redaction: Redaction,
    /// Unfinished line.
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
    /// Creates an output that passes on up to `limit` bytes.
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
            last_message: LastMessage::default(),
            capture: None,
            redactor: redactor.clone(),
            last_report: None,
            held_back: None,
        })))
    }

    /// Keeps both streams instead of logging them.
    pub(crate) fn capture(&self, capture: Capture) {
        self.lock().capture = Some(capture);
    }

    /// Returns the kept streams, standard output first, together at most `limit` bytes of text.
    pub(crate) fn take_capture(&self, limit: u64) -> (StreamText, StreamText) {
        self.finish();
        let capture = self.lock().capture.take();
        capture.map(|capture| capture.finish(limit)).unwrap_or_default()
    }

    /// Passes on the remaining output (unfinished lines, the last progress report, the number of dropped lines) and
    /// returns the total number of bytes that the guest wrote.
    pub(crate) fn finish(&self) -> u64 {
        let mut speech = self.lock();
        for source in [LogSource::Stdout, LogSource::Stderr] {
            let held = speech.stream(source).redaction.finish();
            speech.divide(source, &held);
            let rest = std::mem::take(&mut speech.stream(source).pending);
            if !rest.is_empty() {
                speech.line(LogLevel::Info, source, &rest, 0);
            }
        }
        if let Some(progress) = speech.held_back.take() {
            speech.observer.progress(progress);
        }
        if speech.dropped_lines > 0 {
            let message = format!(
                "{} lines dropped: the log of a call is limited to {} bytes in {MAX_LINES} lines",
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

    /// Returns the last message that the guest wrote to standard error before it crashed; of a program with both streams, if
    /// it wrote more.
    pub(crate) fn last_message(&self) -> Option<String> {
        self.finish();
        let mut speech = self.lock();
        match speech.capture.take() {
            Some(capture) => capture.into_last_words(),
            None => speech.last_message.text.take(),
        }
    }

    /// Logs a complete message of the guest.
    pub(crate) fn log_message(&self, level: LogLevel, source: LogSource, message: &str) {
        let mut speech = self.lock();
        speech.written += message.len() as u64;
        if speech.is_silent() {
            speech.dropped_lines += 1;
            return;
        }
        let room = speech.room();
        let kept = speech.redactor.beginning(message, room);
        speech.line(level, source, kept.as_bytes(), message.len().saturating_sub(room));
    }

    /// Logs the stack of the guest at a crash, for debugging. Does not count towards the guest's limit.
    pub(crate) fn log_backtrace(&self, message: String) {
        let speech = self.lock();
        let message = speech.redactor.text(&message).into_owned();
        speech.observer.log(LogLine {
            level: LogLevel::Debug,
            source: LogSource::Backtrace,
            message,
        });
    }

    fn write(&self, source: LogSource, bytes: &[u8]) {
        self.lock().write(source, bytes);
    }

    fn report(&self, mut progress: Progress) {
        let mut speech = self.lock();
        if let Some(message) = &mut progress.message {
            *message = speech.redactor.beginning(message, MAX_PROGRESS_MESSAGE);
            // A copy, because a text truncated in place keeps its capacity.
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
        if self.capture.is_none() {
            self.written += bytes.len() as u64;
        }
        for bytes in bytes.chunks(MAX_LINE) {
            if let Some(capture) = self.capture.as_mut().filter(|capture| capture.is_full(source)) {
                capture.drop_bytes(bytes.len());
                continue;
            }
            // Nothing is searched or buffered for a guest that has used up its limit.
            if self.capture.is_none() && self.is_silent() {
                let ends = bytes.iter().filter(|b| **b == b'\n').count();
                self.dropped_lines += ends as u64;
                continue;
            }
            let clean = self.stream(source).redaction.push(bytes).into_owned();
            self.divide(source, &clean);
        }
    }

    /// Splits a stream into lines; that of a program is kept as it is.
    fn divide(&mut self, source: LogSource, bytes: &[u8]) {
        if let Some(capture) = &mut self.capture {
            capture.keep(source, bytes);
            return;
        }
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
        self.line(LogLevel::Info, source, line_end, 0);
    }

    /// Number of bytes that the next line may have.
    fn room(&self) -> usize {
        usize::try_from(self.bytes_left)
            .unwrap_or(usize::MAX)
            .min(MAX_LINE)
    }

    fn is_silent(&self) -> bool {
        self.bytes_left == 0 || self.lines_left == 0
    }

    /// Passes on one line, truncated to the remaining limit. Of its end, `missing` bytes are cut already.
    fn line(&mut self, level: LogLevel, source: LogSource, text: &[u8], missing: usize) {
        if self.is_silent() {
            self.dropped_lines += 1;
            return;
        }
        let kept = text.len().min(self.room());
        let mut message = String::from_utf8_lossy(&text[..kept]).into_owned();
        if source == LogSource::Stderr {
            self.last_message.note(&message);
        }
        let missing = missing + text.len() - kept;
        if missing > 0 {
            message.push_str(&format!(" [{missing} bytes cut]"));
        }
        // An empty line is charged as well, because it has to be handled.
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
        self.log_message(level, LogSource::Log, &message);
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
    pub(crate) output: GuestOutput,
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
        self.output.write(self.source, &bytes);
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
        self.output.write(self.source, bytes);
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
    struct Recording(Mutex<(Vec<LogLine>, Vec<Progress>)>);

    impl CallObserver for Recording {
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

    fn record(limit: u64, write: impl FnOnce(&mut GuestOutput)) -> (Vec<String>, u64) {
        let observer = Arc::new(Recording::default());
        let mut output = GuestOutput::new(observer.clone(), limit, &redactor());
        write(&mut output);
        let written = output.finish();
        let lines = observer.0.lock().unwrap().0.clone();
        (lines.into_iter().map(|l| l.message).collect(), written)
    }

    #[test]
    fn stream_is_split_into_lines_wherever_it_is_divided() {
        let (lines, written) = record(1_000, |output| {
            for piece in ["on", "e\r\ntw", "o\n", "\nrest"] {
                output.write(LogSource::Stdout, piece.as_bytes());
            }
        });
        assert_eq!(lines, ["one", "two", "", "rest"]);
        assert_eq!(written, 14);
    }

    #[test]
    fn bytes_beyond_limit_are_counted_and_dropped() {
        let (lines, written) = record(4, |output| {
            output.write(LogSource::Stderr, b"abcd\n");
        });
        assert_eq!((lines, written), (vec!["abcd".to_owned()], 5));
        let (lines, written) = record(4, |output| {
            output.write(LogSource::Stderr, b"abcdef\nx\ny\n");
        });
        assert_eq!(
            lines,
            [
                "abcd [2 bytes cut]",
                "2 lines dropped: the log of a call is limited to 4 bytes in 1000 lines"
            ]
        );
        assert_eq!(written, 11);
    }

    #[test]
    fn lines_beyond_limit_are_reported_in_one_line() {
        let say = |n: u32| {
            record(1 << 20, |output| {
                for _ in 0..n {
                    log::Host::write(output, log::Level::Info, "x".into());
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
    fn long_stream_line_is_split_and_long_message_is_truncated() {
        let lengths = |lines: Vec<String>| lines.iter().map(String::len).collect::<Vec<_>>();
        let (lines, _) = record(1 << 20, |output| {
            output.write(LogSource::Stdout, &[b'x'; MAX_LINE + 1]);
        });
        assert_eq!(lengths(lines), [MAX_LINE, 1]);
        let (lines, _) = record(1 << 20, |output| {
            output.log_message(LogLevel::Info, LogSource::Log, &"\u{1}".repeat(MAX_LINE + 1));
        });
        assert_eq!(lengths(lines), [MAX_LINE + " [1 bytes cut]".len()]);
    }

    #[test]
    fn secret_is_redacted_wherever_output_is_split_or_truncated() {
        let (lines, written) = record(1 << 20, |output| {
            for byte in format!("a {SECRET}\n").bytes() {
                output.write(LogSource::Stdout, &[byte]);
            }
            // Across the end of a line that is split, and across the end of a message that is truncated.
            let filler = "x".repeat(MAX_LINE - 5);
            output.write(LogSource::Stderr, format!("{filler}{SECRET}").as_bytes());
            output.log_message(LogLevel::Info, LogSource::Log, &format!("{filler}{SECRET}"));
        });
        let text = lines.concat();
        for part in ["hunter2", "hunte", "nter2"] {
            assert!(!text.contains(part), "{part}");
        }
        // Another secret could begin with its last letter and the line end: it comes with what follows.
        assert!(lines.iter().any(|line| line == "a [redacted:token]"), "{lines:?}");
        assert!(written > 2 * MAX_LINE as u64);

        let observer = Arc::new(Recording::default());
        let mut output = GuestOutput::new(observer.clone(), 0, &redactor());
        let message = format!("{}{SECRET}", "y".repeat(MAX_PROGRESS_MESSAGE - 5));
        progress::Host::report(&mut output, 1, None, Some(message));
        let reports = observer.0.lock().unwrap().1.clone();
        assert!(!reports[0].message.as_ref().unwrap().contains("hunte"));
    }

    #[test]
    fn what_is_written_and_dropped_is_counted_exactly() {
        let lines_of = |limit, pieces: &[&str]| {
            record(limit, |output| {
                for piece in pieces {
                    output.write(LogSource::Stdout, piece.as_bytes());
                }
            })
        };
        let dropped = "2 lines dropped: the log of a call is limited to 4 bytes in 1000 lines";
        let (lines, written) = lines_of(4, &["abcd\n", "x\n", "y\nz"]);
        assert_eq!((lines, written), (vec!["abcd".into(), dropped.to_owned()], 10));
        let (lines, _) = lines_of(10, &["abcdef\n", "ghijkl\n"]);
        assert_eq!(lines, ["abcdef", "ghij [2 bytes cut]"]);
        // An empty line costs one byte.
        let (lines, _) = lines_of(2, &["\n\n\n"]);
        assert!(lines[2].starts_with("1 lines dropped"), "{lines:?}");

        let (lines, written) = record(100, |output| {
            for message in ["abc", "de"] {
                output.log_message(LogLevel::Info, LogSource::Log, message);
            }
            output.log_backtrace(format!("from the host: {SECRET}"));
        });
        assert_eq!(lines, ["abc", "de", "from the host: [redacted:token]"]);
        assert_eq!(written, 5);
    }

    #[test]
    fn line_of_maximum_length_is_one_line() {
        let lengths = |pieces: &[&[u8]]| -> Vec<usize> {
            let (lines, _) = record(1 << 20, |output| {
                for piece in pieces {
                    output.write(LogSource::Stderr, piece);
                }
            });
            lines.iter().map(String::len).collect()
        };
        let longest = [b'x'; MAX_LINE];
        assert_eq!(lengths(&[&longest, b"\n"]), [MAX_LINE]);
        assert_eq!(lengths(&[b"ab", &longest, b"\n"]), [MAX_LINE, 2]);
    }

    #[tokio::test]
    async fn standard_streams_are_no_terminals_and_take_everything() {
        use tokio::io::AsyncWriteExt as _;
        let observer = Arc::new(Recording::default());
        let output = GuestOutput::new(observer.clone(), 100, &redactor());
        let stdio = GuestStdio {
            output: output.clone(),
            source: LogSource::Stderr,
        };
        assert!(!stdio.is_terminal());
        let mut stream = Box::into_pin(stdio.async_stream());
        stream.write_all(b"one\ntwo").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(output.finish(), 7);
        let lines = observer.0.lock().unwrap().0.clone();
        let lines: Vec<_> = lines.iter().map(|l| (l.source, l.message.as_str())).collect();
        assert_eq!(lines, [(LogSource::Stderr, "one"), (LogSource::Stderr, "two")]);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_passed_on_at_intervals_and_at_the_end() {
        let observer = Arc::new(Recording::default());
        let mut output = GuestOutput::new(observer.clone(), 0, &redactor());
        for done in 0..100 {
            progress::Host::report(&mut output, done, None, Some("é".repeat(1_000)));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        output.finish();
        let reports = observer.0.lock().unwrap().1.clone();
        let done: Vec<u64> = reports.iter().map(|report| report.done).collect();
        assert_eq!(done, [0, 50, 99]);
        let message = reports[0].message.as_ref().unwrap();
        assert_eq!(message.len(), MAX_PROGRESS_MESSAGE);
    }

    #[test]
    fn last_message_is_redacted_and_bounded() {
        let output = GuestOutput::new(
            Arc::new(toolcell_core::tool::Unobserved),
            10_000,
            &Redactor::new([("token", SECRET)]),
        );
        output.write(LogSource::Stdout, b"not this\n");
        let text = format!("{SECRET} {}", "x".repeat(1_000));
        output.write(LogSource::Stderr, text.as_bytes());
        let message = output.last_message().unwrap();
        assert!(
            !message.contains(SECRET) && message.ends_with("bytes cut]"),
            "{message}"
        );
    }
}

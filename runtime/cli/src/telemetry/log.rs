//! Diagnostic log of Toolcell itself, on standard error; off unless `TOOLCELL_LOG` contains a filter, such as `debug`
//! or `toolcell_sandbox=trace`.
//!
//! Each entry is one line of at most [`MAX_ENTRY`] bytes. Control characters are escaped, so that an entry can neither
//! control the terminal nor forge another entry. There are no colours, because they need control characters.

use std::io::{self, Write};

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::telemetry::Telemetry;
use crate::ui::terminal::{inert_line, text};

/// Maximum length of an entry, in bytes; longer ones are truncated with a marker.
const MAX_ENTRY: usize = 16 << 10;

/// Starts the log and the exporter.
///
/// # Errors
/// Returns an error if the log filter is invalid.
pub(crate) fn start(environment: &Environment) -> Result<Telemetry, Failure> {
    let log = filter(environment)?.map(|filter| lines(filter, io::stderr));
    let (telemetry, spans) = Telemetry::start(environment);
    if log.is_some() || spans.is_some() {
        tracing_subscriber::registry().with(spans).with(log).init();
    }
    Ok(telemetry)
}

fn filter(environment: &Environment) -> Result<Option<EnvFilter>, Failure> {
    let Some(filter) = environment.var("TOOLCELL_LOG") else {
        return Ok(None);
    };
    let filter = filter
        .parse()
        .map_err(|e: tracing_subscriber::filter::ParseError| {
            Failure::new(Exit::Config, text!("`TOOLCELL_LOG={}` cannot be used", filter))
                .because(e)
                .hint("use a level (`error`, `warn`, `info`, `debug`, `trace`), or `TARGET=LEVEL`")
        })?;
    Ok(Some(filter))
}

/// Creates a layer that writes entries that match the filter, one per line.
fn lines<S, M, W>(filter: EnvFilter, out: M) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    M: Fn() -> W + Send + Sync + 'static,
    W: Write + 'static,
{
    fmt::layer()
        .with_ansi(false)
        .with_writer(Lines(out))
        .with_filter(filter)
}

/// Creates a writer for each entry.
struct Lines<M>(M);

impl<'a, M: Fn() -> W, W: Write> MakeWriter<'a> for Lines<M> {
    type Writer = Line<W>;

    fn make_writer(&'a self) -> Line<W> {
        Line((self.0)())
    }
}

/// Writes each entry, which arrives in one call, as one line.
struct Line<W>(W);

impl<W: Write> Write for Line<W> {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let kept = text.floor_char_boundary(MAX_ENTRY);
        let mut line = inert_line(&text[..kept]);
        if kept < text.len() {
            line.push_str(&format!(" [{} bytes truncated]", text.len() - kept));
        }
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(write: impl FnOnce()) -> String {
        let paper = Paper::default();
        let out = paper.clone();
        let log = lines(EnvFilter::new("trace"), move || out.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(log), write);
        String::from_utf8(std::mem::take(&mut *paper.0.lock().unwrap())).unwrap()
    }

    #[test]
    fn entry_is_one_inert_line() {
        let evil = "a\n2026-01-01T00:00:00Z ERROR forged\r\u{1b}[2K\u{9b}31m\u{1b}]52;c;eA==\u{7}\u{202e}z";
        let log = logged(|| {
            tracing::warn!(field = evil, shown = %evil, debugged = ?evil, "the name {evil} is odd");
        });
        assert_eq!(log.matches('\n').count(), 1, "{log:?}");
        assert!(log.ends_with('\n') && log.contains("forged"), "{log:?}");
        let obeyed = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}';
        assert_eq!(log.chars().find(obeyed), None, "{log:?}");
    }

    #[test]
    fn entry_beyond_its_limit_is_truncated_with_marker() {
        let entry = |length: usize| {
            let mut line = Line(Vec::new());
            line.write_all(format!("{}\n", "é".repeat(length / 2)).as_bytes())
                .unwrap();
            String::from_utf8(line.0).unwrap()
        };
        assert_eq!(entry(MAX_ENTRY), format!("{}\n", "é".repeat(MAX_ENTRY / 2)));
        assert!(entry(MAX_ENTRY + 2).ends_with("é [2 bytes truncated]\n"));
        assert!(logged(|| tracing::info!("{}", "x".repeat(1 << 20))).len() < MAX_ENTRY + 100);
    }
}

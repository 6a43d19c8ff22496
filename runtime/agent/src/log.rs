//! Log files of sessions: one of everything that happens, one of the model's reasoning alone.
//!
//! `NAME.log` has one JSON object a line (`ms` since 1970-01-01 UTC, `level`, `event`); `NAME.reasoning.log` has the
//! reasoning of each step in plain text. Control characters are escaped in both.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use toolcell_core::event::{NoticeLevel, TurnOutcome};
use toolcell_core::{Event, EventSink, Message, Part};

/// Largest log file, in bytes. Then a last line says so and nothing more is written.
pub const MAX_LOG_BYTES: u64 = 64 << 20;

/// Ages at which log files are usually removed.
pub const KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const GENERAL: &str = ".log";
const REASONING: &str = ".reasoning.log";

/// Writes the two files of one session. A file that cannot be written to does not disturb the session;
/// [`LogFiles::error`] says what went wrong first.
pub struct LogFiles {
    general: Mutex<Capped>,
    reasoning: Mutex<Capped>,
}

/// Hands each event to several sinks, in order.
#[derive(Clone, Default)]
pub struct Tee(pub Vec<Arc<dyn EventSink>>);

struct Capped {
    file: File,
    left: u64,
    error: Option<String>,
}

impl LogFiles {
    /// Opens or continues the files of a session in a directory that exists. Characters of the name that are not letters,
    /// digits, `-` or `_` become `_`.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub fn open(dir: &Path, session: &str) -> io::Result<Self> {
        let name: String = session
            .chars()
            .take(100)
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '-' {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let open = |ending: &str| Capped::open(&dir.join(format!("{name}{ending}"))).map(Mutex::new);
        Ok(Self {
            general: open(GENERAL)?,
            reasoning: open(REASONING)?,
        })
    }

    /// Removes log files in a directory that nobody has written to for that long. Returns how many.
    ///
    /// # Errors
    /// When the directory cannot be read, or a file cannot be removed.
    pub fn clean(dir: &Path, older_than: Duration) -> io::Result<usize> {
        let mut removed = 0;
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let is_log = entry.file_name().to_string_lossy().ends_with(GENERAL);
            let metadata = entry.metadata()?;
            // A file from the future is young.
            let age = SystemTime::now()
                .duration_since(metadata.modified()?)
                .unwrap_or_default();
            if is_log && metadata.is_file() && age > older_than {
                std::fs::remove_file(entry.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// What went wrong first, if anything did.
    pub fn error(&self) -> Option<String> {
        let of = |file: &Mutex<Capped>| lock(file).error.clone();
        of(&self.general).or_else(|| of(&self.reasoning))
    }
}

impl EventSink for LogFiles {
    fn event(&self, event: &Event) {
        if event.is_transient() {
            return;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let line = json!({"ms": ms, "level": level(event), "event": event}).to_string();
        lock(&self.general).write(&inert(&line, |c| format!("\\u{:04x}", u32::from(c))));
        if let Event::StepFinished {
            step,
            message: Message::Assistant { parts },
            ..
        } = event
        {
            for part in parts {
                if let Part::Reasoning { text, .. } = part
                    && !text.is_empty()
                {
                    let text = inert(text, |c| c.escape_unicode().to_string());
                    lock(&self.reasoning).write(&format!("--- {ms} step {step}\n{text}"));
                }
            }
        }
    }
}

fn level(event: &Event) -> &'static str {
    match event {
        Event::CallFinished { error: Some(_), .. } | Event::StepInterrupted { .. } => "error",
        Event::Notice { level, .. } => match level {
            NoticeLevel::Warning => "warning",
            NoticeLevel::Error => "error",
            _ => "info",
        },
        Event::TurnFinished {
            outcome: TurnOutcome::ProviderFailed { .. } | TurnOutcome::HostFailed { .. },
            ..
        } => "error",
        _ => "info",
    }
}

/// The same text with its control characters escaped, but for line ends. All of them have four hexadecimal digits at most.
fn inert(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Beside the controls: marks that change the direction of text (Unicode UAX #9).
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c != '\n' && (c.is_control() || turns) {
            out.push_str(&escape(c));
        } else {
            out.push(c);
        }
    }
    out
}

fn lock(file: &Mutex<Capped>) -> std::sync::MutexGuard<'_, Capped> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Capped {
    fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        let left = MAX_LOG_BYTES.saturating_sub(file.metadata()?.len());
        Ok(Self {
            file,
            left,
            error: None,
        })
    }

    fn write(&mut self, text: &str) {
        if self.left == 0 {
            return;
        }
        let mut line = format!("{text}\n");
        let len = line.len() as u64;
        if len > self.left {
            line = format!("{{\"level\":\"warning\",\"log\":\"full: {MAX_LOG_BYTES} bytes\"}}\n");
            self.left = 0;
        } else {
            self.left -= len;
        }
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            self.error.get_or_insert_with(|| error.to_string());
        }
    }
}

impl EventSink for Tee {
    fn event(&self, event: &Event) {
        for sink in &self.0 {
            sink.event(event);
        }
    }
}

impl std::fmt::Debug for LogFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogFiles").field("error", &self.error()).finish()
    }
}

impl std::fmt::Debug for Tee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tee({} sinks)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_core::provider::StopReason;

    fn thought(text: &str) -> Event {
        Event::StepFinished {
            step: 3,
            message: Message::Assistant {
                parts: vec![Part::Reasoning {
                    text: text.into(),
                    opaque: serde_json::Value::Null,
                }],
            },
            stop: StopReason::Complete,
            usage: None,
        }
    }

    fn read(dir: &Path, name: &str) -> String {
        std::fs::read_to_string(dir.join(name)).unwrap()
    }

    #[test]
    fn v04_everything_goes_into_one_file_and_reasoning_into_another() {
        let dir = tempfile::tempdir().unwrap();
        let files = LogFiles::open(dir.path(), "../a b").unwrap();
        let tee = Tee(vec![Arc::new(files)]);
        tee.event(&Event::StepStarted { step: 3 });
        tee.event(&Event::TextDelta { text: "x".into() });
        tee.event(&thought("First \u{1b}[2J this.\nThen that. \u{202e}"));
        tee.event(&Event::Notice {
            level: NoticeLevel::Error,
            text: "broken".into(),
        });
        let general = read(dir.path(), "___a_b.log");
        let lines: Vec<serde_json::Value> = general
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            (lines[0]["level"].as_str(), lines[2]["level"].as_str()),
            (Some("info"), Some("error"))
        );
        let reasoning = read(dir.path(), "___a_b.reasoning.log");
        assert!(reasoning.starts_with("--- "), "{reasoning}");
        assert!(
            reasoning.ends_with(" step 3\nFirst \\u{1b}[2J this.\nThen that. \\u{202e}\n"),
            "{reasoning}"
        );
        assert!(!general.contains('\u{202e}') && !general.contains('\u{1b}'));
    }

    #[test]
    fn v04_old_logs_are_removed_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        drop(LogFiles::open(dir.path(), "s").unwrap());
        std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        assert_eq!(LogFiles::clean(dir.path(), KEEP).unwrap(), 0);
        let old = SystemTime::now() - KEEP - Duration::from_secs(60);
        for name in ["s.log", "s.reasoning.log", "notes.txt"] {
            let file = File::options().append(true).open(dir.path().join(name)).unwrap();
            file.set_modified(old).unwrap();
        }
        assert_eq!(LogFiles::clean(dir.path(), KEEP).unwrap(), 2);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_log_is_written_up_to_its_limit_and_says_when_it_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = Capped::open(&dir.path().join("s.log")).unwrap();
        file.left = 10;
        file.write("123456789");
        assert_eq!((file.left, read(dir.path(), "s.log").len()), (0, 10));
        file.left = 9;
        file.write("123456789");
        file.write("1");
        let text = read(dir.path(), "s.log");
        assert_eq!(text.lines().count(), 2);
        assert!(text.ends_with("\"log\":\"full: 67108864 bytes\"}\n"), "{text}");
    }
}

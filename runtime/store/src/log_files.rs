//! Log files of sessions: one of all events, one of the model's reasoning.
//!
//! `toolcell-SESSION.log` has one JSON object per line (`ms` since 1970-01-01 UTC, `level`, `event`);
//! `toolcell-SESSION.reasoning.log` has the reasoning of each step in plain text. Control characters are escaped in
//! both.
//!
//! The first line of each names the session and marks the file as a log: a file without it, or with the line of another
//! session, is neither written nor removed, whatever its name.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use toolcell_core::event::{NoticeLevel, TurnOutcome};
use toolcell_core::{Event, EventSink, Message, Part, inert};

/// Maximum size of a log file, in bytes. A last line reports the limit; nothing more is written.
pub const MAX_LOG_BYTES: u64 = 64 << 20;

/// Default age at which log files are removed.
pub const KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Prefix of the names of log files.
const PREFIX: &str = "toolcell-";

/// Maximum characters of a session's name in the file name.
const MAX_NAME: usize = 100;

/// Content of a log file; the suffix of the file name tells them apart.
#[derive(Clone, Copy)]
enum Kind {
    General,
    Reasoning,
}

/// Writes the two log files of one session. Write errors do not affect the session; [`LogFiles::error`] returns the
/// first one.
pub struct LogFiles {
    general: Mutex<Capped>,
    reasoning: Mutex<Capped>,
}

/// Forwards each event to several sinks, in order.
#[derive(Clone, Default)]
pub struct Tee(pub Vec<Arc<dyn EventSink>>);

struct Capped {
    file: File,
    left: u64,
    error: Option<String>,
}

impl LogFiles {
    /// Opens or continues the log files of a session in an existing directory. Characters of the name other than
    /// letters, digits, `-` and `_` become `_`.
    ///
    /// # Errors
    /// Fails if a file cannot be opened, or exists and was not written for this session.
    pub fn open(dir: &Path, session: &str) -> io::Result<Self> {
        let name: String = session
            .chars()
            .take(MAX_NAME)
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '-' {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let open = |kind: Kind| Capped::open(dir, kind, &name).map(Mutex::new);
        Ok(Self {
            general: open(Kind::General)?,
            reasoning: open(Kind::Reasoning)?,
        })
    }

    /// Removes log files in a directory that were last written longer ago than `older_than`. Returns their number.
    ///
    /// Only files that [`LogFiles`] created are removed: regular files of this user, identified by name and by the
    /// session in their first line. Everything else in the directory stays, however old it is.
    ///
    /// # Errors
    /// Fails if the directory cannot be read, or a log file cannot be removed.
    pub fn clean(dir: &Path, older_than: Duration) -> io::Result<usize> {
        let mut removed = 0;
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let Some((kind, session)) = name.and_then(Kind::of_file) else {
                continue;
            };
            // A file that cannot be opened cannot be identified as a log.
            let Ok(mut file) = toolcell_fs::open(&path, &toolcell_fs::Rules::own(u64::MAX)) else {
                continue;
            };
            // A modification time in the future counts as recent.
            let age = SystemTime::now()
                .duration_since(file.metadata()?.modified()?)
                .unwrap_or_default();
            if age > older_than
                && kind.begins(&mut file, session).unwrap_or(false)
                && toolcell_fs::remove_if_same(&path, &file)?
            {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Returns the first write error, if there was one.
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
        lock(&self.general).write(&inert::json(&line));
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
                    let text = escaped(text);
                    lock(&self.reasoning).write(&format!("--- {ms} step {step}\n{text}"));
                }
            }
        }
    }
}

fn level(event: &Event) -> &'static str {
    match event {
        Event::CallFinished { result, .. } if result.error.is_some() => "error",
        Event::StepInterrupted { .. } => "error",
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

/// Escapes the characters of a text that are unsafe on a terminal, except line ends.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && inert::is_unsafe(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

fn lock(file: &Mutex<Capped>) -> std::sync::MutexGuard<'_, Capped> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kind {
    fn ending(self) -> &'static str {
        match self {
            Self::General => ".log",
            Self::Reasoning => ".reasoning.log",
        }
    }

    fn file(self, session: &str) -> String {
        format!("{PREFIX}{session}{}", self.ending())
    }

    /// Kind and session encoded in a file name, if [`Kind::file`] produces that name.
    fn of_file(name: &str) -> Option<(Self, &str)> {
        let name = name.strip_prefix(PREFIX)?;
        // Session names contain no dot.
        [Self::General, Self::Reasoning].into_iter().find_map(|kind| {
            let session = name.strip_suffix(kind.ending())?;
            (!session.contains('.')).then_some((kind, session))
        })
    }

    /// The first line of the log file of a session.
    fn first_line(self, session: &str) -> String {
        match self {
            Self::General => format!(
                "{}\n",
                json!({"level": "info", "log": "toolcell", "session": session})
            ),
            Self::Reasoning => format!("=== toolcell, reasoning of session {session}\n"),
        }
    }

    /// True if the file starts with the first line of this session's log.
    fn begins(self, file: &mut File, session: &str) -> io::Result<bool> {
        let line = self.first_line(session);
        let mut start = Vec::new();
        file.take(line.len() as u64).read_to_end(&mut start)?;
        Ok(start == line.as_bytes())
    }
}

impl Capped {
    fn open(dir: &Path, kind: Kind, session: &str) -> io::Result<Self> {
        let path = dir.join(kind.file(session));
        let (mut file, _) = toolcell_fs::append(&path)?;
        let mut size = file.metadata()?.len();
        if size == 0 {
            let line = kind.first_line(session);
            file.write_all(line.as_bytes())?;
            size = line.len() as u64;
        } else if !kind.begins(&mut file, session)? {
            return Err(io::Error::other(format!(
                "`{}` is not a log of this session; nothing is written to it",
                path.display()
            )));
        }
        Ok(Self {
            file,
            left: MAX_LOG_BYTES.saturating_sub(size),
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
    use toolcell_core::provider::{ProviderError, ProviderErrorKind, StopReason, Usage};
    use toolcell_core::{CallResult, ToolError};

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
    fn v04_events_and_reasoning_go_to_separate_log_files() {
        let dir = tempfile::tempdir().unwrap();
        let files = LogFiles::open(dir.path(), "../a b").unwrap();
        let tee = Tee(vec![Arc::new(files)]);
        tee.event(&Event::StepStarted { step: 3 });
        tee.event(&Event::TextDelta { text: "x".into() });
        tee.event(&thought("First \u{1b}[2J this.\nThen that. \u{202e}"));
        tee.event(&Event::Notice {
            level: NoticeLevel::Error,
            hook: None,
            text: "broken".into(),
        });
        let general = read(dir.path(), "toolcell-___a_b.log");
        let lines: Vec<serde_json::Value> = general
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0]["session"], "___a_b");
        assert_eq!(
            (lines[1]["level"].as_str(), lines[3]["level"].as_str()),
            (Some("info"), Some("error"))
        );
        let reasoning = read(dir.path(), "toolcell-___a_b.reasoning.log");
        assert!(
            reasoning.starts_with("=== toolcell, reasoning of session ___a_b\n--- "),
            "{reasoning}"
        );
        assert!(
            reasoning.ends_with(" step 3\nFirst \\u{1b}[2J this.\nThen that. \\u{202e}\n"),
            "{reasoning}"
        );
        assert!(!general.contains('\u{202e}') && !general.contains('\u{1b}'));
    }

    fn make_old(path: &Path) {
        let old = SystemTime::now() - KEEP - Duration::from_secs(60);
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(old).unwrap();
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn v04_only_old_logs_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for session in ["old", "young"] {
            drop(LogFiles::open(dir.path(), session).unwrap());
        }
        assert_eq!(LogFiles::clean(dir.path(), KEEP).unwrap(), 0);
        for name in ["toolcell-old.log", "toolcell-old.reasoning.log"] {
            make_old(&dir.path().join(name));
        }
        assert_eq!(LogFiles::clean(dir.path(), KEEP).unwrap(), 2);
        assert_eq!(
            names(dir.path()),
            ["toolcell-young.log", "toolcell-young.reasoning.log"]
        );
    }

    #[test]
    fn files_not_identified_as_logs_are_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        drop(LogFiles::open(dir.path(), "s").unwrap());
        let log = std::fs::read(at("toolcell-s.log")).unwrap();
        let reasoning = std::fs::read(at("toolcell-s.reasoning.log")).unwrap();
        for (name, content) in [
            ("other-program.log", b"{\"level\":\"info\"}\n".as_slice()),
            // Our name, but not our content.
            ("toolcell-.log", b""),
            ("toolcell-a.log", b"2026-01-01 INFO started\n"),
            ("toolcell-a.reasoning.log", b"why\n"),
            ("toolcell-b.log", &reasoning),
            ("toolcell-b.reasoning.log", &log),
            // Our content, under a foreign name.
            ("s.log", &log),
            ("toolcell-copy.log", &log),
            ("toolcell-s.old.log", &log),
            ("toolcell-s.log.1", &log),
            ("notes.txt", &log),
        ] {
            std::fs::write(at(name), content).unwrap();
        }
        std::fs::create_dir(at("toolcell-d.log")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("toolcell-l.log");
        std::fs::write(&target, Kind::General.first_line("l")).unwrap();
        std::os::unix::fs::symlink(&target, at("toolcell-l.log")).unwrap();
        let before = names(dir.path());
        for name in before.iter().filter(|name| *name != "toolcell-d.log") {
            make_old(&at(name));
        }
        assert_eq!(LogFiles::clean(dir.path(), KEEP).unwrap(), 2);
        let kept: Vec<String> = before
            .into_iter()
            .filter(|name| name != "toolcell-s.log" && name != "toolcell-s.reasoning.log")
            .collect();
        assert_eq!(names(dir.path()), kept);
        assert!(target.exists());
    }

    #[test]
    fn foreign_files_are_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("toolcell-a.log"), "notes\n").unwrap();
        LogFiles::open(dir.path(), "a").unwrap_err();
        assert_eq!(read(dir.path(), "toolcell-a.log"), "notes\n");
        std::fs::write(at("target"), Kind::General.first_line("b")).unwrap();
        std::os::unix::fs::symlink(at("target"), at("toolcell-b.log")).unwrap();
        LogFiles::open(dir.path(), "b").unwrap_err();
        // An empty file gets its first line.
        std::fs::write(at("toolcell-c.log"), "").unwrap();
        drop(LogFiles::open(dir.path(), "c").unwrap());
        drop(LogFiles::open(dir.path(), "c").unwrap());
        assert_eq!(read(dir.path(), "toolcell-c.log"), Kind::General.first_line("c"));
    }

    #[test]
    fn log_stops_at_its_limit_with_a_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = Capped::open(dir.path(), Kind::General, "s").unwrap();
        let begun = read(dir.path(), "toolcell-s.log").len();
        file.left = 10;
        file.write("123456789");
        assert_eq!(
            (file.left, read(dir.path(), "toolcell-s.log").len() - begun),
            (0, 10)
        );
        file.left = 9;
        file.write("123456789");
        file.write("1");
        let text = read(dir.path(), "toolcell-s.log");
        assert_eq!(text.lines().count(), 3);
        assert!(text.ends_with("\"log\":\"full: 67108864 bytes\"}\n"), "{text}");
    }

    #[test]
    fn each_event_is_logged_at_its_level() {
        let notice = |level| Event::Notice {
            level,
            hook: None,
            text: String::new(),
        };
        let finished = |error: Option<ToolError>| Event::CallFinished {
            id: "1".into(),
            tool: "t".into(),
            result: CallResult {
                error,
                ..CallResult::default()
            },
        };
        let interrupted = Event::StepInterrupted {
            step: 1,
            message: None,
            reason: String::new(),
            usage: None,
        };
        let ended = |outcome| Event::TurnFinished {
            outcome,
            text: String::new(),
            result: None,
            steps: 1,
            usage: Usage::default(),
            wall_ms: 1,
            cost_micros: None,
        };
        let provider = ProviderError::new("p", ProviderErrorKind::Timeout, "late");
        for (event, expected) in [
            (finished(Some(ToolError::Cancelled)), "error"),
            (finished(None), "info"),
            (notice(NoticeLevel::Info), "info"),
            (notice(NoticeLevel::Warning), "warning"),
            (notice(NoticeLevel::Error), "error"),
            (interrupted, "error"),
            (ended(TurnOutcome::Completed), "info"),
            (ended(TurnOutcome::ProviderFailed { error: provider }), "error"),
        ] {
            assert_eq!(level(&event), expected, "{event:?}");
        }
    }

    #[test]
    fn first_error_of_writing_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let files = LogFiles::open(dir.path(), "s").unwrap();
        files.event(&Event::StepStarted { step: 1 });
        assert_eq!(files.error(), None);
        lock(&files.general).file = File::open(dir.path().join("toolcell-s.log")).unwrap();
        files.event(&Event::StepStarted { step: 2 });
        assert!(files.error().is_some());
    }
}

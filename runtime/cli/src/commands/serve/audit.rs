//! Audit log of the server.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use toolcell_serve::{AuditLine, Decision};

use crate::environment::Environment;

/// Name of the audit log in the state directory. Before it grows further, it takes the name with `.1`.
const AUDIT_FILE: &str = "serve-audit.jsonl";

/// Maximum size of one file of the audit log, in bytes: two are kept, about 100,000 lines.
const MAX_AUDIT: u64 = 16 << 20;

/// Maximum number of refusals of one kind in the audit log for each client and minute. Further ones are counted: a client that
/// is refused a thousand times a second does not remove the other lines.
const MAX_REFUSALS: u64 = 60;

const MINUTE_MS: u64 = 60_000;

/// Refusals of one kind in a minute.
struct Refusals {
    minute: u64,
    count: u64,
    /// The last one.
    last: AuditLine,
}

impl Refusals {
    /// Returns the line about those that were left out.
    fn left_out(mut self) -> Option<AuditLine> {
        let count = self.count.checked_sub(MAX_REFUSALS).filter(|count| *count > 0)?;
        let detail = &self.last.detail;
        self.last.detail = format!("{count} more refusals in this minute, the last: {detail}");
        Some(self.last)
    }
}

/// Client, if it is known, and the kind of the decision.
type RefusalKey = (Option<String>, Decision);

/// Audit log. A line that cannot be written is left out: the server goes on.
pub(super) struct Audit {
    file: Option<PathBuf>,
    /// Refusals of this minute.
    refusals: Mutex<BTreeMap<RefusalKey, Refusals>>,
    most: u64,
}

impl Audit {
    pub(super) fn new(environment: &Environment) -> Self {
        let file = environment.state_dir.as_ref().map(|dir| dir.join(AUDIT_FILE));
        Self {
            file,
            refusals: Mutex::default(),
            most: MAX_AUDIT,
        }
    }

    pub(super) fn write(&self, line: &AuditLine) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = line.at_ms / MINUTE_MS;
        for (_, past) in refusals.extract_if(.., |_, refusals| refusals.minute != minute) {
            if let Some(line) = past.left_out() {
                self.append(&line);
            }
        }
        if !line.is_allowed {
            let key = (line.client.clone(), line.decision);
            let known = refusals.entry(key).or_insert_with(|| Refusals {
                minute,
                count: 0,
                last: line.clone(),
            });
            known.count += 1;
            if known.count > MAX_REFUSALS {
                known.last = line.clone();
                return;
            }
        }
        self.append(line);
    }

    /// Adds a line to the file. Called with the lock on the refusals.
    fn append(&self, line: &AuditLine) {
        let (Some(file), Ok(mut text)) = (&self.file, serde_json::to_string(line)) else {
            return;
        };
        text.push('\n');
        let Ok((mut open, _)) = toolcell_fs::append(file) else {
            return;
        };
        let length = open.metadata().map(|metadata| metadata.len()).unwrap_or(0);
        if length.saturating_add(text.len() as u64) > self.most {
            let _ = std::fs::rename(file, file.with_extension("jsonl.1"));
            match toolcell_fs::append(file) {
                Ok((next, _)) => open = next,
                Err(_) => return,
            }
        }
        let _ = open.write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> (tempfile::TempDir, Environment) {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.state_dir = Some(dir.path().to_owned());
        (dir, environment)
    }

    #[test]
    fn flood_of_refusals_is_counted_and_keeps_other_lines() {
        let (dir, environment) = environment();
        let audit = Audit::new(&environment);
        let mut line = AuditLine {
            at_ms: 10 * MINUTE_MS,
            client: Some("ada".into()),
            decision: Decision::Limit,
            is_allowed: false,
            session: None,
            detail: "beyond".into(),
        };
        for _ in 0..MAX_REFUSALS + 1_000 {
            audit.write(&line);
        }
        line.client = Some("eve".into());
        audit.write(&line);
        line.at_ms += MINUTE_MS;
        audit.write(&line);
        let text = std::fs::read_to_string(dir.path().join(AUDIT_FILE)).unwrap();
        let of = |name: &str| text.lines().filter(|line| line.contains(name)).count() as u64;
        assert_eq!((of("ada"), of("eve")), (MAX_REFUSALS + 1, 2), "{text}");
        assert!(text.contains("1000 more refusals in this minute, the last: beyond"));
    }

    #[test]
    fn audit_log_has_two_files_of_limited_size() {
        let (dir, environment) = environment();
        let mut audit = Audit::new(&environment);
        audit.most = 1_000;
        let line = AuditLine {
            at_ms: 1,
            client: Some("ada".into()),
            decision: Decision::Answer,
            is_allowed: true,
            session: None,
            detail: "line\nbreak".into(),
        };
        for _ in 0..100 {
            audit.write(&line);
        }
        for name in [AUDIT_FILE, "serve-audit.jsonl.1"] {
            let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
            assert!(text.len() <= 1_000 && !text.is_empty());
            for line in text.lines() {
                assert!(
                    line.contains(r#""client":"ada","decision":"answer","is_allowed":true"#),
                    "{line}"
                );
            }
        }
    }
}

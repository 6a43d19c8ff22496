//! Use of models by clients on a day, and the audit log of the server. Both outlast the server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use toolcell_fs::Rules;
use toolcell_serve::{AuditLine, Refusal};

use super::clients::Daily;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Name of the file with the use of a day, in the state directory.
const USE_FILE: &str = "serve-use.json";

/// Name of the audit log in the state directory. Before it grows further, it takes the name with `.1`.
const AUDIT_FILE: &str = "serve-audit.jsonl";

/// Maximum size of one file of the audit log, in bytes: two are kept, about 100,000 lines.
const MAX_AUDIT: u64 = 16 << 20;

/// Maximum size of the file with the use of a day, in bytes. There are 64 clients.
const MAX_USE: u64 = 64 << 10;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Use of one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Used {
    pub(super) tokens: u64,
    pub(super) cost_micros: u64,
}

impl Used {
    fn is_below(self, limits: Daily) -> bool {
        limits.tokens.is_none_or(|most| self.tokens < most)
            && limits.cost_micros.is_none_or(|most| self.cost_micros < most)
    }
}

/// Use of all clients on one day of UTC.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Day {
    day: u64,
    clients: BTreeMap<String, Used>,
}

/// Use of the clients that have limits for a day.
pub(super) struct Ledger {
    file: Option<PathBuf>,
    day: Mutex<Day>,
}

/// Seconds since 1970-01-01 UTC.
pub(super) fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

impl Ledger {
    /// Reads what was used before the server started.
    ///
    /// # Errors
    /// Fails if there is a file that cannot be used: without it the limits of the day would begin again.
    pub(super) fn open(environment: &Environment) -> Result<Self, Failure> {
        let file = environment.state_dir.as_ref().map(|dir| dir.join(USE_FILE));
        let failed = |file: &Path| {
            let shown = environment.shown(file);
            Failure::new(Exit::Config, "the use of the clients of today cannot be read")
                .hint(text!("to begin it again, remove `{}`", shown))
        };
        let day = match file
            .as_deref()
            .map(|file| (file, toolcell_fs::read_text(file, &Rules::own(MAX_USE))))
        {
            None => Day::default(),
            Some((_, Err(error))) if error.is_not_found() => Day::default(),
            Some((file, Err(error))) => return Err(failed(file).because(error)),
            Some((file, Ok(text))) => {
                serde_json::from_str(&text).map_err(|error| failed(file).because(error))?
            }
        };
        Ok(Self {
            file,
            day: Mutex::new(day),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Day> {
        self.day.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what other servers have added. What cannot be read leaves what is known.
    fn read_again(&self, day: &mut Day) {
        let text = self
            .file
            .as_deref()
            .map(|file| toolcell_fs::read_text(file, &Rules::own(MAX_USE)));
        if let Some(Ok(text)) = text
            && let Ok(read) = serde_json::from_str(&text)
        {
            *day = read;
        }
    }

    /// Adds what a client has used; false if a limit is reached.
    pub(super) fn add(&self, client: &str, used: Used, limits: Daily, now: u64) -> bool {
        let mut day = self.lock();
        // Other servers of the user count as well.
        let _others = self.file.as_deref().and_then(exclusively);
        self.read_again(&mut day);
        let today = now / DAY_SECONDS;
        if day.day != today {
            *day = Day {
                day: today,
                clients: BTreeMap::new(),
            };
        }
        let total = day.clients.entry(client.to_owned()).or_default();
        total.tokens = total.tokens.saturating_add(used.tokens);
        total.cost_micros = total.cost_micros.saturating_add(used.cost_micros);
        let is_below = total.is_below(limits);
        // Without the file, what was used is forgotten when the server ends.
        if let (Some(file), Ok(text)) = (&self.file, serde_json::to_string(&*day)) {
            let _ = toolcell_fs::replace(file, text.as_bytes(), toolcell_fs::PRIVATE);
        }
        is_below
    }

    /// Refuses a turn of a client that has used up its limits of the day.
    pub(super) fn check(&self, client: &str, limits: Daily, now: u64) -> Result<(), Refusal> {
        let mut day = self.lock();
        self.read_again(&mut day);
        let used = day.clients.get(client).copied().unwrap_or_default();
        if day.day != now / DAY_SECONDS || used.is_below(limits) {
            return Ok(());
        }
        Err(Refusal::UsedUp {
            message: "the client has used up its tokens or its money of today, which end at midnight UTC"
                .into(),
            seconds: DAY_SECONDS - now % DAY_SECONDS,
        })
    }
}

/// Keeps other servers from a file until the result is dropped.
fn exclusively(file: &Path) -> Option<File> {
    let lock = File::create(file.with_extension("lock")).ok()?;
    lock.lock().ok()?;
    Some(lock)
}

/// Audit log. A line that cannot be written is left out: the server goes on.
pub(super) struct Audit {
    file: Option<PathBuf>,
    lock: Mutex<()>,
    most: u64,
}

impl Audit {
    pub(super) fn new(environment: &Environment) -> Self {
        let file = environment.state_dir.as_ref().map(|dir| dir.join(AUDIT_FILE));
        Self {
            file,
            lock: Mutex::default(),
            most: MAX_AUDIT,
        }
    }

    pub(super) fn write(&self, line: &AuditLine) {
        let (Some(file), Ok(mut text)) = (&self.file, serde_json::to_string(line)) else {
            return;
        };
        text.push('\n');
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
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
    use toolcell_serve::Decision;

    use super::*;

    const LIMITS: Daily = Daily {
        tokens: Some(100),
        cost_micros: None,
    };

    fn environment() -> (tempfile::TempDir, Environment) {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.state_dir = Some(dir.path().to_owned());
        (dir, environment)
    }

    fn tokens(tokens: u64) -> Used {
        Used {
            tokens,
            cost_micros: 0,
        }
    }

    #[test]
    fn use_of_a_day_outlasts_the_server_and_ends_at_midnight() {
        let (_dir, environment) = environment();
        let noon = DAY_SECONDS * 20_000 + DAY_SECONDS / 2;
        let ledger = Ledger::open(&environment).unwrap();
        assert!(ledger.add("ada", tokens(99), LIMITS, noon));
        assert!(ledger.check("ada", LIMITS, noon).is_ok());
        assert!(!ledger.add("ada", tokens(1), LIMITS, noon));
        let again = Ledger::open(&environment).unwrap();
        let seconds = DAY_SECONDS / 2;
        assert!(
            matches!(again.check("ada", LIMITS, noon), Err(Refusal::UsedUp { seconds: left, .. }) if left == seconds)
        );
        assert!(again.check("eve", LIMITS, noon).is_ok());
        assert!(again.check("ada", LIMITS, noon + seconds).is_ok());
    }

    #[test]
    fn servers_of_one_user_count_together_and_damage_is_no_new_day() {
        let (dir, environment) = environment();
        let noon = DAY_SECONDS * 20_000 + DAY_SECONDS / 2;
        let (one, two) = (
            Ledger::open(&environment).unwrap(),
            Ledger::open(&environment).unwrap(),
        );
        assert!(one.add("ada", tokens(60), LIMITS, noon));
        assert!(two.check("ada", LIMITS, noon).is_ok());
        assert!(!two.add("ada", tokens(40), LIMITS, noon));
        assert!(one.check("ada", LIMITS, noon).is_err());
        std::fs::write(dir.path().join(USE_FILE), "{garbage").unwrap();
        assert!(one.check("ada", LIMITS, noon).is_err());
        let failure = Ledger::open(&environment).err().unwrap().to_string();
        assert!(failure.contains("cannot be read"), "{failure}");
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

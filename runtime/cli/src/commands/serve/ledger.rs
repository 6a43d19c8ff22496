//! Use of models by clients on a day, which outlasts the server.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use toolcell_fs::Rules;
use toolcell_serve::Refusal;

use super::clients::Daily;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Name of the file with the use of a day, in the state directory.
const USE_FILE: &str = "serve-use.json";

/// Maximum size of the file with the use of a day, in bytes. There are 64 clients.
const MAX_USE: u64 = 64 << 10;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Tokens that a step is expected to use before the client has had one: a prompt with the tools, and a short answer.
const FIRST_STEP: u64 = 8_192;

/// Seconds after which a client may try again whose other turns may use what is left of the day.
const SOON: u64 = 5;

/// Message for a client without anything left of its day.
pub(super) const USED_UP: &str =
    "the client has used up its tokens or its cost of today; a new day begins at midnight UTC";

/// Returns the refusal of a client without anything left of its day.
pub(super) fn used_up(now: u64) -> Refusal {
    Refusal::UsedUp {
        message: USED_UP.into(),
        seconds: DAY_SECONDS - now % DAY_SECONDS,
    }
}

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

    fn plus(self, more: Self, times: u64) -> Self {
        Self {
            tokens: self.tokens.saturating_add(more.tokens.saturating_mul(times)),
            cost_micros: (self.cost_micros).saturating_add(more.cost_micros.saturating_mul(times)),
        }
    }
}

/// Turns of a client that run in this server.
#[derive(Debug, Clone, Copy)]
struct Running {
    turns: u64,
    /// The largest use of a step so far.
    step: Used,
}

impl Default for Running {
    fn default() -> Self {
        let step = Used {
            tokens: FIRST_STEP,
            cost_micros: 0,
        };
        Self { turns: 0, step }
    }
}

impl Running {
    /// Returns what the steps of all turns but one may use.
    fn of_others(&self, used: Used) -> Used {
        used.plus(self.step, self.turns.saturating_sub(1))
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
    /// Locked after `day`.
    running: Mutex<BTreeMap<String, Running>>,
}

/// Turn of a client with limits: what its next step may use is reserved until it ends.
pub(super) struct Reserved {
    ledger: Arc<Ledger>,
    client: String,
}

impl Reserved {
    pub(super) fn client(&self) -> &str {
        &self.client
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(running) = self.ledger.running().get_mut(&self.client) {
            running.turns = running.turns.saturating_sub(1);
        }
    }
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
            running: Mutex::default(),
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

    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what a step of a client has used; false if a further one may exceed a limit together with the steps of the other turns.
    pub(super) fn step(&self, client: &str, used: Used, limits: Daily, now: u64) -> bool {
        let total = self.add(client, used, now);
        let mut all = self.running();
        let running = all.entry(client.to_owned()).or_default();
        running.step = Used {
            tokens: running.step.tokens.max(used.tokens),
            cost_micros: running.step.cost_micros.max(used.cost_micros),
        };
        running.of_others(total).is_below(limits)
    }

    /// Adds what a client has used and no step told; false if a limit is reached.
    pub(super) fn rest(&self, client: &str, used: Used, limits: Daily, now: u64) -> bool {
        self.add(client, used, now).is_below(limits)
    }

    /// Returns the use of the day, with what is added.
    fn add(&self, client: &str, used: Used, now: u64) -> Used {
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
        let total = *total;
        // Without the file, what was used is forgotten when the server ends.
        if let (Some(file), Ok(text)) = (&self.file, serde_json::to_string(&*day)) {
            let _ = toolcell_fs::replace(file, text.as_bytes(), toolcell_fs::PRIVATE);
        }
        total
    }

    /// Reserves a step for a turn of a client.
    ///
    /// # Errors
    /// The client has used up its limits of the day, or the turns that run may.
    pub(super) fn reserve(
        self: &Arc<Self>,
        client: &str,
        limits: Daily,
        now: u64,
    ) -> Result<Reserved, Refusal> {
        let mut day = self.lock();
        self.read_again(&mut day);
        let used = match day.day == now / DAY_SECONDS {
            true => day.clients.get(client).copied().unwrap_or_default(),
            false => Used::default(),
        };
        if !used.is_below(limits) {
            return Err(used_up(now));
        }
        let mut all = self.running();
        let running = all.entry(client.to_owned()).or_default();
        if !used.plus(running.step, running.turns).is_below(limits) {
            return Err(Refusal::UsedUp {
                message:
                    "the turns of the client that run may use up what is left of its tokens or its money of \
                          today; wait for one"
                        .into(),
                seconds: SOON,
            });
        }
        running.turns += 1;
        Ok(Reserved {
            ledger: self.clone(),
            client: client.to_owned(),
        })
    }
}

/// Keeps other servers from a file until the result is dropped.
fn exclusively(file: &Path) -> Option<File> {
    let lock = File::create(file.with_extension("lock")).ok()?;
    lock.lock().ok()?;
    Some(lock)
}

#[cfg(test)]
mod tests {
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

    fn open(environment: &Environment) -> Arc<Ledger> {
        Arc::new(Ledger::open(environment).unwrap())
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
        let ledger = open(&environment);
        assert!(ledger.step("ada", tokens(99), LIMITS, noon));
        assert!(ledger.reserve("ada", LIMITS, noon).is_ok());
        assert!(!ledger.step("ada", tokens(1), LIMITS, noon));
        let again = open(&environment);
        let seconds = DAY_SECONDS / 2;
        assert!(
            matches!(again.reserve("ada", LIMITS, noon), Err(Refusal::UsedUp { seconds: left, .. }) if left == seconds)
        );
        assert!(again.reserve("eve", LIMITS, noon).is_ok());
        assert!(again.reserve("ada", LIMITS, noon + seconds).is_ok());
    }

    #[test]
    fn servers_of_one_user_count_together_and_damage_is_no_new_day() {
        let (dir, environment) = environment();
        let noon = DAY_SECONDS * 20_000 + DAY_SECONDS / 2;
        let (one, two) = (open(&environment), open(&environment));
        assert!(one.rest("ada", tokens(60), LIMITS, noon));
        assert!(two.reserve("ada", LIMITS, noon).is_ok());
        assert!(!two.rest("ada", tokens(40), LIMITS, noon));
        assert!(one.reserve("ada", LIMITS, noon).is_err());
        std::fs::write(dir.path().join(USE_FILE), "{garbage").unwrap();
        assert!(one.reserve("ada", LIMITS, noon).is_err());
        let failure = Ledger::open(&environment).err().unwrap().to_string();
        assert!(failure.contains("cannot be read"), "{failure}");
    }

    #[test]
    fn turns_at_one_time_reserve_a_step_each() {
        let (_dir, environment) = environment();
        let noon = DAY_SECONDS * 20_000;
        let limits = Daily {
            tokens: Some(2 * FIRST_STEP + 1),
            cost_micros: None,
        };
        let ledger = open(&environment);
        let refused = |ledger: &Arc<Ledger>| match ledger.reserve("ada", limits, noon) {
            Err(Refusal::UsedUp { seconds, .. }) => seconds,
            _ => panic!("the turn is refused"),
        };
        let mut turns: Vec<_> = (0..3)
            .map(|_| ledger.reserve("ada", limits, noon).ok().unwrap())
            .collect();
        assert_eq!(refused(&ledger), SOON);
        assert!(ledger.reserve("eve", limits, noon).is_ok());
        // A large step ends the turns but the last, which has what is left.
        assert!(!ledger.step("ada", tokens(FIRST_STEP + 1), limits, noon));
        turns.truncate(1);
        assert!(ledger.step("ada", tokens(1), limits, noon));
        assert!(!ledger.step("ada", tokens(FIRST_STEP), limits, noon));
        turns.clear();
        assert_eq!(refused(&ledger), DAY_SECONDS);
    }
}

//! State that the hooks of one turn share: values, budget, and the queue of their events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use toolcell_core::event::NoticeLevel;
use toolcell_core::hook::{HookContext, HookPoint, Notice};
use toolcell_core::tool::{CallObserver, LogLine};
use toolcell_core::{Event, Receipt, RemainingBudget};

use crate::budget::reserve::Exhausted;
use crate::driver::account::{Account, HookShare};
use crate::driver::notes::Notes;

/// The hooks of one turn.
#[derive(Clone)]
pub(crate) struct HookTurn {
    session: Arc<str>,
    values: Arc<Mutex<Map<String, Value>>>,
    notes: Notes,
    account: Arc<Account>,
}

/// Hook that is about to run at one point, with its reservation. Dropping it ends the reservation.
pub(super) struct HookRun {
    turn: HookTurn,
    observer: Arc<HookObserver>,
}

/// Observer of one run of a hook. It gets the receipt only if the hook could not return it.
struct HookObserver {
    hook: String,
    point: HookPoint,
    notes: Notes,
    /// Reservation of the hook; `None` for a hook without a cell.
    share: Option<HookShare>,
}

impl HookTurn {
    pub(crate) fn new(
        session: &str,
        values: Map<String, Value>,
        notes: Notes,
        account: Arc<Account>,
    ) -> Self {
        Self {
            session: session.into(),
            values: Arc::new(Mutex::new(values)),
            notes,
            account,
        }
    }

    /// Reserves `fuel` for a hook, and waits for it.
    ///
    /// # Errors
    /// Fails if the budget is used up.
    pub(super) async fn begin(&self, hook: &str, point: HookPoint, fuel: u64) -> Result<HookRun, Exhausted> {
        let share = match fuel {
            0 => None,
            fuel => {
                let most = RemainingBudget {
                    fuel: Some(fuel),
                    ..RemainingBudget::NOTHING
                };
                Some(self.account.reserve(&most).for_hook().await?)
            }
        };
        Ok(HookRun {
            turn: self.clone(),
            observer: Arc::new(HookObserver {
                hook: hook.to_owned(),
                point,
                notes: self.notes.clone(),
                share,
            }),
        })
    }

    /// Shows the user a notice. It is never dropped, so their number must be bounded elsewhere.
    pub(crate) fn notify(&self, level: NoticeLevel, text: impl Into<String>) {
        let text = text.into();
        self.notes.tell(
            Event::Notice {
                level,
                hook: None,
                text,
            },
            None,
        );
    }

    /// Values that hooks set in this turn.
    pub(crate) fn values(&self) -> Map<String, Value> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Map<String, Value>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HookRun {
    /// Context for the hook.
    pub(super) fn context(&self) -> HookContext {
        HookContext {
            session: self.turn.session.clone(),
            values: self.turn.values(),
            observer: self.observer.clone(),
        }
    }

    /// Charges the use of the hook.
    pub(super) fn charge(&self, receipt: Receipt) {
        self.observer.receipt(receipt);
    }

    /// Shows the notices of the hook and stores its values for later hooks.
    pub(super) fn carry_out(&self, notices: Vec<Notice>, values: Map<String, Value>) {
        for Notice { level, text } in notices {
            let hook = Some(self.observer.hook.clone());
            self.turn.notes.tell(Event::Notice { level, hook, text }, None);
        }
        self.turn.lock().extend(values);
    }
}

impl Drop for HookRun {
    fn drop(&mut self) {
        if let Some(share) = &self.observer.share {
            share.end();
        }
    }
}

impl CallObserver for HookObserver {
    fn log(&self, line: LogLine) {
        tracing::debug!(
            hook = self.hook,
            point = self.point.as_str(),
            level = ?line.level,
            "{}",
            line.message.escape_debug()
        );
    }

    /// Sends the receipt through the queue that drops nothing.
    fn receipt(&self, receipt: Receipt) {
        let share = self.share.as_ref();
        if let Some(share) = share {
            share.note(&receipt);
        }
        let event = Event::HookFinished {
            hook: self.hook.clone(),
            moment: self.point.as_str().to_owned(),
            receipt,
        };
        self.notes.tell(event, share.map(HookShare::ticket));
    }

    /// Reservation of the hook. Its time counts in no call budget.
    fn left(&self) -> RemainingBudget {
        let share = self.share.as_ref();
        let left = share.map_or(RemainingBudget::NOTHING, HookShare::left);
        RemainingBudget {
            fuel: left.fuel,
            wall_ms: left.wall_ms,
            ..RemainingBudget::default()
        }
    }
}

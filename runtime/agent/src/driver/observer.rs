//! Observer of a running call: logs and progress for the sink, and the receipt until the call ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use toolcell_core::tool::{CallObserver, LogLevel, LogLine, LogSource, Progress};
use toolcell_core::{ApprovalRequest, BoxFuture, Decision, Event, Receipt, RemainingBudget, ToolError};

use super::GRACE;
use super::account::Account;
use super::notes::Notes;
use crate::approval::CheckStart;
use crate::budget::{Spent, without};
use crate::context::messages;

/// Observer of one call.
pub(super) struct Observer {
    id: String,
    tool: String,
    account: Arc<Account>,
    notes: Notes,
    lost: AtomicU64,
    /// True when the driver knows the outcome of the call.
    is_counted: AtomicBool,
    /// Reservation of the call, once it has started.
    grant: OnceLock<RemainingBudget>,
    receipt: Mutex<Option<Receipt>>,
    check_start: Option<Box<CheckStart>>,
    /// State of the call: the one from which it continues, then the one with which it suspended itself.
    continued: Mutex<Option<Value>>,
    suspension: Mutex<Option<Value>>,
}

impl Observer {
    pub(super) fn new(id: String, tool: String, account: Arc<Account>, notes: Notes) -> Self {
        Self {
            id,
            tool,
            account,
            notes,
            lost: AtomicU64::new(0),
            is_counted: AtomicBool::new(false),
            grant: OnceLock::new(),
            receipt: Mutex::default(),
            check_start: None,
            continued: Mutex::default(),
            suspension: Mutex::default(),
        }
    }

    /// Sets the check that is made when the guest is about to start.
    pub(super) fn check_start_by(&mut self, check: Box<CheckStart>) {
        self.check_start = Some(check);
    }

    /// Sets the state of a suspended call, which continues.
    pub(super) fn continue_from(&mut self, state: Value) {
        self.continued = Mutex::new(Some(state));
    }

    /// The state with which the call suspended itself.
    pub(super) fn take_suspension(&self) -> Option<Value> {
        self.suspension
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Marks the call as started, with this limit.
    pub(super) fn begin(&self, grant: RemainingBudget) {
        let _ = self.grant.set(grant);
    }

    /// Waits until a dropped call has released its resources, such as an agent whose calls run in their own tasks; at
    /// most [`GRACE`]. `holders` is the number of remaining owners of the observer.
    pub(super) async fn released(self: &Arc<Self>, holders: usize) {
        let released = async {
            while Arc::strong_count(self) > holders {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(GRACE, released).await;
    }

    pub(super) fn has_begun(&self) -> bool {
        self.grant.get().is_some()
    }

    /// Marks the call as counted by the session.
    pub(super) fn set_counted(&self) {
        self.is_counted.store(true, Ordering::Relaxed);
    }

    /// The receipt of a call that was dropped.
    pub(super) fn take_receipt(&self) -> Option<Receipt> {
        self.set_counted();
        self.receipt.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the receipt so far.
    pub(super) fn peek_receipt(&self) -> Option<Receipt> {
        self.receipt
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns an event about lost lines, if there were any.
    pub(super) fn take_lost(&self) -> Option<Event> {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        (lost > 0).then(|| Event::CallLog {
            id: self.id.clone(),
            line: LogLine {
                level: LogLevel::Warn,
                source: LogSource::Host,
                message: format!("{lost} log lines and progress reports dropped: too many at once"),
            },
        })
    }

    /// Sends an event of the loop itself about the call.
    pub(super) fn note(&self, event: Event) {
        if !self.notes.offer(event) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if !*self.is_counted.get_mut() && self.has_begun() {
            self.account.dropped(self.take_receipt());
        }
    }
}

impl CallObserver for Observer {
    fn log(&self, line: LogLine) {
        self.note(Event::CallLog {
            id: self.id.clone(),
            line,
        });
    }

    fn progress(&self, progress: Progress) {
        self.note(Event::CallProgress {
            id: self.id.clone(),
            progress,
        });
    }

    /// Receipts of several attempts are merged.
    fn receipt(&self, receipt: Receipt) {
        let mut slot = self.receipt.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slot {
            Some(sum) => sum.merge(receipt),
            None => *slot = Some(receipt),
        }
    }

    /// The reservation without the use of earlier attempts. The call itself is already deducted.
    fn left(&self) -> RemainingBudget {
        let Some(grant) = self.grant.get().copied() else {
            return RemainingBudget::NOTHING;
        };
        let receipt = self.peek_receipt();
        let prices = self.account.prices();
        without(grant, Spent::of_call(0, receipt.as_ref(), prices.as_ref()))
    }

    fn check_start(&self) -> Result<(), ToolError> {
        self.check_start.as_ref().map_or(Ok(()), |check| check())
    }

    /// Forwards an event of an agent that the call runs. Its notices, such as the failure of a hook, are never lost.
    fn nested(&self, event: &Event) {
        let nested = Event::Nested {
            id: self.id.clone(),
            event: Box::new(event.clone()),
        };
        if is_notice(event) {
            self.notes.tell(nested, None);
        } else {
            self.note(nested);
        }
    }

    fn ask(&self, mut request: ApprovalRequest) -> BoxFuture<'_, Decision> {
        request.reason = messages::nested_approval(&self.tool, &request.reason);
        Box::pin(async move { self.account.ask(&request).await })
    }

    /// The journal has the state, so that a turn can be resumed by another process.
    fn suspend(&self, state: Value) -> bool {
        *self.suspension.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        true
    }

    fn suspended(&self) -> Option<Value> {
        self.continued
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// True for a notice of an agent at any depth. Their number is bounded by the calls and hook runs of that agent.
fn is_notice(event: &Event) -> bool {
    match event {
        Event::Notice { .. } => true,
        Event::Nested { event, .. } => is_notice(event),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::notes::{MAX_WAITING, notes};

    fn observer(notes: Notes) -> Observer {
        with_policy(notes, crate::LoopPolicy::default())
    }

    fn with_policy(notes: Notes, policy: crate::LoopPolicy) -> Observer {
        let account = Account::new(policy.budget, None, None, &Spent::default());
        Observer::new("1".into(), "t".into(), Arc::new(account), notes)
    }

    #[test]
    fn flood_is_cut_at_its_limit_and_losses_are_counted() {
        let (notes, _waiting) = notes();
        let observer = observer(notes);
        let progress = || Progress {
            done: 1,
            total: None,
            message: None,
        };
        for _ in 0..MAX_WAITING {
            observer.progress(progress());
        }
        assert_eq!(observer.take_lost(), None);
        observer.progress(progress());
        observer.progress(progress());
        let Some(Event::CallLog { line, .. }) = observer.take_lost() else {
            panic!("nothing was counted")
        };
        assert!(line.message.starts_with("2 log lines"), "{}", line.message);
    }

    #[test]
    fn notices_of_agents_at_any_depth_survive_a_flood() {
        let (notes, mut waiting) = notes();
        let observer = observer(notes);
        let within = |event: Event| Event::Nested {
            id: "2".into(),
            event: Box::new(event),
        };
        let notice = || Event::Notice {
            level: toolcell_core::event::NoticeLevel::Warning,
            hook: None,
            text: "the hook `h` failed".into(),
        };
        for _ in 0..=MAX_WAITING {
            observer.nested(&Event::StepStarted { step: 1 });
        }
        observer.nested(&notice());
        observer.nested(&within(notice()));
        let events: Vec<Event> = std::iter::from_fn(|| waiting.try_next())
            .map(|note| note.event)
            .collect();
        assert_eq!(events.len(), MAX_WAITING + 2);
        let told = |event: &&Event| matches!(event, Event::Nested { event, .. } if is_notice(event));
        assert_eq!(events.iter().filter(told).count(), 2);
        assert!(observer.take_lost().is_some());
    }

    #[test]
    fn receipts_of_attempts_are_merged() {
        let (notes, _waiting) = notes();
        let observer = observer(notes);
        for (fuel, peak_memory, host) in [(5, 10, "a:1"), (7, 4, "b:1")] {
            let mut receipt = Receipt {
                fuel,
                peak_memory,
                ..Receipt::default()
            };
            receipt.note_host(host.into());
            observer.receipt(receipt);
        }
        let receipt = observer.take_receipt().unwrap();
        assert_eq!((receipt.fuel, receipt.peak_memory), (12, 10));
        assert_eq!(receipt.hosts, ["a:1", "b:1"]);
        assert_eq!(observer.take_receipt(), None);
    }

    #[test]
    fn second_attempt_gets_the_rest_of_the_reservation() {
        let (notes, _waiting) = notes();
        let observer = observer(notes);
        assert_eq!(observer.left(), RemainingBudget::NOTHING);
        let grant = RemainingBudget {
            fuel: Some(100),
            wall_ms: Some(1_000),
            call_ms: Some(50),
            calls: Some(10),
            bytes: Some(500),
            tokens: Some(900),
            cost_micros: Some(70),
            prices: None,
        };
        observer.begin(grant);
        observer.receipt(Receipt {
            fuel: 30,
            wall_us: 2_000,
            agent: Some(Box::new(toolcell_core::AgentUse {
                steps: 1,
                calls: 3,
                bytes: 40,
                usage: toolcell_core::provider::Usage {
                    input: 5,
                    output: 2,
                    ..Default::default()
                },
                cost_micros: Some(20),
            })),
            ..Receipt::default()
        });
        let left = RemainingBudget {
            fuel: Some(70),
            call_ms: Some(48),
            calls: Some(6),
            bytes: Some(460),
            tokens: Some(893),
            cost_micros: Some(50),
            ..grant
        };
        assert_eq!(observer.left(), left);
    }

    #[test]
    fn agent_without_prices_is_charged_at_those_of_the_session() {
        let (notes, _waiting) = notes();
        let mut policy = crate::LoopPolicy::default();
        policy.budget.prices = Some(toolcell_core::provider::Prices {
            input: 2_000_000,
            ..Default::default()
        });
        let observer = with_policy(notes, policy);
        let grant = RemainingBudget {
            cost_micros: Some(100),
            ..RemainingBudget::default()
        };
        observer.begin(grant);
        observer.receipt(Receipt {
            agent: Some(Box::new(toolcell_core::AgentUse {
                usage: toolcell_core::provider::Usage {
                    input: 30,
                    ..Default::default()
                },
                cost_micros: None,
                ..Default::default()
            })),
            ..Receipt::default()
        });
        assert_eq!(observer.left().cost_micros, Some(40));
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_call_is_waited_for_until_it_is_released() {
        let (notes, _waiting) = notes();
        let observer = Arc::new(observer(notes));
        let start = tokio::time::Instant::now();
        observer.released(1).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "it is not shared");

        let held = observer.clone();
        let releasing = tokio::spawn(async move {
            tokio::time::sleep(GRACE / 2).await;
            drop(held);
        });
        observer.released(1).await;
        assert!(start.elapsed() >= GRACE / 2 && start.elapsed() < GRACE);
        releasing.await.unwrap();

        let (start, _held) = (tokio::time::Instant::now(), observer.clone());
        observer.released(1).await;
        assert!(start.elapsed() >= GRACE, "and not for ever");
    }
}

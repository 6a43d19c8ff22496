//! What a running call tells: logs and progress on their way to the sink, the receipt kept until the call ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use toolcell_core::tool::{CallObserver, LogLevel, LogLine, LogSource, Progress};
use toolcell_core::{ApprovalRequest, BoxFuture, Decision, Event, Left, Receipt};

use super::account::Account;
use crate::words;

/// Notes of all calls of a turn that wait for the sink. A tool that floods its log loses lines, which are counted; it
/// does not fill the host's memory.
pub(super) const MAX_WAITING: usize = 1_024;

/// Hears one call.
pub(super) struct Observer {
    id: String,
    tool: String,
    account: Arc<Account>,
    notes: mpsc::Sender<Event>,
    lost: AtomicU64,
    receipt: Mutex<Option<Receipt>>,
}

impl Observer {
    pub(super) fn new(id: String, tool: String, account: Arc<Account>, notes: mpsc::Sender<Event>) -> Self {
        Self {
            id,
            tool,
            account,
            notes,
            lost: AtomicU64::new(0),
            receipt: Mutex::default(),
        }
    }

    /// The receipt, once the call has ended.
    pub(super) fn take_receipt(&self) -> Option<Receipt> {
        self.receipt.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The receipt so far, left in place.
    pub(super) fn peek_receipt(&self) -> Option<Receipt> {
        self.receipt
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A line about what was lost, if anything was.
    pub(super) fn take_lost(&self) -> Option<Event> {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        (lost > 0).then(|| Event::CallLog {
            id: self.id.clone(),
            line: LogLine {
                level: LogLevel::Warn,
                source: LogSource::Host,
                message: format!("{lost} lines and progress reports left out: they came too fast"),
            },
        })
    }

    /// Something that the loop itself says about the call.
    pub(super) fn note(&self, event: Event) {
        if self.notes.try_send(event).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
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

    /// A call that is tried again leaves several receipts; together they say what it used.
    fn receipt(&self, receipt: Receipt) {
        let mut slot = self.receipt.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slot {
            Some(sum) => sum.merge(receipt),
            None => *slot = Some(receipt),
        }
    }

    fn left(&self) -> Left {
        self.account.left()
    }

    fn used_so_far(&self, receipt: &Receipt) {
        self.account.used_so_far(&self.id, receipt.clone());
    }

    fn nested(&self, event: &Event) {
        self.note(Event::Nested {
            id: self.id.clone(),
            event: Box::new(event.clone()),
        });
    }

    fn ask(&self, mut request: ApprovalRequest) -> BoxFuture<'_, Decision> {
        request.reason = words::asked_inside(&self.tool, &request.reason);
        Box::pin(async move {
            match self.account.ask(&request).await {
                // What runs inside a call has no journal from which it could go on.
                Decision::Later => Decision::Deny {
                    reason: Some(words::CANNOT_WAIT.into()),
                },
                decision => decision,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Agent;
    use crate::testing::Script;

    fn observer(notes: mpsc::Sender<Event>) -> Observer {
        let agent = Agent::builder(Script::new([])).build().unwrap();
        let account = Account::new(agent.inner().clone(), None, crate::budget::Spent::default());
        Observer::new("1".into(), "t".into(), Arc::new(account), notes)
    }

    #[test]
    fn a_flood_is_cut_at_its_limit_and_what_is_lost_is_counted() {
        let (notes, mut waiting) = mpsc::channel(MAX_WAITING);
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
        assert!(line.message.starts_with("2 lines"), "{}", line.message);
        waiting.close();
    }

    #[test]
    fn the_receipts_of_several_attempts_become_one() {
        let (notes, _waiting) = mpsc::channel(1);
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
}

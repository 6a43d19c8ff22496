//! State that the calls and hooks of a turn share: the budget, of which each reserves a part, and the approver.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use toolcell_core::provider::Prices;
use toolcell_core::{ApprovalRequest, Decision, Receipt, RemainingBudget};

use crate::approval::Approver;
use crate::budget::reserve::{Amounts, Exhausted, Grant, Reservations, Ticket};
use crate::budget::{Budget, Spent};
use crate::context::messages;
use crate::driver::receipt::SubagentReceipt;

/// Account of one session while a turn runs.
pub(crate) struct Account {
    /// Budget of this session.
    own: Budget,
    approver: Option<Arc<dyn Approver>>,
    /// The call of another session in which this session runs.
    caller: Option<Arc<SubagentReceipt>>,
    /// Budget that the calling session reserved for this one.
    outside: Budget,
    /// Held while the approver decides.
    asking: tokio::sync::Mutex<()>,
    budget: Mutex<SharedBudget>,
}

struct SharedBudget {
    reservations: Reservations,
    waiting: BTreeMap<Ticket, oneshot::Sender<Grant>>,
}

/// Reservation that is not yet decided. Dropping it withdraws it.
pub(crate) struct Waiting {
    account: Arc<Account>,
    ticket: Ticket,
    grant: oneshot::Receiver<Grant>,
    is_taken: bool,
}

/// Reservation of a hook; it ends with the hook at the latest, and is charged what the hook's receipt reports.
pub(crate) struct HookShare {
    account: Arc<Account>,
    ticket: Ticket,
    left: RemainingBudget,
    used: Mutex<Option<u64>>,
    has_ended: AtomicBool,
}

impl Account {
    pub(crate) fn new(
        own: Budget,
        approver: Option<Arc<dyn Approver>>,
        caller: Option<Arc<SubagentReceipt>>,
        spent: &Spent,
    ) -> Self {
        let outside = match &caller {
            Some(caller) => Budget::of_what_others_leave(caller.observer().left(), spent, own.prices),
            None => Budget::default(),
        };
        let left = own.left(spent).within(outside.left(spent));
        Self {
            own,
            approver,
            caller,
            outside,
            asking: tokio::sync::Mutex::default(),
            budget: Mutex::new(SharedBudget {
                reservations: Reservations::new(left),
                waiting: BTreeMap::new(),
            }),
        }
    }

    /// Budget that the calling session reserved for this one.
    pub(super) fn outside(&self) -> &Budget {
        &self.outside
    }

    /// Token prices for agents without prices of their own.
    pub(super) fn prices(&self) -> Option<Prices> {
        self.own.prices.or(self.outside.prices)
    }

    /// Requests a reservation of at most `most`, behind all others that wait.
    pub(crate) fn reserve(self: &Arc<Self>, most: &RemainingBudget) -> Waiting {
        let (sender, grant) = oneshot::channel();
        let mut budget = self.budget();
        let ticket = budget.reservations.ask(most);
        budget.waiting.insert(ticket, sender);
        budget.decide();
        drop(budget);
        Waiting {
            account: self.clone(),
            ticket,
            grant,
            is_taken: false,
        }
    }

    /// Ends a reservation and charges its use.
    pub(super) fn end(&self, ticket: Ticket, used: Amounts) {
        let mut budget = self.budget();
        budget.reservations.end(ticket, used);
        budget.decide();
    }

    /// Withdraws a reservation that did not start, or used nothing.
    fn forget(&self, ticket: Ticket) {
        let mut budget = self.budget();
        budget.waiting.remove(&ticket);
        budget.reservations.forget(ticket);
        budget.decide();
    }

    /// Updates the session's use, which now includes these reservations.
    pub(crate) fn count(&self, spent: &Spent, tickets: impl IntoIterator<Item = Ticket>) {
        let left = self.own.left(spent).within(self.outside.left(spent));
        let mut budget = self.budget();
        budget.reservations.count(left, tickets);
        budget.decide();
    }

    /// Charges a call that was dropped with the turn, whose use is in no event.
    pub(super) fn dropped(&self, receipt: Option<Receipt>) {
        if let Some(caller) = &self.caller {
            caller.dropped(receipt);
        }
    }

    /// Requests a decision from the session's own approver or else from its caller. There is one question at a time.
    pub(super) async fn ask(&self, request: &ApprovalRequest) -> Decision {
        let _one = self.asking.lock().await;
        self.ask_alone(request).await
    }

    /// Requests a decision for each call of one step.
    pub(super) async fn ask_all(&self, requests: &[ApprovalRequest]) -> Vec<Decision> {
        let _one = self.asking.lock().await;
        if let (Some(approver), [_, _, ..]) = (&self.approver, requests) {
            return approver.decide_all(requests).await;
        }
        let mut decisions = Vec::new();
        for request in requests {
            decisions.push(self.ask_alone(request).await);
        }
        decisions
    }

    async fn ask_alone(&self, request: &ApprovalRequest) -> Decision {
        match (&self.approver, &self.caller) {
            (Some(approver), _) => approver.decide(request).await,
            (None, Some(caller)) => caller.observer().ask(request.clone()).await,
            (None, None) => Decision::Deny {
                reason: Some(messages::no_approver(&request.reason)),
            },
        }
    }

    fn budget(&self) -> MutexGuard<'_, SharedBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedBudget {
    /// Notifies the requests that need not wait any longer.
    fn decide(&mut self) {
        for (ticket, grant) in self.reservations.decide() {
            if let Some(waiting) = self.waiting.remove(&ticket) {
                // A dropped `Waiting` withdraws a grant that it did not receive.
                let _ = waiting.send(grant);
            }
        }
    }
}

impl Waiting {
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Waits until the request is granted or refused. A grant must be ended.
    pub(crate) async fn granted(mut self) -> Grant {
        let grant = (&mut self.grant)
            .await
            .expect("the account keeps a sender until it has sent or this is dropped");
        self.is_taken = true;
        grant
    }

    /// The same for a hook.
    pub(crate) async fn for_hook(self) -> Result<HookShare, Exhausted> {
        let (account, ticket) = (self.account.clone(), self.ticket);
        let left = self.granted().await?;
        Ok(HookShare {
            account,
            ticket,
            left,
            used: Mutex::default(),
            has_ended: AtomicBool::new(false),
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_taken {
            self.account.forget(self.ticket);
        }
    }
}

impl HookShare {
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    pub(crate) fn left(&self) -> RemainingBudget {
        self.left
    }

    /// Charges the hook's use, which an event reports to the session.
    pub(crate) fn note(&self, receipt: &Receipt) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = Some(used.unwrap_or_default().saturating_add(receipt.fuel));
    }

    /// Ends the reservation when the hook has run, even if its context is kept.
    pub(crate) fn end(&self) {
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match used {
            Some(fuel) => self.account.end(self.ticket, [fuel, 0, 0, 0, 0, 0]),
            None => self.account.forget(self.ticket),
        }
    }
}

impl Drop for HookShare {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn account(budget: Budget) -> Arc<Account> {
        Arc::new(Account::new(budget, None, None, &Spent::default()))
    }

    fn fuel(amount: u64) -> RemainingBudget {
        RemainingBudget {
            fuel: Some(amount),
            ..RemainingBudget::NOTHING
        }
    }

    fn with_fuel(amount: u64) -> Arc<Account> {
        account(Budget {
            fuel: Some(amount),
            ..Budget::default()
        })
    }

    /// Polls a reservation once.
    fn granted(waiting: Waiting) -> Option<Option<u64>> {
        match pin!(waiting.granted()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(grant) => Some(grant.unwrap().fuel),
            Poll::Pending => None,
        }
    }

    #[test]
    fn abandoned_reservation_is_withdrawn() {
        let account = with_fuel(100);
        // Dropped after it was granted and before its owner received it.
        drop(account.reserve(&fuel(100)));
        assert_eq!(granted(account.reserve(&fuel(100))), Some(Some(100)));
        // That one is held. The next waits, and one that gives up waiting leaves nothing.
        assert_eq!(granted(account.reserve(&fuel(1))), None);
        let third = account.reserve(&fuel(60));
        drop(account.reserve(&fuel(60)));
        account.end(1, Amounts::default());
        account.end(2, Amounts::default());
        assert_eq!(granted(third), Some(Some(60)));
        assert_eq!(granted(account.reserve(&fuel(40))), Some(Some(40)));
    }

    #[tokio::test]
    async fn hook_is_charged_its_use_and_returns_the_rest_once() {
        let account = with_fuel(100);
        let share = account.reserve(&fuel(100)).for_hook().await.unwrap();
        assert_eq!(share.left().fuel, Some(100));
        for used in [10, 20] {
            share.note(&Receipt {
                fuel: used,
                ..Receipt::default()
            });
        }
        share.end();
        drop(share);
        let unused = account.reserve(&fuel(50)).for_hook().await.unwrap();
        assert_eq!(unused.left().fuel, Some(50));
        drop(unused);
        assert_eq!(granted(account.reserve(&fuel(100))), Some(Some(70)));
    }
}

//! What the calls and hooks of a turn share: the budget, of which each reserves its part, and the user who is asked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use toolcell_core::provider::Prices;
use toolcell_core::{ApprovalRequest, Decision, Receipt, RemainingBudget};

use crate::budget::reserve::{Amounts, Exhausted, Grant, Reservations, Ticket};
use crate::budget::{Budget, Spent};
use crate::context::messages;
use crate::definition::AgentDefinition;
use crate::tools::subagent::AgentFiling;

/// The account of one session while a turn runs.
pub(crate) struct Account {
    inner: Arc<AgentDefinition>,
    /// The call of another session that this session runs in.
    caller: Option<Arc<AgentFiling>>,
    /// What that session reserved for this one.
    outside: Budget,
    /// Held while the user is asked.
    asking: tokio::sync::Mutex<()>,
    books: Mutex<SharedBudget>,
}

struct SharedBudget {
    reservations: Reservations,
    waiting: BTreeMap<Ticket, oneshot::Sender<Grant>>,
}

/// A reservation that is waited for. Dropping it takes it back.
pub(crate) struct Waiting {
    account: Arc<Account>,
    ticket: Ticket,
    grant: oneshot::Receiver<Grant>,
    is_taken: bool,
}

/// What a hook reserved; it ends with the hook at the latest, and is charged what that filed.
pub(crate) struct HookShare {
    account: Arc<Account>,
    ticket: Ticket,
    left: RemainingBudget,
    used: Mutex<Option<u64>>,
    has_ended: AtomicBool,
}

impl Account {
    pub(super) fn new(inner: Arc<AgentDefinition>, caller: Option<Arc<AgentFiling>>, spent: &Spent) -> Self {
        let own = &inner.machine.policy.budget;
        let outside = match &caller {
            Some(caller) => Budget::of_what_others_leave(caller.observer().left(), spent, own.prices),
            None => Budget::default(),
        };
        let left = own.left(spent).within(outside.left(spent));
        Self {
            inner,
            caller,
            outside,
            asking: tokio::sync::Mutex::default(),
            books: Mutex::new(SharedBudget {
                reservations: Reservations::new(left),
                waiting: BTreeMap::new(),
            }),
        }
    }

    /// What the session that called this one reserved for it.
    pub(super) fn outside(&self) -> &Budget {
        &self.outside
    }

    /// What the tokens of those cost that know no prices.
    pub(super) fn prices(&self) -> Option<Prices> {
        self.inner.machine.policy.budget.prices.or(self.outside.prices)
    }

    /// Asks for a reservation of at most so much, behind all others that wait.
    pub(crate) fn reserve(self: &Arc<Self>, most: &RemainingBudget) -> Waiting {
        let (sender, grant) = oneshot::channel();
        let mut books = self.books();
        let ticket = books.reservations.ask(most);
        books.waiting.insert(ticket, sender);
        books.decide();
        drop(books);
        Waiting {
            account: self.clone(),
            ticket,
            grant,
            is_taken: false,
        }
    }

    /// What has a reservation has ended and used so much of it.
    pub(super) fn end(&self, ticket: Ticket, used: Amounts) {
        let mut books = self.books();
        books.reservations.end(ticket, used);
        books.decide();
    }

    /// It does not begin, or it used nothing.
    fn forget(&self, ticket: Ticket) {
        let mut books = self.books();
        books.waiting.remove(&ticket);
        books.reservations.forget(ticket);
        books.decide();
    }

    /// The session has spent this much, with all that these reservations are about.
    pub(super) fn count(&self, spent: &Spent, tickets: impl IntoIterator<Item = Ticket>) {
        let own = &self.inner.machine.policy.budget;
        let left = own.left(spent).within(self.outside.left(spent));
        let mut books = self.books();
        books.reservations.count(left, tickets);
        books.decide();
    }

    /// A call was dropped with the turn and what it used is in no event.
    pub(super) fn dropped(&self, receipt: Option<Receipt>) {
        if let Some(caller) = &self.caller {
            caller.dropped(receipt);
        }
    }

    /// Asks whoever can be asked, one question at a time: the session's own approver, or its caller.
    pub(super) async fn ask(&self, request: &ApprovalRequest) -> Decision {
        let _one = self.asking.lock().await;
        match (&self.inner.approver, &self.caller) {
            (Some(approver), _) => approver.decide(request).await,
            (None, Some(caller)) => caller.observer().ask(request.clone()).await,
            (None, None) => Decision::Deny {
                reason: Some(messages::nobody_to_ask(&request.reason)),
            },
        }
    }

    fn books(&self) -> MutexGuard<'_, SharedBudget> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedBudget {
    /// Tells those that need not wait any longer.
    fn decide(&mut self) {
        for (ticket, grant) in self.reservations.decide() {
            if let Some(waiting) = self.waiting.remove(&ticket) {
                // `Waiting` takes back what it did not receive when it is dropped.
                let _ = waiting.send(grant);
            }
        }
    }
}

impl Waiting {
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Waits until it is granted or refused. A grant has to be ended.
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

    /// What the hook used, which an event tells the session.
    pub(crate) fn note(&self, receipt: &Receipt) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = Some(used.unwrap_or_default().saturating_add(receipt.fuel));
    }

    /// The hook has run; whoever keeps its context holds nothing back.
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

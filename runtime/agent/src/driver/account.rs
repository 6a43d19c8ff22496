//! What the calls of a turn share: what is left of the budget, and the person who is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcell_core::tool::CallObserver;
use toolcell_core::{ApprovalRequest, Decision, Left, Receipt};

use crate::agent::Inner;
use crate::budget::{Budget, Spent};
use crate::words;

/// The account of one session while a turn runs.
pub(super) struct Account {
    inner: Arc<Inner>,
    /// The call of another session that this session runs in.
    caller: Option<Arc<dyn CallObserver>>,
    /// Held while a person is asked.
    asking: tokio::sync::Mutex<()>,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// What the session has used, without the calls that run.
    spent: Spent,
    /// What calls that run have used so far, as far as they tell.
    running: BTreeMap<String, Receipt>,
}

impl Account {
    pub(super) fn new(inner: Arc<Inner>, caller: Option<Arc<dyn CallObserver>>, spent: Spent) -> Self {
        Self {
            inner,
            caller,
            asking: tokio::sync::Mutex::default(),
            books: Mutex::new(Books {
                spent,
                running: BTreeMap::new(),
            }),
        }
    }

    /// What a call may use that begins now: what is left of the session's own budget, and of that of its caller.
    pub(super) fn left(&self) -> Left {
        let own = {
            let books = self.books();
            let mut spent = books.spent;
            for receipt in books.running.values() {
                spent.count_call(0, Some(receipt));
            }
            self.inner.machine.policy.budget.left(&spent)
        };
        match &self.caller {
            Some(caller) => own.within(caller.left()),
            None => own,
        }
    }

    /// What a caller leaves this session, as a budget for it.
    pub(super) fn outside(&self, spent: &Spent) -> Budget {
        let prices = self.inner.machine.policy.budget.prices;
        match &self.caller {
            Some(caller) => Budget::of_what_others_leave(caller.left(), spent, prices),
            None => Budget::default(),
        }
    }

    /// The session has used this much, and these calls run.
    pub(super) fn settle(&self, spent: Spent) {
        self.books().spent = spent;
    }

    /// What a call has used so far.
    pub(super) fn used_so_far(&self, id: &str, receipt: Receipt) {
        self.books().running.insert(id.to_owned(), receipt);
    }

    /// A call has ended; from now on its receipt counts with the session.
    pub(super) fn ended(&self, id: &str) {
        self.books().running.remove(id);
    }

    /// Asks whoever can be asked, one question at a time: the session's own approver, or its caller.
    pub(super) async fn ask(&self, request: &ApprovalRequest) -> Decision {
        let _one = self.asking.lock().await;
        match (&self.inner.approver, &self.caller) {
            (Some(approver), _) => approver.decide(request).await,
            (None, Some(caller)) => caller.ask(request.clone()).await,
            (None, None) => Decision::Deny {
                reason: Some(words::nobody_to_ask(&request.reason)),
            },
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

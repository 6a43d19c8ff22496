//! Budget of a client that runs a loop of its own. Its calls reserve what they may use, and are charged what they used,
//! as those of a session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use toolcell_core::tool::{CallObserver, LogLine, Progress};
use toolcell_core::{
    ApprovalRequest, BoxFuture, CallResult, Decision, Event, Receipt, RemainingBudget, ToolError,
};

use super::reserve::{Exhausted, Ticket};
use super::{Budget, Spent, most_of_call, without};
use crate::approval::CheckStart;
use crate::context::messages;
use crate::driver::account::Account;

/// Maximum size of the result of one call under a budget of bytes: the default limit of a cell's output.
const MAX_RESULT_BYTES: u64 = 4 << 20;

/// Budget of all calls of a client.
pub(crate) struct ClientBudget {
    limits: Budget,
    account: Arc<Account>,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    spent: Spent,
    /// Number of calls that run, and the time since there are some.
    running: usize,
    since: Option<Instant>,
    /// Time in which calls ran, until the last time that none did.
    time: Duration,
}

/// Call within the budget, as its observer. It is charged when it ends or is dropped.
pub(crate) struct ClientCall {
    tool: String,
    client: Arc<ClientBudget>,
    ticket: Ticket,
    grant: RemainingBudget,
    observer: Arc<dyn CallObserver>,
    check_start: Option<Box<CheckStart>>,
    receipt: Mutex<Option<Receipt>>,
    has_ended: AtomicBool,
}

impl ClientBudget {
    pub(crate) fn new(limits: Budget) -> Arc<Self> {
        let account = Account::new(limits.clone(), None, None, &Spent::default());
        Arc::new(Self {
            limits,
            account: Arc::new(account),
            used: Mutex::default(),
        })
    }

    /// Waits until a call of a tool that uses at most `most` may run. It is checked when its guest is about to start.
    ///
    /// # Errors
    /// The reason, if the budget is used up.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        tool: &str,
        most: RemainingBudget,
        observer: Arc<dyn CallObserver>,
        check_start: Option<Box<CheckStart>>,
    ) -> Result<Arc<ClientCall>, String> {
        let waiting = self.account.reserve(&most_of_call(most, MAX_RESULT_BYTES));
        let ticket = waiting.ticket();
        let grant = waiting.granted().await;
        let mut grant = grant.map_err(|Exhausted(unit)| format!("the budget of {unit} is used up"))?;
        let mut used = self.used();
        grant.wall_ms = self
            .limits
            .wall_ms
            .map(|limit| limit.saturating_sub(used.wall_ms()));
        if let (Some(0), Some(limit)) = (grant.wall_ms, self.limits.wall_ms) {
            self.account.count(&used.spent, [ticket]);
            return Err(Budget::out_of_time(limit));
        }
        used.running += 1;
        used.since.get_or_insert_with(Instant::now);
        drop(used);
        Ok(Arc::new(ClientCall {
            tool: tool.to_owned(),
            client: self.clone(),
            ticket,
            grant,
            observer,
            check_start,
            receipt: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }))
    }

    /// Use of all calls that have ended.
    pub(crate) fn spent(&self) -> Spent {
        let used = self.used();
        Spent {
            wall_ms: used.wall_ms(),
            ..used.spent
        }
    }

    /// Account in which calls and hooks reserve what they may use.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Charges a hook that has run.
    pub(crate) fn count_hook(&self, receipt: &Receipt, ticket: Option<Ticket>) {
        let mut used = self.used();
        used.spent.count_hook(receipt);
        self.account.count(&used.spent, ticket);
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Used {
    /// Time in which calls ran.
    fn wall_ms(&self) -> u64 {
        let time = self.time + self.since.map_or(Duration::ZERO, |since| since.elapsed());
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }
}

impl ClientCall {
    /// Maximum size of the result, in bytes; `None` means unlimited.
    pub(crate) fn room(&self) -> Option<usize> {
        let left = self.grant.bytes.and(self.left().bytes);
        left.map(|left| usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Charges the call with its result.
    pub(crate) fn end(&self, result: &CallResult) {
        if let Some(receipt) = &result.receipt {
            self.note(receipt.clone());
        }
        self.charge(result.byte_len() as u64);
    }

    fn charge(&self, bytes: u64) {
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut used = self.client.used();
        used.spent.count_call(bytes, self.used().as_ref());
        used.running -= 1;
        if used.running == 0 {
            let since = used.since.take();
            used.time += since.map_or(Duration::ZERO, |since| since.elapsed());
        }
        // Before another call that ends: the account takes the last number that it hears of.
        self.client.account.count(&used.spent, [self.ticket]);
    }

    /// Adds the receipt of an attempt.
    fn note(&self, receipt: Receipt) {
        let mut all = self.receipt.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *all {
            Some(sum) => sum.merge(receipt),
            None => *all = Some(receipt),
        }
    }

    fn used(&self) -> Option<Receipt> {
        let receipt = self.receipt.lock().unwrap_or_else(PoisonError::into_inner);
        receipt.clone()
    }
}

impl Drop for ClientCall {
    fn drop(&mut self) {
        self.charge(0);
    }
}

impl CallObserver for ClientCall {
    fn log(&self, line: LogLine) {
        self.observer.log(line);
    }

    fn progress(&self, progress: Progress) {
        self.observer.progress(progress);
    }

    fn receipt(&self, receipt: Receipt) {
        self.note(receipt.clone());
        self.observer.receipt(receipt);
    }

    /// The reservation without the use of earlier attempts.
    fn left(&self) -> RemainingBudget {
        let spent = Spent::of_call(0, self.used().as_ref(), self.grant.prices.as_ref());
        without(self.grant, spent).within(self.observer.left())
    }

    fn check_start(&self) -> Result<(), ToolError> {
        if let Some(check) = &self.check_start {
            check()?;
        }
        self.observer.check_start()
    }

    fn nested(&self, event: &Event) {
        self.observer.nested(event);
    }

    fn ask(&self, mut request: ApprovalRequest) -> BoxFuture<'_, Decision> {
        request.reason = messages::nested_approval(&self.tool, &request.reason);
        Box::pin(async move {
            match self.observer.ask(request).await {
                // The session inside of the call could not be resumed.
                Decision::Later => Decision::Deny {
                    reason: Some(messages::CANNOT_WAIT.into()),
                },
                decision => decision,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;
    use toolcell_core::tool::{LogLevel, LogSource, Unobserved};

    use super::*;

    fn receipt(fuel: u64) -> Receipt {
        Receipt {
            fuel,
            ..Receipt::default()
        }
    }

    async fn begin(budget: &Arc<ClientBudget>, fuel: u64) -> Result<Arc<ClientCall>, String> {
        let most = RemainingBudget {
            fuel: Some(fuel),
            ..RemainingBudget::NOTHING
        };
        budget.begin("t", most, Arc::new(Unobserved), None).await
    }

    #[tokio::test]
    async fn concurrent_calls_of_a_client_stay_within_its_budget() {
        let budget = ClientBudget::new(Budget {
            fuel: Some(10),
            ..Budget::default()
        });
        let first = begin(&budget, 6).await.unwrap();
        assert_eq!(first.left().fuel, Some(6));
        // The second may use what the first has reserved, and waits for its end.
        let mut second = pin!(begin(&budget, 6));
        assert!(poll!(&mut second).is_pending());
        first.end(&CallResult::text("x").with_receipt(receipt(5)));
        let second = second.await.unwrap();
        assert_eq!(second.left().fuel, Some(5));
        second.receipt(receipt(2));
        assert_eq!(second.left().fuel, Some(3));
        // A call that is dropped is charged what its cell reported.
        drop(second);
        assert_eq!((budget.spent().fuel, budget.spent().calls), (7, 2));
        let third = begin(&budget, 6).await.unwrap();
        assert_eq!(third.left().fuel, Some(3));
        third.end(&CallResult::text("").with_receipt(receipt(3)));
        let refused = begin(&budget, 6).await.err();
        assert_eq!(refused.as_deref(), Some("the budget of fuel is used up"));
        assert!(begin(&budget, 0).await.is_ok());
    }

    /// Remembers what it was told.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Told {
        fn note(&self, what: &str) {
            self.0.lock().unwrap().push(what.to_owned());
        }
    }

    impl CallObserver for Told {
        fn log(&self, _: LogLine) {
            self.note("log");
        }

        fn progress(&self, _: Progress) {
            self.note("progress");
        }

        fn receipt(&self, _: Receipt) {
            self.note("receipt");
        }

        fn nested(&self, _: &Event) {
            self.note("nested");
        }

        fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Decision> {
            self.note(&request.reason);
            Box::pin(std::future::ready(Decision::Later))
        }
    }

    #[tokio::test]
    async fn what_a_call_of_a_client_reports_reaches_its_observer() {
        let told = Arc::new(Told::default());
        let budget = ClientBudget::new(Budget::default());
        let call = budget.begin("agent", RemainingBudget::NOTHING, told.clone(), None);
        let call = call.await.unwrap();
        call.log(LogLine {
            level: LogLevel::Info,
            source: LogSource::Log,
            message: "x".into(),
        });
        call.progress(Progress {
            done: 1,
            total: None,
            message: None,
        });
        call.receipt(receipt(1));
        call.nested(&Event::StepStarted { step: 1 });
        // A session inside of the call cannot wait for a later decision.
        let decided = call.ask(ApprovalRequest {
            id: "1".into(),
            tool: "inner".into(),
            arguments: serde_json::Value::Null,
            cause: toolcell_core::ApprovalCause::Rule,
            reason: "a rule".into(),
            places: Vec::new(),
        });
        let denied = Decision::Deny {
            reason: Some(messages::CANNOT_WAIT.into()),
        };
        assert_eq!(decided.await, denied);
        let expected = ["log", "progress", "receipt", "nested", "a rule, inside `agent`"];
        assert_eq!(*told.0.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn calls_and_bytes_of_a_client_are_counted() {
        let budget = ClientBudget::new(Budget {
            calls: Some(2),
            bytes: Some(5),
            ..Budget::default()
        });
        let call = begin(&budget, 0).await.unwrap();
        assert_eq!(call.room(), Some(5));
        call.end(&CallResult::text("abc"));
        let call = begin(&budget, 0).await.unwrap();
        assert_eq!(call.room(), Some(2));
        // Charged once.
        call.end(&CallResult::text("a"));
        drop(call);
        let refused = begin(&budget, 0).await.err();
        assert_eq!(refused.as_deref(), Some("the budget of calls is used up"));
        assert_eq!((budget.spent().calls, budget.spent().bytes), (2, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn time_of_a_client_is_that_in_which_calls_run() {
        let budget = ClientBudget::new(Budget {
            wall_ms: Some(1_000),
            ..Budget::default()
        });
        let pause = |ms| tokio::time::sleep(Duration::from_millis(ms));
        pause(5_000).await;
        let (one, two) = (begin(&budget, 0).await.unwrap(), begin(&budget, 0).await.unwrap());
        assert_eq!(one.left().wall_ms, Some(1_000));
        pause(400).await;
        drop(one);
        pause(200).await;
        drop(two);
        pause(5_000).await;
        assert_eq!(budget.spent().wall_ms, 600);
        let last = begin(&budget, 0).await.unwrap();
        assert_eq!(last.left().wall_ms, Some(400));
        pause(400).await;
        let refused = begin(&budget, 0).await.err();
        assert_eq!(
            refused.as_deref(),
            Some("the budget of 1000 ms of time is used up")
        );
        drop(last);
    }
}

//! Executes the effects of the machine: streams the model, runs calls and hooks as tasks, stores and shows events, and
//! enforces deadlines. It makes no decisions.
//!
//! Effects that must not be repeated wait until the journal has the events that cause them: a call of a tool that is
//! not idempotent, an approval, a hook, and the first request of a turn. Further requests to the model and calls of
//! idempotent tools do not wait: repeating them after a crash does no harm. So a step with only such calls never waits
//! for the disk, and any other step waits once.
//!
//! Every call runs in its own task, so that calls use all processors. A cancelled call is dropped; the driver waits
//! until it is gone, at most [`GRACE`], so that its receipt is known.

pub(crate) mod account;
mod call;
pub(crate) mod journal;
mod listen;
pub(crate) mod notes;
mod observer;
pub(crate) mod receipt;
pub(crate) mod running;
pub(crate) mod spans;
mod tasks;
mod wait;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::{NoticeLevel, TurnOutcome};
use toolcell_core::provider::Request;
use toolcell_core::{CallResult, Event, EventSink, Message, StoreError, ToolError};

use self::account::Account;
use self::journal::Journal;
use self::listen::ModelStream;
use self::notes::{Note, NoteReceiver, Notes};
use self::observer::Observer;
use self::tasks::TaskEnd;
use crate::budget::Budget;
use crate::budget::reserve::Ticket;
use crate::context::{self, View};
use crate::definition::AgentDefinition;
use crate::driver::receipt::SubagentReceipt;
use crate::driver::running::RunningCalls;
use crate::error::AgentError;
use crate::hook::HookTurn;
use crate::machine::{Effect, Input, LoopState};
use crate::policy::LoopPolicy;
use crate::report::{TurnRecorder, TurnReport};
use crate::sink::NullSink;
use crate::tools::dispatch;
use crate::tools::results::ResultStore;

/// Time that a dropped call has to end. Cells end within one epoch tick; a native tool that blocks its thread is
/// abandoned, without a receipt.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum size of the shared values of hooks in the journal, in bytes of JSON. The whole JSON is written on every
/// change.
const MAX_SHARED: usize = 64 << 10;

/// Turn in progress.
pub(crate) struct Driver<'a> {
    inner: &'a Arc<AgentDefinition>,
    state: &'a mut LoopState,
    results: Arc<ResultStore>,
    sink: &'a dyn EventSink,
    cancel: CancellationToken,
    /// Deadline of the turn, and the outcome when it passes.
    deadline: Option<(Instant, TurnOutcome)>,
    begun: Instant,
    /// Time of this turn before this driver resumed it, in milliseconds.
    before_ms: u64,
    tasks: JoinSet<TaskEnd>,
    running: BTreeMap<String, RunningCall>,
    /// Reservations of calls that have ended and that the machine is about to count.
    ended: Vec<Ticket>,
    model: Option<ModelStream<'a>>,
    summary: Option<Summary>,
    notes: (Notes, NoteReceiver),
    journal: &'a mut Journal,
    /// Effects to execute once the journal has reached a mark.
    held: Vec<(u64, Effect)>,
    /// True until the first commit, which shows that no other process writes the session.
    is_first: bool,
    account: Arc<Account>,
    calls: RunningCalls,
    /// Approval requests that wait for those before.
    questions: Vec<crate::approval::ApprovalRequest>,
    asking: bool,
    hooks: HookTurn,
    /// Shared values of hooks when last stored.
    shared: Map<String, Value>,
    record: TurnRecorder,
}

/// Call that runs, or waits for its reservation.
struct RunningCall {
    observer: Arc<Observer>,
    ticket: Ticket,
}

/// Summary in progress.
struct Summary {
    removed: usize,
    replaced: Vec<Message>,
    /// Estimated tokens of the request.
    input: u64,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(
        inner: &'a Arc<AgentDefinition>,
        state: &'a mut LoopState,
        journal: &'a mut Journal,
        results: Arc<ResultStore>,
        sink: &'a dyn EventSink,
        (cancel, calls): (CancellationToken, RunningCalls),
        caller: Option<Arc<SubagentReceipt>>,
    ) -> Self {
        let notes = notes::notes();
        let begun = Instant::now();
        let deadline = deadline(&inner.machine.policy, state, begun);
        let before_ms = state.turn.as_ref().map_or(0, |turn| turn.wall_ms);
        let shared = state
            .turn
            .as_ref()
            .map(|turn| turn.shared.clone())
            .unwrap_or_default();
        let account = Arc::new(Account::new(
            inner.machine.policy.budget.clone(),
            inner.approver.clone(),
            caller,
            &state.spent(),
        ));
        let hooks = HookTurn::new(&state.session, shared.clone(), notes.0.clone(), account.clone());
        Self {
            inner,
            state,
            results,
            sink,
            cancel,
            deadline,
            begun,
            before_ms,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            ended: Vec::new(),
            model: None,
            summary: None,
            notes,
            journal,
            held: Vec::new(),
            is_first: true,
            account,
            calls,
            questions: Vec::new(),
            asking: false,
            hooks,
            shared,
            record: TurnRecorder::default(),
        }
    }

    /// Runs until the turn is over, or until the only thing left is a decision that is not made in this run.
    ///
    /// # Errors
    /// Fails if the journal fails. The turn stays open; acknowledged events are not lost.
    pub(crate) async fn drive(mut self, first: Input) -> Result<TurnReport, AgentError> {
        // Events that an earlier, dropped run left behind.
        let left = self.journal.drain(&NullSink).await;
        left.map_err(|source| self.failed(source))?;
        let mut input = Some(first);
        loop {
            if let Some(input) = input.take() {
                self.step(input);
            }
            if self.state.turn.is_none() {
                return self.over().await;
            }
            if self.tasks.is_empty() && self.model.is_none() && self.held.is_empty() {
                return self.close().await;
            }
            let event = self.next_event().await;
            input = self.take(event).await?;
        }
    }

    /// Runs one step of the machine: queues its events, and executes the effects that need not wait for the journal.
    /// Effects with immediate results are part of the same step, so that they share one commit.
    fn step(&mut self, input: Input) {
        // Without hooks, prompts and arguments need no task.
        let unwatched = self.inner.hooks.is_empty();
        let mut inputs = VecDeque::from([input]);
        let mut events = Vec::new();
        let mut effects = Vec::new();
        while let Some(input) = inputs.pop_front() {
            self.tell();
            for effect in self.inner.machine.step(self.state, input) {
                match effect {
                    Effect::Emit(event) => events.push(event),
                    Effect::Prompt if unwatched => inputs.push_back(Input::Prompted {
                        message: None,
                        instructions: String::new(),
                    }),
                    Effect::Prepare { id, tool, arguments } if unwatched => {
                        let checked = dispatch::check(&self.inner.registry, &tool, &arguments);
                        let arguments = checked.map(|(_, arguments)| arguments);
                        inputs.push_back(Input::Prepared {
                            id,
                            arguments,
                            places: None,
                        });
                    }
                    effect => effects.push(effect),
                }
            }
        }
        let ended = std::mem::take(&mut self.ended);
        self.account.count(&self.state.spent(), ended);
        self.show_notes();
        self.keep_shared();
        for event in events {
            self.show(event);
        }
        let mark = self.journal.mark();
        for effect in effects {
            if self.journal.has_shown(mark) || self.may_precede(&effect) {
                self.perform(effect);
            } else {
                self.held.push((mark, effect));
            }
        }
        self.ask_next();
    }

    /// True if an effect may be executed before the journal has its events, because repeating it after a crash does no
    /// harm.
    fn may_precede(&self, effect: &Effect) -> bool {
        let harmless = match effect {
            Effect::Request { .. } => true,
            Effect::Run { tool, .. } => {
                let facts = self.inner.machine.tools.get(tool);
                facts.is_some_and(|facts| facts.idempotent)
            }
            _ => false,
        };
        harmless && !self.is_first
    }

    /// Executes the effects that waited for the journal.
    fn release(&mut self) {
        self.is_first = false;
        let held = std::mem::take(&mut self.held);
        for (mark, effect) in held {
            if self.journal.has_shown(mark) {
                self.perform(effect);
            } else {
                self.held.push((mark, effect));
            }
        }
        self.ask_next();
    }

    /// Sets the elapsed time and the caller's budget in the state: the machine has no clock and does not know its
    /// caller.
    fn tell(&mut self) {
        if let Some(turn) = &mut self.state.turn {
            let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            turn.wall_ms = self.before_ms.saturating_add(ms);
            turn.outside.clone_from(self.account.outside());
        }
    }

    /// Stores the shared values of hooks in the journal, for another process that resumes the turn.
    fn keep_shared(&mut self) {
        if self.inner.hooks.is_empty() || self.state.turn.is_none() {
            return;
        }
        let values = self.hooks.values();
        if values == self.shared {
            return;
        }
        self.shared.clone_from(&values);
        let event = if Value::from(values.clone()).to_string().len() > MAX_SHARED {
            Event::Notice {
                level: NoticeLevel::Warning,
                hook: None,
                text: format!(
                    "the shared values of hooks exceed {MAX_SHARED} bytes and are kept in this process only"
                ),
            }
        } else {
            Event::ValuesShared { values }
        };
        self.state.apply(&event);
        self.show(event);
    }

    fn failed(&self, source: StoreError) -> AgentError {
        AgentError::Store {
            session: self.state.session.clone(),
            source,
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Emit(event) => self.show(event),
            Effect::Prompt => self.spawn_prompt(),
            Effect::Request { tools, max_output } => {
                let inner = self.inner;
                let view = View {
                    policy: &inner.machine.policy,
                    instructions: &inner.instructions,
                    tools: &inner.specs,
                    model: &inner.model,
                    answer: inner.machine.answer.as_ref(),
                };
                let request = context::request(self.state, &view, tools);
                self.listen(request, max_output);
            }
            Effect::Summarise { messages, max_output } => self.spawn_summary(messages, max_output),
            Effect::Prepare { id, tool, arguments } => self.spawn_prepare(id, tool, arguments),
            Effect::Ask(request) => self.questions.push(request),
            Effect::Run {
                id,
                tool,
                arguments,
                places,
                suspended,
            } => self.spawn_call(id, tool, arguments, places, suspended),
        }
    }

    fn listen(&mut self, request: Request, max_output: Option<u64>) {
        let timeout = self.inner.machine.policy.request_timeout_ms;
        let provider = self.inner.provider.as_ref();
        self.model = Some(ModelStream::new(
            &self.state.session,
            provider,
            request,
            timeout.map(Duration::from_millis),
            max_output,
        ));
    }

    /// Queues an event.
    fn show(&mut self, event: Event) {
        self.record.note(&event);
        self.journal.push(event, self.sink);
    }

    /// Shows the notes of calls and hooks so far, before events that follow from their end.
    fn show_notes(&mut self) {
        while let Some(note) = self.notes.1.try_next() {
            self.show_note(note);
        }
    }

    /// Shows a note of a call or a hook. The use of a hook counts in the budget; no other note changes the state.
    fn show_note(&mut self, note: Note) {
        if let Event::HookFinished { .. } = note.event {
            self.state.apply(&note.event);
            self.account.count(&self.state.spent(), note.ticket);
        }
        self.show(note.event);
    }

    /// Drops everything in progress and collects the outcomes.
    async fn halt(&mut self, outcome: TurnOutcome) -> Input {
        let partial = match (self.model.take(), self.summary.take()) {
            (Some(model), None) => model.into_text(),
            _ => String::new(),
        };
        self.questions.clear();
        self.held.clear();
        let mut ended = self.drop_tasks().await;
        self.show_notes();
        for (id, RunningCall { observer, ticket }) in std::mem::take(&mut self.running) {
            self.ended.push(ticket);
            let has_begun = observer.has_begun();
            let cancelled = || match has_begun {
                true => CallResult::failed(ToolError::Cancelled),
                false => CallResult::refused(ToolError::Cancelled),
            };
            let result = ended.entry(id).or_insert_with(cancelled);
            result.receipt = observer.take_receipt();
            result.not_run = !has_begun;
        }
        Input::Stop {
            outcome,
            partial,
            ended,
        }
    }

    /// Drops all tasks. Results of calls that had just finished are kept.
    async fn drop_tasks(&mut self) -> BTreeMap<String, CallResult> {
        self.tasks.abort_all();
        let mut ended = BTreeMap::new();
        let (tasks, results) = (&mut self.tasks, &mut ended);
        let gone = async move {
            while let Some(task) = tasks.join_next().await {
                if let Ok(TaskEnd::Input(input)) = task
                    && let Input::Returned { id, result } = *input
                {
                    results.insert(id, result);
                }
            }
        };
        let _ = tokio::time::timeout(GRACE, gone).await;
        self.tasks.detach_all();
        for call in self.running.values() {
            // Receipts of nested calls are filed with the outer call.
            call.observer.released(1).await;
        }
        ended
    }

    /// Ends the turn: hooks run once its end is stored, and the last notices are shown.
    async fn over(mut self) -> Result<TurnReport, AgentError> {
        self.drop_reports().await;
        self.store_all().await?;
        if let Some(end) = self.record.end()
            && !self.inner.hooks.is_empty()
        {
            self.inner.hooks.after_turn(&end, &self.hooks).await;
        }
        self.close().await
    }

    /// Drops failure reports that are still queued for hooks.
    async fn drop_reports(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    async fn close(mut self) -> Result<TurnReport, AgentError> {
        self.show_notes();
        self.store_all().await?;
        Ok(self.record.into_report(self.state))
    }

    async fn store_all(&mut self) -> Result<(), AgentError> {
        let stored = self.journal.drain(self.sink).await;
        stored.map_err(|source| self.failed(source))
    }
}

/// Deadline of a turn: its own, or the end of the session's time budget.
fn deadline(policy: &LoopPolicy, state: &LoopState, now: Instant) -> Option<(Instant, TurnOutcome)> {
    let after = |ms| now + Duration::from_millis(ms);
    let turn = policy
        .deadline_ms
        .map(|ms| (after(ms), TurnOutcome::Deadline { ms }));
    let session = policy.budget.wall_ms.map(|limit| {
        let reason = Budget::out_of_time(limit);
        let left = limit.saturating_sub(state.spent().wall_ms);
        (after(left), TurnOutcome::Budget { reason })
    });
    [turn, session].into_iter().flatten().min_by_key(|(at, _)| *at)
}

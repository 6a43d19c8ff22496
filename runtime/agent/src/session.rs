//! A session: a conversation that goes on turn by turn.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::{Event, EventSink, Message};
use tracing::Instrument as _;

use crate::agent::Inner;
use crate::context::messages;
use crate::driver::Driver;
use crate::driver::journal::Journal;
use crate::driver::spans;
use crate::error::AgentError;
use crate::machine::{Input, LoopState};
use crate::report::TurnReport;
use crate::tools::results::ResultStore;
use crate::tools::subagent::AgentFiling;

/// A conversation that goes on turn by turn.
pub struct Session {
    inner: Arc<Inner>,
    state: LoopState,
    shelf: Arc<ResultStore>,
    journal: Journal,
}

/// A turn that runs in a task of its own. Await it for the session and the report; drop it and the turn goes on.
#[derive(Debug)]
pub struct Running {
    id: String,
    cancel: CancellationToken,
    task: JoinHandle<(Session, Result<TurnReport, AgentError>)>,
}

/// A sink that shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullSink;

impl EventSink for NullSink {
    fn event(&self, _event: &Event) {}
}

impl Session {
    /// A session of which the store has `stored` events.
    pub(crate) fn new(inner: Arc<Inner>, state: LoopState, stored: u64) -> Self {
        let shelf = Arc::new(ResultStore::new(&state.session, inner.store.clone()));
        let journal = Journal::new(&state.session, inner.store.clone(), stored);
        Self {
            inner,
            state,
            shelf,
            journal,
        }
    }

    /// Identifier of the session, known before its first turn.
    pub fn id(&self) -> &str {
        &self.state.session
    }

    /// What the loop knows. It can be stored and given to [`crate::Agent::session_from`], also in another process.
    pub fn state(&self) -> &LoopState {
        &self.state
    }

    /// The conversation.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.state.messages
    }

    /// Whether the last turn is open: it waits for an approval, or was interrupted.
    pub fn is_open(&self) -> bool {
        self.state.turn.is_some()
    }

    /// Runs one turn and hears nothing but its report.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn ask(&mut self, text: impl Into<String>) -> Result<TurnReport, AgentError> {
        self.run(Message::user(text), &NullSink, CancellationToken::new())
            .await
    }

    /// Runs one turn: from a message of the person to the end of the model's answer.
    ///
    /// Cancelling the token ends the turn: running calls are dropped, each call has its result, the outcome says so.
    /// Dropping the future drops running calls as well, and leaves the turn open for [`Session::resume`].
    ///
    /// # Errors
    /// When the last turn is still open, when the message is not one of the person, or when the journal fails. What goes
    /// wrong in the turn is its outcome.
    pub async fn run(
        &mut self,
        message: Message,
        sink: &dyn EventSink,
        cancel: CancellationToken,
    ) -> Result<TurnReport, AgentError> {
        self.check_closed()?;
        if !matches!(message, Message::User { .. }) {
            return Err(AgentError::NotAPerson {
                session: self.id().to_owned(),
            });
        }
        self.begin(message, false, sink, cancel, None).await
    }

    fn check_closed(&self) -> Result<(), AgentError> {
        if self.is_open() {
            return Err(AgentError::TurnOpen {
                session: self.id().to_owned(),
            });
        }
        Ok(())
    }

    /// Runs one turn inside a call of another session.
    pub(crate) async fn run_inside(
        &mut self,
        task: &str,
        sink: &dyn EventSink,
        caller: Arc<AgentFiling>,
    ) -> Result<TurnReport, AgentError> {
        let cancel = CancellationToken::new();
        self.begin(Message::user(task), false, sink, cancel, Some(caller))
            .await
    }

    async fn begin(
        &mut self,
        message: Message,
        unanswered: bool,
        sink: &dyn EventSink,
        cancel: CancellationToken,
        caller: Option<Arc<AgentFiling>>,
    ) -> Result<TurnReport, AgentError> {
        let provider = self.inner.provider.info().clone();
        let begin = Input::Begin {
            message,
            provider,
            unanswered,
        };
        self.drive(begin, sink, cancel, caller).await
    }

    /// Goes on by itself: answers a message that nobody answered, continues after an answer, or begins with the task of
    /// the instructions. For sessions made from messages that were saved.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn proceed(
        &mut self,
        sink: &dyn EventSink,
        cancel: CancellationToken,
    ) -> Result<TurnReport, AgentError> {
        self.check_closed()?;
        if let Some(message) = self.state.unanswered() {
            return self.begin(message, true, sink, cancel, None).await;
        }
        let empty = self.state.messages.is_empty();
        let message = Message::user(if empty {
            messages::BEGIN
        } else {
            messages::CONTINUE
        });
        self.run(message, sink, cancel).await
    }

    /// Goes on with a turn that was paused or interrupted, in this process or in another one. Calls that have finished
    /// are not run again; one that was running is run again only if its tool claims to be idempotent.
    ///
    /// # Errors
    /// When no turn is open, or when the journal fails.
    pub async fn resume(
        &mut self,
        sink: &dyn EventSink,
        cancel: CancellationToken,
    ) -> Result<TurnReport, AgentError> {
        if !self.is_open() {
            return Err(AgentError::NoTurn {
                session: self.id().to_owned(),
            });
        }
        self.drive(Input::Resume, sink, cancel, None).await
    }

    /// Gives up a turn that was paused or interrupted: each of its calls gets a result that says so, and the session is
    /// ready for its next message.
    ///
    /// # Errors
    /// When no turn is open, or when the journal fails.
    pub async fn abandon(&mut self, sink: &dyn EventSink) -> Result<TurnReport, AgentError> {
        if !self.is_open() {
            return Err(AgentError::NoTurn {
                session: self.id().to_owned(),
            });
        }
        let stop = Input::Stop {
            outcome: TurnOutcome::Cancelled,
            partial: String::new(),
            ended: BTreeMap::new(),
        };
        self.drive(stop, sink, CancellationToken::new(), None).await
    }

    /// Runs one turn in a task of its own. The sink hears every event; a closure is one, and [`NullSink`] hears nothing.
    pub fn start(mut self, message: impl Into<Message>, sink: impl EventSink + 'static) -> Running {
        let id = self.id().to_owned();
        let cancel = CancellationToken::new();
        let token = cancel.clone();
        let message = message.into();
        let task = tokio::spawn(async move {
            let report = self.run(message, &sink, token).await;
            (self, report)
        });
        Running { id, cancel, task }
    }

    async fn drive(
        &mut self,
        first: Input,
        sink: &dyn EventSink,
        cancel: CancellationToken,
        caller: Option<Arc<AgentFiling>>,
    ) -> Result<TurnReport, AgentError> {
        let span = spans::turn(&self.state.session, self.inner.provider.info());
        let (state, journal) = (&mut self.state, &mut self.journal);
        let shelf = self.shelf.clone();
        let driver = Driver::new(&self.inner, state, journal, shelf, sink, cancel, caller);
        let report = Box::pin(driver.drive(first).instrument(span.clone())).await;
        if let Ok(report) = &report {
            spans::ended(&span, report);
        }
        report
    }
}

impl Running {
    /// Identifier of the session.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Ends the turn; its report says so.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl IntoFuture for Running {
    type Output = (Session, Result<TurnReport, AgentError>);
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.task.await {
                Ok(ended) => ended,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The task is never aborted; only a runtime that shuts down gets here, and nobody waits then.
                    Err(_) => std::future::pending().await,
                },
            }
        })
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id())
            .field("messages", &self.state.messages.len())
            .field("open", &self.is_open())
            .finish_non_exhaustive()
    }
}

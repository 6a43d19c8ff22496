//! Session: a conversation of turns.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::{DataFlow, TurnOutcome};
use toolcell_core::{Event, EventSink, Message, StoreError};
use tracing::Instrument as _;

use crate::agent::Agent;
use crate::context::messages;
use crate::definition::AgentDefinition;
use crate::driver::Driver;
use crate::driver::journal::Journal;
use crate::driver::receipt::SubagentReceipt;
use crate::driver::running::RunningCalls;
use crate::driver::spans;
use crate::error::AgentError;
use crate::machine::summary;
use crate::machine::{Input, LoopState};
use crate::report::TurnReport;
use crate::sink::NullSink;
use crate::tools::results::ResultStore;

/// Conversation of turns.
pub struct Session {
    definition: Arc<AgentDefinition>,
    state: LoopState,
    results: Arc<ResultStore>,
    journal: Journal,
    calls: RunningCalls,
}

/// Turn that runs in its own task. Awaiting it returns the session and the report; dropping it does not stop the turn.
#[derive(Debug)]
pub struct TurnHandle {
    id: String,
    cancel: CancellationToken,
    task: JoinHandle<(Session, Result<TurnReport, AgentError>)>,
}

/// Start of a turn.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TurnStart {
    /// Starts with a user message.
    Message(Message),
    /// Starts with a user message to which data from elsewhere is attached.
    Attached {
        /// The message.
        message: Message,
        /// Data flow of what is attached, which counts as that of calls does.
        flow: DataFlow,
    },
    /// Starts without a message: answers an unanswered message or the results of calls after it, continues after an answer, or
    /// starts the task in the instructions. For sessions created from saved messages.
    Proceed,
    /// Resumes a turn that was paused or interrupted, in this process or another one. Finished calls are not run again;
    /// a call that was running is run again only if its tool is idempotent.
    Resume,
    /// Summarises the older part of the conversation now. Fails if it is too short to be worthwhile.
    Compact,
    /// Abandons a turn that was paused or interrupted: each pending call gets an error result, and the session accepts
    /// its next message.
    Abandon,
}

impl From<Message> for TurnStart {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}

impl From<String> for TurnStart {
    fn from(text: String) -> Self {
        Self::Message(Message::user(text))
    }
}

impl From<&str> for TurnStart {
    fn from(text: &str) -> Self {
        Self::Message(Message::user(text))
    }
}

impl Agent {
    /// Creates a session with a new identifier (a UUID version 7).
    pub fn session(&self) -> Session {
        self.session_from(LoopState::new(uuid::Uuid::now_v7().to_string()))
    }

    /// Creates a session from a state: an empty one with an identifier ([`LoopState::new`]), an existing conversation
    /// ([`LoopState::with_messages`]), or a state kept by the embedder.
    ///
    /// A session in a store must be loaded with [`Agent::load`]: the journal holds more than a state, and an identifier
    /// that the store already has is refused.
    pub fn session_from(&self, state: LoopState) -> Session {
        Session::new(self.definition.clone(), state, 0)
    }

    /// Loads a session from the store. If its last turn is open, [`crate::TurnStart::Resume`] continues it.
    ///
    /// # Errors
    /// Fails without a store, for an unknown session, and for a session that cannot be read.
    pub async fn load(&self, id: &str) -> Result<Session, StoreError> {
        let Some(store) = &self.definition.store else {
            return Err(StoreError::NotFound { id: id.to_owned() });
        };
        let events = store.load(id).await?;
        let state = LoopState::from_events(id, &events);
        Ok(Session::new(self.definition.clone(), state, events.len() as u64))
    }
}

impl Session {
    /// A session with `stored` events in the store.
    pub(crate) fn new(definition: Arc<AgentDefinition>, state: LoopState, stored: u64) -> Self {
        let results = Arc::new(ResultStore::new(&state.session, definition.store.clone()));
        let journal = Journal::new(&state.session, definition.store.clone(), stored);
        Self {
            definition,
            state,
            results,
            journal,
            calls: RunningCalls::default(),
        }
    }

    /// Identifier of the session, available before its first turn.
    pub fn id(&self) -> &str {
        &self.state.session
    }

    /// State of the loop. It can be serialised and passed to [`crate::Agent::session_from`], also in another process.
    pub fn state(&self) -> &LoopState {
        &self.state
    }

    /// Messages of the conversation.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.state.messages
    }

    /// Estimated tokens of the next request: the conversation, the system prompt and the tools.
    pub fn request_tokens(&self) -> u64 {
        self.state.request_tokens(self.definition.machine.overhead)
    }

    /// The calls that run during a turn, of which each can be cancelled on its own.
    pub fn calls(&self) -> RunningCalls {
        self.calls.clone()
    }

    /// True if the last turn is open: waiting for an approval, or interrupted.
    pub fn is_open(&self) -> bool {
        self.state.turn.is_some()
    }

    /// Runs one turn from a user message, without a sink.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn ask(&mut self, text: impl Into<String>) -> Result<TurnReport, AgentError> {
        self.run(text.into(), &NullSink, CancellationToken::new()).await
    }

    /// Runs one turn, to the end of the model's answer.
    ///
    /// Cancelling the token ends the turn: running calls are dropped, every call gets a result, and the outcome is
    /// `Cancelled`. Dropping the future drops running calls as well and leaves the turn open for [`TurnStart::Resume`].
    ///
    /// # Errors
    /// Fails if a turn would start while the last one is open, if no turn is open to resume, if the message is not a
    /// user message, or if the journal fails. A failure within the turn is its outcome.
    pub async fn run(
        &mut self,
        start: impl Into<TurnStart>,
        sink: &dyn EventSink,
        cancel: CancellationToken,
    ) -> Result<TurnReport, AgentError> {
        let input = self.first_input(start.into())?;
        self.drive(input, sink, cancel, None).await
    }

    /// Runs one turn inside a call of another session.
    pub(crate) async fn run_inside(
        &mut self,
        task: &str,
        sink: &dyn EventSink,
        caller: Arc<SubagentReceipt>,
    ) -> Result<TurnReport, AgentError> {
        let input = self.begin(Message::user(task), false, DataFlow::default());
        self.drive(input, sink, CancellationToken::new(), Some(caller))
            .await
    }

    /// Resumes the turn of a session that runs inside a call of another session.
    pub(crate) async fn resume_inside(
        &mut self,
        sink: &dyn EventSink,
        caller: Arc<SubagentReceipt>,
    ) -> Result<TurnReport, AgentError> {
        let input = self.first_input(TurnStart::Resume)?;
        self.drive(input, sink, CancellationToken::new(), Some(caller))
            .await
    }

    /// Continues with another agent, such as one with another model or other tools. Both have the same store.
    pub fn switch_to(&mut self, agent: &Agent) {
        self.definition = agent.definition.clone();
    }

    /// Removes the messages of the last turn from the conversation. The journal keeps them; what calls did is not undone,
    /// and tokens and data-flow labels stay counted. Returns the number of removed messages.
    ///
    /// # Errors
    /// Fails if the last turn is open, if there is no turn whose messages are still in the conversation, or if the journal
    /// fails.
    pub async fn undo(&mut self) -> Result<usize, AgentError> {
        let session = || self.id().to_owned();
        if self.is_open() {
            return Err(AgentError::TurnOpen { session: session() });
        }
        let removed = match self.state.starts.last() {
            Some(start) => self.state.messages.len().saturating_sub(*start),
            None => return Err(AgentError::NothingToUndo { session: session() }),
        };
        let event = Event::TurnUndone { removed };
        self.journal.push(event.clone(), &NullSink);
        if let Err(source) = self.journal.drain(&NullSink).await {
            let session = self.id().to_owned();
            return Err(AgentError::Store { session, source });
        }
        self.state.apply(&event);
        Ok(removed)
    }

    fn first_input(&self, start: TurnStart) -> Result<Input, AgentError> {
        let session = || self.id().to_owned();
        match (start, self.is_open()) {
            (
                TurnStart::Message(_) | TurnStart::Attached { .. } | TurnStart::Proceed | TurnStart::Compact,
                true,
            ) => Err(AgentError::TurnOpen { session: session() }),
            (TurnStart::Resume | TurnStart::Abandon, false) => Err(AgentError::NoTurn { session: session() }),
            (TurnStart::Message(message @ Message::User { .. }), false) => {
                Ok(self.begin(message, false, DataFlow::default()))
            }
            (
                TurnStart::Attached {
                    message: message @ Message::User { .. },
                    flow,
                },
                false,
            ) => Ok(self.begin(message, false, flow)),
            (TurnStart::Message(_) | TurnStart::Attached { .. }, false) => {
                Err(AgentError::NotAUserMessage { session: session() })
            }
            (TurnStart::Proceed, false) => Ok(match self.state.unanswered() {
                Some(message) => self.begin(message, true, DataFlow::default()),
                None => {
                    let text = match self.state.messages.is_empty() {
                        true => messages::BEGIN,
                        false => messages::CONTINUE,
                    };
                    self.begin(Message::user(text), false, DataFlow::default())
                }
            }),
            (TurnStart::Compact, false) => match summary::on_request(&self.state.messages) {
                Some(_) => Ok(Input::Compact),
                None => Err(AgentError::TooShort { session: session() }),
            },
            (TurnStart::Resume, true) => Ok(Input::Resume),
            (TurnStart::Abandon, true) => Ok(Input::Stop {
                outcome: TurnOutcome::Cancelled,
                partial: String::new(),
                ended: BTreeMap::new(),
            }),
        }
    }

    fn begin(&self, message: Message, unanswered: bool, flow: DataFlow) -> Input {
        Input::Begin {
            message,
            provider: self.definition.provider.info().clone(),
            unanswered,
            flow,
        }
    }

    /// Runs one turn in its own task. The sink receives every event; a closure can be a sink, and [`NullSink`] discards
    /// all.
    pub fn spawn(mut self, start: impl Into<TurnStart>, sink: impl EventSink + 'static) -> TurnHandle {
        let id = self.id().to_owned();
        let cancel = CancellationToken::new();
        let token = cancel.clone();
        let start = start.into();
        let task = tokio::spawn(async move {
            let report = self.run(start, &sink, token).await;
            (self, report)
        });
        TurnHandle { id, cancel, task }
    }

    async fn drive(
        &mut self,
        first: Input,
        sink: &dyn EventSink,
        cancel: CancellationToken,
        caller: Option<Arc<SubagentReceipt>>,
    ) -> Result<TurnReport, AgentError> {
        let span = spans::turn(&self.state.session, self.definition.provider.info());
        let (state, journal) = (&mut self.state, &mut self.journal);
        let results = self.results.clone();
        let cancel = (cancel, self.calls.clone());
        let driver = Driver::new(&self.definition, state, journal, results, sink, cancel, caller);
        let report = Box::pin(driver.drive(first).instrument(span.clone())).await;
        if let Ok(report) = &report {
            spans::ended(&span, report);
        }
        report
    }
}

impl TurnHandle {
    /// Identifier of the session.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Cancels the turn; the outcome is `Cancelled`.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl IntoFuture for TurnHandle {
    type Output = (Session, Result<TurnReport, AgentError>);
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.task.await {
                Ok(ended) => ended,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The task is never aborted, so this is reached only when the runtime shuts down.
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

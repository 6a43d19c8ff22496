//! Program around the server: it has the agents, runs their turns, and describes its tools in its own words.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::Usage;
use toolcell_core::store::SessionInfo;
use toolcell_core::{ApprovalRequest, BoxFuture, Decision, EventSink, Message, Schema, SessionStore};

use crate::clients::AuditLine;

/// Runs turns and describes the agents.
pub trait Host: Send + Sync + 'static {
    /// Version of the program.
    fn version(&self) -> &str;

    /// Agents; the first is the main one.
    fn agents(&self) -> &[AgentInfo];

    /// Store of the sessions.
    fn store(&self) -> Arc<dyn SessionStore>;

    /// True if a paused session is in memory.
    fn holds(&self, session: &str) -> bool;

    /// Prepares a turn: finds or creates its session, and reserves it.
    fn begin(&self, request: TurnRequest) -> BoxFuture<'_, Result<PreparedTurn, Refusal>>;

    /// Removes the last turn of a session from its conversation; returns the number of its messages.
    fn undo<'a>(&'a self, session: &'a str, agent: &'a str) -> BoxFuture<'a, Result<usize, Refusal>>;

    /// Deletes a session that is not in use.
    fn delete<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Checks a name for a session.
    ///
    /// # Errors
    /// The reason for which a session cannot have it.
    fn check_name(&self, name: &str, sessions: &[SessionInfo]) -> Result<(), String>;

    /// True if another process uses a session.
    fn is_elsewhere(&self, session: &str) -> bool;

    /// Describes the question about a call.
    fn question(&self, request: &ApprovalRequest) -> QuestionText;

    /// Returns the sessions with a message that has these words, in any case; `None` if that cannot be said.
    fn candidates<'a>(&'a self, words: &'a [String]) -> BoxFuture<'a, Option<HashSet<String>>>;

    /// Searches the messages of a session for words in lower case; `None` if none match.
    fn search<'a>(&'a self, session: &'a str, words: &'a [String]) -> BoxFuture<'a, Option<Vec<Found>>>;

    /// Returns the budget of a session and what it has used, as JSON.
    fn budget<'a>(&'a self, session: &'a str, agent: &'a str) -> BoxFuture<'a, Value>;

    /// Returns what the components can access, as JSON.
    fn tools(&self) -> Value;

    /// Returns the scratch directories, as JSON.
    fn scratches(&self) -> BoxFuture<'_, Result<Value, Refusal>>;

    /// Returns the changes in a scratch directory, as JSON; `None` if there is none of this name.
    fn scratch<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Value>, Refusal>>;

    /// Commits or discards changes in a scratch directory by their paths, or all of them; `None` as above.
    fn decide_scratch<'a>(
        &'a self,
        name: &'a str,
        decision: ScratchDecision,
        files: Option<Vec<String>>,
    ) -> BoxFuture<'a, Result<Option<Value>, Refusal>>;

    /// Notes a decision about a client.
    fn audit(&self, line: &AuditLine);

    /// Returns the use of a client's sessions by day, as JSON.
    fn usage<'a>(&'a self, owner: &'a str, days: u64) -> BoxFuture<'a, Result<Value, String>>;
}

/// Agent that is offered.
#[derive(Debug, Clone, Serialize)]
pub struct AgentInfo {
    /// Name; `default` for the main agent.
    pub id: String,
    /// Purpose.
    pub description: String,
    /// Name of its provider.
    pub provider: String,
    /// Name of its model.
    pub model: String,
    /// True if no model is configured, and a stand-in answers.
    pub is_stand_in: bool,
}

/// Turn to run.
pub struct TurnRequest {
    /// Client; empty for the user of the server.
    pub client: String,
    /// Identifier of the session.
    pub session: String,
    /// Session in the store, or in memory.
    pub keep: Keep,
    /// Name of the agent.
    pub agent: String,
    /// Start of the turn.
    pub start: Start,
    /// Instructions of the client, which follow those of the agent.
    pub instructions: String,
    /// Asked about calls that need approval; `None` refuses them.
    pub asker: Option<Arc<dyn Asker>>,
    /// Tools of the client, which it runs itself.
    pub client_tools: Vec<ClientTool>,
    /// Results of calls of these tools for which the paused turn waits.
    pub results: BTreeMap<CallPlace, String>,
    /// Schema that the answer fits: it is JSON.
    pub answer: Option<Schema>,
    /// Number of events that the session has, if the request depends on it.
    pub events: Option<u64>,
}

/// Place of a session.
pub enum Keep {
    /// In the store.
    Stored,
    /// In memory, and begun with these messages.
    New(Vec<Message>),
    /// In memory, and paused.
    Paused,
    /// In memory, as a copy of this session of the store.
    Copied(String),
}

/// Start of a turn.
pub enum Start {
    /// A message of the user.
    Message {
        /// Its text.
        text: String,
        /// Files.
        attachments: Vec<Attachment>,
    },
    /// A message in its parts.
    Parts(Message),
    /// The last message of an imported conversation.
    Proceed,
    /// An open turn goes on.
    Resume,
    /// An open turn ends.
    Abandon,
    /// The older part of the conversation is summarised.
    Compact,
}

/// File that is sent with a message.
pub struct Attachment {
    /// Name.
    pub name: String,
    /// Bytes.
    pub data: Vec<u8>,
}

/// Tool that the client runs.
#[derive(Debug, Clone)]
pub struct ClientTool {
    /// Name.
    pub name: String,
    /// Purpose.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Value,
}

/// Turn that is ready to run.
pub struct PreparedTurn {
    /// Number of events in the journal.
    pub events: u64,
    /// Size of its messages, in bytes of JSON.
    pub bytes: usize,
    /// Cancels a call of the turn while it runs.
    pub cancel_call: CancelCall,
    /// Runs the turn. Dropping the future interrupts it.
    pub run: RunTurn,
}

/// Cancels the call with this identifier; false if it does not run.
pub type CancelCall = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Runs a turn, whose events go to the sink, until its end or its cancellation.
pub type RunTurn =
    Box<dyn FnOnce(Arc<dyn EventSink>, CancellationToken) -> BoxFuture<'static, TurnEnd> + Send>;

/// End of a turn.
#[derive(Debug, Clone, Default)]
pub struct TurnEnd {
    /// Outcome; `None` if the turn could not go on.
    pub outcome: Option<TurnOutcome>,
    /// What the turn says at its end besides the answers of the model, such as a question to the user, or the summary that the
    /// model gave to a control tool.
    pub text: String,
    /// Tokens of this run: those before a pause of the turn are not counted again.
    pub usage: Usage,
    /// Failure of the host, such as that of its store.
    pub failure: Option<String>,
    /// Calls of tools of the client that wait for their results.
    pub waiting: Vec<ClientCall>,
    /// Reason of `failure` if it is a limit of the client.
    pub limit: Option<Refusal>,
}

impl TurnEnd {
    /// True if the text of a turn with this outcome is for the client. Other turns were cut off, and their text is what the model
    /// said before.
    pub fn has_text(outcome: &TurnOutcome) -> bool {
        !matches!(
            outcome,
            TurnOutcome::AwaitingApproval { .. }
                | TurnOutcome::Cancelled
                | TurnOutcome::Aborted { .. }
                | TurnOutcome::Failing { .. }
                | TurnOutcome::ProviderFailed { .. }
                | TurnOutcome::HostFailed { .. }
        )
    }
}

/// Place of a call in its turn, which no other call of the turn has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallPlace {
    /// Step of the turn, from 1.
    pub step: u32,
    /// Number of calls before it in the answer of the step.
    pub index: usize,
}

/// Call of a tool of the client.
#[derive(Debug, Clone)]
pub struct ClientCall {
    /// Place of the call in its turn.
    pub place: CallPlace,
    /// Name of the tool.
    pub name: String,
    /// Arguments.
    pub arguments: Value,
}

/// Reason for which a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such session.
    NotFound,
    /// Another process uses the session.
    InUse,
    /// A turn is open.
    TurnOpen,
    /// The turn waits for results of the client of `/v1` that asked, and has nothing else to do.
    WaitsForClient,
    /// No turn is open, or there is nothing to do.
    NoTurn(String),
    /// The request is wrong.
    Invalid(String),
    /// A tool of the client cannot be used.
    InvalidTool(String),
    /// The client has used up a limit of its own for today.
    UsedUp {
        /// The limit.
        message: String,
        /// Seconds until it has more.
        seconds: u64,
    },
    /// Something changed meanwhile.
    Conflict(String),
    /// The host failed.
    Failed(String),
}

/// Decision about changes in a scratch directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScratchDecision {
    /// The files of the directory are replaced.
    Commit,
    /// The changes are deleted.
    Discard,
}

/// Asks the user about a call.
pub trait Asker: Send + Sync {
    /// Asks and waits for the decision. Dropping the future withdraws the question.
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Decision>;
}

/// Text whose parts have different authors.
pub type Words = Vec<TextPart>;

/// Part of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TextPart {
    /// Text of the program.
    Own(String),
    /// Foreign text.
    Quoted(String),
}

/// Question about a call.
#[derive(Debug, Clone)]
pub struct QuestionText {
    /// Component of the tool, if it is known.
    pub component: Option<String>,
    /// The question.
    pub title: Words,
    /// Facts, and whether they are warnings.
    pub facts: Vec<(Words, bool)>,
}

/// Message that was found.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// Role of its author.
    pub role: String,
    /// Excerpt on one line.
    pub text: String,
}

//! State that all connections of a server share: its tools, its description, and the observer of its calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Value, json};
use toolcell_core::tool::LogLine;
use toolcell_core::{ApprovalRequest, CallResult, Event, ToolCall, ToolName};

use crate::server::catalog::Catalog;
use crate::server::listeners::Listeners;
use crate::server::question::Questions;

/// Description of the server for clients.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Name of the program.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Instructions for the use of the tools together, for the model; `None` if their descriptions suffice.
    pub instructions: Option<String>,
}

/// Observer of the calls of all clients. Its methods must not block.
pub trait ServerObserver: Send + Sync {
    /// Returns the question to the user about a call, in the words of the host. The call is one of the tools of this generation, as
    /// [`Server::generation`](super::Server::generation) counts them.
    ///
    /// # Errors
    /// The reason for which no question is possible, for the model: the call is not approved.
    fn question(&self, _request: &ApprovalRequest, _generation: u64) -> Result<String, &'static str> {
        Err("no questions are asked here")
    }
    /// Called when a call begins, with the arguments as the client sent them.
    fn started(&self, _call: &ToolCall) {}
    /// Called with 1 when a call runs after waiting for others, and with -1 when it has run.
    fn running(&self, _change: i64) {}
    /// Called for each log line of a tool, including those that the client did not request.
    fn log(&self, _call: &str, _line: &LogLine) {}
    /// Called for each event of an agent's session that runs inside of a call.
    fn nested(&self, _call: &str, _event: &Event) {}
    /// Called for a call inside of a call that needs approval, for which the client cannot ask its user.
    fn unasked(&self, _request: &ApprovalRequest) {}
    /// Called once when a call ends, also if it was cancelled or its client has disconnected.
    fn finished(&self, _call: &str, _tool: &ToolName, _result: &CallResult) {}
}

/// State that all connections of a server share.
pub(crate) struct ServerState {
    catalog: RwLock<Arc<Catalog>>,
    /// Clients that are told when it changes.
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) identity: Identity,
    /// Description of the server in messages.
    pub(crate) info: Value,
    pub(crate) observer: Arc<dyn ServerObserver>,
    /// Questions that are answered by repeating the call.
    pub(crate) questions: Questions,
    calls: AtomicU64,
}

impl ServerState {
    pub(crate) fn new(catalog: Catalog, identity: Identity, observer: Arc<dyn ServerObserver>) -> Self {
        Self {
            catalog: RwLock::new(Arc::new(catalog)),
            listeners: Arc::default(),
            info: json!({ "name": identity.name, "version": identity.version }),
            identity,
            observer,
            questions: Questions::default(),
            calls: AtomicU64::new(0),
        }
    }

    /// Returns what is offered now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Offers something else, and tells the clients which lists differ. Calls in progress keep their tools.
    pub(crate) fn replace(&self, mut catalog: Catalog) {
        let mut current = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        catalog.generation = current.generation + 1;
        let new = Arc::new(catalog);
        let old = std::mem::replace(&mut *current, new.clone());
        drop(current);
        for list in old.changes_to(&new) {
            self.listeners.tell(list);
        }
    }

    /// Tells the clients that follow them which resources have changed. `is_updated` gets the source of a resource, if it is still
    /// offered, and its URI.
    pub(crate) fn updated(&self, is_updated: impl Fn(Option<&str>, &str) -> bool) {
        let catalog = self.catalog();
        self.listeners
            .tell_updated(|uri| is_updated(catalog.context.source_of(uri), uri));
    }

    /// Returns the identifier of the next call, unique in the life of the server. The identifiers of clients are not.
    pub(crate) fn next_call(&self) -> String {
        format!("call-{}", self.calls.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

//! Log of one client: its calls in the log files, and hints for the user on standard error.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use toolcell_agent::ApprovalHint;
use toolcell_core::event::{Event, EventSink};
use toolcell_core::tool::LogLine;
use toolcell_core::{ApprovalCause, ApprovalRequest, CallResult, ToolCall, ToolName};
use toolcell_mcp::ServerObserver;
use toolcell_store::LogFiles;

use super::offer::{CANNOT_ASK, Offer, approval_change};
use crate::approval::question;
use crate::approval::terminal::Known;
use crate::config::Settings;
use crate::environment::Environment;
use crate::error::Failure;
use crate::telemetry::log_files::Logs;
use crate::ui::hints::AllowHints;
use crate::ui::render::Console;
use crate::ui::render::turn::notice;
use crate::ui::terminal::{Size, text};

/// Maximum number of hints, and of notices of hooks, that are printed. Each is printed once: a client that does not read
/// standard error must not block calls when the pipe is full.
const MAX_TOLD: usize = 64;

/// Maximum number of generations of the tools whose facts are kept. A call of an older one that needs approval is refused.
const MAX_GENERATIONS: usize = 8;

/// Reasons for which the user is not asked about a call.
const TOO_LONG: &str = "its arguments are too long for a question to the user";
const REPLACED: &str = "its component was replaced too often since the call began";

/// Files the calls of the client, and tells the user on standard error how to allow what was denied.
pub(super) struct CallLog {
    console: Console,
    session: String,
    /// Facts by the generation of the tools, the newest last.
    facts: RwLock<VecDeque<(u64, Arc<Facts>)>>,
    size: Size,
    hints: Told,
    notices: Told,
    log: Option<Arc<LogFiles>>,
    /// Change of the configuration that allows a call which needs approval.
    approval_change: Arc<ApprovalHint>,
}

/// Texts that were printed.
#[derive(Default)]
struct Told(Mutex<BTreeSet<String>>);

impl Told {
    /// True for a text that is to be printed now.
    fn is_due(&self, text: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < MAX_TOLD && told.insert(text.to_owned())
    }
}

/// Facts about the tools that are offered.
struct Facts {
    hints: AllowHints,
    /// Facts about each tool for questions.
    known: Arc<BTreeMap<String, Known>>,
}

impl Facts {
    fn of(offer: &Offer, environment: &Environment) -> Self {
        Self {
            hints: AllowHints::new(&offer.loaded, environment),
            known: offer.known.clone(),
        }
    }
}

impl CallLog {
    /// Creates the log of a client.
    pub(super) fn open(
        offer: &Offer,
        settings: &Settings,
        environment: &Environment,
        console: &Console,
    ) -> Result<Arc<Self>, Failure> {
        let session = format!("mcp-{}", uuid::Uuid::now_v7());
        let log = match Logs::open(settings.log.as_ref(), environment)? {
            Some(mut logs) => Some(logs.of(&session)?),
            None => None,
        };
        Ok(Arc::new(Self {
            console: console.clone(),
            session,
            facts: RwLock::new(VecDeque::from([(0, Arc::new(Facts::of(offer, environment)))])),
            size: Size::of_error(environment),
            hints: Told::default(),
            notices: Told::default(),
            log,
            approval_change: approval_change(environment),
        }))
    }

    /// Name of the client in its log, and for hooks.
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// Takes the facts about the tools of a generation, which are offered next. Calls of earlier ones go on.
    pub(super) fn add_offer(&self, generation: u64, offer: &Offer, environment: &Environment) {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        facts.retain(|(known, _)| *known != generation);
        facts.push_back((generation, Arc::new(Facts::of(offer, environment))));
        if facts.len() > MAX_GENERATIONS {
            facts.pop_front();
        }
    }

    /// Facts about the tools of a generation, or the newest ones.
    fn facts(&self, generation: Option<u64>) -> Option<Arc<Facts>> {
        let facts = self.facts.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: u64| generation.is_none_or(|generation| known == generation);
        let found = facts.iter().rfind(|(known, _)| is_it(*known));
        found.map(|(_, facts)| facts.clone())
    }

    fn file(&self, event: &Event) {
        if let Some(log) = &self.log {
            log.event(event);
        }
    }

    /// Gives the user a hint once.
    fn tell(&self, hint: String) {
        if self.hints.is_due(&hint) {
            self.console.note(hint);
        }
    }

    /// Tells the user how to allow what was refused or denied in a call.
    fn hint(&self, tool: &str, result: &CallResult) {
        let error = result.error.as_ref();
        let receipt = result.receipt.clone().unwrap_or_default();
        if let Some(hint) = error.and_then(|error| error.hint()) {
            self.tell(format!("a call of `{tool}` was refused; {hint}"));
        }
        let Some(facts) = self.facts(None) else { return };
        for hint in facts.hints.of_denials(tool, &receipt, error) {
            self.tell(format!("an access of `{tool}` was denied; {hint}"));
        }
        if let Some(error) = error
            && let Some(hint) = facts.hints.of_limit(tool, &receipt, error)
        {
            self.tell(format!("a call of `{tool}` was {error}; {hint}"));
        }
    }

    /// Tells the user how to allow a call that needed approval.
    fn tell_refused(&self, request: &ApprovalRequest, why: &'static str) {
        let change = (self.approval_change)(&request.tool, request.cause);
        self.tell(format!(
            "a call of `{}` was refused; {why}; {change}",
            request.tool
        ));
    }

    /// Reports a log that could not be written.
    pub(super) fn end(&self) {
        if let Some(error) = self.log.as_ref().and_then(|log| log.error()) {
            self.console.note(text!("the log is incomplete: {}", error));
        }
    }
}

impl EventSink for CallLog {
    /// Files what hooks report, and shows their notices.
    fn event(&self, event: &Event) {
        self.file(event);
        if let Event::Notice { hook, text, .. } = event
            && self.notices.is_due(&format!("{hook:?} {text}"))
        {
            self.console.note(notice(hook.as_deref(), text));
        }
    }
}

impl ServerObserver for CallLog {
    fn question(&self, request: &ApprovalRequest, generation: u64) -> Result<String, &'static str> {
        let facts = self.facts(Some(generation)).ok_or(REPLACED)?;
        let known = facts.known.get(&request.tool);
        let Some(text) = question::of_call(request, known, false).plain(self.size) else {
            self.tell_refused(request, TOO_LONG);
            return Err(TOO_LONG);
        };
        // The flow guard asks once for each combination, as in a session.
        Ok(match request.cause {
            ApprovalCause::Rule => text,
            _ => format!("{text}\nThe flow of data is then allowed for all later calls of this client."),
        })
    }

    fn started(&self, call: &ToolCall) {
        tracing::debug!(tool = %call.name, id = call.id, "the call starts");
        self.file(&Event::CallStarted {
            id: call.id.clone(),
            tool: call.name.to_string(),
            arguments: call.arguments.clone().into(),
        });
    }

    fn log(&self, call: &str, line: &LogLine) {
        self.file(&Event::CallLog {
            id: call.to_owned(),
            line: line.clone(),
        });
    }

    fn finished(&self, call: &str, tool: &ToolName, result: &CallResult) {
        let error = result.error.as_ref();
        tracing::debug!(%tool, id = call, error = error.map(|error| error.kind()), "the call ended");
        self.file(&Event::CallFinished {
            id: call.to_owned(),
            tool: tool.to_string(),
            result: result.clone(),
        });
        self.hint(tool.as_str(), result);
    }

    fn nested(&self, call: &str, event: &Event) {
        self.file(&Event::Nested {
            id: call.to_owned(),
            event: Box::new(event.clone()),
        });
        let mut inner = event;
        while let Event::Nested { event, .. } = inner {
            inner = event;
        }
        if let Event::CallFinished { tool, result, .. } = inner {
            self.hint(tool, result);
        }
    }

    fn unasked(&self, request: &ApprovalRequest) {
        self.tell_refused(request, CANNOT_ASK);
    }
}

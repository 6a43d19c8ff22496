//! Turns for clients: their start, their approver, and the tools that the client runs itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolcell_agent::machine::Stage;
use toolcell_agent::{AgentBuilder, ApprovalCause, ApprovalRequest, Approver, Decision, Session, TurnStart};
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::{Prices, Usage};
use toolcell_core::schema::PatternTotal;
use toolcell_core::tool::{CallContext, Hints, ToolName};
use toolcell_core::{BoxFuture, CallResult, Event, EventSink, Schema, Tool, ToolCall, ToolError, ToolSpec};
use toolcell_serve::{Asker, CallPlace, ClientCall, ClientTool, Refusal, Start, TurnEnd};
use toolcell_store::{LogFiles, SqliteSessions, TurnUse};

use super::clients::Daily;
use super::held::Held;
use super::host::message;
use super::ledger::{self, Ledger, Reserved, Used};
use crate::approval::saved_approvals::SavedApproval;
use crate::approval::terminal::Known;
use crate::session::in_use::Mark;

/// Maximum number of requests whose tools are checked at a time, which can take a second each. Others wait.
const MAX_CHECKED: usize = 2;

static CHECKED: Semaphore = Semaphore::const_new(MAX_CHECKED);

/// Reason of a refusal for the model.
const NO_USER: &str = "no user can be asked";

/// Converts the start of a turn.
pub(super) fn start(start: Start) -> Result<TurnStart, Refusal> {
    Ok(match start {
        Start::Message { text, attachments } => TurnStart::Message(message(text, attachments)?),
        Start::Parts(message) => TurnStart::Message(message),
        Start::Proceed => TurnStart::Proceed,
        Start::Resume => TurnStart::Resume,
        Start::Abandon => TurnStart::Abandon,
        Start::Compact => TurnStart::Compact,
    })
}

/// Tools of a client. Their calls wait for approval, which pauses the turn; with the results of the client, they are approved, and
/// return them.
#[derive(Clone)]
pub(super) struct ClientTools {
    tools: Vec<Arc<ToolSpec>>,
    /// Results by the identifiers of calls.
    results: Arc<Mutex<BTreeMap<String, String>>>,
}

struct OfClient {
    spec: Arc<ToolSpec>,
    results: Arc<Mutex<BTreeMap<String, String>>>,
}

impl ClientTools {
    /// Reads the tools of a client, as [`ClientTools::new`], on a thread that may take its time. `patterns` are those of other
    /// schemas of the request.
    pub(super) async fn read(
        wanted: Vec<ClientTool>,
        patterns: PatternTotal,
        builder: &AgentBuilder,
    ) -> Result<Self, Refusal> {
        if wanted.is_empty() {
            return Self::new(&wanted, patterns, builder);
        }
        let builder = builder.clone();
        // The semaphore is never closed.
        let place = CHECKED.acquire().await.ok();
        let read = tokio::task::spawn_blocking(move || {
            let _place = place;
            Self::new(&wanted, patterns, &builder)
        });
        let failed = |_| Err(Refusal::Failed("the tools could not be checked".into()));
        read.await.unwrap_or_else(failed)
    }

    /// Reads the tools of a client. One with the name of a tool of the agent, or of a control tool, is left out.
    fn new(
        wanted: &[ClientTool],
        mut patterns: PatternTotal,
        builder: &AgentBuilder,
    ) -> Result<Self, Refusal> {
        let mut tools: Vec<Arc<ToolSpec>> = Vec::new();
        for tool in wanted {
            let wrong = |error: &dyn std::fmt::Display| {
                let name: String = tool.name.chars().take(64).flat_map(char::escape_debug).collect();
                Refusal::InvalidTool(format!("the tool `{name}` cannot be used: {error}"))
            };
            let name = ToolName::new(tool.name.as_str()).map_err(|error| wrong(&error))?;
            let schema = Schema::for_arguments_within(&tool.schema.to_string(), &mut patterns);
            let schema = schema.map_err(|error| wrong(&error))?;
            let is_known = tools.iter().any(|known| known.name == name) || builder.has_name(name.as_str());
            if !is_known {
                tools.push(Arc::new(ToolSpec {
                    name,
                    title: None,
                    description: tool.description.clone(),
                    input: Arc::new(schema),
                    output: None,
                    hints: Hints::default(),
                    annotations: BTreeMap::new(),
                }));
            }
        }
        Ok(Self {
            tools,
            results: Arc::default(),
        })
    }

    /// Offers the tools, whose calls wait.
    pub(super) fn offer(&self, builder: AgentBuilder) -> AgentBuilder {
        let tools = self.tools.iter().map(|spec| {
            Arc::new(OfClient {
                spec: spec.clone(),
                results: self.results.clone(),
            }) as Arc<dyn Tool>
        });
        builder.client_tools(tools)
    }

    fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|spec| spec.name.as_str() == tool)
    }

    fn has_result(&self, call: &str) -> bool {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.contains_key(call)
    }

    /// Returns the calls that wait for results, with their identifiers.
    fn waiting(&self, session: &Session) -> Vec<(String, ClientCall)> {
        let step = session.state().turn.as_ref().map_or(0, |turn| turn.steps);
        let calls = session.state().turn.iter().flat_map(|turn| &turn.calls);
        let waiting = calls.enumerate().filter_map(|(index, call)| match &call.stage {
            Stage::Held {
                arguments,
                cause: ApprovalCause::Client,
                ..
            } => Some((
                call.request.id.clone(),
                ClientCall {
                    place: CallPlace { step, index },
                    name: call.request.name.clone(),
                    arguments: arguments.clone(),
                },
            )),
            _ => None,
        });
        waiting.collect()
    }

    /// Adds the tools of calls that wait, which the agent does not have; false if none is missing. The model is told their names only.
    pub(super) fn add_called(&mut self, session: &Session, builder: &AgentBuilder) -> Result<bool, Refusal> {
        let calls = session.state().turn.iter().flat_map(|turn| &turn.calls);
        let missing: Vec<ClientTool> = calls
            .filter(|call| is_of_client(&call.stage) && !self.has(&call.request.name))
            .map(|call| ClientTool {
                name: call.request.name.clone(),
                description: String::new(),
                schema: json!({"type": "object"}),
            })
            .collect();
        let known = self.tools.len();
        let further = Self::new(&missing, PatternTotal::default(), builder)?;
        self.tools.extend(further.tools);
        Ok(self.tools.len() > known)
    }

    /// Assigns results to the calls that wait, by their places.
    ///
    /// # Errors
    /// A result is of no call that waits.
    pub(super) fn resolve(
        &self,
        session: &Session,
        placed: &BTreeMap<CallPlace, String>,
    ) -> Result<(), Refusal> {
        let waiting = self.waiting(session);
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, text) in placed {
            let found = waiting.iter().find(|(_, call)| call.place == *place);
            let (id, _) = found.ok_or_else(|| {
                Refusal::Invalid("a result is of a call for which the turn does not wait".into())
            })?;
            results.insert(id.clone(), text.clone());
        }
        Ok(())
    }
}

impl Tool for OfClient {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, call: ToolCall, _: CallContext) -> BoxFuture<'_, CallResult> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match results.remove(&call.id) {
            Some(text) => CallResult::text(text),
            None => CallResult::failed(ToolError::denied("the client has not returned a result", None)),
        };
        Box::pin(std::future::ready(result))
    }
}

/// True if a call waits for the result of the client.
fn is_of_client(stage: &Stage) -> bool {
    matches!(
        stage,
        Stage::Held {
            cause: ApprovalCause::Client,
            ..
        }
    )
}

/// True if an open turn waits for results of its client, and has nothing else to do.
pub(super) fn waits_for_client(session: &Session) -> bool {
    let calls = session.state().turn.iter().flat_map(|turn| &turn.calls);
    let mut open = calls
        .filter(|call| !matches!(call.stage, Stage::Finished(_)))
        .peekable();
    open.peek().is_some() && open.all(|call| is_of_client(&call.stage))
}

/// Asks the user in another place, unless a saved approval answers.
#[derive(Clone)]
pub(super) struct WebApprover {
    pub(super) asker: Option<Arc<dyn Asker>>,
    pub(super) tools: ClientTools,
    pub(super) known: Arc<BTreeMap<String, Known>>,
    pub(super) saved: Vec<SavedApproval>,
    pub(super) base: Option<String>,
}

impl Approver for WebApprover {
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            // Only the client has the result, so there is nothing that the user could allow.
            if request.cause == ApprovalCause::Client {
                return match self.tools.has_result(&request.id) {
                    true => Decision::Approve,
                    false => Decision::Later,
                };
            }
            if request.cause == ApprovalCause::Rule
                && let Some(known) = self.known.get(&request.tool)
                && (self.saved.iter()).any(|saved| saved.allows(request, known, self.base.as_deref()))
            {
                return Decision::Approve;
            }
            match &self.asker {
                Some(asker) => asker.ask(request.clone()).await,
                None => Decision::Deny {
                    reason: Some(NO_USER.into()),
                },
            }
        })
    }

    fn decide_all<'a>(&'a self, requests: &'a [ApprovalRequest]) -> BoxFuture<'a, Vec<Decision>> {
        let all = requests.iter().map(|request| self.decide(request));
        Box::pin(futures_util::future::join_all(all))
    }
}

/// Counts what a turn uses of the limits of its client.
pub(super) struct Meter {
    ledger: Arc<Ledger>,
    /// Kept until the turn has ended.
    reserved: Reserved,
    limits: Daily,
    prices: Option<Prices>,
    /// Use of the session before the turn, and of the turn so far.
    before: Used,
    counted: Mutex<Used>,
}

impl Meter {
    pub(super) fn new(
        ledger: Arc<Ledger>,
        reserved: Reserved,
        limits: Daily,
        prices: Option<Prices>,
        session: &Session,
    ) -> Self {
        let mut meter = Self {
            ledger,
            reserved,
            limits,
            prices,
            before: Used::default(),
            counted: Mutex::default(),
        };
        meter.before = meter.of(session);
        meter
    }

    /// Returns what a session has used, with its agents.
    fn of(&self, session: &Session) -> Used {
        let spent = session.state().spent();
        Used {
            tokens: spent.tokens(),
            cost_micros: (self.prices.as_ref()).map_or(0, |prices| spent.cost_micros(prices)),
        }
    }

    fn is_limited(&self) -> bool {
        self.limits != Daily::default()
    }

    /// Counts a step; false if a limit is reached.
    fn event(&self, event: &Event) -> bool {
        let Event::StepFinished {
            usage: Some(usage), ..
        } = event
        else {
            return true;
        };
        if !self.is_limited() {
            return true;
        }
        let used = Used {
            tokens: usage.total(),
            // Another model that answered has prices of its own.
            cost_micros: usage
                .cost_micros
                .or_else(|| Some(self.prices.as_ref()?.cost_micros(usage)))
                .unwrap_or(0),
        };
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.tokens = counted.tokens.saturating_add(used.tokens);
        counted.cost_micros = counted.cost_micros.saturating_add(used.cost_micros);
        (self.ledger).step(self.reserved.client(), used, self.limits, ledger::now())
    }

    /// Counts what no step told, such as the use of its agents; false if a limit is reached.
    fn end(&self, session: &Session) -> bool {
        if !self.is_limited() {
            return true;
        }
        let after = self.of(session);
        let counted = *self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let rest =
            |after: u64, before: u64, counted: u64| after.saturating_sub(before).saturating_sub(counted);
        let used = Used {
            tokens: rest(after.tokens, self.before.tokens, counted.tokens),
            cost_micros: rest(after.cost_micros, self.before.cost_micros, counted.cost_micros),
        };
        (self.ledger).rest(self.reserved.client(), used, self.limits, ledger::now())
    }
}

/// Tokens of the open turn so far.
fn turn_usage(session: &Session) -> Usage {
    session
        .state()
        .turn
        .as_ref()
        .map(|turn| turn.usage)
        .unwrap_or_default()
}

/// Returns the tokens of a turn after those before a pause.
fn since(before: Usage, all: Usage) -> Usage {
    Usage {
        input: all.input.saturating_sub(before.input),
        cache_read: all.cache_read.saturating_sub(before.cache_read),
        cache_write: all.cache_write.saturating_sub(before.cache_write),
        output: all.output.saturating_sub(before.output),
        reasoning: all.reasoning.saturating_sub(before.reasoning),
        ..all
    }
}

/// Place of a conversation that is not stored.
pub(super) struct Unsaved {
    pub(super) held: Arc<Held>,
    /// Receives its use, which counts like the use of a session.
    pub(super) store: Arc<SqliteSessions>,
    pub(super) agent: String,
    pub(super) client: String,
}

impl Unsaved {
    /// Counts what a turn has used since it began, or since its pause.
    async fn count(&self, mut used: TurnUse, usage: Usage, cost: (Option<u64>, bool)) {
        // The end of a turn has the tokens before its pause as well.
        (used.usage, used.cost_micros) = (Usage::default(), None);
        let (cost_micros, is_partial) = cost;
        used.usage.add_turn(&mut used.cost_micros, usage, cost_micros);
        used.usage.unpriced |= is_partial;
        if let Err(error) = self.store.count_unsaved(&self.agent, &self.client, used).await {
            tracing::warn!("could not count the use of a conversation: {error}");
        }
    }
}

/// Runs a turn.
pub(super) async fn run(
    mut session: Session,
    start: TurnStart,
    (sink, log): (Arc<dyn EventSink>, Option<Arc<LogFiles>>),
    (cancel, meter): (CancellationToken, Meter),
    tools: ClientTools,
    unsaved: Option<Unsaved>,
    mark: Option<Mark>,
) -> TurnEnd {
    let (meter, stop) = (Arc::new(meter), cancel.clone());
    let of_events = meter.clone();
    let used = Arc::new(Mutex::new(TurnUse::default()));
    let counted = unsaved.is_some().then(|| used.clone());
    let last = Arc::new(Mutex::new(String::new()));
    let said = last.clone();
    let both = move |event: &Event| {
        if let Event::StepFinished { message, .. }
        | Event::StepInterrupted {
            message: Some(message),
            ..
        } = event
        {
            let text = message.text();
            if !text.is_empty() {
                *said.lock().unwrap_or_else(PoisonError::into_inner) = text;
            }
        }
        sink.event(event);
        if !of_events.event(event) {
            stop.cancel();
        }
        if let Some(log) = &log {
            log.event(event);
        }
        if let Some(used) = &counted {
            used.lock().unwrap_or_else(PoisonError::into_inner).event(event);
        }
    };
    let before = turn_usage(&session);
    let spent = session.state().spent();
    let report = session.run(start, &both, cancel).await;
    drop(mark);
    let is_used_up = !meter.end(&session);
    if let (Some(unsaved), Ok(report)) = (&unsaved, &report) {
        let used = std::mem::take(&mut *used.lock().unwrap_or_else(PoisonError::into_inner));
        let cost = session.state().spent().cost_since(&spent, meter.prices.as_ref());
        unsaved.count(used, since(before, report.usage), cost).await;
    }
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            return TurnEnd {
                failure: Some(error.to_string()),
                ..TurnEnd::default()
            };
        }
    };
    let limit =
        (is_used_up && report.outcome == TurnOutcome::Cancelled).then(|| ledger::used_up(ledger::now()));
    // The client has the last text of the model; the end can have another one, such as that of a control tool.
    let is_said = *last.lock().unwrap_or_else(PoisonError::into_inner) == report.text;
    let text = match is_said || !TurnEnd::has_text(&report.outcome) {
        true => String::new(),
        false => report.text,
    };
    let waiting: Vec<ClientCall> = tools
        .waiting(&session)
        .into_iter()
        .map(|(_, call)| call)
        .collect();
    if let Some(unsaved) = unsaved.filter(|_| !waiting.is_empty()) {
        unsaved.held.keep(session);
    }
    TurnEnd {
        outcome: Some(report.outcome),
        text,
        usage: since(before, report.usage),
        failure: limit.is_some().then(|| ledger::USED_UP.to_owned()),
        waiting,
        limit,
    }
}

//! Agents of the configuration for the server.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use serde_json::{Value, json};
use toolcell_agent::budget::Spent;
use toolcell_agent::{Agent, AgentBuilder, LoopState};
use toolcell_core::schema::PatternTotal;
use toolcell_core::store::SessionInfo;
use toolcell_core::{ApprovalRequest, BoxFuture, Message, SessionStore, StoreError};
use toolcell_mcp::client::end_all_processes;
use toolcell_serve::{
    AgentInfo, AuditLine, Found, Host, Keep, PreparedTurn, QuestionText, Refusal, ScratchDecision,
    TurnRequest,
};
use toolcell_store::{SqliteSessions, without_case};

use super::audit::Audit;
use super::clients::Daily;
use super::describe;
use super::held::{Held, size};
use super::ledger::{self, Ledger};
use super::scratch::ScratchDirectories;
use super::turn::{self, ClientTools, Meter, Unsaved, WebApprover};
use crate::agent::setup::AgentSetup;
use crate::approval::saved_approvals;
use crate::approval::terminal::Known;
use crate::commands::session::check_name;
use crate::commands::session::search::{MAX_MATCHES, matching};
use crate::config::Settings;
use crate::environment::Environment;
use crate::error::Failure;
use crate::mcp::servers::Servers;
use crate::session::in_use;
use crate::session::prompt::attachment;
use crate::telemetry::log_files::Logs;

/// Name of the main agent.
pub(super) const MAIN: &str = "default";

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Agents of one client, whose components keep nothing of others.
pub(super) struct OwnAgents {
    builders: BTreeMap<String, AgentBuilder>,
    servers: Servers,
}

impl OwnAgents {
    pub(super) fn of(setup: AgentSetup) -> Self {
        let mut builders = BTreeMap::from([(MAIN.to_owned(), setup.builder)]);
        for agent in setup.subagents {
            builders.entry(agent.name).or_insert(agent.builder);
        }
        Self {
            builders,
            servers: setup.servers,
        }
    }
}

/// Agents of the configuration.
pub(super) struct AgentHost {
    infos: Vec<AgentInfo>,
    builders: BTreeMap<String, AgentBuilder>,
    /// Agents of clients that share no components with others.
    own: BTreeMap<String, OwnAgents>,
    /// Limits of clients for a day.
    daily: BTreeMap<String, Daily>,
    ledger: Arc<Ledger>,
    audit: Audit,
    known: Arc<BTreeMap<String, Known>>,
    store: Arc<SqliteSessions>,
    environment: Environment,
    tools: Value,
    logs: Mutex<Option<Logs>>,
    servers: Servers,
    held: Arc<Held>,
    scratches: ScratchDirectories,
}

impl AgentHost {
    pub(super) fn new(
        setup: AgentSetup,
        (own, daily): (Vec<(String, OwnAgents)>, BTreeMap<String, Daily>),
        (settings, is_locked): (&Settings, bool),
        store: Arc<SqliteSessions>,
        environment: &Environment,
    ) -> Result<Arc<Self>, Failure> {
        let mut tools = describe::tools(&setup, settings, is_locked);
        let info = |id: &str, description: &str, builder: &AgentBuilder| {
            let provider = builder.provider_info();
            AgentInfo {
                id: id.to_owned(),
                description: description.to_owned(),
                provider: provider.provider.clone(),
                model: provider.model.clone(),
                is_stand_in: provider.provider == "offline",
            }
        };
        let mut infos = vec![info(MAIN, "", &setup.builder)];
        let mut builders = BTreeMap::from([(MAIN.to_owned(), setup.builder)]);
        for agent in setup.subagents {
            if agent.name != MAIN {
                infos.push(info(&agent.name, &agent.description, &agent.builder));
                builders.insert(agent.name, agent.builder);
            }
        }
        describe::add_agents(&mut tools, &builders);
        Ok(Arc::new(Self {
            infos,
            builders,
            own: own.into_iter().collect(),
            daily,
            ledger: Arc::new(Ledger::open(environment)?),
            audit: Audit::new(environment),
            known: setup.known,
            store,
            environment: environment.clone(),
            tools,
            logs: Mutex::new(setup.logs),
            servers: setup.servers,
            held: Arc::default(),
            scratches: ScratchDirectories::of(settings, environment)?,
        }))
    }

    /// Ends the MCP servers of the agents.
    pub(super) async fn end(&self) {
        let own = self.own.values().map(|own| &own.servers);
        join_all(own.chain([&self.servers]).map(Servers::stop)).await;
        end_all_processes();
    }

    fn logs(&self) -> MutexGuard<'_, Option<Logs>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn builder(&self, client: &str, agent: &str) -> Result<AgentBuilder, Refusal> {
        let own = self.own.get(client).map(|own| &own.builders);
        let builder = own.unwrap_or(&self.builders).get(agent).cloned();
        let builder = builder.ok_or_else(|| Refusal::Invalid("there is no such agent".into()))?;
        Ok(builder.store(self.store.clone()))
    }

    /// Works with the scratch directories on a thread that may wait for the disk.
    fn with_scratches<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ScratchDirectories) -> Result<T, Refusal> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, Refusal>> {
        let scratches = self.scratches.clone();
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || work(&scratches)).await;
            done.unwrap_or_else(|_| Err(Refusal::Failed("the scratch directory cannot be used".into())))
        })
    }

    fn agent(&self, agent: &str) -> Result<Agent, Refusal> {
        let built = self.builder("", agent)?.build();
        built.map_err(|error| Refusal::Failed(error.to_string()))
    }

    async fn prepare(&self, request: TurnRequest) -> Result<PreparedTurn, Refusal> {
        let daily = self.daily.get(&request.client).copied().unwrap_or_default();
        let reserved = self.ledger.reserve(&request.client, daily, ledger::now())?;
        let mut builder = self.builder(&request.client, &request.agent)?;
        let patterns = request.answer.as_ref().map(PatternTotal::of);
        if let Some(schema) = request.answer {
            builder = builder.answer_schema(schema);
        }
        if !request.instructions.is_empty() {
            builder = builder.further_instructions(&request.instructions);
        }
        let mut tools =
            ClientTools::read(request.client_tools, patterns.unwrap_or_default(), &builder).await?;
        let file = saved_approvals::file(&self.environment);
        let saved = file.map(|file| saved_approvals::read(&file).unwrap_or_default());
        let is_stored = matches!(request.keep, Keep::Stored);
        if !is_stored {
            builder = builder.without_store();
        }
        let approver = WebApprover {
            asker: request.asker,
            tools: tools.clone(),
            known: self.known.clone(),
            saved: saved.unwrap_or_default(),
            base: self.environment.cwd.to_str().map(str::to_owned),
        };
        let with = |tools: &ClientTools| {
            let approver = WebApprover {
                tools: tools.clone(),
                ..approver.clone()
            };
            let built = tools.offer(builder.clone()).approver(Arc::new(approver)).build();
            built.map_err(|error| Refusal::Invalid(error.to_string()))
        };
        let mut agent = with(&tools)?;
        let (mut session, mark) = match request.keep {
            Keep::New(messages) => {
                let state = LoopState::with_messages(request.session, messages);
                (agent.session_from(state), None)
            }
            Keep::Paused => {
                let mut session = self.held.take(&request.session).ok_or(Refusal::NotFound)?;
                session.switch_to(&agent);
                (session, None)
            }
            Keep::Copied(from) => {
                let copied = self.agent(&request.agent)?.load(&from).await.map_err(refused)?;
                let mut state = copied.state().clone();
                state.session = request.session;
                (agent.session_from(state), None)
            }
            Keep::Stored => {
                let mark = match in_use::take(&request.session, &self.environment) {
                    Ok(Ok(mark)) => mark,
                    Ok(Err(_)) => return Err(Refusal::InUse),
                    Err(failure) => return Err(Refusal::Failed(failure.to_string())),
                };
                let session = agent.load(&request.session).await.map_err(refused)?;
                (session, Some(mark))
            }
        };
        if !request.results.is_empty() {
            // A request with results need not repeat the tools.
            if tools.add_called(&session, &builder)? {
                agent = with(&tools)?;
                session.switch_to(&agent);
            }
            tools.resolve(&session, &request.results)?;
        }
        let start = turn::start(request.start)?;
        match (&start, session.is_open()) {
            (toolcell_agent::TurnStart::Resume | toolcell_agent::TurnStart::Abandon, false) => {
                return Err(Refusal::NoTurn("no turn of the session is open".into()));
            }
            (toolcell_agent::TurnStart::Resume, true)
                if request.results.is_empty() && turn::waits_for_client(&session) =>
            {
                return Err(Refusal::WaitsForClient);
            }
            (toolcell_agent::TurnStart::Resume | toolcell_agent::TurnStart::Abandon, true) => {}
            (_, true) => return Err(Refusal::TurnOpen),
            (_, false) => {}
        }
        let events = match is_stored {
            true => self.store.info(session.id()).await.map_err(refused)?.events,
            false => 0,
        };
        let log = match self.logs().as_mut() {
            Some(logs) => Some(
                logs.of(session.id())
                    .map_err(|f| Refusal::Failed(f.to_string()))?,
            ),
            None => None,
        };
        let unsaved = (!is_stored).then(|| Unsaved {
            held: self.held.clone(),
            store: self.store.clone(),
            agent: request.agent.clone(),
            client: request.client.clone(),
        });
        let meter = Meter::new(
            self.ledger.clone(),
            reserved,
            daily,
            agent.policy().budget.prices,
            &session,
        );
        let message = match &start {
            toolcell_agent::TurnStart::Message(message) => Some(message),
            _ => None,
        };
        let messages = session.messages().iter().map(AsRef::as_ref);
        let calls = session.calls();
        Ok(PreparedTurn {
            events,
            cancel_call: Arc::new(move |id| calls.cancel(id)),
            bytes: size(messages.chain(message)),
            run: Box::new(move |sink, cancel| {
                Box::pin(turn::run(
                    session,
                    start,
                    (sink, log),
                    (cancel, meter),
                    tools,
                    unsaved,
                    mark,
                ))
            }),
        })
    }
}

fn refused(error: StoreError) -> Refusal {
    match error {
        StoreError::NotFound { .. } => Refusal::NotFound,
        StoreError::InUse { .. } => Refusal::InUse,
        _ => Refusal::Failed("the sessions cannot be read or written".into()),
    }
}

impl Host for AgentHost {
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn agents(&self) -> &[AgentInfo] {
        &self.infos
    }

    fn store(&self) -> Arc<dyn SessionStore> {
        self.store.clone()
    }

    fn holds(&self, session: &str) -> bool {
        self.held.has(session)
    }

    fn begin(&self, request: TurnRequest) -> BoxFuture<'_, Result<PreparedTurn, Refusal>> {
        Box::pin(self.prepare(request))
    }

    fn undo<'a>(&'a self, session: &'a str, agent: &'a str) -> BoxFuture<'a, Result<usize, Refusal>> {
        Box::pin(async move {
            let _mark = match in_use::take(session, &self.environment) {
                Ok(Ok(mark)) => mark,
                Ok(Err(_)) => return Err(Refusal::InUse),
                Err(failure) => return Err(Refusal::Failed(failure.to_string())),
            };
            let mut session = self.agent(agent)?.load(session).await.map_err(refused)?;
            if session.is_open() {
                return Err(Refusal::TurnOpen);
            }
            let undone = session.undo().await;
            undone.map_err(|error| Refusal::NoTurn(error.to_string()))
        })
    }

    fn delete<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let _mark = match in_use::take(session, &self.environment) {
                Ok(Ok(mark)) => mark,
                Ok(Err(_)) => return Err(Refusal::InUse),
                Err(failure) => return Err(Refusal::Failed(failure.to_string())),
            };
            self.store.delete(session).await.map_err(refused)
        })
    }

    fn check_name(&self, name: &str, sessions: &[SessionInfo]) -> Result<(), String> {
        check_name(name, sessions).map_err(|failure| failure.to_string())
    }

    fn is_elsewhere(&self, session: &str) -> bool {
        matches!(in_use::take(session, &self.environment), Ok(Err(_)))
    }

    fn question(&self, request: &ApprovalRequest) -> QuestionText {
        describe::question_text(request, self.known.get(&request.tool))
    }

    fn candidates<'a>(&'a self, words: &'a [String]) -> BoxFuture<'a, Option<HashSet<String>>> {
        Box::pin(async move { self.store.candidates(words).await.ok() })
    }

    fn search<'a>(&'a self, session: &'a str, words: &'a [String]) -> BoxFuture<'a, Option<Vec<Found>>> {
        let words: Vec<String> = words.iter().map(|word| without_case(word)).collect();
        Box::pin(async move {
            let found = self
                .store
                .search(session, MAX_MATCHES, move |event| matching(event, &words));
            let found = found.await.ok()?.found;
            let found: Vec<Found> = found
                .into_iter()
                .map(|found| Found {
                    role: found.role.to_owned(),
                    text: found.text,
                })
                .collect();
            (!found.is_empty()).then_some(found)
        })
    }

    fn budget<'a>(&'a self, session: &'a str, agent: &'a str) -> BoxFuture<'a, Value> {
        Box::pin(async move {
            let Ok(agent) = self.agent(agent) else {
                return json!({});
            };
            let Ok(session) = agent.load(session).await else {
                return json!({});
            };
            let (spent, limits) = (session.state().spent(), agent.policy().budget.clone());
            let usage = spent.all_usage();
            let (cost, is_partial) = spent.cost_since(&Spent::default(), limits.prices.as_ref());
            let row = |used: Option<u64>, limit: Option<u64>| {
                let mut row = json!({});
                if let Some(used) = used {
                    row["used"] = json!(used);
                }
                if let Some(limit) = limit {
                    row["limit"] = json!(limit);
                }
                row
            };
            let mut tokens = row(Some(usage.total()), limits.tokens);
            let mut cost = row(cost, limits.cost_micros);
            if usage.estimated {
                tokens["estimated"] = json!(true);
                cost["estimated"] = json!(true);
            }
            if usage.unpriced || is_partial {
                cost["unpriced"] = json!(true);
            }
            let mut all = json!({"budget": {
                "tokens": tokens,
                "calls": row(Some(spent.calls), limits.calls),
                "wall_ms": row(Some(spent.wall_ms), limits.wall_ms),
                "cost_micros": cost,
            }});
            if let Some(plan) = &session.state().plan {
                all["plan"] = json!(plan);
            }
            all
        })
    }

    fn tools(&self) -> Value {
        self.tools.clone()
    }

    fn scratches(&self) -> BoxFuture<'_, Result<Value, Refusal>> {
        self.with_scratches(|scratches| Ok(scratches.list()))
    }

    fn scratch<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Value>, Refusal>> {
        let name = name.to_owned();
        self.with_scratches(move |scratches| scratches.show(&name))
    }

    fn decide_scratch<'a>(
        &'a self,
        name: &'a str,
        decision: ScratchDecision,
        files: Option<Vec<String>>,
    ) -> BoxFuture<'a, Result<Option<Value>, Refusal>> {
        let name = name.to_owned();
        self.with_scratches(move |scratches| scratches.decide(&name, decision, files))
    }

    fn audit(&self, line: &AuditLine) {
        self.audit.write(line);
    }

    fn usage<'a>(&'a self, owner: &'a str, days: u64) -> BoxFuture<'a, Result<Value, String>> {
        Box::pin(async move {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now = u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(0);
            let first = (now / DAY_MS).saturating_sub(days.saturating_sub(1)) * DAY_MS;
            let found = self.store.daily_use(first).await;
            let found = found.map_err(|_| "the sessions cannot be read".to_owned())?;
            let found = found
                .iter()
                .filter(|day| day.owner.as_deref().unwrap_or_default() == owner);
            let rows = found.map(|day| {
                let mut row = json!({
                    "day": date(day.day),
                    "turns": day.turns,
                    "failed_turns": day.failed_turns,
                    "usage": day.usage,
                    "calls": day.calls,
                    "failed_calls": day.failed_calls,
                    "denials": day.denials,
                });
                if let Some(agent) = &day.agent {
                    row["agent"] = json!(agent);
                }
                if let Some(cost) = day.cost_micros {
                    row["cost_micros"] = json!(cost);
                }
                if let Some((median, high)) = day.call_us {
                    row["p50_us"] = json!(median);
                    row["p95_us"] = json!(high);
                }
                row
            });
            Ok(json!({ "days": rows.collect::<Vec<_>>() }))
        })
    }
}

/// Returns a day as `2026-11-23`.
fn date(day: u64) -> String {
    let seconds = i64::try_from(day.saturating_mul(DAY_MS / 1_000)).unwrap_or(0);
    let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    time.strftime("%Y-%m-%d").to_string()
}

/// Builds the message of a text and files.
pub(super) fn message(text: String, files: Vec<toolcell_serve::Attachment>) -> Result<Message, Refusal> {
    let mut content = vec![toolcell_core::Content::text(text)];
    for file in files {
        let (_, parts) = attachment(&file.name, file.data)
            .map_err(|why| Refusal::Invalid(format!("an attachment cannot be sent: {}", why.plain())))?;
        content.extend(parts);
    }
    Ok(Message::User { content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates_of_utc() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(20_780), "2026-11-23");
    }

    #[test]
    fn attachment_of_unknown_kind_is_refused() {
        let file = |data: &[u8]| toolcell_serve::Attachment {
            name: "a".into(),
            data: data.to_vec(),
        };
        let Message::User { content } = message("look".into(), vec![file(b"\x89PNG\r\n\x1a\n")]).unwrap()
        else {
            panic!("a message of the user");
        };
        assert_eq!(content.len(), 3);
        assert!(matches!(
            message("x".into(), vec![file(b"\0\xff")]),
            Err(Refusal::Invalid(_))
        ));
    }
}

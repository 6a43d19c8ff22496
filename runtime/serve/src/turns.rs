//! Turns that run, and the sessions in use.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::store::SessionInfo;
use toolcell_core::{ApprovalCause, Event, EventSink};

use crate::access::Caller;
use crate::answer::Failure;
use crate::clients::{AuditLine, ClientState, Decision};
use crate::host::{Host, Keep, PreparedTurn, Refusal, Start, TurnEnd, TurnRequest};
use crate::live::{Live, Reserved, is_failure};
use crate::metrics::{Metrics, TurnInProgress};
use crate::room::{MAX_CLIENT_MESSAGES, MAX_MESSAGES, Room, Taken};

/// Maximum number of turns that run at a time. Beyond it the status is 429.
pub const MAX_TURNS: usize = 1_024;

/// Maximum number of sessions that are kept only because a user allowed a tool in them.
const MAX_ALLOWED: usize = 1_024;

/// Maximum time for which a new turn waits for what follows the end of the last one, such as hooks.
const MAX_FINISHING: Duration = Duration::from_secs(30);

/// Time after which a turn whose messages had no room may have some, in seconds: a turn takes some.
const RETRY: u64 = 5;

/// Number of entries at the end of a journal that tell whether its last turn is over: hooks add some after its end.
const TAIL: u64 = 16;

/// Number of entries at the end of the journal of an open turn that tell for what it waits.
const OPEN_TAIL: u64 = 256;

/// Tasks whose end is awaited.
struct Tasks {
    places: Arc<Semaphore>,
    is_closed: AtomicBool,
}

/// Number of places of tasks, more than can begin.
const ALL: u32 = 1 << 20;

impl Default for Tasks {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(ALL as usize)),
            is_closed: AtomicBool::new(false),
        }
    }
}

impl Tasks {
    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let place = self.places.clone().try_acquire_owned();
        tokio::spawn(async move {
            let _place = place.ok()?;
            Some(work.await)
        })
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Waits until all have ended.
    async fn ended(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let _ = self.places.acquire_many(ALL).await;
    }
}

/// Turns and sessions in use.
pub(crate) struct Turns {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) metrics: Arc<Metrics>,
    live: Mutex<HashMap<String, Arc<Live>>>,
    places: Arc<Semaphore>,
    /// Room for the messages of all turns.
    messages: Room,
    tasks: Tasks,
    /// Cancelled when the server begins to stop: questions are not answered any more.
    stopping: CancellationToken,
    /// Cancelled when running turns are given up.
    stopped: CancellationToken,
}

impl Turns {
    pub(crate) fn new(host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new(Self {
            host,
            metrics: Arc::default(),
            live: Mutex::default(),
            places: Arc::new(Semaphore::new(MAX_TURNS)),
            messages: Room::new(MAX_MESSAGES),
            tasks: Tasks::default(),
            stopping: CancellationToken::new(),
            stopped: CancellationToken::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a session in use, or makes it one.
    pub(crate) fn live(&self, id: &str) -> Arc<Live> {
        let mut live = self.lock();
        if live.len() >= MAX_ALLOWED {
            // Those that only keep an answer of the user end first.
            live.retain(|_, live| Arc::strong_count(live) > 1);
        }
        (live.entry(id.to_owned()))
            .or_insert_with(|| Live::new(id, self.host.clone(), self.stopping.clone()))
            .clone()
    }

    /// Returns a session in use.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Live>> {
        self.lock().get(id).cloned()
    }

    /// Returns all sessions with open questions.
    pub(crate) fn all(&self) -> Vec<(String, Arc<Live>)> {
        (self.lock().iter())
            .map(|(id, live)| (id.clone(), live.clone()))
            .collect()
    }

    /// Forgets a session without a turn, a reader, or a tool that the user allowed. Called with the last use of it.
    pub(crate) fn forget(&self, used: Arc<Live>, id: &str) {
        let mut live = self.lock();
        drop(used);
        let is_unused = (live.get(id))
            .is_some_and(|live| Arc::strong_count(live) == 1 && !live.is_running() && !live.has_allowed());
        if is_unused {
            live.remove(id);
        }
    }

    /// Cancels the turn of a session, marks it as deleted, and forgets it.
    pub(crate) fn removed(&self, id: &str) {
        if let Some(live) = self.lock().remove(id) {
            live.set_deleted();
        }
    }

    /// Takes a place for a turn.
    fn place(&self) -> Result<tokio::sync::OwnedSemaphorePermit, Failure> {
        if self.stopped.is_cancelled() || self.tasks.is_closed() {
            return Err(Failure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "stopping",
                "the server is stopping",
            ));
        }
        let place = self.places.clone().try_acquire_owned();
        place.map_err(|_| {
            let message = format!("{MAX_TURNS} turns are running, which is the maximum; wait for one");
            Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
        })
    }

    /// Notes that a turn is beyond a limit.
    fn noted<T>(
        &self,
        client: &str,
        session: &str,
        agent: &str,
        take: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        take().map_err(|failure| {
            let detail = format!("{agent}: {}", failure.message);
            let line = AuditLine::new(Some(client), Decision::Limit, false, detail);
            self.host.audit(&line.of(session));
            failure.noted()
        })
    }

    /// Notes that a turn did not begin.
    fn refused(&self, client: &str, session: &str, agent: &str, refusal: &Refusal) {
        let decision = match refusal {
            Refusal::UsedUp { .. } => Decision::Limit,
            _ => Decision::Turn,
        };
        let detail = format!("{agent}: {}", Failure::from(refusal.clone()).message);
        let line = AuditLine::new(Some(client), decision, false, detail);
        self.host.audit(&line.of(session));
    }

    /// Starts a turn of a saved session. It goes on when the client leaves.
    pub(crate) async fn start(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        agent: String,
        start: Start,
    ) -> Result<(), Failure> {
        let (client, state) = (caller.owner.clone(), &caller.state);
        let place = self.noted(&client, id, &agent, || Ok((self.place()?, state.turn()?)))?;
        let live = self.live(id);
        let cancel = CancellationToken::new();
        if !reserved(&live, &cancel).await {
            return Err(Failure::turn_running());
        }
        let request = TurnRequest {
            client: client.clone(),
            session: id.to_owned(),
            keep: Keep::Stored,
            agent,
            start,
            instructions: String::new(),
            asker: Some(live.clone()),
            client_tools: Vec::new(),
            results: std::collections::BTreeMap::new(),
            answer: None,
            events: None,
        };
        // The request goes on if the client leaves meanwhile, so that the session is never reserved for nothing.
        let (turns, state) = (self.clone(), caller.state.clone());
        let id = id.to_owned();
        let begun = self.tasks.spawn(async move {
            let agent = request.agent.clone();
            let prepared = turns.host.begin(request).await.map_err(|refusal| {
                turns.refused(&client, &id, &agent, &refusal);
                Failure::from(refusal)
            });
            let prepared = prepared.and_then(|prepared| {
                let room = turns.noted(&client, &id, &agent, || {
                    room(&turns.messages, &state, prepared.bytes)
                })?;
                Ok((prepared, room))
            });
            let (prepared, room) = match prepared {
                Ok(prepared) => prepared,
                Err(failure) => {
                    live.release();
                    turns.forget(live, &id);
                    return Err(failure);
                }
            };
            let line = AuditLine::new(Some(&client), Decision::Turn, true, agent.as_str());
            turns.host.audit(&line.of(&id));
            live.begin(prepared.events, prepared.cancel_call.clone());
            let next = turns.clone();
            turns.tasks.spawn(async move {
                let sink: Arc<dyn EventSink> = live.clone();
                let counted = next.metrics.turn("api", &agent, BTreeSet::new());
                let end = next.run(prepared, sink, cancel, counted).await;
                next.ended_by_limit(&client, &id, &agent, &end);
                live.end(&end);
                drop((place, room));
                next.forget(live, &id);
            });
            Ok(())
        });
        match begun.await {
            Ok(Some(begun)) => begun,
            Ok(None) | Err(_) => Err(Failure::failed("the turn could not be started")),
        }
    }

    /// Runs a turn whose events a client waits for; it ends with the future. `body` is the room of the body of the request, which is
    /// held until the messages have theirs.
    pub(crate) async fn run_for(
        &self,
        state: &ClientState,
        (request, body): (TurnRequest, Option<OwnedSemaphorePermit>),
        sink: Arc<dyn EventSink>,
        cancel: CancellationToken,
    ) -> Result<TurnEnd, Failure> {
        let (client, id, agent) = (
            request.client.clone(),
            request.session.clone(),
            request.agent.clone(),
        );
        let _place = self.noted(&client, &id, &agent, || Ok((self.place()?, state.turn()?)))?;
        let expected = request.events;
        let names = request.client_tools.iter().map(|tool| tool.name.clone());
        let names: BTreeSet<String> = names.collect();
        let begun = self.host.begin(request).await.and_then(|prepared| {
            match expected.is_some_and(|events| events != prepared.events) {
                true => Err(Refusal::Conflict(
                    "the session went on meanwhile; try again".into(),
                )),
                false => Ok(prepared),
            }
        });
        let prepared = begun.inspect_err(|refusal| self.refused(&client, &id, &agent, refusal))?;
        let _room = self.noted(&client, &id, &agent, || {
            room(&self.messages, state, prepared.bytes)
        })?;
        drop(body);
        let line = AuditLine::new(Some(&client), Decision::Turn, true, agent.as_str());
        self.host.audit(&line.of(&id));
        let counted = self.metrics.turn("v1", &agent, names);
        let end = self.run(prepared, sink, cancel, counted).await;
        self.ended_by_limit(&client, &id, &agent, &end);
        Ok(end)
    }

    /// Notes that a limit of the client ended a turn.
    fn ended_by_limit(&self, client: &str, session: &str, agent: &str, end: &TurnEnd) {
        if let Some(limit) = &end.limit {
            self.refused(client, session, agent, limit);
        }
    }

    async fn run(
        &self,
        prepared: PreparedTurn,
        sink: Arc<dyn EventSink>,
        cancel: CancellationToken,
        counted: TurnInProgress,
    ) -> TurnEnd {
        let sink = counted.counting(sink);
        tokio::select! {
            end = (prepared.run)(sink, cancel) => {
                counted.ended(&end);
                end
            }
            // The turn stays open, and can be resumed.
            () = self.stopped.cancelled() => TurnEnd {
                failure: Some("the server stopped".into()),
                ..TurnEnd::default()
            },
        }
    }

    /// Spawns work that ends with the server.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Runs work to its end, even if nobody waits for it any more.
    pub(crate) async fn spawned<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        match self.tasks.spawn(work).await {
            Ok(Some(done)) => done,
            Ok(None) | Err(_) => Err(Failure::failed("the turn could not be started")),
        }
    }

    /// Pauses the turns that wait for an answer of the user, and those that would ask from now on.
    pub(crate) fn pause_questions(&self) {
        self.stopping.cancel();
    }

    /// Interrupts the turns that run.
    pub(crate) fn interrupt(&self) {
        self.stopped.cancel();
    }

    /// Waits until all turns have ended. No further ones begin.
    pub(crate) async fn ended(&self) {
        self.tasks.ended().await;
    }

    /// State of a session.
    pub(crate) async fn state_of(&self, info: &SessionInfo) -> &'static str {
        if let Some(state) = self.find(&info.id).and_then(|live| live.running_state()) {
            return state;
        }
        if info.events == 0 {
            return "new";
        }
        let after = info.events.saturating_sub(TAIL);
        let store = self.host.store();
        let tail = store.entries(&info.id, after, usize::try_from(TAIL).unwrap_or(0), 16 << 20);
        let tail = tail.await.unwrap_or_default();
        for entry in tail.iter().rev() {
            match serde_json::from_str::<Event>(&entry.json) {
                Ok(Event::TurnFinished { outcome, .. }) => return of_outcome(&outcome),
                Ok(Event::TurnUndone { .. } | Event::Imported { .. }) => return "idle",
                Ok(Event::Notice { .. } | Event::HookFinished { .. }) => {}
                _ => break,
            }
        }
        if self.host.is_elsewhere(&info.id) {
            return "elsewhere";
        }
        let after = info.events.saturating_sub(OPEN_TAIL);
        let most = usize::try_from(OPEN_TAIL).unwrap_or(0);
        let tail = store
            .entries(&info.id, after, most, 16 << 20)
            .await
            .unwrap_or_default();
        let events = tail
            .iter()
            .filter_map(|entry| serde_json::from_str(&entry.json).ok());
        match waits_for_client(events) {
            true => "client",
            false => "open",
        }
    }
}

/// True if the open turn at the end of a journal waits for calls that its client runs, and for nothing else.
fn waits_for_client(events: impl Iterator<Item = Event>) -> bool {
    let (mut of_client, mut others) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        match event {
            Event::TurnStarted { .. } => {
                of_client.clear();
                others.clear();
            }
            Event::ApprovalRequested {
                id,
                cause: ApprovalCause::Client,
                ..
            } => drop(of_client.insert(id)),
            Event::ApprovalRequested { id, .. } => drop(others.insert(id)),
            Event::CallStarted { id, .. } => {
                of_client.remove(&id);
                others.insert(id);
            }
            Event::CallFinished { id, .. } => {
                of_client.remove(&id);
                others.remove(&id);
            }
            // No call has an empty identifier.
            Event::StepStarted { .. } => drop(others.insert(String::new())),
            Event::StepFinished { .. } | Event::StepInterrupted { .. } => drop(others.remove("")),
            _ => {}
        }
    }
    !of_client.is_empty() && others.is_empty()
}

/// Reserves a session for a turn; false if one runs. A client that has read the end of a turn may begin the next one: what
/// follows an end is awaited.
async fn reserved(live: &Live, cancel: &CancellationToken) -> bool {
    let mut changed = live.watch();
    let waited = tokio::time::timeout(MAX_FINISHING, async {
        loop {
            changed.borrow_and_update();
            match live.reserve(cancel) {
                Reserved::Yes => return true,
                Reserved::Running => return false,
                // The sender lives as long as the session in use.
                Reserved::Finishing => drop(changed.changed().await),
            }
        }
    });
    waited.await.unwrap_or(false)
}

/// Takes room for the messages of a turn, which it has until it ends.
fn room(all: &Room, client: &ClientState, bytes: usize) -> Result<[Taken; 2], Failure> {
    let own = client.messages.try_take(bytes).ok_or_else(|| {
        let message = format!(
            "the messages of your turns that run would have more than {MAX_CLIENT_MESSAGES} bytes; wait for the end of one"
        );
        Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message).retry_after(RETRY)
    })?;
    let all = all.try_take(bytes).ok_or_else(|| {
        let message = format!(
            "the messages of all turns that run would have more than {MAX_MESSAGES} bytes; try again"
        );
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_messages", message).retry_after(RETRY)
    })?;
    Ok([own, all])
}

fn of_outcome(outcome: &TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Asked { .. } => "asked",
        outcome if is_failure(outcome) => "failed",
        _ => "idle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::ClientLimits;

    #[test]
    fn messages_of_running_turns_have_a_total_size() {
        let all = Room::new(MAX_MESSAGES);
        let clients = [(); 3].map(|()| ClientState::new(ClientLimits::default()));
        let [one, other, third] = &clients;
        let half = MAX_CLIENT_MESSAGES / 2;
        let first = room(&all, one, half).unwrap();
        let second = room(&all, one, half).unwrap();
        let refused = |client: &ClientState| {
            let failure = room(&all, client, 1).unwrap_err();
            (failure.status, failure.retry_after)
        };
        assert_eq!(refused(one), (StatusCode::TOO_MANY_REQUESTS, Some(RETRY)));
        // What is larger than all of it runs alone.
        let large = room(&all, other, MAX_CLIENT_MESSAGES).unwrap();
        assert_eq!(refused(third), (StatusCode::SERVICE_UNAVAILABLE, Some(RETRY)));
        drop(first);
        assert!(room(&all, third, half).is_ok());
        assert!(room(&all, one, half).is_ok());
        drop((second, large));
        assert!(room(&all, third, MAX_MESSAGES).is_ok());
        // A refused turn takes nothing.
        assert!(room(&all, other, MAX_CLIENT_MESSAGES).is_ok());
    }
}

//! Sessions with a turn or a reader: what is not in the journal yet, open questions, and the state.
//!
//! Stored events are read from the journal by each reader at its own pace, and the text of a step is kept once, so that a
//! reader which does not read holds nothing, and none misses or repeats an event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::{ApprovalCause, ApprovalRequest, BoxFuture, Decision, Event, EventSink};

use crate::host::{Asker, CancelCall, Host, TextPart, TurnEnd, Words};

/// Maximum number of progress reports kept of calls that run.
const MAX_PROGRESS: usize = 256;

/// Session in use.
pub(crate) struct Live {
    id: String,
    host: Arc<dyn Host>,
    /// Cancelled when the server begins to stop.
    stopping: CancellationToken,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    /// Number of events in the journal, as far as known.
    length: u64,
    step: Step,
    progress: BTreeMap<String, (u64, Value)>,
    questions: Vec<Open>,
    /// Tools that run without a question in this session.
    allowed: BTreeSet<String>,
    /// Number of changes of what a `state` event tells.
    version: u64,
    /// Number of changes in all.
    changes: u64,
    /// Reason for which the last turn could not go on.
    failure: Option<String>,
    is_deleted: bool,
}

struct Running {
    cancel: CancellationToken,
    /// Number of the event with which the turn began, once it is known.
    seq: Option<u64>,
    /// The end of the turn is stored; what follows it, such as hooks, still runs.
    is_finished: bool,
    /// Cancels one of its calls, once it has begun.
    cancel_call: Option<CancelCall>,
}

/// Answer to the wish to begin a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reserved {
    Yes,
    /// A turn runs.
    Running,
    /// A turn has finished, and what follows its end still runs.
    Finishing,
}

/// Text of the step in progress.
#[derive(Default)]
struct Step {
    number: u64,
    text: String,
    reasoning: String,
    /// The last retry of the request.
    retry: Option<Value>,
}

impl State {
    /// Takes an open question, its decision, and others that the answer covers; `None` if it takes no such answer.
    ///
    /// # Errors
    /// It is not open, or its turn was cancelled, which no answer undoes.
    fn take_question(
        &mut self,
        id: &str,
        choice: &str,
        words: Option<&str>,
    ) -> Result<Option<(Open, Decision, Vec<Open>)>, ()> {
        let running = self.running.as_ref();
        if running.is_some_and(|running| running.cancel.is_cancelled()) {
            return Err(());
        }
        let at = self.questions.iter().position(|open| open.id == id).ok_or(())?;
        let decision = match choice {
            "allow" => Decision::Approve,
            "allow_like" if self.questions[at].takes_all => {
                let tool = self.questions[at].tool.clone();
                self.allowed.insert(tool);
                Decision::Approve
            }
            "refuse" => Decision::Deny {
                reason: words.map(|words| format!("the user says: {words}")),
            },
            "later" => Decision::Later,
            _ => return Ok(None),
        };
        let open = self.questions.remove(at);
        // Other open questions that the answer covers are answered, too.
        let covered = match choice {
            "allow_like" => (self.questions)
                .extract_if(.., |other| other.takes_all && other.tool == open.tool)
                .collect(),
            _ => Vec::new(),
        };
        Ok(Some((open, decision, covered)))
    }
}

struct Open {
    shown: Value,
    id: String,
    tool: String,
    takes_all: bool,
    reply: oneshot::Sender<Decision>,
}

/// Place of a reader in what is not stored.
#[derive(Clone, Default)]
pub(crate) struct Cursor {
    step: u64,
    text: usize,
    reasoning: usize,
    had_retry: bool,
    progress: u64,
    version: Option<u64>,
}

/// News for a reader.
pub(crate) struct News {
    /// Number of events in the journal.
    pub(crate) length: u64,
    /// Events that are not stored, as JSON. For a reader that has all stored ones.
    pub(crate) events: Vec<Value>,
    pub(crate) is_running: bool,
    pub(crate) is_deleted: bool,
}

impl Live {
    pub(crate) fn new(id: &str, host: Arc<dyn Host>, stopping: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            id: id.to_owned(),
            host,
            stopping,
            state: Mutex::default(),
            changed: watch::Sender::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        state.changes += 1;
        let changes = state.changes;
        drop(state);
        self.changed.send_replace(changes);
        result
    }

    /// Tells of changes.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Reserves the session for a turn, unless one runs.
    pub(crate) fn reserve(&self, cancel: &CancellationToken) -> Reserved {
        let mut state = self.lock();
        match &state.running {
            None => {}
            Some(running) if running.is_finished => return Reserved::Finishing,
            Some(_) => return Reserved::Running,
        }
        state.running = Some(Running {
            cancel: cancel.clone(),
            seq: None,
            is_finished: false,
            cancel_call: None,
        });
        state.failure = None;
        Reserved::Yes
    }

    /// Releases a session whose turn did not begin.
    pub(crate) fn release(&self) {
        self.change(|state| {
            state.running = None;
            state.version += 1;
        });
    }

    /// Notes that a turn begins after some events.
    pub(crate) fn begin(&self, length: u64, cancel_call: CancelCall) {
        self.change(|state| {
            state.length = length;
            state.step = Step {
                number: state.step.number + 1,
                ..Step::default()
            };
            if let Some(running) = &mut state.running {
                running.seq = Some(length + 1);
                running.cancel_call = Some(cancel_call);
            }
            state.version += 1;
        });
    }

    /// Notes the end of a turn.
    pub(crate) fn end(&self, end: &TurnEnd) {
        self.change(|state| {
            state.running = None;
            state.questions.clear();
            state.progress.clear();
            state.step = Step {
                number: state.step.number + 1,
                ..Step::default()
            };
            state.failure.clone_from(&end.failure);
            state.version += 1;
        });
    }

    /// Notes the number of events, which another process may have added to.
    pub(crate) fn set_length(&self, length: u64) {
        if self.lock().length != length {
            self.change(|state| {
                if state.running.is_none() {
                    state.length = length;
                    state.version += 1;
                }
            });
        }
    }

    pub(crate) fn set_deleted(&self) {
        self.change(|state| state.is_deleted = true);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.lock().running.is_some()
    }

    /// True if tools run without a question, which is known here only.
    pub(crate) fn has_allowed(&self) -> bool {
        !self.lock().allowed.is_empty()
    }

    /// Cancels a call of the turn; false if it does not run.
    pub(crate) fn cancel_call(&self, id: &str) -> bool {
        let running = |state: &State| state.running.as_ref()?.cancel_call.clone();
        let cancel = running(&self.lock());
        cancel.is_some_and(|cancel| cancel(id))
    }

    /// Cancels the turn; false if none runs.
    pub(crate) fn cancel(&self) -> bool {
        match &self.lock().running {
            Some(running) => {
                running.cancel.cancel();
                true
            }
            None => false,
        }
    }

    /// State of a session with a turn in this server.
    pub(crate) fn running_state(&self) -> Option<&'static str> {
        let state = self.lock();
        state.running.as_ref().filter(|running| !running.is_finished)?;
        Some(match state.questions.is_empty() {
            true => "running",
            false => "waiting",
        })
    }

    pub(crate) fn questions(&self) -> Vec<Value> {
        self.lock()
            .questions
            .iter()
            .map(|open| open.shown.clone())
            .collect()
    }

    /// Returns what a reader does not know, which has the first `sent` events; what is not stored only if it has all of them. The
    /// state of a session that runs nowhere in this server is left out.
    pub(crate) fn news(&self, cursor: &mut Cursor, sent: u64) -> (News, Option<Value>) {
        let state = self.lock();
        let mut news = News {
            length: state.length,
            events: Vec::new(),
            is_running: state.running.is_some(),
            is_deleted: state.is_deleted,
        };
        if sent < state.length {
            return (news, None);
        }
        if cursor.step != state.step.number {
            *cursor = Cursor {
                step: state.step.number,
                progress: cursor.progress,
                version: cursor.version,
                ..Cursor::default()
            };
        }
        let mut delta = |kind: &str, all: &str, known: &mut usize| {
            if let Some(text) = all.get(*known..).filter(|text| !text.is_empty()) {
                news.events.push(json!({"event": {"type": kind, "text": text}}));
                *known = all.len();
            }
        };
        delta("reasoning_delta", &state.step.reasoning, &mut cursor.reasoning);
        delta("text_delta", &state.step.text, &mut cursor.text);
        if let Some(retry) = state.step.retry.as_ref().filter(|_| !cursor.had_retry) {
            news.events.push(json!({ "event": retry }));
            cursor.had_retry = true;
        }
        let before = cursor.progress;
        for (version, progress) in state.progress.values().filter(|(version, _)| *version > before) {
            news.events.push(json!({ "event": progress }));
            cursor.progress = cursor.progress.max(*version);
        }
        if cursor.version == Some(state.version) {
            return (news, None);
        }
        cursor.version = Some(state.version);
        let questions: Vec<&Value> = state.questions.iter().map(|open| &open.shown).collect();
        let mut told = json!({ "questions": questions });
        if let Some(running) = state.running.as_ref().filter(|running| !running.is_finished) {
            told["state"] = json!(if questions.is_empty() {
                "running"
            } else {
                "waiting"
            });
            if let Some(seq) = running.seq {
                told["turn"] = json!({ "seq": seq });
            }
        }
        if let Some(failure) = &state.failure {
            told["failure"] = json!(failure);
        }
        (news, Some(told))
    }

    /// Answers a question, and returns its tool; `None` if it takes no such answer.
    ///
    /// # Errors
    /// It is not open.
    pub(crate) fn answer(&self, id: &str, choice: &str, words: Option<&str>) -> Result<Option<String>, ()> {
        let mut state = self.lock();
        let Some((open, decision, covered)) = state.take_question(id, choice, words)? else {
            return Ok(None);
        };
        state.version += 1;
        state.changes += 1;
        let changes = state.changes;
        drop(state);
        self.changed.send_replace(changes);
        for other in covered {
            // One that is not awaited any more has no answer.
            let _ = other.reply.send(Decision::Approve);
        }
        open.reply.send(decision).map(|()| Some(open.tool)).map_err(drop)
    }

    fn withdraw(&self, id: &str) {
        self.change(|state| {
            state.questions.retain(|open| open.id != id);
            state.version += 1;
        });
    }
}

/// Removes a question that is not awaited any more.
struct Withdrawn<'a>(&'a Live, String);

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        self.0.withdraw(&self.1);
    }
}

impl Asker for Live {
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Decision> {
        Box::pin(async move {
            let takes_all = request.cause == ApprovalCause::Rule;
            if takes_all && self.lock().allowed.contains(&request.tool) {
                return Decision::Approve;
            }
            let id = uuid::Uuid::new_v4().simple().to_string();
            let shown = shown(&id, &self.id, &request, &*self.host);
            let (reply, answer) = oneshot::channel();
            let _withdrawn = Withdrawn(self, id.clone());
            self.change(|state| {
                state.questions.push(Open {
                    shown,
                    id,
                    tool: request.tool,
                    takes_all,
                    reply,
                });
                state.version += 1;
            });
            tokio::select! {
                answer = answer => answer.unwrap_or(Decision::Later),
                // Nobody can answer any more; the turn asks again when it is resumed.
                () = self.stopping.cancelled() => Decision::Later,
            }
        })
    }
}

/// Returns a question as it is told to readers.
fn shown(id: &str, session: &str, request: &ApprovalRequest, host: &dyn Host) -> Value {
    let text = host.question(request);
    let subject = serde_json::to_string_pretty(&request.arguments).unwrap_or_default();
    let own = |text: &str| -> Words { vec![TextPart::Own(text.to_owned())] };
    let choice =
        |id: &str, label: &str, covers: &str| json!({"id": id, "label": label, "covers": own(covers)});
    let mut choices = vec![choice("allow", "allow once", "exactly this call")];
    if request.cause == ApprovalCause::Rule {
        let covers = "this tool with any arguments, in this session, until the server ends";
        choices.push(choice("allow_like", "allow like this", covers));
    }
    choices.push(choice(
        "later",
        "later",
        "the turn pauses, and asks again when it is resumed",
    ));
    choices.push(choice(
        "refuse",
        "refuse",
        "the model is told, with your words if you write some",
    ));
    let facts: Vec<Value> = (text.facts.iter())
        .map(|(words, is_warning)| json!({"text": words, "is_warning": is_warning}))
        .collect();
    json!({
        "id": id,
        "session": session,
        "call": request.id,
        "cause": request.cause,
        "tool": request.tool,
        "component": text.component,
        "title": text.title,
        "length": subject.chars().count(),
        "digest": format!("blake3:{}", blake3::hash(subject.as_bytes()).to_hex()),
        "subject": subject,
        "facts": facts,
        "choices": choices,
        "asked_ms": now_ms(),
    })
}

/// Milliseconds since 1970-01-01 UTC.
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

impl EventSink for Live {
    fn event(&self, event: &Event) {
        self.change(|state| match event {
            Event::TextDelta { text } => state.step.text.push_str(text),
            Event::ReasoningDelta { text } => state.step.reasoning.push_str(text),
            Event::Retry { .. } => state.step.retry = serde_json::to_value(event).ok(),
            Event::CallProgress { id, .. } => {
                if state.progress.len() < MAX_PROGRESS || state.progress.contains_key(id) {
                    let value = serde_json::to_value(event).unwrap_or_default();
                    state.progress.insert(id.clone(), (state.changes + 1, value));
                }
            }
            event if event.is_transient() => {}
            event => {
                state.length += 1;
                match event {
                    Event::StepStarted { .. }
                    | Event::StepFinished { .. }
                    | Event::StepInterrupted { .. }
                    | Event::TurnFinished { .. } => {
                        state.step = Step {
                            number: state.step.number + 1,
                            ..Step::default()
                        };
                    }
                    Event::CallFinished { id, .. } | Event::CallSuspended { id, .. } => {
                        state.progress.remove(id);
                    }
                    _ => {}
                }
                if let (Event::TurnFinished { .. }, Some(running)) = (event, &mut state.running) {
                    running.is_finished = true;
                    state.version += 1;
                }
            }
        });
    }
}

/// True if a turn ended with an error, not with an answer, a question, or by the user.
pub(crate) fn is_failure(outcome: &TurnOutcome) -> bool {
    !matches!(
        outcome,
        TurnOutcome::Completed
            | TurnOutcome::StepLimit { .. }
            | TurnOutcome::AwaitingApproval { .. }
            | TurnOutcome::Asked { .. }
            | TurnOutcome::Cancelled
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_after_a_cancel_is_refused() {
        let cancel = CancellationToken::new();
        let mut state = State {
            running: Some(Running {
                cancel: cancel.clone(),
                seq: None,
                is_finished: false,
                cancel_call: None,
            }),
            ..State::default()
        };
        for id in ["one", "two"] {
            state.questions.push(Open {
                shown: Value::Null,
                id: id.into(),
                tool: "files_write".into(),
                takes_all: true,
                reply: oneshot::channel().0,
            });
        }
        let taken = state.take_question("one", "allow", None).unwrap();
        assert!(matches!(taken, Some((_, Decision::Approve, _))));
        cancel.cancel();
        for choice in ["allow", "allow_like", "later", "refuse"] {
            assert!(state.take_question("two", choice, None).is_err(), "{choice}");
        }
        assert!(state.allowed.is_empty());
    }
}

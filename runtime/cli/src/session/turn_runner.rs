//! Runs turns of a session and shows them.

use tokio_util::sync::CancellationToken;
use toolcell_agent::TurnStart;
use toolcell_agent::{Agent, AgentError, Session, TurnReport};
use toolcell_core::event::{Event, EventSink, TurnOutcome};
use toolcell_core::{Message, StoreError};

use crate::agent::setup::AgentSetup;
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::interrupt::Interrupts;
use crate::ui::render::lines::JsonLines;
use crate::ui::render::turn::TurnView;
use crate::ui::render::{Console, failure};
use crate::ui::terminal::text;

/// Runs turns, one after the other.
pub(crate) struct TurnRunner {
    assembled: AgentSetup,
    console: Console,
    sink: Box<dyn EventSink>,
    /// Cancelled when nobody reads the output any more.
    gone: CancellationToken,
    interrupts: Interrupts,
}

impl TurnRunner {
    /// Shows turns for people, or as JSON lines.
    pub(crate) fn new(assembled: AgentSetup, console: &Console, json: bool) -> Self {
        let gone = CancellationToken::new();
        let sink: Box<dyn EventSink> = if json {
            Box::new(JsonLines { gone: gone.clone() })
        } else {
            Box::new(
                TurnView::new(console.clone(), assembled.hints.clone(), gone.clone())
                    .attended(assembled.is_attended),
            )
        };
        Self {
            assembled,
            console: console.clone(),
            sink,
            gone,
            interrupts: Interrupts::watch(console.clone()),
        }
    }

    /// The agent.
    pub(crate) fn agent(&self) -> &Agent {
        &self.assembled.agent
    }

    /// Runs one turn of a session, and nothing more.
    ///
    /// # Errors
    /// When it did not end with an answer.
    pub(crate) async fn begin(&mut self, mut session: Session, prompt: String) -> Result<Exit, Failure> {
        self.turn(&mut session, Some(prompt)).await
    }

    /// Runs one turn: with a message, or going on with the one that is open.
    ///
    /// # Errors
    /// When it did not end with an answer.
    pub(crate) async fn turn(
        &mut self,
        session: &mut Session,
        message: Option<String>,
    ) -> Result<Exit, Failure> {
        let logs = self.assembled.logs.as_mut();
        let log = logs.map(|logs| logs.of(session.id())).transpose()?;
        let cancel = self.gone.child_token();
        let _interrupts = self.interrupts.cancel_next(cancel.clone());
        let sink = |event: &Event| {
            self.sink.event(event);
            if let Some(log) = &log {
                log.event(event);
            }
        };
        let report = match message {
            Some(message) => session.run(Message::user(message), &sink, cancel).await,
            None => session.run(TurnStart::Resume, &sink, cancel).await,
        };
        if let Some(error) = log.and_then(|log| log.error()) {
            self.console.note(text!("the log is not complete: {}", error));
        }
        if self.gone.is_cancelled() {
            return Ok(Exit::Ok);
        }
        self.ended(session, report)
    }

    /// Tells what tools have changed aside, where they were told to.
    pub(crate) fn tell_changes(&self) {
        for scratch in &self.assembled.scratch {
            if !self.is_gone() {
                scratch.tell(&self.console);
            }
        }
    }

    /// Whether nobody reads the output any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.is_cancelled()
    }

    fn ended(&self, session: &Session, report: Result<TurnReport, AgentError>) -> Result<Exit, Failure> {
        let id = session.id();
        let report = report.map_err(|error| cannot_go_on(id, error))?;
        let mut ended = failure::of_outcome(&report.outcome);
        if let TurnOutcome::Budget { .. } = report.outcome {
            let hint = self.assembled.budget_hints.of(&session.state().spent());
            ended = ended.map_err(|failure| failure.hints(hint));
        }
        if !self.assembled.is_kept {
            return ended;
        }
        match (&report.outcome, ended) {
            (TurnOutcome::Asked { .. }, Ok(exit)) => {
                self.console
                    .note(text!("answer with: toolcell session resume {} \"…\"", id));
                Ok(exit)
            }
            (TurnOutcome::AwaitingApproval { .. }, Err(failure)) => {
                Err(failure.hint(text!("decide with: toolcell session resume {}", id)))
            }
            (_, ended) => ended,
        }
    }
}

/// Refuses a prompt that says nothing.
pub(crate) fn check_prompt(prompt: &str) -> Result<(), Failure> {
    if prompt.trim().is_empty() {
        return Err(
            Failure::new(Exit::Usage, "the prompt is empty").hint("say what to do: toolcell run \"…\"")
        );
    }
    Ok(())
}

fn cannot_go_on(id: &str, error: AgentError) -> Failure {
    if let AgentError::Store { source, .. } = error {
        return match source {
            StoreError::NotFound { .. } => Failure::new(
                Exit::Conflict,
                "the session was deleted elsewhere in the meantime",
            )
            .because(source)
            .hint("begin a new one"),
            source => store_failure(source),
        };
    }
    let hint = match &error {
        AgentError::TurnOpen { .. } => Some(format!("go on with it first: toolcell session resume {id}")),
        AgentError::NoTurn { .. } => Some(format!("say something: toolcell session resume {id} \"…\"")),
        _ => None,
    };
    let exit = match &error {
        AgentError::TurnOpen { .. } | AgentError::NoTurn { .. } => Exit::Usage,
        _ => Exit::Internal,
    };
    Failure::new(exit, text!("the turn of session `{}` could not be run", id))
        .because(error)
        .hints(hint)
}

/// What a person is told when the store refuses.
pub(crate) fn store_failure(error: StoreError) -> Failure {
    let (exit, what, hint) = match &error {
        // Nothing of this turn was kept, and nothing of the other one is lost.
        StoreError::InUse { id } => {
            let id = escape::shell(id);
            let hint = format!(
                "see what it is now: toolcell session show {id}\nthen say it again: toolcell session resume {id} \"…\""
            );
            let what = "the session was continued elsewhere in the meantime";
            (Exit::Conflict, what, Some(hint))
        }
        StoreError::NotFound { .. } => (
            Exit::Usage,
            "the session cannot be used",
            Some("`toolcell session list` shows all".to_owned()),
        ),
        StoreError::Exists { .. } => (Exit::Usage, "the session cannot be used", None),
        _ => (Exit::Internal, "the session cannot be used", None),
    };
    Failure::new(exit, what).because(error).hints(hint)
}

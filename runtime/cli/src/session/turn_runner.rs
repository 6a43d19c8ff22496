//! Runs the turns of a session and renders them.

use toolcell_agent::TurnStart;
use toolcell_agent::{Agent, AgentError, Session, TurnReport};
use toolcell_core::StoreError;
use toolcell_core::event::{Event, EventSink, TurnOutcome};

use crate::agent::setup::AgentSetup;
use crate::databases::Database;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::session::in_use::{self, Mark};
use crate::session::saved_files::SavedFiles;
use crate::ui::escape;
use crate::ui::interrupt::Interrupts;
use crate::ui::render::lines::JsonLines;
use crate::ui::render::output::Output;
use crate::ui::render::turn::TurnView;
use crate::ui::render::{Console, failure};
use crate::ui::terminal::{Text, text};

/// Runs turns one after the other.
pub(crate) struct TurnRunner {
    setup: AgentSetup,
    console: Console,
    sink: Box<dyn EventSink>,
    /// True if turns are rendered as JSON lines.
    json: bool,
    output: Output,
    interrupts: Interrupts,
    /// Writes the files of turns to the directory of `--save`.
    saved: Option<SavedFiles>,
    /// True in a chat, in which the session goes on at the next prompt.
    is_chat: bool,
}

impl TurnRunner {
    /// Creates a runner that renders turns as text, or as JSON lines.
    pub(crate) fn new(setup: AgentSetup, console: &Console, json: bool) -> Self {
        let output = Output::default();
        let sink = sink(&setup, console, &output, json);
        Self {
            setup,
            console: console.clone(),
            sink,
            json,
            output,
            interrupts: Interrupts::watch(console.clone()),
            saved: None,
            is_chat: false,
        }
    }

    /// Sets where the files of turns are saved.
    pub(crate) fn saving(mut self, saved: Option<SavedFiles>) -> Self {
        self.saved = saved;
        self
    }

    /// Sets that the session goes on at a prompt, so that hints name the commands of a chat.
    pub(crate) fn in_chat(mut self) -> Self {
        self.is_chat = true;
        self
    }

    /// Replaces the agent of further turns.
    pub(crate) fn replace(&mut self, setup: AgentSetup) {
        self.sink = sink(&setup, &self.console, &self.output, self.json);
        self.setup = setup;
    }

    /// Returns the model and the reason for its choice.
    pub(crate) fn note(&self) -> Text {
        self.setup.note.clone()
    }

    /// Returns the agent with everything that belongs to it.
    pub(crate) fn setup(&self) -> &AgentSetup {
        &self.setup
    }

    /// Returns the agent.
    pub(crate) fn agent(&self) -> &Agent {
        &self.setup.agent
    }

    /// Creates a session, marked as in use if it is saved.
    ///
    /// # Errors
    /// Returns an error if the mark cannot be written.
    pub(crate) fn new_session(&self, environment: &Environment) -> Result<(Session, Option<Mark>), Failure> {
        let session = self.agent().session();
        let is_kept = self.setup.is_kept;
        let mark = is_kept
            .then(|| in_use::mark(session.id(), environment))
            .transpose()?;
        Ok((session, mark))
    }

    /// Runs one turn.
    ///
    /// # Errors
    /// Returns an error if the turn did not end with an answer.
    pub(crate) async fn turn(&mut self, session: &mut Session, start: TurnStart) -> Result<Exit, Failure> {
        let logs = self.setup.logs.as_mut();
        let log = logs.map(|logs| logs.of(session.id())).transpose()?;
        let cancel = self.output.child_token();
        let _interrupts = self.interrupts.cancel_next(cancel.clone());
        let sink = |event: &Event| {
            self.sink.event(event);
            if let Some(saved) = &self.saved {
                saved.event(event);
            }
            if let Some(log) = &log {
                log.event(event);
            }
        };
        if let Some(saved) = &self.saved {
            saved.begin_turn();
        }
        let silence = self.console.silence();
        let report = session.run(start, &sink, cancel).await;
        drop(silence);
        if let Some(error) = log.and_then(|log| log.error()) {
            self.console.note(text!("the log is incomplete: {}", error));
        }
        let saved = self.saved.as_ref().map_or(Ok(()), SavedFiles::end_turn);
        if self.output.has_failed() {
            return self.output.ended();
        }
        let ended = self.ended(session, report);
        match (ended, saved) {
            (Ok(Exit::Ok), Err(failure)) => Err(failure),
            (ended, Err(failure)) => {
                self.console.warn(&failure);
                ended
            }
            (ended, Ok(())) => ended,
        }
    }

    /// Continues a session: runs its open turn, then another one.
    ///
    /// # Errors
    /// Returns an error if a turn did not end with an answer, or there is nothing to run.
    pub(crate) async fn go_on(
        &mut self,
        session: &mut Session,
        start: Option<TurnStart>,
    ) -> Result<Exit, Failure> {
        if session.is_open() {
            if start.is_some() {
                if self.setup.has_schema {
                    let failure = Failure::new(
                        Exit::Usage,
                        "the last turn of the session is not over, and --schema is of another",
                    );
                    return Err(failure.hint(text!(
                        "to resume it first: toolcell session resume {}",
                        session.id()
                    )));
                }
                self.console.note("the last turn is not over: it goes on first");
            }
            let ended = self.turn(session, TurnStart::Resume).await?;
            if start.is_none() || self.is_output_closed() {
                return Ok(ended);
            }
        }
        match start {
            Some(start) => self.turn(session, start).await,
            None => Err(Failure::new(
                Exit::Usage,
                text!("the session `{}` has no open turn", session.id()),
            )
            .hint(text!(
                "to send a message: toolcell session resume {} \"…\"",
                session.id()
            ))),
        }
    }

    /// Prints the changes that tools made in scratch directories.
    pub(crate) fn print_changes(&self) {
        for scratch in &self.setup.scratch {
            if !self.is_output_closed() {
                scratch.print_summary(&self.console);
            }
        }
    }

    /// Ends the MCP servers of the agent.
    pub(crate) async fn stop_servers(&self) {
        self.setup.servers.stop().await;
    }

    /// True if the process was told to terminate.
    pub(crate) fn is_terminated(&self) -> bool {
        self.interrupts.is_terminated()
    }

    /// True if standard output cannot be written to, such as a closed pipe.
    pub(crate) fn is_output_closed(&self) -> bool {
        self.output.has_failed()
    }

    fn ended(&self, session: &Session, report: Result<TurnReport, AgentError>) -> Result<Exit, Failure> {
        let id = session.id();
        let report = report.map_err(|error| cannot_go_on(id, error))?;
        let on_limit = self.setup.agent.policy().on_limit;
        let has_schema = self.setup.has_schema;
        let mut ended = match failure::best_effort(&report, on_limit, has_schema) {
            Some(notice) => {
                self.console.note(notice);
                Ok(Exit::Ok)
            }
            None => failure::of_report(&report, has_schema, self.setup.key_source.as_ref()),
        };
        if let TurnOutcome::Budget { .. } = report.outcome {
            let hint = self
                .setup
                .budget_hints
                .of(&session.state().spent(), session.request_tokens());
            ended = ended.map_err(|failure| failure.hints(hint));
        }
        if !self.setup.is_kept {
            return ended;
        }
        if self.is_chat {
            let is_pending = matches!(report.outcome, TurnOutcome::AwaitingApproval { .. });
            return match ended {
                Err(failure) if is_pending => Err(failure.hint("to decide: /resume")),
                ended => ended,
            };
        }
        match (&report.outcome, ended) {
            (TurnOutcome::Asked { .. }, Ok(exit)) => {
                self.console
                    .note(text!("to answer: toolcell session resume {} \"…\"", id));
                Ok(exit)
            }
            (TurnOutcome::Asked { .. }, Err(failure)) => {
                Err(failure.hint(text!("to answer: toolcell session resume {} \"…\"", id)))
            }
            (TurnOutcome::AwaitingApproval { .. }, Err(failure)) => {
                Err(failure.hint(text!("to decide: toolcell session resume {}", id)))
            }
            (_, ended) => ended,
        }
    }
}

/// Creates the view of turns.
fn sink(setup: &AgentSetup, console: &Console, output: &Output, json: bool) -> Box<dyn EventSink> {
    if json {
        return Box::new(JsonLines {
            console: console.clone(),
            output: output.clone(),
        });
    }
    let view = TurnView::new(console.clone(), setup.hints.clone(), output.clone());
    Box::new(view.attended(setup.is_attended).only_answer(setup.has_schema))
}

/// Creates the failure for a turn that could not be run, or undone.
pub(crate) fn cannot_go_on(id: &str, error: AgentError) -> Failure {
    if let AgentError::Store { source, .. } = error {
        return match source {
            StoreError::NotFound { .. } => {
                Failure::new(Exit::Conflict, "the session was deleted by another process")
                    .because(source)
                    .hint("start a new session")
            }
            source => store_failure(source),
        };
    }
    let hint = match &error {
        AgentError::TurnOpen { .. } => Some(format!("to resume it first: toolcell session resume {id}")),
        AgentError::NoTurn { .. } => Some(format!("to send a message: toolcell session resume {id} \"…\"")),
        _ => None,
    };
    if let AgentError::NothingToUndo { .. } | AgentError::TooShort { .. } = error {
        return Failure::new(Exit::Usage, "nothing was changed").because(error);
    }
    let exit = match &error {
        AgentError::TurnOpen { .. } | AgentError::NoTurn { .. } => Exit::Usage,
        _ => Exit::Internal,
    };
    Failure::new(exit, text!("the turn of session `{}` could not be run", id))
        .because(error)
        .hints(hint)
}

/// Creates the failure for an error of the session store.
pub(crate) fn store_failure(error: StoreError) -> Failure {
    let (exit, what, hint) = match &error {
        // Nothing of this turn was saved, and nothing of the other one is lost.
        StoreError::InUse { id } => {
            let id = escape::shell(id);
            let hint = format!(
                "to see its current state: toolcell session show {id}\nto send the message again: toolcell session resume {id} \"…\""
            );
            let what = "the session was continued by another process";
            (Exit::Conflict, what, Some(hint))
        }
        StoreError::NotFound { .. } => (
            Exit::Usage,
            "the session cannot be used",
            Some("`toolcell session list` lists them".to_owned()),
        ),
        StoreError::NameTaken { .. } => (
            Exit::Usage,
            "the session cannot have this name",
            Some("`toolcell session list` shows the names".to_owned()),
        ),
        StoreError::Exists { .. } => (Exit::Usage, "the session cannot be used", None),
        StoreError::Failed { .. } => {
            let (why, hint) = Database::Sessions.defect(&error);
            let failure = Failure::new(Exit::Io, "the session could not be saved or read");
            let failure = match why {
                Some(why) => failure.why(why),
                None => failure,
            };
            return failure.because(error).hints(hint);
        }
        _ => (Exit::Internal, "the session cannot be used", None),
    };
    Failure::new(exit, what).because(error).hints(hint)
}

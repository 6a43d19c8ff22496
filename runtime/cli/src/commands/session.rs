//! `toolcell session`: saved sessions.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use tokio_util::sync::CancellationToken;
use toolcell_core::store::SessionInfo;
use toolcell_core::{EventSink as _, Message, SessionStore};

use crate::agent::setup;
use crate::config::Overrides;
use crate::config::units::Span;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::session::prompt::Attach;
use crate::session::store;
use crate::session::turn_runner::{TurnRunner, store_failure};
use crate::ui::hints::AllowHints;
use crate::ui::render::Console;
use crate::ui::render::json::{self, print_line};
use crate::ui::render::turn::TurnView;
use crate::ui::terminal::{FAINT, NAME, Name, STRONG, inert_line, text};

/// List, show, continue, fork, export and delete sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    List(List),
    Show(Show),
    Resume(Box<Resume>),
    Fork(Fork),
    Export(Export),
    Delete(Delete),
}

/// List all sessions, most recently used first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session list
  toolcell session list --json")]
pub(crate) struct List {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Show the events of a session.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session show last")]
pub(crate) struct Show {
    #[command(flatten)]
    which: Which,
}

/// Continue a session: resume its open turn, or send a message.
///
/// Finished calls are not repeated. Use the same tools and grants as before.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell session resume last
  toolcell session resume last \"And how many lines?\" --grant read=.

{}", crate::exit::TABLE))]
pub(crate) struct Resume {
    #[command(flatten)]
    which: Which,

    /// Message to send; required if no turn is open.
    message: Option<String>,

    #[command(flatten)]
    attach: Attach,

    #[command(flatten)]
    agent: AgentFlags,

    /// Print every event as one line of JSON on standard output.
    #[arg(long)]
    json: bool,
}

/// Create a session from the beginning of another one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session fork last
  toolcell session fork last --events 12")]
pub(crate) struct Fork {
    #[command(flatten)]
    which: Which,

    /// Copy only the first N events.
    #[arg(long, value_name = "N")]
    events: Option<u64>,
}

/// Print a session as JSON lines, one event per line.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session export last > session.jsonl")]
pub(crate) struct Export {
    #[command(flatten)]
    which: Which,
}

/// Delete a session.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session delete 0199f3c2")]
pub(crate) struct Delete {
    #[command(flatten)]
    which: Which,
}

/// Session argument.
#[derive(Debug, Args)]
struct Which {
    /// Identifier of the session, its beginning or end, or `last`.
    #[arg(value_name = "SESSION")]
    session: String,
}

impl Which {
    /// Resolves the argument to a full identifier.
    async fn find(&self, store: &dyn SessionStore) -> Result<String, Failure> {
        let wanted = self.session.as_str();
        let all = store.list().await.map_err(store_failure)?;
        if wanted == "last" {
            return all.first().map(|info| info.id.clone()).ok_or_else(|| {
                Failure::new(Exit::Usage, "there are no sessions")
                    .hint("toolcell run \"…\" and toolcell chat create one")
            });
        }
        if all.iter().any(|info| info.id == wanted) {
            return Ok(wanted.to_owned());
        }
        let fits = |info: &&SessionInfo| info.id.starts_with(wanted) || info.id.ends_with(wanted);
        match all.iter().filter(fits).collect::<Vec<_>>().as_slice() {
            [one] => Ok(one.id.clone()),
            [] => Err(
                Failure::new(Exit::Usage, text!("there is no session `{}`", wanted))
                    .hint("`toolcell session list` lists them"),
            ),
            several => Err(Failure::new(
                Exit::Usage,
                text!("`{}` matches {} sessions", wanted, several.len()),
            )
            .hint("use a longer part of the identifier")),
        }
    }
}

impl Session {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let store = store::open(environment)?;
        match self {
            Self::List(command) => command.run(&*store, console).await,
            Self::Show(command) => command.run(&*store, console).await,
            Self::Resume(command) => Box::pin(command.run(store, overrides, environment, console)).await,
            Self::Fork(command) => command.run(&*store).await,
            Self::Export(command) => command.run(&*store, console).await,
            Self::Delete(command) => command.run(&*store, console).await,
        }
    }
}

impl List {
    async fn run(self, store: &dyn SessionStore, console: &Console) -> Result<Exit, Failure> {
        let all = store.list().await.map_err(store_failure)?;
        if self.json {
            print_line(console, &all)?;
            return Ok(Exit::Ok);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        console.write(|s| {
            for info in &all {
                let age = now.saturating_sub(Duration::from_millis(info.used_ms));
                let age = match age.as_secs() {
                    0..60 => "just now".into(),
                    seconds => text!("{} ago", Span(Duration::from_secs(seconds))),
                };
                s.out.styled(NAME, text!("{}  ", Name(&info.id)))?;
                s.out.cell(FAINT, age, 17)?;
                s.out.styled(STRONG, inert_line(&info.title))?;
                if let Some(parent) = &info.parent {
                    s.out.styled(FAINT, text!("  forked from {}", parent))?;
                }
                s.out.end_line()?;
            }
            s.out.flush()
        })?;
        if all.is_empty() {
            console.note("there are no sessions");
        }
        Ok(Exit::Ok)
    }
}

impl Show {
    async fn run(self, store: &dyn SessionStore, console: &Console) -> Result<Exit, Failure> {
        let id = self.which.find(store).await?;
        let events = store.load(&id).await.map_err(store_failure)?;
        let closed = CancellationToken::new();
        let view = TurnView::of_recorded(console.clone(), Arc::new(AllowHints::default()), closed.clone());
        for event in &events {
            view.event(event);
            if closed.is_cancelled() {
                break;
            }
        }
        Ok(Exit::Ok)
    }
}

impl Resume {
    async fn run(
        self,
        store: Arc<dyn SessionStore>,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let id = self.which.find(&*store).await?;
        let message = self.message.as_ref();
        let message = message.map(|text| self.attach.message(text, &overrides, environment, console));
        let message = message.transpose()?;
        let agent = setup::assemble(&self.agent, overrides, environment, console, Some(store)).await?;
        if !self.json {
            console.note(agent.note.clone());
        }
        let mut turns = TurnRunner::new(agent, console, self.json);
        let mut session = turns.agent().load(&id).await.map_err(store_failure)?;
        let ended = Self::go_on(&mut turns, &mut session, message).await;
        if !self.json {
            turns.print_changes();
        }
        ended
    }

    /// Runs the open turn or a new one, as the arguments require.
    async fn go_on(
        turns: &mut TurnRunner,
        session: &mut toolcell_agent::Session,
        message: Option<Message>,
    ) -> Result<Exit, Failure> {
        if session.is_open() {
            let ended = turns.turn(session, None).await?;
            if message.is_none() || turns.is_output_closed() {
                return Ok(ended);
            }
        }
        match message {
            Some(message) => turns.turn(session, Some(message)).await,
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
}

impl Fork {
    async fn run(self, store: &dyn SessionStore) -> Result<Exit, Failure> {
        let id = self.which.find(store).await?;
        let new = uuid::Uuid::now_v7().to_string();
        store.fork(&id, &new, self.events).await.map_err(store_failure)?;
        let mut out = io::stdout().lock();
        writeln!(out, "{new}")?;
        out.flush()?;
        Ok(Exit::Ok)
    }
}

impl Export {
    async fn run(self, store: &dyn SessionStore, console: &Console) -> Result<Exit, Failure> {
        let id = self.which.find(store).await?;
        let lines = store.export(&id).await.map_err(store_failure)?;
        for line in lines.lines() {
            json::print(console, line)?;
        }
        Ok(Exit::Ok)
    }
}

impl Delete {
    async fn run(self, store: &dyn SessionStore, console: &Console) -> Result<Exit, Failure> {
        let id = self.which.find(store).await?;
        store.delete(&id).await.map_err(store_failure)?;
        console.note(text!("deleted `{}`", id));
        Ok(Exit::Ok)
    }
}

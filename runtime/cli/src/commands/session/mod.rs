//! `toolcell session`: saved sessions.

mod list;
mod prune;
pub(in crate::commands) mod search;
mod set_aside;

use std::io::{self, Write as _};
use std::sync::Arc;

use clap::{Args, Subcommand};
use toolcell_core::SessionStore;
use toolcell_core::store::SessionInfo;

use self::list::List;
use self::prune::Prune;
use self::search::Search;
use self::set_aside::SetAside;
use crate::agent::setup;
use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::session::follow::Recorded;
use crate::session::in_use;
use crate::session::prompt::Attach;
use crate::session::saved_files::SaveFlag;
use crate::session::select::{LAST, Which, is_part};
use crate::session::store;
use crate::session::turn_runner::{TurnRunner, store_failure};
use crate::ui::render::Console;
use crate::ui::render::json;
use crate::ui::render::turn::streamed::MarkdownFlag;
use crate::ui::terminal::{Text, inert_line, text};

/// Maximum length of a name, in characters, so that it is read at one glance.
const MAX_NAME: usize = 64;

/// List, search, name, show, continue, fork, export and delete sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    List(List),
    Search(Search),
    Show(Show),
    Rename(Rename),
    Resume(Box<Resume>),
    Fork(Fork),
    Export(Export),
    Delete(Delete),
    Prune(Prune),
    SetAside(SetAside),
}

/// Show the events of a session.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session show last
  toolcell session show plans --follow")]
pub(crate) struct Show {
    #[command(flatten)]
    which: Which,

    /// Go on to show what is added, until no other process uses the session.
    #[arg(long)]
    follow: bool,

    #[command(flatten)]
    markdown: MarkdownFlag,
}

/// Give a session a name, by which every command finds it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session rename last plans
  toolcell chat --session plans
  toolcell session rename plans")]
pub(crate) struct Rename {
    #[command(flatten)]
    which: Which,

    /// New name, of at most 64 characters; without it, the session has no name any more.
    name: Option<String>,
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

    #[command(flatten)]
    save: SaveFlag,

    /// Print every event as one line of JSON on standard output.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    markdown: MarkdownFlag,
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

/// Delete a session that no process uses.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session delete 0199f3c2")]
pub(crate) struct Delete {
    #[command(flatten)]
    which: Which,
}

impl Session {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        if let Self::SetAside(command) = self {
            return command.run(environment, console);
        }
        if let Self::Search(command) = self {
            return command.run(&store::open_file(environment)?, console).await;
        }
        let store = store::open(environment)?;
        match self {
            Self::SetAside(_) | Self::Search(_) => Ok(Exit::Ok),
            Self::List(command) => command.run(&*store, console).await,
            Self::Show(command) => command.run(&*store, environment, console).await,
            Self::Rename(command) => command.run(&*store, console).await,
            Self::Resume(command) => Box::pin(command.run(store, overrides, environment, console)).await,
            Self::Fork(command) => command.run(&*store).await,
            Self::Export(command) => command.run(&*store, console).await,
            Self::Delete(command) => command.run(&*store, environment, console).await,
            Self::Prune(command) => command.run(&*store, environment, console).await,
        }
    }
}

impl Show {
    async fn run(
        self,
        store: &dyn SessionStore,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let id = self.which.find(store).await?.id;
        console.render_markdown(self.markdown.when);
        let mut recorded = Recorded::new(console);
        recorded.show(&store.load(&id).await.map_err(store_failure)?);
        if self.follow {
            recorded.follow(&id, store, environment).await?;
        }
        Ok(Exit::Ok)
    }
}

impl Rename {
    async fn run(self, store: &dyn SessionStore, console: &Console) -> Result<Exit, Failure> {
        let id = self.which.find(store).await?.id;
        if let Some(name) = &self.name {
            check_name(name, &store.list().await.map_err(store_failure)?)?;
        }
        let renamed = store.rename(&id, self.name.as_deref()).await;
        renamed.map_err(store_failure)?;
        console.note(match &self.name {
            Some(name) => text!("the name of `{}` is now `{}`", id, name),
            None => text!("`{}` has no name any more", id),
        });
        Ok(Exit::Ok)
    }
}

/// Checks that a name can be typed, read, and told from the other ways to choose one of the sessions.
pub(in crate::commands) fn check_name(name: &str, sessions: &[SessionInfo]) -> Result<(), Failure> {
    let length = name.chars().count();
    if length > MAX_NAME {
        // It is not repeated.
        let why = text!("it has {} characters, of at most {}", length, MAX_NAME);
        return Err(Failure::new(Exit::Usage, "the name of the session is too long").why(why));
    }
    let of_other = sessions.iter().find(|info| is_part(name, &info.id));
    let why: Text = if name.trim().is_empty() {
        "it is empty".into()
    } else if name == LAST {
        "`last` is the session that was used last".into()
    } else if name.starts_with('-') {
        "it begins like an option".into()
    } else if inert_line(name) != name || name.trim() != name {
        "it has characters that cannot be seen".into()
    } else if let Some(other) = of_other {
        text!("it is a part of the identifier of the session `{}`", other.id)
    } else {
        return Ok(());
    };
    Err(Failure::new(Exit::Usage, text!("a session cannot have the name `{}`", name)).why(why))
}

impl Resume {
    async fn run(
        self,
        store: Arc<dyn SessionStore>,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        console.render_markdown(self.markdown.when);
        let id = self.which.find(&*store).await?.id;
        let _mark = in_use::mark(&id, environment)?;
        // What the flags deny is not attached either.
        let mut with_flags = overrides.clone();
        self.agent.apply(&mut with_flags, environment)?;
        let message = self.message.as_ref();
        let draft = message.map(|text| self.attach.message(text, &with_flags, environment, console));
        let draft = draft.transpose()?;
        let agent = setup::assemble(&self.agent, overrides, environment, console, Some(store)).await?;
        if !self.json {
            console.note(agent.note.clone());
        }
        let saved = self.save.open(console)?;
        let mut turns = TurnRunner::new(agent, console, self.json).saving(saved);
        let start = match draft {
            Some(draft) => Some(draft.start(turns.setup(), console).await?),
            None => None,
        };
        let mut session = turns.agent().load(&id).await.map_err(store_failure)?;
        let ended = turns.go_on(&mut session, start).await;
        turns.stop_servers().await;
        if !self.json {
            turns.print_changes();
        }
        ended
    }
}

impl Fork {
    async fn run(self, store: &dyn SessionStore) -> Result<Exit, Failure> {
        let id = self.which.find(store).await?.id;
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
        let id = self.which.find(store).await?.id;
        let lines = store.export(&id).await.map_err(store_failure)?;
        for line in lines.lines() {
            json::print(console, line)?;
        }
        Ok(Exit::Ok)
    }
}

impl Delete {
    async fn run(
        self,
        store: &dyn SessionStore,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let id = self.which.find(store).await?.id;
        let _mark = in_use::mark(&id, environment)?;
        store.delete(&id).await.map_err(store_failure)?;
        console.note(text!("deleted `{}`", id));
        Ok(Exit::Ok)
    }
}

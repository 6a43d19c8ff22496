//! `toolcell chat`: an interactive session of many turns.

mod command;
mod completion;
mod editor;
mod input;
mod prompts;
mod reload;

use clap::Args;

use self::command::Conversation;
use self::input::Lines;
use self::reload::Seen;
use crate::agent::setup;
use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::session::resume::{self, Continued};
use crate::session::saved_files::SaveFlag;
use crate::session::select::Continue;
use crate::session::store;
use crate::session::turn_runner::{TurnRunner, store_failure};
use crate::ui::render::Console;
use crate::ui::render::turn::streamed::MarkdownFlag;

/// Chat with a model that can call tools.
///
/// A line that ends in a backslash continues on the next one. Ctrl-C cancels the running turn; `/help` lists the commands.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell chat --grant read=.
  toolcell chat --provider ollama --model llama3.2 --tool files --grant write=.
  toolcell chat --continue
  toolcell chat --session plans

{}", crate::exit::TABLE))]
pub(crate) struct Chat {
    #[command(flatten)]
    agent: AgentFlags,

    #[command(flatten)]
    which: Continue,

    /// Do not save the session, nor what is typed in the input history.
    #[arg(long, conflicts_with_all = ["is_last", "session"])]
    no_session: bool,

    #[command(flatten)]
    save: SaveFlag,

    #[command(flatten)]
    markdown: MarkdownFlag,
}

impl Chat {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        console.render_markdown(self.markdown.when);
        let store = if self.no_session {
            None
        } else {
            Some(store::open(environment)?)
        };
        let continued = match &store {
            Some(store) => match self.which.find(&**store).await? {
                Some(info) => match resume::open(info.id, store, environment, console).await? {
                    Some(continued) => Some(continued),
                    None => return Ok(Exit::Ok),
                },
                None => None,
            },
            None => None,
        };
        let agent = setup::assemble(
            &self.agent,
            overrides.clone(),
            environment,
            console,
            store.clone(),
        )
        .await?;
        console.note(agent.note.clone());
        let turns = TurnRunner::new(agent, console, false)
            .in_chat()
            .saving(self.save.open(console)?);
        let mut lines = Lines::new(environment, console, !self.no_session)?;
        let (session, mark) = match continued {
            Some(Continued { id, mark }) => {
                let session = turns.agent().load(&id).await.map_err(store_failure)?;
                (session, Some(mark))
            }
            None => turns.new_session(environment)?,
        };
        if session.is_open() {
            console.note("the last turn was interrupted; /resume continues it");
        }
        if lines.is_terminal() {
            console.keep_typed();
            console.note("/help lists the commands; Ctrl-D exits");
        }
        let mut last = Exit::Ok;
        let mut chat = Conversation {
            flags: self.agent,
            overrides,
            turns,
            session,
            mark,
            store,
            attached: Vec::new(),
            draft: String::new(),
            seen: Seen::default(),
            environment,
            console,
        };
        while let Some(line) = lines.next(&(std::mem::take(&mut chat.draft) + &console.take_typed()))? {
            let line = line.trim();
            let ended = match command::of(line) {
                _ if line.is_empty() => continue,
                Some(("/quit" | "/exit", _)) => break,
                Some((command, argument)) => Box::pin(chat.command(command, argument)).await,
                None => chat.say(line).await,
            };
            last = report(console, ended);
            if chat.turns.is_output_closed() {
                return Ok(Exit::Ok);
            }
            if chat.turns.is_terminated() {
                break;
            }
        }
        chat.turns.stop_servers().await;
        chat.turns.print_changes();
        if chat.turns.is_terminated() {
            return Ok(Exit::Cancelled);
        }
        // At a terminal the user has seen how each turn ended; a script needs the exit code.
        Ok(if lines.is_terminal() { Exit::Ok } else { last })
    }
}

/// Prints the failure of a turn, if any, and returns its exit code.
fn report(console: &Console, ended: Result<Exit, Failure>) -> Exit {
    ended.unwrap_or_else(|failure| {
        if failure.exit == Exit::Cancelled {
            console.note("cancelled");
        } else {
            console.report(&failure);
        }
        failure.exit
    })
}

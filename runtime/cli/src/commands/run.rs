//! `toolcell run`: runs one turn.

use clap::Args;
use toolcell_agent::TurnStart;

use crate::agent::setup;
use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::session::in_use::{self, Mark};
use crate::session::prompt::Attach;
use crate::session::saved_files::SaveFlag;
use crate::session::select::Continue;
use crate::session::store;
use crate::session::turn_runner::{TurnRunner, store_failure};
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::render::turn::streamed::MarkdownFlag;
use crate::ui::terminal::text;

/// Send a prompt to a model, which can call tools until it has an answer.
///
/// The answer goes to standard output, everything else to standard error. Ctrl-C cancels the turn; a second Ctrl-C ends
/// the process.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell run \"How many words are in README.md?\" --grant read=.
  toolcell run \"What is new at example.com?\" --tool fetch --grant http=example.com
  toolcell run \"Which day is it?\" --model llama3.2 --base-url http://localhost:11434/v1
  git diff | toolcell run \"Write a commit message for this change.\" --tool text
  toolcell run \"What does the diagram say?\" --attach diagram.png
  toolcell run \"Draw the plan of a house.\" --save pictures
  toolcell run \"And in one word?\" --continue

Providers:
  openai     OpenAI (key in OPENAI_API_KEY), or any server compatible with Chat Completions
  responses  OpenAI Responses (key in OPENAI_API_KEY)
  anthropic  Anthropic Messages (key in ANTHROPIC_API_KEY)
  gemini     Gemini (key in GEMINI_API_KEY)
  vertex     Gemini on Vertex AI (project in GOOGLE_CLOUD_PROJECT, token in
             GOOGLE_OAUTH_ACCESS_TOKEN or from `[provider] token_command`)
  ollama     Ollama on the local machine
  local      a model file on this machine, in builds with the feature `local`
  scripted   replays the turns of a JSON file, given by --model
  offline    no model: selects a tool by words of the prompt
If none is configured, the provider is `openai` if OPENAI_API_KEY is set, and `offline` otherwise.

File format of `scripted`:
  {{\"steps\": [{{\"calls\": [{{\"name\": \"text_count\", \"arguments\": {{\"text\": \"a b\"}}}}]}},
             {{\"text\": \"It has two words.\"}}]}}

{}", crate::exit::TABLE))]
pub(crate) struct Run {
    /// Prompt; `-` reads it from standard input. What is piped to the command otherwise is sent with it.
    prompt: String,

    #[command(flatten)]
    attach: Attach,

    #[command(flatten)]
    agent: AgentFlags,

    #[command(flatten)]
    which: Continue,

    /// Do not save the session. Saved sessions can be shown and continued with `toolcell session`.
    #[arg(long, conflicts_with_all = ["is_last", "session"])]
    no_session: bool,

    #[command(flatten)]
    save: SaveFlag,

    /// Print every event as one line of JSON on standard output.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    markdown: MarkdownFlag,
}

/// The failure for a session whose last turn was interrupted. Its continuation has the flags of another command.
fn not_over(id: &str) -> Failure {
    Failure::new(Exit::Usage, "the last turn of the session is not over")
        .hint(text!("to resume it: toolcell session resume {}", id))
        .hint("to begin a new session: leave out --continue and --session")
}

impl Run {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        console.render_markdown(self.markdown.when);
        let (mut turns, start, continued) =
            match Box::pin(self.prepare(overrides, environment, console)).await {
                Ok(prepared) => prepared,
                Err(failure) => return Err(self.reported(failure, console)),
            };
        let ended = match &continued {
            None => self.begin(&mut turns, start, environment).await,
            Some((id, _mark)) => {
                let mut session = turns.agent().load(id).await.map_err(store_failure)?;
                match session.is_open() {
                    false => turns.turn(&mut session, start).await,
                    true => Err(self.reported(not_over(id), console)),
                }
            }
        };
        turns.stop_servers().await;
        if !self.json {
            turns.print_changes();
        }
        ended
    }

    /// Runs the first turn of a new session.
    async fn begin(
        &self,
        turns: &mut TurnRunner,
        start: TurnStart,
        environment: &Environment,
    ) -> Result<Exit, Failure> {
        let (mut session, _mark) = turns.new_session(environment)?;
        turns.turn(&mut session, start).await
    }

    /// Sets up the agent. A session to be continued is found and marked first.
    async fn prepare(
        &self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<(TurnRunner, TurnStart, Option<(String, Mark)>), Failure> {
        let store = if self.no_session {
            None
        } else {
            match store::open(environment) {
                Ok(store) => Some(store),
                Err(failure) if self.which.is_wanted() => return Err(failure),
                Err(failure) => {
                    console.warn(&failure);
                    console.note("this session is not saved");
                    None
                }
            }
        };
        let continued = match &store {
            Some(store) => self.which.find(&**store).await?,
            None => None,
        };
        let continued = match continued {
            Some(info) => {
                let mark = in_use::mark(&info.id, environment)?;
                Some((info.id, mark))
            }
            None => None,
        };
        // What the flags deny is not attached either.
        let mut with_flags = overrides.clone();
        self.agent.apply(&mut with_flags, environment)?;
        let draft = self
            .attach
            .message(&self.prompt, &with_flags, environment, console)?;
        let agent = setup::assemble(&self.agent, overrides, environment, console, store).await?;
        if !self.json {
            console.note(agent.note.clone());
        }
        let saved = self.save.open(console)?;
        let turns = TurnRunner::new(agent, console, self.json).saving(saved);
        let start = draft.start(turns.setup(), console).await?;
        Ok((turns, start, continued))
    }

    /// Prints a failure as a JSON line, because a turn that did not start has no event to report it.
    fn reported(&self, failure: Failure, console: &Console) -> Failure {
        if self.json && failure.exit != Exit::Ok {
            let mut line = failure.to_json();
            line.insert("type".into(), "not_started".into());
            // Standard error has it as well.
            let _ = print_line(console, &line);
        }
        failure
    }
}

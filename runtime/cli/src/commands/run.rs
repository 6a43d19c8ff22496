//! `toolcell run`: runs one turn.

use std::io::Read as _;

use clap::Args;

use crate::agent::setup;
use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::session::store;
use crate::session::turn_runner::{self, TurnRunner};
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::text;

/// Maximum size of a prompt from standard input, in bytes.
const MAX_PROMPT_BYTES: u64 = 4 << 20;

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
  git diff | toolcell run - --tool text --json

Providers:
  openai     OpenAI (key in OPENAI_API_KEY), or any server compatible with Chat Completions
  responses  OpenAI Responses (key in OPENAI_API_KEY)
  anthropic  Anthropic Messages (key in ANTHROPIC_API_KEY)
  gemini     Gemini (key in GEMINI_API_KEY)
  vertex     Gemini on Vertex AI (project in GOOGLE_CLOUD_PROJECT, token in
             GOOGLE_OAUTH_ACCESS_TOKEN or from `[provider] token_command`)
  ollama     Ollama on the local machine
  scripted   replays the turns of a JSON file, given by --model
  offline    no model: selects a tool by words of the prompt
If none is configured, the provider is `openai` if OPENAI_API_KEY is set, and `offline` otherwise.

File format of `scripted`:
  {{\"steps\": [{{\"calls\": [{{\"name\": \"text_count\", \"arguments\": {{\"text\": \"a b\"}}}}]}},
             {{\"text\": \"It has two words.\"}}]}}

{}", crate::exit::TABLE))]
pub(crate) struct Run {
    /// Prompt; `-` reads it from standard input.
    prompt: String,

    #[command(flatten)]
    agent: AgentFlags,

    /// Do not save the session. Saved sessions can be shown and continued with `toolcell session`.
    #[arg(long)]
    no_session: bool,

    /// Print every event as one line of JSON on standard output.
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let (mut turns, prompt) = match self.prepare(overrides, environment, console).await {
            Ok(prepared) => prepared,
            Err(failure) => return Err(self.reported(failure, console)),
        };
        let session = turns.agent().session();
        let ended = turns.begin(session, prompt).await;
        if !self.json {
            turns.print_changes();
        }
        ended
    }

    async fn prepare(
        &self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<(TurnRunner, String), Failure> {
        let prompt = self.read_prompt()?;
        let store = if self.no_session {
            None
        } else {
            match store::open(environment) {
                Ok(store) => Some(store),
                Err(failure) => {
                    console.note(failure.to_string());
                    None
                }
            }
        };
        let agent = setup::assemble(&self.agent, overrides, environment, console, store).await?;
        if !self.json {
            console.note(agent.note.clone());
        }
        Ok((TurnRunner::new(agent, console, self.json), prompt))
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

    fn read_prompt(&self) -> Result<String, Failure> {
        let prompt = if self.prompt == "-" {
            let fail = || Failure::new(Exit::Usage, "could not read the prompt from standard input");
            let mut bytes = Vec::new();
            std::io::stdin()
                .take(MAX_PROMPT_BYTES + 1)
                .read_to_end(&mut bytes)
                .map_err(|e| fail().because(e))?;
            if bytes.len() as u64 > MAX_PROMPT_BYTES {
                return Err(fail().why(text!("it has more than {} MiB", MAX_PROMPT_BYTES >> 20)));
            }
            String::from_utf8(bytes).map_err(|e| fail().because(e))?
        } else {
            self.prompt.clone()
        };
        turn_runner::check_prompt(&prompt)?;
        Ok(prompt)
    }
}

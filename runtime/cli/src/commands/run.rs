//! `toolcell run`: one turn of the loop.

use std::io::Read as _;

use clap::Args;

use crate::agent::setup::AgentFlags;
use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::session::store;
use crate::session::turn_runner::{self, TurnRunner};
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::text;

/// Longest prompt from standard input, in bytes.
const MAX_PROMPT_BYTES: u64 = 4 << 20;

/// Ask a model, which may call tools until it has an answer.
///
/// The answer goes to standard output, everything else to standard error. Ctrl-C ends the turn; a second one ends the
/// process.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell run \"How many words are in README.md?\" --grant read=.
  toolcell run \"What is new at example.com?\" --tool fetch --grant http=example.com
  toolcell run \"Which day is it?\" --model llama3.2 --base-url http://localhost:11434/v1
  git diff | toolcell run - --tool text --json

Providers:
  openai     OpenAI (key in OPENAI_API_KEY), or any server that speaks its Chat Completions
  responses  OpenAI Responses (key in OPENAI_API_KEY)
  anthropic  Anthropic Messages (key in ANTHROPIC_API_KEY)
  gemini     Gemini (key in GEMINI_API_KEY)
  vertex     Gemini on Vertex AI (project in GOOGLE_CLOUD_PROJECT, token in
             GOOGLE_OAUTH_ACCESS_TOKEN or from `[provider] token_command`)
  ollama     Ollama on this machine
  scripted   plays the turns of a JSON file, named by --model
  offline    no model: matches words of the prompt with tools
Without a configured one, `openai` is taken when OPENAI_API_KEY is set, and otherwise `offline`.

A file for `scripted`:
  {{\"steps\": [{{\"calls\": [{{\"name\": \"text_count\", \"arguments\": {{\"text\": \"a b\"}}}}]}},
             {{\"text\": \"It has two words.\"}}]}}

{}", crate::exit::TABLE))]
pub(crate) struct Run {
    /// What to ask; `-` reads it from standard input.
    prompt: String,

    #[command(flatten)]
    agent: AgentFlags,

    /// Keep nothing of it on disk. Otherwise `toolcell session` can show it and go on with it.
    #[arg(long)]
    no_session: bool,

    /// Print every event as one line of JSON on standard output, as it is.
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
            Err(failure) => return Err(self.told(failure)),
        };
        let session = turns.agent().session();
        let ended = turns.begin(session, prompt).await;
        if !self.json {
            turns.tell_changes();
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
        let assembled = self
            .agent
            .assemble(overrides, environment, console, store)
            .await?;
        if !self.json {
            console.note(assembled.note.clone());
        }
        Ok((TurnRunner::new(assembled, console, self.json), prompt))
    }

    /// Where no turn begins, there is no event to say so; whoever reads events gets one line all the same.
    fn told(&self, failure: Failure) -> Failure {
        if self.json && failure.exit != Exit::Ok {
            let mut line = failure.to_json();
            line.insert("type".into(), "not_started".into());
            // Standard error has it as well.
            let _ = print_line(&line);
        }
        failure
    }

    fn read_prompt(&self) -> Result<String, Failure> {
        let prompt = if self.prompt == "-" {
            let fail = || Failure::new(Exit::Usage, "the prompt cannot be read from standard input");
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

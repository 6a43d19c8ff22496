//! `toolcell run`: one turn of the loop.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tokio_util::sync::CancellationToken;
use toolcell_agent::{Agent, LoopPolicy, preset};
use toolcell_core::event::EventSink;
use toolcell_core::{Message, Tool};

use crate::approve::{self, AtTerminal};
use crate::args::PolicyFlags;
use crate::config::file::FlowRule;
use crate::config::units::Span;
use crate::config::{self, ComponentSource, Overrides, Settings, ToolSettings};
use crate::environment::Environment;
use crate::flow;
use crate::interrupt;
use crate::lock;
use crate::model::{self, ProviderName};
use crate::render::lines::JsonLines;
use crate::render::turn::TurnView;
use crate::render::{Console, failure};
use crate::report::{Exit, Failure};
use crate::toolbox::{AllowHints, Loaded, Toolbox};

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

    /// Offer only this component: a name or a `.wasm` file [repeatable; all that ship or are configured otherwise].
    #[arg(long = "tool", value_name = "NAME|FILE")]
    tools: Vec<String>,

    #[command(flatten)]
    policy: PolicyFlags,

    #[command(flatten)]
    model: ModelFlags,

    /// Refuse tools that differ from `toolcell.lock`.
    #[arg(long)]
    locked: bool,

    /// Print every event as one line of JSON on standard output, as it is.
    #[arg(long)]
    json: bool,
}

/// Which model is asked, and how far a turn may go.
#[derive(Debug, Args)]
pub(crate) struct ModelFlags {
    /// Which kind of provider: `openai`, `responses`, `anthropic`, `gemini`, `ollama`, `scripted`, `offline`.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    provider: Option<ProviderName>,

    /// Name of the model; for `scripted`, the file with its turns.
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    model: Option<String>,

    /// Where the provider listens, such as `http://localhost:11434/v1`.
    #[arg(long, value_name = "URL", help_heading = "Model")]
    base_url: Option<String>,

    /// The environment variable that holds the key [default: OPENAI_API_KEY].
    #[arg(long, value_name = "VARIABLE", help_heading = "Model")]
    api_key_env: Option<String>,

    /// Requests to the model in the turn [default: 50].
    #[arg(long, value_name = "N", help_heading = "Model", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,

    /// Wall time of the turn, such as `90s` or `5m` [default: none].
    #[arg(long, value_name = "TIME", help_heading = "Model")]
    deadline: Option<Span>,

    /// The style of the loop: `heimdall`, `waterfell`, `vertex`, `forge`.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    preset: Option<String>,

    /// What happens to the call with which the session would have read private data, read what strangers can write, and
    /// be able to send outside [default: ask].
    #[arg(long, value_name = "WHAT")]
    flow: Option<FlowRule>,
}

impl ModelFlags {
    /// Puts the flags into the last layer of the configuration.
    pub(crate) fn apply(&self, overrides: &mut Overrides) {
        overrides.provider = self.provider;
        overrides.model.clone_from(&self.model);
        overrides.base_url.clone_from(&self.base_url);
        overrides.api_key_env.clone_from(&self.api_key_env);
        overrides.max_steps = self.max_steps;
        overrides.deadline = self.deadline.map(|span| span.0);
        overrides.preset.clone_from(&self.preset);
        overrides.flow = self.flow;
    }
}

impl Run {
    pub(crate) async fn run(
        self,
        mut overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        self.policy.apply(&mut overrides);
        self.model.apply(&mut overrides);
        let settings = config::load(environment, overrides)?;
        let chosen = model::choose(&settings, environment)?;
        let prompt = self.read_prompt()?;
        if !self.json {
            console.note(&chosen.note);
        }
        let toolbox = Toolbox::open(environment, &settings, console)?;
        let loaded = load(&toolbox, &self.tools, console).await?;
        if self.locked {
            lock::check(&loaded, environment)?;
        }
        let tools: Vec<Arc<dyn Tool>> = loaded
            .iter()
            .flat_map(|loaded| loaded.tools.iter().cloned())
            .collect();
        let approvals = approve::rules(&settings);
        let digests = digests(&loaded);
        let mut agent = Agent::builder(chosen.provider)
            .tools(tools)
            .policy(loop_policy(&settings))
            .approvals(approvals.clone());
        for (tool, flow) in flow::of_tools(&loaded) {
            agent = agent.flow(tool, flow);
        }
        if let Some(approver) = AtTerminal::new(environment, console, approvals, digests) {
            agent = agent.approver(approver);
        }
        let agent = agent.build().map_err(|e| {
            Failure::new(Exit::Config, "the tools cannot be offered together")
                .because(e)
                .hint("choose among them with --tool")
        })?;

        let cancel = CancellationToken::new();
        let gone = CancellationToken::new();
        interrupt::watch(cancel.clone(), console.clone());
        let sink: Box<dyn EventSink> = if self.json {
            Box::new(JsonLines { gone: gone.clone() })
        } else {
            let hints = AllowHints::new(&loaded, environment);
            Box::new(TurnView::new(console.clone(), hints, gone.clone()))
        };
        let stop = cancel.clone();
        let reader = gone.clone();
        tokio::spawn(async move {
            reader.cancelled().await;
            stop.cancel();
        });
        let mut session = agent.session();
        let report = session.run(Message::user(prompt), sink.as_ref(), cancel).await;
        if gone.is_cancelled() {
            return Ok(Exit::Ok);
        }
        let report =
            report.map_err(|e| Failure::new(Exit::Internal, "the turn could not be run").because(e))?;
        failure::of_outcome(&report.outcome)
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
                return Err(fail().why(format!("it has more than {} MiB", MAX_PROMPT_BYTES >> 20)));
            }
            String::from_utf8(bytes).map_err(|e| fail().because(e))?
        } else {
            self.prompt.clone()
        };
        if prompt.trim().is_empty() {
            return Err(
                Failure::new(Exit::Usage, "the prompt is empty").hint("say what to do: toolcell run \"…\"")
            );
        }
        Ok(prompt)
    }
}

/// The rules of the loop, with what configuration says.
pub(crate) fn loop_policy(settings: &Settings) -> LoopPolicy {
    let preset = settings
        .preset
        .as_ref()
        .and_then(|preset| preset::named(&preset.value));
    let mut policy = preset.unwrap_or_default();
    if let Some(steps) = &settings.max_steps {
        policy.max_steps = steps.value;
    }
    if let Some(deadline) = &settings.deadline {
        policy.deadline_ms = Some(u64::try_from(deadline.value.as_millis()).unwrap_or(u64::MAX));
    }
    policy
}

/// The digest of the component behind each tool.
pub(crate) fn digests(loaded: &[Loaded]) -> BTreeMap<String, String> {
    let of_component = |loaded: &Loaded| {
        let digest = loaded.component.digest().to_string();
        let names: Vec<String> = loaded
            .tools
            .iter()
            .map(|tool| tool.spec().name.to_string())
            .collect();
        names.into_iter().map(move |name| (name, digest.clone()))
    };
    loaded.iter().flat_map(of_component).collect()
}

/// Loads the components that were named, or all that are switched on.
pub(crate) async fn load(
    toolbox: &Toolbox<'_>,
    named: &[String],
    console: &Console,
) -> Result<Vec<Loaded>, Failure> {
    let mut wanted: Vec<ToolSettings> = Vec::new();
    if named.is_empty() {
        for tool in toolbox.settings.tools.values().filter(|tool| tool.enabled.value) {
            if tool.is_of_project() {
                console.note(&format!(
                    "the project brings the tool `{0}`; offer it with --tool {0}",
                    tool.name
                ));
            } else {
                wanted.push(tool.clone());
            }
        }
    }
    for name in named {
        let found = toolbox.find(name).await?;
        if let Some(tool) = &found.tool {
            return Err(Failure::new(
                Exit::Usage,
                format!("`--tool {name}` names one tool of a component"),
            )
            .why(format!(
                "`{tool}` comes with everything else in `{}`",
                found.settings.name
            ))
            .hint(format!(
                "offer the whole component: --tool {}",
                crate::quote::shell(&component_of(&found.settings, name))
            )));
        }
        if !wanted.iter().any(|known| known.name == found.settings.name) {
            wanted.push(found.settings);
        }
    }
    toolbox.check_flags(&wanted)?;
    let mut loaded = Vec::new();
    for settings in &wanted {
        loaded.push(toolbox.load(settings).await?);
    }
    Ok(loaded)
}

fn component_of(settings: &ToolSettings, written: &str) -> String {
    match (&settings.component, written.rsplit_once('#')) {
        (ComponentSource::File(_), Some((path, _))) => PathBuf::from(path).display().to_string(),
        _ => settings.name.clone(),
    }
}

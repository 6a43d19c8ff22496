//! `toolcell config`: the effective configuration and its checks.

mod configured;
mod rows;
mod show;

use std::collections::BTreeSet;
use std::io;

use clap::{Args, Subcommand};
use serde_json::json;
use toolcell_core::Grant;

use self::configured::{ConfiguredComponents, absent_secrets};
use self::rows::Detail;
use crate::agent::{model, prices, setup, subagents};
use crate::config::budget::SourcedBudget;
use crate::config::file::schema;
use crate::config::layers;
use crate::config::user_files::{USER_FILE, user_file};
use crate::config::{self, Overrides, ProviderSettings, Row, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::telemetry::log_files::Logs;
use crate::ui::render::Console;
use crate::ui::render::console::Streams;
use crate::ui::render::json::{print_line, print_pretty};
use crate::ui::terminal::{BAD, FAINT, GOOD, Name, Shown, Text, WARN, text};
use anstyle::Style;

/// Show and check the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    Check(Check),
    Show(Box<show::Show>),
    Prompt(Box<Prompt>),
    Schema(Schema),
}

/// Read every configuration layer, check it, and show the settings with their origins.
///
/// Components and hooks are loaded as well. Secrets without a value, and approval rules that apply to none of the tools, are
/// named, and so are variables with keys that are not set. No request is sent, and no MCP server is started.
///
/// The layers are: built-in defaults, your own file, the project's `toolcell.toml`, environment variables
/// (`TOOLCELL_…`), flags. Later layers win; a project's file can only narrow what your own file allows.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell config check
  toolcell config check --json
  toolcell config show loop

Exit codes:
    0   the configuration can be used
    3   the configuration cannot be used
    7   a component or hook cannot be loaded

Environment variables:
{}

A build with the feature `otel` (`cargo build --release --features otel`) also reads OTEL_EXPORTER_OTLP_ENDPOINT and the other
standard OpenTelemetry variables, and exports traces and metrics without the content of conversations.", variables_help()))]
pub(crate) struct Check {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The variables, one a line, for the help.
fn variables_help() -> String {
    let lines = layers::variables()
        .into_iter()
        .map(|(name, what)| format!("  {name:21} {what}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Print the JSON Schema of the configuration file, for editors.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell config schema > toolcell.schema.json")]
pub(crate) struct Schema {}

/// Print the system prompt of the main agent, as its model gets it with the same flags.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell config prompt --grant read=.
  toolcell config prompt --system @instructions.md --preset stepwise")]
pub(crate) struct Prompt {
    #[command(flatten)]
    agent: AgentFlags,
}

impl Prompt {
    async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let setup = setup::assemble(&self.agent, overrides, environment, console, None).await?;
        console.write(|s| {
            s.out.data(setup.agent.instructions())?;
            s.out.end_line()?;
            s.out.flush()
        })?;
        Ok(Exit::Ok)
    }
}

impl Config {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        match self {
            Self::Check(command) => command.run(overrides, environment, console).await,
            Self::Show(command) => command.run(overrides, environment, console),
            Self::Prompt(command) => Box::pin(command.run(overrides, environment, console)).await,
            Self::Schema(_) => {
                print_pretty(console, &schema::json_schema())?;
                Ok(Exit::Ok)
            }
        }
    }
}

impl Check {
    async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let settings = config::load(environment, overrides)?;
        // Detects invalid policies here instead of at the first call.
        for tool in settings.tools.values() {
            tool.policy(&settings, environment)?;
        }
        for hook in settings.hooks.values() {
            hook.component.policy(&settings, environment)?;
        }
        let unset = check_models(&settings, environment)?;
        Logs::check(settings.log.as_ref(), environment)?;
        let rows = rows::of(&settings, environment, Detail::Set);
        let absent = absent_denials(&settings, environment);
        let components = ConfiguredComponents::load(&settings, environment, console).await?;
        let unused = components.unused_rules(&settings, environment);
        let secrets = absent_secrets(&settings, environment)?;
        if self.json {
            let object = json!({
                "settings": rows::to_json(&rows),
                "absent_denials": absent,
                "unset_variables": unset,
                "absent_secrets": secrets.iter().map(Text::plain).collect::<Vec<_>>(),
                "unused_rules": unused.iter().map(Text::plain).collect::<Vec<_>>(),
                "failures": components.failures.iter().map(Failure::to_json).collect::<Vec<_>>(),
            });
            print_line(console, &object)?;
        } else {
            console.write(|s| print(s, &settings, &rows, environment))?;
            for line in absent {
                console.note(text!(
                    "`{}` denies a path that does not exist now, and will deny it when it does",
                    line
                ));
            }
            for variable in unset {
                console.note(text!(
                    "the variable `{}` is not set, or empty: without it, `toolcell run` fails",
                    variable
                ));
            }
            for line in secrets.into_iter().chain(unused) {
                console.note(line);
            }
            for failure in &components.failures {
                console.report(failure);
            }
        }
        Ok(components
            .failures
            .first()
            .map_or(Exit::Ok, |failure| failure.exit))
    }
}

/// Checks the models of all agents, and returns the variables without which they cannot be used.
fn check_models(settings: &Settings, environment: &Environment) -> Result<BTreeSet<String>, Failure> {
    let (profiles, prices) = (&settings.profiles, &settings.prices);
    let checked = |provider: &ProviderSettings, budget: &SourcedBudget| {
        let checked = model::check(provider, profiles, prices, environment)?;
        prices::of(&checked.chosen, budget, prices, environment)?;
        Ok(checked.unset)
    };
    let mut unset = checked(&settings.provider, &settings.budget)?;
    for agent in settings.agents.values() {
        let of_agent = subagents::provider(agent, settings)
            .and_then(|provider| checked(&provider, &agent.budget))
            .map_err(|failure: Failure| failure.why(text!("it is for the agent `{}`", agent.name)))?;
        unset.extend(of_agent);
    }
    Ok(unset)
}

/// Returns the denials of paths that do not exist. They hold when the path appears; or they are misspelt.
fn absent_denials(settings: &Settings, environment: &Environment) -> Vec<String> {
    let tools = settings.tools.values().flat_map(|tool| &tool.grants);
    let hooks = settings.hooks.values().flat_map(|hook| &hook.component.grants);
    let lines = settings.deny.iter().chain(tools).chain(hooks);
    lines
        .filter_map(|line| match &line.grant {
            Grant::Deny { host } => Some((host, line)),
            _ => None,
        })
        .filter(|(host, line)| environment.path(host, &line.base).symlink_metadata().is_err())
        .map(|(_, line)| line.grant.to_string())
        .collect()
}

fn print(s: &mut Streams, settings: &Settings, rows: &[Row], environment: &Environment) -> io::Result<()> {
    let out = &mut s.out;
    let user = settings
        .files
        .iter()
        .find(|file| file.layer == config::source::Layer::User);
    let project = settings
        .files
        .iter()
        .find(|file| file.layer == config::source::Layer::Project);
    let mut layer = |name: &'static str, file: Option<Text>, absent: Text| {
        out.styled(
            if file.is_some() { GOOD } else { FAINT },
            if file.is_some() { "✓ " } else { "· " },
        )?;
        out.cell(Style::new(), name, 12)?;
        match file {
            Some(file) => out.line(file),
            None => {
                out.styled(FAINT, absent)?;
                out.end_line()
            }
        }
    };
    let absent = user_file(environment).map_or_else(
        || text!("none ({})", USER_FILE),
        |path| text!("none ({} does not exist)", environment.shown(&path)),
    );
    layer("user", user.map(|file| text!("{}", Shown(&file.shown))), absent)?;
    layer(
        "project",
        project.map(|file| text!("{}", Shown(&file.shown))),
        "none (no toolcell.toml in this or a parent directory)".into(),
    )?;
    let names = settings.variables.iter().map(|name| Text::from(*name));
    let variables = (!settings.variables.is_empty()).then(|| Text::join(names, ", "));
    let known = "none (no TOOLCELL_… variable is set)";
    layer("environment", variables, known.into())?;

    out.end_line()?;
    rows::print(out, rows)?;
    rows::print_end_of_turn(out, rows, settings)?;
    let grants = settings.tools.values().flat_map(|tool| &tool.grants);
    let granted = grants.into_iter().any(|line| !line.grant.is_denial());
    if !granted {
        out.styled(WARN, "\nnothing is granted to any tool")?;
        out.end_line()?;
    }
    let hooks = settings.hooks.values().map(|hook| &hook.component);
    let off: Vec<Text> = settings
        .tools
        .values()
        .chain(hooks)
        .filter(|tool| !tool.enabled.value)
        .map(|tool| text!("{}", Name(&tool.name)))
        .collect();
    if !off.is_empty() {
        out.styled(BAD, text!("\ndisabled: {}", Text::join(off, ", ")))?;
        out.end_line()?;
    }
    out.flush()
}

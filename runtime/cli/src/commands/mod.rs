//! Command line: the commands, one file each, and their dispatch.

mod allowed;
mod approval;
mod bucket;
mod call;
mod chat;
mod completions;
mod config;
mod doctor;
mod help;
mod instructions;
mod key;
mod lock;
mod mcp;
mod models;
mod policy;
mod run;
mod scratch;
mod secret;
mod serve;
mod session;
mod tool;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tokio::runtime;

use crate::config::{Overrides, layers};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::exit;
use crate::telemetry::log;
use crate::ui::render::Console;
use crate::ui::{interrupt, terminal};

const EXAMPLES: &str = "\
Examples:
  toolcell run \"How many words are in README.md?\" --grant read=.
  toolcell call text_count '{\"text\": \"one two three\"}'
  toolcell tool inspect ./my.wasm

A tool is a WebAssembly component. Each call runs in a cell of its own, with its own memory, fuel and deadline, \
and can access only what --grant or the configuration allows.";

/// Gives an AI agent tools that cannot misbehave.
#[derive(Debug, Parser)]
#[command(name = "toolcell", version, about, max_term_width = 100)]
#[command(
    arg_required_else_help = true,
    subcommand_required = true,
    disable_help_subcommand = true
)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::TABLE))]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,

    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
struct Global {
    /// Read this file instead of your own configuration.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    config: Option<PathBuf>,
}

/// Subcommands; each has a file under `commands/`.
#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Chat(chat::Chat),
    Call(call::Call),
    /// List, search, name, show, continue, fork, export and delete sessions.
    #[command(subcommand)]
    Session(session::Session),
    /// Write, build, test, list, add and inspect tools, and trust components of a project.
    #[command(subcommand)]
    Tool(tool::Tool),
    /// Review, commit or discard the changes that tools made with `--scratch`.
    #[command(subcommand)]
    Scratch(scratch::Scratch),
    /// List and revoke saved approvals.
    #[command(subcommand)]
    Approval(approval::Approval),
    #[command(subcommand)]
    Instructions(instructions::Instructions),
    /// List, show, export and clear the buckets in which tools keep values.
    #[command(subcommand)]
    Bucket(bucket::Bucket),
    /// Serve tools to clients of the Model Context Protocol, and use servers of others.
    #[command(subcommand)]
    Mcp(mcp::Mcp),
    Serve(Box<serve::Serve>),
    /// Store and delete values in the system keyring.
    #[command(subcommand)]
    Secret(secret::Secret),
    /// Explain what tools can do in combination.
    #[command(subcommand)]
    Policy(policy::Policy),
    #[command(subcommand)]
    Key(key::Key),
    Models(models::Models),
    /// List and inspect the files of local models.
    #[command(subcommand)]
    Model(models::local::LocalModel),
    Lock(lock::Lock),
    /// Show and check the configuration.
    #[command(subcommand)]
    Config(config::Config),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    Help(help::Help),
}

/// Adds the arguments or subcommands of a command.
type Describe = fn(clap::Command) -> clap::Command;

/// The variants of [`Command`], to parse one of them alone.
const COMMANDS: [(&str, Describe); 21] = [
    ("run", run::Run::augment_args),
    ("chat", chat::Chat::augment_args),
    ("call", call::Call::augment_args),
    ("session", session::Session::augment_subcommands),
    ("tool", tool::Tool::augment_subcommands),
    ("scratch", scratch::Scratch::augment_subcommands),
    ("approval", approval::Approval::augment_subcommands),
    ("instructions", instructions::Instructions::augment_subcommands),
    ("bucket", bucket::Bucket::augment_subcommands),
    ("mcp", mcp::Mcp::augment_subcommands),
    ("serve", serve::Serve::augment_args),
    ("secret", secret::Secret::augment_subcommands),
    ("policy", policy::Policy::augment_subcommands),
    ("key", key::Key::augment_subcommands),
    ("models", models::Models::augment_args),
    ("model", models::local::LocalModel::augment_subcommands),
    ("lock", lock::Lock::augment_args),
    ("config", config::Config::augment_subcommands),
    ("doctor", doctor::Doctor::augment_args),
    ("completions", completions::Completions::augment_args),
    ("help", help::Help::augment_args),
];

impl Cli {
    /// Parses arguments, of which the first is the name of the program.
    ///
    /// To describe all commands to the parser takes a millisecond at each start. A parser of one command accepts only what the
    /// parser of all of them accepts, with the same meaning; whatever else is given is left to the latter.
    pub(crate) fn read(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let mut names = arguments.iter().skip(1);
        if let Some(one) = names.find_map(|name| Self::of_one(name.to_str()?))
            && let Ok(mut matches) = one.try_get_matches_from(arguments)
            && let Ok(cli) = Self::from_arg_matches_mut(&mut matches)
        {
            return Ok(cli);
        }
        Self::try_parse_from(arguments)
    }

    /// Returns the parser of one command, or `None` if there is no command of that name.
    fn of_one(name: &str) -> Option<clap::Command> {
        let (name, describe) = COMMANDS.iter().find(|(known, _)| *known == name)?;
        let one = Global::augment_args(clap::Command::new("toolcell").disable_help_subcommand(true));
        Some(one.subcommand(describe(clap::Command::new(*name))))
    }
}

/// Runs the parsed command line and reports its failure.
pub(crate) fn execute(parsed: Result<Cli, Failure>, environment: &Environment) -> ExitCode {
    let console = Console::new(environment);
    let ended = parsed.and_then(|cli| block_on(cli, environment, &console));
    console.finish(ended).into()
}

fn block_on(cli: Cli, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
    let mut runtime = runtime::Builder::new_multi_thread();
    // One call runs in this thread. A worker for each processor, as other commands have them, would only take time to start.
    if matches!(cli.command, Command::Call(_)) {
        runtime.worker_threads(1);
    }
    let runtime = (runtime.enable_all().build())
        .map_err(|error| Failure::new(Exit::Internal, "could not start the async runtime").because(error))?;
    let ended = runtime.block_on(dispatch(cli, environment, console));
    // A call that does not stop when cancelled must not keep the process alive.
    runtime.shutdown_background();
    // A question that is no longer awaited may still hold the terminal in raw mode.
    terminal::restore();
    ended
}

/// Runs the selected command.
///
/// # Errors
/// Returns the failure to print.
async fn dispatch(cli: Cli, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
    interrupt::files_too_large();
    let telemetry = log::start(environment)?;
    let ended = Box::pin(run(cli, environment, console)).await;
    telemetry.end(console).await;
    ended
}

async fn run(cli: Cli, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
    let mut environment = environment.clone();
    environment.named_config = (cli.global.config.as_ref())
        .map(|path| environment.cwd.join(path))
        .or_else(|| {
            let path = environment.var("TOOLCELL_CONFIG")?;
            Some(environment.path(path, &environment.cwd))
        });
    let environment = &environment;
    // Shells run `completions` at each start.
    if !matches!(cli.command, Command::Completions(_)) {
        for warning in layers::unknown_variables(environment) {
            console.note(warning);
        }
    }
    let overrides = Overrides {
        config: cli.global.config,
        ..Overrides::default()
    };
    match cli.command {
        Command::Run(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Chat(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Session(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Call(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Tool(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Scratch(command) => command.run(overrides, environment, console),
        Command::Approval(command) => command.run(environment, console),
        Command::Instructions(command) => command.run(environment, console),
        Command::Bucket(command) => command.run(environment, console).await,
        Command::Mcp(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Serve(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Secret(command) => command.run(environment, console),
        Command::Key(command) => command.run(environment, console),
        Command::Policy(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Models(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Model(command) => command.run(environment, console),
        Command::Lock(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Config(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Doctor(command) => Box::pin(command.run(overrides, environment, console)).await,
        Command::Completions(command) => {
            Box::pin(command.run(Cli::command(), overrides, environment, console)).await
        }
        Command::Help(command) => command.run(Cli::command(), environment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    /// Returns every argument and subcommand with how it is parsed.
    fn described(command: &clap::Command) -> Vec<String> {
        let arguments = command.get_arguments().map(|argument| format!("{argument:?}"));
        let nested = command.get_subcommands().flat_map(|nested| {
            let name = nested.get_name().to_owned();
            described(nested)
                .into_iter()
                .map(move |line| format!("{name} {line}"))
        });
        arguments.chain(nested).collect()
    }

    #[test]
    fn parser_of_one_command_is_that_of_all() {
        let mut all = Cli::command();
        all.build();
        let names: Vec<&str> = all.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names, COMMANDS.map(|(name, _)| name));
        for name in names {
            let mut one = Cli::of_one(name).unwrap();
            one.build();
            let one = described(one.find_subcommand(name).unwrap());
            assert_eq!(one, described(all.find_subcommand(name).unwrap()), "{name}");
            assert!(!one.is_empty(), "{name}");
        }
        assert!(Cli::of_one("cal").is_none());
    }

    /// Names in a list of an argument, such as those that it requires.
    fn names_in(argument: &clap::Arg, list: &str) -> Vec<String> {
        let described = format!("{argument:?}");
        let (_, list) = described.split_once(&format!(", {list}: [")).unwrap();
        let (list, _) = list.split_once(']').unwrap();
        list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// clap takes an argument without the one that it requires if something given excludes that one: in `add --header X -- COMMAND`,
    /// the header requires an address, and a command excludes one, so that the header would be left out without an error.
    fn check_requirements(command: &clap::Command) -> usize {
        let all: Vec<_> = command.get_arguments().collect();
        let name = |argument: &clap::Arg| argument.get_id().to_string();
        let excludes = |one: &str, other: &str| {
            let says = |one, other: &str| {
                let mut all = all.iter().filter(|argument| name(argument) == one);
                all.any(|argument| names_in(argument, "conflicts").iter().any(|id| id == other))
            };
            says(one, other) || says(other, one)
        };
        let mut checked = 0;
        for argument in &all {
            let own = name(argument);
            for required in names_in(argument, "requires") {
                for other in all.iter().map(|other| name(other)).filter(|other| *other != own) {
                    let is_open = excludes(&required, &other) && !excludes(&own, &other);
                    assert!(!is_open, "{}: `{own}` with `{other}`", command.get_name());
                    checked += 1;
                }
            }
        }
        checked + command.get_subcommands().map(check_requirements).sum::<usize>()
    }

    #[test]
    fn argument_excludes_what_its_requirement_excludes() {
        let mut all = Cli::command();
        all.build();
        assert!(check_requirements(&all) > 50);
    }

    #[test]
    fn command_is_parsed_wherever_its_name_stands() {
        for line in [
            "toolcell session list",
            "toolcell --config run session list",
            "toolcell session --config run list",
            "toolcell session list --config=run",
        ] {
            let cli = Cli::read(&words(line)).unwrap();
            assert!(matches!(cli.command, Command::Session(_)), "{line}");
            let is_named = line.contains("--config");
            assert_eq!(
                cli.global.config,
                is_named.then(|| PathBuf::from("run")),
                "{line}"
            );
        }
        for line in [
            "toolcell",
            "toolcell --config run",
            "toolcell session",
            "toolcell session run",
            "toolcell --receipt call x",
        ] {
            let shown = Cli::read(&words(line)).unwrap_err().to_string();
            let by_all = Cli::try_parse_from(words(line)).unwrap_err().to_string();
            assert_eq!(shown, by_all, "{line}");
        }
    }
}

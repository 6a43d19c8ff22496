//! The command line: what can be written, and the help that explains it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands;
use crate::config::Overrides;
use crate::config::grants::FlagGrant;
use crate::config::limits::FlagLimit;
use crate::exit;

const EXAMPLES: &str = "\
Examples:
  toolcell run \"How many words are in README.md?\" --grant read=.
  toolcell call text_count '{\"text\": \"one two three\"}'
  toolcell tool inspect ./my.wasm

A tool is a WebAssembly component. Each call runs in a cell of its own, with its own memory, fuel and deadline, \
and reaches nothing that was not granted with --grant or in the configuration.";

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
    /// Read this file in the place of your own configuration.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands; each has a file under `commands/`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(commands::run::Run),
    Chat(commands::chat::Chat),
    Call(commands::call::Call),
    /// List, show, go on with, fork, export and delete sessions.
    #[command(subcommand)]
    Session(commands::session::Session),
    /// List and inspect tools, and trust those of a project.
    #[command(subcommand)]
    Tool(commands::tool::Tool),
    /// Look at what tools changed with `--scratch`, carry it out, or throw it away.
    #[command(subcommand)]
    Scratch(commands::scratch::Scratch),
    /// See and take back what you allowed for always when you were asked.
    #[command(subcommand)]
    Approval(commands::approval::Approval),
    /// Store and delete values in the keyring of this system.
    #[command(subcommand)]
    Secret(commands::secret::Secret),
    /// Explain what tools could do together.
    #[command(subcommand)]
    Policy(commands::policy::Policy),
    Lock(commands::lock::Lock),
    /// Check the configuration.
    #[command(subcommand)]
    Config(commands::config::Config),
    Doctor(commands::doctor::Doctor),
    Completions(commands::completions::Completions),
}

/// What tools may reach and use.
#[derive(Debug, Default, Args)]
pub(crate) struct PolicyFlags {
    /// Allow something (may be repeated), such as `read=.`, `write=out`, `env=LANG`, `http=example.com`.
    ///
    /// Nothing is granted otherwise, except what your own configuration grants. A grant holds for every component that
    /// takes part and is not of a project, or for the one named in front: `files:read=.`, `project:linter:read=.`.
    #[arg(long = "grant", value_name = "[COMPONENT:]GRANT")]
    pub(crate) grants: Vec<FlagGrant>,

    /// Set a limit of one call (may be repeated), such as `wall=60s`, `memory=512MiB`, `fuel=5G`.
    #[arg(long = "limit", value_name = "[COMPONENT:]NAME=VALUE")]
    pub(crate) limits: Vec<FlagLimit>,

    /// Allow grants that give away more than one may think: `/`, the home directory, keys, system directories, sockets.
    #[arg(long)]
    pub(crate) dangerous: bool,

    /// Let changes of files go to this directory, to look at them first (`toolcell scratch`).
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
}

impl PolicyFlags {
    /// Puts the flags into the last layer of the configuration.
    pub(crate) fn apply(&self, overrides: &mut Overrides) {
        overrides.grants.clone_from(&self.grants);
        overrides.limits.clone_from(&self.limits);
        overrides.dangerous = self.dangerous;
        overrides.scratch.clone_from(&self.scratch);
    }
}

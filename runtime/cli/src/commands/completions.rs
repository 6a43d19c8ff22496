//! `toolcell completions`: completions for a shell.

use std::io::Write as _;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::error::{Exit, Failure};
use crate::flags::Cli;

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell completions bash > ~/.local/share/bash-completion/completions/toolcell
  toolcell completions zsh > ~/.zfunc/_toolcell
  toolcell completions fish > ~/.config/fish/completions/toolcell.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "toolcell", &mut script);
        std::io::stdout().write_all(&script)?;
        Ok(Exit::Ok)
    }
}

//! `toolcell completions`: shell completions.

use std::io::Write as _;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::{Exit, Failure};

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell completions bash > ~/.local/share/bash-completion/completions/toolcell
  toolcell completions zsh > ~/.zfunc/_toolcell
  toolcell completions fish > ~/.config/fish/completions/toolcell.fish")]
pub(crate) struct Completions {
    /// Shell to complete for.
    shell: Shell,
}

impl Completions {
    /// Writes the completion script for `cli` to standard output.
    pub(crate) fn run(self, mut cli: Command) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut cli, "toolcell", &mut script);
        std::io::stdout().write_all(&script)?;
        Ok(Exit::Ok)
    }
}

//! `toolcell approval`: saved approvals.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::approval::saved_approvals::{self, SavedApproval};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::render::json::print_pretty;
use crate::ui::terminal::{FAINT, NAME, Name, STRONG, text};

/// List and revoke saved approvals.
#[derive(Debug, Subcommand)]
pub(crate) enum Approval {
    List(List),
    Forget(Forget),
}

/// List the calls that are always allowed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell approval list
  toolcell approval list --json")]
pub(crate) struct List {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Revoke a saved approval, so that its calls are asked about again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell approval forget 2
  toolcell approval forget --all

Exit codes:
    0   revoked
    2   there is no approval with this number
    3   the file cannot be used")]
pub(crate) struct Forget {
    /// Number shown by `toolcell approval list`.
    #[arg(required_unless_present = "all", value_parser = clap::value_parser!(u32).range(1..))]
    number: Option<u32>,

    /// Revoke all saved approvals.
    #[arg(long, conflicts_with = "number")]
    all: bool,
}

impl Approval {
    pub(crate) fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let (file, all) = read(environment)?;
        match self {
            Self::List(List { json: true }) => {
                print_pretty(&all)?;
            }
            Self::List(List { json: false }) => list(&all, console)?,
            Self::Forget(Forget { number, .. }) => {
                let left = match number {
                    None => Vec::new(),
                    Some(number) => without(all, number)?,
                };
                saved_approvals::write(&file, &left).map_err(|e| unusable(&file).because(e))?;
                console.note("revoked; you will be asked again");
            }
        }
        Ok(Exit::Ok)
    }
}

fn list(all: &[SavedApproval], console: &Console) -> Result<(), Failure> {
    if all.is_empty() {
        console.note("there are no saved approvals");
        return Ok(());
    }
    console.write(|s| {
        for (i, known) in all.iter().enumerate() {
            s.out.styled(NAME, text!("{}  ", i + 1))?;
            s.out.styled(STRONG, text!("{}", Name(&known.tool)))?;
            s.out.text(text!(" {}", known.arguments))?;
            s.out.styled(FAINT, text!("  {}", known.digest))?;
            s.out.end_line()?;
        }
        s.out.flush()
    })?;
    Ok(())
}

/// Removes the approval with this number.
fn without(mut all: Vec<SavedApproval>, number: u32) -> Result<Vec<SavedApproval>, Failure> {
    let index = number as usize - 1;
    if index >= all.len() {
        return Err(
            Failure::new(Exit::Usage, text!("there is no approval {}", number))
                .hint("`toolcell approval list` lists them"),
        );
    }
    all.remove(index);
    Ok(all)
}

fn read(environment: &Environment) -> Result<(PathBuf, Vec<SavedApproval>), Failure> {
    let file = saved_approvals::file(environment).ok_or_else(|| {
        Failure::new(Exit::Config, "approvals cannot be saved").why("there is no home directory")
    })?;
    match saved_approvals::read(&file) {
        Ok(all) => Ok((file, all)),
        Err(error) => Err(unusable(&file).because(error)),
    }
}

fn unusable(file: &std::path::Path) -> Failure {
    Failure::new(
        Exit::Config,
        text!("the file `{}` cannot be used", file.display()),
    )
    .hint("delete it to be asked again about every call")
}

//! `toolcell approval`: saved approvals.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::approval::saved_approvals::{self, SavedApproval};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::render::json::print_pretty;
use crate::ui::render::numbered::{self, Entry};
use crate::ui::terminal::text;

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
    2   there is no entry with this number
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
        let (file, mut all) = read(environment)?;
        match self {
            Self::List(List { json: true }) => print_pretty(console, &all)?,
            Self::List(List { json: false }) => {
                let entries: Vec<Entry<'_>> = all.iter().map(entry).collect();
                numbered::print(console, "there are no saved approvals", &entries)?;
            }
            Self::Forget(Forget { number, .. }) => {
                numbered::remove(&mut all, number, "toolcell approval list")?;
                saved_approvals::write(&file, &all).map_err(|e| unusable(&file).because(e))?;
                console.note("revoked; you will be asked again");
            }
        }
        Ok(Exit::Ok)
    }
}

fn entry(saved: &SavedApproval) -> Entry<'_> {
    Entry {
        name: &saved.tool,
        detail: text!("{}", saved.arguments),
        digest: &saved.digest,
    }
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

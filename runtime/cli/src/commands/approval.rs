//! `toolcell approval`: calls that a person allowed for always.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::approval::saved_approvals::{self, Remembered};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::render::json::print_pretty;
use crate::ui::terminal::{FAINT, NAME, Name, STRONG, text};

/// See and take back what you allowed for always when you were asked.
#[derive(Debug, Subcommand)]
pub(crate) enum Approval {
    List(List),
    Forget(Forget),
}

/// List what you allowed for always.
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

/// Ask again in future.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell approval forget 2
  toolcell approval forget --all

Exit codes:
    0   it is forgotten
    2   there is no such number
    3   the file cannot be used")]
pub(crate) struct Forget {
    /// The number that `toolcell approval list` shows.
    #[arg(required_unless_present = "all", value_parser = clap::value_parser!(u32).range(1..))]
    number: Option<u32>,

    /// Forget everything.
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
                console.note("forgotten; you will be asked again");
            }
        }
        Ok(Exit::Ok)
    }
}

fn list(all: &[Remembered], console: &Console) -> Result<(), Failure> {
    if all.is_empty() {
        console.note("nothing is allowed for always");
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

/// All but the one with this number.
fn without(mut all: Vec<Remembered>, number: u32) -> Result<Vec<Remembered>, Failure> {
    let index = number as usize - 1;
    if index >= all.len() {
        return Err(
            Failure::new(Exit::Usage, text!("there is no number {} in the list", number))
                .hint("`toolcell approval list` shows them"),
        );
    }
    all.remove(index);
    Ok(all)
}

fn read(environment: &Environment) -> Result<(PathBuf, Vec<Remembered>), Failure> {
    let file = saved_approvals::file(environment).ok_or_else(|| {
        Failure::new(Exit::Config, "nothing can be remembered").why("there is no home directory")
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
    .hint("delete it, and you will be asked again for everything")
}

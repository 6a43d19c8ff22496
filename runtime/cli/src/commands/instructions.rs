//! `toolcell instructions`: decisions about the instructions of projects (`AGENTS.md`).

use clap::{Args, Subcommand};

use crate::agent::project_instructions::{self, Decided, FILE, Offered};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::render::json::print_pretty;
use crate::ui::render::numbered::{self, Entry};
use crate::ui::terminal::{Own, Shown, text};

/// Accept, list and forget instructions of projects (`AGENTS.md`).
#[derive(Debug, Subcommand)]
pub(crate) enum Instructions {
    Accept(Accept),
    List(List),
    Forget(Forget),
}

/// Accept the `AGENTS.md` of this project as instructions for the model.
///
/// At a terminal the text is shown and you are asked; elsewhere its digest must be given. The decision is bound to the
/// digest: if the file changes, you are asked again. It grants no access.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell instructions accept
  toolcell instructions accept --digest \"$(sha256sum AGENTS.md | cut -d' ' -f1)\"
  toolcell run \"Which style is used here?\" --project-instructions accepted < /dev/null

{}", crate::exit::TABLE))]
pub(crate) struct Accept {
    /// Digest of the file that you have read; any other is refused.
    #[arg(long, value_name = "SHA256")]
    digest: Option<String>,
}

/// List the texts about which you decided.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell instructions list
  toolcell instructions list --json")]
pub(crate) struct List {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Forget a decision, so that you are asked again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell instructions forget 2
  toolcell instructions forget --all

Exit codes:
    0   forgotten
    2   there is no entry with this number
    3   the file cannot be used")]
pub(crate) struct Forget {
    /// Number shown by `toolcell instructions list`.
    #[arg(required_unless_present = "all", value_parser = clap::value_parser!(u32).range(1..))]
    number: Option<u32>,

    /// Forget all decisions.
    #[arg(long, conflicts_with = "number")]
    all: bool,
}

impl Instructions {
    pub(crate) fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        match self {
            Self::Accept(accept) => accept.run(environment, console)?,
            Self::List(List { json }) => {
                let all = project_instructions::read(environment)?;
                if json {
                    print_pretty(console, &all)?;
                } else {
                    let entries: Vec<Entry<'_>> = all.iter().map(entry).collect();
                    numbered::print(console, "there are no decisions", &entries)?;
                }
            }
            Self::Forget(Forget { number, .. }) => {
                let mut all = project_instructions::read(environment)?;
                numbered::remove(&mut all, number, "toolcell instructions list")?;
                project_instructions::write(&all, environment)?;
                console.note("forgotten; you will be asked again");
            }
        }
        Ok(Exit::Ok)
    }
}

impl Accept {
    fn run(self, environment: &Environment, console: &Console) -> Result<(), Failure> {
        let Some(offered) = project_instructions::find(environment)? else {
            return Err(Failure::new(Exit::Usage, text!("the project has no `{}`", FILE))
                .why("it is looked for from the working directory up to the root of the project, which has `toolcell.toml` or `.git`"));
        };
        let digest = offered.digest();
        let Some(expected) = &self.digest else {
            return ask(&offered, environment, console);
        };
        if expected != digest && Some(expected.as_str()) != digest.strip_prefix("sha256:") {
            let failure = text!("`{}` does not have the expected digest", offered.shown_path());
            return Err(Failure::new(Exit::Denied, failure)
                .why(text!("its digest is {}", digest))
                .hint("read it again before you accept it"));
        }
        project_instructions::decide(&offered, true, environment)?;
        console.note(text!("accepted: `{}`, {}", offered.shown_path(), digest));
        Ok(())
    }
}

fn ask(offered: &Offered, environment: &Environment, console: &Console) -> Result<(), Failure> {
    if !environment.terminals.can_ask() {
        let failure = text!("`{}` cannot be shown to you", offered.shown_path());
        return Err(Failure::new(Exit::Denied, failure)
            .why("standard input and standard error are not a terminal")
            .hint(text!(
                "read the file, then: toolcell instructions accept --digest {}",
                offered.digest()
            )));
    }
    let decided = project_instructions::decide_at_terminal(offered, environment, console)?;
    let outcome = match decided {
        Some(true) => text!("accepted: `{}`, {}", offered.shown_path(), offered.digest()),
        Some(false) => text!("not used: `{}`, {}", offered.shown_path(), offered.digest()),
        None => return Err(Failure::new(Exit::Denied, "nothing was decided")),
    };
    console.note(outcome);
    Ok(())
}

fn entry(decided: &Decided) -> Entry<'_> {
    let is_used = if decided.is_used { "used" } else { "not used" };
    Entry {
        name: FILE,
        detail: text!("{}  {}", Own(is_used), Shown(&decided.path)),
        digest: &decided.digest,
    }
}

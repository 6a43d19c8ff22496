//! `toolcell tool trust`, `trusted` and `forget`: trust in components of projects.

use clap::Args;

use crate::components::loader::ComponentLoader;
use crate::components::trust;
use crate::config::source::PROJECT;
use crate::config::{self, Overrides};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::render::json::print_pretty;
use crate::ui::render::numbered::{self, Entry};
use crate::ui::terminal::{Shown, text};

/// Trust a component of this project (`project:NAME`), so that it can run.
///
/// Trust is bound to the digest of the file: if the file changes, you are asked again. Trust grants no access.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool inspect project:linter
  toolcell tool trust project:linter
  toolcell call project:linter '{{}}' --grant project:linter:read=.

{}", crate::exit::TABLE))]
pub(crate) struct Trust {
    /// The component, `project:NAME`.
    #[arg(value_name = "NAME")]
    component: String,

    /// Expected digest of the component; any other is refused.
    #[arg(long, value_name = "SHA256")]
    digest: Option<String>,
}

/// List the trusted components of projects.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell tool trusted
  toolcell tool trusted --json")]
pub(crate) struct Trusted {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Revoke trust in a component of a project.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell tool forget 2
  toolcell tool forget --all

Exit codes:
    0   revoked
    2   there is no entry with this number
    3   the file cannot be used")]
pub(crate) struct Forget {
    /// Number shown by `toolcell tool trusted`.
    #[arg(required_unless_present = "all", value_parser = clap::value_parser!(u32).range(1..))]
    number: Option<u32>,

    /// Revoke trust in all components.
    #[arg(long, conflicts_with = "number")]
    all: bool,
}

impl Trust {
    pub(crate) fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let settings = config::load(environment, overrides)?;
        let name = self.component.strip_prefix(PROJECT).unwrap_or(&self.component);
        let Some(component) = settings.tools.get(&format!("{PROJECT}{name}")) else {
            return Err(
                Failure::new(Exit::Usage, text!("the project has no component `{}`", name))
                    .hint("only components of a project need trust; `toolcell tool list` lists them"),
            );
        };
        let digest = ComponentLoader::digest(component, environment)?;
        if let Some(expected) = &self.digest
            && *expected != digest.to_string()
            && *expected != digest.hex()
        {
            return Err(Failure::new(
                Exit::Denied,
                text!("`{}` does not have the expected digest", component.name),
            )
            .why(text!("its digest is {}", digest))
            .hint("review it with `toolcell tool inspect`"));
        }
        let trusted = trust::Trusted::new(component, &digest, environment);
        console.note(text!(
            "`{}` is now trusted: `{}`, {}",
            component.name,
            trusted.path,
            digest
        ));
        trust::add(trusted, environment)?;
        Ok(Exit::Ok)
    }
}

impl Trusted {
    pub(crate) fn run(&self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let all = read(environment)?;
        if self.json {
            print_pretty(console, &all)?;
            return Ok(Exit::Ok);
        }
        let entries: Vec<Entry<'_>> = all.iter().map(entry).collect();
        numbered::print(console, "there are no trusted components", &entries)?;
        Ok(Exit::Ok)
    }
}

fn entry(trusted: &trust::Trusted) -> Entry<'_> {
    Entry {
        name: &trusted.component,
        detail: text!("{}", Shown(&trusted.path)),
        digest: &trusted.digest,
    }
}

impl Forget {
    pub(crate) fn run(&self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let mut all = read(environment)?;
        numbered::remove(&mut all, self.number, "toolcell tool trusted")?;
        if let Some(file) = trust::file(environment) {
            trust::write(&file, &all)?;
        }
        console.note("revoked; you will be asked again");
        Ok(Exit::Ok)
    }
}

fn read(environment: &Environment) -> Result<Vec<trust::Trusted>, Failure> {
    match trust::file(environment) {
        Some(file) => trust::read(&file),
        None => Ok(Vec::new()),
    }
}

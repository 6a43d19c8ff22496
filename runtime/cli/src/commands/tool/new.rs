//! `toolcell tool new`: writes a new tool.

use clap::Args;

use crate::authoring::language::Language;
use crate::authoring::project;
use crate::components::builtin;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::terminal::{Own, text};

/// Write a new tool, with tests and the SDK of its language, into a directory of its name.
///
/// It needs no network. `toolcell tool build` makes a component of it.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool new roman --lang rust
  toolcell tool new roman --lang ts

{}", crate::exit::TABLE))]
pub(crate) struct New {
    /// Name of the tool and of its directory: lower-case letters, digits, `_` and `-`.
    name: String,

    /// Language.
    #[arg(long, value_name = "LANGUAGE")]
    lang: Language,
}

impl New {
    pub(crate) fn run(&self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let fail = || Failure::new(Exit::Usage, text!("could not create the tool `{}`", self.name));
        if builtin::is_taken(&self.name) {
            return Err(fail()
                .why(text!("a tool of Toolcell has the name `{}`", self.name))
                .hint("take another name"));
        }
        if self.name.starts_with("toolcell") {
            return Err(fail()
                .why("names that begin with `toolcell` are those of Toolcell's own libraries")
                .hint("take another name"));
        }
        let dir = environment.cwd.join(&self.name);
        project::create(&dir, &self.name, self.lang)?;
        console.write(|s| {
            let language = Own(self.lang.title());
            s.out
                .line(text!("wrote the tool `{}` in {}", self.name.clone(), language))?;
            s.out.flush()
        })?;
        console.note("next:");
        console.note(text!("  cd {}", self.name.clone()));
        for command in self.lang.preparation() {
            console.note(text!("  {}", Own(command)));
        }
        console.note("  toolcell tool build");
        Ok(Exit::Ok)
    }
}

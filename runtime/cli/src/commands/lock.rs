//! `toolcell lock`: approves the current tools and hooks.

use clap::Args;

use crate::components::loader::ComponentLoader;
use crate::components::lock::{self, LockFile};
use crate::components::selection;
use crate::components::tool_lint;
use crate::config::{self, Overrides};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::PolicyFlags;
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Write `toolcell.lock` with the current tools and their grants.
///
/// The file contains digests of the bytes and of the descriptions and schemas that the model reads, the imports, the
/// grants, and the configured hooks. `toolcell run --locked` then refuses anything that differs, and lists the
/// differences.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell lock
  toolcell lock --tool ./my.wasm --grant read=.
  toolcell lock --check

{}", crate::exit::TABLE))]
pub(crate) struct Lock {
    /// Lock only this component: a name or a `.wasm` file (repeatable). Defaults to all built-in and configured ones.
    #[arg(long = "tool", value_name = "NAME|FILE")]
    tools: Vec<String>,

    #[command(flatten)]
    policy: PolicyFlags,

    /// Write nothing; check the tools against the file.
    #[arg(long)]
    check: bool,
}

impl Lock {
    pub(crate) async fn run(
        self,
        mut overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        self.policy.apply(&mut overrides);
        let settings = config::load(environment, overrides)?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let loaded = selection::load(&loader, &self.tools, console).await?;
        let hooks = loader.hooks().await?;
        if self.check {
            lock::check(&loaded, Some(&hooks), environment)?;
            console.note(text!("the tools match `{}`", lock::FILE));
            return Ok(Exit::Ok);
        }
        for finding in tool_lint::among(&loaded).values().flatten() {
            console.note(text!("warning: {}", finding));
        }
        let lock = LockFile::of(&loaded, &hooks);
        lock.write(&lock::path(environment))?;
        let names: Vec<String> = lock.names().collect();
        console.note(text!("`{}` contains {}", lock::FILE, names.join(", ")));
        Ok(Exit::Ok)
    }
}

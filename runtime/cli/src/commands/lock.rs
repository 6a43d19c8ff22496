//! `toolcell lock`: approve of the tools as they are now.

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

/// Write `toolcell.lock`: what the tools are now, and what they are granted.
///
/// It holds digests of the bytes, of the descriptions and schemas that the model reads, the imports and the grants. The
/// hooks that are configured are in it too. `toolcell run --locked` then refuses whatever differs and says what it is.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell lock
  toolcell lock --tool ./my.wasm --grant read=.
  toolcell lock --check

{}", crate::exit::TABLE))]
pub(crate) struct Lock {
    /// Lock only this component: a name or a `.wasm` file; may be repeated. Otherwise all that ship or are configured.
    #[arg(long = "tool", value_name = "NAME|FILE")]
    tools: Vec<String>,

    #[command(flatten)]
    policy: PolicyFlags,

    /// Write nothing; say whether the tools are what the file says.
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
        let toolbox = ComponentLoader::open(environment, &settings, console)?;
        let loaded = selection::load(&toolbox, &self.tools, console).await?;
        let hooks = toolbox.hooks().await?;
        if self.check {
            lock::check(&loaded, Some(&hooks), environment)?;
            console.note(text!("the tools are what `{}` says", lock::FILE));
            return Ok(Exit::Ok);
        }
        for suspicion in tool_lint::among(&loaded).values().flatten() {
            console.note(text!("look out: {}", suspicion));
        }
        let lock = LockFile::of(&loaded, &hooks);
        lock.write(&lock::path(environment))?;
        let names: Vec<String> = lock.names().collect();
        console.note(text!("`{}` holds {}", lock::FILE, names.join(", ")));
        Ok(Exit::Ok)
    }
}

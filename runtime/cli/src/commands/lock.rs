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
use crate::mcp::servers::{self, Servers};
use crate::ui::render::Console;
use crate::ui::terminal::{Own, Text, text};

/// Write `toolcell.lock` with the current tools and their grants.
///
/// The file contains digests of the bytes and of the descriptions and schemas that the model reads, the imports, the
/// grants, the configured hooks, and the definitions of the tools of MCP servers, which are started. `toolcell run --locked` then refuses anything that differs, and lists the
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
        let (components, wanted) = servers::select(&self.tools, &settings);
        let loaded = match (self.tools.is_empty(), components.is_empty()) {
            // Only servers are named.
            (false, true) => Vec::new(),
            _ => selection::load(&loader, &components, console).await?,
        };
        let hooks = loader.hooks().await?;
        let names: Vec<String> = wanted.iter().map(|server| server.name.clone()).collect();
        let servers = Servers::start(wanted, &loaded, &loader, console).await?;
        let is_running = |name: &&String| servers.iter().any(|running| running.settings.name == **name);
        if let Some(missing) = names.iter().find(|name| !is_running(name)) {
            return Err(
                Failure::new(Exit::Config, text!("`{}` was not written", lock::FILE))
                    .why(text!("the MCP server `{}` does not run", missing))
                    .hint("disable it, or name what to lock with --tool"),
            );
        }
        if self.check {
            lock::check(&loaded, Some(&hooks), environment)?;
            lock::check_servers(&servers, environment)?;
            servers.stop().await;
            console.note(text!("the tools match `{}`", lock::FILE));
            return Ok(Exit::Ok);
        }
        for finding in tool_lint::among(&loaded)
            .values()
            .flatten()
            .chain(servers.findings().flat_map(|(_, found)| found))
        {
            console.note(text!("warning: {}", finding));
        }
        let lock = LockFile::of(&loaded, &hooks, &servers, environment);
        servers.stop().await;
        lock.write(&lock::path(environment))?;
        let names: Vec<String> = lock.names().collect();
        console.note(text!(
            "`{}` contains {}",
            Own(lock::FILE),
            Text::sentence(&names.join(", "), [])
        ));
        Ok(Exit::Ok)
    }
}

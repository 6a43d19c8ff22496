//! `toolcell mcp serve`: serves tools to clients of the Model Context Protocol.

mod call_log;
mod clients;
mod directories;
mod http;
mod mounted;
mod oauth;
mod offer;
mod reload;
mod stdio;

use clap::Args;
use tokio_util::sync::CancellationToken;

use self::clients::Clients;
use self::directories::Directories;
use self::http::Http;
pub(in crate::commands) use self::http::{ClientToken, read_tokens};
pub(in crate::commands) use self::mounted::{Mounted, Served};
use self::offer::Offer;
use self::reload::Reload;
use crate::components::loader::ComponentLoader;
use crate::components::selection;
use crate::config::file::FlowRule;
use crate::config::{self, Overrides, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::PolicyFlags;
use crate::ui::interrupt::Interrupts;
use crate::ui::render::Console;

/// Serve tools to an MCP client over standard input and output, or to many over HTTP.
///
/// The client starts this command; with --http, it serves until Ctrl-C or SIGTERM. Grants come from these flags and your configuration; the client cannot change them.
/// Messages for you go to standard error, which most clients keep as the log of the server.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell mcp serve --http 127.0.0.1:8080 --tool text
  toolcell mcp serve --http 0.0.0.0:8080 --token-file tokens --allow-host tools.example
  toolcell mcp serve --http 127.0.0.1:8080 --oauth-issuer https://login.example \
    --oauth-resource https://tools.example/mcp --oauth-subject ada
  toolcell mcp serve --http 127.0.0.1:8080 --agent counter

Example of a client's configuration:
  {{\"mcpServers\": {{\"toolcell\": {{\"command\": \"toolcell\",
    \"args\": [\"mcp\", \"serve\", \"--tool\", \"files\", \"--grant\", \"files:read=/home/me/notes\"]}}}}}}

{}", crate::exit::TABLE))]
pub(crate) struct Serve {
    /// Serve only this component: a name or a `.wasm` file (repeatable). Defaults to all built-in and configured ones.
    #[arg(long = "tool", value_name = "NAME|FILE")]
    tools: Vec<String>,

    /// Offer the files below this directory as resources, read-only (repeatable).
    #[arg(long, value_name = "DIR", conflicts_with = "agent")]
    resources: Vec<String>,

    /// Serve an agent of `[agents]` as the only tool: a client gives it a task, and gets its answer.
    #[arg(long, value_name = "NAME", conflicts_with = "tools")]
    agent: Option<String>,

    #[command(flatten)]
    policy: PolicyFlags,

    /// What to do with a call that would combine private data, untrusted content and network egress [default: ask].
    #[arg(long, value_name = "ACTION")]
    flow: Option<FlowRule>,

    /// Refuse tools that differ from `toolcell.lock`.
    #[arg(long)]
    locked: bool,

    #[command(flatten)]
    http: Http,
}

impl Serve {
    /// True if clients connect to an address.
    pub(super) fn is_over_http(&self) -> bool {
        self.http.address.is_some()
    }

    /// True if tools that differ from the lock file are refused.
    pub(super) fn is_locked(&self) -> bool {
        self.locked
    }

    /// Loads the settings and what is served once, as [`run`](Self::run) does. Returns the settings.
    ///
    /// # Errors
    /// Returns the error with which the server would end.
    pub(super) async fn check(
        &self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Settings, Failure> {
        let settings = self.settings(overrides, environment)?;
        drop(Box::pin(self.offer(&settings, environment, console)).await?);
        Ok(settings)
    }

    fn settings(&self, mut overrides: Overrides, environment: &Environment) -> Result<Settings, Failure> {
        self.policy.apply(&mut overrides);
        overrides.flow = self.flow;
        config::load(environment, overrides)
    }

    pub(super) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let terminals = environment.terminals;
        if self.http.address.is_none() && (terminals.stdin || terminals.stdout) {
            return Err(
                Failure::new(Exit::Usage, "there is no MCP client to serve")
                    .why("standard input or output is a terminal")
                    .hint("add `toolcell mcp serve` to the configuration of an MCP client, which starts it, or add --http 127.0.0.1:8080; `toolcell call` calls a tool by hand"),
            );
        }
        let settings = self.settings(overrides, environment)?;
        let (offer, mut reload) = Box::pin(self.offer(&settings, environment, console)).await?;
        let clients = Clients::new(offer, &settings, environment, console);
        let stop = CancellationToken::new();
        let interrupts = Interrupts::watch(console.clone());
        let _guard = interrupts.stop_next(stop.clone());
        let serve = async {
            match self.http.address {
                None => clients.serve_stdio(&stop).await,
                Some(address) => Box::pin(clients.serve_http(&self.http, address, &stop)).await,
            }
        };
        let watch = async {
            match &mut reload {
                Some(reload) => Box::pin(reload.watch(&clients)).await,
                None => std::future::pending().await,
            }
        };
        let served = tokio::select! {
            served = serve => served,
            never = watch => match never {},
        };
        clients.end().await;
        served
    }

    /// Loads what is served, and prepares to load it again: an agent stays as it is.
    async fn offer<'a>(
        &self,
        settings: &'a Settings,
        environment: &'a Environment,
        console: &'a Console,
    ) -> Result<(Offer, Option<Reload<'a>>), Failure> {
        if let Some(name) = &self.agent {
            let offer = Offer::agent(name, self.locked, settings, environment, console).await?;
            return Ok((offer, None));
        }
        let loader = ComponentLoader::open(environment, settings, console)?;
        let wanted = selection::choose(&loader, &self.tools, console).await?;
        let directories = Directories::new(&self.resources, settings, environment)?;
        let begun = Reload::begin(loader, wanted, directories, self.locked, console);
        let (reload, offer) = Box::pin(begun).await?;
        Ok((offer, Some(reload)))
    }
}

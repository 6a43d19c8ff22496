//! `toolcell mcp serve`: serves tools to clients of the Model Context Protocol.

mod call_log;
mod clients;
mod http;
mod offer;

use clap::Args;
use tokio_util::sync::CancellationToken;

use self::clients::Clients;
use self::http::Http;
use self::offer::Offer;
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
  toolcell mcp serve --http 127.0.0.1:8080 --agent counter

Example of a client's configuration:
  {{\"mcpServers\": {{\"toolcell\": {{\"command\": \"toolcell\",
    \"args\": [\"mcp\", \"serve\", \"--tool\", \"files\", \"--grant\", \"files:read=/home/me/notes\"]}}}}}}

{}", crate::exit::TABLE))]
pub(crate) struct Serve {
    /// Serve only this component: a name or a `.wasm` file (repeatable). Defaults to all built-in and configured ones.
    #[arg(long = "tool", value_name = "NAME|FILE")]
    tools: Vec<String>,

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

    pub(super) async fn run(
        self,
        mut overrides: Overrides,
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
        self.policy.apply(&mut overrides);
        overrides.flow = self.flow;
        let settings = config::load(environment, overrides)?;
        let offer = Box::pin(self.offer(&settings, environment, console)).await?;
        let clients = Clients {
            offer: &offer,
            settings: &settings,
            environment,
            console,
        };
        let stop = CancellationToken::new();
        let interrupts = Interrupts::watch(console.clone());
        let _guard = interrupts.stop_next(stop.clone());
        let served = match self.http.address {
            None => clients.serve_stdio(&stop).await,
            Some(address) => Box::pin(clients.serve_http(&self.http, address, &stop)).await,
        };
        offer.end().await;
        served
    }

    async fn offer(
        &self,
        settings: &Settings,
        environment: &Environment,
        console: &Console,
    ) -> Result<Offer, Failure> {
        match &self.agent {
            Some(name) => Offer::agent(name, self.locked, settings, environment, console).await,
            None => Offer::components(&self.tools, self.locked, settings, environment, console).await,
        }
    }
}

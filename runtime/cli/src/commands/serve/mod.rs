//! `toolcell serve`: serves agents to a browser, to OpenAI clients, and by an API of its own.

mod audit;
mod clients;
mod describe;
mod held;
mod host;
mod ledger;
mod scratch;
mod turn;

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolcell_core::Grant;
use toolcell_fs::Rules;
use toolcell_http::{Reached, Token};
use toolcell_serve::{Access, Client, ClientLimits, LINK_PATH, MAX_CONNECTIONS, PageKey, Server};

use self::clients::ClientSettings;
use self::host::{AgentHost, OwnAgents};
use crate::agent::setup;
use crate::commands::allowed;
use crate::commands::mcp::serve::{Mounted, Served, read_tokens};
use crate::components::keyring::Keyring;
use crate::config::{self, Overrides, ToolSettings};
use crate::environment::{Environment, ServedClient};
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::session::store;
use crate::ui::interrupt::Interrupts;
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Default address.
const ADDRESS: &str = "127.0.0.1:8787";

/// File of the user's token in the state directory.
const TOKEN_FILE: &str = "serve-token";

/// Maximum size of that file, in bytes.
const MAX_TOKEN: u64 = 4 << 10;

/// Serve the agent over HTTP: a page for the browser, OpenAI clients at /v1, and MCP clients at /mcp.
///
/// The page opens with the link that is printed. Programs send a bearer token: yours is stored in your state directory, others are those of
/// --token-file, each with sessions of its own. Grants come from these flags and your configuration; nothing is granted over HTTP.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell serve
  toolcell serve --http 127.0.0.1:9000 --tool text --tool files --grant files:read=.
  toolcell serve --tool text --resources notes
  toolcell serve --http 0.0.0.0:8787 --token-file tokens --allow-host agents.example

{}", crate::exit::TABLE))]
pub(crate) struct Serve {
    /// Serve at this address.
    #[arg(long = "http", value_name = "ADDRESS", default_value = ADDRESS)]
    address: SocketAddr,

    /// Accept the bearer tokens in this file as well, one on each line, with the settings of its client. It must be readable by you alone.
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,

    /// Accept the bearer token in this account of the keyring as well (repeatable). `toolcell secret set` stores it.
    #[arg(long = "token-keyring", value_name = "ACCOUNT")]
    token_accounts: Vec<String>,

    /// Accept requests to this host, with its port, beside the address (repeatable).
    #[arg(long = "allow-host", value_name = "HOST", value_parser = allowed::host)]
    hosts: Vec<String>,

    /// Accept requests from web pages of this origin, such as `https://example.com` (repeatable).
    #[arg(long = "allow-origin", value_name = "ORIGIN", value_parser = allowed::origin)]
    origins: Vec<String>,

    /// Offer the files below this directory to MCP clients at /mcp as resources, read-only (repeatable).
    #[arg(long, value_name = "DIR")]
    resources: Vec<String>,

    #[command(flatten)]
    agent: AgentFlags,
}

impl Serve {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let secret = own_secret(environment)?;
        let own = Token::new(&secret).map_err(|error| {
            Failure::new(Exit::Config, "the token of `toolcell serve` cannot be used")
                .because(error)
                .hint(text!("delete the file `{}` of your state directory", TOKEN_FILE))
        })?;
        let others = read_tokens(
            self.token_file.as_deref(),
            &self.token_accounts,
            environment,
            &Keyring::of_system(),
        )?;
        let others = clients::read(others)?;
        if let Some(client) = others.iter().find(|client| client.token == own) {
            return Err(Failure::new(Exit::Config, "a token occurs twice")
                .why(text!("the client `{}` has your own token", client.name)));
        }
        let own_environment = served(environment, "", None, !others.is_empty());
        let environment = &own_environment;
        let reached = Reached {
            hosts: self.hosts.clone(),
            origins: self.origins.clone(),
        };
        let mut with_flags = overrides.clone();
        self.agent.apply(&mut with_flags, environment)?;
        let settings = config::load(environment, with_flags)?;
        let store = Arc::new(store::open_file(environment)?);
        let setup = Box::pin(setup::assemble(
            &self.agent,
            overrides.clone(),
            environment,
            console,
            Some(store.clone()),
        ))
        .await?;
        console.note(setup.note.clone());
        let mut own_agents = Vec::new();
        let mut environments = Vec::new();
        for client in &others {
            check_limits(client, &setup)?;
            let environment =
                needs_own(client, &setup).then(|| served(environment, &client.name, client.calls, true));
            environments.push(environment);
        }
        let mut tokens = vec![(own.clone(), None)];
        for (client, environment) in others.iter().zip(&environments) {
            tokens.push((client.token.clone(), environment.as_ref()));
            if let Some(environment) = environment {
                let store: Arc<dyn toolcell_core::SessionStore> = store.clone();
                let assembled =
                    setup::assemble(&self.agent, overrides.clone(), environment, console, Some(store));
                let setup = Box::pin(assembled).await?;
                own_agents.push((client.name.clone(), OwnAgents::of(setup)));
            }
        }
        let for_mcp = Served {
            tools: &self.agent.tools,
            resources: &self.resources,
            is_locked: self.agent.locked,
            settings: &settings,
            console,
        };
        let mounted = Mounted::new(tokens, reached.clone(), for_mcp, environment);
        let mut mounted = Box::pin(mounted).await?;

        let failed = || {
            Failure::new(
                Exit::Failed,
                text!("cannot listen on `{}`", self.address.to_string()),
            )
        };
        let listener = TcpListener::bind(self.address).await;
        let listener = listener.map_err(|error| failed().because(error))?;
        let address = listener.local_addr().map_err(|error| failed().because(error))?;
        let daily = (others.iter())
            .map(|client| (client.name.clone(), client.daily))
            .collect();
        let mut clients = vec![Client {
            name: String::new(),
            token: own,
            limits: ClientLimits::default(),
        }];
        clients.extend(others.into_iter().map(|client| Client {
            name: client.name,
            token: client.token,
            limits: client.limits,
        }));
        // Nothing can be reached at an unspecified address.
        let shown = match self.hosts.first() {
            Some(host) if address.ip().is_unspecified() => format!("http://{host}"),
            _ => format!("http://{address}"),
        };
        let printer = console.clone();
        let at = shown.clone();
        let print = Box::new(move |link: &str| {
            printer.note(text!("to open the page: {}", format!("{at}{link}")));
        });
        let access = Access::new(clients, PageKey::of_secret(&secret), print);
        let host = AgentHost::new(
            setup,
            (own_agents, daily),
            (&settings, self.agent.locked),
            store,
            environment,
        )?;
        let server = Server::new(host.clone(), access, reached, mounted.service());
        tell(address, &shown, environment, console);
        server.print_link();

        let stop = CancellationToken::new();
        let interrupts = Interrupts::watch(console.clone());
        let _guard = interrupts.stop_next(stop.clone());
        let served = tokio::select! {
            served = toolcell_http::serve(server, listener, MAX_CONNECTIONS, &stop) => served,
            never = mounted.watch() => match never {},
        };
        host.end().await;
        mounted.end().await;
        served
            .map_err(|error| Failure::new(Exit::Failed, "the clients could not be served").because(error))?;
        Ok(Exit::Ok)
    }
}

/// Environment of a client.
fn served(environment: &Environment, name: &str, calls: Option<usize>, has_others: bool) -> Environment {
    let mut environment = environment.clone();
    environment.client = Some(ServedClient {
        name: name.to_owned(),
        calls: calls.map(|calls| Arc::new(Semaphore::new(calls))),
        has_others,
    });
    environment
}

/// True if the components of a client cannot be those of the others: they keep something, or their calls are limited.
fn needs_own(client: &ClientSettings, setup: &setup::AgentSetup) -> bool {
    let keeps = |settings: &ToolSettings| {
        let grants = settings.grants.iter();
        grants
            .map(|line| &line.grant)
            .any(|grant| matches!(grant, Grant::Bucket(_)))
    };
    client.calls.is_some()
        || setup.servers.iter().next().is_some()
        || setup.loaded.iter().any(|loaded| keeps(&loaded.settings))
        || setup.hooks.iter().any(|hook| keeps(&hook.settings.component))
}

/// Checks that the limits of a client can be kept.
fn check_limits(client: &ClientSettings, setup: &setup::AgentSetup) -> Result<(), Failure> {
    let failed = || {
        Failure::new(
            Exit::Config,
            text!("the client `{}` cannot be served", client.name),
        )
    };
    for agent in client.limits.agents.iter().flatten() {
        let is_known = agent == host::MAIN || setup.subagents.iter().any(|known| known.name == *agent);
        if !is_known {
            return Err(failed()
                .why(text!("there is no agent `{}`", agent))
                .hint("agents are `default` and those of `[agents]`"));
        }
    }
    let has_prices = setup.agent.policy().budget.prices.is_some();
    if client.daily.cost_micros.is_some() && !has_prices {
        return Err(failed()
            .why("it has a limit of its cost, and the prices of the model are not known")
            .hint("set the prices of the model in [prices]"));
    }
    Ok(())
}

/// Tells the user where the server is, and how clients reach it.
fn tell(address: SocketAddr, shown: &str, environment: &Environment, console: &Console) {
    console.note(text!("serving at `{}`", shown));
    let file = environment.state_dir.as_ref().map(|dir| dir.join(TOKEN_FILE));
    let file = file.map(|file| environment.shown(&file)).unwrap_or_default();
    console.note(text!(
        "OpenAI clients: base URL `{}`, and the API key in `{}`",
        format!("{shown}/v1"),
        file
    ));
    if !address.ip().is_loopback() {
        console
            .note("warning: tokens and answers are not encrypted; put a proxy with TLS before this address");
    }
    if address.ip().is_unspecified() && shown.contains(&address.to_string()) {
        console.note(allowed::NO_NAMES);
    }
    debug_assert!(LINK_PATH.starts_with('/'));
}

/// Returns the user's token, which is made at the first start.
fn own_secret(environment: &Environment) -> Result<String, Failure> {
    let failed = || {
        Failure::new(
            Exit::Io,
            "the token of `toolcell serve` cannot be read or written",
        )
    };
    let dir = environment.state_dir.as_ref();
    let dir = dir.ok_or_else(|| failed().why("there is no home directory"))?;
    let dir = toolcell_fs::private_dir(dir).map_err(|error| failed().because(error))?;
    let file = dir.join(TOKEN_FILE);
    match toolcell_fs::read_text(&file, &Rules::own(MAX_TOKEN)) {
        Ok(text) => return Ok(text.trim().to_owned()),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(failed().because(error)),
    }
    let secret = format!(
        "{}{}",
        uuid::Uuid::new_v4().simple(),
        uuid::Uuid::new_v4().simple()
    );
    toolcell_fs::replace(&file, format!("{secret}\n").as_bytes(), toolcell_fs::PRIVATE)
        .map_err(|error| failed().because(error))?;
    Ok(secret)
}

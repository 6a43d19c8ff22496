//! The server of `toolcell serve` for MCP clients.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::future::join_all;
use toolcell_http::{Service, Token};
use toolcell_mcp::{Access, HttpServer, Metrics, Reached};

use super::clients::Clients;
use super::directories::Directories;
use super::reload::Reload;
use crate::components::loader::ComponentLoader;
use crate::components::selection;
use crate::config::Settings;
use crate::environment::Environment;
use crate::error::Failure;
use crate::mcp::servers;
use crate::ui::render::Console;

/// Server for MCP clients beside others.
pub(in crate::commands) struct Mounted<'a> {
    server: HttpServer,
    groups: Vec<Group<'a>>,
}

/// Clients that share components, and what lists their directories anew.
struct Group<'a> {
    clients: Clients<'a>,
    reload: Reload<'a>,
}

/// Tools and directories that are served.
#[derive(Clone, Copy)]
pub(in crate::commands) struct Served<'a> {
    /// Components and servers of flags; all if there are none.
    pub(in crate::commands) tools: &'a [String],
    /// Directories whose files are resources.
    pub(in crate::commands) resources: &'a [String],
    pub(in crate::commands) is_locked: bool,
    pub(in crate::commands) settings: &'a Settings,
    pub(in crate::commands) console: &'a Console,
}

impl<'a> Served<'a> {
    /// Loads what is served in an environment.
    async fn load(&self, environment: &'a Environment) -> Result<Group<'a>, Failure> {
        let Self {
            settings, console, ..
        } = *self;
        let loader = ComponentLoader::open(environment, settings, console)?;
        let (components, _) = servers::select(self.tools, settings);
        let wanted = match (self.tools.is_empty(), components.is_empty()) {
            // Only servers are named.
            (false, true) => Vec::new(),
            _ => selection::choose(&loader, &components, console).await?,
        };
        let directories = Directories::new(self.resources, settings, environment)?;
        let begun = Reload::begin(loader, wanted, directories, self.is_locked, console);
        let (reload, offer) = Box::pin(begun).await?;
        let clients = Clients::new(offer, settings, environment, console);
        Ok(Group { clients, reload })
    }
}

impl<'a> Mounted<'a> {
    /// Creates the server of clients with tokens. One with an environment of its own has buckets and places for calls of its
    /// own.
    ///
    /// # Errors
    /// Returns an error if a component cannot be used.
    pub(in crate::commands) async fn new(
        tokens: Vec<(Token, Option<&'a Environment>)>,
        from: toolcell_http::Reached,
        served: Served<'a>,
        environment: &'a Environment,
    ) -> Result<Self, Failure> {
        let reached = Reached { from, plain: false };
        let metrics = Arc::new(Metrics::default());
        let shared = served.load(environment).await?;
        let mut groups = Vec::new();
        let mut clients = Vec::new();
        for (token, own) in tokens {
            let server = match own {
                Some(environment) => {
                    let group = served.load(environment).await?;
                    let server = group.clients.server_of_token(&metrics)?;
                    groups.push(group);
                    server
                }
                None => shared.clients.server_of_token(&metrics)?,
            };
            clients.push((token, server));
        }
        groups.push(shared);
        let server = HttpServer::new(Access::of_tokens(clients), reached, metrics);
        Ok(Self { server, groups })
    }

    /// Returns the server for a listener.
    pub(in crate::commands) fn service(&self) -> Arc<dyn Service> {
        self.server.service()
    }

    /// Lists directories anew, and tells clients of changes.
    pub(in crate::commands) async fn watch(&mut self) -> Infallible {
        let all = self.groups.iter_mut();
        join_all(all.map(|Group { clients, reload }| reload.watch_directories(clients))).await;
        // Nothing is left to watch.
        std::future::pending().await
    }

    /// Ends the logs of all clients.
    pub(in crate::commands) async fn end(self) {
        join_all(self.groups.into_iter().map(|group| group.clients.end())).await;
    }
}

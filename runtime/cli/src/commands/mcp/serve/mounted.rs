//! The server of `toolcell serve` for MCP clients.

use std::sync::Arc;

use toolcell_http::{Service, Token};
use toolcell_mcp::{HttpServer, Reached};

use super::clients::Clients;
use super::offer::Offer;
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
    clients: Clients<'a>,
}

impl<'a> Mounted<'a> {
    /// Creates the server of clients with tokens. One with an environment of its own has buckets and places for calls of its
    /// own.
    ///
    /// # Errors
    /// Returns an error if a component cannot be used.
    pub(in crate::commands) async fn new(
        tokens: Vec<(Token, Option<Environment>)>,
        from: toolcell_http::Reached,
        (tools, locked): (&[String], bool),
        settings: &'a Settings,
        environment: &'a Environment,
        console: &'a Console,
    ) -> Result<Self, Failure> {
        let reached = Reached { from, plain: false };
        let loader = ComponentLoader::open(environment, settings, console)?;
        let (components, _) = servers::select(tools, settings);
        let wanted = match (tools.is_empty(), components.is_empty()) {
            // Only servers are named.
            (false, true) => Vec::new(),
            _ => selection::choose(&loader, &components, console).await?,
        };
        let hooks = loader.hooks().await?;
        let (offer, _) = Offer::components(&loader, &wanted, None, &hooks, locked).await?;
        let clients = Clients::new(offer, settings, environment, console);
        let mut offers = Vec::new();
        for (token, own) in tokens {
            let offer = match &own {
                Some(environment) => {
                    let loader = ComponentLoader::open(environment, settings, console)?;
                    let hooks = loader.hooks().await?;
                    Some(Offer::components(&loader, &wanted, None, &hooks, locked).await?.0)
                }
                None => None,
            };
            offers.push((token, offer));
        }
        let server = clients.with_offers(offers, reached)?;
        Ok(Self { server, clients })
    }

    /// Returns the server for a listener.
    pub(in crate::commands) fn service(&self) -> Arc<dyn Service> {
        self.server.service()
    }

    /// Ends the logs of all clients.
    pub(in crate::commands) async fn end(self) {
        self.clients.end().await;
    }
}

//! Servers of the clients, each with a budget, a data flow and a log of its own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;
use toolcell_agent::ClientGuard;
use toolcell_mcp::{
    Access, Authorization, Duplicate, HttpServer, Identity, KnownBy, Metrics, Server, ServerObserver,
};

use super::call_log::CallLog;
use super::http::{self, Http};
use super::offer::Offer;
use super::stdio;
use crate::components::keyring::Keyring;
use crate::config::Settings;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;

/// Parts that the servers of all clients share.
pub(super) struct Clients<'a> {
    offer: Mutex<Offer>,
    /// Offers that belong to one client each.
    own: Mutex<Vec<Offer>>,
    settings: &'a Settings,
    environment: &'a Environment,
    console: &'a Console,
    clients: Mutex<Vec<Client>>,
}

/// Server of one client, with its budget, its data flow and its log.
struct Client {
    server: Server,
    guard: ClientGuard,
    log: Arc<CallLog>,
}

impl<'a> Clients<'a> {
    pub(super) fn new(
        offer: Offer,
        settings: &'a Settings,
        environment: &'a Environment,
        console: &'a Console,
    ) -> Self {
        Self {
            offer: Mutex::new(offer),
            own: Mutex::default(),
            settings,
            environment,
            console,
            clients: Mutex::default(),
        }
    }

    /// Offers other tools to all clients. Their budgets and data flows go on.
    pub(super) fn replace(&self, offer: Offer) -> Result<(), Duplicate> {
        for client in &*lock(&self.clients) {
            let offered = offer.of_client(&client.guard, self.settings, self.environment);
            let next = client.server.generation() + 1;
            client.log.add_offer(next, &offer, self.environment);
            client.server.replace(offered)?;
        }
        *lock(&self.offer) = offer;
        Ok(())
    }

    /// Tells all clients which of the resources that they follow have changed: those of a source, or of a URI.
    pub(super) fn updated(&self, is_updated: impl Fn(Option<&str>, &str) -> bool) {
        for client in &*lock(&self.clients) {
            client.server.updated(&is_updated);
        }
    }

    /// Ends the logs of all clients, and what the tools need.
    pub(super) async fn end(self) {
        for client in &*lock(&self.clients) {
            client.log.end();
        }
        let offer = self.offer.into_inner().unwrap_or_else(PoisonError::into_inner);
        let own = self.own.into_inner().unwrap_or_else(PoisonError::into_inner);
        join_all(own.iter().chain([&offer]).map(Offer::end)).await;
    }

    /// Creates the server of one client, with a budget, a data flow and a log of its own.
    fn server(&self, offer: &Offer, metrics: Option<&Arc<Metrics>>) -> Result<Server, Failure> {
        let log = CallLog::open(offer, self.settings, self.environment, self.console)?;
        let observer: Arc<dyn ServerObserver> = match metrics {
            Some(metrics) => metrics.observing(log.clone()),
            None => log.clone(),
        };
        let identity = Identity {
            name: "toolcell".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            instructions: None,
        };
        let guard = offer.guard(log.session(), log.clone());
        let offered = offer.of_client(&guard, self.settings, self.environment);
        let server = Server::new(offered, identity, observer).map_err(|error| {
            Failure::new(Exit::Config, "the tools cannot be served together")
                .because(error)
                .hint("choose among them with --tool")
        })?;
        lock(&self.clients).push(Client {
            server: server.clone(),
            guard,
            log,
        });
        Ok(server)
    }

    /// Creates the server of a client with a credential. The MCP servers of an agent keep what a client sends, so that each client
    /// has its own.
    async fn server_of_client(&self, is_first: bool, metrics: &Arc<Metrics>) -> Result<Server, Failure> {
        let again = lock(&self.offer).again();
        let Some((name, is_locked)) = again.filter(|_| !is_first) else {
            return self.server(&lock(&self.offer), Some(metrics));
        };
        let offer = Offer::agent(&name, is_locked, self.settings, self.environment, self.console);
        let offer = Box::pin(offer).await?;
        let server = self.server(&offer, Some(metrics));
        lock(&self.own).push(offer);
        server
    }

    /// Serves one client on standard input and output.
    pub(super) async fn serve_stdio(&self, stop: &CancellationToken) -> Result<Exit, Failure> {
        let server = self.server(&lock(&self.offer), None)?;
        let ended = stop.child_token();
        cancel_when_unread(ended.clone());
        let (input, output) = (stdio::input(), stdio::output());
        // A task of its own, so that it runs where the calls run.
        let served = tokio::spawn(async move { server.serve(input, output, &ended).await }).await;
        let served = served.map_err(std::io::Error::other).and_then(|served| served);
        served.map_err(|error| {
            Failure::new(Exit::Failed, "the connection to the MCP client failed").because(error)
        })?;
        Ok(if stop.is_cancelled() {
            Exit::Cancelled
        } else {
            Exit::Ok
        })
    }

    /// Creates the server of one client with a token.
    pub(super) fn server_of_token(&self, metrics: &Arc<Metrics>) -> Result<Server, Failure> {
        self.server(&lock(&self.offer), Some(metrics))
    }

    /// Creates the server of clients with credentials.
    async fn with_credentials(
        &self,
        known: Vec<KnownBy>,
        authorization: Option<Authorization>,
        reached: toolcell_mcp::Reached,
    ) -> Result<HttpServer, Failure> {
        let metrics = Arc::new(Metrics::default());
        let mut clients = Vec::new();
        for known_by in known {
            let is_first = clients.is_empty();
            clients.push((known_by, self.server_of_client(is_first, &metrics).await?));
        }
        let access = Access::Clients(clients, authorization);
        Ok(HttpServer::new(access, reached, metrics))
    }

    /// Serves many clients at an address.
    pub(super) async fn serve_http(
        &self,
        http: &Http,
        address: SocketAddr,
        stop: &CancellationToken,
    ) -> Result<Exit, Failure> {
        let known = http.clients(address, self.environment, &Keyring::of_system())?;
        let server = if known.is_empty() {
            let metrics = Arc::new(Metrics::default());
            let client = self.server(&lock(&self.offer), Some(&metrics))?;
            HttpServer::new(Access::Open(client), http.reached(), metrics)
        } else {
            let authorization = http.authorization(self.console).await?;
            self.with_credentials(known, authorization, http.reached())
                .await?
        };
        let has_names = !http.reached().from.hosts.is_empty();
        let listener = http::listen(address, has_names, self.console).await?;
        let served = server.serve(listener, stop).await;
        served.map_err(|error| {
            Failure::new(Exit::Failed, "the MCP clients could not be served").because(error)
        })?;
        Ok(Exit::Ok)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time between two looks at a standard output of which the system does not tell at once that it was closed.
const LOOK: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Cancels when the client has closed its end of standard output, which a server with nothing to write would not notice.
fn cancel_when_unread(ended: CancellationToken) {
    let look = move || {
        while !ended.is_cancelled() {
            // Errors and hang-ups are always reported.
            let output = std::io::stdout();
            let mut output = [PollFd::new(&output, PollFlags::empty())];
            match poll(&mut output, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => ended.cancel(),
                Err(_) => return,
            }
        }
    };
    // Without the thread, the next message shows that nobody reads.
    let _ = std::thread::Builder::new().name("stdout".into()).spawn(look);
}

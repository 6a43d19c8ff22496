//! Server of tools: one connection for each client.

mod call;
mod catalog;
mod connection;
mod context;
pub(crate) mod http;
mod in_flight;
mod listeners;
mod outbox;
mod question;
mod result;
mod session;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::lines::Lines;
use catalog::Catalog;
use connection::Connection;
use in_flight::Load;
use outbox::Outbox;
use session::SessionState;
use state::ServerState;

pub use call::{LOG_KEY, MAX_RUNNING};
pub use catalog::{Duplicate, Offered, PAGE_TOOLS};
pub use connection::{MAX_BATCH, MAX_BATCHES};
pub use context::{MAX_COMPLETIONS, PAGE_CONTEXT};
pub use in_flight::{MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES};
pub use listeners::MAX_FOLLOWED;
pub use outbox::{BATCH_PART_BYTES, MAX_STALL, MAX_UNREAD_BYTES, MAX_UNREAD_WITH_NOTIFICATION};
pub use question::{MAX_QUESTIONS, QUESTION_TIME};
pub use result::RECEIPT_KEY;
pub use state::{Identity, ServerObserver};

/// Maximum time to write the last messages after the end of the input, for a client that does not read.
const DRAIN: Duration = Duration::from_secs(2);

/// Serves tools to clients of the Model Context Protocol.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<ServerState>);

impl Server {
    /// Creates a server.
    ///
    /// # Errors
    /// Fails if two tools, resources or prompts have the same name.
    pub fn new(
        offered: impl Into<Offered>,
        identity: Identity,
        observer: Arc<dyn ServerObserver>,
    ) -> Result<Self, Duplicate> {
        let catalog = Catalog::new(offered.into())?;
        Ok(Self(Arc::new(ServerState::new(catalog, identity, observer))))
    }

    /// Number of times that the offer was replaced.
    pub fn generation(&self) -> u64 {
        self.0.catalog().generation
    }

    /// Offers something else. Clients that listen are told which lists differ; calls in progress go on with the tools that they
    /// have called.
    ///
    /// # Errors
    /// Fails if two tools, resources or prompts have the same name. Nothing is changed then.
    pub fn replace(&self, offered: impl Into<Offered>) -> Result<(), Duplicate> {
        self.0.replace(Catalog::new(offered.into())?);
        Ok(())
    }

    /// Tells clients which of the resources that they follow have changed. `is_updated` gets the name of the source of a resource,
    /// if it is still offered, and its URI.
    pub fn updated(&self, is_updated: impl Fn(Option<&str>, &str) -> bool) {
        self.0.updated(is_updated);
    }

    /// Serves one client: one JSON message on each line, in both directions. Returns at the end of the input, when the
    /// output is closed, or when `stop` is cancelled; calls that still run are cancelled then, and their receipts are
    /// reported to the observer.
    ///
    /// # Errors
    /// Fails if the input or the output fails. A closed output is not an error.
    pub async fn serve<R, W>(&self, input: R, output: W, stop: &CancellationToken) -> std::io::Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (outbox, messages) = Outbox::new();
        let load: Arc<Load> = Arc::default();
        let mut writer = tokio::spawn(outbox::write(output, messages, load.clone()));
        let running = Arc::new(Semaphore::new(MAX_RUNNING));
        let state = SessionState::new(load, running, false);
        let mut connection = Connection::new(self.0.clone(), state, outbox.clone());
        let read = tokio::select! {
            read = connection.read(Lines::new(input)) => read,
            () = outbox.closed() => Ok(()),
            () = stop.cancelled() => Ok(()),
        };
        connection.end(DRAIN).await;
        drop(outbox);
        let written = match tokio::time::timeout(DRAIN, &mut writer).await {
            Ok(Ok(written)) => written,
            Ok(Err(failed)) => Err(std::io::Error::other(failed)),
            Err(_) => {
                writer.abort();
                Ok(())
            }
        };
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
            _ => read,
        }
    }
}

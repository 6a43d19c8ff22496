//! Server of tools: one connection for each client.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use toolcell_core::Tool;

use crate::catalog::{Catalog, DuplicateTool};
use crate::connection::Connection;
use crate::lines::Lines;
use crate::outbox::{self, Outbox};
use crate::state::{Identity, ServerObserver, ServerState};

/// Maximum time to write the last messages after the end of the input, for a client that does not read.
const DRAIN: Duration = Duration::from_secs(2);

/// Serves tools to clients of the Model Context Protocol.
#[derive(Clone)]
pub struct Server(Arc<ServerState>);

impl Server {
    /// Creates a server.
    ///
    /// # Errors
    /// Fails if two tools have the same name.
    pub fn new(
        tools: impl IntoIterator<Item = Arc<dyn Tool>>,
        identity: Identity,
        observer: Arc<dyn ServerObserver>,
    ) -> Result<Self, DuplicateTool> {
        let catalog = Catalog::new(tools)?;
        Ok(Self(Arc::new(ServerState::new(catalog, identity, observer))))
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
        let mut writer = tokio::spawn(outbox::write(output, messages));
        let mut connection = Connection::new(self.0.clone(), outbox.clone());
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

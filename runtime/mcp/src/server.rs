//! The server: its tools, and what its embedder is told about calls.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use toolcell_core::tool::LogLine;
use toolcell_core::{CallResult, Tool, ToolCall, ToolName};

use crate::catalog::{Catalog, DuplicateTool};
use crate::connection::Connection;
use crate::lines::Lines;
use crate::outbox::{self, Outbox};

/// Maximum time for the last messages, after the end of the input: a client that does not read gets none.
const DRAIN: Duration = Duration::from_secs(2);

/// Description of the server for clients.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Name of the program.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Instructions for the use of the tools together, for the model; `None` if their descriptions suffice.
    pub instructions: Option<String>,
}

/// Observer of the calls of all clients. Its methods must not block.
pub trait ServerObserver: Send + Sync {
    /// A call begins, with arguments as the client sent them.
    fn started(&self, _call: &ToolCall) {}
    /// A tool logged a line, whether or not the client asked for it.
    fn log(&self, _call: &str, _line: &LogLine) {}
    /// A call ended. Each call that began ends once, also if it was cancelled or its client is gone.
    fn finished(&self, _call: &str, _tool: &ToolName, _result: &CallResult) {}
}

/// Serves tools to clients of the Model Context Protocol.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) catalog: Catalog,
    pub(crate) identity: Identity,
    /// Description of the server in messages.
    pub(crate) info: Value,
    pub(crate) observer: Arc<dyn ServerObserver>,
    calls: AtomicU64,
}

impl Inner {
    /// Returns the identifier of the next call, unique in the life of the server. The identifiers of clients are not.
    pub(crate) fn next_call(&self) -> String {
        format!("call-{}", self.calls.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

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
        Ok(Self(Arc::new(Inner {
            catalog: Catalog::new(tools)?,
            info: json!({ "name": identity.name, "version": identity.version }),
            identity,
            observer,
            calls: AtomicU64::new(0),
        })))
    }

    /// Serves one client: one JSON message on each line, in both directions. Returns at the end of the input, when the
    /// output is closed, or when `stop` is cancelled; calls that still run are cancelled then, and their receipts are
    /// reported to the observer.
    ///
    /// # Errors
    /// An error of the input or the output. A closed output is none.
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

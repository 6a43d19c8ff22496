//! MCP servers that run in a cell: programs of a component, from their start to their end, with the grants of their table.

use std::sync::{Arc, Mutex, PoisonError};

use toolcell_core::Receipt;
use toolcell_core::tool::{CallObserver, LogLine, LogSource};
use toolcell_mcp::Identity;
use toolcell_mcp::client::{InProcessServer, McpServer, Options, OutputTail, StartError};
use toolcell_sandbox::AccessRecord;

use crate::components::loader::LoadedProgram;

/// Observer of a server in a cell: its standard error goes to the log of Toolcell.
struct CellLog {
    server: String,
    errors: OutputTail,
}

impl CallObserver for CellLog {
    fn log(&self, line: LogLine) {
        let LogLine { source, message, .. } = line;
        tracing::info!(
            server = self.server,
            ?source,
            line = message,
            "output of an MCP server"
        );
        if source != LogSource::Backtrace {
            self.errors.push(message);
        }
    }

    fn receipt(&self, receipt: Receipt) {
        let Receipt {
            fuel, peak_memory, ..
        } = receipt;
        tracing::info!(
            server = self.server,
            fuel,
            peak_memory,
            "an MCP server in a cell ended"
        );
        for denial in &receipt.denials {
            tracing::warn!(
                server = self.server,
                what = denial.what,
                target = denial.target,
                "denied"
            );
        }
    }
}

/// Records of the cells of a server. A cell that ended can have entries that no receipt has yet.
#[derive(Default)]
struct Accessed {
    /// Of cells before the one that runs now and the one before it.
    earlier: Receipt,
    before: AccessRecord,
    now: AccessRecord,
}

impl Accessed {
    fn begin(&mut self, record: AccessRecord) {
        self.earlier.merge(self.before.take());
        self.before = std::mem::replace(&mut self.now, record);
    }

    fn take(&mut self) -> Receipt {
        let mut all = std::mem::take(&mut self.earlier);
        all.merge(self.before.take());
        all.merge(self.now.take());
        all
    }
}

/// Starts a program as a server, and again when it has ended.
pub(super) async fn start(
    program: LoadedProgram,
    arguments: Vec<String>,
    options: Options,
    identity: Identity,
) -> Result<Arc<McpServer>, StartError> {
    let server = options.name.clone();
    let accessed = Arc::new(Mutex::new(Accessed::default()));
    let current = accessed.clone();
    let start = move || {
        let errors = OutputTail::default();
        let observer = Arc::new(CellLog {
            server: server.clone(),
            errors: errors.clone(),
        });
        let words = std::iter::once(server.clone()).chain(arguments.iter().cloned());
        let running = (program.component).start_program(
            program.policy.clone(),
            &program.secrets,
            words.collect(),
            observer,
        );
        let running = running.map_err(|error| error.to_string())?;
        let mut accessed = current.lock().unwrap_or_else(PoisonError::into_inner);
        accessed.begin(running.accessed);
        Ok(InProcessServer {
            stream: Box::new(running.stream),
            guard: Box::new(running.cell),
            errors,
            exit_code: running.exit_code,
        })
    };
    let accessed = move || accessed.lock().unwrap_or_else(PoisonError::into_inner).take();
    McpServer::in_process(start, accessed, options, identity).await
}

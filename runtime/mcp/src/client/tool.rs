//! One tool of a server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolcell_core::redact::Redactor;
use toolcell_core::tool::CallObserver;
use toolcell_core::{
    BoxFuture, CallContext, CallResult, Limit, Receipt, RemainingBudget, Tool, ToolCall, ToolError, ToolSpec,
};

use super::content::{self, MAX_RESULT_BYTES};
use super::definition::Definition;
use super::elicitation::Stopwatch;
use super::searched::searched;
use super::server::McpServer;

/// Least time for the search of a result for secrets, so that a call that ended just before its limit has its result.
const LEAST: Duration = Duration::from_millis(100);

/// A tool of a server. Its calls run where the server does: outside of every cell, or in one of its own.
pub(super) struct ServerTool {
    server: Arc<McpServer>,
    definition: Definition,
}

impl ServerTool {
    pub(super) fn new(server: Arc<McpServer>, definition: Definition) -> Self {
        Self { server, definition }
    }

    async fn run(&self, call: ToolCall, cx: &CallContext) -> Result<CallResult, ToolError> {
        cx.observer.check_start()?;
        let left = cx.observer.left();
        let time = left.call_ms.map_or(Duration::MAX, Duration::from_millis);
        let bytes = left
            .bytes
            .map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let limit = self.server.options.call_timeout.min(time);
        let stopwatch = Stopwatch::start(self.server.asking.clone());
        let mut called = self
            .server
            .call(&self.definition, call.arguments, limit, cx.observer.clone())
            .await?;
        let (spec, most) = (self.definition.spec.clone(), bytes.min(MAX_RESULT_BYTES));
        let search = move |redactor: &Redactor| {
            // Before a schema is checked, whose mismatches show parts of values.
            redactor.json(&mut called);
            let mut result = CallResult::from(content::result(&called, &spec, most));
            redactor.result(&mut result);
            result
        };
        let redactor = &self.server.options.redactor;
        let searched = searched(redactor, MAX_RESULT_BYTES, search);
        match tokio::time::timeout(limit.saturating_sub(stopwatch.elapsed()).max(LEAST), searched).await {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Err(ToolError::crashed("its result could not be searched for secrets")),
            Err(_) => Err(ToolError::Limit {
                limit: Limit::WallTimeMs(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            }),
        }
    }
}

impl Tool for ServerTool {
    fn spec(&self) -> &ToolSpec {
        &self.definition.spec
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            let mut running = Running {
                server: &self.server,
                receipt: Receipt {
                    bytes_in: Value::Object(call.arguments.clone()).to_string().len() as u64,
                    server: Some(self.server.name().to_owned()),
                    server_in_cell: self.server.options.in_cell,
                    ..Receipt::default()
                },
                stopwatch: Stopwatch::start(self.server.asking.clone()),
                observer: Some(cx.observer.clone()),
            };
            let mut result = CallResult::from(self.run(call, &cx).await);
            let mut receipt = running.end();
            receipt.bytes_out = result.byte_len() as u64;
            result.receipt = Some(receipt);
            if result.error.is_some() {
                self.server.options.redactor.result(&mut result);
            }
            result
        })
    }

    fn max_use(&self) -> RemainingBudget {
        RemainingBudget {
            call_ms: Some(u64::try_from(self.server.options.call_timeout.as_millis()).unwrap_or(u64::MAX)),
            bytes: Some(MAX_RESULT_BYTES as u64),
            ..RemainingBudget::NOTHING
        }
    }
}

/// A call in progress; if it is dropped, its receipt goes to its observer.
struct Running<'a> {
    server: &'a McpServer,
    receipt: Receipt,
    /// Time of the call. Questions to the user do not count.
    stopwatch: Stopwatch,
    observer: Option<Arc<dyn CallObserver>>,
}

impl Running<'_> {
    fn end(&mut self) -> Receipt {
        self.observer = None;
        let Receipt {
            hosts,
            files,
            buckets,
            denials,
            omitted,
            ..
        } = self.server.take_accessed();
        Receipt {
            wall_us: u64::try_from(self.stopwatch.elapsed().as_micros()).unwrap_or(u64::MAX),
            hosts,
            files,
            buckets,
            denials,
            omitted,
            ..std::mem::take(&mut self.receipt)
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(observer) = self.observer.take() {
            observer.receipt(self.end());
        }
    }
}

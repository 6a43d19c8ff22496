//! Limit of the calls that run at one time for a client of `toolcell serve`, over all its turns.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;
use toolcell_core::{
    ArgumentPlace, BoxFuture, CallContext, CallResult, RemainingBudget, Tool, ToolCall, ToolError, ToolSpec,
};

use crate::environment::Environment;

/// Tool whose calls wait for a place.
struct Limited {
    tool: Arc<dyn Tool>,
    places: Arc<Semaphore>,
}

/// Limits the calls of tools to the places of the client, if it has a limit. Calls of agents take none: they would hold them
/// while their own calls wait.
pub(crate) fn apply(tools: &mut [Arc<dyn Tool>], environment: &Environment) {
    let places = environment
        .client
        .as_ref()
        .and_then(|client| client.calls.as_ref());
    let Some(places) = places else {
        return;
    };
    for tool in tools {
        *tool = Arc::new(Limited {
            tool: tool.clone(),
            places: places.clone(),
        });
    }
}

impl Tool for Limited {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            match self.places.acquire().await {
                Ok(_place) => self.tool.call(call, cx).await,
                Err(_) => CallResult::failed(ToolError::denied("the server is stopping", None)),
            }
        })
    }

    fn max_use(&self) -> RemainingBudget {
        self.tool.max_use()
    }

    fn places(&self, arguments: &Value) -> Vec<ArgumentPlace> {
        self.tool.places(arguments)
    }

    fn changes_files(&self) -> bool {
        self.tool.changes_files()
    }
}

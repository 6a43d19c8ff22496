//! Hooks around the calls of a client that runs a loop of its own. For them, each call is a turn: values that hooks pass on
//! last until its end.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolcell_core::event::EventSink;
use toolcell_core::hook::CallReport;
use toolcell_core::{ArgumentPlace, Event, Hook, Tool, ToolError};

use super::runner::HookRunner;
use super::turn::HookTurn;
use crate::budget::client::ClientBudget;
use crate::context::messages;
use crate::driver::notes::{NoteReceiver, notes};
use crate::error::BuildError;

/// Hooks that run around the calls of clients, in their order.
#[derive(Clone)]
pub struct ClientHooks(HookRunner);

impl ClientHooks {
    /// Orders hooks. Of their points, those before and after a call and after an error are used.
    ///
    /// # Errors
    /// Fails if two hooks have one name, or their orders conflict.
    pub fn new(hooks: Vec<Arc<dyn Hook>>) -> Result<Self, BuildError> {
        HookRunner::new(hooks, HookRunner::TIMEOUT).map(Self)
    }
}

/// Hooks of one client.
pub(crate) struct HooksOfClient {
    hooks: HookRunner,
    /// Name of the client for hooks.
    session: String,
    events: Arc<dyn EventSink>,
}

/// Hooks of one call.
pub(crate) struct HooksOfCall<'a> {
    client: &'a HooksOfClient,
    budget: &'a ClientBudget,
    turn: HookTurn,
    notes: NoteReceiver,
}

impl HooksOfClient {
    pub(crate) fn new(hooks: ClientHooks, session: String, events: Arc<dyn EventSink>) -> Self {
        Self {
            hooks: hooks.0,
            session,
            events,
        }
    }

    /// Begins a call, whose hooks use the budget of the client.
    pub(crate) fn begin<'a>(&'a self, budget: &'a ClientBudget) -> HooksOfCall<'a> {
        let (sender, receiver) = notes();
        HooksOfCall {
            client: self,
            budget,
            turn: HookTurn::new(&self.session, Map::new(), sender, budget.account().clone()),
            notes: receiver,
        }
    }
}

impl HooksOfCall<'_> {
    /// Runs the hooks before a call. Returns its arguments, and where they led when hooks judged them.
    ///
    /// # Errors
    /// A refusal, of the arguments or of a hook.
    pub(crate) async fn prepare(
        &mut self,
        id: &str,
        tool: &dyn Tool,
        arguments: Value,
    ) -> Result<(Value, Option<Vec<ArgumentPlace>>), ToolError> {
        let hooks = &self.client.hooks;
        if let Err(error) = tool.spec().input.check_arguments(&arguments) {
            let name = tool.spec().name.as_str();
            hooks.report_arguments(name, &error, &self.turn).await;
            self.pass_on();
            return Err(error);
        }
        let prepared = hooks.prepare_call(id, tool, arguments, &self.turn).await;
        self.pass_on();
        match prepared {
            Ok(prepared) => prepared.map_err(|refused| refused.error),
            // The turn is that of the client, which alone can end it.
            Err(aborted) => Err(ToolError::denied(
                messages::cancelled_by_hook(&aborted.reason),
                None,
            )),
        }
    }

    /// Tells the hooks that the call has ended.
    pub(crate) async fn report(&mut self, report: &CallReport) {
        self.client.hooks.report_call(report, &self.turn).await;
        self.pass_on();
    }

    /// Passes on notices and receipts of hooks, and charges the client what they used.
    fn pass_on(&mut self) {
        while let Some(note) = self.notes.try_next() {
            if let Event::HookFinished { receipt, .. } = &note.event {
                self.budget.count_hook(receipt, note.ticket);
            }
            self.client.events.event(&note.event);
        }
    }
}

impl Drop for HooksOfCall<'_> {
    /// The call may be cancelled while a hook runs, whose receipt was sent when it was dropped.
    fn drop(&mut self) {
        self.pass_on();
    }
}

//! Tools for clients that run a loop of their own, such as clients of the Model Context Protocol. Each call is checked by
//! the same functions as a call of the loop: arguments, approval rules, flow guard, budget, and containment of panics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::RwLock;
use toolcell_core::event::{DataFlow, EventSink};
use toolcell_core::{
    ApprovalCause, ApprovalRequest, ArgumentPlace, BoxFuture, CallContext, CallResult, Decision, PlaceKind,
    RemainingBudget, Tool, ToolCall, ToolError, ToolSpec,
};

use crate::approval::{Approvals, CheckStart, Gate, check_places};
use crate::budget::client::ClientBudget;
use crate::budget::{Budget, Spent};
use crate::context::messages;
use crate::hook::{CallReport, ClientHooks, HooksOfClient};
use crate::policy::ToolRetry;
use crate::tools::dispatch::{self, Invocation};
use crate::tools::truncate;

/// Makes a hint for the user from the name of a tool and the cause for which a call of it needs approval.
pub type ApprovalHint = dyn Fn(&str, ApprovalCause) -> String + Send + Sync;

/// Makes a hint for the user from what a client has used of its budget; `None` if there is nothing to say.
pub type BudgetHint = dyn Fn(&Spent) -> Option<String> + Send + Sync;

/// Rules for the calls of some tools of a client.
pub struct ClientRules {
    /// Approval rules and flow guard.
    pub approvals: Approvals,
    /// Data-flow labels of the tools, by name; a tool without an entry has none.
    pub flows: BTreeMap<String, DataFlow>,
    /// Hint for a call that needs approval and is refused, because its client cannot ask the user.
    pub approval_hint: Arc<ApprovalHint>,
    /// Hint for a call that the budget leaves nothing for.
    pub budget_hint: Arc<BudgetHint>,
}

/// Budget and data flow of one client, which all of its calls share as those of a session do.
pub struct ClientGuard(Arc<Client>);

impl ClientGuard {
    /// Creates the guard of a client that has called nothing. The time of `budget` is that in which calls run.
    pub fn new(budget: Budget) -> Self {
        Self::of(budget, None)
    }

    /// The same with hooks. They know the client as `session`; `events` gets their notices and receipts.
    pub fn with_hooks(
        budget: Budget,
        hooks: ClientHooks,
        session: impl Into<String>,
        events: Arc<dyn EventSink>,
    ) -> Self {
        Self::of(budget, Some(HooksOfClient::new(hooks, session.into(), events)))
    }

    fn of(budget: Budget, hooks: Option<HooksOfClient>) -> Self {
        Self(Arc::new(Client {
            budget: ClientBudget::new(budget),
            hooks,
            flow: Mutex::default(),
            files: RwLock::default(),
        }))
    }

    /// Wraps tools, so that their calls count together with those of all other tools that this guard has wrapped.
    pub fn tools(
        &self,
        tools: impl IntoIterator<Item = Arc<dyn Tool>>,
        rules: ClientRules,
    ) -> Vec<Arc<dyn Tool>> {
        let rules = Arc::new(rules);
        let guard = |tool: Arc<dyn Tool>| -> Arc<dyn Tool> {
            let flow = rules.flows.get(tool.spec().name.as_str());
            Arc::new(Guarded {
                flow: flow.copied().unwrap_or_default(),
                tool,
                rules: rules.clone(),
                client: self.0.clone(),
            })
        };
        tools.into_iter().map(guard).collect()
    }
}

/// State that the tools of a client share.
struct Client {
    budget: Arc<ClientBudget>,
    hooks: Option<HooksOfClient>,
    /// Data flow of the calls so far.
    flow: Mutex<DataFlow>,
    /// Held by one call that can change files, or by several others that name some, if rules or hooks judge arguments.
    files: RwLock<()>,
}

struct Guarded {
    tool: Arc<dyn Tool>,
    flow: DataFlow,
    rules: Arc<ClientRules>,
    client: Arc<Client>,
}

impl Guarded {
    fn names_files(&self, arguments: &Value) -> bool {
        let places = self.tool.places(arguments);
        places.iter().any(|place| place.kind == PlaceKind::Path)
    }

    /// Asks the user about a call that needs approval, if the client can ask. Returns what was approved.
    async fn ask(
        &self,
        call: &str,
        arguments: &Value,
        cx: &CallContext,
    ) -> Result<Option<Approved>, ToolError> {
        if !cx.observer.can_ask() {
            return Ok(None);
        }
        let name = self.tool.spec().name.as_str();
        self.tool.spec().input.check_arguments(arguments)?;
        let places = self.tool.places(arguments);
        let flow = *self.client.flow();
        let gate = (self.rules.approvals).gate(name, (arguments, &places), flow, self.flow, None);
        let Gate::Ask(cause, reason) = gate else {
            return Ok(None);
        };
        let request = ApprovalRequest {
            id: call.to_owned(),
            tool: name.to_owned(),
            arguments: arguments.clone(),
            cause,
            reason,
            places: places.clone(),
        };
        match cx.observer.ask(request).await {
            Decision::Approve => Ok(Some(Approved { flow, places })),
            Decision::Deny { reason } => {
                let declined = messages::declined(reason.as_deref());
                Err(ToolError::denied(declined, None))
            }
            Decision::Later => Ok(None),
        }
    }

    /// Checks a call, and counts its data flow if it may run. `hooked` are the places that hooks judged.
    fn admit(
        &self,
        arguments: &Value,
        hooked: Option<&[ArgumentPlace]>,
        approved: Option<&Approved>,
    ) -> Result<Vec<ArgumentPlace>, ToolError> {
        let name = self.tool.spec().name.as_str();
        self.tool.spec().input.check_arguments(arguments)?;
        let places = self.tool.places(arguments);
        if let Some(hooked) = hooked {
            check_places(hooked, &places)?;
        }
        // Held over the decision, so that of two calls at once the second sees the flow of the first.
        let mut flow = self.client.flow();
        let approvals = &self.rules.approvals;
        let then = approved.map(|approved| approved.flow);
        match approvals.gate(name, (arguments, &places), *flow, self.flow, then) {
            Gate::Open => {
                if let Some(approved) = approved {
                    check_places(&approved.places, &places)?;
                }
            }
            Gate::Shut(rule) => {
                return Err(ToolError::denied(
                    messages::not_allowed(name),
                    Some(format!("refused by {rule}")),
                ));
            }
            Gate::Ask(cause, reason) => {
                return Err(ToolError::denied(
                    messages::no_approver(&reason),
                    Some((self.rules.approval_hint)(name, cause)),
                ));
            }
        }
        *flow = flow.union(self.flow);
        Ok(places)
    }
}

/// Approval of the user: a call after this data flow, with arguments that lead where the question said.
struct Approved {
    flow: DataFlow,
    places: Vec<ArgumentPlace>,
}

impl Client {
    fn flow(&self) -> MutexGuard<'_, DataFlow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tool for Guarded {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            let mut arguments = call.arguments;
            if let Err(error) = self.spec().replace_aliases(&mut arguments) {
                return CallResult::refused(error);
            }
            let mut arguments = Value::Object(arguments);
            let hooks = self.client.hooks.as_ref();
            let mut hooks = hooks.map(|hooks| hooks.begin(&self.client.budget));
            let mut hooked = None;
            if let Some(hooks) = &mut hooks {
                match hooks.prepare(&call.id, &*self.tool, arguments).await {
                    Ok(prepared) => (arguments, hooked) = prepared,
                    Err(error) => return CallResult::refused(error),
                }
            }
            // Before it waits for others, or others for it: an answer can take minutes.
            let approved = match self.ask(&call.id, &arguments, &cx).await {
                Ok(approved) => approved,
                Err(error) => return CallResult::refused(error),
            };
            let judges_arguments = hooks.is_some() || self.rules.approvals.judges_arguments();
            let _turn = match self.tool.changes_files() {
                _ if !judges_arguments => (None, None),
                true => (None, Some(self.client.files.write().await)),
                // No file can lead this call elsewhere: it waits for none that changes files.
                false if !self.names_files(&arguments) => (None, None),
                false => (Some(self.client.files.read().await), None),
            };
            let judged = match self.admit(&arguments, hooked.as_deref(), approved.as_ref()) {
                Ok(places) => places,
                Err(error) => return CallResult::refused(error),
            };
            let check_start = (judges_arguments && !judged.is_empty()).then(|| {
                let (tool, arguments) = (self.tool.clone(), arguments.clone());
                Box::new(move || check_places(&judged, &tool.places(&arguments))) as Box<CheckStart>
            });
            let Value::Object(arguments) = arguments else {
                unreachable!("it was made from an object");
            };
            let budget = &self.client.budget;
            let name = self.spec().name.as_str();
            let begun = budget.begin(name, self.tool.max_use(), cx.observer.clone(), check_start);
            let observer = match begun.await {
                Ok(observer) => observer,
                Err(reason) => {
                    let hint = (self.rules.budget_hint)(&budget.spent());
                    return CallResult::refused(ToolError::denied(messages::no_budget(&reason), hint));
                }
            };
            let mut report = hooks.is_some().then(|| CallReport {
                id: call.id.clone(),
                tool: name.to_owned(),
                arguments: arguments.clone().into(),
                result: CallResult::default(),
                duration_ms: 0,
            });
            let begun = Instant::now();
            let invocation = Invocation {
                tool: self.tool.clone(),
                call: ToolCall { arguments, ..call },
                context: CallContext {
                    observer: observer.clone(),
                    ..cx
                },
                timeout: None,
                retry: ToolRetry::default(),
            };
            let mut result = dispatch::invoke_with_retry(invocation, |_, _, _| {}).await;
            if let Some(room) = observer.room() {
                cut(&mut result, room);
            }
            observer.end(&result);
            if let (Some(hooks), Some(report)) = (&mut hooks, &mut report) {
                report.result = result.clone();
                report.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                hooks.report(report).await;
            }
            result
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

/// Cuts a result to what the budget leaves for it.
fn cut(result: &mut CallResult, room: usize) {
    if result.error.is_none() && result.byte_len() > room {
        let content = truncate::within(std::mem::take(&mut result.content), Some(room));
        result.content = truncate::cut(content, room, None).content;
        // It says the same as the content.
        result.structured = None;
    }
}

#[cfg(test)]
mod tests;

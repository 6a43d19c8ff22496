//! A tool of a component under a policy, as an implementation of `Tool`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use toolcell_core::schema::Mismatch;
use toolcell_core::tool::{CallObserver, LogLevel, LogLine, LogSource};
use toolcell_core::{
    ArgumentPlace, Blob, BoxFuture, CallContext, CallResult, Content, Limit, Limits, Link, Policy, Redactor,
    RemainingBudget, Schema, Secrets, Tool, ToolCall, ToolError, ToolSpec,
};
use wasmtime::Store;

use crate::bindings::{self, Call, GuestError, Output, Provider, ProviderPre};
use crate::bindings::{PromptProviderPre, ResourceProviderPre};
use crate::cell::failure;
use crate::cell::memory::MemoryAccount;
use crate::cell::state::CellState;
use crate::cell::{CellRequest, GuestCall};
use crate::component::{Code, Component, Loaded};
use crate::egress::{BoundSecrets, Egress, InvalidBinding};
use crate::json_length::{json_length, object_length};
use crate::load::imports::Ability;
use crate::places;
use crate::program::{Program, ProgramCall, ProgramResult};
use crate::prompts::PromptRun;
use crate::resources::ReadRun;
use crate::structured;
use crate::typed::{FunctionCall, FunctionResult, Functions};

/// One tool of one component, with the policy under which it is called, or what reads its resources or gets its prompts.
pub(crate) struct ComponentTool {
    pub(crate) component: Arc<Loaded>,
    pub(crate) operation: Operation,
    pub(crate) spec: Arc<ToolSpec>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) egress: Arc<Egress>,
}

/// Export of a component that is called.
pub(crate) enum Operation {
    Tool,
    ReadResource(ResourceProviderPre<CellState>),
    GetPrompt(PromptProviderPre<CellState>),
}

impl Component {
    /// Returns its tools, to be called under `policy`. In total they hold at most six HTTP connections at a time.
    /// Bindings of secrets have no effect; see [`Component::tools_with_secrets`].
    pub fn tools(&self, policy: impl Into<Arc<Policy>>) -> Vec<Arc<dyn Tool>> {
        self.tools_bound(policy.into(), BoundSecrets::default())
    }

    /// Returns its tools, to be called under `policy`, with the values of the secrets that the policy binds. The host
    /// adds them to requests; the guest never holds them. All `secrets` are redacted in all output of a cell, including
    /// those that this policy does not bind.
    ///
    /// # Errors
    /// If a binding of the policy is invalid or its secret has no value.
    pub fn tools_with_secrets(
        &self,
        policy: Arc<Policy>,
        secrets: &Secrets,
    ) -> Result<Vec<Arc<dyn Tool>>, InvalidBinding> {
        let bound = BoundSecrets::new(&policy.grants.secrets, secrets)?;
        Ok(self.tools_bound(policy, bound))
    }

    fn tools_bound(&self, policy: Arc<Policy>, secrets: BoundSecrets) -> Vec<Arc<dyn Tool>> {
        let egress = self.0.base.egress(&policy, secrets);
        let tool = |spec: &Arc<ToolSpec>| self.operation(Operation::Tool, spec.clone(), &policy, &egress);
        self.0.specs.iter().map(tool).collect()
    }

    pub(crate) fn operation(
        &self,
        operation: Operation,
        spec: Arc<ToolSpec>,
        policy: &Arc<Policy>,
        egress: &Arc<Egress>,
    ) -> Arc<dyn Tool> {
        Arc::new(ComponentTool {
            component: self.0.clone(),
            operation,
            spec,
            policy: policy.clone(),
            egress: egress.clone(),
        })
    }
}

impl Tool for ComponentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        match &self.component.code {
            Code::Later(code) => Box::pin(async move {
                match code.loaded().await {
                    Ok(component) => self.of(&component).call_in_cell(call, cx).await,
                    Err(error) => CallResult::failed(ToolError::Unavailable {
                        message: format!("its code cannot be read: {error}"),
                    }),
                }
            }),
            _ => Box::pin(self.call_in_cell(call, cx)),
        }
    }

    fn max_use(&self) -> RemainingBudget {
        let limits = &self.policy.limits;
        RemainingBudget {
            fuel: Some(limits.fuel),
            call_ms: Some(limits.wall_ms),
            // Pictures and files are added to the text of a result.
            bytes: Some(limits.output),
            ..RemainingBudget::NOTHING
        }
    }

    fn places(&self, arguments: &Value) -> Vec<ArgumentPlace> {
        places::of(arguments, self.spec.input.as_value(), &self.policy.grants.dirs)
    }

    fn changes_files(&self) -> bool {
        let has_files = self.component.base.identity.abilities().contains(&Ability::Files);
        has_files && (self.policy.grants.dirs.iter()).any(|dir| dir.access.can_change())
    }
}

impl ComponentTool {
    /// Returns the same tool of a component that has its code.
    fn of(&self, component: &Component) -> Self {
        Self {
            component: component.0.clone(),
            operation: Operation::Tool,
            spec: self.spec.clone(),
            policy: self.policy.clone(),
            egress: self.egress.clone(),
        }
    }

    async fn call_in_cell(&self, call: ToolCall, cx: CallContext) -> CallResult {
        let limits = within(&self.policy.limits, cx.observer.left());
        let redactor = self.egress.redactor();
        let (begun, wall_ms) = ((!redactor.is_empty()).then(Instant::now), limits.wall_ms);
        let result = match (&self.operation, &self.component.code) {
            (Operation::Tool, Code::Tools(pre)) => self.call_tool(pre, call, &cx, limits).await,
            (Operation::Tool, Code::Functions(functions)) => {
                self.call_function(functions, call, &cx, limits).await
            }
            (Operation::Tool, Code::Program(pre)) => self.call_program(pre, call, &cx, limits).await,
            (Operation::Tool, Code::Later(_)) => {
                CallResult::failed(ToolError::crashed("its code was not read"))
            }
            (Operation::ReadResource(pre), _) => {
                let run = ReadRun::new(call, values_of(&cx));
                self.call_listed(pre, run.byte_len(), run, &cx, limits).await
            }
            (Operation::GetPrompt(pre), _) => {
                let run = PromptRun::new(call, values_of(&cx));
                self.call_listed(pre, run.byte_len(), run, &cx, limits).await
            }
        };
        let Some(begun) = begun else {
            return result;
        };
        let searching = Instant::now();
        let left = Duration::from_millis(wall_ms).saturating_sub(begun.elapsed());
        let receipt = result.receipt.clone();
        let searched = tokio::time::timeout(left.max(LEAST), redacted(redactor, result)).await;
        let mut result = searched.unwrap_or_else(|_| {
            let limit = Limit::WallTimeMs(wall_ms);
            CallResult::failed(ToolError::Limit { limit })
        });
        if result.receipt.is_none() && receipt.is_some() {
            result.receipt = receipt;
            redactor.result(&mut result);
        }
        if let Some(receipt) = &mut result.receipt {
            let searched = u64::try_from(searching.elapsed().as_micros()).unwrap_or(u64::MAX);
            receipt.wall_us = receipt.wall_us.saturating_add(searched);
        }
        result
    }

    /// Calls a tool of a component that defines its tools.
    async fn call_tool(
        &self,
        pre: &ProviderPre<CellState>,
        call: ToolCall,
        cx: &CallContext,
        limits: Limits,
    ) -> CallResult {
        let call = Call {
            id: call.id,
            name: self.spec.name.to_string(),
            arguments: json_of(&call.arguments),
            context: values_of(cx),
        };
        let request = self.request(pre, cx, limits, byte_len(&call));
        let redactor = self.egress.redactor();
        let ended = (self.component.base.cells)
            .run_cell(request, ToolRun { call })
            .await;
        let result = ended.result.and_then(|answer| match answer {
            Ok((output, value)) => finish(output, value, self.spec.output.as_deref(), redactor),
            Err(error) => Err(self.guest_error(error, cx)),
        });
        CallResult::from(result).with_receipt(ended.receipt)
    }

    /// Reads a resource or gets a prompt.
    async fn call_listed<G>(
        &self,
        pre: &G::World,
        bytes_in: u64,
        run: G,
        cx: &CallContext,
        limits: Limits,
    ) -> CallResult
    where
        G: GuestCall<Done = Result<CallResult, GuestError>>,
    {
        let request = self.request(pre, cx, limits, bytes_in);
        let ended = self.component.base.cells.run_cell(request, run).await;
        let result = ended
            .result
            .and_then(|answer| answer.map_err(|error| self.guest_error(error, cx)));
        CallResult::from(result).with_receipt(ended.receipt)
    }

    fn guest_error(&self, error: GuestError, cx: &CallContext) -> ToolError {
        failure::of_guest(error, self.egress.redactor()).unwrap_or_else(|for_user| {
            tell_user(&*cx.observer, for_user);
            ToolError::Failed {
                message: "the tool failed; details are in its log".into(),
            }
        })
    }

    /// Calls a function of a component whose functions are tools.
    async fn call_function(
        &self,
        functions: &Functions,
        call: ToolCall,
        cx: &CallContext,
        limits: Limits,
    ) -> CallResult {
        let Some(function) = functions.get(self.spec.name.as_str()) else {
            return CallResult::failed(ToolError::crashed("the component has no such function"));
        };
        let bytes_in = object_length(&call.arguments);
        let output = limits.output;
        let request = self.request(&functions.pre, cx, limits, bytes_in);
        let engine = request.footprint.engine;
        let run = FunctionCall::new(function, call.arguments, output, engine);
        let ended = self.component.base.cells.run_cell(request, run).await;
        let redactor = self.egress.redactor();
        let result = ended.result.and_then(|result| function_result(result, redactor));
        CallResult::from(result).with_receipt(ended.receipt)
    }

    /// Runs a program.
    async fn call_program(
        &self,
        pre: &Program,
        call: ToolCall,
        cx: &CallContext,
        limits: Limits,
    ) -> CallResult {
        let bytes_in = object_length(&call.arguments);
        let program = ProgramCall::new(&self.spec.name, call.arguments, limits.output);
        let request = self.request(pre, cx, limits, bytes_in);
        let ended = self.component.base.cells.run_cell(request, program).await;
        let result = (ended.result).map_or_else(CallResult::failed, ProgramResult::into_result);
        result.with_receipt(ended.receipt)
    }

    fn request<'a, W>(
        &'a self,
        pre: &'a W,
        cx: &CallContext,
        limits: Limits,
        bytes_in: u64,
    ) -> CellRequest<'a, W> {
        CellRequest {
            pre,
            policy: &self.policy,
            limits,
            egress: &self.egress,
            observer: cx.observer.clone(),
            footprint: self.component.base.footprint,
            bytes_in,
        }
    }
}

/// Converts the result of a function. A text is also the content, without quotes and escapes.
fn function_result(result: FunctionResult, redactor: &Redactor) -> Result<CallResult, ToolError> {
    if result.is_error {
        let text = match result.value {
            None => "the function returned an error without a value".into(),
            Some(Value::String(text)) => text,
            Some(value) => value.to_string(),
        };
        return Err(ToolError::Failed {
            message: failure::bounded(&text, redactor),
        });
    }
    let content = match &result.value {
        Some(Value::String(text)) => vec![Content::text(text)],
        _ => Vec::new(),
    };
    Ok(CallResult {
        content,
        structured: result.structured(),
        ..CallResult::default()
    })
}

/// Maximum size of a result that is searched for secrets on the thread of the call, in bytes: some milliseconds.
const AT_ONCE: u64 = 64 << 10;

/// Least time for that search, so that a call that ended just before its deadline has its result.
const LEAST: Duration = Duration::from_millis(100);

/// Removes secrets from a result. The search takes seconds for a long one and many secrets: it runs on a thread of its own,
/// and ends when nobody waits for it any more.
async fn redacted(redactor: &Redactor, mut result: CallResult) -> CallResult {
    let structured = result.structured.as_ref().map_or(0, json_length);
    if result.byte_len() as u64 + structured <= AT_ONCE {
        redactor.result(&mut result);
        return result;
    }
    let (redactor, _awaited) = redactor.while_awaited();
    let searched = tokio::task::spawn_blocking(move || {
        redactor.result(&mut result);
        result
    });
    searched.await.unwrap_or_else(|_| {
        CallResult::failed(ToolError::crashed("its result could not be searched for secrets"))
    })
}

/// Returns the limits capped by the remaining budget of the session.
pub(crate) fn within(limits: &Limits, left: RemainingBudget) -> Limits {
    let capped = |limit: u64, left: Option<u64>| left.map_or(limit, |left| left.min(limit));
    Limits {
        fuel: capped(limits.fuel, left.fuel),
        wall_ms: capped(capped(limits.wall_ms, left.wall_ms), left.call_ms),
        ..limits.clone()
    }
}

/// Calls the tool.
struct ToolRun {
    call: Call,
}

impl GuestCall for ToolRun {
    type World = ProviderPre<CellState>;
    type Done = Result<(Output, Option<Value>), GuestError>;

    async fn call_guest(
        self,
        guest: &Provider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Self::Done> {
        let done = guest.toolcell_tool_tools().call_run(store, &self.call).await?;
        Ok(done.map(|output| (output, None)))
    }

    fn bytes_out(done: &Self::Done) -> u64 {
        match done {
            Ok((output, _)) => {
                let content: usize = output.content.iter().map(content_len).sum();
                (content + output.structured.as_ref().map_or(0, String::len)) as u64
            }
            Err(error) => guest_text(error).len() as u64,
        }
    }

    async fn complete(done: Self::Done, account: &MemoryAccount) -> Result<Self::Done, ToolError> {
        let Ok((mut output, _)) = done else {
            return Ok(done);
        };
        let value = match output.structured.take() {
            Some(text) => Some(structured::parse(text, account).await?),
            None => None,
        };
        Ok(Ok((output, value)))
    }
}

/// Values that the host shares with every tool, as a guest gets them.
fn values_of(cx: &CallContext) -> Vec<(String, String)> {
    let values = cx.values.iter();
    values
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect()
}

/// Returns an object as compact JSON.
fn json_of(object: &serde_json::Map<String, Value>) -> String {
    serde_json::to_string(object).expect("keys of JSON are texts, and writing to memory does not fail")
}

fn byte_len(call: &Call) -> u64 {
    let context: usize = call.context.iter().map(|(k, v)| k.len() + v.len()).sum();
    (call.arguments.len() + context) as u64
}

pub(crate) fn content_len(content: &bindings::Content) -> usize {
    match content {
        bindings::Content::Text(text) => text.len(),
        bindings::Content::Blob(blob) => blob.media_type.len() + blob.data.len(),
        bindings::Content::Link(link) => {
            link.uri.len() + link.name.len() + link.media_type.as_ref().map_or(0, String::len)
        }
    }
}

pub(crate) fn guest_text(error: &GuestError) -> &str {
    match error {
        GuestError::InvalidArguments(text)
        | GuestError::Denied(text)
        | GuestError::Unavailable(text)
        | GuestError::Failed(text)
        | GuestError::Other(text) => text,
    }
}

/// Converts the output of the guest; structured output must match the tool's schema.
fn finish(
    output: Output,
    structured: Option<Value>,
    schema: Option<&Schema>,
    redactor: &Redactor,
) -> Result<CallResult, ToolError> {
    if let (Some(value), Some(schema)) = (&structured, schema)
        && let Err(mismatches) = schema.validate(value)
    {
        let reasons = format!("does not match its own schema: {}", Mismatch::list(&mismatches));
        let reasons = redactor.text(&reasons).into_owned();
        return Err(structured::broken(&failure::cut(
            reasons,
            failure::MAX_ERROR_TEXT,
        )));
    }
    let content = output.content.into_iter().map(to_core).collect();
    Ok(CallResult {
        content,
        structured,
        ..CallResult::default()
    })
}

pub(crate) fn to_core(content: bindings::Content) -> Content {
    match content {
        bindings::Content::Text(text) => Content::Text { text },
        bindings::Content::Blob(blob) => Content::Blob(Blob {
            media_type: blob.media_type,
            data: blob.data,
        }),
        bindings::Content::Link(link) => Content::Link(Link {
            uri: link.uri,
            name: link.name,
            media_type: link.media_type,
        }),
    }
}

fn tell_user(observer: &dyn CallObserver, message: String) {
    observer.log(LogLine {
        level: LogLevel::Error,
        source: LogSource::Log,
        message,
    });
}

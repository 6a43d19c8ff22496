use std::future::ready;
use std::sync::Arc;

use serde_json::json;
use toolcell_agent::{Agent, ApprovalRequest, ApprovalRule, Approvals, Approver, Decision, FnTool, Verdict};
use toolcell_core::hook::{CallReport, Effects, Hook, HookContext, HookFuture, HookSpec};
use toolcell_core::{BoxFuture, Policy};
use toolcell_providers::scripted::{Script, Scripted};
use toolcell_sandbox::{Sandbox, SandboxOptions};
use toolcell_store::SqliteSessions;

/// Takes the place of a model: two turns, the first one with two calls.
const SCRIPT: &str = r#"{"steps": [
    {"calls": [
        {"name": "stock", "arguments": {"item": "milk"}},
        {"name": "files_write", "arguments": {"path": "list.txt", "content": "milk\n"}}
    ]},
    {"text": "Milk is on the list."},
    {"text": "Three litres, as I said."}
]}"#;

/// Decides about calls that a rule asks about. A program with users would ask one of them.
struct Operator;

impl Approver for Operator {
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        println!("may {} run with {}?", request.tool, request.arguments);
        Box::pin(ready(Decision::Approve))
    }
}

/// Prints what each call used.
struct Meter;

impl Hook for Meter {
    fn spec(&self) -> HookSpec {
        HookSpec::new("meter")
    }

    fn after_call(&self, call: CallReport, _cx: HookContext) -> HookFuture<'_, Effects> {
        // A tool in this process has no receipt.
        if let Some(receipt) = call.result.receipt {
            println!("{} used {} fuel", call.tool, receipt.fuel);
        }
        Box::pin(ready(Ok(Effects::default())))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let sandbox = Sandbox::new(SandboxOptions::default())?;
    let component = std::fs::read("tools/prebuilt/files.wasm")?;
    let files = sandbox.load("files", &component).await?;

    // A tool in this process, which can do whatever the program can.
    let schema = json!({"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]});
    let stock = FnTool::new("stock", "Tell how much of an item is left", schema, |_, _cx| async {
        Ok("3 l".to_owned())
    })?;

    let notes = dir.path().join("notes");
    std::fs::create_dir(&notes)?;
    let mut policy = Policy::granting([format!("write={}", notes.display()).as_str()])?;
    policy.limits.wall_ms = 2_000;
    let approvals = Approvals {
        rules: vec![ApprovalRule::tool("files_*", Verdict::Ask)],
        ..Approvals::default()
    };
    let store = Arc::new(SqliteSessions::open(dir.path().join("sessions.db"))?);
    let agent = Agent::builder(Scripted::new(Script::parse(SCRIPT)?))
        .tools(files.tools(policy))
        .tool(stock)
        .approvals(approvals)
        .approver(Arc::new(Operator))
        .hook(Arc::new(Meter))
        .store(store)
        .build()?;

    let mut session = agent.session();
    let report = session.ask("Put milk on the list.").await?;
    println!("{} calls: {}", report.calls.len(), report.text);

    // Another process could do this, after a crash as well.
    let mut session = agent.load(session.id()).await?;
    println!("{}", session.ask("How much was left?").await?.text);
    Ok(())
}

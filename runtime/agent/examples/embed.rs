//! A program that embeds the loop: one native tool, one session, events as they happen.
//!
//! The model here is a stand-in that calls the tool once; any [`Provider`] of `toolcell-providers` takes its place.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_agent::{Agent, FnTool};
use toolcell_core::message::{CallRequest, Message, Part};
use toolcell_core::provider::{Completion, Delta, ProviderError, ProviderInfo, Request, StopReason};
use toolcell_core::{BoxStream, Event, Provider};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}});
    let add = FnTool::new("add", "Adds two numbers", schema, |arguments, _| async move {
        let number = |name| arguments.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        Ok(format!("{}", number("a") + number("b")))
    })?;
    let agent = Agent::builder(Arc::new(StandIn(ProviderInfo {
        provider: "stand-in".into(),
        model: "none".into(),
    })))
    .tool(Arc::new(add))
    .instructions("You are good at sums.")
    .build()?;

    let mut session = agent.session();
    let show = |event: &Event| println!("{}", serde_json::to_string(event).expect("events are JSON"));
    let message = Message::user("What is 2 + 40?");
    let report = session.run(message, &show, CancellationToken::new()).await?;
    println!("{} ({} steps)", report.text, report.steps);
    Ok(())
}

struct StandIn(ProviderInfo);

impl Provider for StandIn {
    fn info(&self) -> &ProviderInfo {
        &self.0
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        let part = match request.messages.last().map(AsRef::as_ref) {
            Some(result @ Message::Tool { .. }) => Part::Text {
                text: format!("It is {}.", result.text()),
            },
            _ => Part::Call(CallRequest {
                id: "1".into(),
                name: "add".into(),
                arguments: r#"{"a": 2, "b": 40}"#.into(),
                opaque: Value::Null,
            }),
        };
        let completion = Completion {
            parts: vec![part],
            stop: StopReason::Complete,
            usage: None,
        };
        stream::iter([Ok(Delta::Finished(completion))]).boxed()
    }
}

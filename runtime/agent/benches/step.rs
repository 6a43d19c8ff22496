//! Overhead of the host for one step of a session with 1,000 messages, without the model and the tool. Measures a turn
//! of two steps (a call, its result, an answer), in memory and with the journal on disk.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use toolcell_agent::LoopState;
use toolcell_agent::{Agent, FnTool};
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{Completion, Delta, ProviderError, ProviderInfo, Request, StopReason};
use toolcell_core::{BoxStream, Content, Message, Part, Provider};
use toolcell_store::SqliteSessions;

/// Provider that requests one call, then answers, both without delay.
struct AtOnce(ProviderInfo);

impl Provider for AtOnce {
    fn info(&self) -> &ProviderInfo {
        &self.0
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        let last = request.messages.last().map(AsRef::as_ref);
        let part = match last {
            Some(Message::Tool { .. }) => Part::text("Done."),
            _ => Part::Call(CallRequest {
                id: String::new(),
                name: "echo".into(),
                arguments: r#"{"text":"hello"}"#.into(),
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

fn agent(store: Option<Arc<SqliteSessions>>) -> Agent {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let echo = FnTool::new(
        "echo",
        "Returns its argument",
        schema,
        |arguments, _| async move { Ok(arguments["text"].to_string()) },
    );
    let provider = AtOnce(ProviderInfo {
        provider: "bench".into(),
        model: "instant".into(),
    });
    let builder = Agent::builder(Arc::new(provider)).tool(Arc::new(echo.expect("a tool")));
    let builder = match store {
        Some(store) => builder.store(store),
        None => builder,
    };
    builder.build().expect("an agent")
}

/// 1,000 messages: 333 calls with results of 1 KiB, and answers.
fn history() -> Vec<Message> {
    let mut messages = vec![Message::user("Begin")];
    for i in 0..333 {
        messages.push(Message::Assistant {
            parts: vec![Part::Call(CallRequest {
                id: format!("c{i}"),
                name: "echo".into(),
                arguments: r#"{"text":"hello"}"#.into(),
                opaque: Value::Null,
            })],
        });
        messages.push(Message::Tool {
            call_id: format!("c{i}"),
            name: "echo".into(),
            content: vec![Content::text("x".repeat(1_024))],
            is_error: false,
        });
        messages.push(Message::user("Go on"));
    }
    messages
}

fn two_steps(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let store = SqliteSessions::open(dir.path().join("sessions.db")).expect("a store");
    let agents = [("memory", agent(None)), ("journal", agent(Some(Arc::new(store))))];
    for (name, agent) in agents {
        for (length, messages) in [("1", vec![]), ("1000", history())] {
            c.bench_function(&format!("turn of two steps, {length} messages, {name}"), |b| {
                b.to_async(&runtime).iter_custom(|times| {
                    let (agent, messages) = (agent.clone(), messages.clone());
                    async move {
                        let mut sum = Duration::ZERO;
                        for _ in 0..times {
                            let mut session =
                                agent.session_from(LoopState::with_messages(fresh_name(), messages.clone()));
                            // The first turn writes the conversation to the journal, which is not part of a step.
                            session.ask("Begin").await.expect("an answer");
                            let begun = Instant::now();
                            black_box(session.ask("Go").await.expect("an answer"));
                            sum += begun.elapsed();
                        }
                        sum
                    }
                });
            });
        }
    }
}

/// Unique session name.
fn fresh_name() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("s{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

criterion_group!(benches, two_steps);
criterion_main!(benches);

//! Spans of `tracing` for turns, requests and calls, with the attributes of the OpenTelemetry conventions
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>). They contain no text of the user, a model or a tool.

use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::{Completion, ProviderInfo, StopReason, Usage};
use tracing::{Span, field, info_span};

use crate::report::TurnReport;

/// Span of a turn.
pub(crate) fn turn(session: &str, provider: &ProviderInfo) -> Span {
    info_span!(
        "invoke_agent",
        gen_ai.operation.name = "invoke_agent",
        gen_ai.conversation.id = session,
        gen_ai.provider.name = conventional(&provider.provider),
        gen_ai.request.model = provider.model,
        gen_ai.usage.input_tokens = field::Empty,
        gen_ai.usage.output_tokens = field::Empty,
        error.type = field::Empty,
        toolcell.outcome = field::Empty,
        toolcell.steps = field::Empty,
    )
}

/// Span of a request to the model.
pub(crate) fn chat(session: &str, provider: &ProviderInfo) -> Span {
    info_span!(
        "chat",
        otel.name = format!("chat {}", provider.model),
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.conversation.id = session,
        gen_ai.provider.name = conventional(&provider.provider),
        gen_ai.request.model = provider.model,
        gen_ai.response.finish_reasons = field::Empty,
        gen_ai.usage.input_tokens = field::Empty,
        gen_ai.usage.output_tokens = field::Empty,
        error.type = field::Empty,
    )
}

/// Span of a call.
pub(crate) fn tool(session: &str, name: &str, id: &str) -> Span {
    info_span!(
        "execute_tool",
        otel.name = format!("execute_tool {name}"),
        gen_ai.operation.name = "execute_tool",
        gen_ai.conversation.id = session,
        gen_ai.tool.name = name,
        gen_ai.tool.type = "function",
        gen_ai.tool.call.id = id,
        error.type = field::Empty,
    )
}

/// Name of a provider in the semantic conventions, which name services instead of protocols.
fn conventional(provider: &str) -> &str {
    match provider {
        "responses" => "openai",
        "gemini" => "gcp.gemini",
        "vertex" => "gcp.vertex_ai",
        other => other,
    }
}

pub(crate) fn answered(span: &Span, completion: &Completion) {
    let reason = match &completion.stop {
        StopReason::Complete => "stop",
        StopReason::MaxTokens => "length",
        StopReason::Refused => "content_filter",
        StopReason::Paused => "pause",
        StopReason::MalformedCall => "malformed_call",
        StopReason::Other(_) => "other",
    };
    span.record("gen_ai.response.finish_reasons", reason);
    if let Some(usage) = completion.usage {
        record_usage(span, usage);
    }
}

pub(crate) fn failed(span: &Span, kind: &str) {
    span.record("error.type", kind);
}

pub(crate) fn ended(span: &Span, report: &TurnReport) {
    let outcome = serde_json::to_value(&report.outcome).ok();
    let name = outcome.as_ref().and_then(|value| value.get("outcome")?.as_str());
    let name = name.unwrap_or("unknown");
    span.record("toolcell.outcome", name);
    if matches!(
        report.outcome,
        TurnOutcome::ProviderFailed { .. } | TurnOutcome::HostFailed { .. } | TurnOutcome::Failing { .. }
    ) {
        failed(span, name);
    }
    span.record("toolcell.steps", i64::from(report.steps));
    record_usage(span, report.usage);
}

fn record_usage(span: &Span, usage: Usage) {
    // OpenTelemetry has signed integers only; others would be exported as text.
    let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    span.record("gen_ai.usage.input_tokens", signed(usage.input));
    span.record("gen_ai.usage.output_tokens", signed(usage.output));
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tracing_subscriber::fmt::format::FmtSpan;

    use crate::testing::{Say, Script, call, tool};
    use crate::{Agent, LoopState};

    #[test]
    fn provider_is_named_by_its_service() {
        for (provider, name) in [
            ("anthropic", "anthropic"),
            ("openai", "openai"),
            ("responses", "openai"),
            ("gemini", "gcp.gemini"),
            ("vertex", "gcp.vertex_ai"),
        ] {
            assert_eq!(super::conventional(provider), name);
        }
    }

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn spans_of_turns_requests_and_calls_hold_no_content() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(move || writer.clone())
            .finish();
        let guard = tracing::subscriber::set_default(subscriber);
        let turn = || async {
            let script = Script::new([call("c1", "t", &json!({"secret": "plum"})), Say::Text("A plum.")]);
            let agent = Agent::builder(script)
                .tool(tool("t", |_| Ok("plum".into())))
                .build()
                .unwrap();
            agent
                .session_from(LoopState::new("s1"))
                .ask("A plum?")
                .await
                .unwrap();
        };
        // A span that another thread first reaches while the subscriber is being set may be missed until the cache is
        // renewed. After one turn all of them have been reached.
        turn().await;
        tracing::callsite::rebuild_interest_cache();
        buffer.0.lock().unwrap().clear();
        turn().await;
        drop(guard);
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains("plum"), "{text}");
        let spans: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["span"].clone())
            .collect();
        let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["chat", "execute_tool", "chat", "invoke_agent"]);
        assert_eq!(spans[1]["gen_ai.tool.call.id"], "c1");
        assert_eq!(spans[2]["gen_ai.response.finish_reasons"], "stop");
        for span in &spans {
            assert_eq!(span["gen_ai.conversation.id"], "s1");
        }
        assert_eq!(spans[3]["gen_ai.usage.input_tokens"], 20);
        assert_eq!(spans[3]["toolcell.outcome"], "completed");
    }
}

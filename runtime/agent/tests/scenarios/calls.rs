//! Calls: concurrency, order, exclusivity, observers and results.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::tool::{Hints, LogLevel, LogLine, LogSource, Progress};
use toolcell_core::{
    BoxFuture, CallContext, CallResult, Event, Message, Tool, ToolCall, ToolError, ToolSpec,
};

use super::{RecordedEvents, agent};
use crate::testing::{Closure, Say, Script, call, slow_tool, text_of, tool, tool_with};
use toolcell_agent::policy::LoopPolicy;

fn never() -> CancellationToken {
    CancellationToken::new()
}

#[tokio::test]
async fn concurrent_calls_return_results_in_call_order() {
    let script = Script::new([
        Say::Calls(
            "",
            vec![
                ("1", "slow", "{}".into()),
                ("2", "fast", "{}".into()),
                ("3", "no_such", "{}".into()),
            ],
        ),
        Say::Text("Done."),
    ]);
    // The slow call ends only after the fast one has run.
    let gate = Arc::new(tokio::sync::Notify::new());
    let (opened, waits) = (gate.clone(), gate);
    struct Waiting(ToolSpec, Arc<tokio::sync::Notify>);
    impl Tool for Waiting {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn call(&self, _: ToolCall, _: CallContext) -> BoxFuture<'_, CallResult> {
            Box::pin(async {
                self.1.notified().await;
                CallResult::text("slow result")
            })
        }
    }
    let spec = tool("slow", |_| Ok(String::new())).spec().clone();
    let fast = tool("fast", move |_| {
        opened.notify_one();
        Ok("fast result".into())
    });
    let mut session = agent(&script)
        .tools([Arc::new(Waiting(spec, waits)) as _, fast])
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    let results: Vec<(String, bool)> = report
        .messages
        .iter()
        .filter_map(|message| match message.as_ref() {
            Message::Tool {
                content, is_error, ..
            } => Some((text_of(content), *is_error)),
            _ => None,
        })
        .collect();
    assert_eq!(results[0], ("slow result".into(), false));
    assert_eq!(results[1], ("fast result".into(), false));
    assert!(results[2].1 && results[2].0.contains("there is no tool `no_such`"));
    assert_eq!(report.text, "Done.");
    script.assert_played();
}

#[tokio::test]
async fn concurrency_stays_within_the_policy() {
    for (concurrency, most) in [(1, 1), (2, 2), (8, 5)] {
        let calls = (0..5)
            .map(|i| (["a", "b", "c", "d", "e"][i], "t", "{}".into()))
            .collect();
        let script = Script::new([Say::Calls("", calls), Say::Text("Done.")]);
        struct Counting(ToolSpec, AtomicU32, Arc<AtomicU32>);
        impl Tool for Counting {
            fn spec(&self) -> &ToolSpec {
                &self.0
            }
            fn call(&self, _: ToolCall, _: CallContext) -> BoxFuture<'_, CallResult> {
                Box::pin(async {
                    let now = self.1.fetch_add(1, Ordering::SeqCst) + 1;
                    self.2.fetch_max(now, Ordering::SeqCst);
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                    self.1.fetch_sub(1, Ordering::SeqCst);
                    CallResult::text("ok")
                })
            }
        }
        let seen = Arc::new(AtomicU32::new(0));
        let spec = tool("t", |_| Ok(String::new())).spec().clone();
        let policy = LoopPolicy {
            concurrency,
            ..LoopPolicy::default()
        };
        let counting = Arc::new(Counting(spec, AtomicU32::new(0), seen.clone()));
        let mut session = agent(&script)
            .tool(counting)
            .policy(policy)
            .build()
            .unwrap()
            .session();
        session.ask("Go").await.unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), most, "concurrency {concurrency}");
    }
}

#[tokio::test(start_paused = true)]
async fn destructive_call_runs_alone_in_order() {
    let calls = [
        ("1", "read"),
        ("2", "read"),
        ("3", "write"),
        ("4", "read"),
        ("5", "write"),
    ];
    let calls = calls.map(|(id, name)| (id, name, "{}".to_owned())).into();
    let script = Script::new([Say::Calls("", calls), Say::Text("Done.")]);
    let recorded = RecordedEvents::default();
    let read = slow_tool("read", Duration::from_millis(5), |_| Ok("ok".into()));
    let hints = Hints {
        destructive: true,
        ..Hints::default()
    };
    let write = tool_with("write", r#"{"type":"object"}"#, hints, |_| Ok("ok".into()));
    let mut session = agent(&script).tools([read, write]).build().unwrap().session();
    session
        .run(Message::user("Go"), &recorded, never())
        .await
        .unwrap();
    let order: Vec<String> = recorded
        .all()
        .iter()
        .filter_map(|event| match event {
            Event::CallStarted { id, .. } => Some(format!("+{id}")),
            Event::CallFinished { id, .. } => Some(format!("-{id}")),
            _ => None,
        })
        .collect();
    assert_eq!(order[..2], ["+1", "+2"]);
    assert_eq!(order[4..], ["+3", "-3", "+4", "-4", "+5", "-5"]);
}

#[tokio::test]
async fn logs_and_progress_come_between_start_and_end_of_a_call() {
    struct Chatty(ToolSpec);
    impl Tool for Chatty {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn call(&self, _: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
            Box::pin(async move {
                cx.observer.log(LogLine {
                    level: LogLevel::Info,
                    source: LogSource::Stdout,
                    message: "one".into(),
                });
                cx.observer.log(LogLine {
                    level: LogLevel::Info,
                    source: LogSource::Stdout,
                    message: "two".into(),
                });
                CallResult::text("ok")
            })
        }
    }
    let script = Script::new([call("1", "chatty", &json!({})), Say::Text("Done.")]);
    let recorded = RecordedEvents::default();
    let spec = tool("chatty", |_| Ok(String::new())).spec().clone();
    let mut session = agent(&script)
        .tool(Arc::new(Chatty(spec)))
        .build()
        .unwrap()
        .session();
    session
        .run(Message::user("Go"), &recorded, never())
        .await
        .unwrap();
    assert_eq!(
        recorded.names()[2..7],
        [
            "step_finished",
            "call_started",
            "call_log",
            "call_log",
            "call_finished"
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flooding_call_does_not_keep_others_from_ending() {
    struct Flood(ToolSpec, Arc<AtomicU32>);
    impl Tool for Flood {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn call(&self, _: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
            Box::pin(async move {
                while self.1.load(Ordering::SeqCst) == 0 {
                    cx.observer.progress(Progress {
                        done: 0,
                        total: None,
                        message: None,
                    });
                    tokio::task::yield_now().await;
                }
                CallResult::text("stopped")
            })
        }
    }
    let script = Script::new([
        Say::Calls("", vec![("1", "flood", "{}".into()), ("2", "quick", "{}".into())]),
        Say::Text("Done."),
    ]);
    let ended = Arc::new(AtomicU32::new(0));
    let seen = ended.clone();
    let sink = move |event: &Event| {
        if matches!(event, Event::CallFinished { id, .. } if id == "2") {
            seen.store(1, Ordering::SeqCst);
        }
    };
    let spec = tool("flood", |_| Ok(String::new())).spec().clone();
    let quick = tool("quick", |_| Ok("ok".into()));
    let mut session = agent(&script)
        .tools([Arc::new(Flood(spec, ended)) as _, quick])
        .build()
        .unwrap()
        .session();
    let report = session.run(Message::user("Go"), &sink, never()).await.unwrap();
    assert_eq!(report.outcome, TurnOutcome::Completed);
}

#[tokio::test]
async fn host_error_ends_the_turn_and_a_panic_does_not() {
    let script = Script::new([call("1", "panics", &json!({})), call("2", "broken", &json!({}))]);
    let tools = [
        tool("panics", |_| panic!("unlucky")),
        tool("broken", |_| {
            Err(ToolError::Host {
                message: "disk on fire".into(),
            })
        }),
    ];
    let mut session = agent(&script).tools(tools).build().unwrap().session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(report.calls[0].result.error.as_ref().unwrap().kind(), "crashed");
    assert_eq!(
        report.outcome,
        TurnOutcome::HostFailed {
            message: "disk on fire".into()
        }
    );
}

#[tokio::test]
async fn long_result_is_cut_and_readable_in_full_by_its_handle() {
    let script = Script::new([
        call("big", "long", &json!({})),
        call("2", "read_result", &json!({"call": "big", "from": 5_000})),
        Say::Text("Read."),
    ]);
    let long = tool("long", |_| {
        Ok((0..1_000).map(|i| format!("line {i}\n")).collect())
    });
    let policy = LoopPolicy {
        result_bytes: 300,
        ..LoopPolicy::default()
    };
    let mut session = agent(&script)
        .tool(long)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    let first = text_of(&report.calls[0].result.content);
    assert!(
        first.starts_with("line 0\n") && first.ends_with("line 999\n"),
        "{first}"
    );
    assert!(
        first.contains("bytes cut; read them with `read_result`, call `big` ...]"),
        "{first}"
    );
    let page = text_of(&report.calls[1].result.content);
    assert!(page.starts_with("[bytes 5000 to "), "{page}");
}

#[tokio::test(start_paused = true)]
async fn polling_tool_may_repeat_calls() {
    let again = || call("", "poll", &json!({}));
    let script = Script::new([
        again(),
        again(),
        again(),
        again(),
        again(),
        again(),
        Say::Text("Ready."),
    ]);
    let polling = Closure::new("poll", r#"{"type":"object"}"#, Hints::default(), |_| {
        Ok("not yet".into())
    })
    .annotated("polling", json!(true));
    let mut session = agent(&script).tool(Arc::new(polling)).build().unwrap().session();
    let report = session.ask("Wait").await.unwrap();
    assert_eq!((report.outcome, report.steps), (TurnOutcome::Completed, 7));
}

/// Sink that notifies about the first line of a call.
struct OnLog(Arc<tokio::sync::Notify>);

impl toolcell_core::EventSink for OnLog {
    fn event(&self, event: &Event) {
        if matches!(event, Event::CallLog { .. }) {
            self.0.notify_one();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn line_of_a_running_call_is_shown_at_once() {
    let shown = Arc::new(tokio::sync::Notify::new());
    let waits = shown.clone();
    let tool = toolcell_agent::FnTool::new(
        "t",
        "Waits until its line is shown",
        json!({"type": "object"}),
        move |_, cx| {
            let waits = waits.clone();
            async move {
                cx.observer.log(LogLine {
                    level: LogLevel::Info,
                    source: LogSource::Host,
                    message: "working".into(),
                });
                waits.notified().await;
                Ok("done".to_owned())
            }
        },
    );
    let script = Script::new([call("1", "t", &json!({})), Say::Text("Done.")]);
    let mut session = agent(&script)
        .tool(Arc::new(tool.unwrap()))
        .build()
        .unwrap()
        .session();
    let sink = OnLog(shown);
    let run = session.run(Message::user("Go"), &sink, never());
    let report = tokio::time::timeout(Duration::from_secs(3_600), run).await;
    assert_eq!(report.unwrap().unwrap().text, "Done.");
}

#[tokio::test]
async fn tool_cannot_have_the_name_of_a_control_that_is_not_offered() {
    let named = |name| {
        agent(&Script::new([]))
            .tool(tool(name, |_| Ok(String::new())))
            .policy(LoopPolicy::default())
            .build()
            .map(drop)
    };
    for control in toolcell_agent::Control::ALL {
        let error = named(control.name()).unwrap_err().to_string();
        assert!(
            error.contains(control.name()) && error.contains("reserved"),
            "{error}"
        );
    }
    named("task_completed").unwrap();
}

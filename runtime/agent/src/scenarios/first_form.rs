//! One turn: text, calls, limits, failures, cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{ProviderErrorKind, StopReason, ToolChoice, Usage};
use toolcell_core::tool::LogLine;
use toolcell_core::tool::{Hints, LogLevel, LogSource, Progress};
use toolcell_core::{
    BoxFuture, CallContext, Event, Message, Part, Tool, ToolCall, ToolError, ToolOutput, ToolSpec,
};

use super::{Heard, agent};
use crate::policy::LoopPolicy;
use crate::testing::{Closure, Say, Script, call, slow_tool, text_of, tool, tool_with};
use crate::{AgentError, BuildError};

fn echo() -> Arc<dyn Tool> {
    tool("echo", |arguments| {
        Ok(Value::Object(arguments.clone()).to_string())
    })
}

fn never() -> CancellationToken {
    CancellationToken::new()
}

#[tokio::test]
async fn text_ends_the_turn_and_streams_as_it_comes() {
    let script = Script::new([Say::Text("Hello there.")]);
    let heard = Heard::default();
    let mut session = agent(&script).build().unwrap().session();
    let report = session.run(Message::user("Hi"), &heard, never()).await.unwrap();
    assert_eq!(report.outcome, TurnOutcome::Completed);
    assert_eq!((report.text.as_str(), report.steps), ("Hello there.", 1));
    assert_eq!(
        report.usage,
        Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        }
    );
    assert_eq!(
        heard.names(),
        ["turn_started", "step_started", "step_finished", "turn_finished"]
    );
    assert!(heard.all().contains(&Event::TextDelta {
        text: "Hello there.".into()
    }));
}

#[tokio::test]
async fn calls_of_one_answer_run_at_the_same_time_and_results_come_back_in_call_order() {
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
    // The slow one ends only when the fast one has run.
    let gate = Arc::new(tokio::sync::Notify::new());
    let (opened, waits) = (gate.clone(), gate);
    struct Waiting(ToolSpec, Arc<tokio::sync::Notify>);
    impl Tool for Waiting {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn call(&self, _: ToolCall, _: CallContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
            Box::pin(async {
                self.1.notified().await;
                Ok(ToolOutput::text("slow result"))
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
async fn no_more_calls_run_at_one_time_than_the_policy_allows() {
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
            fn call(&self, _: ToolCall, _: CallContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
                Box::pin(async {
                    let now = self.1.fetch_add(1, Ordering::SeqCst) + 1;
                    self.2.fetch_max(now, Ordering::SeqCst);
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                    self.1.fetch_sub(1, Ordering::SeqCst);
                    Ok(ToolOutput::text("ok"))
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
async fn a_destructive_call_waits_for_those_before_it_and_those_after_it_wait() {
    let calls = [
        ("1", "read"),
        ("2", "read"),
        ("3", "write"),
        ("4", "read"),
        ("5", "write"),
    ];
    let calls = calls.map(|(id, name)| (id, name, "{}".to_owned())).into();
    let script = Script::new([Say::Calls("", calls), Say::Text("Done.")]);
    let heard = Heard::default();
    let read = slow_tool("read", Duration::from_millis(5), |_| Ok("ok".into()));
    let hints = Hints {
        destructive: true,
        ..Hints::default()
    };
    let write = tool_with("write", r#"{"type":"object"}"#, hints, |_| Ok("ok".into()));
    let mut session = agent(&script).tools([read, write]).build().unwrap().session();
    session.run(Message::user("Go"), &heard, never()).await.unwrap();
    let order: Vec<String> = heard
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
async fn the_step_limit_is_followed_by_one_answer_without_tools() {
    let ask = |i: u32| call(["1", "2", "3"][i as usize], "echo", &json!({"i": i}));
    for (limit, outcome) in [
        (3, TurnOutcome::Completed),
        (2, TurnOutcome::StepLimit { steps: 2 }),
    ] {
        let script = Script::new([ask(0), ask(1), Say::Text("So far so good.")]);
        let policy = LoopPolicy {
            max_steps: limit,
            ..LoopPolicy::default()
        };
        let mut session = agent(&script)
            .tool(echo())
            .policy(policy)
            .build()
            .unwrap()
            .session();
        let report = session.ask("Go").await.unwrap();
        assert_eq!(
            (report.outcome, report.text.as_str()),
            (outcome, "So far so good.")
        );
        let last = script.requests().pop().unwrap();
        let choice = if limit == 3 {
            ToolChoice::Auto
        } else {
            ToolChoice::None
        };
        assert_eq!(last.tool_choice, choice);
        script.assert_played();
    }
}

#[tokio::test]
async fn calls_in_the_last_answer_are_answered_and_not_executed() {
    let script = Script::new([
        call("1", "echo", &json!({})),
        Say::Calls("I try again.", vec![("2", "echo", "{}".into())]),
        Say::Text("Next turn."),
    ]);
    let policy = LoopPolicy {
        max_steps: 1,
        ..LoopPolicy::default()
    };
    let mut session = agent(&script)
        .tool(echo())
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(report.text, "I try again.");
    assert!(report.calls[1].error.is_some());
    // The provider checks the conversation of the next turn.
    assert_eq!(session.ask("More").await.unwrap().text, "Next turn.");
}

#[tokio::test]
async fn a_provider_that_fails_ends_the_turn_with_what_it_said_so_far() {
    for (say, kind) in [
        (
            Say::Fail("Half an ans", ProviderErrorKind::Unavailable),
            ProviderErrorKind::Unavailable,
        ),
        (Say::Truncate("Half an ans"), ProviderErrorKind::Truncated),
    ] {
        let script = Script::new([call("1", "echo", &json!({"a": 1})), say, Say::Text("Whole.")]);
        let mut session = agent(&script).tool(echo()).build().unwrap().session();
        let report = session.ask("Go").await.unwrap();
        assert!(matches!(&report.outcome, TurnOutcome::ProviderFailed { error } if error.kind == kind));
        assert_eq!(report.text, "Half an ans");
        assert_eq!(report.calls.len(), 1);
        assert_eq!(session.messages().last().unwrap().text(), "Half an ans");
        assert_eq!(session.ask("Go on").await.unwrap().text, "Whole.");
    }
}

#[tokio::test]
async fn a_call_that_was_cut_off_is_not_executed_and_the_model_is_told() {
    let part = |arguments: &str| {
        Part::Call(CallRequest {
            id: "c".into(),
            name: "echo".into(),
            arguments: arguments.into(),
            opaque: Value::Null,
        })
    };
    let cases = [
        (vec![], vec!["echo"], 0),
        (vec![part("{\"a\": 1}")], vec!["echo", "echo"], 1),
        // A wire that keeps the broken call: half a text, and none at all, which would pass as no arguments.
        (vec![part("{\"a\": ")], vec!["echo"], 0),
        (vec![part("")], vec!["echo"], 0),
    ];
    for (parts, begun, executed) in cases {
        let script = Script::new([
            Say::Raw(parts, StopReason::MaxTokens, begun),
            Say::Text("Shorter."),
        ]);
        let count = Arc::new(AtomicU32::new(0));
        let counter = count.clone();
        let counting = tool("echo", move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok("ok".into())
        });
        let mut session = agent(&script).tool(counting).build().unwrap().session();
        let report = session.ask("Go").await.unwrap();
        assert_eq!(count.load(Ordering::SeqCst), executed);
        assert_eq!(
            (report.outcome, report.text.as_str()),
            (TurnOutcome::Completed, "Shorter.")
        );
        let told = script.requests()[1].messages.last().unwrap().text();
        assert!(
            told.contains("limit of tokens") && told.contains("not executed"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_was_stopped_is_the_outcome() {
    for stop in [
        StopReason::MaxTokens,
        StopReason::Refused,
        StopReason::Other("filter".into()),
    ] {
        let said = vec![Part::text("I cannot")];
        let script = Script::new([Say::Raw(said, stop.clone(), vec![])]);
        let mut session = agent(&script).build().unwrap().session();
        let report = session.ask("Go").await.unwrap();
        assert_eq!(
            (report.outcome, report.text.as_str()),
            (TurnOutcome::Stopped { stop }, "I cannot")
        );
    }
}

#[tokio::test]
async fn a_paused_answer_is_sent_again_as_it_is() {
    let thinking = vec![
        Part::Reasoning {
            text: "Hm.".into(),
            opaque: json!({"signature": 1}),
        },
        Part::text("Wait"),
    ];
    let script = Script::new([
        Say::Raw(thinking.clone(), StopReason::Paused, vec![]),
        Say::Text("Now."),
    ]);
    let mut session = agent(&script).build().unwrap().session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!((report.text.as_str(), report.steps), ("Now.", 2));
    assert_eq!(report.reasoning, ["Hm."]);
    let sent = script.requests()[1].messages.last().unwrap().clone();
    assert_eq!(*sent, Message::Assistant { parts: thinking });
}

#[tokio::test(start_paused = true)]
async fn cancelling_drops_running_calls_and_each_has_its_result_and_receipt() {
    let script = Script::new([
        Say::Calls(
            "Working.",
            vec![
                ("1", "quick", "{}".into()),
                ("2", "slow", "{}".into()),
                ("3", "slow", "{}".into()),
            ],
        ),
        Say::Text("Next."),
    ]);
    let heard = Heard::default();
    let cancel = never();
    let policy = LoopPolicy {
        concurrency: 2,
        ..LoopPolicy::default()
    };
    let tools = [
        tool("quick", |_| Ok("ok".into())),
        slow_tool("slow", Duration::from_secs(3600), |_| Ok("late".into())),
    ];
    let mut session = agent(&script)
        .tools(tools)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let token = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        token.cancel();
    });
    let report = session.run(Message::user("Go"), &heard, cancel).await.unwrap();
    assert_eq!(report.outcome, TurnOutcome::Cancelled);
    assert_eq!(report.text, "Working.");
    let ended: Vec<_> = report
        .calls
        .iter()
        .map(|c| {
            (
                c.id.as_str(),
                c.error.as_ref().map(ToolError::kind),
                c.receipt.as_ref().map(|r| r.fuel),
            )
        })
        .collect();
    assert_eq!(
        ended,
        [
            ("1", None, None),
            ("2", Some("cancelled"), Some(7)),
            ("3", Some("cancelled"), Some(7))
        ]
    );
    let events = heard.names();
    assert_eq!(events.iter().filter(|name| *name == "call_started").count(), 3);
    assert_eq!(events.iter().filter(|name| *name == "call_finished").count(), 3);
    assert_eq!(events.last().unwrap(), "turn_finished");
    assert_eq!(session.ask("And now?").await.unwrap().text, "Next.");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_turn_that_waits_for_the_model_or_for_a_call() {
    let slow = || slow_tool("slow", Duration::from_secs(3600), |_| Ok("late".into()));
    for say in [
        Say::Hang("So I thi"),
        Say::Calls("So I thi", vec![("1", "slow", "{}".into())]),
    ] {
        let script = Script::new([say]);
        let policy = LoopPolicy {
            deadline_ms: Some(5_000),
            ..LoopPolicy::default()
        };
        let mut session = agent(&script)
            .tool(slow())
            .policy(policy)
            .build()
            .unwrap()
            .session();
        let report = session.ask("Go").await.unwrap();
        assert_eq!(report.outcome, TurnOutcome::Deadline { ms: 5_000 });
        assert_eq!(report.text, "So I thi");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_and_a_call_have_their_own_time_limits() {
    let script = Script::new([call("1", "slow", &json!({})), Say::Hang("So")]);
    let policy = LoopPolicy {
        request_timeout_ms: Some(2_000),
        call_timeout_ms: Some(1_000),
        ..LoopPolicy::default()
    };
    let slow = slow_tool("slow", Duration::from_secs(3600), |_| Ok("late".into()));
    let mut session = agent(&script)
        .tool(slow)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(
        report.calls[0].error.as_ref().unwrap().to_string(),
        "stopped by a limit: not finished after 1000 ms"
    );
    assert_eq!(report.calls[0].receipt.as_ref().unwrap().fuel, 7);
    assert!(
        matches!(report.outcome, TurnOutcome::ProviderFailed { error } if error.kind == ProviderErrorKind::Timeout)
    );
}

#[tokio::test]
async fn logs_and_progress_come_between_start_and_end_of_their_call() {
    struct Chatty(ToolSpec);
    impl Tool for Chatty {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn call(&self, _: ToolCall, cx: CallContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
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
                Ok(ToolOutput::text("ok"))
            })
        }
    }
    let script = Script::new([call("1", "chatty", &json!({})), Say::Text("Done.")]);
    let heard = Heard::default();
    let spec = tool("chatty", |_| Ok(String::new())).spec().clone();
    let mut session = agent(&script)
        .tool(Arc::new(Chatty(spec)))
        .build()
        .unwrap()
        .session();
    session.run(Message::user("Go"), &heard, never()).await.unwrap();
    assert_eq!(
        heard.names()[2..7],
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
async fn a_call_that_never_stops_telling_does_not_keep_others_from_ending() {
    struct Flood(ToolSpec, Arc<AtomicU32>);
    impl Tool for Flood {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn call(&self, _: ToolCall, cx: CallContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
            Box::pin(async move {
                while self.1.load(Ordering::SeqCst) == 0 {
                    cx.observer.progress(Progress {
                        done: 0,
                        total: None,
                        message: None,
                    });
                    tokio::task::yield_now().await;
                }
                Ok(ToolOutput::text("stopped"))
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
async fn a_host_error_ends_the_turn_and_a_panic_does_not() {
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
    assert_eq!(report.calls[0].error.as_ref().unwrap().kind(), "crashed");
    assert_eq!(
        report.outcome,
        TurnOutcome::HostFailed {
            message: "disk on fire".into()
        }
    );
}

#[tokio::test]
async fn identifiers_that_are_missing_or_used_twice_are_replaced() {
    let script = Script::new([
        Say::Calls(
            "",
            vec![
                ("", "echo", "{}".into()),
                ("x", "echo", "{}".into()),
                ("x", "echo", "{}".into()),
            ],
        ),
        call("x", "echo", &json!({})),
        Say::Text("Done."),
    ]);
    let mut session = agent(&script).tool(echo()).build().unwrap().session();
    let report = session.ask("Go").await.unwrap();
    let ids: std::collections::BTreeSet<&str> = report.calls.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids.len(), 4, "{ids:?}");
    assert!(ids.contains("x") && !ids.contains(""));
}

#[tokio::test]
async fn tools_are_sent_in_the_same_order_whatever_was_added_first() {
    let tools = || ["b", "a", "c"].map(|name| tool(name, |_| Ok(String::new())));
    let mut requests = Vec::new();
    for reversed in [false, true] {
        let script = Script::new([Say::Text("Hi.")]);
        let mut tools: Vec<_> = tools().into();
        if reversed {
            tools.reverse();
        }
        agent(&script)
            .tools(tools)
            .build()
            .unwrap()
            .session()
            .ask("Hi")
            .await
            .unwrap();
        requests.push(serde_json::to_string(&*script.requests()[0].tools).unwrap());
    }
    assert_eq!(requests[0], requests[1]);
}

#[tokio::test]
async fn what_does_not_fit_together_is_refused_when_the_agent_is_made() {
    let script = Script::new([]);
    let error = |builder: crate::AgentBuilder| builder.build().unwrap_err();
    let twice = [tool("a", |_| Ok(String::new())), tool("a", |_| Ok(String::new()))];
    assert!(matches!(
        error(agent(&script).tools(twice)),
        BuildError::DuplicateTool { .. }
    ));
    let no_steps = LoopPolicy {
        max_steps: 0,
        ..LoopPolicy::default()
    };
    assert_eq!(
        error(agent(&script).policy(no_steps)),
        BuildError::Zero { setting: "max_steps" }
    );
    let endless = LoopPolicy {
        finish: crate::policy::Finish::Tool,
        ..LoopPolicy::default()
    };
    assert_eq!(error(agent(&script).policy(endless)), BuildError::NoWayToFinish);
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_future_was_dropped_is_resumed_and_nothing_runs_twice() {
    let script = Script::new([
        Say::Calls("", vec![("1", "count", "{}".into()), ("2", "slow", "{}".into())]),
        Say::Text("Done."),
    ]);
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    let counting = tool_with(
        "count",
        r#"{"type":"object"}"#,
        Hints {
            idempotent: true,
            ..Hints::default()
        },
        move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok("ok".into())
        },
    );
    let slow = slow_tool("slow", Duration::from_secs(3600), |_| Ok("late".into()));
    let mut session = agent(&script).tools([counting, slow]).build().unwrap().session();
    let dropped = tokio::time::timeout(Duration::from_secs(1), session.ask("Go")).await;
    assert!(dropped.is_err() && session.is_open());
    assert!(matches!(
        session.ask("Hello?").await,
        Err(AgentError::TurnOpen { .. })
    ));
    let report = session.resume(&crate::Silent, never()).await.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Done.")
    );
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(
        report.calls[0]
            .error
            .as_ref()
            .unwrap()
            .to_string()
            .contains("outcome is unknown")
    );
    assert!(matches!(
        session.resume(&crate::Silent, never()).await,
        Err(AgentError::NoTurn { .. })
    ));
}

#[tokio::test]
async fn a_long_result_is_cut_for_the_model_and_read_whole_by_its_handle() {
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
    let first = text_of(&report.calls[0].content);
    assert!(
        first.starts_with("line 0\n") && first.ends_with("line 999\n"),
        "{first}"
    );
    assert!(
        first.contains("bytes cut; read them with `read_result`, call `big` ...]"),
        "{first}"
    );
    let page = text_of(&report.calls[1].content);
    assert!(page.starts_with("[bytes 5000 to "), "{page}");
}

#[tokio::test(start_paused = true)]
async fn a_polling_tool_may_repeat_itself() {
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

#[tokio::test(start_paused = true)]
async fn cancelled_at_any_moment_every_call_has_its_result_and_the_session_goes_on() {
    let tools = || {
        [
            slow_tool("short", Duration::from_millis(3), |_| Ok("short".into())),
            slow_tool("long", Duration::from_millis(11), |_| Ok("long".into())),
        ]
    };
    for moment in 0..30 {
        let round = || {
            Say::Calls(
                "",
                vec![
                    ("", "short", "{}".into()),
                    ("", "long", "{}".into()),
                    ("", "short", "{}".into()),
                ],
            )
        };
        let script = Script::new([round(), round(), Say::Text("Done."), Say::Text("Done.")]);
        let policy = LoopPolicy {
            concurrency: 2,
            ..LoopPolicy::default()
        };
        let mut session = agent(&script)
            .tools(tools())
            .policy(policy)
            .build()
            .unwrap()
            .session();
        let cancel = never();
        let token = cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(moment)).await;
            token.cancel();
        });
        let report = session
            .run(Message::user("Go"), &crate::Silent, cancel)
            .await
            .unwrap();
        crate::testing::assert_paired(&report.messages);
        // Two rounds take 11 ms each.
        if moment != 22 {
            let cancelled = report.outcome == TurnOutcome::Cancelled;
            assert_eq!(cancelled, moment < 22, "at {moment} ms: {:?}", report.outcome);
        }
        assert_eq!(session.ask("Next").await.unwrap().outcome, TurnOutcome::Completed);
    }
}

#[tokio::test]
async fn an_answer_that_must_fit_a_schema_is_asked_for_again_until_it_does() {
    let script = Script::new([
        Say::Text("It is 42."),
        Say::Text("{\"n\": \"42\"}"),
        Say::Text("{\"n\": 42}"),
    ]);
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
    let schema = toolcell_core::Schema::parse(schema).unwrap();
    let mut session = agent(&script).answer_schema(schema).build().unwrap().session();
    let report = session.ask("What is it?").await.unwrap();
    assert_eq!(
        (report.outcome, report.result),
        (TurnOutcome::Completed, Some(json!({"n": 42})))
    );
    let requests = script.requests();
    assert!(requests[0].response_schema.is_some());
    let told = requests[2].messages.last().unwrap().text();
    assert!(
        told.contains("at /n: \"42\" is not of type \"integer\""),
        "{told}"
    );
}

#[tokio::test]
async fn an_answer_that_never_fits_ends_the_turn() {
    let script = Script::new((0..5).map(|_| Say::Text("It is 42.")));
    let schema = toolcell_core::Schema::parse(r#"{"type":"object"}"#).unwrap();
    let mut session = agent(&script).answer_schema(schema).build().unwrap().session();
    let report = session.ask("What is it?").await.unwrap();
    assert!(
        matches!(report.outcome, TurnOutcome::Failing { times: 5, .. }),
        "{:?}",
        report.outcome
    );
    script.assert_played();
}

#[tokio::test]
async fn settings_of_the_model_go_with_every_request() {
    let script = Script::new([Say::Text("Hi.")]);
    let settings = crate::ModelSettings {
        max_output_tokens: Some(100),
        temperature: Some(0.5),
    };
    agent(&script)
        .model(settings)
        .build()
        .unwrap()
        .session()
        .ask("Hi")
        .await
        .unwrap();
    let request = &script.requests()[0];
    assert_eq!(
        (request.max_output_tokens, request.temperature),
        (Some(100), Some(0.5))
    );
}

#[tokio::test]
async fn a_turn_begins_with_a_message_of_the_person_alone() {
    let script = Script::new([]);
    let mut session = agent(&script).build().unwrap().session();
    let error = session
        .run(Message::assistant("I say"), &crate::Silent, never())
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::NotAPerson { .. }));
    assert!(!session.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_interrupted_can_be_given_up() {
    let script = Script::new([
        Say::Calls("", vec![("1", "slow", "{}".into())]),
        Say::Text("New."),
    ]);
    let slow = slow_tool("slow", Duration::from_secs(3600), |_| Ok("late".into()));
    let mut session = agent(&script).tool(slow).build().unwrap().session();
    let _ = tokio::time::timeout(Duration::from_secs(1), session.ask("Go")).await;
    let report = session.abandon(&crate::Silent).await.unwrap();
    assert_eq!(report.outcome, TurnOutcome::Cancelled);
    assert_eq!(report.calls[0].error, Some(ToolError::Cancelled));
    assert_eq!(session.ask("Something else").await.unwrap().text, "New.");
    assert!(matches!(
        session.abandon(&crate::Silent).await,
        Err(AgentError::NoTurn { .. })
    ));
}

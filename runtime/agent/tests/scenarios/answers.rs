//! Answers of a model (text, structured, partial, empty) and the requests for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{ProviderErrorKind, StopReason, Usage};
use toolcell_core::{Event, Message, Part, Tool};

use super::{RecordedEvents, agent};
use crate::testing::{Say, Script, call, tool};
use toolcell_agent::AgentError;
use toolcell_agent::BuildError;
use toolcell_agent::policy::LoopPolicy;

fn echo() -> Arc<dyn Tool> {
    tool("echo", |arguments| {
        Ok(Value::Object(arguments.clone()).to_string())
    })
}

fn never() -> CancellationToken {
    CancellationToken::new()
}

#[tokio::test]
async fn text_is_streamed_and_ends_the_turn() {
    let script = Script::new([Say::Text("Hello there.")]);
    let recorded = RecordedEvents::default();
    let mut session = agent(&script).build().unwrap().session();
    let report = session
        .run(Message::user("Hi"), &recorded, never())
        .await
        .unwrap();
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
        recorded.names(),
        ["turn_started", "step_started", "step_finished", "turn_finished"]
    );
    assert!(recorded.all().contains(&Event::TextDelta {
        text: "Hello there.".into()
    }));
}

#[tokio::test]
async fn provider_failure_ends_the_turn_with_the_partial_answer() {
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
async fn call_that_was_cut_off_is_reported_and_not_executed() {
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
        // A provider that keeps the broken call: truncated arguments, and an empty string, which would parse as no arguments.
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
        let sent = script.requests()[1].messages.last().unwrap().text();
        assert!(
            sent.contains("token limit") && sent.contains("not executed"),
            "{sent}"
        );
    }
}

#[tokio::test]
async fn stopped_answer_is_the_outcome() {
    for stop in [
        StopReason::MaxTokens,
        StopReason::Refused,
        StopReason::Other("filter".into()),
    ] {
        let parts = vec![Part::text("I cannot")];
        let script = Script::new([Say::Raw(parts, stop.clone(), vec![])]);
        let mut session = agent(&script).build().unwrap().session();
        let report = session.ask("Go").await.unwrap();
        assert_eq!(
            (report.outcome, report.text.as_str()),
            (TurnOutcome::Stopped { stop }, "I cannot")
        );
    }
}

#[tokio::test]
async fn paused_answer_is_sent_back_unchanged() {
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

#[tokio::test]
async fn missing_and_duplicate_call_ids_are_replaced() {
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
async fn tools_are_sent_in_one_order() {
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
async fn conflicting_settings_are_refused_by_the_builder() {
    let script = Script::new([]);
    let error = |builder: toolcell_agent::AgentBuilder| builder.build().unwrap_err();
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
        finish: toolcell_agent::policy::Finish::Tool,
        ..LoopPolicy::default()
    };
    assert_eq!(error(agent(&script).policy(endless)), BuildError::NoWayToFinish);
}

#[tokio::test]
async fn answer_is_requested_until_it_fits_its_schema() {
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
    let sent = requests[2].messages.last().unwrap().text();
    assert!(
        sent.contains("It does not: at /n: \"42\" is not of type \"integer\""),
        "{sent}"
    );
}

#[tokio::test]
async fn answer_that_never_fits_its_schema_ends_the_turn() {
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
async fn model_settings_are_sent_with_every_request() {
    let script = Script::new([Say::Text("Hi.")]);
    let settings = toolcell_agent::ModelSettings {
        max_output_tokens: Some(100),
        temperature: Some(0.5),
        top_p: Some(0.9),
        stop: vec!["END".to_owned()].into(),
        seed: Some(7),
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
    assert_eq!(
        (request.top_p, &*request.stop, request.seed),
        (Some(0.9), &["END".to_owned()][..], Some(7))
    );
}

#[tokio::test]
async fn turn_starts_with_a_user_message_only() {
    let script = Script::new([]);
    let mut session = agent(&script).build().unwrap().session();
    let error = session
        .run(Message::assistant("I say"), &toolcell_agent::NullSink, never())
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::NotAUserMessage { .. }));
    assert!(!session.is_open());
}

#[tokio::test]
async fn unreadable_call_is_asked_for_once_more() {
    let malformed = || Say::Raw(Vec::new(), StopReason::MalformedCall, Vec::new());
    let script = Script::new([malformed(), Say::Text("Here.")]);
    let mut session = agent(&script).build().unwrap().session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Here.")
    );
    let told = script.requests()[1].messages.last().unwrap().text();
    assert!(told.contains("could not be read"), "{told}");

    let script = Script::new([malformed(), malformed(), malformed()]);
    let mut session = agent(&script).build().unwrap().session();
    let report = session.ask("Go").await.unwrap();
    let stop = StopReason::MalformedCall;
    assert_eq!(report.outcome, TurnOutcome::Stopped { stop });
    script.assert_asked(2);
    let reminders = session
        .messages()
        .iter()
        .filter(|m| m.text().contains("could not be read"));
    assert_eq!(reminders.count(), 1);
}

#[tokio::test]
async fn end_of_failing_turn_leaves_no_reminder_behind() {
    for (answer, requests, words) in [("never JSON", 5, "required schema"), ("", 3, "was empty")] {
        let script = Script::new((0..requests).map(|_| Say::Text(answer)));
        let schema = toolcell_core::Schema::parse(r#"{"type":"object"}"#).unwrap();
        let mut session = agent(&script).answer_schema(schema).build().unwrap().session();
        let report = session.ask("Go").await.unwrap();
        let is_failing = matches!(report.outcome, TurnOutcome::Failing { times, .. } if times == requests);
        assert!(is_failing, "{:?}", report.outcome);
        let texts = session.messages().iter().map(|message| message.text());
        let reminders = texts.filter(|text| text.contains(words)).count();
        assert_eq!(reminders, requests as usize - 1, "{words}");
    }
}

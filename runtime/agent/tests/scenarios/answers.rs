//! What a model answers: text, text in a form, half an answer, none; and what it is sent.

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
async fn text_ends_the_turn_and_streams_as_it_comes() {
    let script = Script::new([Say::Text("Hello there.")]);
    let heard = RecordedEvents::default();
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
    let settings = toolcell_agent::ModelSettings {
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
        .run(Message::assistant("I say"), &toolcell_agent::NullSink, never())
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::NotAPerson { .. }));
    assert!(!session.is_open());
}

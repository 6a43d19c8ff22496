//! Preset `resilient` (design V): a question answered with tools, and without them when they fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::{StopReason, ToolChoice};
use toolcell_core::tool::Hints;
use toolcell_core::{Message, Part, Tool, ToolError};

use crate::agent;
use crate::testing::{Say, Script, call, text_of, tool, tool_with};
use toolcell_agent::FnTool;
use toolcell_agent::policy::LoopPolicy;
use toolcell_agent::preset;

fn failing(idempotent: bool, count: &Arc<AtomicU32>) -> Arc<dyn Tool> {
    let count = count.clone();
    let hints = Hints {
        idempotent,
        ..Hints::default()
    };
    tool_with("web_fetch", r#"{"type":"object"}"#, hints, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Err(ToolError::Unavailable {
            message: "no route".into(),
        })
    })
}

#[tokio::test]
async fn v01_v02_v03_v08_parallel_calls_answer_with_a_full_report() {
    let thinking = |text: &str| Part::Reasoning {
        text: text.into(),
        opaque: Value::Null,
    };
    let mut first = vec![thinking("I need two pages.")];
    first.extend(crate::testing::parts(
        "",
        &[
            ("1", "web_fetch", json!({"url": "https://a.example"}).to_string()),
            ("2", "web_fetch", json!({"url": "https://b.example"}).to_string()),
        ],
    ));
    let script = Script::new([
        Say::Raw(first, StopReason::Complete, vec![]),
        Say::Raw(
            vec![thinking("Both agree."), Part::text("They agree.")],
            StopReason::Complete,
            vec![],
        ),
    ]);
    let fetch = tool("web_fetch", |arguments| Ok(format!("page {}", arguments["url"])));
    let mut session = agent(&script)
        .tool(fetch)
        .policy(preset::resilient())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Do both pages agree?").await.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "They agree.")
    );
    assert_eq!(report.reasoning, ["I need two pages.", "Both agree."]);
    let calls: Vec<(&str, &Value)> = report
        .calls
        .iter()
        .map(|c| (c.tool.as_str(), &c.arguments["url"]))
        .collect();
    assert_eq!(calls.len(), 2);
    assert!(calls.contains(&("web_fetch", &json!("https://a.example"))));
    assert_eq!(
        (report.usage.input, report.usage.output, report.steps),
        (20, 10, 2)
    );
    assert_eq!(report.session, session.id());
}

#[tokio::test(start_paused = true)]
async fn v08_only_idempotent_calls_are_retried() {
    for (idempotent, tries) in [(true, 2), (false, 1)] {
        let script = Script::new([call("1", "web_fetch", &json!({})), Say::Text("From memory: 42.")]);
        let count = Arc::default();
        let mut session = agent(&script)
            .tool(failing(idempotent, &count))
            .policy(preset::resilient())
            .build()
            .unwrap()
            .session();
        session.ask("Go").await.unwrap();
        assert_eq!(count.load(Ordering::SeqCst), tries);
    }
}

#[tokio::test(start_paused = true)]
async fn v12_failure_of_all_calls_leads_to_an_answer_without_tools() {
    let script = Script::new([call("1", "web_fetch", &json!({})), Say::Text("From memory: 42.")]);
    let mut session = agent(&script)
        .tool(failing(false, &Arc::default()))
        .policy(preset::resilient())
        .build()
        .unwrap()
        .session();
    let report = session.ask("What is it?").await.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::ToolsFailed, "From memory: 42.")
    );
    let last = script.requests().pop().unwrap();
    assert_eq!(last.tool_choice, ToolChoice::None);
    let told = last.messages.last().unwrap().text();
    assert!(
        told.contains("web_fetch: not available at the moment: no route"),
        "{told}"
    );
    assert!(told.ends_with("The request was: What is it?"), "{told}");
    // The instruction is part of this request only.
    assert!(
        !session
            .messages()
            .iter()
            .any(|m| m.text().contains("All tools failed"))
    );
}

#[tokio::test]
async fn v12_one_success_among_failures_continues_the_loop() {
    let script = Script::new([
        Say::Calls(
            "",
            vec![("1", "web_fetch", "{}".into()), ("2", "other", "{}".into())],
        ),
        Say::Text("Half is enough."),
    ]);
    let tools = [
        failing(false, &Arc::default()),
        tool("other", |_| Ok("ok".into())),
    ];
    let mut session = agent(&script)
        .tools(tools)
        .policy(preset::resilient())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Half is enough.")
    );
}

#[tokio::test]
async fn v13_answer_at_the_step_limit_lists_findings() {
    let script = Script::new((0..10).map(|i| call("", "t", &json!({"i": i}))));
    let long = tool("t", |arguments| {
        Ok(format!("{} {}", arguments["i"], "x".repeat(200)))
    });
    let mut session = agent(&script)
        .tool(long)
        .policy(preset::resilient())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(report.outcome, TurnOutcome::StepLimit { steps: 10 });
    let lines: Vec<&str> = report.text.lines().collect();
    assert_eq!(
        lines[0],
        "The task was not finished within 10 steps. This was found:"
    );
    assert_eq!(lines[1], format!("- t: 0 {}…", "x".repeat(98)));
    assert_eq!(lines.len(), 11);
    script.assert_played();
}

#[tokio::test]
async fn v14_reasoning_is_requested_if_the_question_asks_for_it() {
    for (question, effort) in [
        ("Compare A and B", Some("high")),
        ("Explain WHY it rains", Some("high")),
        ("Hello", None),
    ] {
        let script = Script::new([Say::Text("Fine.")]);
        let mut session = agent(&script)
            .policy(preset::resilient())
            .build()
            .unwrap()
            .session();
        session.ask(question).await.unwrap();
        assert_eq!(
            script.requests()[0].reasoning_effort.as_deref(),
            effort,
            "{question}"
        );
    }
}

#[tokio::test]
async fn v17_messages_are_sent_once_and_tools_share_the_context() {
    let script = Script::new([
        call("1", "whose", &json!({})),
        call("2", "whose", &json!({"b": 1})),
        Say::Text("Done."),
    ]);
    let whose = FnTool::new(
        "whose",
        "Says whose session it is",
        json!({"type": "object"}),
        |_, cx| async move { Ok(format!("of {}", cx.values["tenant"])) },
    );
    let mut session = agent(&script)
        .tool(Arc::new(whose.unwrap()))
        .value("tenant", json!("acme"))
        .policy(preset::resilient())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert!(
        report
            .calls
            .iter()
            .all(|call| text_of(&call.result.content) == "of \"acme\"")
    );
    for (i, request) in script.requests().iter().enumerate() {
        assert_eq!(request.messages.len(), 1 + 2 * i);
        let users = request
            .messages
            .iter()
            .filter(|m| matches!(m.as_ref(), Message::User { .. }));
        assert_eq!(users.count(), 1);
    }
}

#[tokio::test]
async fn v17_f13_without_tools_a_turn_is_one_request() {
    for name in preset::NAMES {
        let script = Script::new([Say::Text("Hi.")]);
        let policy = preset::named(name).unwrap();
        let mut session = agent(&script).policy(policy).build().unwrap().session();
        let report = session.ask("Hello").await.unwrap();
        assert_eq!((report.text.as_str(), report.steps), ("Hi.", 1), "{name}");
        assert_eq!(report.outcome, TurnOutcome::Completed, "{name}");
        assert!(script.requests()[0].tools.is_empty(), "{name}");
        script.assert_asked(1);
    }
}

#[tokio::test]
async fn answer_without_tools_counts_as_one_of_the_steps() {
    let failing = tool("t", |_| Err(ToolError::Failed { message: "no".into() }));
    for (steps, requests) in [(1, 1), (2, 2), (3, 2)] {
        let script = Script::new([call("1", "t", &json!({})), Say::Text("From memory.")]);
        let policy = LoopPolicy {
            max_steps: steps,
            ..preset::resilient()
        };
        let mut session = agent(&script)
            .tool(failing.clone())
            .policy(policy)
            .build()
            .unwrap()
            .session();
        let report = session.ask("Hello").await.unwrap();
        script.assert_asked(requests);
        assert!(report.steps <= steps, "{report:?}");
        if steps > 1 {
            assert_eq!(
                (report.outcome, report.text.as_str()),
                (TurnOutcome::ToolsFailed, "From memory.")
            );
        }
    }
}

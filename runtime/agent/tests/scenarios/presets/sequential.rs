//! Preset `sequential` (design H): calls run one after the other, text ends the turn.

use std::future::ready;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_core::Message;
use toolcell_core::event::{NoticeLevel, TurnOutcome};

use crate::testing::{Say, Script, call, tool};
use crate::{RecordedEvents, agent};
use toolcell_agent::BuildError;
use toolcell_agent::hook::{
    CallAnswer, CallReport, Effects, Hook, HookContext, HookFuture, HookSpec, PendingCall, Prompt,
    PromptAnswer,
};
use toolcell_agent::preset;

/// A recorded call: tool and arguments.
type Made = (String, Map<String, Value>);

/// Plug-in of the server: adds context, sets a default database, and notifies the user of results.
struct Watcher;

impl Hook for Watcher {
    fn spec(&self) -> HookSpec {
        HookSpec::new("watcher")
    }

    fn before_prompt(&self, _prompt: Prompt, _cx: HookContext) -> HookFuture<'_, PromptAnswer> {
        Box::pin(ready(Ok(PromptAnswer {
            context: vec!["The server is healthy.".into()],
            effects: Effects::default().value("database", json!("nornic")),
            ..PromptAnswer::default()
        })))
    }

    fn before_call(&self, call: PendingCall, cx: HookContext) -> HookFuture<'_, CallAnswer> {
        let mut arguments = call.arguments;
        if let Some(database) = cx.values.get("database") {
            arguments.entry("database").or_insert(database.clone());
        }
        Box::pin(ready(Ok(CallAnswer::with_arguments(arguments))))
    }

    fn after_call(&self, call: CallReport, _cx: HookContext) -> HookFuture<'_, Effects> {
        let effects = Effects::default().notice(NoticeLevel::Info, format!("{} returned", call.tool));
        Box::pin(ready(Ok(effects)))
    }
}

#[tokio::test]
async fn h01_to_h08_h13_to_h17_chained_calls_with_hooks_answer() {
    let script = Script::new([
        Say::Calls(
            "Let me look.",
            vec![(
                "1",
                "heimdall_watcher_query",
                json!({"cypher": "MATCH (n)"}).to_string(),
            )],
        ),
        Say::Calls(
            "",
            vec![
                ("2", "store", json!({"fact": "5 nodes"}).to_string()),
                ("3", "link", "{}".into()),
            ],
        ),
        Say::Text("There are 5 nodes; I have noted it."),
        Say::Text("As I said: 5."),
    ]);
    let order: Arc<Mutex<Vec<Made>>> = Arc::default();
    let noting = |name: &'static str| {
        let order = order.clone();
        tool(name, move |arguments| {
            order.lock().unwrap().push((name.into(), arguments.clone()));
            Ok(r#"{"success":true,"message":"ok","data":{"rows":5}}"#.into())
        })
    };
    let recorded = RecordedEvents::default();
    let agent = agent(&script)
        .tools(
            [
                "heimdall_watcher_query",
                "heimdall_watcher_status",
                "store",
                "link",
            ]
            .map(noting),
        )
        .hook(Arc::new(Watcher))
        .instructions("You are the assistant of a database.")
        .policy(preset::sequential())
        .build()
        .unwrap();
    let mut session = agent.session();
    let cancel = CancellationToken::new();
    let report = session
        .run(Message::user("How many nodes?"), &recorded, cancel)
        .await
        .unwrap();
    assert_eq!(report.outcome, TurnOutcome::Completed);
    assert_eq!(report.text, "There are 5 nodes; I have noted it.");

    // In sequence, each with the database that the hook added.
    let order = order.lock().unwrap().clone();
    let names: Vec<&str> = order.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["heimdall_watcher_query", "store", "link"]);
    assert!(
        order
            .iter()
            .all(|(_, arguments)| arguments["database"] == "nornic")
    );

    // The notice of the hook comes inline, before the end of its call.
    let events = recorded.names();
    let notice = events.iter().position(|name| name == "notice").unwrap();
    assert_eq!(
        events[notice - 1..=notice + 1],
        ["call_started", "notice", "call_finished"]
    );

    // The hook's context precedes the message; the next turn includes the whole history.
    let requests = script.requests();
    assert!(
        requests[0].messages[0]
            .text()
            .starts_with("<context>\nThe server is healthy.\n</context>")
    );
    assert!(requests[1].messages[2].text().contains("\"rows\":5"));
    session.ask("Sure?").await.unwrap();
    let texts: Vec<String> = script.requests()[3].messages.iter().map(|m| m.text()).collect();
    assert!(
        texts.contains(&"There are 5 nodes; I have noted it.".into()),
        "{texts:?}"
    );
}

#[tokio::test]
async fn h06_last_text_is_the_answer_at_the_round_limit() {
    let rounds = |last_text: &'static str| {
        let answers = (0..20).map(move |i| {
            let last_text = if i == 3 { last_text } else { "" };
            Say::Calls(last_text, vec![("", "t", json!({"i": i}).to_string())])
        });
        Script::new(answers)
    };
    for (last_text, text) in [
        ("Almost there.", "Almost there."),
        (
            "",
            "The step limit was reached. The possible actions are done; tell me how to continue.",
        ),
    ] {
        let script = rounds(last_text);
        let policy = preset::sequential();
        let echo = tool("t", |arguments| Ok(format!("{arguments:?}")));
        let mut session = agent(&script)
            .tool(echo)
            .policy(policy)
            .build()
            .unwrap()
            .session();
        let report = session.ask("Go").await.unwrap();
        assert_eq!(report.outcome, TurnOutcome::StepLimit { steps: 20 });
        assert_eq!(report.text, text);
        script.assert_played();
    }
}

#[tokio::test]
async fn h06_empty_answer_is_followed_by_another_round() {
    let script = Script::new([Say::Text(""), Say::Text("Here it is.")]);
    let mut session = agent(&script)
        .policy(preset::sequential())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!((report.text.as_str(), report.steps), ("Here it is.", 2));
}

#[tokio::test]
async fn h06_empty_answers_are_limited() {
    let script = Script::new([Say::Text(""), Say::Text(" \n"), Say::Text("")]);
    let mut session = agent(&script)
        .policy(preset::sequential())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(
        report.outcome,
        TurnOutcome::Failing {
            error: "an empty answer".into(),
            times: 3
        }
    );
}

#[tokio::test]
async fn h11_tool_list_selects_tools_and_no_list_offers_all() {
    let script = Script::new([]);
    let offered = |only: Option<&[&str]>| {
        let tools = ["store", "recall", "link"].map(|name| tool(name, |_| Ok(String::new())));
        let mut policy = preset::sequential();
        policy.control.clear();
        let agent = agent(&script)
            .tools(tools)
            .only(only.map(<[&str]>::to_vec))
            .policy(policy)
            .build()?;
        Ok(agent
            .tools()
            .iter()
            .map(|spec| spec.name.to_string())
            .collect::<Vec<_>>())
    };
    assert_eq!(offered(None).unwrap(), ["link", "recall", "store"]);
    assert_eq!(offered(Some(&[])).unwrap(), [""; 0]);
    assert_eq!(offered(Some(&["store", "link"])).unwrap(), ["link", "store"]);
    assert_eq!(
        offered(Some(&["forget"])),
        Err(BuildError::UnknownTool {
            name: "forget".into()
        })
    );
}

#[tokio::test(start_paused = true)]
async fn h18_turn_ends_after_300_seconds() {
    let script = Script::new([Say::Hang("I am")]);
    let mut session = agent(&script)
        .policy(preset::sequential())
        .build()
        .unwrap()
        .session();
    let begun = tokio::time::Instant::now();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(report.outcome, TurnOutcome::Deadline { ms: 300_000 });
    assert_eq!(begun.elapsed().as_secs(), 300);
}

#[tokio::test]
async fn h09_h12_call_is_dispatched_by_name() {
    let script = Script::new([call("1", "b", &json!({})), Say::Text("Done.")]);
    let tools = ["a", "b"].map(|name| tool(name, move |_| Ok(format!("I am {name}"))));
    let mut session = agent(&script)
        .tools(tools)
        .policy(preset::sequential())
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    let requests = script.requests();
    assert_eq!(requests[1].messages.last().unwrap().text(), "I am b");
    assert_eq!(requests[0].tools[0].input.as_value(), &json!({"type": "object"}));
    assert!(!matches!(requests[0].messages[0].as_ref(), Message::Tool { .. }));
}

//! Values that hooks share.

use super::*;

#[tokio::test]
async fn shared_hook_values_survive_in_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    // Like a separate process each time: with its own store, agent and hooks.
    let agent_of = |answers: Vec<Say>, decision: Decision| {
        let hook = Told {
            name: "counter",
            prompt: Some(|_, _| {
                Ok(PromptAnswer {
                    effects: Effects::default().value("case", json!({"number": 7})),
                    ..PromptAnswer::default()
                })
            }),
            call: Some(|_, cx| {
                let times = cx.values.get("calls").and_then(Value::as_u64).unwrap_or(0);
                let answer = match cx.values.get("case") {
                    Some(case) if case["number"] == 7 => CallAnswer::default(),
                    other => CallAnswer::cancel(format!("lost: {other:?} after {times}")),
                };
                Ok(CallAnswer {
                    effects: Effects::default().value("calls", json!(times + 1)),
                    ..answer
                })
            }),
            seen: seen.clone(),
            ..Told::default()
        };
        agent(&Script::new(answers))
            .tool(tool("write", |_| Ok("written".into())))
            .hook(Arc::new(hook))
            .approvals(Approvals {
                rules: vec![ApprovalRule::tool(
                    "write",
                    toolcell_agent::approval::Verdict::Ask,
                )],
                ..Approvals::default()
            })
            .approver(Arc::new(Always(decision)))
            .store(Arc::new(SqliteSessions::open(dir.path().join("s.db")).unwrap()))
            .build()
            .unwrap()
    };
    let mut session =
        agent_of(vec![call("1", "write", &json!({}))], Decision::Later).session_from(LoopState::new("s"));
    let report = session.ask("Go").await.unwrap();
    assert!(matches!(report.outcome, TurnOutcome::AwaitingApproval { .. }));
    drop(session);
    let answers = vec![call("2", "write", &json!({"again": true})), Say::Text("Done.")];
    let mut session = agent_of(answers, Decision::Approve).load("s").await.unwrap();
    let report = session
        .run(
            TurnStart::Resume,
            &toolcell_agent::NullSink,
            CancellationToken::new(),
        )
        .await
        .unwrap();
    assert_eq!(report.text, "Done.");
    let results: Vec<String> = report
        .calls
        .iter()
        .map(|call| text_of(&call.result.content))
        .collect();
    assert_eq!(results, ["written", "written"]);
}

/// Hook that leaves one value of this many bytes.
struct Sharing(usize);

impl Hook for Sharing {
    fn spec(&self) -> HookSpec {
        HookSpec::new("sharing")
    }

    fn before_prompt(&self, _prompt: Prompt, _cx: HookContext) -> HookFuture<'_, PromptAnswer> {
        Box::pin(ready(Ok(PromptAnswer {
            effects: Effects::default().value("v", json!("x".repeat(self.0))),
            ..PromptAnswer::default()
        })))
    }
}

#[tokio::test]
async fn shared_values_are_stored_up_to_64_kib_of_json() {
    const FRAME: usize = r#"{"v":""}"#.len();
    for (length, is_stored) in [(64 << 10, true), ((64 << 10) + 1, false)] {
        let recorded = RecordedEvents::default();
        let mut session = agent(&Script::new([Say::Text("Done.")]))
            .hook(Arc::new(Sharing(length - FRAME)))
            .build()
            .unwrap()
            .session();
        session
            .run(Message::user("Go"), &recorded, CancellationToken::new())
            .await
            .unwrap();
        let stored =
            |event: &Event| matches!(event, Event::ValuesShared { values } if values.contains_key("v"));
        assert_eq!(recorded.all().iter().any(stored), is_stored, "{length}");
        assert_eq!(
            warned(&recorded, "kept in this process only"),
            !is_stored,
            "{length}"
        );
    }
}

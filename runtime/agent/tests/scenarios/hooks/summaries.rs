//! Hooks of summaries.

use toolcell_core::hook::HookVerdict;
use toolcell_core::provider::Request;

use super::*;

/// Excludes the last two messages from the summary, as embedders do.
struct KeepTwo;

impl Hook for KeepTwo {
    fn spec(&self) -> HookSpec {
        HookSpec::new("keep_two")
    }

    fn before_summary(&self, mut messages: Vec<Message>, _cx: HookContext) -> HookFuture<'_, SummaryAnswer> {
        let kept = messages.split_off(messages.len() - 2);
        let answer = SummaryAnswer {
            messages: Some(messages),
            effects: Effects::default().value("kept", serde_json::to_value(kept).unwrap()),
            ..SummaryAnswer::default()
        };
        Box::pin(ready(Ok(answer)))
    }

    fn after_summary(&self, summary: Summary, cx: HookContext) -> HookFuture<'_, SummaryAnswer> {
        assert_eq!(summary.replaced.len(), 3);
        let kept: Vec<Message> = serde_json::from_value(cx.values["kept"].clone()).unwrap();
        let answer = SummaryAnswer {
            messages: Some([summary.messages, kept].concat()),
            ..SummaryAnswer::default()
        };
        Box::pin(ready(Ok(answer)))
    }
}

#[tokio::test]
async fn w05_w09_hooks_choose_summarised_messages_and_replacement() {
    let script = Script::new([
        call("1", "t", &json!({})),
        Say::Text("The summary."),
        Say::Text("Done."),
    ]);
    let policy = LoopPolicy {
        context: ContextPolicy {
            summarise_at: Some(1_000),
            keep_rounds: 0,
            ..ContextPolicy::default()
        },
        ..LoopPolicy::default()
    };
    let long = tool("t", |_| Ok("x".repeat(8_000)));
    let mut session = agent(&script)
        .tool(long)
        .hook(Arc::new(KeepTwo))
        .policy(policy)
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    let requests = script.requests();
    assert_eq!(
        requests[1].messages.len(),
        2,
        "the first message, and what to do with it"
    );
    let roles: Vec<bool> = requests[2]
        .messages
        .iter()
        .map(|m| matches!(m.as_ref(), Message::Tool { .. }))
        .collect();
    assert_eq!(roles, [false, false, false, true]);
}

/// Hook at the summary points that may fail at one of them.
struct Summaries {
    is_guard: bool,
    fails_at: Option<HookPoint>,
}

impl Summaries {
    fn look(&self, point: HookPoint) -> HookFuture<'_, SummaryAnswer> {
        Box::pin(ready(match self.fails_at {
            Some(failing) if failing == point => Err(HookError::new("no")),
            _ => Ok(SummaryAnswer::default()),
        }))
    }
}

impl Hook for Summaries {
    fn spec(&self) -> HookSpec {
        HookSpec {
            guard: self.is_guard,
            ..HookSpec::new("summaries")
        }
    }

    fn before_summary(&self, _messages: Vec<Message>, _cx: HookContext) -> HookFuture<'_, SummaryAnswer> {
        self.look(HookPoint::BeforeSummary)
    }

    fn after_summary(&self, _summary: Summary, _cx: HookContext) -> HookFuture<'_, SummaryAnswer> {
        self.look(HookPoint::AfterSummary)
    }
}

#[tokio::test]
async fn only_failing_guard_prevents_a_summary() {
    use HookPoint::{AfterSummary, BeforeSummary};
    for (is_guard, fails_at, is_asked, is_replaced) in [
        (true, None, true, true),
        (false, None, true, true),
        (false, Some(BeforeSummary), true, true),
        (false, Some(AfterSummary), true, true),
        (true, Some(BeforeSummary), false, false),
        (true, Some(AfterSummary), true, false),
    ] {
        let mut answers = vec![call("1", "t", &json!({})), Say::Text("Done.")];
        if is_asked {
            answers.insert(1, Say::Text("The summary."));
        }
        let script = Script::new(answers);
        let policy = LoopPolicy {
            context: ContextPolicy {
                summarise_at: Some(1_000),
                keep_rounds: 0,
                ..ContextPolicy::default()
            },
            ..LoopPolicy::default()
        };
        let recorded = RecordedEvents::default();
        let mut session = agent(&script)
            .tool(tool("t", |_| Ok("x".repeat(8_000))))
            .hook(Arc::new(Summaries { is_guard, fails_at }))
            .policy(policy)
            .build()
            .unwrap()
            .session();
        session
            .run(Message::user("Go"), &recorded, CancellationToken::new())
            .await
            .unwrap();
        script.assert_played();
        let case = format!("{is_guard} {fails_at:?}");
        let compacted = |event: &Event| matches!(event, Event::Compacted { .. });
        let failed = |event: &Event| matches!(event, Event::SummaryFailed { reason, .. } if reason.contains("summaries"));
        assert_eq!(recorded.all().iter().any(compacted), is_replaced, "{case}");
        assert_eq!(recorded.all().iter().any(failed), !is_replaced, "{case}");
    }
}

/// Hook with one verdict at one summary point.
struct Decides {
    at: HookPoint,
    verdict: HookVerdict,
    messages: Option<Vec<Message>>,
}

impl Decides {
    fn answer(&self, point: HookPoint) -> HookFuture<'_, SummaryAnswer> {
        let mut answer = SummaryAnswer::default();
        if point == self.at {
            answer.verdict = self.verdict.clone();
            answer.messages.clone_from(&self.messages);
        }
        Box::pin(ready(Ok(answer)))
    }
}

impl Hook for Decides {
    fn spec(&self) -> HookSpec {
        HookSpec::new("decides")
    }

    fn before_summary(&self, _messages: Vec<Message>, _cx: HookContext) -> HookFuture<'_, SummaryAnswer> {
        self.answer(HookPoint::BeforeSummary)
    }

    fn after_summary(&self, _summary: Summary, _cx: HookContext) -> HookFuture<'_, SummaryAnswer> {
        self.answer(HookPoint::AfterSummary)
    }
}

/// Runs a turn with a summary, whose hook is `decides`. Returns the events, and the requests of the model.
async fn summarised(decides: Decides, says: Vec<Say>) -> (Vec<Event>, Vec<Request>) {
    let script = Script::new(says);
    let policy = LoopPolicy {
        context: ContextPolicy {
            summarise_at: Some(1_000),
            keep_rounds: 0,
            ..ContextPolicy::default()
        },
        ..LoopPolicy::default()
    };
    let recorded = RecordedEvents::default();
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("x".repeat(8_000))))
        .hook(Arc::new(decides))
        .policy(policy)
        .build()
        .unwrap()
        .session();
    session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    script.assert_played();
    (recorded.all(), script.requests())
}

#[tokio::test]
async fn w09_hook_cancels_a_summary_and_the_turn_continues() {
    for (at, is_asked) in [(HookPoint::BeforeSummary, false), (HookPoint::AfterSummary, true)] {
        let mut says = vec![call("1", "t", &json!({})), Say::Text("Done.")];
        if is_asked {
            says.insert(1, Say::Text("The summary."));
        }
        let decides = Decides {
            at,
            verdict: HookVerdict::Cancel {
                reason: "not now".into(),
            },
            messages: Some(vec![Message::user("ignored")]),
        };
        let (events, requests) = summarised(decides, says).await;
        let refused = events.iter().find_map(|event| match event {
            Event::SummaryFailed { reason, usage } => Some((reason.clone(), usage.is_some())),
            _ => None,
        });
        assert_eq!(
            refused,
            Some(("the hook `decides` refused it: not now".into(), is_asked)),
            "the request is counted if there was one"
        );
        assert!(
            events
                .iter()
                .all(|event| !matches!(event, Event::Compacted { .. }))
        );
        assert_eq!(requests.last().unwrap().messages.len(), 3, "nothing is replaced");
    }
}

#[tokio::test]
async fn w09_hook_ends_the_turn_at_a_summary() {
    for (at, is_asked) in [(HookPoint::BeforeSummary, false), (HookPoint::AfterSummary, true)] {
        let mut says = vec![call("1", "t", &json!({}))];
        if is_asked {
            says.push(Say::Text("The summary."));
        }
        let decides = Decides {
            at,
            verdict: HookVerdict::Abort {
                reason: "enough".into(),
            },
            messages: None,
        };
        let (events, _) = summarised(decides, says).await;
        let aborted = TurnOutcome::Aborted {
            by: "decides".into(),
            reason: "enough".into(),
        };
        let ended = events
            .iter()
            .any(|event| matches!(event, Event::TurnFinished { outcome, .. } if outcome == &aborted));
        assert!(ended, "{events:?}");
        let counted = events
            .iter()
            .any(|event| matches!(event, Event::SummaryFailed { usage: Some(_), .. }));
        assert_eq!(counted, is_asked, "the tokens of the summary are counted");
    }
}

#[tokio::test]
async fn conversation_replaced_by_nothing_begins_with_the_user() {
    let decides = Decides {
        at: HookPoint::AfterSummary,
        verdict: HookVerdict::Proceed,
        messages: Some(Vec::new()),
    };
    let says = vec![
        call("1", "t", &json!({})),
        Say::Text("The summary."),
        Say::Text("Done."),
    ];
    let (_, requests) = summarised(decides, says).await;
    let first = requests.last().unwrap().messages.first();
    assert!(first.is_some_and(|message| matches!(message.as_ref(), Message::User { .. })));
}

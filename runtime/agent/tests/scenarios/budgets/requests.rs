//! Budgets of requests to the model.

use toolcell_agent::LoopState;
use toolcell_core::event::NoticeLevel;

use super::*;

#[tokio::test]
async fn requested_answer_length_is_limited_by_the_budget() {
    for (own, limit, tokens, asked) in [
        (None, None, Some(1_004), Some(1_000)),
        (Some(300), None, Some(1_004), Some(300)),
        (Some(2_000), None, Some(1_004), Some(1_000)),
        // Not every model accepts a larger limit.
        (None, None, Some(10_000), None),
        (Some(2_000), None, None, Some(2_000)),
        // Four input tokens at 1 each, and output tokens at 2 each.
        (None, Some(104), None, Some(50)),
    ] {
        let script = Script::new([Say::Text("Hi.")]);
        let budget = Budget {
            tokens,
            cost_micros: limit,
            prices: limit.map(|_| Prices {
                input: 1_000_000,
                output: 2_000_000,
                ..Prices::default()
            }),
            ..Budget::default()
        };
        let model = ModelSettings {
            max_output_tokens: own,
            ..ModelSettings::default()
        };
        let agent = agent(&script)
            .model(model)
            .policy(policy(budget))
            .build()
            .unwrap();
        agent.session().ask("Go").await.unwrap();
        assert_eq!(script.requests()[0].max_output_tokens, asked);
    }
}

#[tokio::test]
async fn request_beyond_the_budget_is_not_sent() {
    // An input of four tokens and an answer of sixteen.
    for (tokens, sent) in [(20, 1), (19, 0)] {
        let script = Script::new([Say::Text("Hi.")]);
        let budget = Budget {
            tokens: Some(tokens),
            ..Budget::default()
        };
        let agent = agent(&script).policy(policy(budget)).build().unwrap();
        let report = agent.session().ask("Go").await.unwrap();
        script.assert_asked(sent);
        assert_eq!(report.outcome == TurnOutcome::Completed, sent == 1);
    }
}

#[tokio::test]
async fn answer_beyond_the_budget_is_cancelled_while_streaming() {
    const LONG: &str =
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567";
    // Of 26 tokens, four are input; an answer of 88 bytes counts as 22.
    for (tokens, ended) in [(26, false), (25, true)] {
        let script = Script::new([Say::Text(LONG)]);
        let budget = Budget {
            tokens: Some(tokens),
            ..Budget::default()
        };
        let agent = agent(&script).policy(policy(budget)).build().unwrap();
        let mut session = agent.session();
        let report = session.ask("Go").await.unwrap();
        assert_eq!(
            matches!(report.outcome, TurnOutcome::Budget { .. }),
            ended,
            "{tokens}"
        );
    }
}

#[tokio::test]
async fn uncounted_tokens_are_estimated() {
    let agent = |script: &Arc<Script>| agent(script).policy(policy(Budget::default())).build().unwrap();
    let script = Script::new([Say::Truncate("01234567")]);
    let mut session = agent(&script).session();
    session.ask("Go").await.unwrap();
    let of_interrupted = Usage {
        input: 4,
        output: 6,
        estimated: true,
        ..Usage::default()
    };
    assert_eq!(session.state().spent().usage, of_interrupted);
}

#[tokio::test]
async fn failed_summary_is_charged() {
    let script = Script::new([call("1", "t", &json!({})), Say::Text(" "), Say::Text("Done.")]);
    let policy = LoopPolicy {
        context: ContextPolicy {
            summarise_at: Some(10),
            keep_rounds: 0,
            ..ContextPolicy::default()
        },
        ..policy(Budget::default())
    };
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("ok".into())))
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    script.assert_played();
    assert_eq!((session.state().spent().tokens(), report.usage.output), (45, 15));
}

#[tokio::test]
async fn summary_without_token_counts_is_estimated() {
    let script = Script::new([
        call("1", "t", &json!({})),
        Say::Unmeasured("A summary of 32 bytes, 8 tokens."),
        Say::Text("Done."),
    ]);
    let policy = LoopPolicy {
        context: ContextPolicy {
            summarise_at: Some(10),
            keep_rounds: 0,
            ..ContextPolicy::default()
        },
        ..policy(Budget::default())
    };
    let recorded = RecordedEvents::default();
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("ok".into())))
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    script.assert_played();
    let of_summary = recorded.all().into_iter().find_map(|event| match event {
        Event::Compacted { usage, .. } => usage,
        _ => None,
    });
    let of_summary = of_summary.unwrap();
    assert_eq!((of_summary.output, of_summary.estimated), (12, true));
    assert!(of_summary.input > 20 && report.usage.estimated, "{of_summary:?}");
}

#[tokio::test]
async fn budget_ends_a_session_without_token_counts() {
    for cost in [false, true] {
        let answer = "twenty-four bytes, so 6t";
        let script = Script::new([Say::Unmeasured(answer), Say::Unmeasured(answer)]);
        let recorded = RecordedEvents::default();
        let budget = Budget {
            tokens: (!cost).then_some(60),
            cost_micros: cost.then_some(60),
            prices: cost.then_some(Prices {
                input: 1_000_000,
                output: 1_000_000,
                ..Prices::default()
            }),
            ..Budget::default()
        };
        let policy = LoopPolicy {
            budget,
            ..LoopPolicy::default()
        };
        let mut session = agent(&script).policy(policy).build().unwrap().session();
        let mut outcomes = Vec::new();
        for _ in 0..3 {
            let report = session
                .run(Message::user("Go"), &recorded, CancellationToken::new())
                .await
                .unwrap();
            outcomes.push(report.outcome);
        }
        assert_eq!(outcomes[0], TurnOutcome::Completed);
        assert!(matches!(outcomes[2], TurnOutcome::Budget { .. }), "{outcomes:?}");
        assert_eq!(said_estimated(&recorded), 1);
        assert!(session.state().spent().tokens() > 20);
    }
}

/// Number of notices that tokens are estimated.
fn said_estimated(recorded: &RecordedEvents) -> usize {
    let told = recorded
        .all()
        .into_iter()
        .filter(|event| matches!(event, Event::Notice { text, .. } if text.contains("no token counts")));
    told.count()
}

#[tokio::test]
async fn token_counts_of_zero_are_estimated_on_each_side() {
    for (input, output) in [(0, 0), (7, 0), (0, 7), (7, 7)] {
        let script = Script::new([Say::Measured("An answer.", input, output)]);
        let mut session = agent(&script).build().unwrap().session();
        let usage = session.ask("Go").await.unwrap().usage;
        for (counted, reported) in [(usage.input, input), (usage.output, output)] {
            assert!(counted > 0 && (reported == 0 || counted == reported), "{usage:?}");
        }
        assert_eq!(usage.estimated, input == 0 || output == 0);
    }
}

#[tokio::test]
async fn token_counts_that_the_answer_disproves_are_estimated() {
    // Estimated at 1,500 tokens and 4 for its frame: 94 times 16.
    let answer: &'static str = "x".repeat(6_000).leak();
    for (output, counted) in [(94, 94), (93, 1_504), (1, 1_504)] {
        let script = Script::new([Say::Measured(answer, 7, output)]);
        let recorded = RecordedEvents::default();
        let policy = LoopPolicy {
            budget: Budget {
                tokens: Some(1_000_000),
                ..Budget::default()
            },
            ..LoopPolicy::default()
        };
        let mut session = agent(&script).policy(policy).build().unwrap().session();
        let report = session
            .run(Message::user("Go"), &recorded, CancellationToken::new())
            .await
            .unwrap();
        assert_eq!(
            (report.usage.output, report.usage.estimated),
            (counted, output != counted)
        );
        assert_eq!(said_estimated(&recorded), usize::from(output != counted));
    }
}

#[tokio::test]
async fn estimates_are_announced_whatever_was_said_before() {
    let script = Script::new([Say::Unmeasured("An answer.")]);
    let policy = LoopPolicy {
        budget: Budget {
            tokens: Some(1_000),
            ..Budget::default()
        },
        ..LoopPolicy::default()
    };
    let mut state = LoopState::new("s");
    state.apply(&Event::Notice {
        level: NoticeLevel::Warning,
        hook: None,
        text: "something else".into(),
    });
    let recorded = RecordedEvents::default();
    let agent = agent(&script).policy(policy.clone()).build().unwrap();
    assert_eq!(agent.policy().budget, policy.budget);
    let mut session = agent.session_from(state);
    session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(said_estimated(&recorded), 1);
}

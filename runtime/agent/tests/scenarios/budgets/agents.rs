//! Budgets of agents that call others.

use super::*;

#[tokio::test(start_paused = true)]
async fn concurrent_agents_stay_within_the_budget() {
    let tool = Greedy::new(40);
    let inner = || {
        Script::new([
            calls(2, &json!({})),
            calls(2, &json!({})),
            Say::Text("That is all."),
        ])
    };
    let script = Script::new([
        Say::Calls(
            "",
            vec![
                ("a", "one", json!({"task": "Go"}).to_string()),
                ("b", "two", json!({"task": "Go"}).to_string()),
                ("c", "greedy", "{}".into()),
            ],
        ),
        Say::Text("Done."),
    ]);
    let mut builder = agent(&script).tool(tool.clone());
    for name in ["one", "two"] {
        let inner = agent(&inner())
            .tool(tool.clone())
            .policy(policy(Budget::default()));
        builder = builder.agent(name, "Works", &inner.build().unwrap()).unwrap();
    }
    let budget = Budget {
        fuel: Some(200),
        ..Budget::default()
    };
    let mut session = builder.policy(policy(budget)).build().unwrap().session();
    session.ask("Go").await.unwrap();
    assert_eq!((tool.used(), session.state().spent().fuel), (200, 200));
}

#[tokio::test(start_paused = true)]
async fn agents_that_fit_the_budget_run_concurrently() {
    let inner = |fuel| {
        let tool = Greedy::new(fuel);
        let script = Script::new([calls(1, &json!({"ms": 1_000})), Say::Text("Done.")]);
        let budget = Budget {
            fuel: Some(fuel),
            ..Budget::default()
        };
        agent(&script).tool(tool).policy(policy(budget)).build().unwrap()
    };
    let script = Script::new([
        Say::Calls(
            "",
            vec![
                ("a", "one", json!({"task": "Go"}).to_string()),
                ("b", "two", json!({"task": "Go"}).to_string()),
            ],
        ),
        Say::Text("Done."),
    ]);
    let budget = Budget {
        fuel: Some(100),
        ..Budget::default()
    };
    let mut session = agent(&script)
        .agent("one", "Works", &inner(50))
        .unwrap()
        .agent("two", "Works", &inner(50))
        .unwrap()
        .policy(policy(budget))
        .build()
        .unwrap()
        .session();
    let begun = tokio::time::Instant::now();
    session.ask("Go").await.unwrap();
    assert_eq!(session.state().spent().fuel, 100);
    assert!(
        begun.elapsed() < Duration::from_millis(1_900),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn agent_without_prices_stays_within_the_cost_budget() {
    let prices = Prices {
        input: 1_000_000,
        output: 2_000_000,
        ..Prices::default()
    };
    let answers = (0..50).map(|_| calls(1, &json!({})));
    let inner = agent(&Script::new(answers)).tool(Greedy::new(0));
    let inner = inner.policy(policy(Budget::default())).build().unwrap();
    let script = Script::new([call("a", "one", &json!({"task": "Go"})), Say::Text("Done.")]);
    let budget = Budget {
        cost_micros: Some(1_000),
        prices: Some(prices),
        ..Budget::default()
    };
    let mut session = agent(&script)
        .agent("one", "Works", &inner)
        .unwrap()
        .policy(policy(budget))
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    let spent = session.state().spent().cost_micros(&prices);
    assert!((500..=1_000).contains(&spent), "{spent}");
    let error = report.calls[0].result.error.as_ref().unwrap().to_string();
    assert!(error.contains("in money"), "{error}");
}

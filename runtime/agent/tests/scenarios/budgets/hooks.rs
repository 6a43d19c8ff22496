//! Budgets of hooks.

use super::*;

/// Hook that uses all of its limit before and after each call.
struct Hungry {
    most: u64,
    used: Arc<AtomicU64>,
    points: Arc<Mutex<Vec<&'static str>>>,
}

impl Hungry {
    fn eat(&self, point: HookPoint, cx: &HookContext) -> Effects {
        let fuel = cx.left().fuel.unwrap_or(u64::MAX).min(self.most);
        self.used.fetch_add(fuel, Ordering::SeqCst);
        self.points.lock().unwrap().push(point.as_str());
        let receipt = Receipt {
            fuel,
            ..Receipt::default()
        };
        Effects {
            receipt: Some(Box::new(receipt)),
            ..Effects::default()
        }
    }
}

impl Hook for Hungry {
    fn spec(&self) -> HookSpec {
        HookSpec {
            points: [HookPoint::BeforeCall, HookPoint::AfterCall, HookPoint::AfterTurn].into(),
            ..HookSpec::new("hungry")
        }
    }

    fn max_fuel(&self, _point: HookPoint) -> u64 {
        self.most
    }

    fn before_call(&self, _call: PendingCall, cx: HookContext) -> HookFuture<'_, CallAnswer> {
        let answer = CallAnswer {
            effects: self.eat(HookPoint::BeforeCall, &cx),
            ..CallAnswer::default()
        };
        Box::pin(ready(Ok(answer)))
    }

    fn after_call(&self, _call: CallReport, cx: HookContext) -> HookFuture<'_, Effects> {
        Box::pin(ready(Ok(self.eat(HookPoint::AfterCall, &cx))))
    }

    fn after_turn(&self, _end: TurnEnd, cx: HookContext) -> HookFuture<'_, Effects> {
        Box::pin(ready(Ok(self.eat(HookPoint::AfterTurn, &cx))))
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_and_calls_stay_within_the_fuel_in_total() {
    for budget in [0, 10, 25, 60, 1_000] {
        let tool = Greedy::new(20);
        let hook = Arc::new(Hungry {
            most: 10,
            used: Arc::default(),
            points: Arc::default(),
        });
        // Fills the queue of droppable notes.
        let flood = json!({ "lines": 2_000 });
        let script = Script::new([calls(3, &flood), Say::Text("Done.")]);
        let recorded = RecordedEvents::default();
        let mut session = agent(&script)
            .tool(tool.clone())
            .hook(hook.clone())
            .policy(policy(Budget {
                fuel: Some(budget),
                ..Budget::default()
            }))
            .build()
            .unwrap()
            .session();
        session
            .run(Message::user("Go"), &recorded, CancellationToken::new())
            .await
            .unwrap();
        let used = tool.used() + hook.used.load(Ordering::SeqCst);
        // Three calls with a hook before and after each, and one after the turn.
        assert_eq!(used, budget.min(3 * 40 + 10), "{budget}");
        assert_eq!(session.state().spent().fuel, used, "no receipt is lost");
        let not_run = |event: &Event| matches!(event, Event::Notice { text, .. } if text.contains("the budget of fuel is used up"));
        assert_eq!(recorded.all().iter().any(not_run), budget < 130, "{budget}");
    }
}

/// A hook that reserves fuel at each call, uses none and keeps its context.
struct Frugal(AtomicU64, Mutex<Vec<HookContext>>);

impl Hook for Frugal {
    fn spec(&self) -> HookSpec {
        HookSpec::new("frugal")
    }

    fn max_fuel(&self, _point: HookPoint) -> u64 {
        10
    }

    fn before_call(&self, _call: PendingCall, cx: HookContext) -> HookFuture<'_, CallAnswer> {
        let left = cx.left();
        if left.fuel == Some(10) && left.wall_ms.is_some() && left.calls.is_none() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        self.1.lock().unwrap().push(cx);
        Box::pin(ready(Ok(CallAnswer::default())))
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_reserved_and_did_not_use_is_there_for_calls() {
    let tool = Greedy::new(20);
    let hook = Arc::new(Frugal(AtomicU64::new(0), Mutex::default()));
    let script = Script::new([calls(3, &json!({})), Say::Text("Done.")]);
    let mut session = agent(&script)
        .tool(tool.clone())
        .hook(hook.clone())
        .policy(policy(Budget {
            fuel: Some(60),
            wall_ms: Some(60_000),
            ..Budget::default()
        }))
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    assert_eq!(tool.used(), 60);
    assert_eq!(session.state().spent().fuel, 60);
    assert_eq!(
        hook.0.load(Ordering::SeqCst),
        3,
        "each knew what was reserved for it"
    );
}

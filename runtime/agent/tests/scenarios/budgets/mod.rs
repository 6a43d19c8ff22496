//! Concurrent operations stay within the budget in total.

use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::Usage;
use toolcell_core::tool::{LogLevel, LogLine, LogSource};
use toolcell_core::{
    BoxFuture, CallContext, CallResult, Content, Event, Message, Receipt, RemainingBudget, Tool, ToolCall,
    ToolError, ToolSpec,
};

use super::{RecordedEvents, agent};
use crate::testing::{Closure, Say, Script, call, tool};
use toolcell_agent::Agent;
use toolcell_agent::Session;
use toolcell_agent::TurnStart;
use toolcell_agent::budget::{Budget, Prices};
use toolcell_agent::hook::{
    CallAnswer, CallReport, Effects, Hook, HookContext, HookFuture, HookPoint, HookSpec, PendingCall, TurnEnd,
};
use toolcell_agent::policy::{ContextPolicy, LoopPolicy, ModelSettings, Repeats};

/// Tool that uses a share of its limit, as given in its arguments, and counts its actual use.
#[derive(Clone)]
struct Greedy {
    spec: Arc<ToolSpec>,
    most: RemainingBudget,
    used: Arc<AtomicU64>,
    ran: Arc<AtomicU64>,
}

impl Greedy {
    /// Creates the tool with a limit of its own.
    fn new(fuel: u64) -> Self {
        let closure = Closure::new(
            "greedy",
            r#"{"type":"object"}"#,
            toolcell_core::tool::Hints::default(),
            |_| Ok(String::new()),
        );
        Self {
            spec: Arc::new(closure.spec().clone()),
            most: RemainingBudget {
                fuel: Some(fuel),
                call_ms: None,
                ..RemainingBudget::NOTHING
            },
            used: Arc::default(),
            ran: Arc::default(),
        }
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    fn ran(&self) -> u64 {
        self.ran.load(Ordering::SeqCst)
    }
}

/// Files a receipt when the call ends, in any way.
struct ReceiptGuard {
    cx: CallContext,
    fuel: u64,
    used: Arc<AtomicU64>,
}

impl Drop for ReceiptGuard {
    fn drop(&mut self) {
        self.used.fetch_add(self.fuel, Ordering::SeqCst);
        self.cx.observer.receipt(Receipt {
            fuel: self.fuel,
            ..Receipt::default()
        });
    }
}

impl Tool for Greedy {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn max_use(&self) -> RemainingBudget {
        self.most
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            self.ran.fetch_add(1, Ordering::SeqCst);
            let number = |name: &str| call.arguments.get(name).and_then(Value::as_u64);
            let limit = self.most.fuel.unwrap_or(0);
            let left = cx.observer.left().fuel.map_or(limit, |left| left.min(limit));
            let guard = ReceiptGuard {
                cx,
                fuel: left * number("share").unwrap_or(100) / 100,
                used: self.used.clone(),
            };
            tokio::time::sleep(Duration::from_millis(number("ms").unwrap_or(1))).await;
            for _ in 0..number("lines").unwrap_or(0) {
                guard.cx.observer.log(LogLine {
                    level: LogLevel::Info,
                    source: LogSource::Stdout,
                    message: "a flood".into(),
                });
            }
            match call.arguments.get("end").and_then(Value::as_str) {
                Some("fail") => CallResult::failed(ToolError::Failed { message: "no".into() }),
                Some("panic") => panic!("out of luck"),
                Some("hang") => std::future::pending().await,
                _ => CallResult::text("x".repeat(usize::try_from(number("bytes").unwrap_or(1)).unwrap())),
            }
        })
    }
}

fn policy(budget: Budget) -> LoopPolicy {
    LoopPolicy {
        budget,
        repeats: Repeats { warn: 0, stop: 0 },
        error_breaker: 0,
        ..LoopPolicy::default()
    }
}

const IDS: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// One answer with several calls of the greedy tool.
fn calls(count: usize, arguments: &Value) -> Say {
    let call = |id: &&'static str| (*id, "greedy", arguments.to_string());
    Say::Calls("On it.", IDS[..count].iter().map(call).collect())
}

fn session(script: &Arc<Script>, tool: &Greedy, budget: Budget) -> Session {
    agent(script)
        .tool(tool.clone())
        .policy(policy(budget))
        .build()
        .unwrap()
        .session()
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_stay_within_the_fuel() {
    for share in [100, 50, 0] {
        let tool = Greedy::new(1_000);
        let script = Script::new([calls(6, &json!({"share": share})), Say::Text("Done.")]);
        let mut session = session(
            &script,
            &tool,
            Budget {
                fuel: Some(100),
                ..Budget::default()
            },
        );
        session.ask("Go").await.unwrap();
        // Each gets the rest that earlier calls left.
        let (used, ran) = match share {
            100 => (100, 1),
            50 => (50 + 25 + 12 + 6 + 3 + 2, 6),
            _ => (0, 6),
        };
        assert_eq!((tool.used(), tool.ran()), (used, ran), "{share}");
        assert_eq!(session.state().spent().fuel, used);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_fit_the_budget_run_concurrently() {
    let tool = Greedy::new(25);
    let script = Script::new([calls(4, &json!({"ms": 1_000})), Say::Text("Done.")]);
    let budget = Budget {
        fuel: Some(100),
        ..Budget::default()
    };
    let begun = tokio::time::Instant::now();
    session(&script, &tool, budget).ask("Go").await.unwrap();
    assert_eq!((tool.used(), tool.ran()), (100, 4));
    assert!(
        begun.elapsed() < Duration::from_millis(1_900),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn number_of_calls_stays_within_the_budget() {
    let tool = Greedy::new(0);
    let recorded = RecordedEvents::default();
    let script = Script::new([calls(9, &json!({}))]);
    let budget = Budget {
        calls: Some(2),
        ..Budget::default()
    };
    let mut session = session(&script, &tool, budget);
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!((tool.ran(), session.state().spent().calls), (2, 2));
    let ran: Vec<bool> = recorded
        .all()
        .iter()
        .filter_map(|event| match event {
            Event::CallFinished { result, .. } => Some(!result.not_run),
            _ => None,
        })
        .collect();
    assert_eq!(ran.iter().filter(|ran| **ran).count(), 2);
    let answered = report.calls.iter().filter(|call| call.result.error.is_none());
    let answered: Vec<&str> = answered.map(|call| call.id.as_str()).collect();
    assert_eq!(answered, ["1", "2"], "the first ones");
    let TurnOutcome::Budget { reason } = report.outcome else {
        panic!("{:?}", report.outcome)
    };
    assert_eq!(reason, "the budget of 2 calls is used up (2 were used)");
}

#[tokio::test(start_paused = true)]
async fn concurrent_results_stay_within_the_bytes() {
    let tool = Greedy::new(0);
    let script = Script::new([calls(9, &json!({"bytes": 1_000})), Say::Text("Done.")]);
    let budget = Budget {
        bytes: Some(2_500),
        ..Budget::default()
    };
    let mut session = session(&script, &tool, budget);
    let report = session.ask("Go").await.unwrap();
    // Two full results, and one that is cut.
    assert_eq!(tool.ran(), 3);
    let spent = session.state().spent().bytes;
    let mark = "\n[... 500 bytes cut; read them with `read_result`, call `3` ...]\n".len() as u64;
    assert_eq!(spent, 2_500 + mark);
    assert!(matches!(report.outcome, TurnOutcome::Budget { .. }));
}

#[tokio::test]
async fn picture_beyond_the_budget_is_left_out() {
    let picture = |bytes| {
        Content::Blob(toolcell_core::Blob {
            media_type: "image/png".into(),
            data: vec![0; bytes],
        })
    };
    for (bytes, kept) in [(984, true), (1_000, false)] {
        let shown =
            toolcell_agent::FnTool::new("draw", "", json!({"type": "object"}), move |_, _| async move {
                Ok(CallResult {
                    content: vec![picture(bytes)],
                    ..CallResult::default()
                })
            });
        let script = Script::new([call("1", "draw", &json!({})), Say::Text("Done.")]);
        let budget = Budget {
            bytes: Some(picture(984).byte_len() as u64),
            ..Budget::default()
        };
        let mut session = agent(&script)
            .tool(shown.unwrap())
            .policy(policy(budget))
            .build()
            .unwrap()
            .session();
        let report = session.ask("Go").await.unwrap();
        let is_picture = matches!(report.calls[0].result.content[0], Content::Blob(_));
        assert_eq!(is_picture, kept, "{bytes}");
    }
}

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

/// A call of a step: its duration, use, outcome, and whether an agent makes two such calls.
#[derive(Debug, Clone)]
struct Planned {
    ms: u64,
    share: u64,
    bytes: u64,
    end: &'static str,
    by_agent: bool,
}

fn planned() -> impl Strategy<Value = Planned> {
    let end = prop_oneof![Just("ok"), Just("ok"), Just("fail"), Just("panic"), Just("hang")];
    (0..50_u64, 0..=100_u64, 0..200_u64, end, any::<bool>()).prop_map(|(ms, share, bytes, end, by_agent)| {
        Planned {
            ms,
            share,
            bytes,
            end,
            by_agent,
        }
    })
}

impl Planned {
    fn arguments(&self) -> String {
        json!({"ms": self.ms, "share": self.share, "bytes": self.bytes, "end": self.end}).to_string()
    }

    fn say(calls: &[Self]) -> Say {
        let call = |(id, call): (&&'static str, &Self)| match call.by_agent {
            true => (*id, "helper", json!({"task": call.arguments()}).to_string()),
            false => (*id, "greedy", call.arguments()),
        };
        Say::Calls("", IDS.iter().zip(calls).map(call).collect())
    }
}

/// A session of two steps with these calls, and a helper agent that makes two calls itself.
fn random_session(tool: &Greedy, steps: &[Vec<Planned>], budget: &Budget, concurrency: usize) -> Session {
    let helper = Script::new(steps.iter().flatten().flat_map(|call| {
        let inner = Planned {
            by_agent: false,
            ..call.clone()
        };
        [Planned::say(&[inner.clone(), inner]), Say::Text("Done.")]
    }));
    let helper: Agent = agent(&helper)
        .tool(tool.clone())
        .policy(policy(Budget::default()))
        .build()
        .unwrap();
    let script = Script::new(steps.iter().map(|calls| Planned::say(calls)));
    agent(&script)
        .tool(tool.clone())
        .agent("helper", "Helps", &helper)
        .unwrap()
        .policy(LoopPolicy {
            concurrency,
            deadline_ms: Some(10_000),
            ..policy(budget.clone())
        })
        .build()
        .unwrap()
        .session()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Calls and agents that succeed, fail, panic and hang, in turns that are cancelled, killed and resumed.
    #[test]
    fn no_order_of_events_exceeds_the_budget(
        steps in proptest::collection::vec(proptest::collection::vec(planned(), 1..9), 1..3),
        (fuel, calls, bytes) in (0..500_u64, 0..20_u64, 0..2_000_u64),
        concurrency in 1..9_usize,
        stop in proptest::option::of((0..200_u64, any::<bool>())),
    ) {
        let tool = Greedy::new(120);
        let budget = Budget {
            fuel: Some(fuel),
            calls: Some(calls),
            bytes: Some(bytes),
            ..Budget::default()
        };
        let mut session = random_session(&tool, &steps, &budget, concurrency);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let mut kills = 0;
        runtime.block_on(async {
            let cancel = CancellationToken::new();
            let silent = toolcell_agent::NullSink;
            let turn = session.run(Message::user("Go"), &silent, cancel.clone());
            match stop {
                None => drop(turn.await.unwrap()),
                Some((ms, true)) => {
                    let (report, ()) = tokio::join!(turn, async {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                        cancel.cancel();
                    });
                    report.unwrap();
                }
                Some((ms, false)) => {
                    let ended = tokio::time::timeout(Duration::from_millis(ms), turn).await;
                    if ended.is_err() && session.is_open() {
                        kills = 1;
                        session.run(TurnStart::Resume, &silent, CancellationToken::new()).await.unwrap();
                    }
                }
            }
        });
        prop_assert!(!session.is_open());
        let spent = session.state().spent();
        prop_assert!(spent.fuel <= fuel, "{spent:?}");
        // Calls that waited at a kill are counted, because they may have run.
        prop_assert!(spent.calls <= calls + 9 * kills, "{spent:?}");
        prop_assert!(tool.ran() <= calls * (kills + 1));
        // The marker or the error of one call, and the error result of each that was running at a kill.
        prop_assert!(spent.bytes <= bytes + 200 * (1 + 9 * kills), "{spent:?}");
        // The use of a request that was running at a kill is unknown.
        prop_assert!(tool.used() <= fuel * (kills + 1));
        if kills == 0 {
            prop_assert!(tool.used() == spent.fuel && tool.ran() <= spent.calls);
        }
    }
}

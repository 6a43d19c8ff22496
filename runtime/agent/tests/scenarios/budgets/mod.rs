//! Concurrent operations stay within the budget in total.

mod agents;
mod hooks;
mod requests;

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

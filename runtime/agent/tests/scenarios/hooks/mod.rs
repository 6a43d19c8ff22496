//! Hooks: changes, refusals and failures.

mod failures;
mod shared_values;
mod summaries;

use std::future::ready;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_core::event::{NoticeLevel, TurnOutcome};
use toolcell_core::provider::ProviderErrorKind;
use toolcell_core::tool::Hints;
use toolcell_core::{BoxFuture, Content, Event, Message, Receipt, Tool};

use super::{RecordedEvents, agent};
use crate::testing::{Say, Script, call, slow_tool, text_of, tool, tool_with};
use toolcell_agent::LoopState;
use toolcell_agent::TurnReport;
use toolcell_agent::TurnStart;
use toolcell_agent::approval::{ApprovalRequest, ApprovalRule, Approvals, Approver, Decision};
use toolcell_agent::hook::{
    CallAnswer, CallReport, Effects, Example, FailureReport, Hook, HookContext, HookError, HookFuture,
    HookOrder, HookPoint, HookSpec, PendingCall, Prompt, PromptAnswer, Summary, SummaryAnswer, TurnEnd,
};
use toolcell_agent::policy::{ContextPolicy, LoopPolicy};
use toolcell_store::SqliteSessions;

type OnPrompt = fn(Prompt, &HookContext) -> Result<PromptAnswer, HookError>;
type OnCall = fn(PendingCall, &HookContext) -> Result<CallAnswer, HookError>;

/// Hook whose behaviour is set by each test.
#[derive(Default)]
struct Told {
    name: &'static str,
    guard: bool,
    priority: i32,
    prompt: Option<OnPrompt>,
    call: Option<OnCall>,
    hang: bool,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Told {
    fn note(&self, text: String) -> HookFuture<'_, Effects> {
        self.seen.lock().unwrap().push(format!("{} {text}", self.name));
        Box::pin(ready(Ok(Effects::default())))
    }
}

impl Hook for Told {
    fn spec(&self) -> HookSpec {
        HookSpec {
            guard: self.guard,
            order: HookOrder {
                priority: self.priority,
                ..HookOrder::default()
            },
            ..HookSpec::new(self.name)
        }
    }

    fn before_prompt(&self, prompt: Prompt, cx: HookContext) -> HookFuture<'_, PromptAnswer> {
        Box::pin(async move {
            self.note("before_prompt".into()).await?;
            self.prompt
                .map_or(Ok(PromptAnswer::default()), |f| f(prompt, &cx))
        })
    }

    fn before_call(&self, call: PendingCall, cx: HookContext) -> HookFuture<'_, CallAnswer> {
        Box::pin(async move {
            self.note(format!("before {}", call.tool)).await?;
            if self.hang {
                std::future::pending::<()>().await;
            }
            self.call.map_or(Ok(CallAnswer::default()), |f| f(call, &cx))
        })
    }

    fn after_call(&self, call: CallReport, _cx: HookContext) -> HookFuture<'_, Effects> {
        let error = call.result.error.as_ref().map_or("ok", |error| error.kind());
        let fuel = call.result.receipt.as_ref().map_or(0, |receipt| receipt.fuel);
        self.note(format!(
            "after {} {error} {fuel} {}",
            call.tool,
            text_of(&call.result.content)
        ))
    }

    fn after_turn(&self, end: TurnEnd, _cx: HookContext) -> HookFuture<'_, Effects> {
        self.note(format!("after_turn {} {}", end.steps, end.text))
    }

    fn on_error(&self, failure: FailureReport, _cx: HookContext) -> HookFuture<'_, Effects> {
        self.note(format!("on_error {}", failure.phase.as_str()))
    }
}

/// Tool that counts its calls and takes an integer.
fn counted() -> (Arc<dyn Tool>, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}"#;
    let tool = tool_with("count", schema, Hints::default(), move |arguments| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(Value::Object(arguments.clone()).to_string())
    });
    (tool, count)
}

fn one_call() -> Arc<Script> {
    Script::new([call("1", "count", &json!({"n": 1})), Say::Text("Done.")])
}

async fn run(script: &Arc<Script>, tool: Arc<dyn Tool>, hook: Told) -> (TurnReport, RecordedEvents) {
    let recorded = RecordedEvents::default();
    let mut session = agent(script)
        .tool(tool)
        .hook(Arc::new(hook))
        .hook_timeout(Duration::from_millis(200))
        .build()
        .unwrap()
        .session();
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    (report, recorded)
}

fn warned(recorded: &RecordedEvents, text: &str) -> bool {
    recorded
        .all()
        .iter()
        .any(|event| matches!(event, Event::Notice { text: said, .. } if said.contains(text)))
}

#[tokio::test]
async fn h13_hook_adds_context_examples_and_instructions() {
    let script = Script::new([Say::Text("Hi.")]);
    let hook = Told {
        name: "guide",
        prompt: Some(|prompt, _| {
            assert_eq!(prompt.original, [Content::text("Go")]);
            assert_eq!(prompt.token_limit, None);
            Ok(PromptAnswer {
                context: vec!["It is Monday.".into()],
                instructions: vec!["Be kind.".into()],
                examples: vec![Example {
                    says: "count to three".into(),
                    tool: "count".into(),
                    arguments: Map::from_iter([("n".into(), json!(3))]),
                }],
                ..PromptAnswer::default()
            })
        }),
        ..Told::default()
    };
    run(&script, counted().0, hook).await;
    let request = &script.requests()[0];
    assert_eq!(
        request.messages[0].text(),
        "<context>\nIt is Monday.\n</context>\nGo"
    );
    assert!(
        request
            .instructions
            .ends_with("Be kind.\n\nWhen the user says \"count to three\", call `count` with {\"n\":3}.")
    );
}

#[tokio::test]
async fn h13_cancelling_hook_ends_the_turn_before_any_request() {
    let script = one_call();
    let hook = Told {
        name: "policy",
        prompt: Some(|_, _| Ok(PromptAnswer::cancel("no writes on Sunday"))),
        ..Told::default()
    };
    let (report, _) = run(&script, counted().0, hook).await;
    assert_eq!(
        report.outcome,
        TurnOutcome::Aborted {
            by: "policy".into(),
            reason: "no writes on Sunday".into()
        }
    );
    assert!(script.requests().is_empty());
}

#[tokio::test]
async fn h14_arguments_changed_by_a_hook_are_executed() {
    let script = one_call();
    let hook = Told {
        name: "default",
        call: Some(|mut call, _| {
            call.arguments.insert("n".into(), json!(7));
            Ok(CallAnswer::with_arguments(call.arguments))
        }),
        ..Told::default()
    };
    let (report, _) = run(&script, counted().0, hook).await;
    assert_eq!(report.calls[0].arguments, json!({"n": 7}));
    assert_eq!(text_of(&report.calls[0].result.content), r#"{"n":7}"#);
}

#[tokio::test]
async fn h14_arguments_changed_by_a_hook_are_validated_again() {
    let script = one_call();
    let hook = Told {
        name: "wrong",
        call: Some(|mut call, _| {
            call.arguments.insert("n".into(), json!("seven"));
            Ok(CallAnswer::with_arguments(call.arguments))
        }),
        ..Told::default()
    };
    let (tool, count) = counted();
    let (report, _) = run(&script, tool, hook).await;
    assert_eq!(
        report.calls[0].result.error.as_ref().unwrap().kind(),
        "invalid_arguments"
    );
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn h14_hook_cancels_a_call_or_aborts_the_turn() {
    let (tool, count) = counted();
    let script = one_call();
    let hook = Told {
        name: "rights",
        call: Some(|_, _| Ok(CallAnswer::cancel("this user cannot delete"))),
        ..Told::default()
    };
    let (report, _) = run(&script, tool, hook).await;
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Done.")
    );
    let read = text_of(&report.calls[0].result.content);
    assert!(
        read.contains("not allowed: cancelled: this user cannot delete"),
        "{read}"
    );

    let (tool, _) = counted();
    let hook = Told {
        name: "rights",
        call: Some(|_, _| Ok(CallAnswer::abort("too risky"))),
        ..Told::default()
    };
    let (report, _) = run(&one_call(), tool, hook).await;
    assert_eq!(
        report.outcome,
        TurnOutcome::Aborted {
            by: "rights".into(),
            reason: "too risky".into()
        }
    );
    assert_eq!(report.calls.len(), 1, "the call has its result all the same");
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn failing_guard_refuses_the_call_and_is_reported() {
    let cases: [(Option<OnCall>, bool, &str); 3] = [
        (
            Some(|_, _| Err(HookError::new("no database"))),
            false,
            "no database",
        ),
        (Some(|_, _| panic!("oops")), false, "it panicked"),
        (None, true, "it did not end within 200 ms"),
    ];
    for (check, hang, reason) in cases {
        for guard in [true, false] {
            let (tool, count) = counted();
            let hook = Told {
                name: "check",
                guard,
                call: check,
                hang,
                ..Told::default()
            };
            let (report, recorded) = run(&one_call(), tool, hook).await;
            assert_eq!(report.outcome, TurnOutcome::Completed);
            assert_eq!(
                count.load(Ordering::SeqCst),
                u32::from(!guard),
                "guard {guard}: {reason}"
            );
            assert!(warned(&recorded, reason), "{reason}");
        }
    }
}

#[tokio::test]
async fn guard_failing_before_the_prompt_ends_the_turn() {
    let hook = Told {
        name: "check",
        guard: true,
        prompt: Some(|_, _| Err(HookError::new("no database"))),
        ..Told::default()
    };
    let script = one_call();
    let (report, _) = run(&script, counted().0, hook).await;
    assert!(matches!(report.outcome, TurnOutcome::Aborted { by, .. } if by == "check"));
    assert!(script.requests().is_empty());
}

#[tokio::test]
async fn h15_h16_hooks_run_in_order_for_every_call_and_turn_end() {
    let script = Script::new([
        Say::Calls(
            "",
            vec![
                ("1", "metered", "{}".into()),
                ("2", "count", r#"{"n":"x"}"#.into()),
            ],
        ),
        Say::Text("Done."),
    ]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = |name, priority| {
        Arc::new(Told {
            name,
            priority,
            seen: seen.clone(),
            ..Told::default()
        })
    };
    let metered = slow_tool("metered", Duration::from_millis(1), |_| {
        Err(toolcell_core::ToolError::Failed {
            message: "bad day".into(),
        })
    });
    let mut session = agent(&script)
        .tools([metered, counted().0])
        .hook(hook("second", 0))
        .hook(hook("first", 1))
        .policy(LoopPolicy {
            concurrency: 1,
            ..LoopPolicy::default()
        })
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    let seen = seen.lock().unwrap().clone();
    let of = |name: &str| -> Vec<String> {
        let prefix = format!("{name} ");
        seen.iter()
            .filter_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
            .collect()
    };
    let mut first = of("first");
    assert_eq!(first[0], "before_prompt");
    assert_eq!(first.pop().unwrap(), "after_turn 2 Done.");
    first.sort();
    assert_eq!(
        first,
        [
            "after metered failed 7 Error: bad day",
            "before metered",
            "before_prompt",
            "on_error call",
            "on_error call_arguments",
        ]
    );
    assert_eq!(of("second").len(), 6);
    assert_eq!(seen[..2], ["first before_prompt", "second before_prompt"]);
}

#[tokio::test]
async fn h04_h14_h15_sequential_calls_alternate_hook_points() {
    let calls = ["1", "2", "3"].map(|id| (id, "count", "{}".to_owned())).into();
    let script = Script::new([Say::Calls("", calls), Say::Text("Done.")]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = Told {
        name: "h",
        seen: seen.clone(),
        ..Told::default()
    };
    let mut session = agent(&script)
        .tool(counted().0)
        .hook(Arc::new(hook))
        .policy(toolcell_agent::preset::sequential())
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    let seen = seen.lock().unwrap().clone();
    let moments: Vec<&str> = seen.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(
        moments,
        [
            "before_prompt",
            "before",
            "after",
            "before",
            "after",
            "before",
            "after",
            "after_turn"
        ]
    );
}

#[tokio::test]
async fn provider_failure_reaches_the_hooks() {
    let script = Script::new([Say::Fail("", ProviderErrorKind::Unauthorized)]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = Told {
        name: "h",
        seen: seen.clone(),
        ..Told::default()
    };
    run(&script, counted().0, hook).await;
    assert!(seen.lock().unwrap().contains(&"h on_error model".to_owned()));
}

struct Always(Decision);

impl Approver for Always {
    fn decide<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        Box::pin(std::future::ready(self.0.clone()))
    }
}

/// A hook in a cell returns its receipt; so does this native one.
fn hungry(_: PendingCall, _: &HookContext) -> Result<CallAnswer, HookError> {
    let receipt = Receipt {
        fuel: 60,
        ..Receipt::default()
    };
    Ok(CallAnswer {
        effects: Effects {
            receipt: Some(Box::new(receipt)),
            ..Effects::default()
        },
        ..CallAnswer::default()
    })
}

#[tokio::test]
async fn fuel_of_hooks_counts_in_the_session_budget() {
    for (fuel, calls) in [(1_000, 3), (100, 1)] {
        let script = Script::new([
            call("c1", "t", &json!({})),
            call("c2", "t", &json!({})),
            call("c3", "t", &json!({})),
            Say::Text("Done."),
        ]);
        let mut policy = LoopPolicy::default();
        policy.budget.fuel = Some(fuel);
        let ran = Arc::new(AtomicU32::new(0));
        let count = ran.clone();
        let agent = agent(&script)
            .tool(tool("t", move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(format!("{}", count.load(Ordering::Relaxed)))
            }))
            .hook(Arc::new(Told {
                name: "hungry",
                call: Some(hungry),
                ..Told::default()
            }))
            .policy(policy)
            .build()
            .unwrap();
        let mut session = agent.session();
        let report = session.ask("go").await.unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), calls, "{fuel}");
        let ended = matches!(report.outcome, TurnOutcome::Budget { .. });
        assert_eq!(ended, fuel == 100, "{:?}", report.outcome);
        assert_eq!(session.state().spent().fuel, if ended { 120 } else { 180 });
    }
}

#[tokio::test]
async fn notice_of_toolcell_has_no_hook() {
    let script = Script::new([Say::Text("Hi.")]);
    let hook = Told {
        name: "guide",
        prompt: Some(|_, _| {
            Ok(PromptAnswer {
                effects: Effects::default().notice(NoticeLevel::Warning, "the hook `guard` failed"),
                ..PromptAnswer::default()
            })
        }),
        ..Told::default()
    };
    let (_, recorded) = run(&script, counted().0, hook).await;
    let by = |recorded: &RecordedEvents| -> Vec<Option<String>> {
        let of = |event: Event| match event {
            Event::Notice { hook, .. } => Some(hook),
            _ => None,
        };
        recorded.all().into_iter().filter_map(of).collect()
    };
    assert_eq!(by(&recorded), [Some("guide".to_owned())]);
    let failing = Told {
        name: "guide",
        prompt: Some(|_, _| Err(HookError::new("broken"))),
        ..Told::default()
    };
    let (_, recorded) = run(&Script::new([Say::Text("Hi.")]), counted().0, failing).await;
    assert_eq!(by(&recorded), [None]);
}

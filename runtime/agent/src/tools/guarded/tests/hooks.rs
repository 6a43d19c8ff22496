//! Hooks around the calls of a client.

use std::future::ready;

use toolcell_core::Receipt;
use toolcell_core::event::{Event, NoticeLevel};
use toolcell_core::hook::{
    CallAnswer, Effects, FailureReport, Hook, HookContext, HookError, HookFuture, HookPoint, HookSpec,
    HookVerdict, Notice, PendingCall,
};

use super::*;

/// Hook that follows the argument `text`, and uses fuel.
struct Follows {
    fuel: u64,
    is_guard: bool,
}

impl Hook for Follows {
    fn spec(&self) -> HookSpec {
        HookSpec {
            guard: self.is_guard,
            ..HookSpec::new("follows")
        }
    }

    fn max_fuel(&self, _point: HookPoint) -> u64 {
        self.fuel
    }

    fn before_call(&self, call: PendingCall, cx: HookContext) -> HookFuture<'_, CallAnswer> {
        assert_eq!(&*cx.session, "client-1");
        let mut answer = CallAnswer {
            effects: effects("before", self.fuel),
            ..CallAnswer::default()
        };
        let reason = String::from("not this");
        match call.arguments["text"].as_str() {
            Some("change") => answer.arguments = json!({ "text": "changed" }).as_object().cloned(),
            Some("break") => answer.arguments = json!({ "text": 1 }).as_object().cloned(),
            Some("cancel") => answer.verdict = HookVerdict::Cancel { reason },
            Some("abort") => answer.verdict = HookVerdict::Abort { reason },
            Some("fail") => return Box::pin(ready(Err(HookError::new("broken")))),
            _ => {}
        }
        Box::pin(ready(Ok(answer)))
    }

    fn after_call(&self, call: CallReport, cx: HookContext) -> HookFuture<'_, Effects> {
        assert_eq!(cx.values["seen"], "before");
        let told = format!("after {} {:?}", call.arguments, call.result.content);
        Box::pin(ready(Ok(effects(&told, self.fuel))))
    }

    fn on_error(&self, failure: FailureReport, _cx: HookContext) -> HookFuture<'_, Effects> {
        Box::pin(ready(Ok(effects(&failure.message, 0))))
    }
}

fn effects(text: &str, fuel: u64) -> Effects {
    let mut effects = Effects::default().value("seen", json!(text));
    effects.notices.push(Notice {
        level: NoticeLevel::Info,
        text: text.into(),
    });
    effects.receipt = (fuel > 0).then(|| {
        Box::new(Receipt {
            fuel,
            ..Receipt::default()
        })
    });
    effects
}

/// Remembers notices and receipts.
#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl EventSink for Events {
    fn event(&self, event: &Event) {
        let told = match event {
            Event::Notice { text, .. } => text.clone(),
            Event::HookFinished { moment, receipt, .. } => format!("{moment} used {}", receipt.fuel),
            other => panic!("{other:?}"),
        };
        self.0.lock().unwrap().push(told);
    }
}

impl Events {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Tool that repeats its text, for a client with hooks.
fn hooked(hook: Follows, budget: Budget, approvals: Approvals) -> (Arc<dyn Tool>, Arc<Events>) {
    let schema = r#"{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}"#;
    let echo = tool_with("echo", schema, Hints::default(), |arguments| {
        Ok(arguments["text"].as_str().unwrap().to_owned())
    });
    let events = Arc::new(Events::default());
    let hooks = ClientHooks::new(vec![Arc::new(hook)]).unwrap();
    let guard = ClientGuard::with_hooks(budget, hooks, "client-1", events.clone());
    (guard.tools([echo], rules(approvals)).remove(0), events)
}

const PLAIN: Follows = Follows {
    fuel: 0,
    is_guard: false,
};

#[tokio::test]
async fn hooks_change_and_refuse_the_calls_of_a_client() {
    let (echo, events) = hooked(PLAIN, Budget::default(), Approvals::default());
    for (text, answer, refused) in [
        ("plain", "plain", false),
        ("change", "changed", false),
        ("cancel", "cancelled: not this", true),
        ("abort", "cancelled: not this", true),
    ] {
        let result = call(&echo, json!({ "text": text })).await;
        assert_eq!(result.not_run, refused, "{text}");
        let shown = serde_json::to_string(&result.content).unwrap();
        assert!(shown.contains(answer), "{shown}");
        let told = events.take();
        assert_eq!(told.first().map(String::as_str), Some("before"), "{text}");
        // Only calls that ran are reported, with the arguments that they had.
        let after = told.iter().filter(|told| told.starts_with("after"));
        assert_eq!(after.clone().count(), usize::from(!refused), "{told:?}");
        assert!(
            after.clone().all(|told| told.matches(answer).count() == 2),
            "{told:?}"
        );
    }
}

#[tokio::test]
async fn arguments_are_checked_before_and_after_the_hooks_of_a_client() {
    let (echo, events) = hooked(PLAIN, Budget::default(), Approvals::default());
    for (arguments, before) in [(json!({ "text": 1 }), 0), (json!({ "text": "break" }), 1)] {
        let result = call(&echo, arguments).await;
        assert!(result.not_run);
        assert_eq!(result.error.unwrap().kind(), "invalid_arguments");
        let told = events.take();
        assert_eq!(told.len(), before + 1, "{told:?}");
        assert!(told[before].starts_with("echo: "), "{told:?}");
    }
}

#[tokio::test]
async fn only_a_failing_guard_refuses_the_call_of_a_client() {
    for is_guard in [false, true] {
        let (echo, events) = hooked(
            Follows { is_guard, fuel: 0 },
            Budget::default(),
            Approvals::default(),
        );
        let result = call(&echo, json!({ "text": "fail" })).await;
        assert_eq!(result.not_run, is_guard);
        let told = events.take();
        assert!(told[0].contains("the hook `follows` failed"), "{told:?}");
    }
}

#[tokio::test]
async fn user_of_a_client_is_asked_about_what_hooks_made_of_a_call() {
    let approvals = Approvals {
        rules: vec![ApprovalRule::tool("echo", Verdict::Ask)],
        ..Approvals::default()
    };
    let (echo, _) = hooked(PLAIN, Budget::default(), approvals);
    let (result, asked) = call_asking(&echo, json!({ "text": "change" }), Decision::Approve).await;
    assert_eq!(result, CallResult::text("changed"));
    assert_eq!(asked[0].arguments, json!({ "text": "changed" }));
}

#[tokio::test]
async fn fuel_of_hooks_counts_in_the_budget_of_a_client() {
    let budget = Budget {
        fuel: Some(5),
        ..Budget::default()
    };
    let hook = Follows {
        fuel: 2,
        is_guard: true,
    };
    let (echo, events) = hooked(hook, budget, Approvals::default());
    assert_eq!(call(&echo, json!({ "text": "x" })).await, CallResult::text("x"));
    let told = events.take();
    assert!(told.contains(&"before_call used 2".to_owned()), "{told:?}");
    // One unit is left for the next hook, which the account grants; then nothing is.
    call(&echo, json!({ "text": "x" })).await;
    let refused = call(&echo, json!({ "text": "x" })).await;
    assert!(refused.not_run, "{refused:?}");
    let told = events.take();
    assert!(
        told.iter()
            .any(|told| told.contains("the budget of fuel is used up")),
        "{told:?}"
    );
}

//! Hooks that panic, hang or are cancelled.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::{Event, Message, Receipt};

use crate::testing::{Say, Script, call, tool};
use crate::{RecordedEvents, agent};
use toolcell_agent::hook::{
    CallAnswer, CallReport, Effects, Hook, HookContext, HookFuture, HookPoint, HookSpec, PendingCall, Prompt,
    PromptAnswer, TurnEnd,
};

/// Guard whose methods panic before they return a future.
struct Broken(HookPoint, bool);

impl Broken {
    fn at(&self, point: HookPoint) {
        assert!(self.0 != point, "broken");
    }
}

impl Hook for Broken {
    fn spec(&self) -> HookSpec {
        HookSpec::guard("broken")
    }

    fn max_fuel(&self, point: HookPoint) -> u64 {
        assert!(!self.1 || self.0 != point, "broken");
        0
    }

    fn before_prompt(&self, _prompt: Prompt, _cx: HookContext) -> HookFuture<'_, PromptAnswer> {
        self.at(HookPoint::BeforePrompt);
        Box::pin(ready(Ok(PromptAnswer::default())))
    }

    fn before_call(&self, _call: PendingCall, _cx: HookContext) -> HookFuture<'_, CallAnswer> {
        self.at(HookPoint::BeforeCall);
        Box::pin(ready(Ok(CallAnswer::default())))
    }

    fn after_call(&self, _call: CallReport, _cx: HookContext) -> HookFuture<'_, Effects> {
        self.at(HookPoint::AfterCall);
        Box::pin(ready(Ok(Effects::default())))
    }

    fn after_turn(&self, _end: TurnEnd, _cx: HookContext) -> HookFuture<'_, Effects> {
        self.at(HookPoint::AfterTurn);
        Box::pin(ready(Ok(Effects::default())))
    }
}

#[tokio::test]
async fn panic_in_any_hook_method_is_reported() {
    for point in [
        HookPoint::BeforePrompt,
        HookPoint::BeforeCall,
        HookPoint::AfterCall,
        HookPoint::AfterTurn,
    ] {
        for in_fuel in [false, true] {
            let script = Script::new([call("1", "t", &json!({})), Say::Text("Done.")]);
            let recorded = RecordedEvents::default();
            let mut session = agent(&script)
                .tool(tool("t", |_| Ok("ok".into())))
                .hook(Arc::new(Broken(point, in_fuel)))
                .build()
                .unwrap()
                .session();
            let report = session
                .run(Message::user("Go"), &recorded, CancellationToken::new())
                .await
                .unwrap();
            let failed = format!("the hook `broken` failed in `{}`: it panicked", point.as_str());
            let is_told = |event: &Event| matches!(event, Event::Notice { text, .. } if *text == failed);
            assert_eq!(
                recorded.all().iter().filter(|event| is_told(event)).count(),
                1,
                "{failed}"
            );
            let refused = report.calls.iter().any(|call| call.result.error.is_some());
            assert_eq!(refused, point == HookPoint::BeforeCall);
            assert_eq!(
                matches!(report.outcome, TurnOutcome::Aborted { .. }),
                point == HookPoint::BeforePrompt
            );
        }
    }
}

/// Hook that hangs before each call, and acts when it is dropped.
struct Hanging(fn(&HookContext));

struct OnDrop(HookContext, fn(&HookContext));

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.1)(&self.0);
    }
}

impl Hook for Hanging {
    fn spec(&self) -> HookSpec {
        HookSpec::guard("hanging")
    }

    fn before_call(&self, _call: PendingCall, cx: HookContext) -> HookFuture<'_, CallAnswer> {
        let on_drop = OnDrop(cx, self.0);
        Box::pin(async move {
            let _on_drop = on_drop;
            pending().await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn panic_while_dropping_a_hook_is_reported() {
    let script = Script::new([call("1", "t", &json!({})), Say::Text("Done.")]);
    let recorded = RecordedEvents::default();
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("ok".into())))
        .hook(Arc::new(Hanging(|_| panic!("broken"))))
        .build()
        .unwrap()
        .session();
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(report.outcome, TurnOutcome::Completed);
    assert_eq!(report.calls[0].result.error.as_ref().unwrap().kind(), "denied");
    let told = "the hook `hanging` failed in `before_call`: it panicked";
    let is_told = |event: &Event| matches!(event, Event::Notice { text, .. } if text == told);
    assert_eq!(recorded.all().iter().filter(|event| is_told(event)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn cancelled_hook_is_charged() {
    let script = Script::new([call("1", "t", &json!({}))]);
    let recorded = RecordedEvents::default();
    let leave_receipt = |cx: &HookContext| {
        cx.observer.receipt(Receipt {
            fuel: 60,
            ..Receipt::default()
        });
    };
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("ok".into())))
        .hook(Arc::new(Hanging(leave_receipt)))
        .build()
        .unwrap()
        .session();
    let cancel = CancellationToken::new();
    let (report, ()) = tokio::join!(
        session.run(Message::user("Go"), &recorded, cancel.clone()),
        async {
            // Time is paused and advances only when all tasks are idle, with the hook hanging.
            tokio::time::sleep(Duration::from_secs(1)).await;
            cancel.cancel();
        }
    );
    assert_eq!(report.unwrap().outcome, TurnOutcome::Cancelled);
    assert_eq!(session.state().spent().fuel, 60);
    let is_receipt =
        |event: &Event| matches!(event, Event::HookFinished { moment, .. } if moment == "before_call");
    assert_eq!(recorded.all().iter().filter(|event| is_receipt(event)).count(), 1);
}

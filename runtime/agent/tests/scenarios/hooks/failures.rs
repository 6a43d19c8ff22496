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
use toolcell_agent::BuildError;
use toolcell_agent::hook::{
    CallAnswer, CallReport, Effects, Hook, HookContext, HookError, HookFuture, HookPoint, HookSpec,
    PendingCall, Prompt, PromptAnswer, TurnEnd,
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

/// Hook that hangs at one point, and acts when it is dropped.
struct Hanging(HookPoint, fn(&HookContext));

impl Hanging {
    async fn at<A: Default>(&self, point: HookPoint, cx: HookContext) -> Result<A, HookError> {
        if self.0 == point {
            let _on_drop = OnDrop(cx, self.1);
            pending::<()>().await;
        }
        Ok(A::default())
    }
}

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
        Box::pin(self.at(HookPoint::BeforeCall, cx))
    }

    fn after_turn(&self, _end: TurnEnd, cx: HookContext) -> HookFuture<'_, Effects> {
        Box::pin(self.at(HookPoint::AfterTurn, cx))
    }
}

#[tokio::test(start_paused = true)]
async fn panic_while_dropping_a_hook_is_reported() {
    let script = Script::new([call("1", "t", &json!({})), Say::Text("Done.")]);
    let recorded = RecordedEvents::default();
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("ok".into())))
        .hook(Arc::new(Hanging(HookPoint::BeforeCall, |_| panic!("broken"))))
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
async fn panic_while_a_turn_is_dropped_stays_in_the_hook() {
    for point in [HookPoint::BeforeCall, HookPoint::AfterTurn] {
        let script = Script::new([call("1", "t", &json!({})), Say::Text("Done.")]);
        let recorded = RecordedEvents::default();
        let mut session = agent(&script)
            .tool(tool("t", |_| Ok("ok".into())))
            .hook(Arc::new(Hanging(point, |_| panic!("broken"))))
            .build()
            .unwrap()
            .session();
        // The embedder drops the turn while the hook hangs.
        let run = session.run(Message::user("Go"), &recorded, CancellationToken::new());
        let ended = tokio::time::timeout(Duration::from_secs(1), run).await;
        assert!(ended.is_err(), "{point:?}");
    }
}

/// Hook without a description.
#[derive(Debug)]
struct Undescribed(bool);

impl Hook for Undescribed {
    fn spec(&self) -> HookSpec {
        assert!(!self.0, "no description");
        HookSpec::new("undescribed")
    }

    fn timeout(&self) -> Option<Duration> {
        panic!("no time limit");
    }
}

#[test]
fn agent_is_not_built_with_a_hook_that_panics() {
    for (in_spec, cause) in [(true, "no description"), (false, "no time limit")] {
        let script = Script::new([]);
        let built = agent(&script)
            .hook(Arc::new(Broken(HookPoint::AfterTurn, false)))
            .hook(Arc::new(Undescribed(in_spec)))
            .build();
        let error = BuildError::HookPanicked {
            number: 2,
            cause: cause.into(),
        };
        assert_eq!(built.err(), Some(error));
    }
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
        .hook(Arc::new(Hanging(HookPoint::BeforeCall, leave_receipt)))
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

//! Calls whose paths lead elsewhere while they wait, as when another program changes a link.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};
use toolcell_core::event::DataFlow;
use toolcell_core::{ArgumentPlace, BoxFuture, CallContext, CallResult, PlaceKind, Tool, ToolCall, ToolSpec};

use super::agent;
use crate::testing::{Say, Script, call, tool};
use toolcell_agent::TurnReport;
use toolcell_agent::approval::{ApprovalRequest, ApprovalRule, Approvals, Approver, Decision, Verdict};
use toolcell_agent::hook::{CallAnswer, Hook, HookContext, HookFuture, HookSpec, PendingCall};

/// A link that leads elsewhere once it was moved.
#[derive(Clone, Default)]
struct Link(Arc<AtomicBool>);

impl Link {
    fn is_moved(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn move_it(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A tool with a path through the link, which checks its start as a cell does.
struct Reader {
    spec: ToolSpec,
    link: Link,
    /// The link is moved while a call waits for its start.
    is_late: bool,
}

impl Reader {
    fn new(link: &Link, is_late: bool) -> Arc<Self> {
        Arc::new(Self {
            spec: tool("read", |_| Ok(String::new())).spec().clone(),
            link: link.clone(),
            is_late,
        })
    }
}

impl Tool for Reader {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, _: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        if self.is_late {
            self.link.move_it();
        }
        Box::pin(ready(match cx.observer.check_start() {
            Ok(()) => CallResult::text("read"),
            Err(error) => CallResult::failed(error),
        }))
    }

    fn places(&self, arguments: &Value) -> Vec<ArgumentPlace> {
        let Some(path) = arguments.get("path").and_then(Value::as_str) else {
            return Vec::new();
        };
        let real = match self.link.is_moved() {
            true => "/elsewhere",
            false => path,
        };
        vec![ArgumentPlace {
            pointer: "/path".into(),
            kind: PlaceKind::Path,
            plain: path.into(),
            named: Some(path.into()),
            real: Some(real.into()),
            is_unresolved: false,
        }]
    }
}

/// A hook that judges a call, and changes its path if told so. The link may be moved while it judges.
struct Judge {
    name: &'static str,
    path: Option<&'static str>,
    moves: Option<Link>,
}

impl Hook for Judge {
    fn spec(&self) -> HookSpec {
        HookSpec::new(self.name)
    }

    fn before_call(&self, call: PendingCall, _: HookContext) -> HookFuture<'_, CallAnswer> {
        assert_eq!(call.places.len(), 1);
        if let Some(link) = &self.moves {
            link.move_it();
        }
        let arguments = self
            .path
            .map(|path| Map::from_iter([("path".to_owned(), json!(path))]));
        Box::pin(ready(Ok(CallAnswer {
            arguments,
            ..CallAnswer::default()
        })))
    }
}

/// A user who approves every call.
struct Approving;

impl Approver for Approving {
    fn decide<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        Box::pin(ready(Decision::Approve))
    }
}

async fn run(reader: Arc<Reader>, hooks: Vec<Judge>, rules: Vec<ApprovalRule>, flow: DataFlow) -> TurnReport {
    let script = Script::new([call("1", "read", &json!({"path": "/way"})), Say::Text("Done.")]);
    let approvals = Approvals {
        rules,
        ..Approvals::default()
    };
    let builder = agent(&script).tool(reader).flow("read", flow);
    let mut builder = builder.approvals(approvals).approver(Arc::new(Approving));
    for hook in hooks {
        builder = builder.hook(Arc::new(hook));
    }
    builder.build().unwrap().session().ask("Go").await.unwrap()
}

fn was_refused(report: &TurnReport) -> bool {
    let errors: Vec<String> = report
        .calls
        .iter()
        .filter_map(|call| call.result.error.as_ref())
        .map(|error| error.for_model())
        .collect();
    assert!(
        errors.iter().all(|error| error.contains("leads elsewhere")),
        "{errors:?}"
    );
    !errors.is_empty()
}

#[tokio::test]
async fn call_is_refused_if_its_target_changes_while_or_after_hooks_judge() {
    let judge = |name, path, moves| (name, path, moves);
    for (hooks, refused) in [
        (vec![judge("a", None, false)], false),
        (vec![judge("a", None, true)], true),
        // The same arguments are no change.
        (vec![judge("a", Some("/way"), true)], true),
        // What a later hook judged counts as much.
        (vec![judge("a", None, true), judge("b", None, false)], true),
        (
            vec![judge("a", Some("/other"), false), judge("b", None, true)],
            true,
        ),
        (
            vec![judge("a", Some("/other"), false), judge("b", None, false)],
            false,
        ),
    ] {
        let link = Link::default();
        let judges = hooks.iter().map(|(name, path, moves)| Judge {
            name,
            path: *path,
            moves: moves.then(|| link.clone()),
        });
        let report = run(
            Reader::new(&link, false),
            judges.collect(),
            Vec::new(),
            DataFlow::default(),
        )
        .await;
        assert_eq!(was_refused(&report), refused, "{hooks:?}");
    }
}

#[tokio::test]
async fn target_is_compared_at_the_start_of_a_call_that_was_judged() {
    let complete = DataFlow {
        reads_private: true,
        untrusted_content: true,
        can_send_out: true,
        ..DataFlow::default()
    };
    let allow = ApprovalRule::tool("*", Verdict::Allow);
    for (judges, has_rule, flow, refused) in [
        (0, false, DataFlow::default(), false),
        (0, true, DataFlow::default(), true),
        (1, false, DataFlow::default(), true),
        (1, true, DataFlow::default(), true),
        // The user was asked, and saw where the path led.
        (0, false, complete, true),
    ] {
        let link = Link::default();
        let hooks = (0..judges).map(|_| Judge {
            name: "a",
            path: None,
            moves: None,
        });
        let rules = has_rule.then(|| allow.clone());
        let reader = Reader::new(&link, true);
        let report = run(reader, hooks.collect(), rules.into_iter().collect(), flow).await;
        assert_eq!(was_refused(&report), refused, "{judges} {has_rule} {flow:?}");
        assert!(link.is_moved());
    }
}

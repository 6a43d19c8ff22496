//! Tests of the calls of clients.

mod hooks;

use super::*;
use crate::approval::{ApprovalRule, FlowGuard, Verdict};
use crate::testing::{tool, tool_with};
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};
use toolcell_core::Content;
use toolcell_core::tool::Hints;

fn flow(reads_private: bool, untrusted_content: bool, can_send_out: bool) -> DataFlow {
    DataFlow {
        reads_private,
        untrusted_content,
        can_send_out,
        ..DataFlow::default()
    }
}

fn two(approvals: Approvals) -> Vec<Arc<dyn Tool>> {
    let tools = ["files", "web"].map(|name| tool(name, |_| Ok("ran".into())));
    let flows = BTreeMap::from([
        ("files".to_owned(), flow(true, false, false)),
        ("web".to_owned(), flow(false, true, true)),
    ]);
    guarded(
        tools,
        ClientRules {
            flows,
            ..rules(approvals)
        },
    )
}

fn rules(approvals: Approvals) -> ClientRules {
    ClientRules {
        approvals,
        flows: BTreeMap::new(),
        approval_hint: Arc::new(|tool, cause| format!("{tool} {cause:?}")),
        budget_hint: Arc::new(|spent| Some(format!("{} calls", spent.calls))),
    }
}

fn guarded(tools: impl IntoIterator<Item = Arc<dyn Tool>>, rules: ClientRules) -> Vec<Arc<dyn Tool>> {
    ClientGuard::new(Budget::default()).tools(tools, rules)
}

async fn call(tool: &Arc<dyn Tool>, arguments: Value) -> CallResult {
    let call = ToolCall {
        id: "1".into(),
        name: tool.spec().name.clone(),
        arguments: arguments.as_object().unwrap().clone(),
    };
    tool.call(call, CallContext::unobserved()).await
}

#[tokio::test]
async fn rules_refuse_what_they_deny_or_nobody_can_be_asked_for() {
    for (verdict, hint) in [
        (Verdict::Allow, None),
        (Verdict::Ask, Some("files Rule")),
        (Verdict::Deny, Some("refused by the rule `deny files`")),
    ] {
        let approvals = Approvals {
            rules: vec![ApprovalRule::tool("files", verdict)],
            ..Approvals::default()
        };
        let result = call(&two(approvals)[0], json!({})).await;
        let error = result.error.as_ref();
        assert_eq!(error.and_then(ToolError::hint), hint);
        assert_eq!(result.not_run, hint.is_some());
        let text = serde_json::to_string(&result.content).unwrap();
        assert!(!text.contains("files Rule"), "{text}");
    }
}

/// Client that can ask, and whose user decides the same each time.
struct Asking {
    decision: Decision,
    asked: Mutex<Vec<ApprovalRequest>>,
}

impl toolcell_core::tool::CallObserver for Asking {
    fn log(&self, _: toolcell_core::tool::LogLine) {}
    fn progress(&self, _: toolcell_core::tool::Progress) {}
    fn receipt(&self, _: toolcell_core::Receipt) {}

    fn can_ask(&self) -> bool {
        true
    }

    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Decision> {
        self.asked.lock().unwrap().push(request);
        Box::pin(std::future::ready(self.decision.clone()))
    }
}

async fn call_asking(
    tool: &Arc<dyn Tool>,
    arguments: Value,
    decision: Decision,
) -> (CallResult, Vec<ApprovalRequest>) {
    let asking = Arc::new(Asking {
        decision,
        asked: Mutex::default(),
    });
    let call = ToolCall {
        id: "1".into(),
        name: tool.spec().name.clone(),
        arguments: arguments.as_object().unwrap().clone(),
    };
    let cx = CallContext {
        values: BTreeMap::new(),
        observer: asking.clone(),
    };
    let result = tool.call(call, cx).await;
    let asked = std::mem::take(&mut *asking.asked.lock().unwrap());
    (result, asked)
}

#[tokio::test]
async fn user_decides_about_calls_that_need_approval() {
    let deny = || Decision::Deny {
        reason: Some("use b".into()),
    };
    for (verdict, decision, number, runs) in [
        (Verdict::Ask, Decision::Approve, 1, true),
        (Verdict::Ask, deny(), 1, false),
        (Verdict::Ask, Decision::Later, 1, false),
        (Verdict::Deny, Decision::Approve, 0, false),
        (Verdict::Allow, deny(), 0, true),
    ] {
        let approvals = Approvals {
            rules: vec![ApprovalRule::tool("files", verdict)],
            ..Approvals::default()
        };
        let (result, asked) = call_asking(&two(approvals)[0], json!({"a": 1}), decision).await;
        assert_eq!(
            (asked.len(), result.error.is_none()),
            (number, runs),
            "{verdict:?}"
        );
        assert_eq!(result.not_run, !runs);
        if let [asked] = &asked[..] {
            assert_eq!(
                (asked.tool.as_str(), &asked.arguments),
                ("files", &json!({"a": 1}))
            );
            assert_eq!(asked.cause, ApprovalCause::Rule);
        }
    }
}

#[tokio::test]
async fn call_that_completes_the_flow_is_asked_about() {
    let client = two(Approvals {
        flow: FlowGuard::Ask,
        ..Approvals::default()
    });
    let approve = || Decision::Approve;
    assert!(call_asking(&client[0], json!({}), approve()).await.1.is_empty());
    let (result, asked) = call_asking(&client[1], json!({}), approve()).await;
    assert_eq!((result.error, asked[0].cause), (None, ApprovalCause::Flow));
    // What it exposes is exposed from then on.
    assert!(call_asking(&client[1], json!({}), approve()).await.1.is_empty());
}

#[tokio::test]
async fn flow_of_all_calls_of_a_client_counts_together() {
    for (guard, is_refused) in [
        (FlowGuard::Ask, true),
        (FlowGuard::Refuse, true),
        (FlowGuard::Off, false),
    ] {
        let approvals = Approvals {
            flow: guard,
            ..Approvals::default()
        };
        let client = two(approvals.clone());
        assert_eq!(call(&client[0], json!({})).await.error, None);
        assert_eq!(call(&client[1], json!({})).await.not_run, is_refused, "{guard:?}");
        // A refused call adds nothing, and another client has a flow of its own.
        assert_eq!(call(&client[0], json!({})).await.error, None);
        assert_eq!(call(&two(approvals)[1], json!({})).await.error, None);
    }
}

#[tokio::test]
async fn guarded_arguments_fit_the_schema_and_panics_are_contained() {
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
    let tools = [tool_with("t", schema, Hints::default(), |_| {
        panic!("out of luck")
    })];
    let tools = guarded(tools, rules(Approvals::default()));
    let error = call(&tools[0], json!({"n": "x"})).await.error.unwrap();
    assert_eq!(error.kind(), "invalid_arguments");
    let error = call(&tools[0], json!({"n": 1})).await.error.unwrap();
    assert_eq!(error.kind(), "crashed");
}

/// A tool that resolves its path below `/work`.
struct Resolving(ToolSpec);

impl Tool for Resolving {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        let left = cx.observer.left().fuel;
        Box::pin(std::future::ready(CallResult::text(format!("{left:?}"))))
    }

    fn max_use(&self) -> RemainingBudget {
        RemainingBudget {
            fuel: Some(7),
            ..RemainingBudget::default()
        }
    }

    fn places(&self, arguments: &Value) -> Vec<ArgumentPlace> {
        let path = arguments["path"].as_str().unwrap_or_default();
        let real = format!("/work/{}", path.trim_start_matches("./"));
        vec![ArgumentPlace {
            pointer: "/path".into(),
            kind: toolcell_core::PlaceKind::Path,
            plain: path.into(),
            named: Some(real.clone()),
            real: Some(real),
            is_unresolved: false,
        }]
    }
}

#[tokio::test]
async fn rules_for_paths_apply_to_guarded_tools() {
    let inner: Arc<dyn Tool> = Arc::new(Resolving(tool("t", |_| Ok("".into())).spec().clone()));
    let approvals = Approvals {
        rules: vec![ApprovalRule::tool("t", Verdict::Deny).with_argument("/path", "/work/private/*")],
        flow: FlowGuard::Off,
        base: Some("/work".into()),
    };
    let tools = guarded([inner.clone()], rules(approvals));
    for (path, runs) in [("./private/key", false), ("notes/a", true)] {
        let result = call(&tools[0], json!({ "path": path })).await;
        assert_eq!(result.error.is_none(), runs, "{path}");
    }
    // What runs such a tool reserves and checks as much for it as for the tool itself.
    let arguments = json!({"path": "x"});
    assert_eq!(tools[0].places(&arguments), inner.places(&arguments));
    assert_eq!(tools[0].max_use(), inner.max_use());
}

/// A tool whose paths lead elsewhere each time that they are resolved, up to a number of times, and which checks its
/// start as a cell does.
struct Moving {
    spec: ToolSpec,
    left: AtomicU32,
    changes_files: bool,
    running: AtomicU32,
}

impl Moving {
    fn new(left: u32, changes_files: bool) -> Arc<Self> {
        Arc::new(Self {
            spec: tool("t", |_| Ok("".into())).spec().clone(),
            left: AtomicU32::new(left),
            changes_files,
            running: AtomicU32::new(0),
        })
    }
}

impl Tool for Moving {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, _: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            if let Err(error) = cx.observer.check_start() {
                return CallResult::failed(error);
            }
            let others = self.running.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            self.running.fetch_sub(1, Ordering::Relaxed);
            CallResult::text(format!("{others} others"))
        })
    }

    fn places(&self, _: &Value) -> Vec<ArgumentPlace> {
        let now = self.left.load(Ordering::Relaxed);
        self.left.store(now.saturating_sub(1), Ordering::Relaxed);
        vec![ArgumentPlace {
            pointer: "/path".into(),
            kind: toolcell_core::PlaceKind::Path,
            plain: "/way".into(),
            named: Some("/work/way".into()),
            real: Some(format!("/work/{now}")),
            is_unresolved: false,
        }]
    }

    fn changes_files(&self) -> bool {
        self.changes_files
    }
}

fn allowing() -> Approvals {
    Approvals {
        rules: vec![ApprovalRule::tool("*", Verdict::Allow)],
        ..Approvals::default()
    }
}

#[tokio::test]
async fn call_whose_target_changes_while_it_waits_is_refused() {
    for (moves, approvals, runs) in [
        (2, allowing(), false),
        (0, allowing(), true),
        (2, Approvals::default(), true),
    ] {
        let tools = guarded([Moving::new(moves, false) as Arc<dyn Tool>], rules(approvals));
        let result = call(&tools[0], json!({})).await;
        assert_eq!(result.error.is_none(), runs, "{moves}");
        let text = result.error.map(|error| error.for_model()).unwrap_or_default();
        assert_eq!(text.contains("leads elsewhere"), !runs, "{text}");
    }
}

#[tokio::test]
async fn calls_that_change_files_run_alone_where_rules_judge() {
    for (approvals, changes_files, others) in [
        (allowing(), true, "0 others"),
        (allowing(), false, "1 others"),
        (Approvals::default(), true, "1 others"),
    ] {
        let tools = guarded([Moving::new(0, changes_files) as Arc<dyn Tool>], rules(approvals));
        assert_eq!(tools[0].changes_files(), changes_files);
        let (_, second) = tokio::join!(call(&tools[0], json!({})), call(&tools[0], json!({})));
        assert_eq!(second.content, [Content::text(others)], "{changes_files}");
    }
}

/// A tool that changes files, and whose calls do not end.
struct Endless(ToolSpec);

impl Tool for Endless {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _: ToolCall, _: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(std::future::pending())
    }

    fn changes_files(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_names_no_file_waits_for_none_that_changes_files() {
    let endless = Arc::new(Endless(tool("e", |_| Ok("".into())).spec().clone()));
    let other = Arc::new(tool("o", |_| Ok("ran".into())));
    let naming = Moving::new(0, false);
    let tools = guarded([endless as Arc<dyn Tool>, other, naming], rules(allowing()));
    let others = async {
        assert_eq!(call(&tools[1], json!({})).await, CallResult::text("ran"));
        let waits = tokio::time::timeout(std::time::Duration::from_secs(1), call(&tools[2], json!({})));
        assert!(waits.await.is_err());
    };
    tokio::select! {
        biased;
        _ = call(&tools[0], json!({})) => unreachable!(),
        () = others => {}
    }
}

#[tokio::test]
async fn guarded_tool_may_use_what_is_reserved_for_its_call() {
    for (fuel, left) in [(10, "Some(7)"), (5, "Some(5)")] {
        let inner: Arc<dyn Tool> = Arc::new(Resolving(tool("t", |_| Ok("".into())).spec().clone()));
        let budget = Budget {
            fuel: Some(fuel),
            ..Budget::default()
        };
        let tools = ClientGuard::new(budget).tools([inner], rules(Approvals::default()));
        let result = call(&tools[0], json!({"path": "x"})).await;
        assert_eq!(result, CallResult::text(left), "{fuel}");
    }
}

#[test]
fn only_a_success_beyond_the_room_is_cut() {
    let success = CallResult {
        structured: Some(json!({"a": 1})),
        ..CallResult::text("12345")
    };
    let failure = CallResult::failed(ToolError::denied("no", None));
    for (result, room, is_cut) in [(&success, 5, false), (&success, 4, true), (&failure, 1, false)] {
        let mut after = result.clone();
        cut(&mut after, room);
        assert_eq!(after != *result, is_cut, "{room}");
    }
}

#[tokio::test]
async fn calls_beyond_the_budget_are_refused_and_results_cut_to_it() {
    let limits = Budget {
        calls: Some(3),
        bytes: Some(100),
        ..Budget::default()
    };
    let long = "x".repeat(90);
    let tools = [tool("t", move |_| Ok(long.clone()))];
    let guard = ClientGuard::new(limits);
    let client = guard.tools(tools, rules(Approvals::default()));
    assert_eq!(call(&client[0], json!({})).await.byte_len(), 90);
    let cut = call(&client[0], json!({})).await;
    assert!(cut.error.is_none() && cut.byte_len() < 90, "{cut:?}");
    let refused = call(&client[0], json!({})).await;
    let error = refused.error.unwrap();
    assert!(refused.not_run && error.kind() == "denied", "{error:?}");
    assert_eq!(error.hint(), Some("2 calls"));
    assert!(
        error.for_model().contains("no more calls are made"),
        "{}",
        error.for_model()
    );
    assert!(!error.for_model().contains("2 calls"), "{}", error.for_model());
    // Tools in the place of others have no budget of their own.
    let others = guard.tools([tool("u", |_| Ok("x".into()))], rules(Approvals::default()));
    assert!(call(&others[0], json!({})).await.not_run);
}

#[tokio::test]
async fn tools_of_one_guard_share_the_data_flow_of_their_calls() {
    let guard = ClientGuard::new(Budget::default());
    let tools = |name: &str, flow: DataFlow| {
        let approvals = Approvals {
            flow: FlowGuard::Refuse,
            ..Approvals::default()
        };
        let flows = BTreeMap::from([(name.to_owned(), flow)]);
        let rules = ClientRules {
            flows,
            ..rules(approvals)
        };
        guard.tools([tool(name, |_| Ok("ran".into()))], rules)
    };
    let files = tools("files", flow(true, false, false));
    assert!(call(&files[0], json!({})).await.error.is_none());
    let web = tools("web", flow(false, true, true));
    assert!(call(&web[0], json!({})).await.not_run);
}

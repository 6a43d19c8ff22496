//! Tools for clients that run a loop of their own, such as clients of the Model Context Protocol. Each call is checked by
//! the same functions as a call of the loop: arguments, approval rules, flow guard, budget, and containment of panics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::RwLock;
use toolcell_core::event::DataFlow;
use toolcell_core::{
    ApprovalCause, ApprovalRequest, ArgumentPlace, BoxFuture, CallContext, CallResult, Decision, PlaceKind,
    RemainingBudget, Tool, ToolCall, ToolError, ToolSpec,
};

use crate::approval::{Approvals, CheckStart, Gate, check_places};
use crate::budget::client::ClientBudget;
use crate::budget::{Budget, Spent};
use crate::context::messages;
use crate::policy::ToolRetry;
use crate::tools::dispatch::{self, Invocation};
use crate::tools::truncate;

/// Makes a hint for the user from the name of a tool and the cause for which a call of it needs approval.
pub type ApprovalHint = dyn Fn(&str, ApprovalCause) -> String + Send + Sync;

/// Makes a hint for the user from what a client has used of its budget; `None` if there is nothing to say.
pub type BudgetHint = dyn Fn(&Spent) -> Option<String> + Send + Sync;

/// Rules for the calls of some tools of a client.
pub struct ClientRules {
    /// Approval rules and flow guard.
    pub approvals: Approvals,
    /// Data-flow labels of the tools, by name; a tool without an entry has none.
    pub flows: BTreeMap<String, DataFlow>,
    /// Hint for a call that needs approval and is refused, because its client cannot ask the user.
    pub approval_hint: Arc<ApprovalHint>,
    /// Hint for a call that the budget leaves nothing for.
    pub budget_hint: Arc<BudgetHint>,
}

/// Budget and data flow of one client, which all of its calls share as those of a session do.
pub struct ClientGuard(Arc<Client>);

impl ClientGuard {
    /// Creates the guard of a client that has called nothing. The time of `budget` is that in which calls run.
    pub fn new(budget: Budget) -> Self {
        Self(Arc::new(Client {
            budget: ClientBudget::new(budget),
            flow: Mutex::default(),
            files: RwLock::default(),
        }))
    }

    /// Wraps tools, so that their calls count together with those of all other tools that this guard has wrapped.
    ///
    /// There are no hooks: a caller whose user configured some must not use this, except for agents, which run their own.
    pub fn tools(
        &self,
        tools: impl IntoIterator<Item = Arc<dyn Tool>>,
        rules: ClientRules,
    ) -> Vec<Arc<dyn Tool>> {
        let rules = Arc::new(rules);
        let guard = |tool: Arc<dyn Tool>| -> Arc<dyn Tool> {
            let flow = rules.flows.get(tool.spec().name.as_str());
            Arc::new(Guarded {
                flow: flow.copied().unwrap_or_default(),
                tool,
                rules: rules.clone(),
                client: self.0.clone(),
            })
        };
        tools.into_iter().map(guard).collect()
    }
}

/// State that the tools of a client share.
struct Client {
    budget: Arc<ClientBudget>,
    /// Data flow of the calls so far.
    flow: Mutex<DataFlow>,
    /// Held by one call that can change files, or by several others that name some, if rules judge arguments.
    files: RwLock<()>,
}

struct Guarded {
    tool: Arc<dyn Tool>,
    flow: DataFlow,
    rules: Arc<ClientRules>,
    client: Arc<Client>,
}

impl Guarded {
    fn names_files(&self, arguments: &Value) -> bool {
        let places = self.tool.places(arguments);
        places.iter().any(|place| place.kind == PlaceKind::Path)
    }

    /// Asks the user about a call that needs approval, if the client can ask. Returns what was approved.
    async fn ask(
        &self,
        call: &str,
        arguments: &Value,
        cx: &CallContext,
    ) -> Result<Option<Approved>, ToolError> {
        if !cx.observer.can_ask() {
            return Ok(None);
        }
        let name = self.tool.spec().name.as_str();
        self.tool.spec().input.check_arguments(arguments)?;
        let places = self.tool.places(arguments);
        let flow = *self.client.flow();
        let gate = (self.rules.approvals).gate(name, (arguments, &places), flow, self.flow, None);
        let Gate::Ask(cause, reason) = gate else {
            return Ok(None);
        };
        let request = ApprovalRequest {
            id: call.to_owned(),
            tool: name.to_owned(),
            arguments: arguments.clone(),
            cause,
            reason,
            places: places.clone(),
        };
        match cx.observer.ask(request).await {
            Decision::Approve => Ok(Some(Approved { flow, places })),
            Decision::Deny { reason } => {
                let declined = messages::declined(reason.as_deref());
                Err(ToolError::denied(declined, None))
            }
            Decision::Later => Ok(None),
        }
    }

    /// Checks a call, and counts its data flow if it may run.
    fn admit(&self, arguments: &Value, approved: Option<&Approved>) -> Result<Vec<ArgumentPlace>, ToolError> {
        let name = self.tool.spec().name.as_str();
        self.tool.spec().input.check_arguments(arguments)?;
        let places = self.tool.places(arguments);
        // Held over the decision, so that of two calls at once the second sees the flow of the first.
        let mut flow = self.client.flow();
        let approvals = &self.rules.approvals;
        let then = approved.map(|approved| approved.flow);
        match approvals.gate(name, (arguments, &places), *flow, self.flow, then) {
            Gate::Open => {
                if let Some(approved) = approved {
                    check_places(&approved.places, &places)?;
                }
            }
            Gate::Shut(rule) => {
                return Err(ToolError::denied(
                    messages::not_allowed(name),
                    Some(format!("refused by {rule}")),
                ));
            }
            Gate::Ask(cause, reason) => {
                return Err(ToolError::denied(
                    messages::no_approver(&reason),
                    Some((self.rules.approval_hint)(name, cause)),
                ));
            }
        }
        *flow = flow.union(self.flow);
        Ok(places)
    }
}

/// Approval of the user: a call after this data flow, with arguments that lead where the question said.
struct Approved {
    flow: DataFlow,
    places: Vec<ArgumentPlace>,
}

impl Client {
    fn flow(&self) -> MutexGuard<'_, DataFlow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tool for Guarded {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            let mut arguments = call.arguments;
            self.spec().replace_aliases(&mut arguments);
            let arguments = Value::Object(arguments);
            // Before it waits for others, or others for it: an answer can take minutes.
            let approved = match self.ask(&call.id, &arguments, &cx).await {
                Ok(approved) => approved,
                Err(error) => return CallResult::refused(error),
            };
            let judges_arguments = self.rules.approvals.judges_arguments();
            let _turn = match self.tool.changes_files() {
                _ if !judges_arguments => (None, None),
                true => (None, Some(self.client.files.write().await)),
                // No file can lead this call elsewhere: it waits for none that changes files.
                false if !self.names_files(&arguments) => (None, None),
                false => (Some(self.client.files.read().await), None),
            };
            let judged = match self.admit(&arguments, approved.as_ref()) {
                Ok(places) => places,
                Err(error) => return CallResult::refused(error),
            };
            let check_start = (judges_arguments && !judged.is_empty()).then(|| {
                let (tool, arguments) = (self.tool.clone(), arguments.clone());
                Box::new(move || check_places(&judged, &tool.places(&arguments))) as Box<CheckStart>
            });
            let Value::Object(arguments) = arguments else {
                unreachable!("it was made from an object");
            };
            let budget = &self.client.budget;
            let name = self.spec().name.as_str();
            let begun = budget.begin(name, self.tool.max_use(), cx.observer.clone(), check_start);
            let observer = match begun.await {
                Ok(observer) => observer,
                Err(reason) => {
                    let hint = (self.rules.budget_hint)(&budget.spent());
                    return CallResult::refused(ToolError::denied(messages::no_budget(&reason), hint));
                }
            };
            let invocation = Invocation {
                tool: self.tool.clone(),
                call: ToolCall { arguments, ..call },
                context: CallContext {
                    observer: observer.clone(),
                    ..cx
                },
                timeout: None,
                retry: ToolRetry::default(),
            };
            let mut result = dispatch::invoke_with_retry(invocation, |_, _, _| {}).await;
            if let Some(room) = observer.room() {
                cut(&mut result, room);
            }
            observer.end(&result);
            result
        })
    }

    fn max_use(&self) -> RemainingBudget {
        self.tool.max_use()
    }

    fn places(&self, arguments: &Value) -> Vec<ArgumentPlace> {
        self.tool.places(arguments)
    }

    fn changes_files(&self) -> bool {
        self.tool.changes_files()
    }
}

/// Cuts a result to what the budget leaves for it.
fn cut(result: &mut CallResult, room: usize) {
    if result.error.is_none() && result.byte_len() > room {
        let content = truncate::within(std::mem::take(&mut result.content), Some(room));
        result.content = truncate::cut(content, room, None).content;
        // It says the same as the content.
        result.structured = None;
    }
}

#[cfg(test)]
mod tests {
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
}

//! The calls of one answer: checked, approved, started in order, and each brought to exactly one result.

use serde::Deserialize as _;
use serde_json::Value;
use toolcell_core::event::{DataFlow, ReminderKind, TurnOutcome};
use toolcell_core::message::CallRequest;
use toolcell_core::{ArgumentPlace, CallResult, Content, Event, Plan, Receipt, ToolError};

use super::approval::is_together;
use super::state::{Call, Finished, Stage};
use super::{Effect, RefusedCall, Step, ToolFacts};
use crate::approval::{ApprovalRequest, Gate, check_places};
use crate::context::messages;
use crate::policy::{Control, Repeats};
use crate::tools::fingerprint::fingerprint;

/// True if a control tool ends the turn.
pub(super) fn ends_turn(control: Control) -> bool {
    match control {
        Control::TaskCompletion | Control::TaskComplete | Control::AskQuestion | Control::Converse => true,
        Control::UpdatePlan | Control::ReadResult => false,
    }
}

/// The arguments of a call that has not run.
pub(super) fn arguments_of(stage: Stage) -> Value {
    match stage {
        Stage::Ready { arguments, .. }
        | Stage::Held { arguments, .. }
        | Stage::Running { arguments }
        | Stage::Suspended { arguments, .. } => arguments,
        Stage::Finished(finished) => finished.arguments,
        Stage::Accepted => Value::Object(serde_json::Map::new()),
    }
}

impl Step<'_> {
    pub(super) fn prepared(
        &mut self,
        id: &str,
        arguments: Result<Value, RefusedCall>,
        places: Option<Vec<ArgumentPlace>>,
    ) {
        if !self.is_at(id, |stage| matches!(stage, Stage::Accepted)) {
            return;
        }
        match arguments {
            Ok(arguments) => {
                if let Some(call) = self.state.turn.as_mut().and_then(|turn| turn.call_mut(id)) {
                    call.stage = Stage::Ready {
                        arguments,
                        approved: None,
                        places,
                    };
                }
                self.start_ready();
            }
            Err(RefusedCall { arguments, error }) => {
                self.refuse_call(id, arguments, error);
                self.start_ready();
            }
        }
        self.after_calls();
    }

    pub(super) fn returned(&mut self, id: &str, result: CallResult) {
        if !self.is_at(id, |stage| matches!(stage, Stage::Running { .. })) {
            return;
        }
        self.finish_call(id, result);
        self.start_ready();
        self.after_calls();
    }

    /// Pauses a call that waits for a decision about a call inside it. The turn goes on with the others.
    pub(super) fn suspended(&mut self, id: &str, state: Value, receipt: Option<Receipt>) {
        if !self.is_at(id, |stage| matches!(stage, Stage::Running { .. })) {
            return;
        }
        let id = id.to_owned();
        self.emit(Event::CallSuspended { id, state, receipt });
        self.start_ready();
    }

    /// Starts calls that are ready, in order. An exclusive call starts when all earlier calls have ended, and later
    /// calls wait for its end: a file that is written and then read is read as it was written.
    pub(super) fn start_ready(&mut self) {
        if self.one_at_a_time() {
            return self.start_next();
        }
        self.ask_together();
        let mut open_before = false;
        for (id, stage) in self.open_calls() {
            let exclusive = self.facts(&self.tool_of(&id)).exclusive;
            if (exclusive && open_before) || self.running() >= self.machine.policy.concurrency {
                return;
            }
            if let Stage::Ready {
                arguments,
                approved,
                places,
            } = stage
            {
                self.start(&id, arguments, approved, places);
            }
            let open = self.is_at(&id, |stage| !matches!(stage, Stage::Finished(_)));
            if exclusive && open {
                return;
            }
            open_before |= open;
        }
    }

    pub(super) fn running(&self) -> usize {
        let calls = self.turn().calls.iter();
        calls
            .filter(|call| matches!(call.stage, Stage::Running { .. }))
            .count()
    }

    /// With one call at a time, a call is prepared only after the previous one has ended, so that hooks run in the
    /// order before, after, before, after.
    fn start_next(&mut self) {
        while let Some((id, stage)) = self.open_calls().into_iter().next() {
            match stage {
                Stage::Accepted => return self.prepare(&id),
                Stage::Ready {
                    arguments,
                    approved,
                    places,
                } => self.start(&id, arguments, approved, places),
                Stage::Held { .. } | Stage::Running { .. } | Stage::Suspended { .. } | Stage::Finished(_) => {
                    return;
                }
            }
            if self.is_at(&id, |stage| !matches!(stage, Stage::Finished(_))) {
                return;
            }
        }
    }

    pub(super) fn one_at_a_time(&self) -> bool {
        self.machine.policy.concurrency <= 1
    }

    /// Requests a check of the arguments of a call.
    pub(super) fn prepare(&mut self, id: &str) {
        if let Some(call) = self.turn().call(id) {
            let CallRequest {
                id, name, arguments, ..
            } = call.request.clone();
            self.effects.push(Effect::Prepare {
                id,
                tool: name,
                arguments,
            });
        }
    }

    /// Starts a call, asks the user, or refuses it. `judged` is where its arguments led when hooks or the user judged it.
    fn start(
        &mut self,
        id: &str,
        arguments: Value,
        approved: Option<DataFlow>,
        judged: Option<Vec<ArgumentPlace>>,
    ) {
        let tool = self.tool_of(id);
        let facts = self.facts(&tool);
        if let Some(reason) = self.no_budget_for_call() {
            let message = messages::no_budget(&reason);
            return self.refuse_call(id, arguments, ToolError::denied(message, None));
        }
        let places = self.machine.places.of(&tool, &arguments);
        let gate = self.gate(&tool, (&arguments, &places), approved);
        let is_judged = judged.is_some() || self.machine.approvals.judges_arguments();
        let check = judged.map_or(Ok(()), |judged| check_places(&judged, &places));
        if let Err(error) = check
            && !matches!(gate, Gate::Shut(_))
        {
            return self.refuse_call(id, arguments, error);
        }
        match gate {
            Gate::Open => {}
            Gate::Shut(rule) => {
                let error =
                    ToolError::denied(messages::not_allowed(&tool), Some(format!("refused by {rule}")));
                return self.refuse_call(id, arguments, error);
            }
            Gate::Ask(cause, reason) => {
                // The others of the step are asked about together with it.
                let waits = is_together(cause) && approved.is_none() && self.is_preparing();
                if waits && !self.one_at_a_time() {
                    return;
                }
                return self.ask(id.to_owned(), tool, (arguments, places), cause, reason);
            }
        }
        let flow = self.state.flow.union(facts.flow);
        if flow != self.state.flow {
            self.emit(Event::FlowChanged {
                id: id.to_owned(),
                flow,
            });
        }
        self.emit(Event::CallStarted {
            id: id.to_owned(),
            tool: tool.clone(),
            arguments: arguments.clone(),
        });
        self.effects.push(Effect::Run {
            id: id.to_owned(),
            tool,
            arguments,
            places: if is_judged { places } else { Vec::new() },
            suspended: None,
        });
    }

    /// Refuses a call: it begins and ends in one step.
    pub(super) fn refuse_call(&mut self, id: &str, arguments: Value, error: ToolError) {
        let tool = self.tool_of(id);
        self.emit(Event::CallStarted {
            id: id.to_owned(),
            tool,
            arguments,
        });
        self.finish_call(id, CallResult::refused(error));
    }

    pub(super) fn refuse_all(&mut self, reason: &str) {
        for (id, _) in self.open_calls() {
            let arguments = self.arguments(&id);
            self.refuse_call(
                &id,
                arguments,
                ToolError::Failed {
                    message: reason.to_owned(),
                },
            );
        }
    }

    /// Records the result of a running call. The content of a failure is the text of its error.
    pub(super) fn finish_call(&mut self, id: &str, mut result: CallResult) {
        let tool = self.tool_of(id);
        if let Some(error) = &result.error {
            result.content = vec![Content::text(error.for_model())];
        }
        let is_plan = self.facts(&tool).control == Some(Control::UpdatePlan) && result.error.is_none();
        let plan = result.structured.as_ref().filter(|_| is_plan);
        let plan = plan.and_then(|plan| Plan::deserialize(plan).ok());
        self.emit(Event::CallFinished {
            id: id.to_owned(),
            tool,
            result,
        });
        if let Some(plan) = plan {
            self.emit(Event::PlanUpdated { plan });
        }
    }

    /// Continues once every call has its result.
    pub(super) fn after_calls(&mut self) {
        let turn = self.turn();
        if turn.calls.is_empty() || !turn.settled() {
            return;
        }
        let finished: Vec<(&Call, &Finished)> = turn
            .calls
            .iter()
            .filter_map(|call| Some((call, call.finished()?)))
            .collect();
        let host = finished
            .iter()
            .find_map(|(_, finished)| match &finished.result.error {
                Some(ToolError::Host { message }) => Some(message.clone()),
                _ => None,
            });
        if let Some(message) = host {
            return self.finish(TurnOutcome::HostFailed { message });
        }
        let ending = finished.iter().find_map(|(call, finished)| {
            let control = self.facts(&call.request.name).control?;
            (finished.result.error.is_none() && ends_turn(control))
                .then(|| (control, finished.arguments.clone()))
        });
        if let Some((control, arguments)) = ending {
            return self.end_by_tool(control, &arguments);
        }
        let all_failed = finished
            .iter()
            .all(|(_, finished)| finished.result.error.is_some());
        let repeated = finished
            .iter()
            .filter(|(call, _)| !self.facts(&call.request.name).polling)
            .map(|(call, finished)| {
                let tool = &call.request.name;
                let print = fingerprint(tool, &finished.arguments, &finished.result.content);
                (self.turn().times(print), tool.clone())
            })
            .max();
        if all_failed && self.fall_back() {
            return;
        }
        if let Some((times, tool)) = repeated
            && !self.is_failing()
        {
            let Repeats { warn, stop } = self.machine.policy.repeats;
            if stop > 0 && times >= stop {
                let text = messages::stuck(&tool, times);
                let outcome = TurnOutcome::Repeating { tool, times };
                return self.close(outcome, ReminderKind::Repeating, text);
            }
            if warn > 0 && times >= warn {
                let text = messages::repeating(&tool, times);
                self.remind(ReminderKind::Repeating, text, self.stores_errors());
            }
        }
        self.go_on();
    }

    fn end_by_tool(&mut self, control: Control, arguments: &Value) {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(str::to_owned);
        match control {
            Control::AskQuestion => {
                let question = text("question").unwrap_or_default();
                let suggestions = arguments
                    .get("suggestions")
                    .and_then(Value::as_array)
                    .map(|items| {
                        items
                            .iter()
                            .filter_map(Value::as_str)
                            .map(str::to_owned)
                            .collect()
                    })
                    .unwrap_or_default();
                let outcome = TurnOutcome::Asked {
                    question: question.clone(),
                    suggestions,
                };
                self.finish_with(outcome, Some(question), None);
            }
            Control::Converse => self.finish_with(TurnOutcome::Completed, text("message"), None),
            Control::TaskComplete => {
                let result = arguments.get("result").cloned();
                self.finish_with(TurnOutcome::Completed, text("summary"), result);
            }
            _ => self.finish_with(TurnOutcome::Completed, text("result"), None),
        }
    }

    /// Repeats calls that may be repeated. A call that was running when the process ended may have had its effect: it
    /// runs again only if it is idempotent.
    pub(super) fn resume_calls(&mut self) {
        for (id, stage) in self.open_calls() {
            let tool = self.tool_of(&id);
            match stage {
                Stage::Accepted if self.one_at_a_time() => {}
                Stage::Accepted => self.prepare(&id),
                Stage::Held {
                    arguments,
                    cause,
                    reason,
                    places: told,
                    ..
                } => {
                    let places = self.machine.places.of(&tool, &arguments);
                    if places != told {
                        self.emit(Event::ApprovalRequested {
                            id: id.clone(),
                            tool: tool.clone(),
                            arguments: arguments.clone(),
                            cause,
                            reason: reason.clone(),
                            places: places.clone(),
                        });
                    }
                    self.effects.push(Effect::Ask(ApprovalRequest {
                        id,
                        tool,
                        arguments,
                        cause,
                        reason,
                        places,
                    }));
                }
                Stage::Running { arguments } if self.facts(&tool).idempotent && arguments.is_object() => {
                    self.emit(Event::CallRetried {
                        id: id.clone(),
                        attempt: 2,
                        delay_ms: 0,
                        reason: "the process ended while it ran".into(),
                    });
                    self.effects.push(Effect::Run {
                        places: self.machine.places.of(&tool, &arguments),
                        id,
                        tool,
                        arguments,
                        suspended: None,
                    });
                }
                Stage::Suspended { arguments, state } => {
                    self.emit(Event::CallStarted {
                        id: id.clone(),
                        tool: tool.clone(),
                        arguments: arguments.clone(),
                    });
                    self.effects.push(Effect::Run {
                        id,
                        tool,
                        arguments,
                        // Its arguments are a task: they lead nowhere.
                        places: Vec::new(),
                        suspended: Some(state),
                    });
                }
                Stage::Running { .. } => self.finish_call(
                    &id,
                    CallResult::failed(ToolError::Failed {
                        message: messages::OUTCOME_UNKNOWN.into(),
                    }),
                ),
                Stage::Ready { .. } | Stage::Finished(_) => {}
            }
        }
        self.start_ready();
        self.after_calls();
    }

    /// Calls without a result, with their stages, in order.
    pub(super) fn open_calls(&self) -> Vec<(String, Stage)> {
        let calls = self.turn().calls.iter();
        calls
            .filter(|call| call.finished().is_none())
            .map(|call| (call.request.id.clone(), call.stage.clone()))
            .collect()
    }

    pub(super) fn is_at(&self, id: &str, stage: impl Fn(&Stage) -> bool) -> bool {
        self.turn().call(id).is_some_and(|call| stage(&call.stage))
    }

    pub(super) fn tool_of(&self, id: &str) -> String {
        self.turn()
            .call(id)
            .map(|call| call.request.name.clone())
            .unwrap_or_default()
    }

    pub(super) fn arguments(&self, id: &str) -> Value {
        match self.turn().call(id) {
            Some(Call {
                stage: Stage::Accepted,
                request,
            }) => Value::String(request.arguments.clone()),
            Some(call) => arguments_of(call.stage.clone()),
            None => Value::Null,
        }
    }

    pub(super) fn facts(&self, tool: &str) -> ToolFacts {
        self.machine.tools.get(tool).copied().unwrap_or_default()
    }
}

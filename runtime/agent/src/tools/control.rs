//! Control tools, provided by the loop itself. They are ordinary tools; the machine decides what their success means.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use toolcell_core::tool::Hints;
use toolcell_core::{
    BoxFuture, CallContext, CallResult, Plan, RemainingBudget, Schema, Tool, ToolCall, ToolError, ToolName,
    ToolSpec,
};

use crate::policy::Control;
use crate::tools::results::{ReadResult, ResultStore};

/// Control tool.
struct ControlTool {
    kind: Control,
    spec: ToolSpec,
}

/// Returns the tool for a control.
pub(crate) fn tool(kind: Control) -> Arc<dyn Tool> {
    match kind {
        Control::ReadResult => read_result(None),
        kind => Arc::new(ControlTool {
            kind,
            spec: spec_of(kind),
        }),
    }
}

impl Control {
    /// All control tools.
    pub const ALL: [Self; 6] = [
        Self::TaskCompletion,
        Self::TaskComplete,
        Self::AskQuestion,
        Self::Converse,
        Self::UpdatePlan,
        Self::ReadResult,
    ];

    /// Name of the tool. Reserved: no other tool may have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::TaskCompletion => "task_completion",
            Self::TaskComplete => "task_complete",
            Self::AskQuestion => "ask_question",
            Self::Converse => "converse",
            Self::UpdatePlan => "update_plan",
            Self::ReadResult => "read_result",
        }
    }
}

/// Returns the tool `read_result` for a session.
pub(crate) fn read_result(store: Option<Arc<ResultStore>>) -> Arc<dyn Tool> {
    Arc::new(ReadResult::new(spec_of(Control::ReadResult), store))
}

fn spec_of(kind: Control) -> ToolSpec {
    let (description, schema) = match kind {
        Control::TaskCompletion => (
            "Ends the task and presents its result. Call it when everything is done.",
            r#"{"type":"object","properties":{"result":{"type":"string","minLength":1,"description":"The complete result, for the user to read"}},"required":["result"],"additionalProperties":false}"#,
        ),
        Control::TaskComplete => (
            "Ends the task. Call it when everything is done.",
            r#"{"type":"object","properties":{"summary":{"type":"string","minLength":1,"description":"What was done, for the user to read"},"result":{"description":"The result as data, if the task asks for one"}},"required":["summary"],"additionalProperties":false}"#,
        ),
        Control::AskQuestion => (
            "Asks the user a question and waits for the answer. Call it when something is needed that no tool can find.",
            r#"{"type":"object","properties":{"question":{"type":"string","minLength":1,"description":"The question"},"suggestions":{"type":"array","maxItems":4,"items":{"type":"string","minLength":1},"description":"Answers to choose from"}},"required":["question"],"additionalProperties":false}"#,
        ),
        Control::Converse => (
            "Says something to the user when there is no task to complete, such as a greeting or a remark.",
            r#"{"type":"object","properties":{"message":{"type":"string","minLength":1,"description":"What to say"}},"required":["message"],"additionalProperties":false}"#,
        ),
        Control::UpdatePlan => (
            "Sets the plan: the goal and all steps, done and to do. Call it for tasks of several steps, and again whenever a step is done or the plan changes.",
            r#"{"type":"object","properties":{"goal":{"type":"string","minLength":1,"maxLength":2000},"steps":{"type":"array","minItems":1,"maxItems":50,"items":{"type":"object","properties":{"description":{"type":"string","minLength":1,"maxLength":1000},"completed":{"type":"boolean","default":false},"result":{"type":["string","null"],"maxLength":2000,"description":"Outcome of the step"}},"required":["description"],"additionalProperties":false}}},"required":["goal","steps"],"additionalProperties":false}"#,
        ),
        Control::ReadResult => (
            "Reads the full text of an earlier result that was cut. Returns a page from a byte offset, or the places at which a text occurs.",
            r#"{"type":"object","properties":{"call":{"type":"string","description":"The call named in the marker of the cut result"},"from":{"type":"integer","minimum":0,"default":0,"description":"Byte offset"},"find":{"type":"string","description":"Show only the places at which this text occurs"}},"required":["call"],"additionalProperties":false}"#,
        ),
    };
    ToolSpec {
        name: ToolName::new(kind.name()).expect("the names above are tool names, as a test shows"),
        title: None,
        description: description.into(),
        input: Arc::new(
            Schema::for_arguments(schema).expect("the schemas above are schemas, as a test shows"),
        ),
        output: None,
        hints: Hints {
            read_only: true,
            idempotent: true,
            ..Hints::default()
        },
        annotations: BTreeMap::new(),
    }
}

impl Tool for ControlTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, call: ToolCall, _cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(std::future::ready(self.answer(call).into()))
    }

    fn max_use(&self) -> RemainingBudget {
        RemainingBudget::NOTHING
    }
}

impl ControlTool {
    fn answer(&self, call: ToolCall) -> Result<CallResult, ToolError> {
        let blank = |name: &str| {
            let text = call.arguments.get(name).and_then(Value::as_str);
            text.is_some_and(|text| text.trim().is_empty())
        };
        let needed = match self.kind {
            Control::TaskCompletion => "result",
            Control::TaskComplete => "summary",
            Control::AskQuestion => "question",
            Control::Converse => "message",
            Control::UpdatePlan => "goal",
            Control::ReadResult => "call",
        };
        if blank(needed) {
            return Err(ToolError::invalid(format!("`{needed}` is empty")));
        }
        let text = match self.kind {
            Control::AskQuestion => "The question is shown to the user; the answer is the next message.",
            Control::Converse => "The message is shown to the user.",
            Control::UpdatePlan => {
                let arguments = Value::Object(call.arguments);
                let plan: Plan = serde_json::from_value(arguments)
                    .map_err(|error| ToolError::invalid(error.to_string()))?;
                return Ok(CallResult {
                    structured: serde_json::to_value(&plan).ok(),
                    ..CallResult::text(plan.to_string())
                });
            }
            _ => "The task is complete.",
        };
        Ok(CallResult::text(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ALL: [Control; 6] = [
        Control::TaskCompletion,
        Control::TaskComplete,
        Control::AskQuestion,
        Control::Converse,
        Control::UpdatePlan,
        Control::ReadResult,
    ];

    #[test]
    fn every_control_has_a_name_and_a_schema() {
        for kind in ALL {
            assert_eq!(tool(kind).spec().name.as_str(), kind.name());
        }
    }

    #[test]
    fn f02_empty_arguments_and_five_suggestions_are_refused() {
        let fits = |kind, arguments: &Value| tool(kind).spec().input.validate(arguments).is_ok();
        assert!(fits(Control::TaskCompletion, &json!({"result": "done"})));
        assert!(!fits(Control::TaskCompletion, &json!({"result": ""})));
        assert!(!fits(Control::Converse, &json!({})));
        let asking = |n: usize| json!({"question": "Which?", "suggestions": vec!["a"; n]});
        assert!(fits(Control::AskQuestion, &asking(0)) && fits(Control::AskQuestion, &asking(4)));
        assert!(!fits(Control::AskQuestion, &asking(5)));
    }

    #[tokio::test]
    async fn f02_blank_arguments_are_refused_by_the_tool() {
        let arguments = json!({"message": " \n"}).as_object().unwrap().clone();
        let call = ToolCall {
            id: "1".into(),
            name: ToolName::new("converse").unwrap(),
            arguments,
        };
        let error = tool(Control::Converse)
            .call(call, CallContext::unobserved())
            .await
            .error;
        assert_eq!(error, Some(ToolError::invalid("`message` is empty")));
    }

    #[test]
    fn control_tools_change_nothing_and_reserve_nothing() {
        for kind in ALL {
            let tool = tool(kind);
            let hints = tool.spec().hints;
            assert!(
                hints.read_only && hints.idempotent && !hints.destructive,
                "{kind:?}"
            );
            assert_eq!(tool.max_use(), RemainingBudget::NOTHING, "{kind:?}");
        }
    }

    #[test]
    fn each_control_says_what_happens_next() {
        for (kind, name, said) in [
            (Control::AskQuestion, "question", "the answer is the next message"),
            (Control::Converse, "message", "The message is shown"),
            (Control::TaskCompletion, "result", "The task is complete"),
            (Control::TaskComplete, "summary", "The task is complete"),
        ] {
            let call = ToolCall {
                id: "1".into(),
                name: ToolName::new(kind.name()).unwrap(),
                arguments: json!({ name: "x" }).as_object().unwrap().clone(),
            };
            let control = ControlTool {
                kind,
                spec: spec_of(kind),
            };
            let result = control.answer(call).unwrap();
            let text = format!("{:?}", result.content);
            assert!(text.contains(said), "{text}");
        }
    }
}

//! Tools made of Rust functions.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use serde_json::{Map, Value};
use toolcell_core::schema::SchemaError;
use toolcell_core::tool::{Hints, InvalidToolName};
use toolcell_core::{
    BoxFuture, CallContext, RemainingBudget, Schema, Tool, ToolCall, ToolError, ToolName, ToolOutput,
    ToolSpec,
};

type Body = dyn Fn(Map<String, Value>, CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>>
    + Send
    + Sync;

/// A tool that runs in the host, made of an async function. It is trusted with everything that the host may do; whatever
/// should not be belongs into a component.
///
/// Its future must come to an `await` now and then: a call is cancelled by dropping it. Work that blocks a thread belongs
/// into `tokio::task::spawn_blocking`.
///
/// ```
/// use serde_json::json;
/// use toolcell_agent::FnTool;
///
/// let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
/// let greet = FnTool::new("greet", "Greets somebody", schema, |arguments, _cx| async move {
///     Ok(format!("Hello, {}!", arguments["name"]))
/// })?;
/// # Ok::<(), toolcell_agent::FnToolError>(())
/// ```
pub struct FnTool {
    spec: ToolSpec,
    max_use: RemainingBudget,
    body: Box<Body>,
}

/// Why a function makes no tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FnToolError {
    /// The name is no tool name.
    #[error(transparent)]
    Name(#[from] InvalidToolName),
    /// The schema is none.
    #[error("the schema of its arguments: {0}")]
    Schema(#[from] SchemaError),
}

impl FnTool {
    /// A tool with a name, a description for the model, a JSON Schema of its arguments, and what it does. The function
    /// gets arguments that fit the schema; it answers with text or a whole [`ToolOutput`].
    ///
    /// # Errors
    /// When name or schema are none.
    pub fn new<F, R, O>(name: &str, description: &str, schema: Value, body: F) -> Result<Self, FnToolError>
    where
        F: Fn(Map<String, Value>, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, ToolError>> + Send + 'static,
        O: IntoOutput,
    {
        let schema = Schema::for_arguments(&schema.to_string())?;
        Ok(Self {
            spec: ToolSpec {
                name: ToolName::new(name)?,
                title: None,
                description: description.to_owned(),
                input: Arc::new(schema),
                output: None,
                hints: Hints::default(),
                annotations: BTreeMap::new(),
            },
            max_use: RemainingBudget::NOTHING,
            body: Box::new(move |arguments, cx| {
                let work = body(arguments, cx);
                Box::pin(async move { work.await.map(IntoOutput::into_output) })
            }),
        })
    }

    /// The same tool, of which one call uses at most so much beside the call itself and its result; nothing unless set.
    /// For functions that file a [`toolcell_core::Receipt`].
    #[must_use]
    pub fn max_use(mut self, most: RemainingBudget) -> Self {
        self.max_use = most;
        self
    }

    /// The same tool with these claims.
    #[must_use]
    pub fn hints(mut self, hints: Hints) -> Self {
        self.spec.hints = hints;
        self
    }
}

/// What a function may answer with.
pub trait IntoOutput {
    /// The answer.
    fn into_output(self) -> ToolOutput;
}

impl IntoOutput for ToolOutput {
    fn into_output(self) -> ToolOutput {
        self
    }
}

impl IntoOutput for String {
    fn into_output(self) -> ToolOutput {
        ToolOutput::text(self)
    }
}

impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        (self.body)(call.arguments, cx)
    }

    fn max_use(&self) -> RemainingBudget {
        self.max_use
    }
}

impl std::fmt::Debug for FnTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FnTool({})", self.spec.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_or_a_schema_that_is_none_is_refused() {
        let make = |name, schema| FnTool::new(name, "", schema, |_, _| async { Ok(String::new()) });
        assert!(make("ok", json!({"type": "object"})).is_ok());
        assert!(matches!(
            make("not ok", json!({"type": "object"})),
            Err(FnToolError::Name(_))
        ));
        assert!(matches!(
            make("ok", json!({"type": "string"})),
            Err(FnToolError::Schema(SchemaError::RootNotObject))
        ));
    }

    #[test]
    fn a_function_uses_nothing_beside_its_result_unless_it_says_so() {
        let tool = FnTool::new("t", "", json!({"type": "object"}), |_, _| async {
            Ok(String::new())
        });
        let tool = tool.unwrap();
        assert_eq!(Tool::max_use(&tool), RemainingBudget::NOTHING);
        let most = RemainingBudget {
            fuel: Some(7),
            ..RemainingBudget::NOTHING
        };
        assert_eq!(Tool::max_use(&tool.max_use(most)), most);
    }
}

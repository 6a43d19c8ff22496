//! Tools made of Rust functions.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use serde_json::{Map, Value};
use toolcell_core::tool::Hints;
use toolcell_core::{
    BoxFuture, CallContext, CallResult, RemainingBudget, Schema, Tool, ToolCall, ToolError, ToolName,
    ToolSpec,
};

use crate::error::FnToolError;

type Body = dyn Fn(Map<String, Value>, CallContext) -> BoxFuture<'static, CallResult> + Send + Sync;

/// Tool that runs in the host, made of an async function. It has all privileges of the host; untrusted code belongs in
/// a component.
///
/// Its future must reach an `await` regularly: a call is cancelled by dropping it. Blocking work belongs in
/// `tokio::task::spawn_blocking`.
///
/// ```
/// use serde_json::json;
/// use toolcell_agent::FnTool;
///
/// let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
/// let greet = FnTool::new("greet", "Greets a user by name", schema, |arguments, _cx| async move {
///     Ok(format!("Hello, {}!", arguments["name"]))
/// })?;
/// # Ok::<(), toolcell_agent::FnToolError>(())
/// ```
pub struct FnTool {
    spec: ToolSpec,
    max_use: RemainingBudget,
    body: Box<Body>,
}

impl FnTool {
    /// Creates a tool with a name, a description for the model, a JSON Schema of its arguments, and a function. The
    /// function is called with arguments that fit the schema; it returns text or a [`CallResult`].
    ///
    /// # Errors
    /// Fails if the name or the schema is invalid.
    pub fn new<F, R, O>(name: &str, description: &str, schema: Value, body: F) -> Result<Self, FnToolError>
    where
        F: Fn(Map<String, Value>, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, ToolError>> + Send + 'static,
        O: IntoCallResult,
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
                Box::pin(async move { work.await.map(IntoCallResult::into_call_result).into() })
            }),
        })
    }

    /// Sets the maximum use of one call besides the call itself and its result; nothing unless set. For functions whose
    /// results have a [`toolcell_core::Receipt`].
    #[must_use]
    pub fn max_use(mut self, most: RemainingBudget) -> Self {
        self.max_use = most;
        self
    }

    /// Sets the hints of the tool.
    #[must_use]
    pub fn hints(mut self, hints: Hints) -> Self {
        self.spec.hints = hints;
        self
    }
}

/// Return value of a tool function.
pub trait IntoCallResult {
    /// Converts the value.
    fn into_call_result(self) -> CallResult;
}

impl IntoCallResult for CallResult {
    fn into_call_result(self) -> CallResult {
        self
    }
}

impl IntoCallResult for String {
    fn into_call_result(self) -> CallResult {
        CallResult::text(self)
    }
}

impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
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
    use toolcell_core::schema::SchemaError;

    #[test]
    fn invalid_name_or_schema_is_refused() {
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
    fn function_reserves_only_its_result_by_default() {
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

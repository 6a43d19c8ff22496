//! Tool schemas for OpenAI: the tools' own schemas, or the strict subset.

use serde_json::Value;
use toolcell_core::ToolSpec;
use toolcell_core::provider::Request;

use crate::response_builder::ResponseBuilder;
use crate::schema::Strict;

/// Form of tool schemas in requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolSchemas {
    /// The tools' own schemas. The model may violate them; arguments are checked in any case.
    #[default]
    Loose,
    /// The strict subset, which constrains the model's output, for tools whose schema has such a form; other schemas
    /// unchanged.
    Strict,
}

impl ToolSchemas {
    /// The schema to send, and true if it is strict.
    pub(crate) fn of(self, tool: &ToolSpec) -> (Value, bool) {
        match self {
            Self::Loose => (tool.input.as_value().clone(), false),
            Self::Strict => match Strict::of(tool.input.as_value()) {
                Ok(strict) => (strict.schema().clone(), true),
                Err(why) => {
                    tracing::debug!(tool = %tool.name, %why, "a tool has no strict form");
                    (tool.input.as_value().clone(), false)
                }
            },
        }
    }

    /// Configures a response to convert arguments back to the tools' own schemas.
    pub(crate) fn answer(self, answer: ResponseBuilder, request: &Request) -> ResponseBuilder {
        match self {
            Self::Loose => answer,
            Self::Strict => {
                answer.raising(request.tools.iter().filter_map(|tool| {
                    Some((tool.name.to_string(), Strict::of(tool.input.as_value()).ok()?))
                }))
            }
        }
    }
}

/// The schema of a final answer, and true if it is strict: only if strictness changes nothing, because the text is
/// returned as the model writes it.
pub(crate) fn answer_schema(schema: &Value) -> (Value, bool) {
    match Strict::of(schema) {
        Ok(strict) if strict.is_exact() => (strict.schema().clone(), true),
        _ => (schema.clone(), false),
    }
}

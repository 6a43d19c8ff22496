//! How tools are described to OpenAI: with their own schemas, or in the strict subset.

use serde_json::Value;
use toolcell_core::ToolSpec;
use toolcell_core::provider::Request;

use crate::response_builder::ResponseBuilder;
use crate::schema::Strict;

/// How tools are described.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolSchemas {
    /// With their own schemas. The model may break them; arguments are checked in any case.
    #[default]
    Loose,
    /// In the strict subset, to which the model's output is constrained, where a tool's schema has such a form; other
    /// tools as they are.
    Strict,
}

impl ToolSchemas {
    /// The schema to send and whether it is strict.
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

    /// An answer whose arguments are raised to the tools' own schemas.
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

/// The schema of a final answer and whether it is strict: only where that changes nothing, because the text goes to the
/// reader as the model writes it.
pub(crate) fn answer_schema(schema: &Value) -> (Value, bool) {
    match Strict::of(schema) {
        Ok(strict) if strict.is_exact() => (strict.schema().clone(), true),
        _ => (schema.clone(), false),
    }
}

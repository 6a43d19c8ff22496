//! Forms in which models write calls, as their templates show them.

use serde_json::Value;
use toolcell_core::ToolSpec;
use toolcell_core::provider::{Request, ToolChoice};

use super::constraint::{AnswerRules, CallRules};
use crate::grammar::{InvalidGrammar, SchemaGrammar, literal};

/// Form of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallForm {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen, SmolLM.
    Tags,
    /// The answer is `{"name": …, "parameters": …}`: Llama 3.
    Object,
    /// `[TOOL_CALLS][{"name": …, "arguments": …}]`: Mistral.
    List,
    /// `[TOOL_CALLS]name[ARGS]{…}`: newer models of Mistral.
    Named,
    /// `<|tool_call|>[{"name": …, "arguments": …}]<|/tool_call|>`: Phi 4.
    PhiList,
}

impl CallForm {
    /// Form that a template shows to the model.
    pub fn of(template: &str) -> Self {
        let has = |text: &str| template.contains(text);
        if has("<tool_call>") {
            Self::Tags
        } else if has("[TOOL_CALLS]") && has("[ARGS]") {
            Self::Named
        } else if has("[TOOL_CALLS]") {
            Self::List
        } else if has("<|tool_call|>") {
            Self::PhiList
        } else if has("\"parameters\"") && has("<|start_header_id|>") {
            Self::Object
        } else {
            Self::Tags
        }
    }

    fn marker(self) -> &'static str {
        match self {
            Self::Tags => "<tool_call>",
            Self::Object => "{",
            Self::List | Self::Named => "[TOOL_CALLS]",
            Self::PhiList => "<|tool_call|>",
        }
    }

    fn end(self) -> &'static str {
        match self {
            Self::Tags => "</tool_call>",
            Self::PhiList => "<|/tool_call|>",
            Self::Object | Self::List | Self::Named => "",
        }
    }

    fn arguments(self) -> &'static str {
        match self {
            Self::Object => "parameters",
            _ => "arguments",
        }
    }

    /// Rules of an answer to a request.
    ///
    /// # Errors
    /// [`InvalidGrammar`] if the schemas are too large or nothing matches one of them.
    pub fn rules(self, request: &Request) -> Result<AnswerRules, InvalidGrammar> {
        let tools: Vec<&ToolSpec> = match &request.tool_choice {
            ToolChoice::None => Vec::new(),
            ToolChoice::Tool(name) => request.tools.iter().filter(|tool| tool.name == *name).collect(),
            ToolChoice::Auto | ToolChoice::Required => request.tools.iter().collect(),
        };
        let is_required = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Tool(_));
        if tools.is_empty() {
            return match &request.response_schema {
                Some(schema) => SchemaGrammar::of(schema.as_value()).map(AnswerRules::Whole),
                None => Ok(AnswerRules::Free),
            };
        }
        let mut grammar = SchemaGrammar::new();
        let space = grammar.space()?;
        let line = grammar.either(vec![Vec::new(), literal("\n")])?;
        let line = crate::grammar::Item::Rule(line);
        let mut calls = Vec::new();
        for tool in tools {
            let arguments = crate::grammar::Item::Rule(grammar.schema(tool.input.as_value())?);
            let mut call = Vec::new();
            if self == Self::Named {
                call.extend(literal(tool.name.as_str()));
                call.extend(literal("[ARGS]"));
                call.push(arguments);
            } else {
                call.extend(literal("{\"name\":"));
                call.push(space.clone());
                call.extend(literal(&Value::from(tool.name.as_str()).to_string()));
                call.extend(literal(","));
                call.push(space.clone());
                call.extend(literal(&format!("\"{}\":", self.arguments())));
                call.push(space.clone());
                call.push(arguments);
                call.extend(literal("}"));
            }
            calls.push(call);
        }
        let call = crate::grammar::Item::Rule(grammar.either(calls)?);
        let is_single = request.parallel_calls == Some(false);
        let mut items = Vec::new();
        match self {
            Self::Tags => items.extend([line.clone(), call, line]),
            Self::Object | Self::Named => items.push(call),
            Self::List | Self::PhiList => {
                items.push(space.clone());
                items.extend(literal("["));
                items.push(call.clone());
                let mut more = literal(",");
                more.extend([space, call]);
                let more = grammar.sequence(more)?;
                if !is_single {
                    items.push(crate::grammar::Item::Repeat(more, 0, Some(MAX_CALLS)));
                }
                items.extend(literal("]"));
            }
        }
        items.extend(literal(self.end()));
        let root = grammar.sequence(items)?;
        Ok(AnswerRules::Calls(CallRules {
            grammar: grammar.build(root)?,
            marker: self.marker().to_owned(),
            has_marker: self == Self::Object,
            is_whole: self == Self::Object,
            is_required,
            is_single: is_single || matches!(self, Self::List | Self::PhiList),
        }))
    }

    /// Names and arguments of the calls in the text of [`super::Piece::Call`]; `None` if it is another text.
    pub fn read(self, text: &str) -> Option<Vec<(String, String)>> {
        let text = text.trim();
        let text = text.strip_suffix(self.end()).unwrap_or(text).trim();
        if self == Self::Named {
            let (name, arguments) = text.split_once("[ARGS]")?;
            let arguments: Value = serde_json::from_str(arguments).ok()?;
            return Some(vec![(name.to_owned(), arguments.to_string())]);
        }
        let calls = match serde_json::from_str(text).ok()? {
            Value::Array(calls) => calls,
            call => vec![call],
        };
        let call = |call: Value| {
            let name = call.get("name")?.as_str()?.to_owned();
            Some((name, call.get(self.arguments())?.to_string()))
        };
        calls.into_iter().map(call).collect()
    }
}

/// Maximum number of calls in one list besides the first.
const MAX_CALLS: u32 = 63;

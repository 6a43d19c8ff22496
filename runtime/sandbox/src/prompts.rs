//! Prompts of a component: listed once when it is loaded, got in a cell for each request.

use std::collections::BTreeSet;

use serde_json::Value;
use toolcell_core::{
    CallResult, PromptArgument, PromptMessage, PromptRole, PromptSpec, ToolCall, ToolName, ToolSpec,
};
use wasmtime::Store;

use crate::bindings::{GuestError, PromptProvider, PromptProviderPre, prompts};
use crate::cell::GuestCall;
use crate::cell::state::CellState;
use crate::error::LoadError;
use crate::resources::{MAX_VALUES, Rules, operation_spec, result_len, shown};
use crate::tool::to_core;

/// Maximum number of prompts of a component: a user chooses among them in a menu.
const MAX_PROMPTS: usize = 128;

/// Maximum number of arguments of a prompt: a user fills them in one by one.
const MAX_ARGUMENTS: usize = 32;

/// Describes the tool that gets prompts.
pub(crate) fn getter_spec(name: ToolName) -> ToolSpec {
    let schema = r#"{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object","additionalProperties":{"type":"string"}}},"required":["name"]}"#;
    operation_spec(name, "Gets a prompt.", schema)
}

/// Reads the list of a guest.
pub(crate) struct Ask;

impl GuestCall for Ask {
    type World = PromptProviderPre<CellState>;
    type Done = Vec<prompts::PromptInfo>;

    async fn call_guest(
        self,
        guest: &PromptProvider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Self::Done> {
        guest.toolcell_tool_prompts().call_list(store).await
    }

    fn bytes_out(done: &Self::Done) -> u64 {
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let of_prompt = |of: &prompts::PromptInfo| {
            let arguments = of.arguments.iter().map(|of| {
                let values: usize = of.values.iter().map(String::len).sum();
                of.name.len() + optional(&of.title) + optional(&of.description) + values
            });
            let annotations = of.annotations.iter().map(|(k, v)| k.len() + v.len());
            let texts = of.name.len() + optional(&of.title) + optional(&of.description);
            texts + arguments.sum::<usize>() + annotations.sum::<usize>()
        };
        done.iter().map(of_prompt).sum::<usize>() as u64
    }
}

/// Gets one prompt.
pub(crate) struct PromptRun(prompts::Request);

impl PromptRun {
    pub(crate) fn new(mut call: ToolCall, context: Vec<(String, String)>) -> Self {
        let text = |value: Value| match value {
            Value::String(text) => text,
            _ => String::new(),
        };
        let arguments = match call.arguments.remove("arguments") {
            Some(Value::Object(arguments)) => arguments,
            _ => serde_json::Map::new(),
        };
        Self(prompts::Request {
            id: call.id,
            name: call.arguments.remove("name").map(text).unwrap_or_default(),
            arguments: arguments
                .into_iter()
                .map(|(name, value)| (name, text(value)))
                .collect(),
            context,
        })
    }

    pub(crate) fn byte_len(&self) -> u64 {
        let pairs = self.0.context.iter().chain(&self.0.arguments);
        let pairs: usize = pairs.map(|(k, v)| k.len() + v.len()).sum();
        (self.0.name.len() + pairs) as u64
    }
}

impl GuestCall for PromptRun {
    type World = PromptProviderPre<CellState>;
    type Done = Result<CallResult, GuestError>;

    async fn call_guest(
        self,
        guest: &PromptProvider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Self::Done> {
        let got = guest.toolcell_tool_prompts().call_get(store, &self.0).await?;
        let message = |message: prompts::Message| PromptMessage {
            role: match message.role {
                prompts::Role::User => PromptRole::User,
                prompts::Role::Assistant => PromptRole::Assistant,
            },
            content: to_core(message.content),
        };
        Ok(got.map(|messages| PromptMessage::to_result(messages.into_iter().map(message).collect())))
    }

    fn bytes_out(done: &Self::Done) -> u64 {
        result_len(done)
    }
}

/// Checks the list of a component.
pub(crate) fn check(listing: Vec<prompts::PromptInfo>) -> Result<Vec<PromptSpec>, LoadError> {
    let rules = Rules("prompts");
    rules.at_most("prompts", listing.len(), MAX_PROMPTS)?;
    let mut seen = BTreeSet::new();
    let mut checked = Vec::new();
    for info in listing {
        let of = format!("the prompt `{}`", shown(&info.name));
        let name = ToolName::new(info.name)
            .map_err(|error| rules.error(&of, error.to_string().replace("tool name", "name")))?;
        if !seen.insert(name.clone()) {
            return Err(rules.error(&of, "it is listed twice"));
        }
        rules.texts("", &info.title, &info.description, &None)?;
        rules.at_most(&format!("arguments of {of}"), info.arguments.len(), MAX_ARGUMENTS)?;
        let values = info.arguments.iter().map(|argument| argument.values.len()).sum();
        rules.at_most(&format!("values of {of}"), values, MAX_VALUES)?;
        let mut arguments: Vec<PromptArgument> = Vec::new();
        for argument in info.arguments {
            rules.texts(&argument.name, &argument.title, &argument.description, &None)?;
            if argument.name.is_empty() || arguments.iter().any(|known| known.name == argument.name) {
                return Err(rules.error(
                    &of,
                    "the names of its arguments are not distinct, or one is empty",
                ));
            }
            for value in &argument.values {
                rules.short("value", value)?;
            }
            arguments.push(PromptArgument {
                name: argument.name,
                title: argument.title,
                description: argument.description,
                required: argument.required,
                values: argument.values,
            });
        }
        checked.push(PromptSpec {
            name,
            title: info.title,
            description: info.description,
            arguments,
        });
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prompts::{Argument, PromptInfo};

    fn argument(name: &str) -> Argument {
        Argument {
            name: name.into(),
            title: None,
            description: None,
            required: false,
            values: Vec::new(),
        }
    }

    fn prompt(name: &str, arguments: Vec<Argument>) -> PromptInfo {
        PromptInfo {
            name: name.into(),
            title: None,
            description: None,
            arguments,
            annotations: Vec::new(),
        }
    }

    #[test]
    fn numbers_of_prompts_arguments_and_values_are_limited() {
        let some = |n: usize| check((0..n).map(|i| prompt(&format!("p{i}"), vec![])).collect()).is_ok();
        assert_eq!((some(MAX_PROMPTS), some(MAX_PROMPTS + 1)), (true, false));
        let some = |n: usize| {
            let arguments = (0..n).map(|i| argument(&format!("a{i}"))).collect();
            check(vec![prompt("p", arguments)]).is_ok()
        };
        assert_eq!((some(MAX_ARGUMENTS), some(MAX_ARGUMENTS + 1)), (true, false));
        let some = |n: usize| {
            let mut one = argument("a");
            one.values = vec!["v".into(); n];
            check(vec![prompt("p", vec![one])]).is_ok()
        };
        assert_eq!((some(MAX_VALUES), some(MAX_VALUES + 1)), (true, false));
    }

    #[test]
    fn invalid_list_is_refused_with_the_prompt() {
        for (listing, reason) in [
            (
                vec![prompt("a b", vec![])],
                "the prompt `a b`: invalid name `a b`",
            ),
            (
                vec![prompt("a", vec![]), prompt("a", vec![])],
                "the prompt `a`: it is listed twice",
            ),
            (
                vec![prompt("a", vec![argument("x"), argument("x")])],
                "its arguments are not distinct",
            ),
            (vec![prompt("a", vec![argument("")])], "one is empty"),
            (
                vec![prompt("a", vec![argument(&"x".repeat(257))])],
                "257 bytes exceed the limit of 256",
            ),
        ] {
            let refused = check(listing).unwrap_err().to_string();
            assert!(refused.starts_with("invalid list of prompts: "), "{refused}");
            assert!(refused.contains(reason), "{refused}");
        }
        assert!(check(vec![prompt("a", vec![argument(&"x".repeat(256))])]).is_ok());
    }

    #[test]
    fn size_of_a_list_counts_each_of_its_texts() {
        let text = |bytes: usize| "x".repeat(bytes);
        let one = PromptInfo {
            name: text(1),
            title: Some(text(2)),
            description: Some(text(4)),
            arguments: vec![Argument {
                name: text(8),
                title: Some(text(0x10)),
                description: Some(text(0x20)),
                required: true,
                values: vec![text(0x40)],
            }],
            annotations: vec![(text(0x80), text(0x100))],
        };
        assert_eq!(Ask::bytes_out(&vec![one]), 0x1ff);
    }
}

//! Resources and prompts that are offered beside tools: lists, completion, and the form of what is read.

mod answer;
mod list;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolcell_core::resource::{MAX_URI, URI_ARGUMENT};
use toolcell_core::{PromptSpec, Prompts, ResourceSpec, ResourceTemplate, Resources, Tool};

use crate::message::{RpcError, excerpt};
use crate::server::catalog::Duplicate;
use crate::server::listeners::List;

pub(crate) use answer::{Form, response};
pub use list::PAGE_CONTEXT;

/// Maximum number of values of a completion, as the protocol has it.
pub const MAX_COMPLETIONS: usize = 100;

/// Code of the error for a resource that does not exist, up to version 2025-11-25.
const NOT_FOUND: i32 = -32002;

/// Resources and prompts of all sources, in the order of their URIs and names.
#[derive(Default)]
pub(crate) struct ContextCatalog {
    resources: BTreeMap<String, Entry<ResourceSpec>>,
    templates: BTreeMap<String, Entry<ResourceTemplate>>,
    prompts: BTreeMap<String, Entry<PromptSpec>>,
    tells_updates: bool,
}

/// Description, with what reads it and the name of its source.
struct Entry<T> {
    spec: T,
    tool: Arc<dyn Tool>,
    source: String,
}

/// What reads a resource, and its source.
struct Found<'a> {
    tool: &'a Arc<dyn Tool>,
    media_type: &'a Option<String>,
    source: &'a str,
}

impl<'a> Found<'a> {
    fn of<T>(entry: &'a Entry<T>, media_type: &'a Option<String>) -> Self {
        Self {
            tool: &entry.tool,
            media_type,
            source: &entry.source,
        }
    }
}

/// Call that reads a resource or gets a prompt, and the form of its answer.
pub(crate) struct ContextCall {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) form: Form,
}

impl ContextCatalog {
    /// Creates an empty one. `tells_updates` is true if clients are told when resources change.
    pub(crate) fn new(tells_updates: bool) -> Self {
        Self {
            tells_updates,
            ..Self::default()
        }
    }

    /// Adds the resources of a source.
    pub(crate) fn add_resources(&mut self, source: &str, resources: Resources) -> Result<(), Duplicate> {
        let Resources {
            resources,
            templates,
            reader,
        } = resources;
        for spec in resources {
            insert(&mut self.resources, spec.uri.clone(), spec, &reader, source)?;
        }
        for spec in templates {
            insert(
                &mut self.templates,
                spec.template.as_str().to_owned(),
                spec,
                &reader,
                source,
            )?;
        }
        Ok(())
    }

    /// Adds the prompts of a source.
    pub(crate) fn add_prompts(&mut self, source: &str, prompts: Prompts) -> Result<(), Duplicate> {
        for spec in prompts.prompts {
            insert(
                &mut self.prompts,
                spec.name.to_string(),
                spec,
                &prompts.getter,
                source,
            )?;
        }
        Ok(())
    }

    /// True if there are resources or templates.
    pub(crate) fn has_resources(&self) -> bool {
        !self.resources.is_empty() || !self.templates.is_empty()
    }

    /// True if clients can follow resources.
    pub(crate) fn tells_updates(&self) -> bool {
        self.tells_updates && self.has_resources()
    }

    /// True if a client can follow this resource.
    pub(crate) fn is_followable(&self, uri: &str) -> bool {
        self.tells_updates && self.find(uri).is_some()
    }

    /// Returns the name of the source of a resource; `None` if it is not offered.
    pub(crate) fn source_of(&self, uri: &str) -> Option<&str> {
        self.find(uri).map(|found| found.source)
    }

    /// Finds a resource that is listed or fits a template.
    fn find(&self, uri: &str) -> Option<Found<'_>> {
        if let Some(listed) = self.resources.get(uri) {
            return Some(Found::of(listed, &listed.spec.media_type));
        }
        // Compared with each template: one that is too long fits none.
        let mut templates = self.templates.values().filter(|_| uri.len() <= MAX_URI);
        let family = templates.find(|entry| entry.spec.template.matches(uri))?;
        Some(Found::of(family, &family.spec.media_type))
    }

    /// Checks that a client of a session can follow a resource.
    ///
    /// # Errors
    /// Fails if there is no such resource.
    pub(crate) fn check_followable(&self, uri: &str) -> Result<(), RpcError> {
        match self.is_followable(uri) {
            true => Ok(()),
            false => Err(not_found(uri, false)),
        }
    }

    pub(crate) fn has_prompts(&self) -> bool {
        !self.prompts.is_empty()
    }

    /// Checks that a method is not one for resources or prompts that are not offered.
    ///
    /// # Errors
    /// Fails for such a method as for one that does not exist.
    pub(crate) fn check_method(&self, method: &str) -> Result<(), RpcError> {
        let is_offered = match method.split_once('/') {
            Some(("resources", _)) => self.has_resources(),
            Some(("prompts", _)) => self.has_prompts(),
            Some(("completion", _)) => self.has_resources() || self.has_prompts(),
            _ => true,
        };
        match is_offered {
            true => Ok(()),
            false => Err(RpcError::unknown_method(method)),
        }
    }

    /// True if a list is one that can have items.
    pub(crate) fn has_list(&self, list: List) -> bool {
        match list {
            List::Tools => true,
            List::Resources => self.has_resources(),
            List::Prompts => self.has_prompts(),
        }
    }

    /// True if both have the same lists of resources.
    pub(crate) fn has_resources_of(&self, other: &Self) -> bool {
        specs(&self.resources).eq(specs(&other.resources))
            && specs(&self.templates).eq(specs(&other.templates))
    }

    /// True if both have the same list of prompts.
    pub(crate) fn has_prompts_of(&self, other: &Self) -> bool {
        specs(&self.prompts).eq(specs(&other.prompts))
    }

    /// Checks the parameters of `resources/read`.
    ///
    /// # Errors
    /// Fails if there is no such resource.
    pub(crate) fn read(
        &self,
        params: &Map<String, Value>,
        is_stateless: bool,
    ) -> Result<ContextCall, RpcError> {
        let Some(uri) = params.get("uri").and_then(Value::as_str) else {
            return Err(RpcError::invalid_params("`uri` is not a string"));
        };
        let found = self.find(uri).ok_or_else(|| not_found(uri, is_stateless))?;
        let mut arguments = Map::new();
        arguments.insert(URI_ARGUMENT.into(), uri.into());
        Ok(ContextCall {
            tool: found.tool.clone(),
            arguments,
            form: Form::Resource {
                uri: uri.to_owned(),
                media_type: found.media_type.clone(),
            },
        })
    }

    /// Checks the parameters of `prompts/get`.
    ///
    /// # Errors
    /// Fails if there is no such prompt, or its arguments are not those that it describes.
    pub(crate) fn get(&self, params: &mut Map<String, Value>) -> Result<ContextCall, RpcError> {
        let Some(name) = params.get("name").and_then(Value::as_str) else {
            return Err(RpcError::invalid_params("`name` is not a string"));
        };
        let Some(entry) = self.prompts.get(name) else {
            let error = format!("unknown prompt: `{}`", excerpt(name));
            return Err(RpcError::invalid_params(error));
        };
        let arguments = match params.remove("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(RpcError::invalid_params("`arguments` is not an object")),
        };
        check_arguments(&entry.spec, &arguments)?;
        let mut of_call = Map::new();
        of_call.insert("name".into(), entry.spec.name.as_str().into());
        of_call.insert("arguments".into(), Value::Object(arguments));
        Ok(ContextCall {
            tool: entry.tool.clone(),
            arguments: of_call,
            form: Form::Prompt {
                description: entry.spec.description.clone(),
            },
        })
    }

    /// Answers `completion/complete` from the values that prompts and templates list.
    ///
    /// # Errors
    /// Fails if there is no such prompt, template or argument.
    pub(crate) fn complete(&self, params: &Map<String, Value>) -> Result<Map<String, Value>, RpcError> {
        let invalid = |reason: &str| RpcError::invalid_params(reason);
        let text =
            |of: Option<&Value>, name: &str| of.and_then(|of| of.get(name)?.as_str().map(str::to_owned));
        let (reference, argument) = (params.get("ref"), params.get("argument"));
        let (Some(kind), Some(name), Some(begun)) = (
            text(reference, "type"),
            text(argument, "name"),
            text(argument, "value"),
        ) else {
            return Err(invalid("`ref` has a `type`, `argument` a `name` and a `value`"));
        };
        let values = match kind.as_str() {
            "ref/prompt" => {
                let prompt = text(reference, "name").and_then(|name| self.prompts.get(&name));
                let prompt = prompt.ok_or_else(|| invalid("`ref` names no prompt"))?;
                let mut arguments = prompt.spec.arguments.iter();
                let found = arguments.find(|argument| argument.name == name);
                &found
                    .ok_or_else(|| invalid("the prompt has no such argument"))?
                    .values[..]
            }
            "ref/resource" => {
                let uri = text(reference, "uri").ok_or_else(|| invalid("`ref` has no `uri`"))?;
                match (self.templates.get(&uri), self.resources.get(&uri)) {
                    (Some(family), _) if family.spec.template.variables().any(|known| known == name) => {
                        let values = family.spec.values.iter().find(|(known, _)| *known == name);
                        values.map_or(&[][..], |(_, values)| &values[..])
                    }
                    (Some(_), _) => return Err(invalid("the template has no such variable")),
                    // Without variables, there is nothing to complete.
                    (None, Some(_)) => &[],
                    (None, None) => return Err(invalid("`ref` names no template")),
                }
            }
            _ => {
                return Err(invalid(
                    "the `type` of `ref` is \"ref/prompt\" or \"ref/resource\"",
                ));
            }
        };
        let fitting: Vec<&String> = values.iter().filter(|value| value.starts_with(&begun)).collect();
        let total = fitting.len();
        let shown = &fitting[..total.min(MAX_COMPLETIONS)];
        let completion = json!({ "values": shown, "total": total, "hasMore": total > MAX_COMPLETIONS });
        let mut result = Map::new();
        result.insert("completion".into(), completion);
        Ok(result)
    }
}

fn specs<T>(entries: &BTreeMap<String, Entry<T>>) -> impl Iterator<Item = &T> {
    entries.values().map(|entry| &entry.spec)
}

fn insert<T>(
    entries: &mut BTreeMap<String, Entry<T>>,
    name: String,
    spec: T,
    tool: &Arc<dyn Tool>,
    source: &str,
) -> Result<(), Duplicate> {
    if let Some(first) = entries.get(&name) {
        return Err(Duplicate::Context {
            sources: [first.source.clone(), source.to_owned()],
            name,
        });
    }
    let entry = Entry {
        spec,
        tool: tool.clone(),
        source: source.to_owned(),
    };
    entries.insert(name, entry);
    Ok(())
}

/// Error for a URI without a resource.
fn not_found(uri: &str, is_stateless: bool) -> RpcError {
    let error = RpcError::invalid_params("resource not found");
    RpcError {
        code: if is_stateless { error.code } else { NOT_FOUND },
        data: Some(json!({ "uri": excerpt(uri) })),
        ..error
    }
}

/// Checks that the arguments of a prompt are texts that it describes, among them the required ones.
fn check_arguments(prompt: &PromptSpec, arguments: &Map<String, Value>) -> Result<(), RpcError> {
    let refuse = |reason: &str, name: &str| {
        Err(RpcError::invalid_params(format!(
            "the argument `{}` {reason}",
            excerpt(name)
        )))
    };
    for (name, value) in arguments {
        let Some(argument) = prompt.arguments.iter().find(|argument| argument.name == *name) else {
            return refuse("is unknown", name);
        };
        match value.as_str() {
            None => return refuse("is not a string", name),
            Some(text)
                if !argument.values.is_empty() && !argument.values.iter().any(|value| value == text) =>
            {
                return refuse("has a value that is not permitted", name);
            }
            Some(_) => {}
        }
    }
    match prompt
        .arguments
        .iter()
        .find(|of| of.required && !arguments.contains_key(&of.name))
    {
        Some(missing) => refuse("is missing", &missing.name),
        None => Ok(()),
    }
}

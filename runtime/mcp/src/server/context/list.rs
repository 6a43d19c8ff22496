//! Lists of resources, templates and prompts, a page at a time.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use toolcell_core::{PromptSpec, ResourceSpec, ResourceTemplate};

use super::{ContextCatalog, Entry};
use crate::message::RpcError;
use crate::server::catalog::page_of;
use crate::version::Version;

/// Maximum number of resources, templates or prompts on a page. One can have descriptions of 10 KiB, for itself and each argument.
pub const PAGE_CONTEXT: usize = 100;

impl ContextCatalog {
    /// Returns a page of a list; `None` for a method that lists something else.
    ///
    /// # Errors
    /// Fails if the cursor is not one of this list.
    pub(crate) fn page(
        &self,
        method: &str,
        cursor: Option<&Value>,
        version: Version,
    ) -> Option<Result<Map<String, Value>, RpcError>> {
        Some(match method {
            "resources/list" => page(&self.resources, "resources", cursor, version, resource),
            "resources/templates/list" => {
                page(&self.templates, "resourceTemplates", cursor, version, template)
            }
            "prompts/list" => page(&self.prompts, "prompts", cursor, version, prompt),
            _ => return None,
        })
    }
}

fn page<T>(
    entries: &BTreeMap<String, Entry<T>>,
    member: &str,
    cursor: Option<&Value>,
    version: Version,
    describe: fn(&T, Version) -> Value,
) -> Result<Map<String, Value>, RpcError> {
    page_of(entries, member, (cursor, PAGE_CONTEXT), version, |entry| {
        describe(&entry.spec, version)
    })
}

/// Adds members that have a value.
fn with(mut described: Value, members: [(&str, Option<Value>); 4]) -> Value {
    for (name, value) in members {
        if let Some(value) = value {
            described[name] = value;
        }
    }
    described
}

/// Titles are part of the protocol since 2025-06-18.
fn title(title: Option<&String>, version: Version) -> Option<Value> {
    title
        .filter(|_| version >= Version::V2025_06_18)
        .map(|title| title.as_str().into())
}

fn optional(text: Option<&String>) -> Option<Value> {
    text.map(|text| text.as_str().into())
}

fn resource(spec: &ResourceSpec, version: Version) -> Value {
    let described = json!({ "uri": spec.uri, "name": spec.name });
    let members = [
        ("title", title(spec.title.as_ref(), version)),
        ("description", optional(spec.description.as_ref())),
        ("mimeType", optional(spec.media_type.as_ref())),
        ("size", spec.size.map(Value::from)),
    ];
    with(described, members)
}

fn template(spec: &ResourceTemplate, version: Version) -> Value {
    let described = json!({ "uriTemplate": spec.template.as_str(), "name": spec.name });
    let members = [
        ("title", title(spec.title.as_ref(), version)),
        ("description", optional(spec.description.as_ref())),
        ("mimeType", optional(spec.media_type.as_ref())),
        ("size", None),
    ];
    with(described, members)
}

fn prompt(spec: &PromptSpec, version: Version) -> Value {
    let arguments = spec.arguments.iter().map(|of| {
        let members = [
            ("title", title(of.title.as_ref(), version)),
            ("description", optional(of.description.as_ref())),
            ("required", Some(of.required.into())),
            ("size", None),
        ];
        with(json!({ "name": of.name }), members)
    });
    let arguments: Vec<Value> = arguments.collect();
    let members = [
        ("title", title(spec.title.as_ref(), version)),
        ("description", optional(spec.description.as_ref())),
        ("arguments", Some(arguments.into())),
        ("size", None),
    ];
    with(json!({ "name": spec.name }), members)
}

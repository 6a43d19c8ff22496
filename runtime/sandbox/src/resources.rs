//! Resources of a component: listed once when it is loaded, read in a cell for each request.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use toolcell_core::resource::{URI_ARGUMENT, check_uri};
use toolcell_core::tool::Hints;
use toolcell_core::{
    CallResult, ResourceSpec, ResourceTemplate, Schema, ToolCall, ToolName, ToolSpec, UriTemplate,
};
use wasmtime::Store;

use crate::bindings::{GuestError, ResourceProvider, ResourceProviderPre, resources};
use crate::cell::GuestCall;
use crate::cell::failure::cut;
use crate::cell::state::CellState;
use crate::error::LoadError;
use crate::load::definitions::MAX_DESCRIPTION;
use crate::tool::{guest_text, to_core};

/// Maximum number of resources that a component lists. A component with more has a template.
const MAX_RESOURCES: usize = 1024;

/// Maximum number of templates of a component. Each is compared with the URI of a request.
const MAX_TEMPLATES: usize = 32;

/// Maximum number of values to suggest for all variables of a template, or all arguments of a prompt.
pub(crate) const MAX_VALUES: usize = 1024;

/// Maximum size of a name, title, media type or value, in bytes.
pub(crate) const MAX_SHORT_TEXT: usize = 256;

/// Describes the tool that reads resources.
pub(crate) fn reader_spec(name: ToolName) -> ToolSpec {
    let schema = format!(
        r#"{{"type":"object","properties":{{"{URI_ARGUMENT}":{{"type":"string"}}}},"required":["{URI_ARGUMENT}"]}}"#
    );
    operation_spec(name, "Reads a resource.", &schema)
}

/// Describes an operation that is called as a tool, and of which models learn nothing.
pub(crate) fn operation_spec(name: ToolName, description: &str, schema: &str) -> ToolSpec {
    ToolSpec {
        name,
        title: None,
        description: description.to_owned(),
        input: Arc::new(Schema::for_arguments(schema).expect("the schema is a constant")),
        output: None,
        hints: Hints::default(),
        annotations: std::collections::BTreeMap::new(),
    }
}

/// Reads the list of a guest.
pub(crate) struct Ask;

impl GuestCall for Ask {
    type World = ResourceProviderPre<CellState>;
    type Done = resources::Listing;

    async fn call_guest(
        self,
        guest: &ResourceProvider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<resources::Listing> {
        guest.toolcell_tool_resources().call_list(store).await
    }

    fn bytes_out(done: &resources::Listing) -> u64 {
        let pairs = |pairs: &[(String, String)]| pairs.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let resources = done.resources.iter().map(|of| {
            let texts = optional(&of.title) + optional(&of.description) + optional(&of.media_type);
            of.uri.len() + of.name.len() + texts + pairs(&of.annotations)
        });
        let templates = done.templates.iter().map(|of| {
            let texts = optional(&of.title) + optional(&of.description) + optional(&of.media_type);
            let values = of
                .variables
                .iter()
                .map(|variable| variable.name.len() + variable.values.iter().map(String::len).sum::<usize>());
            of.uri_template.len() + of.name.len() + texts + values.sum::<usize>() + pairs(&of.annotations)
        });
        (resources.sum::<usize>() + templates.sum::<usize>()) as u64
    }
}

/// Reads one resource.
pub(crate) struct ReadRun(resources::Request);

impl ReadRun {
    pub(crate) fn new(mut call: ToolCall, context: Vec<(String, String)>) -> Self {
        let uri = match call.arguments.remove(URI_ARGUMENT) {
            Some(Value::String(uri)) => uri,
            _ => String::new(),
        };
        Self(resources::Request {
            id: call.id,
            uri,
            context,
        })
    }

    pub(crate) fn byte_len(&self) -> u64 {
        let context: usize = self.0.context.iter().map(|(k, v)| k.len() + v.len()).sum();
        (self.0.uri.len() + context) as u64
    }
}

impl GuestCall for ReadRun {
    type World = ResourceProviderPre<CellState>;
    type Done = Result<CallResult, GuestError>;

    async fn call_guest(
        self,
        guest: &ResourceProvider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Self::Done> {
        let read = guest.toolcell_tool_resources().call_read(store, &self.0).await?;
        Ok(read.map(|contents| CallResult {
            content: contents.into_iter().map(to_core).collect(),
            ..CallResult::default()
        }))
    }

    fn bytes_out(done: &Self::Done) -> u64 {
        result_len(done)
    }
}

/// Size of a result, as it counts for the limit of the output.
pub(crate) fn result_len(done: &Result<CallResult, GuestError>) -> u64 {
    match done {
        Ok(result) => {
            let structured = result
                .structured
                .as_ref()
                .map_or(0, |value| value.to_string().len());
            (result.byte_len() + structured) as u64
        }
        Err(error) => guest_text(error).len() as u64,
    }
}

/// Checks the list of a component.
pub(crate) fn check(
    listing: resources::Listing,
) -> Result<(Vec<ResourceSpec>, Vec<ResourceTemplate>), LoadError> {
    let rules = Rules("resources");
    rules.at_most("resources", listing.resources.len(), MAX_RESOURCES)?;
    rules.at_most("templates", listing.templates.len(), MAX_TEMPLATES)?;
    let mut seen = BTreeSet::new();
    let mut resources = Vec::new();
    for info in listing.resources {
        check_uri(&info.uri)
            .map_err(|error| rules.error(&format!("the URI `{}`", shown(&info.uri)), error))?;
        rules.texts(&info.name, &info.title, &info.description, &info.media_type)?;
        if !seen.insert(info.uri.clone()) {
            return Err(rules.error(&format!("the URI `{}`", shown(&info.uri)), "it is listed twice"));
        }
        resources.push(ResourceSpec {
            uri: info.uri,
            name: info.name,
            title: info.title,
            description: info.description,
            media_type: info.media_type,
            size: info.size,
        });
    }
    let mut templates = Vec::new();
    for info in listing.templates {
        let of = format!("the template `{}`", shown(&info.uri_template));
        let template = UriTemplate::parse(&info.uri_template).map_err(|error| rules.error(&of, error))?;
        rules.texts(&info.name, &info.title, &info.description, &info.media_type)?;
        if !seen.insert(info.uri_template.clone()) {
            return Err(rules.error(&of, "it is listed twice"));
        }
        let values = info.variables.iter().map(|variable| variable.values.len()).sum();
        rules.at_most("values of a template", values, MAX_VALUES)?;
        let mut variables = Vec::new();
        for variable in info.variables {
            if !template.variables().any(|name| name == variable.name) {
                return Err(rules.error(&of, format!("it has no variable `{}`", shown(&variable.name))));
            }
            for value in &variable.values {
                rules.short("value", value)?;
            }
            variables.push((variable.name, variable.values));
        }
        templates.push(ResourceTemplate {
            template,
            name: info.name,
            title: info.title,
            description: info.description,
            media_type: info.media_type,
            values: variables,
        });
    }
    Ok((resources, templates))
}

/// Checks of a list of this kind.
pub(crate) struct Rules(pub(crate) &'static str);

impl Rules {
    pub(crate) fn error(&self, of: &str, reason: impl std::fmt::Display) -> LoadError {
        LoadError::Listing {
            kind: self.0,
            reason: format!("{of}: {reason}"),
        }
    }

    pub(crate) fn at_most(&self, of: &str, count: usize, limit: usize) -> Result<(), LoadError> {
        match count > limit {
            true => Err(self.error(of, format!("{count} exceed the limit of {limit}"))),
            false => Ok(()),
        }
    }

    pub(crate) fn short(&self, field: &str, text: &str) -> Result<(), LoadError> {
        self.text(field, text, MAX_SHORT_TEXT)
    }

    fn text(&self, field: &str, text: &str, limit: usize) -> Result<(), LoadError> {
        match text.len() {
            size if size > limit => {
                let of = format!("the {field} `{}`", shown(text));
                Err(self.error(&of, format!("{size} bytes exceed the limit of {limit}")))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn texts(
        &self,
        name: &str,
        title: &Option<String>,
        description: &Option<String>,
        media_type: &Option<String>,
    ) -> Result<(), LoadError> {
        self.short("name", name)?;
        self.short("title", title.as_deref().unwrap_or_default())?;
        self.short("media type", media_type.as_deref().unwrap_or_default())?;
        self.text(
            "description",
            description.as_deref().unwrap_or_default(),
            MAX_DESCRIPTION,
        )
    }
}

/// Beginning of a text of a component, on one line.
pub(crate) fn shown(text: &str) -> String {
    cut(text.escape_debug().to_string(), 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use resources::{Listing, ResourceInfo, TemplateInfo, Variable};

    fn resource(uri: &str) -> ResourceInfo {
        ResourceInfo {
            uri: uri.into(),
            name: "n".into(),
            title: None,
            description: None,
            media_type: None,
            size: None,
            annotations: Vec::new(),
        }
    }

    fn template(text: &str) -> TemplateInfo {
        TemplateInfo {
            uri_template: text.into(),
            name: "n".into(),
            title: None,
            description: None,
            media_type: None,
            variables: Vec::new(),
            annotations: Vec::new(),
        }
    }

    fn listing(resources: Vec<ResourceInfo>, templates: Vec<TemplateInfo>) -> Listing {
        Listing { resources, templates }
    }

    fn refusal(listing: Listing) -> String {
        check(listing).unwrap_err().to_string()
    }

    #[test]
    fn numbers_of_resources_and_templates_are_limited() {
        let some = |n: usize| listing((0..n).map(|i| resource(&format!("a:{i}"))).collect(), Vec::new());
        assert!(check(some(MAX_RESOURCES)).is_ok());
        assert!(refusal(some(MAX_RESOURCES + 1)).contains("1025 exceed the limit of 1024"));
        let some = |n: usize| {
            listing(
                Vec::new(),
                (0..n).map(|i| template(&format!("a:{i}/{{x}}"))).collect(),
            )
        };
        assert!(check(some(MAX_TEMPLATES)).is_ok());
        assert!(refusal(some(MAX_TEMPLATES + 1)).contains("33 exceed the limit of 32"));
        let some = |n: usize| {
            let mut one = template("a:{x}");
            one.variables = vec![Variable {
                name: "x".into(),
                values: vec!["v".into(); n],
            }];
            listing(Vec::new(), vec![one])
        };
        assert!(check(some(MAX_VALUES)).is_ok());
        assert!(refusal(some(MAX_VALUES + 1)).contains("1025 exceed the limit of 1024"));
    }

    #[test]
    fn texts_of_resources_are_limited() {
        let with = |change: &dyn Fn(&mut ResourceInfo)| {
            let mut one = resource("a:1");
            change(&mut one);
            check(listing(vec![one], Vec::new())).is_ok()
        };
        let text = |bytes: usize| "x".repeat(bytes);
        for (bytes, is_good) in [(MAX_SHORT_TEXT, true), (MAX_SHORT_TEXT + 1, false)] {
            assert_eq!(with(&|of| of.name = text(bytes)), is_good);
            assert_eq!(with(&|of| of.title = Some(text(bytes))), is_good);
            assert_eq!(with(&|of| of.media_type = Some(text(bytes))), is_good);
        }
        for (bytes, is_good) in [(MAX_DESCRIPTION, true), (MAX_DESCRIPTION + 1, false)] {
            assert_eq!(with(&|of| of.description = Some(text(bytes))), is_good);
        }
    }

    #[test]
    fn invalid_list_is_refused_with_the_entry() {
        let mut unknown = template("a:{x}");
        unknown.variables = vec![Variable {
            name: "y".into(),
            values: Vec::new(),
        }];
        for (listing, reason) in [
            (
                listing(vec![resource("/a")], vec![]),
                "the URI `/a`: it does not begin with a scheme",
            ),
            (
                listing(vec![resource("a:1"), resource("a:1")], vec![]),
                "the URI `a:1`: it is listed twice",
            ),
            (
                listing(vec![], vec![template("a:{x"), template("b:1")]),
                "the template `a:{x`: a template has",
            ),
            (
                listing(vec![], vec![template("a:{x}"), template("a:{x}")]),
                "`a:{x}`: it is listed twice",
            ),
            (listing(vec![], vec![unknown]), "it has no variable `y`"),
        ] {
            let refused = refusal(listing);
            assert!(refused.starts_with("invalid list of resources: "), "{refused}");
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn size_of_a_list_counts_each_of_its_texts() {
        let text = |bytes: usize| "x".repeat(bytes);
        let pairs = vec![(text(0x10), text(0x20))];
        let one = ResourceInfo {
            uri: text(1),
            name: text(2),
            title: Some(text(4)),
            description: Some(text(8)),
            media_type: Some(text(0x40)),
            size: None,
            annotations: pairs.clone(),
        };
        let family = TemplateInfo {
            uri_template: text(0x100),
            name: text(0x200),
            title: Some(text(0x400)),
            description: Some(text(0x800)),
            media_type: Some(text(0x1000)),
            variables: vec![Variable {
                name: text(0x2000),
                values: vec![text(0x4000)],
            }],
            annotations: Vec::new(),
        };
        assert_eq!(Ask::bytes_out(&listing(vec![one], vec![family])), 0x7f7f);
    }
}

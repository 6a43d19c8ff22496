//! Catalog of what the server offers, ordered by name.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolcell_core::{Prompts, Resources, Tool, ToolName, ToolSpec};

use crate::message::{RpcError, excerpt};
use crate::server::context::{ContextCall, ContextCatalog, Form};
use crate::server::listeners::List;
use crate::version::Version;

/// Maximum number of tools on a page of `tools/list`. A definition can have over 128 KiB of schemas.
pub const PAGE_TOOLS: usize = 100;

/// Time for which a client may cache a list, in milliseconds. One that listens is told when it changes.
const TTL_MS: u64 = 60_000;

/// Two of what is offered have the same name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Duplicate {
    /// Two tools.
    #[error("two tools have the name `{0}`")]
    Tool(ToolName),
    /// Two resources, templates or prompts.
    #[error("`{}` and `{}` both offer `{name}`", .sources[0], .sources[1])]
    Context {
        /// Names of the sources.
        sources: [String; 2],
        /// URI, template or name.
        name: String,
    },
}

/// Everything that a server offers. Resources and prompts have the names of their sources.
#[derive(Clone, Default)]
pub struct Offered {
    /// Tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Resources.
    pub resources: Vec<(String, Resources)>,
    /// Prompts.
    pub prompts: Vec<(String, Prompts)>,
    /// True if [`Server::updated`](super::Server::updated) is called when resources change, so that clients can follow them.
    pub tells_updates: bool,
}

impl<T: IntoIterator<Item = Arc<dyn Tool>>> From<T> for Offered {
    fn from(tools: T) -> Self {
        Self {
            tools: tools.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// Tools in the order of their names, and resources and prompts.
pub(crate) struct Catalog {
    tools: BTreeMap<ToolName, Arc<dyn Tool>>,
    pub(crate) context: ContextCatalog,
    /// Number of catalogs that a server offered before this one.
    pub(crate) generation: u64,
}

impl Catalog {
    pub(crate) fn new(offered: Offered) -> Result<Self, Duplicate> {
        let mut catalog = BTreeMap::new();
        for tool in offered.tools {
            let name = tool.spec().name.clone();
            if catalog.insert(name.clone(), tool).is_some() {
                return Err(Duplicate::Tool(name));
            }
        }
        let mut context = ContextCatalog::new(offered.tells_updates);
        for (source, resources) in offered.resources {
            context.add_resources(&source, resources)?;
        }
        for (source, prompts) in offered.prompts {
            context.add_prompts(&source, prompts)?;
        }
        Ok(Self {
            tools: catalog,
            context,
            generation: 0,
        })
    }

    /// Capabilities: only what there is.
    pub(crate) fn capabilities(&self) -> Value {
        let mut capabilities = json!({ "tools": { "listChanged": true }, "logging": {} });
        let (resources, prompts) = (self.context.has_resources(), self.context.has_prompts());
        for (name, is_offered) in [("resources", resources), ("prompts", prompts)] {
            if is_offered {
                capabilities[name] = json!({ "listChanged": true });
                capabilities["completions"] = json!({});
            }
        }
        if self.context.tells_updates() {
            capabilities["resources"]["subscribe"] = true.into();
        }
        capabilities
    }

    /// Returns the lists in which both differ, as a client of the newest version sees them.
    pub(crate) fn changes_to(&self, other: &Self) -> Vec<List> {
        let listed = |(_, tool): (&ToolName, &Arc<dyn Tool>)| definition(tool.spec(), Version::V2026_07_28);
        let same = [
            (
                List::Tools,
                self.tools.iter().map(listed).eq(other.tools.iter().map(listed)),
            ),
            (List::Resources, self.context.has_resources_of(&other.context)),
            (List::Prompts, self.context.has_prompts_of(&other.context)),
        ];
        same.into_iter()
            .filter(|(_, is_same)| !is_same)
            .map(|(list, _)| list)
            .collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// Checks the parameters of `tools/call`.
    ///
    /// # Errors
    /// Fails if there is no such tool.
    pub(crate) fn call(&self, mut params: Map<String, Value>) -> Result<ContextCall, RpcError> {
        let Some(Value::String(name)) = params.get("name") else {
            return Err(RpcError::invalid_params("`name` is not a string"));
        };
        let Some(tool) = self.get(name).cloned() else {
            return Err(RpcError::invalid_params(format!(
                "unknown tool: `{}`",
                excerpt(name)
            )));
        };
        let arguments = match params.remove("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(RpcError::invalid_params("`arguments` is not an object")),
        };
        Ok(ContextCall {
            tool,
            arguments,
            form: Form::Tool,
        })
    }

    /// Returns the schema of the arguments of a tool.
    pub(crate) fn schema_of(&self, name: &str) -> Option<&Value> {
        self.get(name).map(|tool| tool.spec().input.as_value())
    }

    /// Returns one page. The cursor is the name of the last tool on the previous page.
    ///
    /// # Errors
    /// Fails if no tool has that name.
    pub(crate) fn page(
        &self,
        cursor: Option<&Value>,
        version: Version,
    ) -> Result<Map<String, Value>, RpcError> {
        page_of(&self.tools, "tools", (cursor, PAGE_TOOLS), version, |tool| {
            definition(tool.spec(), version)
        })
    }
}

/// Returns one page of a list in the order of its names. The cursor is the name of the last item on the previous page.
///
/// # Errors
/// Fails if no item has that name.
pub(crate) fn page_of<N: Ord + Borrow<str>, T>(
    items: &BTreeMap<N, T>,
    member: &str,
    (cursor, most): (Option<&Value>, usize),
    version: Version,
    describe: impl Fn(&T) -> Value,
) -> Result<Map<String, Value>, RpcError> {
    let after = match cursor {
        None | Some(Value::Null) => Bound::Unbounded,
        Some(Value::String(name)) if items.contains_key(name.as_str()) => Bound::Excluded(name.as_str()),
        Some(other) => {
            let shown = other.as_str().map_or("not a string", excerpt);
            return Err(RpcError::invalid_params(format!("invalid cursor: {shown}")));
        }
    };
    let mut rest = items.range::<str, _>((after, Bound::Unbounded));
    let page: Vec<(&N, &T)> = rest.by_ref().take(most).collect();
    let last = page.last().map(|(name, _)| (*name).borrow().to_owned());
    let mut result = Map::new();
    let described = page.into_iter().map(|(_, item)| describe(item)).collect();
    result.insert(member.into(), Value::Array(described));
    if rest.next().is_some() {
        result.insert("nextCursor".into(), last.into());
    }
    if version.is_stateless() {
        cacheable(&mut result);
    }
    Ok(result)
}

/// Adds the cache lifetime of a result. Grants and configuration are those of one user.
pub(crate) fn cacheable(result: &mut Map<String, Value>) {
    result.insert("ttlMs".into(), TTL_MS.into());
    result.insert("cacheScope".into(), "private".into());
}

/// Describes a tool.
fn definition(spec: &ToolSpec, version: Version) -> Value {
    let mut tool = json!({
        "name": spec.name,
        "description": spec.description,
        "inputSchema": spec.input.as_value(),
    });
    if let Some(title) = spec.title.as_ref().filter(|_| version >= Version::V2025_06_18) {
        tool["title"] = title.as_str().into();
    }
    if version >= Version::V2025_03_26 {
        let mut annotations = json!({
            "readOnlyHint": spec.hints.read_only,
            "destructiveHint": spec.hints.destructive,
            "idempotentHint": spec.hints.idempotent,
            "openWorldHint": spec.hints.open_world,
        });
        if let Some(title) = &spec.title {
            annotations["title"] = title.as_str().into();
        }
        tool["annotations"] = annotations;
    }
    if let Some(output) = &spec.output
        && is_structured(output.as_value(), version)
    {
        tool["outputSchema"] = output.as_value().clone();
    }
    tool
}

/// True if a version supports structured results of this schema: up to 2025-11-25 they are objects.
fn is_structured(schema: &Value, version: Version) -> bool {
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    version.is_stateless() || (version >= Version::V2025_06_18 && is_object)
}

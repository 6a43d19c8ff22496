//! Catalog of the server's tools, ordered by name.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolcell_core::{Tool, ToolName, ToolSpec};

use crate::message::{RpcError, excerpt};
use crate::version::Version;

/// Maximum number of tools on a page of `tools/list`. A definition can have over 128 KiB of schemas.
pub const PAGE_TOOLS: usize = 100;

/// Time for which a client may cache a list, in milliseconds. One that listens is told when it changes.
const TTL_MS: u64 = 60_000;

/// Two tools have the same name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two tools have the name `{0}`")]
pub struct DuplicateTool(pub ToolName);

/// Tools in the order of their names.
pub(crate) struct Catalog {
    tools: BTreeMap<ToolName, Arc<dyn Tool>>,
    /// Number of catalogs that a server offered before this one.
    pub(crate) generation: u64,
}

impl Catalog {
    pub(crate) fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self, DuplicateTool> {
        let mut catalog = BTreeMap::new();
        for tool in tools {
            let name = tool.spec().name.clone();
            if catalog.insert(name.clone(), tool).is_some() {
                return Err(DuplicateTool(name));
            }
        }
        Ok(Self {
            tools: catalog,
            generation: 0,
        })
    }

    /// True if both have the same list, as a client of the newest version sees it.
    pub(crate) fn is_listed_as(&self, other: &Self) -> bool {
        let listed = |(_, tool): (&ToolName, &Arc<dyn Tool>)| definition(tool.spec(), Version::V2026_07_28);
        self.tools.iter().map(listed).eq(other.tools.iter().map(listed))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
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
        let after = match cursor {
            None | Some(Value::Null) => Bound::Unbounded,
            Some(Value::String(name)) if self.tools.contains_key(name.as_str()) => {
                Bound::Excluded(name.as_str())
            }
            Some(other) => {
                let shown = other.as_str().map_or("not a string", excerpt);
                return Err(RpcError::invalid_params(format!("invalid cursor: {shown}")));
            }
        };
        let mut rest = self.tools.range::<str, _>((after, Bound::Unbounded));
        let page: Vec<&ToolSpec> = rest
            .by_ref()
            .take(PAGE_TOOLS)
            .map(|(_, tool)| tool.spec())
            .collect();
        let last = page.last().map(|spec| spec.name.to_string());
        let mut result = Map::new();
        let tools = page.into_iter().map(|spec| definition(spec, version)).collect();
        result.insert("tools".into(), Value::Array(tools));
        if rest.next().is_some() {
            result.insert("nextCursor".into(), last.into());
        }
        if version.is_stateless() {
            cacheable(&mut result);
        }
        Ok(result)
    }
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

//! Tools offered to the model, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcell_core::suggest::nearest;
use toolcell_core::{Tool, ToolError, ToolName, ToolSpec};

use crate::error::BuildError;

/// Tools by name. They are offered in the order of their names, independent of the order in which they were added, so
/// that the same tools always make the same request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry {
    tools: BTreeMap<ToolName, Arc<dyn Tool>>,
}

impl Registry {
    /// Builds a registry.
    ///
    /// # Errors
    /// Fails if two tools have the same name.
    pub(crate) fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self, BuildError> {
        let mut registry = Self::default();
        for tool in tools {
            let name = tool.spec().name.clone();
            if registry.tools.insert(name.clone(), tool).is_some() {
                return Err(BuildError::DuplicateTool { name });
            }
        }
        Ok(registry)
    }

    /// Specifications for the request, sorted by name.
    pub(crate) fn specs(&self) -> Arc<[ToolSpec]> {
        self.tools.values().map(|tool| tool.spec().clone()).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.values()
    }

    /// Returns the tool with this name.
    ///
    /// # Errors
    /// [`ToolError::UnknownTool`] with similar names.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<dyn Tool>, ToolError> {
        self.tools
            .get(name)
            .cloned()
            .ok_or_else(|| ToolError::UnknownTool {
                name: name.to_owned(),
                near: self.near(name),
            })
    }

    fn near(&self, name: &str) -> Vec<String> {
        let known: Vec<&str> = self.tools.keys().map(ToolName::as_str).collect();
        nearest(name, &known).into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tool;

    fn of(names: &[&str]) -> Registry {
        Registry::new(names.iter().map(|name| tool(name, |_| Ok("".into())))).unwrap()
    }

    #[test]
    fn tools_are_offered_in_name_order() {
        let names = |registry: Registry| -> Vec<String> {
            registry.specs().iter().map(|s| s.name.to_string()).collect()
        };
        assert_eq!(names(of(&["b", "a", "c"])), ["a", "b", "c"]);
        assert_eq!(names(of(&["c", "b", "a"])), ["a", "b", "c"]);
    }

    #[test]
    fn duplicate_tool_names_are_refused() {
        let twice = ["a", "b", "a"].map(|name| tool(name, |_| Ok("".into())));
        let error = Registry::new(twice).unwrap_err();
        assert_eq!(error.to_string(), "two tools have the name `a`");
    }

    #[test]
    fn unknown_name_gets_three_suggestions() {
        let registry = of(&["files_list", "files_read", "files_write", "fetch", "files_search"]);
        let near = |name: &str| match registry.get(name).unwrap_err() {
            ToolError::UnknownTool { near, .. } => near,
            other => panic!("{other}"),
        };
        assert_eq!(near("file_read")[0], "files_read");
        assert_eq!(near("Files_Read").first().map(String::as_str), Some("files_read"));
        assert_eq!(near("files_").len(), 3);
        assert_eq!(near("qqqq"), Vec::<String>::new());
        assert_eq!(near(&"q".repeat(1 << 20)), Vec::<String>::new());
    }
}

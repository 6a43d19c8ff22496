//! Components that are loaded to be shown.

use toolcell_sandbox::{Component, HookComponent, Identity, LoadError};

use super::{ComponentLoader, cannot_load};
use crate::config::ToolSettings;
use crate::error::Failure;
use crate::packages::wants::PackageManifest;

/// Component loaded for inspection: tools, a hook, or both.
pub(crate) struct Inspected {
    /// Its tools, if any.
    pub(crate) tools: Option<Component>,
    /// Its hook, if any.
    pub(crate) hook: Option<HookComponent>,
    /// What its author calls it and asks for, if anything.
    pub(crate) manifest: anyhow::Result<Option<PackageManifest>>,
}

impl Inspected {
    /// Returns the identity of the component.
    pub(crate) fn identity(&self) -> &Identity {
        match (&self.tools, &self.hook) {
            (Some(tools), _) => tools.identity(),
            (None, Some(hook)) => hook.identity(),
            (None, None) => unreachable!("a component without either is not loaded"),
        }
    }
}

impl ComponentLoader<'_> {
    /// Loads a component for inspection, also an untrusted one of a project: inspection comes before trust, and runs
    /// only the definitions of the component, in a cell without grants.
    ///
    /// # Errors
    /// Returns an error if it cannot be loaded.
    pub(crate) async fn inspect(&self, settings: &ToolSettings) -> Result<Inspected, Failure> {
        let (label, bytes) = self.bytes(settings)?;
        let tools = match self.load_tools(settings, &label, &bytes).await {
            Ok(tools) => Some(tools),
            Err(LoadError::NotATool { is_hook: true, .. }) => None,
            Err(error) => return Err(cannot_load(&label, error)),
        };
        let hook = if tools.as_ref().is_none_or(|tools| tools.identity().has_hook()) {
            let hook = self.sandbox.load_hook(&label, &bytes.read()).await;
            Some(hook.map_err(|error| cannot_load(&label, error))?)
        } else {
            None
        };
        let manifest = PackageManifest::read(&bytes.read());
        Ok(Inspected {
            tools,
            hook,
            manifest,
        })
    }
}

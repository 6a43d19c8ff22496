//! Loading of hooks.

use std::sync::Arc;

use toolcell_core::Hook;
use toolcell_core::hook::HookOrder;
use toolcell_sandbox::HookComponent;

use super::{ComponentLoader, cannot_load, unusable_secrets};
use crate::config::{ComponentSource, HookSettings, Sourced, ToolSettings};
use crate::error::Failure;

/// Loaded hook with its policy.
pub(crate) struct LoadedHook {
    /// Settings of the hook.
    pub(crate) settings: HookSettings,
    /// Its component.
    pub(crate) component: HookComponent,
    /// The hook under this policy, with the name, guard flag and order of its settings.
    pub(crate) hook: Arc<dyn Hook>,
}

impl ComponentLoader<'_> {
    /// Loads every enabled hook.
    ///
    /// # Errors
    /// Returns an error if a hook cannot be loaded or a grant is invalid. A missing hook would let everything pass.
    pub(crate) async fn hooks(&self) -> Result<Vec<LoadedHook>, Failure> {
        let mut loaded = Vec::new();
        let hooks = self.settings.hooks.values();
        for settings in hooks.filter(|hook| hook.component.enabled.value) {
            loaded.push(self.hook(settings).await?);
        }
        Ok(loaded)
    }

    /// Loads a hook and applies its policy.
    ///
    /// # Errors
    /// Same as [`ComponentLoader::hooks`].
    pub(crate) async fn hook(&self, settings: &HookSettings) -> Result<LoadedHook, Failure> {
        let mut settings = settings.clone();
        settings.component = settings.component.denying(&self.settings.deny);
        let of = &settings.component;
        let policy = self.policy(of)?;
        let component = self.hook_component(of).await?;
        let hook = component
            .hook(policy, &self.secrets_of(of)?)
            .map_err(|e| unusable_secrets(&of.name, e))?;
        let claimed = component.spec();
        let names = |setting: &Option<Sourced<Vec<String>>>, claimed: &Vec<String>| {
            setting.as_ref().map_or(claimed, |names| &names.value).clone()
        };
        let order = HookOrder {
            priority: (settings.priority.as_ref()).map_or(claimed.order.priority, |p| p.value),
            before: names(&settings.before, &claimed.order.before),
            after: names(&settings.after, &claimed.order.after),
        };
        let guard = settings.guard.as_ref().map_or(claimed.guard, |guard| guard.value);
        let hook = hook
            .with_name(of.name.as_str())
            .with_guard(guard)
            .with_order(order);
        Ok(LoadedHook {
            settings,
            component,
            hook: Arc::new(hook),
        })
    }

    /// Loads the component of a hook.
    async fn hook_component(&self, settings: &ToolSettings) -> Result<HookComponent, Failure> {
        let (label, bytes) = self.bytes(settings)?;
        let loaded = self.sandbox.load_hook(&label, &bytes.read()).await;
        loaded.map_err(|error| {
            let failure = cannot_load(&label, error);
            match &settings.component {
                ComponentSource::File(path) => failure.why(path.origin.point_at()),
                ComponentSource::Shipped(_) => failure,
            }
        })
    }
}

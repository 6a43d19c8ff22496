//! A component that is a hook, linked for calls: its interfaces are looked up one by one, because not every hook exports
//! that of summaries.

use wasmtime::component::InstancePre;
use wasmtime::{Engine, Store};

use crate::bindings::{Role, hooks, summary_hooks};
use crate::cell::LinkedWorld;
use crate::cell::state::CellState;

/// A linked hook.
pub(crate) struct LinkedHook {
    instance: InstancePre<CellState>,
    hooks: hooks::GuestIndices,
    summaries: Option<summary_hooks::GuestIndices>,
}

/// Functions of an instance of a hook.
pub(crate) struct HookGuest {
    pub(super) hooks: hooks::Guest,
    /// `None` if the hook does not export them.
    pub(super) summaries: Option<summary_hooks::Guest>,
}

impl LinkedHook {
    /// Finds the functions of a component with these exports.
    ///
    /// # Errors
    /// If an exported interface does not have the functions of the contract.
    pub(crate) fn new(instance: InstancePre<CellState>, exports: &[String]) -> wasmtime::Result<Self> {
        let summaries = Role::SummaryHook
            .is_among(exports)
            .then(|| summary_hooks::GuestIndices::new(&instance));
        Ok(Self {
            hooks: hooks::GuestIndices::new(&instance)?,
            summaries: summaries.transpose()?,
            instance,
        })
    }
}

impl LinkedWorld for LinkedHook {
    type Guest = HookGuest;

    fn engine(&self) -> &Engine {
        self.instance.component().engine()
    }

    async fn instantiate(&self, store: &mut Store<CellState>) -> wasmtime::Result<HookGuest> {
        let instance = self.instance.instantiate_async(&mut *store).await?;
        let summaries = self.summaries.as_ref();
        Ok(HookGuest {
            hooks: self.hooks.load(&mut *store, &instance)?,
            summaries: summaries
                .map(|indices| indices.load(&mut *store, &instance))
                .transpose()?,
        })
    }
}

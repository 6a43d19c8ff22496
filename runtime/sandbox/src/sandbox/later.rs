//! Components that are part of the program, whose code is read for their first call: a process that calls few of them starts
//! without the others.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::{Sandbox, TrustedComponent, trusted};
use crate::component::Component;
use crate::error::LoadError;

/// Code that is read when it is needed.
pub(crate) struct LaterCode {
    pub(super) sandbox: Sandbox,
    pub(super) label: String,
    pub(super) component: &'static dyn TrustedComponent,
    pub(super) loaded: OnceCell<Component>,
}

impl LaterCode {
    /// Returns the component with its code. It is read in a task of its own: a call that is cancelled meanwhile leaves what was
    /// read to the next one.
    ///
    /// # Errors
    /// As [`Sandbox::load`].
    pub(crate) async fn loaded(self: &Arc<Self>) -> Result<Component, LoadError> {
        if let Some(component) = self.loaded.get() {
            return Ok(component.clone());
        }
        let this = self.clone();
        let loading = tokio::spawn(async move {
            let load = || (this.sandbox).load_tools(trusted(&this.label, this.component));
            this.loaded.get_or_try_init(load).await.cloned()
        });
        loading.await.unwrap_or_else(|error| {
            Err(LoadError::Compile {
                reason: error.to_string(),
            })
        })
    }
}

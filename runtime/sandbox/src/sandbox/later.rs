//! Components that are part of the program, whose code is read for their first call: a process that calls few of them starts
//! without the others.

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
    /// Returns the component with its code.
    ///
    /// # Errors
    /// As [`Sandbox::load`].
    pub(crate) async fn loaded(&self) -> Result<&Component, LoadError> {
        let load = || (self.sandbox).load_tools(trusted(&self.label, self.component));
        self.loaded.get_or_try_init(load).await
    }
}

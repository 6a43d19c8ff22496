//! Components that are part of the program, whose code is read for their first call: a process that calls few of them starts
//! without the others.

use std::sync::Arc;

use tokio::sync::OnceCell;
use toolcell_core::ToolSpec;

use super::loading::Examined;
use super::{Sandbox, TrustedComponent, trusted};
use crate::bindings::Role;
use crate::component::{Code, Component, Description, Loaded};
use crate::context::ContextExports;
use crate::error::LoadError;

/// Code that is read when it is needed.
pub(crate) struct LaterCode {
    sandbox: Sandbox,
    label: String,
    component: &'static dyn TrustedComponent,
    examined: Examined,
    specs: Vec<Arc<ToolSpec>>,
    loaded: OnceCell<Component>,
}

impl Sandbox {
    /// Loads a component that is part of the program itself: as [`Sandbox::load`], but compiled in this process. If its code and
    /// its definitions are in the cache, the code is read for the first call.
    ///
    /// # Errors
    /// As [`Sandbox::load`].
    pub async fn load_trusted(
        &self,
        label: &str,
        component: &'static dyn TrustedComponent,
    ) -> Result<Component, LoadError> {
        let shared = &self.0;
        let examined = shared.examine(&trusted(label, component), Role::Tools).await?;
        let has_code =
            (shared.cache.as_ref()).is_some_and(|cache| cache.has_code(&shared.entry_of(&examined)));
        let known = match has_code && Role::Tools.is_among(&examined.identity.exports) {
            true => self.known(&examined)?,
            false => None,
        };
        let Some(Description { specs, .. }) = known else {
            return self.load_tools(trusted(label, component)).await;
        };
        let base = shared.base_without_code(&examined);
        let later = LaterCode {
            sandbox: self.clone(),
            label: label.to_owned(),
            component,
            examined,
            specs: specs.clone(),
            loaded: OnceCell::new(),
        };
        Ok(Component(Arc::new(Loaded {
            base,
            code: Code::Later(Arc::new(later)),
            specs,
            exports: ContextExports::default(),
        })))
    }
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
            let load = || {
                let source = trusted(&this.label, this.component);
                (this.sandbox).load_examined(source, this.examined.clone(), Some(this.specs.clone()))
            };
            this.loaded.get_or_try_init(load).await.cloned()
        });
        loading.await.unwrap_or_else(|error| {
            Err(LoadError::Compile {
                reason: error.to_string(),
            })
        })
    }
}

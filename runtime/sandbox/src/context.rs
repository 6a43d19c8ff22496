//! Resources and prompts that a component exports in addition to its tools. Their lists are read when they are offered, not when the
//! component is loaded.

use std::sync::Arc;

use toolcell_core::{Policy, Prompts, Resources, Secrets, ToolName};
use wasmtime::component::InstancePre;

use crate::bindings::{PromptProviderPre, ResourceProviderPre, Role};
use crate::cell::state::CellState;
use crate::component::{Code, Component};
use crate::egress::{BoundSecrets, InvalidBinding};
use crate::error::LoadError;
use crate::tool::Operation;
use crate::{prompts, resources};

/// Exports of a component with tools, linked for calls.
#[derive(Clone, Default)]
pub(crate) struct ContextExports {
    resources: Option<ResourceProviderPre<CellState>>,
    prompts: Option<PromptProviderPre<CellState>>,
}

impl ContextExports {
    /// Finds the exports of a component. One without tools has none.
    pub(crate) fn of(exports: &[String], linked: &InstancePre<CellState>) -> wasmtime::Result<Self> {
        let has = |role: Role| Role::Tools.is_among(exports) && role.is_among(exports);
        let resources = has(Role::Resources).then(|| ResourceProviderPre::new(linked.clone()));
        let prompts = has(Role::Prompts).then(|| PromptProviderPre::new(linked.clone()));
        Ok(Self {
            resources: resources.transpose()?,
            prompts: prompts.transpose()?,
        })
    }
}

/// Resources and prompts of a component under a policy.
#[derive(Debug, Clone, Default)]
pub struct ComponentContext {
    /// Its resources, if it exports some.
    pub resources: Option<Resources>,
    /// Its prompts, if it exports some.
    pub prompts: Option<Prompts>,
}

/// Error of the resources and prompts of a component.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// A list cannot be read, or is invalid.
    #[error(transparent)]
    List(#[from] LoadError),
    /// A binding of the policy is invalid, or its secret has no value.
    #[error(transparent)]
    Secrets(#[from] InvalidBinding),
}

impl Component {
    /// Returns its resources and prompts. They are read under `policy`, by tools with these names, with the secrets as in
    /// [`Component::tools_with_secrets`]; the lists are read with nothing granted, as the definitions of tools.
    ///
    /// # Errors
    /// If a list cannot be read or is invalid, or the secrets cannot be used.
    pub async fn context(
        &self,
        reader: ToolName,
        getter: ToolName,
        policy: &Arc<Policy>,
        secrets: &Secrets,
    ) -> Result<ComponentContext, ContextError> {
        let listed = [Role::Resources, Role::Prompts];
        let component = match &self.0.code {
            Code::Later(code) if listed.iter().any(|role| role.is_among(&self.identity().exports)) => {
                code.loaded().await?
            }
            _ => self.clone(),
        };
        let (base, exports) = (&component.0.base, &component.0.exports);
        let mut context = ComponentContext::default();
        if exports.resources.is_none() && exports.prompts.is_none() {
            return Ok(context);
        }
        let egress = base.egress(policy, BoundSecrets::new(&policy.grants.secrets, secrets)?);
        if let Some(pre) = &exports.resources {
            let (resources, templates) = resources::check(base.ask(pre, resources::Ask).await?)?;
            let spec = Arc::new(resources::reader_spec(reader));
            context.resources = Some(Resources {
                resources,
                templates,
                reader: component.operation(Operation::ReadResource(pre.clone()), spec, policy, &egress),
            });
        }
        if let Some(pre) = &exports.prompts {
            let prompts = prompts::check(base.ask(pre, prompts::Ask).await?)?;
            let spec = Arc::new(prompts::getter_spec(getter));
            context.prompts = Some(Prompts {
                prompts,
                getter: component.operation(Operation::GetPrompt(pre.clone()), spec, policy, &egress),
            });
        }
        Ok(context)
    }
}

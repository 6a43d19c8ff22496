//! Definition of an agent, shared by its sessions and their drivers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use toolcell_core::{Provider, SessionStore, ToolSpec};

use crate::approval::Approver;
use crate::hook::HookRunner;
use crate::machine::Machine;
use crate::policy::ModelSettings;
use crate::tools::registry::Registry;

/// Built and validated agent.
pub(crate) struct AgentDefinition {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) registry: Registry,
    pub(crate) specs: Arc<[ToolSpec]>,
    pub(crate) instructions: Arc<str>,
    pub(crate) machine: Machine,
    pub(crate) model: ModelSettings,
    pub(crate) hooks: HookRunner,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) store: Option<Arc<dyn SessionStore>>,
    pub(crate) values: BTreeMap<String, Value>,
}

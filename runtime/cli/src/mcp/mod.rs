//! MCP servers of the configuration: started together, their tools offered beside those of components.

pub(crate) mod lock;
pub(crate) mod servers;

//! MCP: the servers of the configuration, started together, whose tools are offered beside those of components; and the
//! files of clients that start `toolcell mcp serve`.

pub(crate) mod cell;
pub(crate) mod clients;
pub(crate) mod elicitor;
pub(crate) mod lock;
pub(crate) mod oauth;
pub(crate) mod servers;
pub(crate) mod start;

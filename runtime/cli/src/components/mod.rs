//! Components: resolving names and loading tools and hooks with their grants, secrets, buckets and lock.

pub(crate) mod buckets;
pub(crate) mod builtin;
pub(crate) mod call;
pub(crate) mod data_flow;
pub(crate) mod directory;
pub(crate) mod keyring;
pub(crate) mod loader;
pub(crate) mod lock;
pub(crate) mod lookup;
pub(crate) mod sandbox;
pub(crate) mod secrets;
pub(crate) mod selection;
pub(crate) mod stamp;
pub(crate) mod tool_lint;
pub(crate) mod trust;

//! Tools of the loop: registry, dispatch, native tools, and processing of results.

pub(crate) mod control;
pub(crate) mod dispatch;
pub(crate) mod fingerprint;
pub(crate) mod guarded;
pub(crate) mod native;
pub(crate) mod registry;
pub(crate) mod results;
pub(crate) mod subagent;
pub(crate) mod truncate;

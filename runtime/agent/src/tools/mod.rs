//! Tools as the loop sees them: registry, dispatch, native tools, and what becomes of results.

pub(crate) mod control;
pub(crate) mod dispatch;
pub(crate) mod fingerprint;
pub(crate) mod native;
pub(crate) mod registry;
pub(crate) mod results;
pub(crate) mod subagent;
pub(crate) mod truncate;

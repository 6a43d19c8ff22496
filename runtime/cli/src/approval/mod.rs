//! Approvals: questions at the terminal, and the answers that were saved.

pub(crate) mod project_rules;
pub(crate) mod saved_approvals;
pub(crate) mod terminal;

//! Approvals: questions at the terminal, and saved answers.

mod facts;
pub(crate) mod project_rules;
pub(crate) mod question;
pub(crate) mod saved_approvals;
pub(crate) mod terminal;

//! Rendering for the user.
//!
//! | concept | module |
//! |---|---|
//! | output streams and the progress line | [`console`] |
//! | output held during a question | [`held`] |
//! | events of a turn, as text | [`turn`] |
//! | events of a turn, as JSON | [`lines`] |
//! | calls of a turn, by name, and their logs | [`calls`] |
//! | failures of turns | [`failure`] |
//! | results of tools, and arguments on one line | [`content`] |
//! | receipts on one line, and hints for denials | [`receipt`] |
//! | tokens and cost | [`usage`] |
//! | numbered lists of saved decisions | [`numbered`] |

pub(crate) mod calls;
pub(crate) mod console;
pub(crate) mod content;
pub(crate) mod failure;
pub(crate) mod held;
pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod numbered;
pub(crate) mod output;
pub(crate) mod receipt;
pub(crate) mod turn;
pub(crate) mod usage;

pub(crate) use console::{Activity, Console};
pub(crate) use failure::provider_failure;

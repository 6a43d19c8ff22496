//! What a person sees while something runs.
//!
//! | concept | module |
//! |---|---|
//! | both streams of the terminal, and what is going on at the moment | [`console`] |
//! | what is written during a question waits | [`held`] |
//! | events of a turn, for people | [`turn`] |
//! | events of a turn, for programs | [`lines`] |
//! | how a turn ended, when it did not end with an answer | [`failure`] |
//! | the answer of a tool; arguments on one line | [`content`] |
//! | a receipt on one line, and what would allow what was denied | [`receipt`] |

pub(crate) mod console;
pub(crate) mod content;
pub(crate) mod failure;
pub(crate) mod held;
pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod receipt;
pub(crate) mod turn;

pub(crate) use console::{Activity, Console};
pub(crate) use failure::provider_failure;

//! Hooks of an agent: the seam is [`toolcell_core::hook`]; this module orders the hooks and runs them.
//!
//! Hooks run one after the other. Each has its time limit and its reservation in the budget; a panic is a failure of the
//! hook. A failure is reported as a notice, and refuses what the hook checks if the hook is a guard.

mod call;
mod client;
mod order;
mod prompt;
mod runner;
mod turn;

pub use toolcell_core::hook::{
    CallAnswer, CallReport, Effects, Example, FailurePhase, FailureReport, Hook, HookContext, HookError,
    HookFuture, HookOrder, HookPoint, HookSpec, HookVerdict, Notice, PendingCall, Prompt, PromptAnswer,
    Summary, SummaryAnswer, TurnEnd,
};

pub use client::ClientHooks;

pub(crate) use call::{Aborted, PreparedCall};
pub(crate) use client::HooksOfClient;
pub(crate) use prompt::PromptDraft;
pub(crate) use runner::{HookRunner, Ruling};
pub(crate) use turn::HookTurn;

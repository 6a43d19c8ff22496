//! The agent loop of Toolcell.
//!
//! A loop is a serialisable state machine ([`machine`]): a state and a transition for each input. A driver executes the
//! actions that the machine requests, on a tokio runtime with its timer enabled. Loop styles are values of one
//! [`LoopPolicy`].
//!
//! | concept | module |
//! |---|---|
//! | an agent and its sessions, for programs that embed them | [`Agent`], [`Session`], [`TurnReport`] |
//! | settings that distinguish one loop from another | [`policy`], [`preset`], [`budget`] |
//! | the loop itself, pure | [`machine`] |
//! | approval of calls | [`approval`] |
//! | code that observes, changes and refuses | [`hook`] |

mod agent;
pub mod approval;
pub mod budget;
mod contained;
mod context;
mod definition;
mod driver;
pub mod error;
pub mod hook;
#[cfg(test)]
mod loops_md;
pub mod machine;
pub mod policy;
pub mod preset;
mod report;
mod session;
mod sink;
#[cfg(test)]
#[path = "../tests/support/testing.rs"]
mod testing;
mod tools;

pub use agent::{Agent, AgentBuilder};
pub use approval::{
    ApprovalCause, ApprovalRequest, ApprovalRule, Approvals, Approver, Decision, FLOW_REASON, FlowGuard,
    InvalidRule, MAX_PATTERN, UnusedRule, Verdict, is_within,
};
pub use driver::running::RunningCalls;
pub use error::{AgentError, BuildError, FnToolError};
pub use hook::{ClientHooks, Hook};
pub use machine::{LoopState, Machine};
pub use policy::{Control, LoopPolicy, ModelSettings};
pub use report::{CallRecord, TurnReport};
pub use session::{Session, TurnHandle, TurnStart};
pub use sink::NullSink;
pub use tools::guarded::{ApprovalHint, BudgetHint, ClientGuard, ClientRules};
pub use tools::native::{FnTool, IntoCallResult};

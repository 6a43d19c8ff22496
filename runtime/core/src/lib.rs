//! Vocabulary and seams of Toolcell.
//!
//! Every other crate of the runtime depends on this one and on none of its siblings. It holds plain data and
//! six traits ([`Tool`], [`Hook`], [`Provider`], [`EventSink`], [`SessionStore`], [`KeyValueStore`]); it does no input or output, starts no task, reads no clock and no
//! environment.
//!
//! | concept | module |
//! |---|---|
//! | a tool, its description, one call and its answer | [`tool`], [`content`] |
//! | code that looks on, changes and refuses | [`hook`] |
//! | why a call has no answer | [`error`] |
//! | what a call may do, how people write it, and what it did | [`policy`], [`grant`], [`receipt`] |
//! | what no grant gives, and files that no tool changes | [`denial`], [`protected`] |
//! | grants that deserve a second look | [`danger`] |
//! | where the arguments of a call lead | [`place`] |
//! | questions to a person | [`approval`] |
//! | secrets: where they go, and how they are kept out of everything else | [`secret`], [`redact`] |
//! | JSON Schemas and arguments, checked before anything runs | [`schema`], [`json`] |
//! | a conversation and the models that continue it | [`message`], [`provider`] |
//! | everything that happens in a turn, and the plan of a model | [`event`], [`plan`] |
//! | where sessions are kept, and what tools keep between calls | [`store`], [`keyvalue`] |

pub mod event;
pub mod hook;
pub mod json;
pub mod keyvalue;
pub mod policy;
pub mod provider;
pub mod redact;
pub mod schema;
pub mod secret;
pub mod store;
pub mod tool;

pub use event::plan;
pub use policy::{approval, denial, grant, grant_risk, place, protected};
pub use provider::message;
pub use tool::{content, error, receipt};

pub use approval::{ApprovalCause, ApprovalRequest, Decision};
pub use content::{Blob, Content, Link};
pub use denial::Denials;
pub use error::{Limit, ToolError};
pub use event::{Event, EventSink};
pub use grant::Grant;
pub use hook::{Hook, HookPoint, HookSpec};
pub use keyvalue::{Bucket, KeyValueError, KeyValueStore};
pub use message::{Message, Part};
pub use place::{ArgumentPlace, PlaceKind};
pub use plan::{Plan, PlanStep};
pub use policy::{Grants, Limits, Policy};
pub use provider::{Provider, ProviderError};
pub use receipt::{AgentUse, Receipt};
pub use redact::Redactor;
pub use schema::Schema;
pub use secret::{SecretBinding, Secrets};
pub use store::{SessionStore, StoreError};
pub use tool::{CallContext, RemainingBudget, Tool, ToolCall, ToolName, ToolOutput, ToolSpec};

use std::future::Future;
use std::pin::Pin;

/// A boxed future, as the object-safe traits of this crate return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed stream, as [`Provider::stream`] returns it.
pub type BoxStream<'a, T> = Pin<Box<dyn futures_core::Stream<Item = T> + Send + 'a>>;

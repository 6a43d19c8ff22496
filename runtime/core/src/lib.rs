//! Core types and traits of Toolcell.
//!
//! Every other crate of the runtime depends on this one and on no sibling. It holds plain data and six traits
//! ([`Tool`], [`Hook`], [`Provider`], [`EventSink`], [`SessionStore`], [`KeyValueStore`]). It does no I/O, spawns no task, and
//! reads neither the clock nor the environment.
//!
//! | concept | modules |
//! |---|---|
//! | tools, their descriptions, calls and results | [`tool`], [`content`] |
//! | resources and prompts of a source, beside its tools | [`resource`], [`prompt`] |
//! | hooks: code that observes, changes or refuses | [`hook`] |
//! | errors of calls | [`error`] |
//! | policies, the syntax of grants, and receipts of calls | [`policy`], [`grant`], [`receipt`] |
//! | denials, and files that tools must not change | [`denial`], [`protected`] |
//! | risky grants | [`grant_risk`] |
//! | files and URLs in the arguments of a call | [`place`] |
//! | approval by the user | [`approval`] |
//! | secrets: bindings, values, redaction | [`secret`], [`redact`] |
//! | JSON Schemas and JSON arguments, validated before a call | [`schema`], [`json`] |
//! | conversations and the models that continue them | [`message`], [`provider`] |
//! | events of a turn, and plans | [`event`], [`plan`] |
//! | characters that are unsafe on a terminal | [`inert`] |
//! | suggestions for misspelled names, errors with their sources | [`suggest`], [`error_chain()`] |
//! | storage of sessions and of key-value data | [`store`], [`keyvalue`] |

mod error_chain;
pub mod event;
pub mod hook;
pub mod http_header;
pub mod inert;
pub mod json;
pub mod keyvalue;
pub mod policy;
pub mod prompt;
pub mod provider;
pub mod redact;
pub mod resource;
pub mod schema;
pub mod secret;
pub mod store;
pub mod suggest;
pub mod tool;
mod units;

pub use error_chain::{SharedError, causes, error_chain};
pub use event::plan;
pub use policy::{approval, denial, grant, grant_risk, place, protected, url_reading};
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
pub use prompt::{PromptArgument, PromptMessage, PromptRole, PromptSpec, Prompts};
pub use provider::{Provider, ProviderError};
pub use receipt::{AgentUse, Receipt};
pub use redact::Redactor;
pub use resource::{ResourceSpec, ResourceTemplate, Resources, UriTemplate};
pub use schema::Schema;
pub use secret::{SecretBinding, Secrets};
pub use store::{SessionStore, StoreError};
pub use tool::{CallContext, CallResult, RemainingBudget, Tool, ToolCall, ToolName, ToolSpec};

use std::future::Future;
use std::pin::Pin;

/// A boxed future, as returned by the object-safe traits of this crate.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed stream, as returned by [`Provider::stream`].
pub type BoxStream<'a, T> = Pin<Box<dyn futures_core::Stream<Item = T> + Send + 'a>>;

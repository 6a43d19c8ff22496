//! Hooks: code that runs at fixed points of a turn, and may change or refuse operations.
//!
//! ```
//! use toolcell_sdk::hook::{Call, Hook, Turn, Verdict};
//! use toolcell_sdk::{Result, hook};
//!
//! struct KeepFiles;
//!
//! /// Allows writing files only below `scratch/`.
//! #[hook(guard)]
//! impl Hook for KeepFiles {
//!     fn before_call(call: &mut Call, _turn: &mut Turn) -> Result<Verdict> {
//!         let path = call.text("path").unwrap_or_default();
//!         let is_scratch = path.starts_with("scratch/") && !path.contains("..");
//!         if call.tool == "files_write" && !is_scratch {
//!             return Ok(Verdict::cancel("only files below `scratch/` may be written"));
//!         }
//!         Ok(Verdict::Proceed)
//!     }
//! }
//!
//! toolcell_sdk::export_hook!(KeepFiles);
//! #
//! # fn main() {
//! # use toolcell_sdk::serde_json::json;
//! # let ask = |path| KeepFiles::before_call(&mut Call::new("files_write", json!({ "path": path })), &mut Turn::default());
//! # assert_eq!(ask("scratch/a"), Ok(Verdict::Proceed));
//! # assert!(matches!(ask("scratch/../a"), Ok(Verdict::Cancel(_))));
//! # }
//! ```
//!
//! Built like a tool, it is activated in the user's configuration:
//!
//! ```toml
//! [hooks.keep_files]
//! component = "keep_files.wasm"
//! ```
//!
//! The hook runs at the hook points whose functions it implements; the others cost nothing. Each run has its own
//! instance, so that nothing in memory outlives it: use [`Turn::set`] for values needed later in the turn. An error, a
//! panic or an exceeded limit is a failure of the hook: its changes are discarded, the user is notified, and if it is a
//! `guard`, the operation is refused.
//!
//! The functions are plain functions that tests can call with [`Call::new`] and [`Turn::default`].

mod export;
mod wire;

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{Content, Result, ToolError};

#[doc(hidden)]
pub use crate::hook_bindings::exports::toolcell::tool::hooks::Moments;
#[doc(hidden)]
pub use export::Exported;

/// Hook. The default of every function continues the operation. `#[`[`hook`](macro@crate::hook)`]` must be placed on
/// the `impl`.
pub trait Hook {
    /// Manifest of the hook, written by the attribute.
    #[doc(hidden)]
    const CLAIMS: Claims;

    /// Before the first request of a turn.
    ///
    /// # Errors
    /// The hook failed. A guard ends the turn.
    fn before_prompt(_prompt: &mut Prompt, _turn: &mut Turn) -> Result<Verdict> {
        Ok(Verdict::Proceed)
    }

    /// Before each call with valid arguments, before the approval.
    ///
    /// # Errors
    /// The hook failed. A guard refuses the call.
    fn before_call(_call: &mut Call, _turn: &mut Turn) -> Result<Verdict> {
        Ok(Verdict::Proceed)
    }

    /// After each call that ran, successful or failed.
    ///
    /// # Errors
    /// The hook failed.
    fn after_call(_call: &CallReport, _turn: &mut Turn) -> Result<()> {
        Ok(())
    }

    /// After a turn with any outcome.
    ///
    /// # Errors
    /// The hook failed.
    fn after_turn(_end: &TurnEnd, _turn: &mut Turn) -> Result<()> {
        Ok(())
    }

    /// After a failed request, a failed call or invalid arguments.
    ///
    /// # Errors
    /// The hook failed.
    fn on_error(_failure: &Failure, _turn: &mut Turn) -> Result<()> {
        Ok(())
    }
}

/// Manifest of a hook.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Claims {
    pub name: &'static str,
    pub description: &'static str,
    pub moments: Moments,
    pub guard: bool,
    pub priority: i32,
    pub before: &'static [&'static str],
    pub after: &'static [&'static str],
}

/// Decision of a hook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Continue.
    #[default]
    Proceed,
    /// Do not send this prompt, or do not make this call. The reason is shown to the user, and for a call also to the
    /// model.
    Cancel(String),
    /// End the whole turn. The reason is shown to the user.
    Abort(String),
}

/// Turn in which the hook runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Turn {
    session: String,
    values: BTreeMap<String, Value>,
    left: BTreeMap<String, Value>,
    notices: Vec<(NoticeLevel, String)>,
}

/// Severity of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeLevel {
    /// Information.
    Info,
    /// Warning.
    Warning,
    /// Error.
    Error,
}

/// Prompt that is about to be sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// The user's message, as changed by earlier hooks. May be changed.
    pub message: Vec<Content>,
    /// The user's original message.
    pub original: Vec<Content>,
    /// Length of the conversation in tokens, partly estimated.
    pub tokens: u64,
    /// Length at which it will be summarised.
    pub token_limit: Option<u64>,
    /// Context placed before the message in the conversation, one block per text.
    pub context: Vec<String>,
    /// Instructions appended to the system prompt for this turn.
    pub instructions: Vec<String>,
    /// Examples appended to the system prompt for this turn.
    pub examples: Vec<Example>,
}

/// Example of a call for a user message.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// Message of the user.
    pub says: String,
    /// Tool to call.
    pub tool: String,
    /// Arguments of the call.
    pub arguments: Map<String, Value>,
}

/// Call that is about to run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Call {
    /// Identifier of the call, unique in the session.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// Arguments of the call. May be changed; they are validated against the tool's schema again.
    pub arguments: Map<String, Value>,
}

/// Finished call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallReport {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// Arguments that were executed.
    pub arguments: Map<String, Value>,
    /// Content for the model.
    pub content: Vec<Content>,
    /// Error, if the call failed; its kind is `denied`, `limit`, `crashed` and so on.
    pub error: Option<Failure>,
    /// Resources used: an object with `fuel`, `wall_us`, `peak_memory` and others. `None` if the tool has no cell.
    pub receipt: Option<Value>,
    /// Duration in milliseconds, including failed attempts.
    pub duration_ms: u64,
}

/// Finished turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurnEnd {
    /// Outcome of the turn, such as `completed` or `cancelled`.
    pub outcome: String,
    /// Answer of the turn.
    pub text: String,
    /// Number of requests to the model.
    pub steps: u32,
}

/// Failed operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// Kind of the failure. In [`Hook::on_error`] the operation: `model`, `call_arguments` or `call`.
    pub kind: String,
    /// Description of the failure.
    pub message: String,
}

impl Verdict {
    /// Does not send this prompt, or does not make this call.
    pub fn cancel(reason: impl Into<String>) -> Self {
        Self::Cancel(reason.into())
    }

    /// Ends the whole turn.
    pub fn abort(reason: impl Into<String>) -> Self {
        Self::Abort(reason.into())
    }
}

impl Turn {
    /// Identifier of the session.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Value set by this or another hook in this turn; `None` if there is none of this name and type.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let value = self.left.get(name).or_else(|| self.values.get(name))?;
        T::deserialize(value).ok()
    }

    /// Sets a value for later hook points of this turn, shared with other hooks.
    ///
    /// # Errors
    /// Fails if the value cannot be serialised as JSON.
    pub fn set(&mut self, name: impl Into<String>, value: impl Serialize) -> Result<()> {
        let value = serde_json::to_value(value).map_err(ToolError::from)?;
        self.left.insert(name.into(), value);
        Ok(())
    }

    /// Shows the user an information.
    pub fn notify(&mut self, text: impl Into<String>) {
        self.notify_as(NoticeLevel::Info, text);
    }

    /// Shows the user a warning.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.notify_as(NoticeLevel::Warning, text);
    }

    /// Shows the user a notice.
    pub fn notify_as(&mut self, level: NoticeLevel, text: impl Into<String>) {
        self.notices.push((level, text.into()));
    }

    /// Notices so far, for tests.
    pub fn notices(&self) -> &[(NoticeLevel, String)] {
        &self.notices
    }
}

impl Call {
    /// Creates a call for tests. A value that is not an object means no arguments.
    pub fn new(tool: impl Into<String>, arguments: Value) -> Self {
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        Self {
            id: "call-1".into(),
            tool: tool.into(),
            arguments,
        }
    }

    /// Returns an argument that is a string.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name)?.as_str()
    }

    /// Sets an argument if the model did not.
    pub fn default(&mut self, name: &str, value: impl Into<Value>) {
        self.arguments.entry(name).or_insert_with(|| value.into());
    }
}

impl Prompt {
    /// Text of the message.
    pub fn text(&self) -> String {
        let texts = self.message.iter().filter_map(|content| match content {
            Content::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

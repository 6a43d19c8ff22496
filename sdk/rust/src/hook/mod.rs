//! Hooks: code that runs at fixed points of a turn, and may change or refuse operations.
//!
//! ```
//! use toolcell_sdk::hook::{Call, Hook, Turn, Verdict};
//! use toolcell_sdk::{Result, hook};
//! # use toolcell_sdk::hook::Place;
//!
//! struct KeepFiles;
//!
//! /// Allows writing files only below `scratch/`.
//! #[hook(guard)]
//! impl Hook for KeepFiles {
//!     fn before_call(call: &mut Call, _turn: &mut Turn) -> Result<Verdict> {
//!         // Where the arguments lead, in one plain spelling.
//!         let mut places = call.places.iter();
//!         let is_scratch = places.next().is_some_and(|place| place.plain.starts_with("/scratch/"));
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
//! # let ask = |plain: &str| {
//! #     let call = Call::new("files_write", json!({})).leading_to(Place::path("/path", plain, plain));
//! #     KeepFiles::before_call(&mut { call }, &mut Turn::default())
//! # };
//! # assert_eq!(ask("/scratch/a"), Ok(Verdict::Proceed));
//! # assert!(matches!(ask("/a"), Ok(Verdict::Cancel(_))));
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
mod summary;
mod wire;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Content, Result, ToolError};

#[doc(hidden)]
pub use crate::generated::hook::exports::toolcell::tool::hooks::Moments;
#[doc(hidden)]
pub use crate::generated::hook::exports::toolcell::tool::summary_hooks::SummaryMoments;
#[doc(hidden)]
pub use export::{Exported, ExportedHook, assert_exported};
pub use summary::{FinishedSummary, Message, PendingSummary, RequestedCall, Role};

/// Hook. The default of every function continues the operation. `#[`[`hook`](macro@crate::hook)`]` must be placed on
/// the `impl`, and [`export_hook!`](crate::export_hook) export the type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a hook",
    label = "not a hook",
    note = "put `#[toolcell_sdk::hook]` on an `impl toolcell_sdk::hook::Hook for {Self}`"
)]
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

    /// Before the model summarises the older part of a long conversation: chooses the messages that it reads. A cancelled
    /// summary leaves the conversation as it is.
    ///
    /// # Errors
    /// The hook failed. A guard cancels the summary.
    fn before_summary(_summary: &mut PendingSummary, _turn: &mut Turn) -> Result<Verdict> {
        Ok(Verdict::Proceed)
    }

    /// After the model has written a summary: chooses the messages that replace the older part of the conversation.
    ///
    /// # Errors
    /// The hook failed. A guard cancels the summary.
    fn after_summary(_summary: &mut FinishedSummary, _turn: &mut Turn) -> Result<Verdict> {
        Ok(Verdict::Proceed)
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
    pub summary_moments: SummaryMoments,
    pub guard: bool,
    pub priority: i32,
    pub before: &'static [&'static str],
    pub after: &'static [&'static str],
}

/// Decision of a hook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Continue the turn.
    #[default]
    Proceed,
    /// Do not send this prompt, do not make this call, or do not summarise. The reason is shown to the user, and for a
    /// call also to the model.
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
    /// Nothing is wrong.
    Info,
    /// Something is wrong and the turn continues.
    Warning,
    /// Something failed.
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
    /// Resolved targets of the arguments that are paths and URLs: those whose schema says `"format": "path"` or `"uri"`,
    /// and those whose names do. A guard checks these instead of the arguments, which have many spellings and may lead
    /// through links.
    pub places: Vec<Place>,
}

/// Resolved target of an argument.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(crate = "crate::serde")]
#[non_exhaustive]
pub struct Place {
    /// The argument, as a JSON Pointer (RFC 6901) such as `/path`.
    pub pointer: String,
    /// Kind of the target.
    pub kind: PlaceKind,
    /// In one plain spelling: the absolute path as the tool sees it, without `.` and `..`; a URL as clients send it.
    pub plain: String,
    /// The path on the host that the tool's grants give it, as it is written. None where no grant holds it.
    #[serde(default)]
    pub named: Option<String>,
    /// The path on the host with links resolved. None where no grant holds it, and for URLs.
    #[serde(default)]
    pub real: Option<String>,
}

/// Kind of the target of an argument.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(crate = "crate::serde", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlaceKind {
    /// A file or directory.
    Path,
    /// A URL.
    Url,
    /// Something that this version of the SDK does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl Place {
    /// A path, for tests: the tool sees it as `plain`, and on the host it is `real`.
    pub fn path(pointer: impl Into<String>, plain: impl Into<String>, real: impl Into<String>) -> Self {
        let real = real.into();
        Self {
            pointer: pointer.into(),
            kind: PlaceKind::Path,
            plain: plain.into(),
            named: Some(real.clone()),
            real: Some(real),
        }
    }
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
    /// Does not send this prompt, does not make this call, or does not summarise.
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
            places: Vec::new(),
        }
    }

    /// Adds a place that an argument leads to, for tests.
    #[must_use]
    pub fn leading_to(mut self, place: Place) -> Self {
        self.places.push(place);
        self
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

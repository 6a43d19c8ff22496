//! Write hooks: code that is asked at fixed points of a turn, and may change or refuse what is about to happen.
//!
//! ```
//! use toolcell_sdk::hook::{Call, Hook, Turn, Verdict};
//! use toolcell_sdk::{Result, hook};
//!
//! struct KeepFiles;
//!
//! /// Lets files be written below `scratch/` alone.
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
//! Built like a tool, it is used by naming it in one's own configuration:
//!
//! ```toml
//! [hooks.keep_files]
//! component = "keep_files.wasm"
//! ```
//!
//! The hook is asked at exactly the moments whose functions it has; the others cost nothing. Each moment runs in an
//! instance of its own, so that nothing in memory outlives it: what a later moment of the turn needs goes through
//! [`Turn::set`]. An error, a panic or a limit is a hook that failed: nothing of what it wanted happens, the person is
//! told, and where it is a `guard`, what it guards does not happen either.
//!
//! The functions are plain functions, so a test calls them, with [`Call::new`] and [`Turn::default`].

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

/// A hook. Every function lets go on what it looks at, unless it is written. `#[`[`hook`](macro@crate::hook)`]` goes over
/// the `impl`.
pub trait Hook {
    /// What the hook says of itself; the attribute writes it.
    #[doc(hidden)]
    const CLAIMS: Claims;

    /// Before the first request of a turn.
    ///
    /// # Errors
    /// The hook failed. If it guards, the turn ends.
    fn before_prompt(_prompt: &mut Prompt, _turn: &mut Turn) -> Result<Verdict> {
        Ok(Verdict::Proceed)
    }

    /// Before each call whose arguments are in order, and before anybody is asked to approve it.
    ///
    /// # Errors
    /// The hook failed. If it guards, the call is refused.
    fn before_call(_call: &mut Call, _turn: &mut Turn) -> Result<Verdict> {
        Ok(Verdict::Proceed)
    }

    /// After each call that ran, whether it succeeded or not.
    ///
    /// # Errors
    /// The hook failed.
    fn after_call(_call: &CallReport, _turn: &mut Turn) -> Result<()> {
        Ok(())
    }

    /// After a turn, however it ended.
    ///
    /// # Errors
    /// The hook failed.
    fn after_turn(_end: &TurnEnd, _turn: &mut Turn) -> Result<()> {
        Ok(())
    }

    /// When a request, a call or the arguments of one fail.
    ///
    /// # Errors
    /// The hook failed.
    fn on_error(_failure: &Failure, _turn: &mut Turn) -> Result<()> {
        Ok(())
    }
}

/// What a hook says of itself.
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

/// What a hook decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    #[default]
    Proceed,
    /// This prompt is not sent, or this call is not made. Why, in words that the person reads, and of a call also the
    /// model.
    Cancel(String),
    /// The whole turn ends. Why, in words that the person reads.
    Abort(String),
}

/// The turn that a moment belongs to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Turn {
    session: String,
    values: BTreeMap<String, Value>,
    left: BTreeMap<String, Value>,
    notices: Vec<(NoticeLevel, String)>,
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeLevel {
    /// Good to know.
    Info,
    /// Something is not as it should be.
    Warning,
    /// Something failed.
    Error,
}

/// A turn that is about to begin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// What the person said, as earlier hooks left it. Change it freely.
    pub message: Vec<Content>,
    /// What the person said.
    pub original: Vec<Content>,
    /// Length of the conversation in tokens, as far as known.
    pub tokens: u64,
    /// The length at which it will be summarised.
    pub token_limit: Option<u64>,
    /// Stands in front of the message in the conversation, each text as a block of its own.
    pub context: Vec<String>,
    /// Added to the system prompt for this turn.
    pub instructions: Vec<String>,
    /// Added to the system prompt for this turn.
    pub examples: Vec<Example>,
}

/// An example of what to do when a person says something.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// What the person says.
    pub says: String,
    /// The tool to call.
    pub tool: String,
    /// With these arguments.
    pub arguments: Map<String, Value>,
}

/// A call that is about to be made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Call {
    /// Identifier of the call, unique in the session.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// The arguments. Change them freely: they are checked against the tool's schema again.
    pub arguments: Map<String, Value>,
}

/// A call that has ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallReport {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// What was executed.
    pub arguments: Map<String, Value>,
    /// What the model reads.
    pub content: Vec<Content>,
    /// Why there is no answer; its kind is `denied`, `limit`, `crashed` and so on.
    pub error: Option<Failure>,
    /// What it used: an object with `fuel`, `wall_us`, `peak_memory` and others. None if the tool has no cell.
    pub receipt: Option<Value>,
    /// How long it took, in milliseconds, attempts that failed included.
    pub duration_ms: u64,
}

/// A turn that has ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurnEnd {
    /// How, in one word, such as `completed` or `cancelled`.
    pub outcome: String,
    /// The answer.
    pub text: String,
    /// Requests to the model.
    pub steps: u32,
}

/// Something that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure, in one word. In [`Hook::on_error`] where it failed: `model`, `call_arguments` or `call`.
    pub kind: String,
    /// What is wrong.
    pub message: String,
}

impl Verdict {
    /// This prompt is not sent, or this call is not made.
    pub fn cancel(reason: impl Into<String>) -> Self {
        Self::Cancel(reason.into())
    }

    /// The whole turn ends.
    pub fn abort(reason: impl Into<String>) -> Self {
        Self::Abort(reason.into())
    }
}

impl Turn {
    /// Identifier of the session.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// A value that this or another hook left in this turn; `None` if there is none of this name and type.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let value = self.left.get(name).or_else(|| self.values.get(name))?;
        T::deserialize(value).ok()
    }

    /// Leaves a value for later moments of this turn, of this hook and of others.
    ///
    /// # Errors
    /// When the value is no JSON.
    pub fn set(&mut self, name: impl Into<String>, value: impl Serialize) -> Result<()> {
        let value = serde_json::to_value(value).map_err(ToolError::from)?;
        self.left.insert(name.into(), value);
        Ok(())
    }

    /// Tells the person something that is good to know.
    pub fn notify(&mut self, text: impl Into<String>) {
        self.notify_as(NoticeLevel::Info, text);
    }

    /// Tells the person that something is not as it should be.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.notify_as(NoticeLevel::Warning, text);
    }

    /// Tells the person something.
    pub fn notify_as(&mut self, level: NoticeLevel, text: impl Into<String>) {
        self.notices.push((level, text.into()));
    }

    /// What the person is told so far, for tests.
    pub fn notices(&self) -> &[(NoticeLevel, String)] {
        &self.notices
    }
}

impl Call {
    /// A call, for tests. What is no object means no arguments.
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

    /// An argument that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name)?.as_str()
    }

    /// Gives an argument a value where the model gave it none.
    pub fn default(&mut self, name: &str, value: impl Into<Value>) {
        self.arguments.entry(name).or_insert_with(|| value.into());
    }
}

impl Prompt {
    /// The texts of the message, one after the other.
    pub fn text(&self) -> String {
        let texts = self.message.iter().filter_map(|content| match content {
            Content::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

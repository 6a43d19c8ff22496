//! Tools. A WebAssembly tool, an MCP tool and a built-in tool of the loop are all an `Arc<dyn Tool>`.

pub mod aliases;
pub mod content;
pub mod error;
pub mod receipt;
mod result;

pub use result::CallResult;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::{ApprovalRequest, Decision};
use crate::provider::Prices;
use crate::{ArgumentPlace, BoxFuture, Event, Receipt, Schema, ToolError};

/// A tool that a model can call.
pub trait Tool: Send + Sync {
    /// Returns the description of the tool. It never changes during the life of the value.
    fn spec(&self) -> &ToolSpec;

    /// Runs one call.
    ///
    /// Dropping the future cancels the call, including all work started for it. The result of a call that ran in a cell
    /// has a [`Receipt`], also if it failed; the receipt of a dropped call is reported to `cx.observer`.
    ///
    /// All errors but [`ToolError::Host`] are results for the model.
    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult>;

    /// Upper bound of the resources that one call uses, excluding the call itself and its result; `None` in a field
    /// means unknown. A session with a budget reserves this amount before the call starts, or its whole remaining
    /// budget if the bound is unknown, so that concurrent calls stay within the budget in total.
    fn max_use(&self) -> RemainingBudget {
        RemainingBudget::default()
    }

    /// Returns the files and URLs that the arguments of a call refer to, for rules, hooks and remembered approvals. May
    /// access the file system to resolve links. A tool without grants has none.
    fn places(&self, _arguments: &Value) -> Vec<ArgumentPlace> {
        Vec::new()
    }

    /// Returns `true` if its calls can create, change or remove files, and so change where paths lead. Where rules or hooks
    /// judge calls, such a call does not run at the same time as others.
    fn changes_files(&self) -> bool {
        false
    }
}

impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn spec(&self) -> &ToolSpec {
        (**self).spec()
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        (**self).call(call, cx)
    }

    fn max_use(&self) -> RemainingBudget {
        (**self).max_use()
    }

    fn places(&self, arguments: &Value) -> Vec<ArgumentPlace> {
        (**self).places(arguments)
    }

    fn changes_files(&self) -> bool {
        (**self).changes_files()
    }
}

/// Name of a tool: 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `_` and `-`, the first one a letter.
///
/// All providers accept such names, and without characters beyond ASCII no two names look alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ToolName(String);

/// Error of an invalid tool name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid tool name `{}`: expected 1 to {} characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter",
    beginning(.0), ToolName::MAX_LEN
)]
pub struct InvalidToolName(pub String);

/// Returns the beginning of a wrong name, which can be as long as its author likes.
fn beginning(name: &str) -> String {
    let mut beginning: String = name
        .chars()
        .take(ToolName::MAX_LEN)
        .flat_map(char::escape_debug)
        .collect();
    if name.chars().nth(ToolName::MAX_LEN).is_some() {
        beginning.push('…');
    }
    beginning
}

/// Description of a tool for the model and the host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolSpec {
    /// Name, unique among the tools of a request.
    pub name: ToolName,
    /// Display name for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Purpose of the tool and when to use it, for the model.
    pub description: String,
    /// Schema of the arguments; the root is of type `object`.
    pub input: Arc<Schema>,
    /// Schema of [`CallResult::structured`], if the tool sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Schema>>,
    /// Hints declared by the author. Hints grant nothing.
    pub hints: Hints,
    /// Further annotations by the author, as names and JSON values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, Value>,
}

/// Hints declared by a tool's author. They influence when the user is asked for approval; they grant nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hints {
    /// The tool changes nothing outside itself.
    pub read_only: bool,
    /// The tool may delete or overwrite data.
    pub destructive: bool,
    /// Repeating a call with the same arguments has no further effect.
    pub idempotent: bool,
    /// The tool accesses systems that its policy cannot list in advance.
    pub open_world: bool,
}

/// One call of one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Identifier, unique in the session.
    pub id: String,
    /// Name of the tool.
    pub name: ToolName,
    /// Arguments as a JSON object; they match the tool's schema.
    pub arguments: serde_json::Map<String, Value>,
}

/// Context of a call.
#[derive(Clone)]
pub struct CallContext {
    /// Values that the host shares with every tool of the session, as names and JSON values.
    pub values: BTreeMap<String, Value>,
    /// Receiver of logs, progress and the receipt of a dropped call.
    pub observer: Arc<dyn CallObserver>,
}

/// Observer of one call, which also gives tools access to the calling session.
///
/// The methods are called from the thread that runs the call and must not block. The last two are for tools that run
/// agents; tools with limits of their own use [`CallObserver::left`].
pub trait CallObserver: Send + Sync {
    /// Receives a line that the tool logged or wrote to standard output or standard error.
    fn log(&self, _line: LogLine) {}
    /// Receives the progress of the call.
    fn progress(&self, _progress: Progress) {}
    /// Receives a receipt that no result carries: of a dropped call, of an attempt that is repeated, or of work that ended
    /// after its call.
    fn receipt(&self, _receipt: Receipt) {}
    /// Returns the budget that the session reserved for this call. It caps the limits of the tool.
    fn left(&self) -> RemainingBudget {
        RemainingBudget::default()
    }
    /// Checks the call once more when its guest is about to start: what it was judged by may have changed while it waited.
    ///
    /// # Errors
    /// If the call must not start.
    fn check_start(&self) -> Result<(), ToolError> {
        Ok(())
    }
    /// Receives an event of a session that runs inside the call.
    fn nested(&self, _event: &Event) {}
    /// True if [`ask`](Self::ask) reaches a user.
    fn can_ask(&self) -> bool {
        false
    }
    /// Requests the user's approval of a call inside the call. Dropping the future withdraws the request.
    fn ask(&self, _request: ApprovalRequest) -> BoxFuture<'_, Decision> {
        Box::pin(std::future::ready(Decision::Deny {
            reason: Some("no user is available to approve the call".into()),
        }))
    }
    /// Suspends the call, because a decision inside it was put off ([`Decision::Later`]). The tool returns at once, its result is
    /// not used, and the turn waits; when it is resumed, the tool is called again, with this state as
    /// [`suspended`](Self::suspended). Returns false if the session does not take it.
    fn suspend(&self, _state: Value) -> bool {
        false
    }
    /// Returns the state with which this call suspended itself, if it is continued now. The second request has none.
    fn suspended(&self) -> Option<Value> {
        None
    }
}

/// Remaining budget of a session; `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemainingBudget {
    /// Fuel, in units of about one instruction.
    pub fuel: Option<u64>,
    /// Milliseconds until the session ends.
    pub wall_ms: Option<u64>,
    /// Milliseconds of wall time, summed over all calls.
    pub call_ms: Option<u64>,
    /// Number of tool calls.
    pub calls: Option<u64>,
    /// Bytes of results.
    pub bytes: Option<u64>,
    /// Tokens, input and output together.
    pub tokens: Option<u64>,
    /// Cost in millionths of a currency unit.
    pub cost_micros: Option<u64>,
    /// Prices of tokens, for agents that have none of their own.
    pub prices: Option<Prices>,
}

impl RemainingBudget {
    /// A budget of zero: the bound of a tool that has no cell and is not an agent.
    pub const NOTHING: Self = Self {
        fuel: Some(0),
        wall_ms: None,
        call_ms: Some(0),
        calls: Some(0),
        bytes: Some(0),
        tokens: Some(0),
        cost_micros: Some(0),
        prices: None,
    };

    /// Returns the minimum of both.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        let min = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            fuel: min(self.fuel, other.fuel),
            wall_ms: min(self.wall_ms, other.wall_ms),
            call_ms: min(self.call_ms, other.call_ms),
            calls: min(self.calls, other.calls),
            bytes: min(self.bytes, other.bytes),
            tokens: min(self.tokens, other.tokens),
            cost_micros: min(self.cost_micros, other.cost_micros),
            prices: self.prices.or(other.prices),
        }
    }

    /// Returns the name of an exhausted resource, or `None` if all have a remainder.
    pub fn used_up(&self) -> Option<&'static str> {
        [
            (self.fuel, "fuel"),
            (self.wall_ms, "time"),
            (self.call_ms, "tool time"),
            (self.calls, "calls"),
            (self.bytes, "bytes of results"),
            (self.tokens, "tokens"),
            (self.cost_micros, "money"),
        ]
        .into_iter()
        .find_map(|(left, what)| (left == Some(0)).then_some(what))
    }
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl CallObserver for Unobserved {}

/// One line of a tool's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Severity of the line.
    pub level: LogLevel,
    /// Source of the line.
    pub source: LogSource,
    /// Text without a line ending.
    pub message: String,
}

/// Severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Control flow and values of variables.
    Trace,
    /// Details for debugging the tool.
    Debug,
    /// Normal operation.
    Info,
    /// A problem that does not prevent the call from succeeding.
    Warn,
    /// A problem that makes the call fail.
    Error,
}

/// Source of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// The `log` interface.
    Log,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The host itself, for example about dropped lines.
    Host,
    /// The stack at a crash: names of functions, which the component chooses.
    Backtrace,
}

/// Progress of a call, in steps chosen by the tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done.
    pub done: u64,
    /// Total number of steps, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Current activity of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl ToolName {
    /// Maximum length of a name, in bytes. OpenAI and Anthropic reject longer ones.
    pub const MAX_LEN: usize = 64;

    /// Validates a name.
    ///
    /// # Errors
    /// If the name is empty, longer than [`ToolName::MAX_LEN`], or contains a character that is not allowed.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidToolName> {
        let name = name.into();
        let mut bytes = name.bytes();
        let first_is_letter = bytes.next().is_some_and(|b| b.is_ascii_alphabetic());
        if first_is_letter
            && name.len() <= Self::MAX_LEN
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        {
            Ok(Self(name))
        } else {
            Err(InvalidToolName(name))
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for ToolName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ToolName {
    type Error = InvalidToolName;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(name)
    }
}

impl From<ToolName> for String {
    fn from(name: ToolName) -> Self {
        name.0
    }
}

impl CallContext {
    /// Creates a context without shared values and with an observer that ignores everything.
    pub fn unobserved() -> Self {
        Self {
            values: BTreeMap::new(),
            observer: Arc::new(Unobserved),
        }
    }
}

impl std::fmt::Debug for CallContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext")
            .field("values", &self.values)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for dyn Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tool({})", self.spec().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_name_is_ascii_with_leading_letter_and_length_limit() {
        for good in ["a", "read_file", "A-1", &"x".repeat(64)] {
            assert!(ToolName::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "1a",
            "_a",
            "a b",
            "a.b",
            "lіst",
            "a\u{1b}[31m",
            &"x".repeat(65),
        ] {
            assert!(ToolName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn minimum_of_two_budgets_names_the_exhausted_resource() {
        let outer = RemainingBudget {
            fuel: Some(5),
            calls: Some(0),
            ..RemainingBudget::default()
        };
        let inner = RemainingBudget {
            fuel: Some(7),
            tokens: Some(1),
            ..RemainingBudget::default()
        };
        let both = outer.within(inner);
        assert_eq!((both.fuel, both.calls, both.tokens), (Some(5), Some(0), Some(1)));
        assert_eq!(both.used_up(), Some("calls"));
        assert_eq!(
            (inner.used_up(), RemainingBudget::default().used_up()),
            (None, None)
        );
    }

    #[test]
    fn invalid_name_is_shown_without_control_characters() {
        let message = ToolName::new("a\u{1b}[2Jb").unwrap_err().to_string();
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }

    struct Echo(ToolSpec);

    impl Tool for Echo {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn call(&self, call: ToolCall, _: CallContext) -> BoxFuture<'_, CallResult> {
            Box::pin(std::future::ready(CallResult::text(call.id)))
        }

        fn max_use(&self) -> RemainingBudget {
            RemainingBudget {
                fuel: Some(7),
                ..RemainingBudget::default()
            }
        }

        fn places(&self, arguments: &Value) -> Vec<ArgumentPlace> {
            vec![ArgumentPlace {
                pointer: String::new(),
                kind: crate::PlaceKind::Path,
                plain: arguments.to_string(),
                named: None,
                real: None,
                is_unresolved: false,
            }]
        }

        fn changes_files(&self) -> bool {
            true
        }
    }

    /// A tool that says nothing about itself.
    struct Plain(ToolSpec);

    impl Tool for Plain {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn call(&self, call: ToolCall, _: CallContext) -> BoxFuture<'_, CallResult> {
            Box::pin(std::future::ready(CallResult::text(call.id)))
        }
    }

    fn spec(name: &str) -> ToolSpec {
        ToolSpec {
            name: ToolName::new(name).unwrap(),
            title: None,
            description: String::new(),
            input: Arc::new(Schema::parse(r#"{"type":"object"}"#).unwrap()),
            output: None,
            hints: Hints::default(),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn tool_without_grants_changes_no_files_and_has_no_places() {
        let tool = Arc::new(Plain(spec("plain")));
        assert!(!Tool::changes_files(&tool));
        assert!(Tool::places(&tool, &serde_json::json!({"path": "a"})).is_empty());
        assert_eq!(Tool::max_use(&tool), RemainingBudget::default());
    }

    #[test]
    fn shared_tool_answers_as_the_tool_inside() {
        let tool = Arc::new(Echo(spec("echo")));
        assert_eq!(Tool::spec(&tool).name.as_str(), "echo");
        assert_eq!(Tool::spec(&tool).name.to_string(), "echo");
        assert_eq!(Tool::max_use(&tool).fuel, Some(7));
        assert_eq!(Tool::places(&tool, &Value::Null)[0].plain, "null");
        assert!(Tool::changes_files(&tool));
    }

    #[test]
    fn names_are_found_by_their_text() {
        let name = ToolName::new("echo").unwrap();
        let map = std::collections::HashMap::from([(name.clone(), 1)]);
        assert_eq!((map.get("echo"), map.get("other")), (Some(&1), None));
        assert_eq!(serde_json::to_string(&name).unwrap(), r#""echo""#);
    }
}

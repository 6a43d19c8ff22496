//! The first seam: a tool. A WebAssembly tool, a tool of an MCP server and a tool of the loop itself are all one
//! `Arc<dyn Tool>`.

pub mod content;
pub mod error;
pub mod receipt;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::{ApprovalRequest, Decision};
use crate::provider::Prices;
use crate::{ArgumentPlace, BoxFuture, Content, Event, Receipt, Schema, ToolError};

/// A tool that a model can call.
pub trait Tool: Send + Sync {
    /// What the model is told about it. The same for the whole life of the value.
    fn spec(&self) -> &ToolSpec;

    /// Runs it once.
    ///
    /// Dropping the future cancels the call: nothing of it goes on afterwards. Every call files one [`Receipt`] with
    /// `cx.observer`, also when it fails or is dropped; a tool that has no cell files none.
    ///
    /// # Errors
    /// All but [`ToolError::Host`] are answers for the model.
    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>>;

    /// Upper bound of what one call uses, beside the call itself and its result; `None` in a field means unknown. A
    /// session with a budget reserves this much before the call begins, and all that it has left where nothing is known,
    /// so that calls at the same time stay within the budget together.
    fn max_use(&self) -> RemainingBudget {
        RemainingBudget::default()
    }

    /// What the arguments of a call lead to, for rules, hooks and remembered approvals that name files or URLs. May look at
    /// the file system, for links. A tool without grants of its own has none.
    fn places(&self, _arguments: &Value) -> Vec<ArgumentPlace> {
        Vec::new()
    }
}

impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn spec(&self) -> &ToolSpec {
        (**self).spec()
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        (**self).call(call, cx)
    }

    fn max_use(&self) -> RemainingBudget {
        (**self).max_use()
    }

    fn places(&self, arguments: &Value) -> Vec<ArgumentPlace> {
        (**self).places(arguments)
    }
}

/// The name of a tool: 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `_` and `-`, the first one a letter.
///
/// It is what every provider's wire accepts, and ASCII alone, so that no two names look alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ToolName(String);

/// A name that is no tool name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is no tool name: 1 to {} characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter",
    .0.escape_debug(), ToolName::MAX_LEN
)]
pub struct InvalidToolName(pub String);

/// What a model is told about a tool, and what the host knows of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolSpec {
    /// Name, unique among the tools that are offered together.
    pub name: ToolName,
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the tool does and when to use it.
    pub description: String,
    /// Schema of the arguments; its root is an object.
    pub input: Arc<Schema>,
    /// Schema of [`ToolOutput::structured`], if the tool sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Schema>>,
    /// What the author claims. Claims grant nothing.
    pub hints: Hints,
    /// Further claims of the author, as names and JSON values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, Value>,
}

/// Claims of a tool's author. They help to decide when to ask a person; they grant nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hints {
    /// Changes nothing outside itself.
    pub read_only: bool,
    /// May delete or overwrite data.
    pub destructive: bool,
    /// Calling twice with the same arguments does no more than calling once.
    pub idempotent: bool,
    /// Talks to systems that its policy cannot list beforehand.
    pub open_world: bool,
}

/// One call of one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Identifier, unique in the session.
    pub id: String,
    /// Name of the tool.
    pub name: ToolName,
    /// The arguments as a JSON object; they fit the tool's schema.
    pub arguments: serde_json::Map<String, Value>,
}

/// What surrounds a call.
#[derive(Clone)]
pub struct CallContext {
    /// What the host shares with every tool of the session, as names and JSON values.
    pub values: BTreeMap<String, Value>,
    /// Where logs, progress and the receipt go.
    pub observer: Arc<dyn CallObserver>,
}

/// Hears what happens inside one call, and stands for the session that made it.
///
/// The methods are called from the thread that runs the call and must not block. The last two are for tools that are
/// agents themselves; tools with limits of their own ask for [`CallObserver::left`].
pub trait CallObserver: Send + Sync {
    /// A line that the tool logged or wrote to standard output or standard error.
    fn log(&self, _line: LogLine) {}
    /// How far the call has come.
    fn progress(&self, _progress: Progress) {}
    /// What the call used; once, when it ends in whatever way.
    fn receipt(&self, _receipt: Receipt) {}
    /// What the call may use at most, because its session has reserved no more for it. Whatever its own limits allow.
    fn left(&self) -> RemainingBudget {
        RemainingBudget::default()
    }
    /// Something that happened in a session inside the call.
    fn nested(&self, _event: &Event) {}
    /// A question to the person about a call inside the call. Dropping the future takes it back.
    fn ask(&self, _request: ApprovalRequest) -> BoxFuture<'_, Decision> {
        Box::pin(std::future::ready(Decision::Deny {
            reason: Some("there is nobody to ask".into()),
        }))
    }
}

/// What is left of what a session may use; `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemainingBudget {
    /// Units of fuel.
    pub fuel: Option<u64>,
    /// Milliseconds until the session ends.
    pub wall_ms: Option<u64>,
    /// Milliseconds of wall time of calls, summed over all of them.
    pub call_ms: Option<u64>,
    /// Calls of tools.
    pub calls: Option<u64>,
    /// Bytes of results.
    pub bytes: Option<u64>,
    /// Tokens, input and output together.
    pub tokens: Option<u64>,
    /// Money, in millionths of a unit.
    pub cost_micros: Option<u64>,
    /// Prices of tokens of those that have none of their own.
    pub prices: Option<Prices>,
}

impl RemainingBudget {
    /// Nothing at all: the bound of a tool that has no cell and is no agent.
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

    /// What both allow.
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

    /// What nothing is left of, in words; `None` while there is some of everything.
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

/// An observer that hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl CallObserver for Unobserved {}

/// One line of a tool's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// How much it matters.
    pub level: LogLevel,
    /// Where it came from.
    pub source: LogSource,
    /// The text, without a line end.
    pub message: String,
}

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// The flow of control and the values of variables.
    Trace,
    /// For somebody who looks for an error in the tool.
    Debug,
    /// For somebody who watches the tool work.
    Info,
    /// Something is wrong and the tool goes on.
    Warn,
    /// Something is wrong and the call will fail.
    Error,
}

/// Where a log line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// The `log` interface.
    Log,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The host, about the tool: lines dropped, and the like.
    Host,
}

/// How far a call has come, in steps of the tool's own choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done.
    pub done: u64,
    /// Steps in all, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What the tool is doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The answer of a tool that did what it was asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// What the model reads, in order.
    pub content: Vec<Content>,
    /// A JSON value that fits the tool's output schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
}

impl ToolName {
    /// Longest name, in bytes. OpenAI and Anthropic refuse longer ones.
    pub const MAX_LEN: usize = 64;

    /// Checks a name.
    ///
    /// # Errors
    /// When it is empty, longer than [`ToolName::MAX_LEN`], or has a character that is not allowed.
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

    /// The name as text.
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

impl ToolOutput {
    /// An answer of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![Content::text(text)],
            structured: None,
        }
    }
}

impl CallContext {
    /// A context that shares nothing and hears nothing.
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
    fn a_name_is_ascii_starts_with_a_letter_and_has_at_most_64_bytes() {
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
    fn what_two_sessions_leave_is_the_least_of_each_and_says_what_is_used_up() {
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
    fn a_refused_name_is_shown_without_its_control_characters() {
        let message = ToolName::new("a\u{1b}[2Jb").unwrap_err().to_string();
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }

    struct Echo(ToolSpec);

    impl Tool for Echo {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn call(&self, call: ToolCall, _: CallContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
            Box::pin(std::future::ready(Ok(ToolOutput::text(call.id))))
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
            }]
        }
    }

    #[test]
    fn a_shared_tool_answers_as_the_tool_inside() {
        let name = ToolName::new("echo").unwrap();
        assert_eq!(name.as_str(), "echo");
        let spec = ToolSpec {
            name,
            title: None,
            description: String::new(),
            input: Arc::new(Schema::parse(r#"{"type":"object"}"#).unwrap()),
            output: None,
            hints: Hints::default(),
            annotations: BTreeMap::new(),
        };
        let tool = Arc::new(Echo(spec));
        assert_eq!(Tool::spec(&tool).name.to_string(), "echo");
        assert_eq!(Tool::max_use(&tool).fuel, Some(7));
        assert_eq!(Tool::places(&tool, &Value::Null)[0].plain, "null");
    }

    #[test]
    fn names_are_found_by_their_text() {
        let name = ToolName::new("echo").unwrap();
        let map = std::collections::HashMap::from([(name.clone(), 1)]);
        assert_eq!((map.get("echo"), map.get("other")), (Some(&1), None));
        assert_eq!(serde_json::to_string(&name).unwrap(), r#""echo""#);
    }

    #[test]
    fn a_text_is_an_answer_of_one_part() {
        let output = ToolOutput::text("x");
        assert_eq!(
            (output.content, output.structured),
            (vec![Content::text("x")], None)
        );
    }
}

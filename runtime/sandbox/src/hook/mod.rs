//! Hooks that are components: asked at fixed points of a turn, each time in a fresh cell.
//!
//! [`crate::Sandbox::load_hook`] makes a [`HookComponent`] of bytes; [`HookComponent::hook`] joins it with a policy and
//! gives a [`CellHook`], which has one method for each [`HookPoint`]. What a moment is about goes in as plain data, what the
//! hook wants comes out as plain data, and nothing of it has happened yet: the caller carries it out. A hook that fails
//! ([`HookFailure`]) wants nothing.
//!
//! | part of an answer | most | beyond |
//! |---|---|---|
//! | the whole answer | [`toolcell_core::Limits::output`] | it failed |
//! | arguments of a call | those of any call, [`toolcell_core::json`] | it failed |
//! | message, context, instructions and examples of a prompt | [`MAX_PROMPT`] together | it failed |
//! | values for later moments | [`MAX_VALUES`] together | it failed |
//! | a reason or a notice | [`MAX_TEXT`] | it is cut, with a mark |
//! | notices of one moment | [`MAX_NOTICES`] | the rest is counted in one more |

mod answer;
mod ask;
mod component;
mod manifest;

pub(crate) use component::LoadedHook;
pub use component::{CellHook, HookComponent};
pub(crate) use manifest::{Ask, HookManifest};

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolcell_core::ArgumentPlace;
use toolcell_core::event::NoticeLevel;
use toolcell_core::{Content, Receipt, ToolError, ToolName};

/// Most bytes that one moment may put into a conversation: some 60,000 tokens.
pub const MAX_PROMPT: usize = 256 << 10;

/// Most bytes of names and values that one moment may leave for later ones.
pub const MAX_VALUES: usize = 64 << 10;

/// Longest reason, notice or message of an error, in bytes.
pub const MAX_TEXT: usize = 4 << 10;

/// Most notices of one moment.
pub const MAX_NOTICES: usize = 32;

/// When a hook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Before the first request of a turn.
    BeforePrompt,
    /// Before each call whose arguments are in order.
    BeforeCall,
    /// After each call that ran.
    AfterCall,
    /// After a turn.
    AfterTurn,
    /// When something fails.
    OnError,
}

/// What a hook says of itself. All of it is a claim, on which a person has the last word.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HookSpec {
    /// Name for people.
    pub name: ToolName,
    /// What it does.
    pub description: String,
    /// When it wants to be asked.
    pub moments: BTreeSet<HookPoint>,
    /// Whether what it looks at must not happen when it fails.
    pub guard: bool,
    /// Higher comes first.
    pub priority: i32,
    /// Names of hooks that it wants to run before.
    pub before: Vec<String>,
    /// Names of hooks that it wants to run after.
    pub after: Vec<String>,
    /// Further claims, as names and JSON values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, Value>,
}

/// The turn that a moment belongs to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Turn {
    /// Identifier of the session.
    pub session: String,
    /// What hooks left in this turn.
    pub values: Map<String, Value>,
}

/// A turn that is about to begin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// What the person said, as earlier hooks left it.
    pub message: Vec<Content>,
    /// What the person said.
    pub original: Vec<Content>,
    /// Length of the conversation in tokens, as far as known.
    pub tokens: u64,
    /// The length at which it will be summarised.
    pub token_limit: Option<u64>,
}

/// A call that is about to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingCall {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// What the arguments lead to. The hook finds it as `places` in the context of the call, a JSON array.
    pub places: Vec<ArgumentPlace>,
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedCall {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// What was executed.
    pub arguments: Value,
    /// What the model reads.
    pub content: Vec<Content>,
    /// Why there is no answer.
    pub error: Option<Failure>,
    /// What it used.
    pub receipt: Option<Receipt>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// A turn that has ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FinishedTurn {
    /// How, in one word.
    pub outcome: String,
    /// The answer.
    pub text: String,
    /// Requests to the model.
    pub steps: u32,
    /// What else is known of the outcome.
    pub context: Map<String, Value>,
}

/// Something that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure, or where, in one word.
    pub kind: String,
    /// What is wrong.
    pub message: String,
}

/// What a hook decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    #[default]
    Proceed,
    /// This prompt is not sent, or this call is not made.
    Cancel {
        /// Why.
        reason: String,
    },
    /// The whole turn ends.
    Abort {
        /// Why.
        reason: String,
    },
}

/// What becomes of a prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptAnswer {
    /// Whether it is sent.
    pub verdict: Verdict,
    /// What takes the place of the message.
    pub message: Option<Vec<Content>>,
    /// What stands in front of the message.
    pub context: Vec<String>,
    /// Added to the system prompt for this turn.
    pub instructions: Vec<String>,
    /// Added to the system prompt for this turn.
    pub examples: Vec<Example>,
    /// What else the hook does.
    pub effects: Effects,
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

/// What becomes of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallAnswer {
    /// Whether it is made.
    pub verdict: Verdict,
    /// What takes the place of the arguments; the caller checks it against the schema of the tool again.
    pub arguments: Option<Map<String, Value>>,
    /// What else the hook does.
    pub effects: Effects,
}

/// What a hook does beside its answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Effects {
    /// What the person is told, in this order.
    pub notices: Vec<(NoticeLevel, String)>,
    /// What later moments of this turn find.
    pub values: Map<String, Value>,
}

/// Why a hook has no answer. Nothing of what it wanted happens.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HookFailure {
    /// Its cell came to no end of its own: a trap, a limit, or no cell at all.
    #[error("{}", cell_words(.0))]
    Cell(ToolError),
    /// It says so itself.
    #[error("{0}")]
    Said(String),
    /// Its answer breaks the rules.
    #[error("its answer makes no sense: {0}")]
    InvalidResponse(String),
}

/// An error of a cell, in words about a hook.
fn cell_words(error: &ToolError) -> String {
    match error {
        ToolError::Crashed { cause } => format!("it crashed: {cause}"),
        other => other.to_string(),
    }
}

impl HookPoint {
    /// All of them, in the order of a turn.
    pub const ALL: [Self; 5] = [
        Self::BeforePrompt,
        Self::BeforeCall,
        Self::AfterCall,
        Self::AfterTurn,
        Self::OnError,
    ];

    /// As it is written in configuration and messages, such as `before_call`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforePrompt => "before_prompt",
            Self::BeforeCall => "before_call",
            Self::AfterCall => "after_call",
            Self::AfterTurn => "after_turn",
            Self::OnError => "on_error",
        }
    }
}

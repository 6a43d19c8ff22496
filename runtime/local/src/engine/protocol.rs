//! Messages between a program and its engine: lines of JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::chat::{AnswerRules, Segment};
use crate::sampling::Sampling;

/// Maximum length of a line to the engine, in bytes: the longest prompt, escaped, and the largest grammar.
pub(super) const MAX_REQUEST_BYTES: usize = 128 << 20;

/// Maximum length of a line of the engine, in bytes: a long call, or the names of all control tokens.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Message to the engine. The first is `Load`; an answer follows each `Generate`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToEngine {
    Load(Load),
    Generate(Box<Generate>),
    /// Ends the current answer.
    Cancel,
}

/// Model to load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) path: PathBuf,
    /// Length of the context, in tokens.
    pub(super) context: u32,
    /// Number of threads that compute.
    pub(super) threads: u32,
    /// Sessions share keys and values of the same beginning.
    pub(super) shares_beginnings: bool,
}

/// Request for an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Generate {
    /// Session whose keys and values are kept.
    pub(super) session: Option<String>,
    pub(super) prompt: Vec<Segment>,
    /// Maximum number of tokens of the answer.
    pub(super) max_tokens: Option<u64>,
    pub(super) sampling: Sampling,
    /// Texts at which the answer ends.
    pub(super) stop: Vec<String>,
    pub(super) rules: AnswerRules,
}

/// Message of the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromEngine {
    /// The model is loaded.
    Loaded {
        /// Names of its control tokens.
        control: Vec<String>,
    },
    /// Text of the answer.
    Text(String),
    /// A complete call.
    Call(String),
    /// The answer is complete.
    Done(Done),
    /// The request failed; another one can be sent, except after `Load`.
    Failed(Fault),
}

/// End of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) stop: Stop,
    /// Tokens of the prompt.
    pub(super) input: u64,
    /// Tokens of the prompt whose keys and values were kept.
    pub(super) cached: u64,
    /// Tokens of the answer.
    pub(super) output: u64,
}

/// Reason for the end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stop {
    /// The model ended it, or a text did.
    Complete,
    MaxTokens,
    Cancelled,
}

/// Error of the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    #[error("the model cannot be used: {0}")]
    Model(String),
    #[error("the conversation has {tokens} tokens, and the context has {context}")]
    Context { tokens: u64, context: u64 },
    #[error("{0}")]
    Failed(String),
}

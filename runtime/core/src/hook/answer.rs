//! What a hook returns at each point: what it decides, and its [`Effects`].

use serde_json::{Map, Value};

use crate::event::NoticeLevel;
use crate::{Content, Message, Receipt};

/// Decision of a hook on what is about to happen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HookVerdict {
    /// The prompt is sent, the call is made.
    #[default]
    Proceed,
    /// The prompt is not sent, the call is not made.
    Cancel {
        /// Reason for the user, and of a call also for the model.
        reason: String,
    },
    /// The whole turn ends.
    Abort {
        /// Reason for the user.
        reason: String,
    },
}

/// What a hook returns beside its decision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Effects {
    /// Notices for the user, in this order.
    pub notices: Vec<Notice>,
    /// Values for later hooks of this turn ([`HookContext::values`](super::HookContext::values)); a name that is there
    /// gets the new value. They go into the journal as [`Event::ValuesShared`](crate::Event::ValuesShared), so they are no
    /// place for secrets; values that together are longer than 64 KiB of JSON stay in this process alone.
    pub values: Map<String, Value>,
    /// What the hook used, if it ran in a cell.
    pub receipt: Option<Box<Receipt>>,
}

/// A message to the user. The model does not read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Importance.
    pub level: NoticeLevel,
    /// The text.
    pub text: String,
}

/// Answer to [`Hook::before_prompt`](super::Hook::before_prompt). All but the verdict applies only if the turn proceeds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptAnswer {
    /// Whether the prompt is sent.
    pub verdict: HookVerdict,
    /// Replacement of the message; `None` leaves it as it is.
    pub message: Option<Vec<Content>>,
    /// Texts in front of the message in the conversation, each as a block of its own.
    pub context: Vec<String>,
    /// Texts added to the system prompt for this turn.
    pub instructions: Vec<String>,
    /// Examples added to the system prompt for this turn.
    pub examples: Vec<Example>,
    /// Notices, values and receipt; they apply whatever the verdict is.
    pub effects: Effects,
}

/// An example of a call for a message of the user.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// Message of the user.
    pub says: String,
    /// Name of the tool to call.
    pub tool: String,
    /// Arguments of the call.
    pub arguments: Map<String, Value>,
}

/// Answer to [`Hook::before_call`](super::Hook::before_call).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallAnswer {
    /// Whether the call is made.
    pub verdict: HookVerdict,
    /// Replacement of the arguments, checked against the tool's schema again; `None` leaves them as they are.
    pub arguments: Option<Map<String, Value>>,
    /// Notices, values and receipt; they apply whatever the verdict is.
    pub effects: Effects,
}

/// Answer to [`Hook::before_summary`](super::Hook::before_summary) and
/// [`Hook::after_summary`](super::Hook::after_summary).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SummaryAnswer {
    /// Replacement of the messages; `None` leaves them as they are.
    pub messages: Option<Vec<Message>>,
    /// Notices, values and receipt.
    pub effects: Effects,
}

impl CallAnswer {
    /// The call is made with these arguments.
    pub fn with_arguments(arguments: Map<String, Value>) -> Self {
        Self {
            arguments: Some(arguments),
            ..Self::default()
        }
    }

    /// The call is not made.
    pub fn cancel(reason: impl Into<String>) -> Self {
        Self {
            verdict: HookVerdict::Cancel {
                reason: reason.into(),
            },
            ..Self::default()
        }
    }

    /// The turn ends.
    pub fn abort(reason: impl Into<String>) -> Self {
        Self {
            verdict: HookVerdict::Abort {
                reason: reason.into(),
            },
            ..Self::default()
        }
    }
}

impl PromptAnswer {
    /// The turn ends before anything is sent.
    pub fn cancel(reason: impl Into<String>) -> Self {
        Self {
            verdict: HookVerdict::Cancel {
                reason: reason.into(),
            },
            ..Self::default()
        }
    }
}

impl Effects {
    /// Adds a notice for the user.
    #[must_use]
    pub fn notice(mut self, level: NoticeLevel, text: impl Into<String>) -> Self {
        let text = text.into();
        self.notices.push(Notice { level, text });
        self
    }

    /// Adds a value for later hooks of this turn.
    #[must_use]
    pub fn value(mut self, name: impl Into<String>, value: Value) -> Self {
        self.values.insert(name.into(), value);
        self
    }
}

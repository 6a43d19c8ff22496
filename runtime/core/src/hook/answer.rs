//! Results of hooks: decisions and [`Effects`].

use serde_json::{Map, Value};

use crate::event::NoticeLevel;
use crate::{Content, Message, Receipt};

/// Decision of a hook on a pending operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HookVerdict {
    /// Send the prompt, make the call, or summarise the conversation.
    #[default]
    Proceed,
    /// Do not send the prompt, do not make the call, or do not replace messages by the summary.
    Cancel {
        /// Reason for the user, and for a call also for the model.
        reason: String,
    },
    /// End the whole turn.
    Abort {
        /// Reason for the user.
        reason: String,
    },
}

/// Results of a hook in addition to its decision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Effects {
    /// Notices for the user, in order.
    pub notices: Vec<Notice>,
    /// Values for later hooks of this turn ([`HookContext::values`](super::HookContext::values)); an existing name gets
    /// the new value. They are stored in the journal as [`Event::ValuesShared`](crate::Event::ValuesShared), so they
    /// must not contain secrets; if they exceed 64 KiB of JSON in total, they are only kept in this process.
    pub values: Map<String, Value>,
    /// Receipt of the hook, if it ran in a cell.
    pub receipt: Option<Box<Receipt>>,
}

/// A message to the user. The model does not read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Severity of the notice.
    pub level: NoticeLevel,
    /// Text of the notice.
    pub text: String,
}

/// Result of [`Hook::before_prompt`](super::Hook::before_prompt). Everything but the verdict applies only if the turn
/// proceeds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptAnswer {
    /// Decision on sending the prompt.
    pub verdict: HookVerdict,
    /// Replacement of the message; `None` leaves it unchanged.
    pub message: Option<Vec<Content>>,
    /// Texts placed before the message in the conversation, each as a separate block.
    pub context: Vec<String>,
    /// Texts added to the system prompt for this turn.
    pub instructions: Vec<String>,
    /// Examples added to the system prompt for this turn.
    pub examples: Vec<Example>,
    /// Notices, values and receipt; they apply whatever the verdict.
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

/// Result of [`Hook::before_call`](super::Hook::before_call).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallAnswer {
    /// Decision on making the call.
    pub verdict: HookVerdict,
    /// Replacement of the arguments, validated against the tool's schema again; `None` leaves them unchanged.
    pub arguments: Option<Map<String, Value>>,
    /// Notices, values and receipt; they apply whatever the verdict.
    pub effects: Effects,
}

/// Result of [`Hook::before_summary`](super::Hook::before_summary) and
/// [`Hook::after_summary`](super::Hook::after_summary).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SummaryAnswer {
    /// Decision on the summary: if it is cancelled, the conversation stays as it is.
    pub verdict: HookVerdict,
    /// Replacement of the messages; `None` leaves them unchanged.
    pub messages: Option<Vec<Message>>,
    /// Notices, values and receipt; they apply whatever the verdict.
    pub effects: Effects,
}

impl CallAnswer {
    /// Makes the call with these arguments.
    pub fn with_arguments(arguments: Map<String, Value>) -> Self {
        Self {
            arguments: Some(arguments),
            ..Self::default()
        }
    }

    /// Cancels the call.
    pub fn cancel(reason: impl Into<String>) -> Self {
        Self {
            verdict: HookVerdict::Cancel {
                reason: reason.into(),
            },
            ..Self::default()
        }
    }

    /// Ends the turn.
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
    /// Ends the turn before anything is sent.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answer_decides_what_its_constructor_says_and_nothing_else() {
        let reason = || "no".to_owned();
        let cancelled = HookVerdict::Cancel { reason: reason() };
        let call = CallAnswer::cancel("no");
        assert_eq!((call.verdict, call.arguments), (cancelled.clone(), None));
        let call = CallAnswer::abort("no");
        assert_eq!(call.verdict, HookVerdict::Abort { reason: reason() });
        let arguments = Map::from_iter([("a".into(), json!(1))]);
        let call = CallAnswer::with_arguments(arguments.clone());
        assert_eq!(
            (call.verdict, call.arguments),
            (HookVerdict::Proceed, Some(arguments))
        );
        let prompt = PromptAnswer::cancel("no");
        assert_eq!((prompt.verdict, prompt.message), (cancelled, None));

        let effects = Effects::default()
            .value("a", json!(1))
            .notice(NoticeLevel::Error, "first")
            .value("a", json!(2))
            .notice(NoticeLevel::Info, "second");
        assert_eq!(effects.values, Map::from_iter([("a".into(), json!(2))]));
        let notices: Vec<_> = effects
            .notices
            .iter()
            .map(|n| (n.level, n.text.as_str()))
            .collect();
        assert_eq!(
            notices,
            [(NoticeLevel::Error, "first"), (NoticeLevel::Info, "second")]
        );
    }
}

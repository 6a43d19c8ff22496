//! Prompts: messages that a user begins a conversation with, beside the tools of a source.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::{CallResult, Content, Tool, ToolName};

/// Prompts of one source.
#[derive(Clone)]
pub struct Prompts {
    /// Descriptions.
    pub prompts: Vec<PromptSpec>,
    /// Gets one: the argument `name` is its name, `arguments` an object of texts. The result is that of [`PromptMessage::to_result`].
    pub getter: Arc<dyn Tool>,
}

/// Description of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSpec {
    /// Name, unique among all that are offered together.
    pub name: ToolName,
    /// Display name for the user.
    pub title: Option<String>,
    /// Description for the user.
    pub description: Option<String>,
    /// Arguments, in the order in which a user is asked for them.
    pub arguments: Vec<PromptArgument>,
}

/// Description of an argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    /// Name, unique in the prompt.
    pub name: String,
    /// Display name for the user.
    pub title: Option<String>,
    /// Description for the user.
    pub description: Option<String>,
    /// True if there is no prompt without it.
    pub required: bool,
    /// Permitted values; all are if it is empty.
    pub values: Vec<String>,
}

impl fmt::Debug for Prompts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompts")
            .field("prompts", &self.prompts)
            .finish_non_exhaustive()
    }
}

/// Author of a message of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptRole {
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl PromptRole {
    /// Returns the name in messages of protocols.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// Message of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptMessage {
    /// Author.
    pub role: PromptRole,
    /// Content.
    pub content: Content,
}

impl PromptMessage {
    /// Returns the result of a call that has these messages: the contents, and `{"roles": […]}` as the structured result.
    pub fn to_result(messages: Vec<Self>) -> CallResult {
        let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
        CallResult {
            structured: Some(json!({ "roles": roles })),
            content: messages.into_iter().map(|message| message.content).collect(),
            ..CallResult::default()
        }
    }

    /// Returns the roles of the messages in a result; `None` if it is not one of [`to_result`](Self::to_result), or was cut.
    pub fn roles(result: &CallResult) -> Option<Vec<PromptRole>> {
        let roles = result.structured.as_ref()?.get("roles")?.as_array()?;
        let role = |name: &Value| match name.as_str()? {
            "user" => Some(PromptRole::User),
            "assistant" => Some(PromptRole::Assistant),
            _ => None,
        };
        let roles: Option<Vec<_>> = roles.iter().map(role).collect();
        roles.filter(|roles| roles.len() == result.content.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_of_messages_survive_in_a_result() {
        let message = |role, text: &str| PromptMessage {
            role,
            content: Content::text(text),
        };
        let (user, assistant) = (PromptRole::User, PromptRole::Assistant);
        let mut result = PromptMessage::to_result(vec![message(user, "a"), message(assistant, "b")]);
        assert_eq!(PromptMessage::roles(&result), Some(vec![user, assistant]));
        result.content.pop();
        assert_eq!(PromptMessage::roles(&result), None);
        assert_eq!(PromptMessage::roles(&CallResult::text("x")), None);
    }
}

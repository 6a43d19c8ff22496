//! Prompts: messages that a user begins a conversation with. A component has them in addition to its tools.
//!
//! ```
//! use toolcell_sdk::prompts::{Argument, Arguments, Message, Prompt, Prompts};
//! use toolcell_sdk::{Context, Result, ToolError};
//!
//! struct Reviews;
//!
//! impl Prompts for Reviews {
//!     fn list() -> Vec<Prompt> {
//!         let style = Argument::new("style").values(["brief", "thorough"]);
//!         vec![Prompt::new("review").description("Reviews the open file.").argument(style)]
//!     }
//!
//!     fn get(_name: &str, arguments: &Arguments, _: &Context) -> Result<Vec<Message>> {
//!         let style = arguments.get("style").map_or("brief", String::as_str);
//!         Ok(vec![Message::user(format!("Review the open file. Be {style}."))])
//!     }
//! }
//!
//! toolcell_sdk::export_prompts!(Reviews);
//! # fn main() {
//! # assert_eq!(Reviews::get("review", &Arguments::new(), &Context::default()).unwrap().len(), 1);
//! # }
//! ```

use std::collections::BTreeMap;
use std::marker::PhantomData;

use crate::generated::prompts::exports::toolcell::tool::prompts as wire;
use crate::{Content, Context, Result};

/// Arguments of a prompt, by name.
pub type Arguments = BTreeMap<String, String>;

/// Prompts of a component, exported with [`export_prompts!`](crate::export_prompts).
pub trait Prompts {
    /// Returns their descriptions. The host calls this when it begins to offer them, with nothing granted.
    fn list() -> Vec<Prompt>;

    /// Returns the messages of a prompt, in an instance of its own and with what the policy grants. The arguments are those that its
    /// description permits, among them the required ones.
    ///
    /// # Errors
    /// The reason why there are none.
    fn get(name: &str, arguments: &Arguments, context: &Context) -> Result<Vec<Message>>;
}

/// Description of a prompt.
#[derive(Debug, Clone)]
pub struct Prompt(wire::PromptInfo);

impl Prompt {
    /// Creates a description from a name, with the rules of the name of a tool.
    pub fn new(name: impl Into<String>) -> Self {
        Self(wire::PromptInfo {
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
            annotations: Vec::new(),
        })
    }

    /// Sets the display name.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.0.title = Some(title.into());
        self
    }

    /// Sets the description for the user.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.0.description = Some(description.into());
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: Argument) -> Self {
        self.0.arguments.push(argument.0);
        self
    }
}

/// Description of an argument of a prompt.
#[derive(Debug, Clone)]
pub struct Argument(wire::Argument);

impl Argument {
    /// Creates the description of an argument that may be left out.
    pub fn new(name: impl Into<String>) -> Self {
        Self(wire::Argument {
            name: name.into(),
            title: None,
            description: None,
            required: false,
            values: Vec::new(),
        })
    }

    /// Makes the argument a required one.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.0.required = true;
        self
    }

    /// Sets the description for the user.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.0.description = Some(description.into());
        self
    }

    /// Sets the permitted values, which clients suggest.
    #[must_use]
    pub fn values<T: Into<String>>(mut self, values: impl IntoIterator<Item = T>) -> Self {
        self.0.values = values.into_iter().map(Into::into).collect();
        self
    }
}

/// Message of a prompt.
#[derive(Debug, Clone)]
pub struct Message(wire::Message);

impl Message {
    /// Creates a message of the user.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::of(wire::Role::User, content.into())
    }

    /// Creates a message of the model.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::of(wire::Role::Assistant, content.into())
    }

    fn of(role: wire::Role, content: Content) -> Self {
        Self(wire::Message {
            role,
            content: content.into(),
        })
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Exports prompts. Once per crate, which also has tools, with [`export!`](crate::export).
///
/// See [`prompts`](mod@crate::prompts) for an example.
#[macro_export]
macro_rules! export_prompts {
    ($prompts:ty) => {
        #[allow(unsafe_code, non_local_definitions)]
        const _: () = {
            // Defined in the root of the crate, where a second one is an error.
            #[doc(hidden)]
            #[macro_export]
            macro_rules! one_type_has_all_prompts {
                () => {};
            }

            type Component = $crate::prompts::Exported<$prompts>;

            #[cfg(target_family = "wasm")]
            $crate::generated::prompts::__export_prompt_provider!(Component with_types_in $crate::generated::prompts);
            #[cfg(not(target_family = "wasm"))]
            const _: ::std::marker::PhantomData<Component> = ::std::marker::PhantomData;
        };
    };
}

/// Implementation of the WIT contract by prompts.
#[derive(Debug)]
pub struct Exported<P>(PhantomData<P>);

impl<P: Prompts> wire::Guest for Exported<P> {
    fn list() -> Vec<wire::PromptInfo> {
        P::list().into_iter().map(|prompt| prompt.0).collect()
    }

    fn get(request: wire::Request) -> Result<Vec<wire::Message>, wire::ToolError> {
        let context = Context::received(request.id, request.context);
        let messages = P::get(&request.name, &request.arguments.into_iter().collect(), &context)?;
        Ok(messages.into_iter().map(|message| message.0).collect())
    }
}

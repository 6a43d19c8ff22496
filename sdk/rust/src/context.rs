//! Context of a call.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Context of a call, passed to a parameter of type `&Context`, which is not part of the schema.
///
/// ```
/// use toolcell_sdk::{Context, tool};
///
/// /// Greets the user in the user's language.
/// #[tool]
/// fn greet(context: &Context) -> &'static str {
///     match context.value::<String>("locale").as_deref() {
///         Some("de") => "Guten Tag",
///         _ => "Good day",
///     }
/// }
/// # assert_eq!(greet(&Context::default()), "Good day");
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    call_id: String,
    values: Vec<(String, Value)>,
}

impl Context {
    /// Creates a context with these values, for tests.
    pub fn new(call_id: impl Into<String>, values: impl IntoIterator<Item = (String, Value)>) -> Self {
        Self {
            call_id: call_id.into(),
            values: values.into_iter().collect(),
        }
    }

    /// Creates the context of a request of the host.
    pub(crate) fn received(call_id: String, values: Vec<(String, String)>) -> Self {
        let values = values.into_iter().filter_map(|(name, json)| {
            // Invalid JSON in a context value is an error of the host, not a reason to refuse the call.
            Some((name, serde_json::from_str(&json).ok()?))
        });
        Self::new(call_id, values)
    }

    /// Identifier of this call, unique in the session.
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    /// Value that the host shares with every tool of the session under a name (such as `session` or `locale`); `None`
    /// if there is none of this name and type.
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let (_, value) = self.values.iter().find(|(known, _)| known == name)?;
        T::deserialize(value).ok()
    }
}

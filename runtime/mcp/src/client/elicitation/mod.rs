//! Questions of a server to the user: forms of a few fields. They are answered by the user or refused, never by a model.

mod asking;
#[cfg(test)]
mod call_tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolcell_core::redact::Redactor;
use toolcell_core::schema::Mismatch;
use toolcell_core::{BoxFuture, Schema};

use super::error::excerpt;

pub(super) use asking::{Asking, Questions, RunningCall, Stopwatch, TOO_MANY, answer};

/// Maximum number of fields of a form. A longer one is refused.
pub const MAX_FIELDS: usize = 16;

/// Maximum number of values that a field offers.
pub const MAX_CHOICES: usize = 32;

/// Maximum number of questions until the call that they belong to is answered. Calls at one time share theirs where a server
/// does not say to which one a question belongs.
pub const MAX_ELICITATIONS: u32 = 8;

/// Method of the request.
pub(super) const METHOD: &str = "elicitation/create";

/// Asks the user on behalf of a server.
pub trait Elicitor: std::fmt::Debug + Send + Sync {
    /// Asks the user. Dropping the future withdraws the question.
    fn elicit(&self, elicitation: Elicitation) -> BoxFuture<'_, ElicitationAnswer>;
}

/// A question of a server. All texts are the server's.
#[derive(Debug, Clone)]
pub struct Elicitation {
    /// Name of the server in the configuration.
    pub server: String,
    /// Its message.
    pub message: String,
    /// Values that it wants, by name.
    pub fields: Vec<ElicitationField>,
    schema: Arc<Schema>,
}

/// A value that a server wants.
#[derive(Debug, Clone, PartialEq)]
pub struct ElicitationField {
    /// Its name.
    pub name: String,
    /// Title and description.
    pub about: String,
    /// True if the form is incomplete without it.
    pub is_required: bool,
    /// Kind of value.
    pub kind: FieldKind,
}

/// Kind of a value in a form.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldKind {
    /// A text.
    Text,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// Yes or no.
    Boolean,
    /// One of these texts.
    Choice(Vec<String>),
}

/// Answer of the user.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationAnswer {
    /// The values by name.
    Accept(Map<String, Value>),
    /// The user refuses.
    Decline,
    /// The user gave no answer.
    Cancel,
}

impl Elicitation {
    /// Reads the parameters of a request.
    ///
    /// # Errors
    /// The reason for which this client refuses it.
    pub(super) fn read(
        server: &str,
        redactor: &Redactor,
        params: Map<String, Value>,
    ) -> Result<Self, &'static str> {
        let mut params = Value::Object(params);
        redactor.json(&mut params);
        if !matches!(params["mode"].as_str(), None | Some("form")) {
            return Err("this client shows forms only");
        }
        let message = params["message"].as_str().ok_or("the request has no message")?;
        let wanted = match params.get("requestedSchema") {
            None | Some(Value::Null) => json!({ "type": "object" }),
            Some(schema) => schema.clone(),
        };
        let schema = Schema::new(wanted.clone()).map_err(|_| "the schema of the form cannot be used")?;
        let no_properties = Map::new();
        let properties = wanted["properties"].as_object().unwrap_or(&no_properties);
        if properties.len() > MAX_FIELDS {
            return Err("the form has too many fields");
        }
        let required: Vec<&str> = wanted["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let fields: Option<BTreeMap<&str, ElicitationField>> = properties
            .iter()
            .map(|(name, about)| {
                let field = ElicitationField {
                    name: name.clone(),
                    about: [&about["title"], &about["description"]]
                        .into_iter()
                        .filter_map(Value::as_str)
                        .map(|text| excerpt(text, redactor))
                        .collect::<Vec<_>>()
                        .join(": "),
                    is_required: required.contains(&name.as_str()),
                    kind: kind(about)?,
                };
                Some((name.as_str(), field))
            })
            .collect();
        Ok(Self {
            server: server.to_owned(),
            message: excerpt(message, redactor),
            fields: fields
                .ok_or("a field of the form is of an unknown kind")?
                .into_values()
                .collect(),
            schema: Arc::new(schema),
        })
    }

    /// Checks the values of all fields.
    ///
    /// # Errors
    /// The reasons for which the form is incomplete or a value does not fit.
    pub fn check(&self, values: &Map<String, Value>) -> Result<(), String> {
        let values = Value::Object(values.clone());
        self.schema
            .validate(&values)
            .map_err(|mismatches| Mismatch::list(&mismatches))
    }
}

fn kind(about: &Value) -> Option<FieldKind> {
    let choices = match (&about["enum"], &about["oneOf"]) {
        (Value::Array(values), _) => Some(values.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?),
        (_, Value::Array(values)) => {
            let values = values.iter().map(|value| value["const"].as_str());
            Some(values.collect::<Option<Vec<_>>>()?)
        }
        _ => None,
    };
    Some(match (choices, about["type"].as_str()?) {
        (Some(choices), "string") if (1..=MAX_CHOICES).contains(&choices.len()) => {
            FieldKind::Choice(choices.into_iter().map(str::to_owned).collect())
        }
        (Some(_), _) => return None,
        (None, "string") => FieldKind::Text,
        (None, "number") => FieldKind::Number,
        (None, "integer") => FieldKind::Integer,
        (None, "boolean") => FieldKind::Boolean,
        (None, _) => return None,
    })
}

impl ElicitationField {
    /// The value that a user means with a line of text; `None` if it is none of this kind.
    pub fn value(&self, typed: &str) -> Option<Value> {
        let typed = typed.trim();
        match &self.kind {
            FieldKind::Text => Some(json!(typed)),
            FieldKind::Integer => typed.parse::<i64>().ok().map(Value::from),
            FieldKind::Number => {
                let number = typed.parse::<f64>().ok().filter(|number| number.is_finite())?;
                Some(json!(number))
            }
            FieldKind::Boolean => match typed.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Some(json!(true)),
                "n" | "no" | "false" => Some(json!(false)),
                _ => None,
            },
            FieldKind::Choice(choices) => {
                let is_it = |choice: &&String| choice.as_str() == typed;
                choices.iter().find(is_it).map(|choice| json!(choice))
            }
        }
    }
}

impl ElicitationAnswer {
    /// The result of the request.
    pub(super) fn result(self) -> Value {
        match self {
            Self::Accept(values) => json!({ "action": "accept", "content": values }),
            Self::Decline => json!({ "action": "decline" }),
            Self::Cancel => json!({ "action": "cancel" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use toolcell_core::Secrets;

    use super::*;

    fn read(params: Value) -> Result<Elicitation, &'static str> {
        let params = params.as_object().unwrap().clone();
        Elicitation::read("srv", &Secrets::default().redactor(), params)
    }

    fn form(properties: Value) -> Result<Elicitation, &'static str> {
        read(json!({
            "message": "m", "requestedSchema": {"type": "object", "properties": properties, "required": ["a"]},
        }))
    }

    #[test]
    fn typed_lines_become_values_of_their_fields() {
        let form = form(json!({
            "a": {"type": "string", "title": "T", "description": "D"}, "b": {"type": "integer"},
            "c": {"type": "number"}, "d": {"type": "boolean"}, "e": {"type": "string", "enum": ["x", "y"]},
            "f": {"type": "string", "oneOf": [{"const": "v", "title": "V"}]},
        }))
        .unwrap();
        let value = |name: &str, typed: &str| {
            let mut fields = form.fields.iter();
            fields.find(|field| field.name == name).unwrap().value(typed)
        };
        for (name, typed, expected) in [
            ("a", " x ", Some(json!("x"))),
            ("b", "-4", Some(json!(-4))),
            ("b", "4.5", None),
            ("c", "4.5", Some(json!(4.5))),
            ("c", "inf", None),
            ("d", "Yes", Some(json!(true))),
            ("d", "no", Some(json!(false))),
            ("d", "maybe", None),
            ("e", "y", Some(json!("y"))),
            ("e", "z", None),
            ("f", "v", Some(json!("v"))),
        ] {
            assert_eq!(value(name, typed), expected, "{name} {typed}");
        }
        assert_eq!(
            (&*form.fields[0].about, form.fields[0].is_required),
            ("T: D", true)
        );
        assert!(!form.fields[1].is_required);
        let values = |values: Value| form.check(values.as_object().unwrap());
        assert_eq!(values(json!({"a": "x"})), Ok(()));
        assert!(values(json!({"b": 1})).is_err());
    }

    #[test]
    fn form_that_cannot_be_shown_is_refused() {
        let many = |count: usize| {
            let fields = (0..count).map(|i| (format!("f{i}"), json!({"type": "string"})));
            form(Value::Object(fields.collect()))
        };
        assert!(many(MAX_FIELDS).is_ok());
        assert_eq!(many(MAX_FIELDS + 1).unwrap_err(), "the form has too many fields");
        let choices = |count: usize| form(json!({"a": {"type": "string", "enum": vec!["x"; count]}}));
        assert!(choices(MAX_CHOICES).is_ok() && choices(MAX_CHOICES + 1).is_err() && choices(0).is_err());
        for field in [
            json!({"type": "array"}),
            json!({"type": "object"}),
            json!({}),
            json!(1),
        ] {
            assert!(form(json!({ "a": field })).is_err(), "{field}");
        }
        assert!(read(json!({"message": "m", "mode": "url", "url": "https://x"})).is_err());
        assert!(read(json!({"requestedSchema": {"type": "object"}})).is_err());
        assert!(read(json!({"message": "Go on?"})).unwrap().fields.is_empty());
    }
}

//! Aliases of parameters: names that models guess, replaced by the names of the schema before a call is checked.
//!
//! A rule, a hook or a question judges an argument by its name. So a call has one spelling: the aliases of a tool are
//! replaced as soon as its arguments are parsed, before they are validated, and the schema contains no alias.

use serde_json::{Map, Value};

use crate::{ToolError, ToolSpec};

/// Name of the annotation that has the aliases of a tool: a JSON object with the name of a parameter for each alias.
pub const ALIASES: &str = "aliases";

impl ToolSpec {
    /// Replaces aliases among the names of the arguments by the names of their parameters.
    ///
    /// An alias is replaced only if the schema has the parameter, not the alias, and accepts no unknown names. Every other
    /// name stays, so that the schema refuses it. A parameter that is given by two names with one value is given once.
    ///
    /// # Errors
    /// [`ToolError::InvalidArguments`] if a parameter is given by two names with different values: which of them was meant is
    /// unknown. Both stay.
    pub fn replace_aliases(&self, arguments: &mut Map<String, Value>) -> Result<(), ToolError> {
        let Some(aliases) = self.annotations.get(ALIASES).and_then(Value::as_object) else {
            return Ok(());
        };
        let schema = self.input.as_value();
        let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false))
            && schema.get("patternProperties").is_none();
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return Ok(());
        };
        if !is_closed {
            return Ok(());
        }
        let mut used: Vec<(String, &str)> = Vec::new();
        for alias in arguments.keys().filter(|alias| !properties.contains_key(*alias)) {
            let name = aliases.get(alias).and_then(Value::as_str);
            if let Some(name) = name.filter(|name| properties.contains_key(*name)) {
                let same = used.iter().find(|(_, other)| *other == name);
                let other = same.map_or(name, |(other, _)| other);
                if arguments
                    .get(other)
                    .is_some_and(|value| *value != arguments[alias])
                {
                    return Err(ToolError::invalid(format!(
                        "`{other}` and `{alias}` are names of the same parameter, with different values; give only `{name}`"
                    )));
                }
                used.push((alias.clone(), name));
            }
        }
        for (alias, name) in used {
            if let Some(value) = arguments.remove(&alias) {
                arguments.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::tool::Hints;
    use crate::{Schema, ToolName};

    fn replaced(schema: Value, aliases: Value, arguments: Value) -> Result<Value, String> {
        let spec = ToolSpec {
            name: ToolName::new("t").unwrap(),
            title: None,
            description: String::new(),
            input: Arc::new(Schema::for_arguments(&schema.to_string()).unwrap()),
            output: None,
            hints: Hints::default(),
            annotations: BTreeMap::from([(ALIASES.to_owned(), aliases)]),
        };
        let Value::Object(mut arguments) = arguments else {
            panic!("no object");
        };
        match spec.replace_aliases(&mut arguments) {
            Ok(()) => Ok(Value::Object(arguments)),
            Err(error) => Err(error.for_model()),
        }
    }

    fn closed() -> Value {
        json!({
            "type": "object",
            "properties": { "path": { "type": "string" }, "text": { "type": "string" } },
            "additionalProperties": false,
        })
    }

    #[test]
    fn alias_is_replaced_by_the_name_of_its_parameter() {
        let aliases = json!({ "file_path": "path", "filename": "path" });
        for (given, expected) in [
            (json!({ "file_path": "a" }), json!({ "path": "a" })),
            (json!({ "path": "a" }), json!({ "path": "a" })),
            (
                json!({ "filename": "a", "text": "b" }),
                json!({ "path": "a", "text": "b" }),
            ),
            (json!({ "path": "a", "file_path": "a" }), json!({ "path": "a" })),
            (
                json!({ "file_path": "a", "filename": "a" }),
                json!({ "path": "a" }),
            ),
            (json!({ "File_Path": "a" }), json!({ "File_Path": "a" })),
        ] {
            assert_eq!(replaced(closed(), aliases.clone(), given), Ok(expected));
        }
    }

    #[test]
    fn two_names_with_different_values_are_refused_by_both() {
        let aliases = json!({ "file_path": "path", "filename": "path" });
        for (given, names) in [
            (json!({ "path": "a", "file_path": "b" }), "`path` and `file_path`"),
            (json!({ "file_path": "a", "path": "b" }), "`path` and `file_path`"),
            (
                json!({ "file_path": "a", "filename": "b" }),
                "`file_path` and `filename`",
            ),
            (
                json!({ "path": "a", "file_path": "a", "filename": null }),
                "`file_path` and `filename`",
            ),
        ] {
            let error = replaced(closed(), aliases.clone(), given.clone()).unwrap_err();
            assert!(
                error.contains(names) && error.contains("give only `path`"),
                "{given}: {error}"
            );
        }
    }

    #[test]
    fn alias_never_replaces_a_name_that_the_schema_accepts() {
        let given = || json!({ "text": "a", "other": "b" });
        for (schema, aliases) in [
            // A parameter itself.
            (closed(), json!({ "text": "path" })),
            // A parameter that the tool does not have.
            (closed(), json!({ "other": "missing" })),
            // Any name is accepted, and may have a rule.
            (
                json!({ "type": "object", "properties": { "path": {} } }),
                json!({ "other": "path" }),
            ),
            (
                json!({
                    "type": "object", "properties": { "path": {} }, "additionalProperties": false,
                    "patternProperties": { "^o": {} },
                }),
                json!({ "other": "path" }),
            ),
            // No object with names.
            (closed(), json!(["other"])),
            (closed(), json!({ "other": 1 })),
        ] {
            assert_eq!(replaced(schema, aliases, given()), Ok(given()));
        }
    }
}

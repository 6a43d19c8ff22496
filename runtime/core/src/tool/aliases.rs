//! Aliases of parameters: names that models guess, replaced by the names of the schema before a call is checked.
//!
//! A rule, a hook or a question judges an argument by its name. So a call has one spelling: the aliases of a tool are
//! replaced as soon as its arguments are parsed, before they are validated, and the schema contains no alias.

use serde_json::{Map, Value};

use crate::ToolSpec;

/// Name of the annotation that has the aliases of a tool: a JSON object with the name of a parameter for each alias.
pub const ALIASES: &str = "aliases";

impl ToolSpec {
    /// Replaces aliases among the names of the arguments by the names of their parameters.
    ///
    /// An alias is replaced only if the schema has the parameter, not the alias, accepts no unknown names, and the call
    /// does not have the parameter under its own name. Every other name stays, so that the schema refuses it.
    pub fn replace_aliases(&self, arguments: &mut Map<String, Value>) {
        let Some(aliases) = self.annotations.get(ALIASES).and_then(Value::as_object) else {
            return;
        };
        let schema = self.input.as_value();
        let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false))
            && schema.get("patternProperties").is_none();
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return;
        };
        if !is_closed {
            return;
        }
        let used: Vec<String> = arguments.keys().cloned().collect();
        for alias in used {
            let name = aliases.get(&alias).and_then(Value::as_str);
            let name = name.filter(|name| properties.contains_key(*name) && !arguments.contains_key(*name));
            if let Some(name) = name
                && !properties.contains_key(&alias)
                && let Some(value) = arguments.remove(&alias)
            {
                arguments.insert(name.to_owned(), value);
            }
        }
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

    fn replaced(schema: Value, aliases: Value, arguments: Value) -> Value {
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
        spec.replace_aliases(&mut arguments);
        Value::Object(arguments)
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
            // Which of two was meant is unknown: the second stays, and the schema refuses it.
            (
                json!({ "path": "a", "file_path": "b" }),
                json!({ "path": "a", "file_path": "b" }),
            ),
            (
                json!({ "file_path": "a", "filename": "b" }),
                json!({ "path": "a", "filename": "b" }),
            ),
            (json!({ "File_Path": "a" }), json!({ "File_Path": "a" })),
        ] {
            assert_eq!(replaced(closed(), aliases.clone(), given), expected);
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
            assert_eq!(replaced(schema, aliases, given()), given());
        }
    }
}

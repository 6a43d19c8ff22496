//! Inlining of references in a schema.

use serde_json::{Map, Value};

use super::ANNOTATIONS;

/// Maximum nodes of the result. Nested references can expand to a schema of any size.
const MAX_NODES: usize = 100_000;

/// Maximum nesting of the result.
const MAX_DEPTH: usize = 100;

/// Reason why references cannot be inlined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InlineError {
    #[error("the schema is recursive")]
    Recursive,
    #[error("the schema is too large after inlining its references")]
    TooLarge,
    #[error("a reference has no target")]
    Missing,
    #[error("a reference has sibling constraints")]
    Siblings,
}

/// Inlines every reference. The result has no `$defs`.
pub(super) fn inline(root: &Value) -> Result<Value, InlineError> {
    Inliner {
        root,
        open: Vec::new(),
        nodes: 0,
    }
    .node(root, 0)
}

struct Inliner<'a> {
    root: &'a Value,
    /// References that are being inlined.
    open: Vec<&'a str>,
    nodes: usize,
}

impl<'a> Inliner<'a> {
    fn node(&mut self, node: &'a Value, depth: usize) -> Result<Value, InlineError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return Err(InlineError::TooLarge);
        }
        match node {
            Value::Object(map) => match map.get("$ref") {
                Some(Value::String(target)) => self.reference(target, map, depth),
                _ => self.object(map, depth),
            },
            Value::Array(items) => items.iter().map(|item| self.node(item, depth + 1)).collect(),
            other => Ok(other.clone()),
        }
    }

    fn object(&mut self, map: &'a Map<String, Value>, depth: usize) -> Result<Value, InlineError> {
        let mut inlined = Map::new();
        for (keyword, value) in map {
            let value = match keyword.as_str() {
                "$defs" | "definitions" => continue,
                // Data, not schemas: `{"const": {"$ref": "x"}}` is not a reference.
                "const" | "enum" | "default" | "examples" => value.clone(),
                // Property names are not keywords: one may be called `$ref`.
                "properties" | "patternProperties" | "dependentSchemas" => match value {
                    Value::Object(named) => {
                        let mut out = Map::new();
                        for (name, schema) in named {
                            out.insert(name.clone(), self.node(schema, depth + 1)?);
                        }
                        Value::Object(out)
                    }
                    other => other.clone(),
                },
                _ => self.node(value, depth + 1)?,
            };
            inlined.insert(keyword.clone(), value);
        }
        Ok(Value::Object(inlined))
    }

    fn reference(
        &mut self,
        target: &'a str,
        siblings: &'a Map<String, Value>,
        depth: usize,
    ) -> Result<Value, InlineError> {
        if self.open.contains(&target) {
            return Err(InlineError::Recursive);
        }
        if siblings
            .keys()
            .any(|k| k != "$ref" && !ANNOTATIONS.contains(&k.as_str()))
        {
            return Err(InlineError::Siblings);
        }
        let found = target
            .strip_prefix('#')
            .and_then(|pointer| self.root.pointer(pointer))
            .ok_or(InlineError::Missing)?;
        self.open.push(target);
        let mut inlined = self.node(found, depth + 1)?;
        self.open.pop();
        // Sibling annotations apply to this use of the reference.
        if let Value::Object(map) = &mut inlined {
            for (keyword, value) in siblings {
                if keyword != "$ref" && keyword != "$defs" {
                    map.insert(keyword.clone(), value.clone());
                }
            }
        }
        Ok(inlined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_inlined_with_sibling_annotations() {
        let schema = json!({
            "$defs": {"A": {"type": "string", "description": "a"}},
            "type": "object",
            "properties": {"$ref": {"$ref": "#/$defs/A", "description": "mine"}},
        });
        assert_eq!(
            inline(&schema).unwrap(),
            json!({"type": "object", "properties": {"$ref": {"type": "string", "description": "mine"}}})
        );
    }

    #[test]
    fn references_that_cannot_be_inlined_are_refused() {
        let with = |a: Value| json!({"$defs": {"A": a}, "$ref": "#/$defs/A"});
        for (schema, error) in [
            (
                with(json!({"items": {"$ref": "#/$defs/A"}})),
                InlineError::Recursive,
            ),
            (json!({"$ref": "#/$defs/B"}), InlineError::Missing),
            (
                json!({"$defs": {"A": {}}, "$ref": "#/$defs/A", "minLength": 1}),
                InlineError::Siblings,
            ),
        ] {
            assert_eq!(inline(&schema), Err(error), "{schema}");
        }
    }

    #[test]
    fn exponential_references_stay_within_the_node_limit() {
        let mut defs = Map::new();
        defs.insert("d0".into(), json!({"type": "string"}));
        for n in 1..40 {
            let below = format!("#/$defs/d{}", n - 1);
            defs.insert(
                format!("d{n}"),
                json!({"anyOf": [{"$ref": below}, {"$ref": below}]}),
            );
        }
        let schema = json!({"$defs": defs, "$ref": "#/$defs/d39"});
        assert_eq!(inline(&schema), Err(InlineError::TooLarge));
    }
}

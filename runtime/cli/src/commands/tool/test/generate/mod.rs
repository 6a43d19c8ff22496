//! Arguments generated from a schema: valid ones, and some that break one rule each.
//!
//! The same schema and seed give the same arguments on every machine. What is generated is validated by the schema itself,
//! so that a keyword which this file does not know leads to fewer arguments, never to wrong ones.

mod value;

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use toolcell_core::Schema;

use value::{Generator, Optional};

/// Maximum number of references that are followed for one value.
const MAX_REFERENCES: usize = 16;

/// Attempts for each valid value.
const ATTEMPTS: usize = 8;

/// Arguments that break one rule of a schema.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Broken {
    /// The broken rule.
    pub(super) rule: String,
    pub(super) arguments: Map<String, Value>,
}

/// Generates up to `count` different valid arguments. The first have only what is required, the second everything.
pub(super) fn valid(schema: &Schema, seed: u64, count: usize) -> Vec<Map<String, Value>> {
    let mut found: Vec<Map<String, Value>> = Vec::new();
    // Such values take the longest, and others are unlikely to follow.
    let mut too_large = 0;
    let mut generator = Generator::new(schema.as_value(), seed);
    for attempt in 0..count.saturating_mul(ATTEMPTS) {
        if found.len() == count {
            break;
        }
        generator.optional = match attempt {
            0 => Optional::None,
            1 => Optional::All,
            _ => Optional::Some,
        };
        let Some(value) = generator.generate() else {
            too_large += 1;
            if too_large == ATTEMPTS {
                break;
            }
            continue;
        };
        if let Value::Object(arguments) = value
            && !found.contains(&arguments)
            && schema.validate(&Value::Object(arguments.clone())).is_ok()
        {
            found.push(arguments);
        }
    }
    found
}

/// Generates arguments that break one rule each, from valid ones.
pub(super) fn broken(schema: &Schema, base: &Map<String, Value>) -> Vec<Broken> {
    let root = schema.as_value();
    let mut all = Vec::new();
    let mut add = |rule: String, change: &dyn Fn(&mut Map<String, Value>)| {
        let mut arguments = base.clone();
        change(&mut arguments);
        all.push(Broken { rule, arguments });
    };
    for name in required(root) {
        add(format!("without `{name}`"), &|arguments| {
            arguments.remove(name);
        });
    }
    let properties = root.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let property = resolve(root, property);
        let set = |value: Value| {
            let name = name.clone();
            move |arguments: &mut Map<String, Value>| {
                arguments.insert(name.clone(), value.clone());
            }
        };
        if let Some(value) = other_type(&property) {
            add(format!("`{name}` of another type"), &set(value));
        }
        if property.get("enum").is_some_and(Value::is_array) {
            add(
                format!("`{name}` beyond its values"),
                &set("not one of them \u{2603}".into()),
            );
        }
        let integer = property.get("type").and_then(Value::as_str) == Some("integer");
        for (keyword, step) in [("minimum", -1_i64), ("maximum", 1)] {
            let bound = property.get(keyword).filter(|_| integer).and_then(Value::as_i64);
            if let Some(beyond) = bound.and_then(|bound| bound.checked_add(step)) {
                add(format!("`{name}` beyond its {keyword}"), &set(beyond.into()));
            }
        }
    }
    if root.get("additionalProperties") == Some(&Value::Bool(false)) {
        add("with an unknown parameter".into(), &|arguments| {
            arguments.insert("parameter_that_does_not_exist".into(), json!(1));
        });
    }
    // A value of another type can happen to be right where schemas are combined.
    all.retain(|broken| schema.validate(&Value::Object(broken.arguments.clone())).is_err());
    all
}

/// Names of required members, in order.
fn required(schema: &Value) -> impl Iterator<Item = &str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

/// Follows references inside the schema.
pub(super) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> Cow<'a, Value> {
    let mut current = schema;
    for _ in 0..MAX_REFERENCES {
        let Some(target) = current.get("$ref").and_then(Value::as_str) else {
            break;
        };
        let pointer = target.strip_prefix('#').unwrap_or_default();
        match root.pointer(pointer) {
            Some(found) => current = found,
            None => break,
        }
    }
    if std::ptr::eq(current, schema) || schema.as_object().is_none_or(|members| members.len() == 1) {
        return Cow::Borrowed(current);
    }
    // Keywords beside a reference hold as well.
    Cow::Owned(merged(current, schema))
}

/// The keywords of both, those of the second first.
fn merged(base: &Value, over: &Value) -> Value {
    let (Some(base), Some(over)) = (base.as_object(), over.as_object()) else {
        return base.clone();
    };
    let mut all = base.clone();
    for (name, value) in over {
        match (all.get_mut(name), value) {
            (Some(Value::Object(known)), Value::Object(more)) if name == "properties" => {
                known.extend(more.clone());
            }
            (Some(Value::Array(known)), Value::Array(more)) if name == "required" => {
                known.extend(more.iter().cloned());
            }
            _ if name == "$ref" => {}
            _ => {
                all.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(all)
}

/// A value of a type that the schema does not allow; `None` if it states no types.
fn other_type(schema: &Value) -> Option<Value> {
    let names: Vec<&str> = match schema.get("type")? {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let candidates = [
        ("object", json!({"unexpected": true})),
        ("array", json!([[1]])),
        ("boolean", json!(true)),
        ("number", json!(0.5)),
        ("string", json!("text")),
    ];
    let other = candidates.into_iter().find(|(name, _)| !names.contains(name));
    other.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::value::MAX_NODES;
    use super::*;

    fn schema(properties: Value, required: &[&str]) -> Schema {
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            "$defs": {"unit": {"enum": ["m", "km"]}},
        });
        Schema::new(schema).unwrap()
    }

    fn rich() -> Schema {
        let properties = json!({
            "text": {"type": "string", "minLength": 3, "maxLength": 8},
            "n": {"type": "integer", "minimum": -2, "maximum": 7},
            "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d+$"},
            "unit": {"$ref": "#/$defs/unit"},
            "list": {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 1},
            "either": {"oneOf": [{"type": "boolean"}, {"type": "string"}]},
            "nested": {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]},
            "maybe": {"type": ["integer", "null"]},
        });
        schema(properties, &["text", "code", "unit"])
    }

    #[test]
    fn generated_arguments_are_valid_and_the_same_each_time() {
        let schema = rich();
        let all = valid(&schema, 1, 40);
        assert_eq!(all.len(), 40);
        for arguments in &all {
            assert!(schema.validate(&Value::Object(arguments.clone())).is_ok());
        }
        assert_eq!(all[0].len(), 3, "only what is required: {:?}", all[0]);
        assert!(all[1..].iter().any(|arguments| arguments.len() == 8));
        assert_eq!(all, valid(&schema, 1, 40));
        assert_ne!(all, valid(&schema, 2, 40));
    }

    #[test]
    fn each_broken_argument_breaks_the_rule_that_it_names() {
        let schema = rich();
        let base = &valid(&schema, 1, 2)[0];
        let broken = broken(&schema, base);
        let rules: Vec<&str> = broken.iter().map(|broken| broken.rule.as_str()).collect();
        for rule in [
            "without `text`",
            "without `unit`",
            "`n` of another type",
            "`n` beyond its minimum",
            "`n` beyond its maximum",
            "`unit` beyond its values",
            "`list` of another type",
            "with an unknown parameter",
        ] {
            assert!(rules.contains(&rule), "{rule}: {rules:?}");
        }
        for broken in &broken {
            assert!(schema.validate(&Value::Object(broken.arguments.clone())).is_err());
        }
    }

    #[test]
    fn schema_that_refers_to_itself_ends() {
        let schema = Schema::new(json!({
            "type": "object", "properties": {"tree": {"$ref": "#/$defs/tree"}}, "required": ["tree"],
            "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}},
        }))
        .unwrap();
        assert!(!valid(&schema, 1, 5).is_empty());
        let endless = Schema::new(json!({
            "type": "object", "properties": {"tree": {"$ref": "#/$defs/tree"}}, "required": ["tree"],
            "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}, "required": ["left"]}},
        }))
        .unwrap();
        assert!(valid(&endless, 1, 5).is_empty());
    }

    #[test]
    fn schema_with_endless_members_ends_at_once() {
        let names: Vec<String> = (0..10).map(|i| format!("a{i}")).collect();
        let members: Map<String, Value> = names
            .iter()
            .map(|name| (name.clone(), json!({"$ref": "#/properties/x"})))
            .collect();
        let wide = json!({"type": "object", "properties": members, "required": names});
        let list = json!({"type": "array", "items": {"$ref": "#/properties/x"}, "minItems": 64});
        for endless in [wide, list] {
            assert!(valid(&schema(json!({"x": endless}), &["x"]), 1, 40).is_empty());
        }
    }

    #[test]
    fn value_has_at_most_a_number_of_nodes() {
        let arguments = |nodes: usize| {
            // The object and its list are two of the nodes.
            let row = json!({"type": "array", "items": {"type": "null"}, "minItems": 50, "maxItems": 50});
            let (rows, rest) = ((nodes - 2) / 51, (nodes - 2) % 51);
            let mut all: Vec<Value> = std::iter::repeat_n(row, rows).collect();
            all.extend(std::iter::repeat_n(json!({"type": "null"}), rest));
            let list =
                json!({"type": "array", "prefixItems": all, "minItems": all.len(), "maxItems": all.len()});
            valid(&schema(json!({"x": list}), &["x"]), 1, 1).len()
        };
        assert_eq!((arguments(MAX_NODES), arguments(MAX_NODES + 1)), (1, 0));
    }

    #[test]
    fn bounds_of_64_bits_are_kept() {
        let properties = json!({
            "u": {"type": "integer", "minimum": 0, "maximum": u64::MAX},
            "i": {"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX},
        });
        let all = valid(&schema(properties, &["u", "i"]), 7, 30);
        assert_eq!(all.len(), 30);
        assert!(all.iter().any(|arguments| arguments["u"] == u64::MAX));
        assert!(all.iter().any(|arguments| arguments["i"] == i64::MIN));
    }
}

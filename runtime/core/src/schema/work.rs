//! Bound on the work of validating a value against a schema.
//!
//! A schema of a few hundred bytes can require 2^64 checks: every level of the value evaluated twice, by two branches
//! of an `allOf` that refer to the same schema. A validator cannot be interrupted, so a counting walk runs first and
//! fails when the count exceeds [`MAX_CHECKS`]. The count is an upper bound: every branch is taken, including those
//! that a validator would skip, and a keyword that inspects many things costs as many checks.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::patterns::Patterns;

/// Maximum number of pairs of a subschema and a place in the value, and of a required name and an object. A value of 1
/// MiB has at most about 500,000 places; a million checks take well under a second.
pub const MAX_CHECKS: u32 = 1_000_000;

/// Values of an `enum` that are compared in the time of one check.
const VALUES_PER_CHECK: usize = 16;

/// Maximum chain of nested subschema applications. Real schemas have about ten for each level of the value.
pub const MAX_CHAIN: usize = 512;

/// The validation would exceed [`MAX_CHECKS`] checks or [`MAX_CHAIN`] nested applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMuchWork;

/// Counts the checks that validation may need, and returns the maximum number of mismatches.
pub(super) fn bounded(schema: &Value, patterns: &Patterns, value: &Value) -> Result<u32, TooMuchWork> {
    let mut walk = Walk {
        root: schema,
        patterns,
        left: MAX_CHECKS,
        mismatches: 0,
        open: Vec::new(),
        resolved: HashMap::new(),
    };
    walk.visit(schema, value)?;
    Ok(walk.mismatches)
}

struct Walk<'a> {
    root: &'a Value,
    patterns: &'a Patterns,
    left: u32,
    mismatches: u32,
    /// Chain of pairs being visited. A pair that recurs in it is a cycle, at which validators stop.
    open: Vec<(*const Value, *const Value)>,
    /// Targets of the references: each is looked up once, however long it is and however often it is followed.
    resolved: HashMap<&'a str, Option<&'a Value>>,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, schema: &'a Value, value: &Value) -> Result<(), TooMuchWork> {
        let Value::Object(keywords) = schema else {
            return Ok(());
        };
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        if self
            .open
            .iter()
            .rev()
            .take_while(|(_, at)| *at == pair.1)
            .any(|open| *open == pair)
        {
            return Ok(());
        }
        if self.open.len() >= MAX_CHAIN {
            return Err(TooMuchWork);
        }
        self.need(1)?;
        self.open.push(pair);
        // A schema has few keywords, of which most apply to nothing: each is looked at once.
        for (keyword, argument) in keywords {
            self.keyword(keyword, argument, value)?;
        }
        self.open.pop();
        Ok(())
    }

    /// Counts checks, each of which may be a mismatch.
    fn need(&mut self, checks: usize) -> Result<(), TooMuchWork> {
        self.charge(checks)?;
        // It cannot exceed the number of checks.
        let mismatches = u32::try_from(checks).unwrap_or(u32::MAX);
        self.mismatches = self.mismatches.saturating_add(mismatches);
        Ok(())
    }

    fn charge(&mut self, checks: usize) -> Result<(), TooMuchWork> {
        let checks = u32::try_from(checks).map_err(|_| TooMuchWork)?;
        self.left = self.left.checked_sub(checks).ok_or(TooMuchWork)?;
        Ok(())
    }

    /// Counts the checks of one keyword (JSON Schema 2020-12, sections 10.2 and 10.3, and the validation vocabulary).
    fn keyword(&mut self, keyword: &str, argument: &'a Value, value: &Value) -> Result<(), TooMuchWork> {
        match (keyword, value) {
            // A schema for the same place, lists of them, and references to one.
            ("not" | "if" | "then" | "else", _) => self.visit(argument, value)?,
            ("allOf" | "anyOf" | "oneOf", _) => {
                for schema in argument.as_array().into_iter().flatten() {
                    self.visit(schema, value)?;
                }
            }
            ("dependentSchemas", _) => {
                for schema in argument.as_object().into_iter().flat_map(Map::values) {
                    self.visit(schema, value)?;
                }
            }
            ("$ref" | "$dynamicRef", _) => {
                if let Some(reference) = argument.as_str()
                    && let Some(target) = self.target(reference)?
                {
                    self.visit(target, value)?;
                }
            }
            // Members and items.
            ("properties", Value::Object(members)) => {
                let properties = argument.as_object();
                for (name, member) in members {
                    if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
                        self.visit(schema, member)?;
                    }
                }
            }
            ("patternProperties", Value::Object(members)) => {
                for (name, member) in members {
                    for (pattern, schema) in argument.as_object().into_iter().flatten() {
                        self.charge(self.patterns.checks(pattern, name))?;
                        self.visit(schema, member)?;
                    }
                }
            }
            ("propertyNames", Value::Object(members)) => {
                for name in members.keys() {
                    self.visit(argument, &Value::String(name.clone()))?;
                }
            }
            ("prefixItems", Value::Array(items)) => {
                for (schema, item) in argument.as_array().into_iter().flatten().zip(items) {
                    self.visit(schema, item)?;
                }
            }
            (
                "additionalProperties"
                | "unevaluatedProperties"
                | "items"
                | "contains"
                | "unevaluatedItems"
                | "additionalItems",
                Value::Object(_) | Value::Array(_),
            ) => self.every_child(argument, value)?,
            // Names, values and texts.
            ("required", Value::Object(_)) => self.need(argument.as_array().map_or(0, Vec::len))?,
            ("dependentRequired", Value::Object(_)) => {
                for names in argument.as_object().into_iter().flat_map(Map::values) {
                    self.need(names.as_array().map_or(0, Vec::len))?;
                }
            }
            ("enum", _) => self.charge(argument.as_array().map_or(0, Vec::len) / VALUES_PER_CHECK)?,
            ("pattern", Value::String(text)) => {
                if let Some(pattern) = argument.as_str() {
                    self.charge(self.patterns.checks(pattern, text))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts the checks of a schema that may apply to every member or item.
    fn every_child(&mut self, schema: &'a Value, value: &Value) -> Result<(), TooMuchWork> {
        // Most often it is `false`.
        if !schema.is_object() {
            return Ok(());
        }
        match value {
            Value::Object(members) => members.values().try_for_each(|child| self.visit(schema, child)),
            Value::Array(items) => items.iter().try_for_each(|child| self.visit(schema, child)),
            _ => Ok(()),
        }
    }

    fn target(&mut self, reference: &'a str) -> Result<Option<&'a Value>, TooMuchWork> {
        if let Some(target) = self.resolved.get(reference) {
            return Ok(*target);
        }
        let target = self.resolve(reference)?;
        self.resolved.insert(reference, target);
        Ok(target)
    }

    /// Resolves a reference: `#`, a JSON Pointer (RFC 6901) after `#`, or an anchor, which is searched in the whole
    /// document.
    fn resolve(&mut self, reference: &str) -> Result<Option<&'a Value>, TooMuchWork> {
        let Some(fragment) = reference.strip_prefix('#') else {
            return Ok(None);
        };
        if fragment.is_empty() || fragment.starts_with('/') {
            return Ok(self.root.pointer(&percent_decoded(fragment)));
        }
        let mut open = vec![self.root];
        while let Some(value) = open.pop() {
            let below = value.as_object().map_or(0, Map::len) + value.as_array().map_or(0, Vec::len);
            self.charge(below / VALUES_PER_CHECK)?;
            match value {
                Value::Object(map) => {
                    let named = |keyword| map.get(keyword).and_then(Value::as_str) == Some(fragment);
                    if named("$anchor") || named("$dynamicAnchor") {
                        return Ok(Some(value));
                    }
                    open.extend(map.values());
                }
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        Ok(None)
    }
}

/// Decodes percent-encoding (RFC 3986, section 2.1), as used by pointers in URI fragments.
fn percent_decoded(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = (first == b'%').then(|| tail.get(..2)).flatten();
        let byte = hex
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bounded(schema: &Value, value: &Value) -> Result<u32, TooMuchWork> {
        super::bounded(schema, &Patterns::of(schema), value)
    }

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!({}), |inner, _| json!({"a": inner}))
    }

    #[test]
    fn checking_every_level_twice_is_too_much_work() {
        let schema = json!({"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        assert_eq!(bounded(&schema, &nested(10)).map(drop), Ok(()));
        assert_eq!(bounded(&schema, &nested(60)), Err(TooMuchWork));
    }

    #[test]
    fn references_that_double_at_one_place_are_too_much_work() {
        let doubling = |n: usize| {
            let mut defs = Map::new();
            for i in 0..n {
                let next = format!("#/$defs/d{}", i + 1);
                defs.insert(
                    format!("d{i}"),
                    json!({"allOf": [{"$ref": next}, {"$ref": next}]}),
                );
            }
            defs.insert(format!("d{n}"), json!({}));
            json!({"$ref": "#/$defs/d0", "$defs": defs})
        };
        assert_eq!(bounded(&doubling(10), &json!({})).map(drop), Ok(()));
        assert_eq!(bounded(&doubling(30), &json!({})), Err(TooMuchWork));
    }

    #[test]
    fn cycle_of_references_ends() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"anyOf": [{"$ref": "#"}, {"type": "string"}]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}),
            json!({"$dynamicAnchor": "x", "items": {"$dynamicRef": "#x"}}),
        ] {
            assert_eq!(bounded(&schema, &json!([[], [1]])).map(drop), Ok(()), "{schema}");
        }
    }

    #[test]
    fn tree_of_tagged_cases_is_ordinary_work() {
        let schema = json!({
            "$ref": "#/$defs/expr",
            "$defs": {"expr": {"oneOf": [
                {"type": "object", "properties": {"op": {"const": "and"}, "l": {"$ref": "#/$defs/expr"}}},
                {"type": "object", "properties": {"op": {"const": "or"}, "l": {"$ref": "#/$defs/expr"}}},
            ]}}
        });
        let value = (0..12).fold(json!({"op": "and"}), |inner, _| json!({"op": "or", "l": inner}));
        assert_eq!(bounded(&schema, &value).map(drop), Ok(()));
    }

    #[test]
    fn chain_beyond_limit_is_rejected() {
        let chain = |n: usize| {
            let mut defs = Map::new();
            for i in 1..n - 1 {
                defs.insert(format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", i + 1)}));
            }
            defs.insert(format!("d{}", n - 1), json!({}));
            json!({"$ref": "#/$defs/d1", "$defs": defs})
        };
        assert_eq!(bounded(&chain(MAX_CHAIN), &json!({})).map(drop), Ok(()));
        assert_eq!(bounded(&chain(MAX_CHAIN + 1), &json!({})), Err(TooMuchWork));
    }

    #[test]
    fn absurdly_long_list_is_too_much_work() {
        let schema = json!({"items": {"type": "integer"}});
        let list = |n: u32| Value::Array((0..n).map(Value::from).collect());
        assert_eq!(bounded(&schema, &list(MAX_CHECKS - 1)).map(drop), Ok(()));
        assert_eq!(bounded(&schema, &list(MAX_CHECKS)), Err(TooMuchWork));
    }

    #[test]
    fn pointer_may_be_percent_encoded() {
        let schema = json!({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"allOf": [{}, {}]}}});
        assert_eq!(bounded(&schema, &json!(1)), Ok(4));
    }

    #[test]
    fn list_of_required_names_costs_one_check_each() {
        let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
        let schema = json!({"items": {"required": names}});
        let objects = |n: u32| Value::Array((0..n).map(|_| json!({})).collect());
        assert_eq!(bounded(&schema, &objects(999)).map(drop), Ok(()));
        assert_eq!(bounded(&schema, &objects(1_000)), Err(TooMuchWork));
        let schema = json!({"items": {"dependentRequired": {"a": names}}});
        assert_eq!(bounded(&schema, &objects(1_000)), Err(TooMuchWork));
    }

    #[test]
    fn long_enum_costs_more_than_a_short_one() {
        let numbers = |n: u32| (0..n).map(Value::from).collect::<Vec<_>>();
        let list = Value::Array(numbers(10_000));
        assert_eq!(
            bounded(&json!({"items": {"enum": numbers(250)}}), &list).map(drop),
            Ok(())
        );
        assert_eq!(
            bounded(&json!({"items": {"enum": numbers(2_000)}}), &list),
            Err(TooMuchWork)
        );
    }

    #[test]
    fn lookup_of_each_anchor_costs_the_size_of_the_schema_once() {
        let schema = |anchors: usize| {
            let named: Vec<Value> = (0..anchors)
                .map(|n| json!({ "$anchor": format!("a{n}") }))
                .collect();
            let used: Vec<Value> = (0..anchors)
                .map(|n| json!({ "$ref": format!("#a{n}") }))
                .collect();
            json!({"items": {"allOf": used}, "$defs": {"all": {"oneOf": named}}})
        };
        assert_eq!(bounded(&schema(300), &json!([1])).map(drop), Ok(()));
        assert_eq!(bounded(&schema(4_000), &json!([1])), Err(TooMuchWork));
        let list = Value::Array(vec![Value::Null; 300]);
        assert_eq!(bounded(&schema(300), &list).map(drop), Ok(()));
    }

    #[test]
    fn long_reference_is_looked_up_once() {
        // At 60,000 bytes for each of the items it would be minutes.
        let schema = json!({"items": {"$ref": format!("#/{}", "a/".repeat(30_000))}});
        let list = Value::Array(vec![Value::Null; 40_000]);
        assert_eq!(bounded(&schema, &list).map(drop), Ok(()));
    }

    #[test]
    fn pattern_costs_text_length_times_its_size() {
        let text = |n: usize| json!("1".repeat(n));
        let schema = json!({"pattern": "[01]*1[01]{1000}$"});
        assert_eq!(bounded(&schema, &text(50_000)).map(drop), Ok(()));
        assert_eq!(bounded(&schema, &text(200_000)), Err(TooMuchWork));
        // Ordinary patterns cost next to nothing.
        assert_eq!(bounded(&json!({"pattern": "^[a-z]+$"}), &text(1 << 20)), Ok(1));
        let uuid = json!({"items": {"pattern": "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$"}});
        let list = Value::Array(vec![json!("0b1e0b6e-2b7d-4e0a-9a51-0d3b8d5c8f10"); 10_000]);
        assert_eq!(bounded(&uuid, &list).map(drop), Ok(()));
        let names = json!({"propertyNames": {"pattern": "[01]*1[01]{1000}$"}});
        assert_eq!(
            bounded(&names, &json!({"1".repeat(200_000): 1})),
            Err(TooMuchWork)
        );
        let properties = json!({"patternProperties": {"[01]*1[01]{1000}$": true}});
        assert_eq!(
            bounded(&properties, &json!({"1".repeat(200_000): 1})),
            Err(TooMuchWork)
        );
    }

    #[test]
    fn name_inside_of_a_list_is_found() {
        let schema = |cases: usize| {
            let mut cases = vec![json!({}); cases];
            cases.insert(0, json!({"$anchor": "here", "allOf": [{}, {}]}));
            json!({"items": {"$ref": "#here"}, "$defs": {"cases": {"oneOf": cases}}})
        };
        // The root, the items, what they refer to and its two parts.
        assert_eq!(bounded(&schema(0), &json!([1])), Ok(5));
        assert_eq!(bounded(&schema(3_000), &json!([1])).map(drop), Ok(()));
    }
}

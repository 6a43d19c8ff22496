//! How much work it is to check a value against a schema.
//!
//! A schema of a few hundred bytes can ask for 2^64 checks: every level of the value evaluated twice, by two branches
//! of an `allOf` that lead to the same place. A validator cannot be interrupted, so the walk is done once without it,
//! counting, and given up when the count passes [`MAX_CHECKS`]. What is counted is an upper bound: every branch is taken,
//! also those that a validator would leave out.

use serde_json::{Map, Value};

/// Most pairs of a subschema and a place in the value. A value of 1 MiB has at most some 500,000 places; a million
/// checks take well under a second.
pub const MAX_CHECKS: u32 = 1_000_000;

/// Deepest chain of subschemas, each applied inside the last. Real schemas have some ten for each level of the value.
pub const MAX_CHAIN: usize = 512;

/// The check would take more than [`MAX_CHECKS`] steps or nest deeper than [`MAX_CHAIN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMuchWork;

/// Keywords (JSON Schema 2020-12, sections 10.2 and 10.3) whose value is one schema for the same place.
const SAME_PLACE: &[&str] = &["not", "if", "then", "else"];
/// Keywords whose value is a list of schemas for the same place.
const SAME_PLACE_LISTS: &[&str] = &["allOf", "anyOf", "oneOf"];
/// Keywords whose value is one schema for every member or item.
const EVERY_CHILD: &[&str] = &[
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "contains",
    "unevaluatedItems",
    "additionalItems",
];

/// Counts what a validator may have to do.
pub(super) fn bounded(schema: &Value, value: &Value) -> Result<(), TooMuchWork> {
    let mut walk = Walk {
        root: schema,
        left: MAX_CHECKS,
        open: Vec::new(),
    };
    walk.visit(schema, value)
}

struct Walk<'a> {
    root: &'a Value,
    left: u32,
    /// The chain of pairs being visited; a pair that stands in it already is a cycle, at which validators stop.
    open: Vec<(*const Value, *const Value)>,
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
        self.left = self.left.checked_sub(1).ok_or(TooMuchWork)?;
        if self.open.len() >= MAX_CHAIN {
            return Err(TooMuchWork);
        }
        self.open.push(pair);
        self.same_place(keywords, value)?;
        match value {
            Value::Object(members) => self.members(keywords, members)?,
            Value::Array(items) => self.items(keywords, items)?,
            _ => {}
        }
        self.open.pop();
        Ok(())
    }

    fn same_place(&mut self, keywords: &'a Map<String, Value>, value: &Value) -> Result<(), TooMuchWork> {
        for keyword in SAME_PLACE {
            if let Some(schema) = keywords.get(*keyword) {
                self.visit(schema, value)?;
            }
        }
        for keyword in SAME_PLACE_LISTS {
            for schema in keywords
                .get(*keyword)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.visit(schema, value)?;
            }
        }
        for schema in keywords
            .get("dependentSchemas")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            self.visit(schema.1, value)?;
        }
        for keyword in ["$ref", "$dynamicRef"] {
            if let Some(target) = keywords
                .get(keyword)
                .and_then(Value::as_str)
                .and_then(|r| self.resolve(r))
            {
                self.visit(target, value)?;
            }
        }
        Ok(())
    }

    fn members(
        &mut self,
        keywords: &'a Map<String, Value>,
        members: &Map<String, Value>,
    ) -> Result<(), TooMuchWork> {
        let properties = keywords.get("properties").and_then(Value::as_object);
        let patterns = keywords.get("patternProperties").and_then(Value::as_object);
        for (name, member) in members {
            if let Some(schema) = properties.and_then(|p| p.get(name)) {
                self.visit(schema, member)?;
            }
            for (_, schema) in patterns.into_iter().flatten() {
                self.visit(schema, member)?;
            }
            self.every_child(keywords, member)?;
        }
        if let Some(names) = keywords.get("propertyNames") {
            let name = Value::String(String::new());
            for _ in members {
                self.visit(names, &name)?;
            }
        }
        Ok(())
    }

    fn items(&mut self, keywords: &'a Map<String, Value>, items: &[Value]) -> Result<(), TooMuchWork> {
        let prefix = keywords.get("prefixItems").and_then(Value::as_array);
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = prefix.and_then(|p| p.get(index)) {
                self.visit(schema, item)?;
            }
            self.every_child(keywords, item)?;
        }
        Ok(())
    }

    fn every_child(&mut self, keywords: &'a Map<String, Value>, child: &Value) -> Result<(), TooMuchWork> {
        for keyword in EVERY_CHILD {
            if let Some(schema) = keywords.get(*keyword) {
                self.visit(schema, child)?;
            }
        }
        Ok(())
    }

    /// The schema that a reference names: `#`, a JSON Pointer (RFC 6901) after `#`, or an anchor.
    fn resolve(&self, reference: &str) -> Option<&'a Value> {
        let fragment = reference.strip_prefix('#')?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return self.root.pointer(&percent_decoded(fragment));
        }
        let mut open = vec![self.root];
        while let Some(value) = open.pop() {
            match value {
                Value::Object(map) => {
                    let named = |keyword| map.get(keyword).and_then(Value::as_str) == Some(fragment);
                    if named("$anchor") || named("$dynamicAnchor") {
                        return Some(value);
                    }
                    open.extend(map.values());
                }
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        None
    }
}

/// Undoes percent-encoding (RFC 3986, section 2.1), as a pointer in a URI fragment carries it.
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

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!({}), |inner, _| json!({"a": inner}))
    }

    #[test]
    fn every_level_checked_twice_is_too_much_work_after_a_few_levels() {
        let schema = json!({"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        assert_eq!(bounded(&schema, &nested(10)), Ok(()));
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
        assert_eq!(bounded(&doubling(10), &json!({})), Ok(()));
        assert_eq!(bounded(&doubling(30), &json!({})), Err(TooMuchWork));
    }

    #[test]
    fn a_cycle_of_references_ends() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"anyOf": [{"$ref": "#"}, {"type": "string"}]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}),
            json!({"$dynamicAnchor": "x", "items": {"$dynamicRef": "#x"}}),
        ] {
            assert_eq!(bounded(&schema, &json!([[], [1]])), Ok(()), "{schema}");
        }
    }

    #[test]
    fn a_tree_of_tagged_cases_is_ordinary_work() {
        let schema = json!({
            "$ref": "#/$defs/expr",
            "$defs": {"expr": {"oneOf": [
                {"type": "object", "properties": {"op": {"const": "and"}, "l": {"$ref": "#/$defs/expr"}}},
                {"type": "object", "properties": {"op": {"const": "or"}, "l": {"$ref": "#/$defs/expr"}}},
            ]}}
        });
        let value = (0..12).fold(json!({"op": "and"}), |inner, _| json!({"op": "or", "l": inner}));
        assert_eq!(bounded(&schema, &value), Ok(()));
    }

    #[test]
    fn a_chain_is_accepted_up_to_its_limit_and_refused_beyond() {
        let chain = |n: usize| {
            let mut defs = Map::new();
            for i in 1..n - 1 {
                defs.insert(format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", i + 1)}));
            }
            defs.insert(format!("d{}", n - 1), json!({}));
            json!({"$ref": "#/$defs/d1", "$defs": defs})
        };
        assert_eq!(bounded(&chain(MAX_CHAIN), &json!({})), Ok(()));
        assert_eq!(bounded(&chain(MAX_CHAIN + 1), &json!({})), Err(TooMuchWork));
    }

    #[test]
    fn a_long_list_is_ordinary_work_and_an_absurd_one_is_not() {
        let schema = json!({"items": {"type": "integer"}});
        let list = |n: u32| Value::Array((0..n).map(Value::from).collect());
        assert_eq!(bounded(&schema, &list(MAX_CHECKS - 1)), Ok(()));
        assert_eq!(bounded(&schema, &list(MAX_CHECKS)), Err(TooMuchWork));
    }

    #[test]
    fn a_pointer_may_be_percent_encoded() {
        let schema = json!({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"allOf": [{}, {}]}}});
        let mut walk = Walk {
            root: &schema,
            left: 10,
            open: Vec::new(),
        };
        walk.visit(&schema, &json!(1)).unwrap();
        assert_eq!(walk.left, 10 - 4);
    }
}

//! Grammars of JSON schemas.
//!
//! The texts of a grammar are valid; not every valid text is one of them. Properties come in one order, only declared ones are
//! written where some are, and numbers have at most 15 digits. Keywords that a grammar cannot express are listed in
//! [`SchemaGrammar::relaxed`]; the loop validates the arguments of every call anyway.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::keywords::{UNKNOWN, are_disjoint, constrains, decoded, implied, is_of_type};
use super::{Builder, Grammar, InvalidGrammar, Item, literal, number, text};

/// Maximum depth of schemas within each other, apart from references.
const MAX_NESTING: u32 = 64;

/// Keywords of the schemas of a tool, by its name, that its grammar does not enforce.
pub type Unsupported = BTreeSet<String>;

/// Builder of a grammar from schemas.
#[derive(Debug)]
pub struct SchemaGrammar<'s> {
    builder: Builder,
    root: &'s Value,
    references: BTreeMap<String, u32>,
    any: Option<u32>,
    character: Option<u32>,
    space: Option<u32>,
    /// Keywords that the grammar does not enforce.
    pub relaxed: Unsupported,
}

static NOTHING: Value = Value::Null;

impl<'s> SchemaGrammar<'s> {
    /// Creates a grammar without rules.
    pub fn new() -> Self {
        Self {
            builder: Builder::default(),
            root: &NOTHING,
            references: BTreeMap::new(),
            any: None,
            character: None,
            space: None,
            relaxed: BTreeSet::new(),
        }
    }

    /// Returns the grammar of a value that matches a schema.
    ///
    /// # Errors
    /// [`InvalidGrammar`] if it is too large or nothing matches.
    pub fn of(schema: &'s Value) -> Result<Grammar, InvalidGrammar> {
        let mut grammar = Self::new();
        let root = grammar.schema(schema)?;
        grammar.build(root)
    }

    /// Adds a schema of its own, whose references are within it, and returns its rule.
    ///
    /// # Errors
    /// [`InvalidGrammar`].
    pub fn schema(&mut self, schema: &'s Value) -> Result<u32, InvalidGrammar> {
        self.root = schema;
        self.references.clear();
        self.value(schema, MAX_NESTING)
    }

    /// Adds a rule of texts and other rules, one after the other.
    pub(crate) fn sequence(&mut self, items: Vec<Item>) -> Result<u32, InvalidGrammar> {
        self.builder.rule(vec![items])
    }

    /// Adds a rule of which one alternative holds.
    pub(crate) fn either(&mut self, alternatives: Vec<Vec<Item>>) -> Result<u32, InvalidGrammar> {
        self.builder.rule(alternatives)
    }

    /// Completes the grammar.
    ///
    /// # Errors
    /// [`InvalidGrammar`].
    pub fn build(self, root: u32) -> Result<Grammar, InvalidGrammar> {
        self.builder.build(root)
    }

    /// One space, or none.
    pub(crate) fn space(&mut self) -> Result<Item, InvalidGrammar> {
        let rule = match self.space {
            Some(rule) => rule,
            None => self.builder.rule(vec![Vec::new(), literal(" ")])?,
        };
        self.space = Some(rule);
        Ok(Item::Rule(rule))
    }

    fn value(&mut self, schema: &Value, nesting: u32) -> Result<u32, InvalidGrammar> {
        let nesting = nesting.checked_sub(1).ok_or(InvalidGrammar::TooLarge)?;
        let Some(keys) = schema.as_object() else {
            return match schema {
                Value::Bool(false) => self.builder.rule(Vec::new()),
                _ => self.any(),
            };
        };
        for key in UNKNOWN {
            if keys.contains_key(key) {
                self.relaxed.insert(key.to_owned());
            }
        }
        if let Some(pointer) = keys.get("$ref").and_then(Value::as_str) {
            return self.reference(pointer, keys, nesting);
        }
        if let Some(value) = keys.get("const") {
            return self.builder.rule(vec![literal(&value.to_string())]);
        }
        if let Some(values) = keys.get("enum").and_then(Value::as_array) {
            let values = values.iter().filter(|value| is_of_type(value, keys.get("type")));
            let alternatives = values.map(|value| literal(&value.to_string())).collect();
            return self.builder.rule(alternatives);
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            if let Some(parts) = keys.get(key).and_then(Value::as_array) {
                return self.combined(key, parts, keys, nesting);
            }
        }
        match keys.get("type") {
            Some(Value::String(kind)) => self.of_type(kind, keys, nesting),
            Some(Value::Array(kinds)) => {
                let mut alternatives = Vec::new();
                for kind in kinds.iter().filter_map(Value::as_str) {
                    // An integer is also a number.
                    if kind == "integer" && kinds.iter().any(|kind| kind == "number") {
                        continue;
                    }
                    alternatives.push(vec![Item::Rule(self.of_type(kind, keys, nesting)?)]);
                }
                self.builder.rule(alternatives)
            }
            _ => match implied(keys) {
                Some(kind) => self.of_type(kind, keys, nesting),
                None => self.any(),
            },
        }
    }

    /// Rule of the schema that a reference within the document names. It may be within itself.
    fn reference(
        &mut self,
        pointer: &str,
        keys: &Map<String, Value>,
        nesting: u32,
    ) -> Result<u32, InvalidGrammar> {
        let annotations = [
            "$ref",
            "$defs",
            "definitions",
            "title",
            "description",
            "default",
            "examples",
        ];
        if keys.keys().any(|key| !annotations.contains(&key.as_str())) {
            self.relaxed.insert("$ref beside other keywords".to_owned());
        }
        if let Some(rule) = self.references.get(pointer) {
            return Ok(*rule);
        }
        let root = self.root;
        let found = pointer
            .strip_prefix('#')
            .and_then(|path| root.pointer(&decoded(path)));
        let Some(found) = found else {
            self.relaxed.insert("$ref".to_owned());
            return self.any();
        };
        let rule = self.builder.reserve();
        self.references.insert(pointer.to_owned(), rule);
        let value = self.value(found, nesting)?;
        self.builder.set(rule, vec![vec![Item::Rule(value)]])?;
        Ok(rule)
    }

    /// Rule of schemas that are combined with each other and with the keywords beside them.
    fn combined(
        &mut self,
        key: &str,
        parts: &[Value],
        keys: &Map<String, Value>,
        nesting: u32,
    ) -> Result<u32, InvalidGrammar> {
        let mut base = keys.clone();
        base.remove(key);
        if key == "allOf" {
            for part in parts {
                let part = self.resolved(part);
                self.merge(&mut base, &part);
            }
            return self.value(&Value::Object(base), nesting);
        }
        if key == "oneOf" && !are_disjoint(parts) {
            self.relaxed.insert(key.to_owned());
        }
        let is_bare = base.keys().all(|key| !constrains(key));
        let mut alternatives = Vec::new();
        for part in parts {
            let rule = if is_bare {
                self.value(part, nesting)?
            } else {
                let mut merged = base.clone();
                let part = self.resolved(part);
                self.merge(&mut merged, &part);
                self.value(&Value::Object(merged), nesting)?
            };
            alternatives.push(vec![Item::Rule(rule)]);
        }
        self.builder.rule(alternatives)
    }

    /// Schema without a reference at its top.
    fn resolved(&self, schema: &Value) -> Value {
        let pointer = schema.get("$ref").and_then(Value::as_str);
        let path = pointer.and_then(|pointer| pointer.strip_prefix('#'));
        let found = path.and_then(|path| self.root.pointer(&decoded(path)));
        found.unwrap_or(schema).clone()
    }

    /// Adds the keywords of one schema to those of another.
    fn merge(&mut self, base: &mut Map<String, Value>, other: &Value) {
        let Some(other) = other.as_object() else { return };
        for (key, value) in other {
            match (base.get_mut(key), value) {
                (None, _) => {
                    base.insert(key.clone(), value.clone());
                }
                (Some(known), _) if known == value => {}
                (Some(Value::Object(known)), Value::Object(more)) if key == "properties" => {
                    for (name, schema) in more {
                        let both = match known.get(name) {
                            Some(own) if own != schema => json!({ "allOf": [own, schema] }),
                            _ => schema.clone(),
                        };
                        known.insert(name.clone(), both);
                    }
                }
                (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                    known.extend(more.iter().cloned());
                }
                _ if !constrains(key) => {}
                _ => {
                    self.relaxed.insert("allOf".to_owned());
                }
            }
        }
    }

    fn of_type(
        &mut self,
        kind: &str,
        keys: &Map<String, Value>,
        nesting: u32,
    ) -> Result<u32, InvalidGrammar> {
        match kind {
            "object" => self.object(keys, nesting),
            "array" => self.array(keys, nesting),
            "string" => self.string(keys),
            "integer" => number::integers(&mut self.builder, number::bounds(&Value::Object(keys.clone()))),
            "number" => number::numbers(&mut self.builder, &Value::Object(keys.clone())),
            "boolean" => self.builder.rule(vec![literal("true"), literal("false")]),
            "null" => self.builder.rule(vec![literal("null")]),
            _ => self.builder.rule(Vec::new()),
        }
    }

    fn object(&mut self, keys: &Map<String, Value>, nesting: u32) -> Result<u32, InvalidGrammar> {
        let none = Map::new();
        let declared = keys.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let other = keys
            .get("additionalProperties")
            .unwrap_or(&Value::Bool(true))
            .clone();
        let required: BTreeSet<&str> = (keys
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten())
        .filter_map(Value::as_str)
        .collect();
        let count = |key: &str| keys.get(key).and_then(Value::as_u64);
        if declared.is_empty() && required.is_empty() {
            return self.map(&other, count("minProperties"), count("maxProperties"), nesting);
        }
        if count("minProperties").is_some_and(|least| least > required.len() as u64) {
            self.relaxed.insert("minProperties".to_owned());
        }
        let undeclared = required.iter().filter(|name| !declared.contains_key(**name));
        let undeclared: Vec<(String, &Value)> = undeclared.map(|name| ((*name).to_owned(), &other)).collect();
        let declared = declared.iter().map(|(name, schema)| (name.clone(), schema));
        let all: Vec<(String, &Value)> = declared.chain(undeclared).collect();
        // As many as are allowed; required ones are always allowed.
        let most = count("maxProperties").unwrap_or(u64::MAX);
        let optional = usize::try_from(most.saturating_sub(required.len() as u64)).unwrap_or(usize::MAX);
        let is_required = |name: &str| required.contains(name);
        let kept: BTreeSet<String> = (all.iter())
            .filter(|(name, schema)| !is_required(name) && **schema != Value::Bool(false))
            .take(optional)
            .map(|(name, _)| name.clone())
            .collect();
        let space = self.space()?;
        let close = self.builder.rule(vec![literal("}")])?;
        // From the last on: the rest of the object after a property, and before any.
        let (mut after_one, mut before_any) = (close, close);
        for (name, schema) in all.iter().rev() {
            let is_needed = is_required(name);
            if !is_needed && !kept.contains(name) {
                continue;
            }
            let value = self.value(schema, nesting)?;
            let mut member = literal(&Value::from(name.as_str()).to_string());
            member.extend(literal(":"));
            member.extend([space.clone(), Item::Rule(value), Item::Rule(after_one)]);
            let more = [literal(","), vec![space.clone()], member.clone()].concat();
            let with = |skip: u32, taken: Vec<Item>| match is_needed {
                true => vec![taken],
                false => vec![taken, vec![Item::Rule(skip)]],
            };
            let first = self.builder.rule(with(before_any, member))?;
            after_one = self.builder.rule(with(after_one, more))?;
            before_any = first;
        }
        self.builder
            .rule(vec![[literal("{"), vec![Item::Rule(before_any)]].concat()])
    }

    /// Rule of objects with any names.
    fn map(
        &mut self,
        schema: &Value,
        least: Option<u64>,
        most: Option<u64>,
        nesting: u32,
    ) -> Result<u32, InvalidGrammar> {
        if *schema == Value::Bool(false) {
            return self.builder.rule(vec![literal("{}")]);
        }
        // Two members may get one name.
        if least.is_some_and(|least| least > 1) {
            self.relaxed.insert("minProperties".to_owned());
        }
        let value = self.value(schema, nesting)?;
        let name = self.string(&Map::new())?;
        let space = self.space()?;
        let mut member = vec![Item::Rule(name)];
        member.extend(literal(":"));
        member.extend([space, Item::Rule(value)]);
        let member = self.builder.rule(vec![member])?;
        self.list("{", "}", member, least.unwrap_or(0), most)
    }

    fn array(&mut self, keys: &Map<String, Value>, nesting: u32) -> Result<u32, InvalidGrammar> {
        let count = |key: &str| keys.get(key).and_then(Value::as_u64);
        let (least, most) = (count("minItems").unwrap_or(0), count("maxItems"));
        let any = Value::Bool(true);
        let first = keys.get("prefixItems").and_then(Value::as_array);
        let rest = keys.get("items").unwrap_or(&any);
        let Some(first) = first.filter(|first| !first.is_empty()) else {
            if *rest == Value::Bool(false) {
                return self.builder.rule(vec![literal("[]")]);
            }
            let item = self.value(rest, nesting)?;
            return self.list("[", "]", item, least, most);
        };
        let space = self.space()?;
        let mut items = literal("[");
        let shown = most.map_or(first.len(), |most| {
            usize::try_from(most).unwrap_or(usize::MAX).min(first.len())
        });
        for (index, schema) in first[..shown].iter().enumerate() {
            if index > 0 {
                items.extend(literal(","));
                items.push(space.clone());
            }
            items.push(Item::Rule(self.value(schema, nesting)?));
        }
        let more = least.saturating_sub(shown as u64);
        if more > 0 && *rest != Value::Bool(false) {
            let item = self.value(rest, nesting)?;
            let item = self
                .builder
                .rule(vec![[literal(","), vec![space, Item::Rule(item)]].concat()])?;
            items.push(Item::Repeat(item, clamped(more), Some(clamped(more))));
        }
        items.extend(literal("]"));
        self.builder.rule(vec![items])
    }

    /// Rule of items between brackets.
    fn list(
        &mut self,
        open: &str,
        close: &str,
        item: u32,
        least: u64,
        most: Option<u64>,
    ) -> Result<u32, InvalidGrammar> {
        let space = self.space()?;
        let mut alternatives = Vec::new();
        if least == 0 {
            alternatives.push([literal(open), literal(close)].concat());
        }
        if most != Some(0) {
            let next = [literal(","), vec![space, Item::Rule(item)]].concat();
            let next = self.builder.rule(vec![next])?;
            let more = Item::Repeat(
                next,
                clamped(least.saturating_sub(1)),
                most.map(|most| clamped(most - 1)),
            );
            alternatives.push([literal(open), vec![Item::Rule(item), more], literal(close)].concat());
        }
        self.builder.rule(alternatives)
    }

    fn string(&mut self, keys: &Map<String, Value>) -> Result<u32, InvalidGrammar> {
        let quoted = |rule: Item| vec![[literal("\""), vec![rule], literal("\"")].concat()];
        let length = |key: &str| keys.get(key).and_then(Value::as_u64);
        let (least, most) = (length("minLength").unwrap_or(0), length("maxLength"));
        if let Some(pattern) = keys.get("pattern").and_then(Value::as_str) {
            match text::pattern(&mut self.builder, pattern)? {
                Some(rule) => {
                    if least > 0 || most.is_some() {
                        self.relaxed
                            .insert("minLength or maxLength beside pattern".to_owned());
                    }
                    return self.builder.rule(quoted(Item::Rule(rule)));
                }
                None => {
                    self.relaxed.insert("pattern".to_owned());
                }
            }
        }
        let character = match self.character {
            Some(character) => character,
            None => text::any_character(&mut self.builder)?,
        };
        self.character = Some(character);
        let characters = Item::Repeat(character, clamped(least), most.map(clamped));
        self.builder.rule(quoted(characters))
    }

    /// Rule of any value.
    fn any(&mut self) -> Result<u32, InvalidGrammar> {
        if let Some(any) = self.any {
            return Ok(any);
        }
        let any = self.builder.reserve();
        self.any = Some(any);
        let string = self.string(&Map::new())?;
        let space = self.space()?;
        let mut member = vec![Item::Rule(string)];
        member.extend(literal(":"));
        member.extend([space, Item::Rule(any)]);
        let member = self.builder.rule(vec![member])?;
        let object = self.list("{", "}", member, 0, None)?;
        let array = self.list("[", "]", any, 0, None)?;
        let number = number::numbers(&mut self.builder, &Value::Null)?;
        let rules = [string, number, object, array].map(|rule| vec![Item::Rule(rule)]);
        let words = ["true", "false", "null"].map(literal);
        self.builder.set(any, rules.into_iter().chain(words).collect())?;
        Ok(any)
    }
}

impl Default for SchemaGrammar<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Number of a repetition. Longer texts than four thousand million characters do not occur.
fn clamped(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

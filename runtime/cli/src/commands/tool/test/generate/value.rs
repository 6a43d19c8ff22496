//! Values that fit a schema, from a sequence of pseudo-random numbers.

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Number, Value, json};

use super::{merged, required, resolve};

/// Maximum depth of generated values. Deeper ones end in `null`.
const MAX_DEPTH: usize = 12;

/// Maximum number of nodes of one generated value. A schema of ten members that refer to itself would have 10^12.
pub(super) const MAX_NODES: usize = 2_000;

/// Maximum length of a generated text, in characters: longer ones are the author's business.
const MAX_TEXT: usize = 2_000;

/// Maximum number of items or members beyond those that are required.
const MAX_EXTRA: u64 = 3;

/// Texts that break careless tools: empty, white space, other scripts, quotes, markup, several lines.
const TEXTS: [&str; 10] = [
    "a",
    "",
    "two words",
    " ",
    "Zürich ☃ 日本語 😀",
    "it's \"quoted\" \\ `here`",
    "line one\nline two\r\n\ttabbed",
    "-1",
    "../../etc/passwd",
    "<b>&amp;</b> ${x} %s {}",
];

/// Members beside those that are required.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Optional {
    None,
    All,
    Some,
}

/// Generator of the values of one schema.
pub(super) struct Generator<'a> {
    root: &'a Value,
    random: Random,
    pub(super) optional: Optional,
    /// Nodes that the value can still have.
    left: usize,
}

impl<'a> Generator<'a> {
    pub(super) fn new(root: &'a Value, seed: u64) -> Self {
        Self {
            root,
            random: Random(seed),
            optional: Optional::Some,
            left: 0,
        }
    }

    /// Generates a value of the schema; `None` if it has more than [`MAX_NODES`] nodes.
    pub(super) fn generate(&mut self) -> Option<Value> {
        self.left = MAX_NODES + 1;
        let value = self.value(self.root, 0);
        (self.left > 0).then_some(value)
    }

    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return Value::Null;
        }
        let schema = resolve(self.root, schema).into_owned();
        if depth > MAX_DEPTH || !schema.is_object() {
            return Value::Null;
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return self.random.pick(values).cloned().unwrap_or_default();
        }
        for keyword in ["examples", "default"] {
            let given = schema.get(keyword).cloned();
            let values = match given {
                Some(Value::Array(values)) if keyword == "examples" => values,
                Some(value) if keyword == "default" => vec![value],
                _ => continue,
            };
            if !values.is_empty() && self.random.below(4) == 0 {
                return self.random.pick(&values).cloned().unwrap_or_default();
            }
        }
        if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
            let mut whole = without(&schema, "allOf");
            for part in parts {
                whole = merged(&whole, &resolve(self.root, part));
            }
            return self.value(&whole, depth + 1);
        }
        for keyword in ["oneOf", "anyOf"] {
            if let Some(choices) = schema.get(keyword).and_then(Value::as_array)
                && let Some(choice) = self.random.pick(choices)
            {
                let choice = resolve(self.root, choice).into_owned();
                return self.value(&merged(&without(&schema, keyword), &choice), depth + 1);
            }
        }
        match self.kind(&schema).as_str() {
            "object" => self.object(&schema, depth),
            "array" => self.array(&schema, depth),
            "integer" => self.integer(&schema),
            "number" => self.number(&schema),
            "boolean" => Value::Bool(self.random.below(2) == 1),
            "null" => Value::Null,
            _ => Value::String(self.text(&schema)),
        }
    }

    /// The type of a value: as stated, or as the keywords suggest.
    fn kind(&mut self, schema: &Value) -> String {
        match schema.get("type") {
            Some(Value::String(name)) => name.clone(),
            Some(Value::Array(names)) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                self.random.pick(&names).map_or("string", |name| *name).to_owned()
            }
            _ if schema.get("properties").is_some() => "object".into(),
            _ if schema.get("items").is_some() => "array".into(),
            _ if schema.get("minimum").or(schema.get("maximum")).is_some() => "number".into(),
            _ => "string".into(),
        }
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let mut members = Map::new();
        let needed: Vec<String> = required(schema).map(str::to_owned).collect();
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let is_there = needed.contains(name)
                || match self.optional {
                    Optional::None => false,
                    Optional::All => depth < 3,
                    Optional::Some => depth < 6 && self.random.below(2) == 0,
                };
            if self.left == 0 {
                break;
            }
            if is_there {
                members.insert(name.clone(), self.value(property, depth + 1));
            }
        }
        for name in &needed {
            if !members.contains_key(name) {
                members.insert(name.clone(), Value::String("a".into()));
            }
        }
        let least = count(schema, "minProperties").unwrap_or(0);
        if let Some(more @ Value::Object(_)) = schema.get("additionalProperties") {
            let extra = match self.optional {
                Optional::None => 0,
                _ => self.random.below(MAX_EXTRA),
            };
            let wanted = least.max(members.len() as u64 + extra).min(64);
            for i in members.len() as u64..wanted {
                if self.left == 0 {
                    break;
                }
                let value = self.value(more, depth + 1);
                members.insert(format!("key{i}"), value);
            }
        }
        Value::Object(members)
    }

    fn array(&mut self, schema: &Value, depth: usize) -> Value {
        let least = count(schema, "minItems").unwrap_or(0);
        let most = count(schema, "maxItems").unwrap_or(least.saturating_add(MAX_EXTRA));
        let extra = most.saturating_sub(least).min(MAX_EXTRA);
        let length = least + self.random.below(extra + 1);
        let prefix = schema.get("prefixItems").and_then(Value::as_array);
        let any = json!({});
        let mut items: Vec<Value> = Vec::new();
        for i in 0..length.min(64) {
            if self.left == 0 {
                break;
            }
            let position = usize::try_from(i).unwrap_or(usize::MAX);
            let of_prefix = prefix.and_then(|prefix| prefix.get(position));
            let item = of_prefix.or_else(|| schema.get("items")).unwrap_or(&any);
            let value = self.value(item, depth + 1);
            let is_unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
            if !is_unique || !items.contains(&value) {
                items.push(value);
            }
        }
        Value::Array(items)
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let whole = |keyword: &str, rest: i128| {
            let bound = schema.get(keyword)?;
            let bound = bound.as_i64().map(i128::from).or(bound.as_u64().map(i128::from));
            bound.map(|bound| bound + rest)
        };
        let least = whole("minimum", 0).or_else(|| whole("exclusiveMinimum", 1));
        let most = whole("maximum", 0).or_else(|| whole("exclusiveMaximum", -1));
        let (low, high) = match (least, most) {
            (Some(low), Some(high)) => (low, high),
            (Some(low), None) => (low, low + 1_000),
            (None, Some(high)) => (high - 1_000, high),
            (None, None) => (-1_000, 1_000),
        };
        let width = u64::try_from(high - low).unwrap_or(0);
        let any = low + i128::from(self.random.below(width.saturating_add(1)));
        let near = low + i128::from(self.random.below(width.saturating_add(1).min(100)));
        let value = match self.random.below(6) {
            0 => low,
            1 => high,
            2 if (low..=high).contains(&0) => 0,
            3 => any,
            _ => near,
        };
        let step = schema.get("multipleOf").and_then(Value::as_i64).map(i128::from);
        let value = match step {
            Some(step) if step > 0 => value - value.rem_euclid(step),
            _ => value,
        };
        let number = i64::try_from(value)
            .map(Number::from)
            .or_else(|_| u64::try_from(value).map(Number::from));
        number.map_or(Value::Null, Value::Number)
    }

    fn number(&mut self, schema: &Value) -> Value {
        let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
        let low = bound("minimum").or_else(|| bound("exclusiveMinimum").map(|low| low + 0.5));
        let high = bound("maximum").or_else(|| bound("exclusiveMaximum").map(|high| high - 0.5));
        let (low, high) = match (low, high) {
            (Some(low), Some(high)) => (low, high),
            (Some(low), None) => (low, low + 1_000.0),
            (None, Some(high)) => (high - 1_000.0, high),
            (None, None) => (-1_000.0, 1_000.0),
        };
        let value = match self.random.below(4) {
            0 => low,
            1 => high,
            // A part that is exact in binary.
            _ => low + (high - low) * (self.random.below(1_025) as f64 / 1_024.0),
        };
        Number::from_f64(value).map_or(Value::Null, Value::Number)
    }

    fn text(&mut self, schema: &Value) -> String {
        let least = usize::try_from(count(schema, "minLength").unwrap_or(0)).unwrap_or(usize::MAX);
        let most = usize::try_from(count(schema, "maxLength").unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && let Ok(pattern) = regex_syntax::parse(pattern)
        {
            let mut text = String::new();
            self.matching(&pattern, &mut text);
            return text;
        }
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        let fixed = match format {
            "uri" | "url" | "iri" => &[
                "https://example.com/a?b=c",
                "http://localhost/",
                "https://example.com",
            ][..],
            "path" => &["a.txt", "notes/a b.md", "/", "absent", "../x"],
            "date" => &["2024-02-29", "1999-12-31"],
            "date-time" => &["2024-02-29T12:30:00Z", "1999-12-31T23:59:59.5+02:00"],
            "time" => &["12:30:00Z"],
            "duration" => &["P1DT2H"],
            "email" => &["a@example.com"],
            "hostname" => &["example.com"],
            "ipv4" => &["192.0.2.1"],
            "ipv6" => &["2001:db8::1"],
            "uuid" => &["123e4567-e89b-12d3-a456-426614174000"],
            _ => &[],
        };
        let mut text = match self.random.pick(fixed) {
            Some(text) => (*text).to_owned(),
            None => match self.random.below(TEXTS.len() as u64 + 1) {
                0 => "long text ".repeat(100),
                at => TEXTS[usize::try_from(at - 1).unwrap_or(0)].to_owned(),
            },
        };
        let length = text.chars().count();
        if length < least {
            text.extend(std::iter::repeat_n('x', (least - length).min(MAX_TEXT)));
        }
        text.chars().take(most.min(MAX_TEXT)).collect()
    }

    /// Appends a text that a pattern matches. Look-around is not tried.
    fn matching(&mut self, pattern: &Hir, text: &mut String) {
        if text.len() > MAX_TEXT {
            return;
        }
        match pattern.kind() {
            HirKind::Empty | HirKind::Look(_) => {}
            HirKind::Literal(literal) => text.push_str(&String::from_utf8_lossy(&literal.0)),
            HirKind::Class(Class::Unicode(class)) => {
                // ASCII first: `\d` and `\w` of a schema mean no other characters.
                let ascii = class.ranges().iter().filter(|range| range.start().is_ascii());
                let ascii: Vec<_> = ascii
                    .map(|range| (u32::from(range.start()), u32::from(range.end()).min(0x7e)))
                    .filter(|(start, end)| start <= end)
                    .collect();
                let all = class.ranges().iter();
                let all: Vec<_> = all
                    .map(|range| (u32::from(range.start()), u32::from(range.end())))
                    .collect();
                let ranges = if ascii.is_empty() { &all } else { &ascii };
                if let Some((start, end)) = self.random.pick(ranges).copied() {
                    // Of a large range the printable part.
                    let start = if start < 0x20 && end >= 0x20 { 0x20 } else { start };
                    let at =
                        start + u32::try_from(self.random.below(u64::from(end - start) + 1)).unwrap_or(0);
                    text.extend(char::from_u32(at));
                }
            }
            HirKind::Class(Class::Bytes(class)) => {
                if let Some(range) = class.ranges().first() {
                    text.push(char::from(range.start()));
                }
            }
            HirKind::Repetition(repetition) => {
                let most = repetition.max.unwrap_or(repetition.min.saturating_add(4));
                let extra = u64::from(most.saturating_sub(repetition.min)).min(4);
                let times = u64::from(repetition.min) + self.random.below(extra + 1);
                for _ in 0..times.min(MAX_TEXT as u64) {
                    self.matching(&repetition.sub, text);
                }
            }
            HirKind::Capture(capture) => self.matching(&capture.sub, text),
            HirKind::Concat(parts) => parts.iter().for_each(|part| self.matching(part, text)),
            HirKind::Alternation(choices) => {
                if let Some(choice) = self.random.pick(choices) {
                    self.matching(choice, text);
                }
            }
        }
    }
}

fn without(schema: &Value, keyword: &str) -> Value {
    let mut rest = schema.clone();
    if let Some(members) = rest.as_object_mut() {
        members.remove(keyword);
    }
    rest
}

fn count(schema: &Value, keyword: &str) -> Option<u64> {
    schema.get(keyword).and_then(Value::as_u64)
}

/// SplitMix64 (Steele, Lea and Flood, 2014): small, and the same everywhere.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is at least 1.
    fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.below(from.len() as u64);
        from.get(usize::try_from(at).unwrap_or(0))
    }
}

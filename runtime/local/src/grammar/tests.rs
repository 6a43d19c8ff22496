use proptest::prelude::*;
use serde_json::{Value, json};
use toolcell_core::Schema;

use super::*;

/// Texts of a grammar by random walks: any byte that is allowed, and from a length on the shortest way to the end.
fn walk(grammar: &Grammar, seed: u64, free: usize) -> Vec<u8> {
    let mut random = seed;
    let mut next = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize
    };
    let mut state = Matcher::new(grammar);
    let mut text = Vec::new();
    while !state.must_end() {
        if state.may_end() && (text.len() >= free || next() % 4 == 0) {
            break;
        }
        let all: Vec<(u8, Matcher<'_>)> = (0..=255)
            .filter_map(|byte| Some((byte, state.after(byte)?)))
            .collect();
        let all: Vec<(u8, Matcher<'_>)> = match text.len() < free {
            true => all,
            false => all
                .into_iter()
                .filter(|(_, after)| after.least() < state.least())
                .collect(),
        };
        assert!(
            !all.is_empty(),
            "no way on after {}",
            String::from_utf8_lossy(&text)
        );
        let at = next() % all.len();
        let (byte, after) = all.into_iter().nth(at).unwrap();
        text.push(byte);
        state = after;
    }
    text
}

/// Number of texts that are tried for each schema.
const WALKS: u64 = 40;

/// Walks through the grammar of a schema; the validator of calls accepts each text.
#[track_caller]
fn accepted(schema: &Value) -> SchemaTexts {
    let checked = Schema::new(schema.clone()).unwrap();
    let grammar = SchemaGrammar::of(schema).unwrap();
    let texts = (0..WALKS).map(|seed| String::from_utf8(walk(&grammar, seed, 40)).unwrap());
    let texts: Vec<String> = texts.collect();
    for text in &texts {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        if let Err(wrong) = checked.validate(&value) {
            panic!("{text}: {wrong:?}");
        }
    }
    SchemaTexts { grammar, texts }
}

struct SchemaTexts {
    grammar: Grammar,
    texts: Vec<String>,
}

impl SchemaTexts {
    #[track_caller]
    fn takes(self, text: &str) -> Self {
        let end = Matcher::new(&self.grammar).after_all(text.as_bytes());
        assert!(end.is_some_and(|end| end.may_end()), "{text}");
        self
    }

    #[track_caller]
    fn refuses(self, text: &str) -> Self {
        let end = Matcher::new(&self.grammar).after_all(text.as_bytes());
        assert!(!end.is_some_and(|end| end.may_end()), "{text}");
        self
    }
}

#[test]
fn objects_have_required_and_any_optional_members() {
    accepted(&json!({
        "type": "object",
        "properties": {
            "a": { "type": "string" },
            "b": { "type": "integer" },
            "c": { "type": ["boolean", "null"] },
            "d\"\n": { "enum": ["x", 1, null, { "y": [] }] },
        },
        "required": ["b", "other"],
        "additionalProperties": { "type": "boolean" },
    }))
    .takes(r#"{"b": 1, "other": true}"#)
    .takes(r#"{"a":"ä\n","b":-12,"c":null,"d\"\n":{"y":[]},"other":false}"#)
    .refuses(r#"{"a": "x", "other": true}"#)
    .refuses(r#"{"b": 1}"#)
    .refuses(r#"{"b": 1.5, "other": true}"#)
    .refuses(r#"{"b": 1, "b": 2, "other": true}"#);
    accepted(&json!({ "type": "object", "properties": {}, "additionalProperties": false }))
        .takes("{}")
        .refuses(r#"{"a":1}"#);
    accepted(&json!({ "type": "object", "properties": { "a": {}, "b": {}, "c": {} }, "required": ["c"], "maxProperties": 2 }))
        .takes(r#"{"a":1,"c":2}"#)
        .refuses(r#"{"a":1,"b":1,"c":2}"#);
}

#[test]
fn arrays_have_their_numbers_of_items() {
    accepted(&json!({ "type": "array", "items": { "type": "boolean" }, "minItems": 1, "maxItems": 3 }))
        .takes("[true]")
        .takes("[true,false, true]")
        .refuses("[]")
        .refuses("[true,true,true,true]");
    accepted(&json!({ "type": "array", "prefixItems": [{ "type": "null" }, { "const": 2 }], "items": { "type": "string" }, "minItems": 3 }))
        .takes(r#"[null,2,"x"]"#)
        .refuses("[null,2]");
    accepted(&json!({ "type": "array", "maxItems": 0 }))
        .takes("[]")
        .refuses("[1]");
    accepted(&json!({ "type": "array", "prefixItems": [{ "type": "null" }], "items": false }))
        .takes("[null]");
}

#[test]
fn strings_have_their_lengths_and_patterns() {
    accepted(&json!({ "type": "string", "minLength": 2, "maxLength": 3 }))
        .takes(r#""äb""#)
        .takes(r#""\"\\\n""#)
        .refuses(r#""a""#)
        .refuses(r#""abcd""#)
        .refuses("\"a\nb\"");
    let date = accepted(&json!({ "type": "string", "pattern": r"^\d{4}-\d\d-\d\d$" }));
    assert!(date.texts.iter().all(|text| text.len() == 12), "{:?}", date.texts);
    accepted(&json!({ "type": "string", "pattern": r"^(a|b)+c?$" }))
        .takes(r#""abac""#)
        .refuses(r#""ca""#);
    accepted(&json!({ "type": "string", "pattern": r#"^["\\\t]+$"# })).takes(r#""\"\\\t""#);
    accepted(&json!({ "type": "string", "pattern": "[a-z]+@[a-z]+" })).takes(r#""a@b""#);
    accepted(&json!({ "type": "string", "pattern": "^[^/]{1,8}$" }))
        .takes(r#""a b""#)
        .refuses(r#""a/""#);
}

#[test]
fn patterns_without_rules_are_told() {
    for pattern in [r"^(?=a)b$", r"\bword\b", "(a*)*", "^a|b$", r"(a)\1"] {
        let schema = json!({ "type": "string", "pattern": pattern });
        let mut grammar = SchemaGrammar::new();
        grammar.schema(&schema).unwrap();
        assert!(grammar.relaxed.contains("pattern"), "{pattern}");
    }
}

#[test]
fn numbers_are_within_their_bounds() {
    accepted(&json!({ "type": "integer", "minimum": 7, "maximum": 1_203 }))
        .takes("7")
        .takes("1203")
        .takes("999")
        .refuses("6")
        .refuses("1204")
        .refuses("07");
    accepted(&json!({ "type": "integer", "exclusiveMinimum": -20, "exclusiveMaximum": 5 }))
        .takes("-19")
        .takes("0")
        .takes("4")
        .refuses("-20")
        .refuses("5")
        .refuses("-0");
    accepted(&json!({ "type": "number", "minimum": 0, "maximum": 1 }))
        .takes("0.25")
        .takes("1")
        .refuses("1.5")
        .refuses("-0.5");
    accepted(&json!({ "type": "number", "minimum": -2.5, "exclusiveMaximum": 3 }))
        .takes("-1.75")
        .takes("1.9")
        .refuses("3")
        .refuses("-2.6");
    accepted(&json!({ "type": "number", "exclusiveMinimum": 0.1, "maximum": 0.9 })).takes("0.5");
    accepted(&json!({ "type": "integer", "minimum": 1_000_000_000_000_000_000u64 }));
    accepted(&json!({ "type": "number" }))
        .takes("-12.5")
        .refuses("NaN")
        .refuses("1.");
    assert!(SchemaGrammar::of(&json!({ "type": "integer", "minimum": 2, "maximum": 1 })).is_err());
}

#[test]
fn combinations_and_references_are_followed() {
    accepted(&json!({
        "$defs": { "tree": {
            "type": "object",
            "properties": { "name": { "type": "string", "maxLength": 4 }, "children": { "type": "array", "items": { "$ref": "#/$defs/tree" } } },
            "required": ["name"],
            "additionalProperties": false,
        } },
        "$ref": "#/$defs/tree",
    }))
    .takes(r#"{"children":[{"name":"a"}],"name":"b"}"#)
    .refuses(r#"{"children":[{}],"name":"b"}"#);
    accepted(&json!({ "anyOf": [{ "type": "integer" }, { "type": "string", "maxLength": 2 }] }))
        .takes("3")
        .takes(r#""ab""#)
        .refuses("true");
    accepted(&json!({
        "type": "object",
        "properties": { "id": { "type": "integer" } },
        "required": ["id"],
        "oneOf": [
            { "properties": { "kind": { "const": "a" } }, "required": ["kind"] },
            { "properties": { "kind": { "const": "b" }, "x": { "type": "null" } }, "required": ["kind", "x"] },
        ],
    }))
    .takes(r#"{"id":1,"kind":"a"}"#)
    .refuses(r#"{"id":1,"kind":"b"}"#);
    accepted(&json!({ "allOf": [
        { "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] },
        { "properties": { "a": { "minimum": 3 }, "b": { "type": "null" } }, "required": ["b"] },
    ] }))
    .takes(r#"{"a":3,"b":null}"#)
    .refuses(r#"{"a":2,"b":null}"#);
    // A schema that contains itself without end has no text.
    let endless = json!({ "$ref": "#/$defs/x", "$defs": { "x": { "type": "array", "items": { "$ref": "#/$defs/x" }, "minItems": 1 } } });
    assert_eq!(SchemaGrammar::of(&endless), Err(InvalidGrammar::Empty));
    let circle = json!({ "$ref": "#/$defs/x", "$defs": { "x": { "$ref": "#/$defs/x" } } });
    assert_eq!(SchemaGrammar::of(&circle), Err(InvalidGrammar::Empty));
}

#[test]
fn any_value_is_bounded_in_depth() {
    let any = accepted(&json!({}));
    let any = any.takes(r#"{"a": [1, {"b": null}], "c": -0.5}"#);
    for (depth, is_taken) in [(50, true), (300, false)] {
        let text = "[".repeat(depth) + &"]".repeat(depth);
        let end = Matcher::new(&any.grammar).after_all(text.as_bytes());
        assert_eq!(end.is_some(), is_taken, "{depth}");
    }
}

#[test]
fn size_of_a_grammar_is_limited_on_both_sides() {
    let of = |count: usize| {
        let names: Vec<Value> = (0..count).map(|n| json!(format!("{n:09}"))).collect();
        SchemaGrammar::of(&json!({ "enum": names }))
    };
    // Each name has eleven bytes, and counts one more.
    assert!(of(MAX_ITEMS / 12).is_ok());
    assert_eq!(of(MAX_ITEMS / 12 + 1), Err(InvalidGrammar::TooLarge));
    let mut deep = json!({ "type": "null" });
    for _ in 0..100 {
        deep = json!({ "type": "array", "items": deep });
    }
    assert_eq!(SchemaGrammar::of(&deep), Err(InvalidGrammar::TooLarge));
}

#[test]
fn grammar_is_the_same_after_transmission() {
    let grammar =
        SchemaGrammar::of(&json!({ "type": "object", "properties": { "a": { "type": "number" } } })).unwrap();
    let text = serde_json::to_string(&grammar).unwrap();
    assert_eq!(serde_json::from_str::<Grammar>(&text).unwrap(), grammar);
    // A rule that does not exist matches nothing.
    let broken: Grammar = serde_json::from_str(r#"{"rules":[[[{"r":7}]]],"root":0}"#).unwrap();
    assert!(Matcher::new(&broken).after(b'x').is_none());
}

proptest! {
    #[test]
    fn integers_of_random_bounds_are_exact(one in -5_000i64..5_000, other in -5_000i64..5_000, tried in -6_000i64..6_000) {
        let (least, most) = (one.min(other), one.max(other));
        let grammar = SchemaGrammar::of(&json!({ "type": "integer", "minimum": least, "maximum": most })).unwrap();
        let end = Matcher::new(&grammar).after_all(tried.to_string().as_bytes());
        prop_assert_eq!(end.is_some_and(|end| end.may_end()), (least..=most).contains(&tried));
    }

    #[test]
    fn schemas_of_any_json_are_no_panic(text in r##"\{("(type|anyOf|items|required|pattern|minimum|\$ref|const)": ?("string"|\[\{\}\]|\["a"\]|\{\}|1e300|"#"|"\(\["|true),?){0,3}"a":1\}"##) {
        if let Ok(schema) = serde_json::from_str::<Value>(&text) {
            let _ = SchemaGrammar::of(&schema).map(|grammar| walk(&grammar, 1, 20));
        }
    }
}

//! Property tests: no input panics, and accepted input has one meaning.
//!
//! Run longer with `PROPTEST_CASES=1000000 cargo test -p toolcell-core --test anything`. Failed cases are stored in
//! `anything.proptest-regressions` and run first.

use proptest::prelude::*;
use serde_json::Value;
use toolcell_core::json::{MAX_ARGUMENT_DEPTH, depth_of, parse_object, parse_value};
use toolcell_core::{Grant, Schema, ToolName};

/// Values of every kind, nested up to six levels.
fn any_json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    scalar.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..6).prop_map(|m| m.into_iter().collect::<Value>()),
        ]
    })
}

/// Values similar to schemas: real keywords with arbitrary values.
fn schema_like() -> impl Strategy<Value = Value> {
    let keyword = prop::sample::select(vec![
        "type",
        "properties",
        "required",
        "items",
        "prefixItems",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "$ref",
        "$defs",
        "$anchor",
        "$dynamicRef",
        "$id",
        "$schema",
        "enum",
        "const",
        "pattern",
        "format",
        "minimum",
        "maxLength",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "dependentSchemas",
        "uniqueItems",
        "contains",
        "minContains",
        "multipleOf",
        "unevaluatedProperties",
    ]);
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "object",
            "string",
            "integer",
            "#",
            "#/$defs/a",
            "#a",
            "(a+)+$",
            "x:y",
            "file:///"
        ])
        .prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(5, 48, 5, move |inner| {
        let members = prop_oneof![keyword.clone().prop_map(String::from), "[a-c]"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(members, inner, 0..5).prop_map(|m| m.into_iter().collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_rejected_or_parsed_as_other_parsers_do(text in ".*") {
        if let Ok(value) = parse_value(&text) {
            prop_assert_eq!(Some(value), serde_json::from_str(&text).ok());
        }
    }

    #[test]
    fn any_value_round_trips(value in any_json()) {
        let text = value.to_string();
        prop_assert!(depth_of(&value) <= MAX_ARGUMENT_DEPTH);
        prop_assert_eq!(parse_value(&text).unwrap(), value.clone());
        prop_assert_eq!(parse_object(&text).is_ok(), value.is_object());
    }

    #[test]
    fn truncated_json_is_rejected_or_a_value(value in any_json(), at in any::<prop::sample::Index>()) {
        let text = value.to_string();
        let cut = text.floor_char_boundary(at.index(text.len() + 1));
        let _ = parse_object(&text[..cut]);
    }

    #[test]
    fn any_schema_is_rejected_or_validates_any_value(schema in schema_like(), value in any_json()) {
        if let Ok(schema) = Schema::new(schema) {
            let _ = schema.validate(&value);
        }
    }

    #[test]
    fn any_line_is_rejected_or_a_grant_that_round_trips(line in "[a-z+-]{0,12}=?.{0,40}") {
        if let Ok(grant) = line.parse::<Grant>() {
            prop_assert_eq!(grant.to_string().parse::<Grant>(), Ok(grant));
        }
    }

    #[test]
    fn lines_similar_to_grants_round_trip(
        kind in prop::sample::select(vec!["read", "write", "read+create", "env", "http", "http-private", "keyvalue", "keyvalue-read"]),
        rest in r"(GET |GET,POST )?(https?://)?[a-z*.\[\]:0-9@-]{0,12}(:[0-9]{0,6})?[a-z/.:=-]{0,12}",
    ) {
        if let Ok(grant) = format!("{kind}={rest}").parse::<Grant>() {
            prop_assert_eq!(grant.to_string().parse::<Grant>(), Ok(grant));
        }
    }

    #[test]
    fn tool_name_is_printable_ascii(name in ".{0,70}") {
        if let Ok(name) = ToolName::new(name) {
            prop_assert!(name.as_str().bytes().all(|b| b.is_ascii_graphic()) && name.as_str().len() <= 64);
        }
    }
}

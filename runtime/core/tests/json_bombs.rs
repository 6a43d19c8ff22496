//! JSON and schemas crafted to consume time or memory, or to be parsed ambiguously.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use serde_json::{Value, json};
use toolcell_core::Schema;
use toolcell_core::json::{JsonError, MAX_ARGUMENT_BYTES, MAX_ARGUMENT_DEPTH, parse_object, parse_value};
use toolcell_core::schema::{MAX_PATTERN_SIZE, MAX_SCHEMA_BYTES, SchemaError};

#[test]
fn tree_of_alternatives_is_rejected_before_compilation() {
    // 2^n alternatives: nine megabytes at n = 18, which take seconds to prepare.
    let doubled = (0..18).fold(r#"{"type":"object"}"#.to_owned(), |inner, _| {
        format!(r#"{{"anyOf":[{inner},{inner}]}}"#)
    });
    assert!(doubled.len() > 7_000_000);
    let error = Schema::parse(&doubled).unwrap_err();
    assert!(
        matches!(error, SchemaError::TooLong(size) if size == doubled.len()),
        "{error}"
    );
    // An accepted schema has at most the allowed depth.
    let deep = (0..2_000).fold("{}".to_owned(), |inner, _| format!(r#"{{"not":{inner}}}"#));
    assert!(deep.len() < MAX_SCHEMA_BYTES);
    assert!(matches!(
        Schema::parse(&deep).unwrap_err(),
        SchemaError::Json(_) | SchemaError::TooDeep(_)
    ));
}

#[test]
fn exponential_patterns_are_matched_in_time_or_rejected() {
    let text = format!("{}!", "a".repeat(30_000));
    for pattern in [
        "^(a+)+$",
        "^(a|a)*$",
        "^(a|aa)+$",
        "^(.*a){20}$",
        "^([a-zA-Z]+)*$",
        "(x+x+)+y",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
    ] {
        let schema = Schema::new(json!({ "pattern": pattern })).unwrap();
        // Either it does not match, or it would take too long.
        let _ = schema.validate(&json!(text));
        assert_eq!(Schema::new(json!({ "pattern": pattern })).unwrap(), schema);
    }
    // Patterns that require backtracking are invalid.
    for pattern in ["(a)\\1", "(?=a)b", "(?<!a)b", "(?>a)", "(((((((((("] {
        assert!(Schema::new(json!({ "pattern": pattern })).is_err(), "{pattern}");
    }
    // So are patterns that grow when they are compiled.
    for pattern in [
        "(((a{1000}){1000}){1000})",
        "\\w{1000}{1000}",
        "(a{0,1000}){1000}",
    ] {
        let error = Schema::new(json!({ "pattern": pattern })).unwrap_err();
        assert!(
            matches!(error, SchemaError::Invalid(_) | SchemaError::PatternsTooLarge(_)),
            "{pattern}: {error:?}"
        );
    }
}

#[test]
fn total_pattern_size_is_limited() {
    let of = |sizes: &[usize]| {
        let all: Vec<Value> = sizes
            .iter()
            .map(|n| json!({"pattern": format!("[ab]{{{n}}}")}))
            .collect();
        Schema::new(json!({ "anyOf": all }))
    };
    let half = MAX_PATTERN_SIZE / 2;
    assert!(of(&[half - 10, half + 9]).is_ok());
    let error = of(&[half - 10, half + 11]).unwrap_err();
    assert!(
        matches!(error, SchemaError::PatternsTooLarge(size) if size == MAX_PATTERN_SIZE + 1),
        "{error}"
    );
    // Two thousand patterns of ten megabytes each, in sixty kilobytes.
    let many: Vec<usize> = (20_000..21_900).collect();
    assert!(matches!(of(&many).unwrap_err(), SchemaError::PatternsTooLarge(_)));
}

#[test]
fn names_special_in_other_languages_are_plain_data() {
    for name in [
        "__proto__",
        "constructor",
        "prototype",
        "toString",
        "$ref",
        "$schema",
        "\u{0}",
        "",
    ] {
        let text = json!({ name: { "polluted": true } }).to_string();
        let map = parse_object(&text).unwrap();
        assert_eq!(map.len(), 1);
        assert_eq!(map[name], json!({"polluted": true}));
        let schema = Schema::for_arguments(
            r#"{"type":"object","properties":{"safe":{"type":"string"}},"additionalProperties":false}"#,
        )
        .unwrap();
        assert!(schema.validate(&Value::Object(map)).is_err(), "{name:?}");
    }
}

/// Valid texts according to RFC 8259, each with one peculiarity.
const ACCEPTED: &[&str] = &[
    "0",
    "1",
    "-1",
    "123456789",
    "0.5",
    "-0.5",
    "1e1",
    "1E1",
    "1e+1",
    "1e-1",
    "1.5e10",
    "0e1",
    "20e1",
    "123e65",
    "9007199254740993",
    "18446744073709551615",
    "-9223372036854775808",
    "true",
    "false",
    "null",
    r#""""#,
    r#""a""#,
    r#""\"""#,
    r#""\\""#,
    r#""\/""#,
    r#""\b\f\n\r\t""#,
    r#""\u0000""#,
    r#""\u00e9""#,
    r#""\u20AC""#,
    r#""\ud834\udd1e""#,
    r#""\uFFFF""#,
    r#""\uDBFF\uDFFF""#,
    r#""\u005C\u0022""#,
    "\"é\"",
    "\"\u{2028}\u{2029}\"",
    "\"\u{7f}\"",
    "\"\u{10ffff}\"",
    "\"\u{feff}\"",
    "\"// no comment\"",
    "[]",
    "[ ]",
    "[[]]",
    "[1,2]",
    "[1 , 2]",
    "[null,1,\"1\",{}]",
    "{}",
    "{ }",
    r#"{"a":1}"#,
    r#"{"":0}"#,
    r#"{"a":{}}"#,
    r#"{"a":[]}"#,
    r#"{"a":1,"b":2}"#,
    r#"{"\u0061b":1}"#,
    r#"{"é":1}"#,
    " 1 ",
    "\t1\n",
    "\r\n[\r\n]\r\n",
    "[1\n]",
];

/// Invalid texts according to RFC 8259, or texts that parsers interpret differently.
const REFUSED: &[&str] = &[
    // Numbers.
    "+1",
    "01",
    "-01",
    "00",
    "1.",
    ".5",
    "-.5",
    "-",
    "--1",
    "1e",
    "1e+",
    "1E-",
    "1.e1",
    "1ee1",
    "1.2.3",
    "0x1",
    "0b1",
    "0o7",
    "1_000",
    "1,000",
    "NaN",
    "-NaN",
    "Infinity",
    "-Infinity",
    "inf",
    "1e400",
    "-1e400",
    "1 2",
    "1a",
    "１",
    "1\u{0}",
    "- 1",
    "1e1.5",
    "-a",
    // Strings.
    "\"",
    "\"a",
    "a\"",
    "'a'",
    "`a`",
    "\"\n\"",
    "\"\t\"",
    "\"\u{0}\"",
    "\"\u{1f}\"",
    "\"\\\"",
    r#""\x41""#,
    r#""\a""#,
    r#""\u""#,
    r#""\u1""#,
    r#""\u12""#,
    r#""\u123""#,
    r#""\u123g""#,
    r#""\U0041""#,
    r#""\ud800""#,
    r#""\udc00""#,
    r#""\ud800a""#,
    r#""\ud800\u0041""#,
    r#""\udc00\ud800""#,
    r#""\ud800\ud800""#,
    r#""\'""#,
    r#""a" "b""#,
    // Arrays.
    "[",
    "]",
    "[1",
    "[1,",
    "[,1]",
    "[1,]",
    "[1,,2]",
    "[1 2]",
    "[1:2]",
    "[,]",
    "[[]",
    "[]]",
    "[1;2]",
    "[1}",
    "[\"a\"",
    "[1,2,3",
    // Objects.
    "{",
    "}",
    "{a:1}",
    "{'a':1}",
    "{1:1}",
    "{null:1}",
    r#"{"a"}"#,
    r#"{"a":}"#,
    r#"{"a":1"#,
    r#"{"a":1,}"#,
    r#"{,"a":1}"#,
    r#"{"a" 1}"#,
    r#"{"a"::1}"#,
    r#"{"a":1 "b":2}"#,
    r#"{"a":1;"b":2}"#,
    r#"{"a":1}}"#,
    r#"{"a":1]"#,
    "{[]:1}",
    "{\"a\":1,,}",
    r#"{"a":1,"a":1}"#,
    r#"{"a":1,"\u0061":2}"#,
    r#"[{"b":{"a":1,"a":2}}]"#,
    // Everything else.
    "",
    " ",
    "nul",
    "nulll",
    "tru",
    "True",
    "TRUE",
    "FALSE",
    "None",
    "undefined",
    "<",
    "<html>",
    "/**/1",
    "1//x",
    "#1",
    "[1]#",
    "[1]x",
    "\u{feff}1",
    "\u{a0}1",
    "1\u{c}",
    "\u{2028}1",
    "1;",
    "(1)",
    "@",
    "*",
    "\u{0}",
];

#[test]
fn standard_json_is_parsed_as_by_every_parser() {
    for text in ACCEPTED {
        let read = parse_value(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        let other: Value = serde_json::from_str(text).unwrap();
        assert_eq!(read, other, "{text:?}");
        assert_eq!(parse_value(&read.to_string()).unwrap(), read, "{text:?}");
    }
}

#[test]
fn invalid_or_ambiguous_json_is_rejected() {
    for text in REFUSED {
        let error = parse_value(text).unwrap_err();
        assert!(matches!(error, JsonError::Syntax(_)), "{text:?}: {error:?}");
    }
}

#[test]
fn numbers_that_parsers_change_are_rejected() {
    for text in [
        "-0",
        "1e-400",
        "18446744073709551616",
        "[0.5, -9223372036854775809]",
    ] {
        let error = parse_value(text).unwrap_err();
        assert!(
            matches!(error, JsonError::InexactNumber(_)),
            "{text:?}: {error:?}"
        );
    }
}

#[test]
fn every_truncation_of_every_text_is_parsed_or_rejected() {
    for text in ACCEPTED.iter().chain(REFUSED) {
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let _ = parse_value(&text[..end]);
            let _ = parse_object(&text[..end]);
        }
    }
}

#[test]
fn bombs_are_rejected_or_parsed_in_linear_time() {
    let nested = |open: &str, close: &str, n: usize| format!("{}{}", open.repeat(n), close.repeat(n));
    for deep in [2_000, 100_000] {
        for text in [
            nested("[", "]", deep),
            "[".repeat(deep),
            nested(r#"{"a":["#, "]}", deep),
            r#"{"a":"#.repeat(deep),
        ] {
            assert!(parse_value(&text).is_err());
        }
    }
    assert!(parse_value(&nested("[", "]", MAX_ARGUMENT_DEPTH)).is_ok());
    // As many values as fit into the text take more memory than arguments may.
    let many = |count: usize| format!("[{}0]", "0,".repeat(count));
    let most = many((MAX_ARGUMENT_BYTES - 3) / 2);
    assert!(most.len() <= MAX_ARGUMENT_BYTES && parse_value(&most).is_err());
    let parsed = parse_value(&many(200_000)).unwrap();
    assert_eq!(parsed.as_array().unwrap().len(), 200_001);
    let names: Vec<String> = (0..60_000).map(|n| format!("\"{n}\":0")).collect();
    assert_eq!(
        parse_object(&format!("{{{}}}", names.join(","))).unwrap().len(),
        60_000
    );
    // A number of half a million digits.
    assert!(parse_value(&"1".repeat(500_000)).is_err());
    assert!(parse_value(&format!("0.{}", "1".repeat(500_000))).is_ok());
}

#[test]
fn billion_possible_mismatches_are_reported_as_one() {
    let names: Vec<String> = (0..1_900).map(|n| n.to_string()).collect();
    let schema = Schema::new(json!({"items": {"required": names, "minProperties": 1}})).unwrap();
    let objects = Value::Array(vec![json!({}); 300_000]);
    let mismatches = schema.validate(&objects).unwrap_err();
    assert_eq!(mismatches.len(), 1);
    assert!(mismatches[0].reason.contains("too long"), "{mismatches:?}");
}

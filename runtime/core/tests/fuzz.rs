//! Fuzz targets for input of users, models and tools: grants, arguments, schemas. `tests/fuzz` describes how to run
//! them.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "../../../tests/fuzz/mod.rs"]
mod fuzz;

use fuzz::Target;
use serde_json::{Value, json};
use toolcell_core::json::{MAX_ARGUMENT_DEPTH, depth_of, parse_object, parse_value};
use toolcell_core::schema::{MAX_MISMATCHES, MAX_SCHEMA_BYTES};
use toolcell_core::{Grant, Schema};

#[test]
fn fuzz_grants_round_trip() {
    let words = [
        "read=",
        "write=",
        "read+create=",
        "modify+delete=",
        "env=",
        "http=",
        "http-private=",
        "GET,POST ",
        "https://",
        "http://",
        "*.",
        "*",
        "example.com",
        "127.0.0.1",
        "[::1]",
        ":8080",
        ":99999",
        "/api",
        "..",
        "//",
        "=",
        ":",
        ",",
        " ",
        "\t",
        "\u{202e}",
        "ü",
        "\0",
        "@",
        "#",
        "?",
        "%2e",
    ];
    let tried = Target::new("grant", 20_000)
        .seeds([
            "read=.",
            "env=A=b",
            "http=GET,POST https://*.example.com:8443/api",
            "keyvalue=shop.2:memory",
            "deny-http=POST http://example.com:81/admin",
        ])
        .words(&words)
        .run(|input| {
            let line = String::from_utf8_lossy(input);
            match line.parse::<Grant>() {
                Ok(grant) => {
                    let printed = grant.to_string();
                    assert_eq!(
                        printed.parse().as_ref(),
                        Ok(&grant),
                        "{line:?} prints as {printed:?}"
                    );
                    let json = serde_json::to_string(&grant).unwrap();
                    assert_eq!(serde_json::from_str::<Grant>(&json).unwrap(), grant, "{json}");
                    match grant {
                        Grant::Dir { access, .. } => format!("directory {access:?}"),
                        Grant::Env { value, .. } => format!("variable, value: {}", value.is_some()),
                        Grant::Http(http) => format!("http, private: {}", http.private),
                        Grant::Bucket(bucket) => format!("bucket, changed: {}", bucket.write),
                        Grant::Deny { .. } => "denied path".into(),
                        Grant::DenyHttp(denial) => format!("denied http, path: {}", !denial.path.is_empty()),
                        Grant::DenyBucket { .. } => "denied bucket".into(),
                    }
                }
                Err(error) => {
                    let said = error.to_string();
                    assert!(!said.chars().any(char::is_control), "{said:?}");
                    error.reason.split('`').next().unwrap_or_default().to_owned()
                }
            }
        });
    assert!(tried.outcomes.len() > 10, "{tried:?}");
}

#[test]
fn fuzz_arguments_parse_as_elsewhere_or_are_rejected() {
    let words = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\",
        "\\u",
        "\\ud800",
        "\\udc00",
        "null",
        "true",
        "1e400",
        "1e-9",
        "-0",
        "0",
        "\"a\":",
        "\"a\"",
        "{\"a\":{\"a\":",
        "[[[[[[[[",
        "]]]]]]]]",
        " ",
        "\n",
        "\0",
        "é",
        "\u{feff}",
    ];
    let tried = Target::new("arguments", 20_000)
        .seeds([r#"{"a":1,"b":[true,null,"x\u00e9"]}"#])
        .words(&words)
        .run(|input| {
            let text = String::from_utf8_lossy(input);
            match parse_value(&text) {
                Ok(value) => {
                    assert_eq!(
                        serde_json::from_str::<Value>(&text).ok().as_ref(),
                        Some(&value),
                        "{text:?}"
                    );
                    assert!(depth_of(&value) <= MAX_ARGUMENT_DEPTH);
                    assert_eq!(parse_value(&value.to_string()).unwrap(), value, "{text:?}");
                    assert_eq!(parse_object(&text).is_ok(), value.is_object(), "{text:?}");
                    toolcell_core::json::kind_of(&value).to_owned()
                }
                Err(error) => {
                    let said = error.to_string();
                    said.split([' ', '`']).take(3).collect::<Vec<_>>().join(" ")
                }
            }
        });
    assert!(tried.outcomes.len() > 10, "{tried:?}");
}

/// Generates JSON from bytes: each byte is a decision, and missing bytes are zeros.
struct Decisions<'a>(std::slice::Iter<'a, u8>);

impl Decisions<'_> {
    fn next(&mut self, of: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % of
    }

    fn name(&mut self) -> &'static str {
        ["a", "b", "", "__proto__", "a/b", "~"][self.next(6)]
    }

    fn scalar(&mut self) -> Value {
        match self.next(10) {
            0 => Value::Null,
            1 => true.into(),
            2 => 0.into(),
            3 => (-1).into(),
            4 => 0.5.into(),
            5 => u64::MAX.into(),
            6 => 1e300.into(),
            7 => "é\u{10ffff}".into(),
            _ => self.name().into(),
        }
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.next(4) {
            0 if depth > 0 => (0..self.next(4)).map(|_| self.value(depth - 1)).collect(),
            1 if depth > 0 => (0..self.next(4))
                .map(|_| (self.name().to_owned(), self.value(depth - 1)))
                .collect(),
            _ => self.scalar(),
        }
    }

    fn schema(&mut self, depth: usize) -> Value {
        if depth == 0 {
            return [true.into(), false.into(), json!({}), json!({"type": "string"})][self.next(4)].clone();
        }
        (0..1 + self.next(3))
            .map(|_| {
                let keyword = KEYWORDS[self.next(KEYWORDS.len())];
                (keyword.to_owned(), self.of_keyword(keyword, depth - 1))
            })
            .collect()
    }

    /// Usually a value that suits the keyword.
    fn of_keyword(&mut self, keyword: &str, depth: usize) -> Value {
        let names = |this: &mut Self| {
            (0..this.next(3))
                .map(|_| Value::from(this.name()))
                .collect::<Value>()
        };
        match keyword {
            _ if self.next(16) == 15 => self.value(depth),
            "type" => [
                "object", "array", "string", "integer", "null", "number", "boolean",
            ][self.next(7)]
            .into(),
            "properties" | "$defs" | "patternProperties" | "dependentSchemas" => (0..self.next(3))
                .map(|_| (self.name().to_owned(), self.schema(depth)))
                .collect(),
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                (0..1 + self.next(2)).map(|_| self.schema(depth)).collect()
            }
            "required" => names(self),
            "dependentRequired" => json!({ self.name(): names(self) }),
            "enum" => (0..1 + self.next(3)).map(|_| self.value(depth)).collect(),
            "const" => self.value(depth),
            "$ref" => ["#", "#/$defs/a", "#a", "#/properties/a", "file:///x"][self.next(5)].into(),
            "$dynamicRef" => "#a".into(),
            "$anchor" | "$dynamicAnchor" => "a".into(),
            "$id" => "x:y".into(),
            "pattern" => ["^a", "(a+)+$", "[ab]{50}", "\\p{L}", "(a)\\1", "é"][self.next(6)].into(),
            "multipleOf" => json!(0.1),
            "uniqueItems" => true.into(),
            "minimum" | "maximum" | "minLength" | "maxLength" | "minItems" | "maxItems" | "minContains" => {
                self.next(4).into()
            }
            _ => self.schema(depth),
        }
    }
}

const KEYWORDS: [&str; 38] = [
    "type",
    "properties",
    "$defs",
    "patternProperties",
    "dependentSchemas",
    "allOf",
    "anyOf",
    "oneOf",
    "prefixItems",
    "required",
    "dependentRequired",
    "enum",
    "const",
    "$ref",
    "$dynamicRef",
    "$anchor",
    "$dynamicAnchor",
    "$id",
    "pattern",
    "multipleOf",
    "uniqueItems",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minContains",
    "not",
    "if",
    "then",
    "else",
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
];

/// A schema and a value, generated by [`Decisions`]; an input that begins with `{` is the text of a schema instead.
#[test]
fn fuzz_schemas_are_rejected_or_validate_consistently() {
    let tried = Target::new("schema", 20_000)
        .seeds([
            "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}}",
            "\u{1}\u{2}\u{3}",
            "abcdefghijklm",
        ])
        .run(|input| {
            let mut decisions = Decisions(input.iter());
            let text = match input.first() {
                Some(b'{') => String::from_utf8_lossy(input).into_owned(),
                _ => decisions.schema(4).to_string(),
            };
            let schema = match Schema::parse(&text) {
                Ok(schema) => schema,
                Err(error) => {
                    return format!("{error:?}")
                        .split(['(', ' '])
                        .next()
                        .unwrap_or_default()
                        .to_owned();
                }
            };
            let value = decisions.value(4);
            let verdict = schema.validate(&value);
            // Printed and parsed again both are the same, as on their way to the guest.
            let printed = schema.as_value().to_string();
            assert!(printed.len() <= MAX_SCHEMA_BYTES);
            let again = Schema::parse(&printed).unwrap();
            let written = parse_value(&value.to_string()).unwrap();
            assert_eq!(again.validate(&written), verdict, "{printed} {value}");
            match verdict {
                Ok(()) => "fits".into(),
                Err(mismatches) => {
                    assert!((1..=MAX_MISMATCHES).contains(&mismatches.len()));
                    for mismatch in &mismatches {
                        assert!(
                            value.pointer(&mismatch.path).is_some(),
                            "{printed} {value}: {mismatch:?}"
                        );
                    }
                    let words = |w: &&str| w.len() > 3 && w.bytes().all(|b| b.is_ascii_alphabetic());
                    let kind = mismatches[0].reason.split(' ').rfind(words).unwrap_or_default();
                    format!("{} mismatches, ending in {kind}", mismatches.len())
                }
            }
        });
    assert!(
        tried.outcomes.len() > 10 && tried.outcomes.contains_key("fits"),
        "{tried:?}"
    );
}

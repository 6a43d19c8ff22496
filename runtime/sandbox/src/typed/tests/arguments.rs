//! Arguments that do not have their type.

use serde_json::{Value, json};

use super::{WitType, field, list, named, option};
use crate::cell::memory::{MemoryAccount, MemoryPool};
use crate::typed::lower;

fn refusal(ty: WitType, value: Value) -> String {
    let Value::Object(arguments) = json!({ "v": value }) else {
        unreachable!()
    };
    let mut memory = MemoryAccount::unlimited().empty();
    let error = lower::arguments(&[field("v", ty)], &arguments, &mut memory).unwrap_err();
    match error.into_error() {
        toolcell_core::ToolError::InvalidArguments { message } => message,
        other => panic!("{other:?}"),
    }
}

fn point() -> WitType {
    WitType::Record(vec![field("x", WitType::U8), field("y", option(WitType::S16))])
}

#[test]
fn error_has_the_path_of_the_argument() {
    let shape = WitType::Variant([("dot".into(), None), ("points".into(), Some(list(point())))].into());
    for (ty, value, message) in [
        (
            list(point()),
            json!([{"x": 1}, {"x": 300}]),
            "at /v/1/x: 300 is no integer between 0 and 255",
        ),
        (
            list(point()),
            json!([{"y": 1}]),
            "at /v/0: the field `x` is missing",
        ),
        (
            point(),
            json!({"x": 1, "y": -40_000}),
            "at /v/y: -40000 is no integer between -32768 and 32767",
        ),
        (
            point(),
            json!({"x": 1, "z": 1}),
            "at /v: there is no field `z`; there are `x`, `y`",
        ),
        (point(), json!([]), "at /v: expected an object, found an array"),
        (
            shape.clone(),
            json!({"tag": "points", "value": [{"x": "1"}]}),
            "at /v/value/0/x: expected an integer, found a string",
        ),
        (
            shape.clone(),
            json!({"tag": "point"}),
            "at /v/tag: there is no case `point` (did you mean `points`?); there are `dot`, `points`",
        ),
        (
            shape.clone(),
            json!({"value": 1}),
            "at /v: the `tag` is missing; there are `dot`, `points`",
        ),
        (
            shape.clone(),
            json!({"tag": "points"}),
            "at /v: the case `points` needs a `value`",
        ),
        (
            shape,
            json!({"tag": "dot", "value": 1}),
            "at /v/value: the case `dot` has no value",
        ),
        (
            WitType::Enum(named(&["red", "green"])),
            json!("blue"),
            "at /v: there is no value `blue`; there are `red`, `green`",
        ),
        (
            WitType::Flags(named(&["read", "write"])),
            json!(["read", "read"]),
            "at /v/1: the flag `read` is there twice",
        ),
        (
            WitType::Tuple(vec![WitType::Bool, WitType::Char]),
            json!([true, "ab"]),
            "at /v/1: expected one character, found 2",
        ),
        (
            WitType::Tuple(vec![WitType::Bool]),
            json!([]),
            "at /v: expected 1 elements, found 0",
        ),
        (
            WitType::Bool,
            json!(1),
            "at /v: expected true or false, found a number",
        ),
        (
            WitType::U32,
            json!(1.5),
            "at /v: 1.5 is no integer between 0 and 4294967295",
        ),
        (
            WitType::U64,
            json!("18446744073709551616"),
            "at /v: 18446744073709551616 is no integer between 0 and 18446744073709551615",
        ),
        (
            WitType::S64,
            json!("1e3"),
            "at /v: expected an integer, or its decimal digits as a string",
        ),
        (WitType::F32, json!(1e300), "is beyond the range of `f32`"),
        (
            WitType::F64,
            json!("inf"),
            "at /v: expected a number, \"NaN\", \"Infinity\" or \"-Infinity\"",
        ),
        (WitType::Bytes, json!("*"), "at /v: expected base64 (RFC 4648)"),
        (
            option(option(WitType::U8)),
            json!([1, 2]),
            "at /v: expected null or an array of one element, found 2",
        ),
        (
            option(option(WitType::U8)),
            json!([true]),
            "at /v/0: expected an integer, found a boolean",
        ),
        (
            WitType::Result(None, Some(Box::new(WitType::String))),
            json!({"tag": "fail"}),
            "at /v/tag: there is no case `fail`; there are `ok`, `err`",
        ),
    ] {
        let found = refusal(ty, value);
        assert!(found.contains(message), "expected {message:?}, found {found:?}");
    }
}

#[test]
fn unknown_and_missing_parameters_are_named() {
    let parameters = [
        field("text", WitType::String),
        field("limit", option(WitType::U8)),
    ];
    let of = |value: Value| {
        let mut memory = MemoryAccount::unlimited().empty();
        let arguments = value.as_object().unwrap();
        lower::arguments(&parameters, arguments, &mut memory).map_err(|error| error.into_error().to_string())
    };
    assert_eq!(of(json!({"text": "x"})).unwrap().len(), 2);
    let missing = of(json!({})).unwrap_err();
    assert!(missing.contains("the parameter `text` is missing"), "{missing}");
    let unknown = of(json!({"txt": "x"})).unwrap_err();
    assert!(unknown.contains("did you mean `text`"), "{unknown}");
}

#[test]
fn long_names_are_not_repeated() {
    for (length, is_shown) in [(100, true), (101, false)] {
        let name = "x".repeat(length);
        let message = refusal(WitType::Enum(named(&["a"])), json!(name));
        assert_eq!(message.contains(&name), is_shown, "{message}");
    }
    let many: Vec<String> = (0..41).map(|i| format!("n{i}")).collect();
    let message = refusal(WitType::Enum(many.iter().cloned().collect()), json!("zzz"));
    assert!(message.ends_with("`n39` and 1 more"), "{message}");
    let message = refusal(WitType::Enum(many[..40].iter().cloned().collect()), json!("zzz"));
    assert!(message.ends_with("`n39`"), "{message}");
}

/// Memory of the values, to the byte.
#[test]
fn values_are_charged_before_they_are_made() {
    let val = size_of::<wasmtime::component::Val>() as u64;
    let pair = size_of::<(String, wasmtime::component::Val)>() as u64;
    let of = |ty: WitType, value: Value, limit: u64| {
        let account = MemoryAccount::new(limit, MemoryPool::new(u64::MAX));
        let Value::Object(arguments) = json!({ "v": value }) else {
            unreachable!()
        };
        lower::arguments(&[field("v", ty)], &arguments, &mut account.empty()).map(drop)
    };
    for (ty, value, bytes) in [
        (WitType::Bool, json!(true), 0),
        (WitType::String, json!("abc"), 3),
        (list(WitType::U16), json!([1, 2, 3]), 3 * val),
        (WitType::Bytes, json!("AAECAwQF"), (8 / 4 * 3 + 3) * (val + 1)),
        (option(WitType::U8), json!(1), val),
        (point(), json!({"x": 1}), 2 * pair + 2),
        (WitType::Enum(named(&["abcd"])), json!("abcd"), 4),
        (WitType::Flags(named(&["ab"])), json!(["ab"]), 24 + 2),
    ] {
        // The parameter itself, with its name.
        let bytes = bytes + pair + 1;
        assert!(of(ty.clone(), value.clone(), bytes).is_ok(), "{ty:?}");
        let refused = of(ty.clone(), value, bytes - 1).unwrap_err().into_error();
        assert!(
            matches!(refused, toolcell_core::ToolError::Limit { .. }),
            "{ty:?}: {refused:?}"
        );
    }
}

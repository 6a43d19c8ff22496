//! Limits of the memory that results take in the host.

use std::sync::atomic::AtomicBool;

use serde_json::json;
use toolcell_core::{Limit, Limits, Policy, Schema, ToolError};
use wasmtime::component::Val;

use super::{ECHO, WitType, call, echo, list, load, sandbox};
use crate::typed::comments::Comments;
use crate::typed::wit_type::{MAX_TYPE_DEPTH, Room};
use crate::typed::{lift, schema};

fn limited(limits: Limits) -> Policy {
    Policy {
        limits,
        ..Policy::default()
    }
}

/// A component with the function `many`, which returns a list of `count` elements of a type, all of the same bytes.
fn many(definitions: &str, ty: &str, size: u32, byte: u8) -> String {
    format!(
        r#"(component {ECHO} {definitions}
(core module $n
  (import "m" "memory" (memory 2))
  (func (export "many") (param $count i32) (result i32)
    (drop (memory.grow (i32.const 100)))
    (memory.fill (i32.const 65536) (i32.const {byte}) (i32.mul (local.get $count) (i32.const {size})))
    (i32.store (i32.const 32) (i32.const 65536))
    (i32.store (i32.const 36) (local.get $count))
    (i32.const 32)))
(core instance $j (instantiate $n (with "m" (instance $i))))
(type $list (list {ty}))
(func $many (param "count" u32) (result $list) (canon lift (core func $j "many") (memory $i "memory")))
(export "many" (func $many)))"#
    )
}

async fn call_many(text: &str, count: u32, policy: Policy) -> Result<(), ToolError> {
    let component = load(&sandbox(), text).await.unwrap();
    let result = call(&component, policy, "many", json!({ "count": count })).await;
    result.into_result().map(drop)
}

#[tokio::test]
async fn values_of_a_result_are_limited_before_they_are_made() {
    // A quarter of the memory that the guest leaves, at 40 bytes for each value; 9 MiB are of the guest.
    let limits = Limits {
        output: 1 << 20,
        memory: 64 << 20,
        ..Limits::default()
    };
    let text = many("", "u32", 4, 0);
    assert_eq!(call_many(&text, 200_000, limited(limits.clone())).await, Ok(()));
    let limit = Limit::Memory(64 << 20);
    let beyond = call_many(&text, 500_000, limited(limits)).await;
    assert_eq!(beyond, Err(ToolError::Limit { limit }));
    // With little memory: the output limit and what may pass in addition.
    let small = Limits {
        output: 4 << 20,
        memory: 20 << 20,
        ..Limits::default()
    };
    let fits = (5 << 20) / 40;
    assert_eq!(call_many(&text, fits, limited(small.clone())).await, Ok(()));
    let beyond = call_many(&text, 3 * fits, limited(small)).await;
    assert!(matches!(beyond, Err(ToolError::Limit { .. })), "{beyond:?}");
}

/// A million values take longer than the deadline on any machine, first to read and then to convert.
#[tokio::test]
async fn conversion_of_a_large_result_ends_at_the_deadline() {
    let limits = Limits {
        wall_ms: 5,
        ..Limits::default()
    };
    let late = call_many(&many("", "bool", 1, 1), 1_000_000, limited(limits)).await;
    let limit = Limit::WallTimeMs(5);
    assert_eq!(late, Err(ToolError::Limit { limit }));
}

#[test]
fn large_values_are_told_from_small_ones() {
    let bools = |count| Val::List(vec![Val::Bool(true); count]);
    let within = |value: &Val, mut left: usize| lift::is_within(value, &mut left);
    // The list counts once, and each element as part of it and by itself.
    assert!(within(&bools(10), 21));
    assert!(!within(&bools(10), 20));
    let text = Val::String("x".repeat(10 * size_of::<Val>()));
    assert!(within(&text, 11));
    assert!(!within(&text, 10));
    let bytes = Val::List(vec![Val::U8(0); 10]);
    assert!(within(&bytes, 11) && !within(&bytes, 10));
    let nested = Val::Option(Some(Box::new(Val::Tuple(vec![bools(1), bools(1)]))));
    assert!(within(&nested, 10) && !within(&nested, 9));
}

#[test]
fn stopped_conversion_leaves_out_the_rest_of_lists() {
    let value = Val::List(vec![Val::Bool(true); 3]);
    let ty = list(WitType::Bool);
    assert_eq!(
        lift::json(value.clone(), &ty, &AtomicBool::new(false)),
        json!([true, true, true])
    );
    assert_eq!(lift::json(value, &ty, &AtomicBool::new(true)), json!([]));
}

#[tokio::test]
async fn memory_set_aside_for_a_result_is_not_in_the_receipt() {
    let component = load(&sandbox(), &many("", "u8", 1, 7)).await.unwrap();
    let result = call(&component, Policy::default(), "many", json!({ "count": 3 })).await;
    assert_eq!(result.structured, Some(json!({ "result": "BwcH" })));
    let receipt = result.receipt.unwrap();
    assert!(receipt.peak_host_memory < 1 << 20, "{receipt:?}");
    assert!(receipt.peak_memory < 16 << 20, "{receipt:?}");
}

#[tokio::test]
async fn json_of_a_result_is_limited_by_the_output_limit() {
    let limits = |output| Limits {
        output,
        ..Limits::default()
    };
    // [1,1,1]
    let value = json!([1, 1, 1]);
    let exact = echo(&WitType::U16, limited(limits(7)), value.clone()).await;
    assert_eq!(exact, Ok(value.clone()));
    let limit = Limit::Output(6);
    let beyond = echo(&WitType::U16, limited(limits(6)), value).await;
    assert_eq!(beyond, Err(ToolError::Limit { limit }));
}

#[tokio::test]
async fn flags_of_a_result_count_with_their_names() {
    let names: Vec<String> = ('a'..='z').map(String::from).collect();
    let weight = list(WitType::Flags(names.iter().cloned().collect())).uncounted();
    assert_eq!(weight, (40 + 26 * 56_u64).div_ceil(40 + 26));
    // Without a list there is only one of them.
    assert_eq!(WitType::Flags(names.iter().cloned().collect()).uncounted(), 1);
    let quoted: String = names.iter().map(|name| format!(" \"{name}\"")).collect();
    let definitions = format!("(type $d (flags{quoted})) (export $t \"t\" (type $d))");
    let text = many(&definitions, "$t", 4, 0xff);
    // A value with 26 names of one letter counts 66 bytes, and 256 KiB may always pass.
    assert!((5 << 20) / weight < 256 << 10);
    let fits = (256 << 10) / 66;
    let policy = || {
        limited(Limits {
            memory: 20 << 20,
            ..Limits::default()
        })
    };
    // Their JSON takes some kilobytes for each of them.
    assert_eq!(call_many(&text, fits / 4, policy()).await, Ok(()));
    let beyond = call_many(&text, 2 * fits, policy()).await;
    assert!(matches!(beyond, Err(ToolError::Limit { .. })), "{beyond:?}");
}

#[tokio::test]
async fn list_of_bytes_uses_memory_that_the_call_has_left() {
    // A quarter of 256 MiB at 40 bytes for each byte, less what the guest has.
    let text = many("", "u8", 1, 7);
    assert_eq!(call_many(&text, 1 << 20, Policy::default()).await, Ok(()));
    let beyond = call_many(&text, 2 << 20, Policy::default()).await;
    assert!(matches!(beyond, Err(ToolError::Limit { .. })), "{beyond:?}");
    // With less memory there is as much as for every result.
    let small = Limits {
        memory: 80 << 20,
        ..Limits::default()
    };
    assert_eq!(call_many(&text, 100_000, limited(small.clone())).await, Ok(()));
    let beyond = call_many(&text, 1 << 20, limited(small)).await;
    assert!(matches!(beyond, Err(ToolError::Limit { .. })), "{beyond:?}");
}

#[tokio::test]
async fn values_of_arguments_are_memory_of_the_call() {
    let arguments = json!(vec![0_u8; 100_000]);
    let of = async |memory| {
        let limits = Limits {
            memory,
            ..Limits::default()
        };
        echo(&WitType::U16, limited(limits), arguments.clone()).await
    };
    assert!(of(32 << 20).await.is_ok());
    // 100,000 values of 40 bytes do not fit beside the memory of the guest.
    let limit = Limit::Memory(3 << 20);
    assert_eq!(of(3 << 20).await, Err(ToolError::Limit { limit }));
}

/// Returns the type of the parameter of a function.
fn parameter(definitions: &str, ty: &str) -> wasmtime::component::Type {
    let text = format!(
        r#"(component {definitions}
(core module $m (memory (export "memory") 1)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
  (func (export "f") (param i32)) (func (export "g") (param i32 i32)))
(core instance $i (instantiate $m))
(func $f (param "v" {ty})
  (canon lift (core func $i "{}") (memory $i "memory") (realloc (func $i "realloc"))))
(export "f" (func $f)))"#,
        if ty.starts_with("(list") { "g" } else { "f" }
    );
    let engine = crate::engine::compiler(crate::engine::EngineKind::Sequential, false).unwrap();
    let bytes = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let component = wasmtime::component::Component::new(&engine, bytes).unwrap();
    let ty = component.component_type();
    let (_, item) = ty.exports(&engine).last().unwrap();
    let wasmtime::component::types::ComponentItem::ComponentFunc(function) = item.ty else {
        panic!("it exports a function last");
    };
    function.params().next().unwrap().1
}

#[test]
fn depth_and_number_of_parts_of_types_are_limited() {
    let nested = |levels: usize| format!("{}bool{}", "(list ".repeat(levels - 1), ")".repeat(levels - 1));
    let room = |parts| Room {
        parts,
        name_bytes: 100,
    };
    let of = |ty: &str, parts: usize| WitType::of(&parameter("", ty), &mut room(parts));
    assert!(of(&nested(MAX_TYPE_DEPTH), 100).is_ok());
    let refused = of(&nested(MAX_TYPE_DEPTH + 1), 100).unwrap_err();
    assert_eq!(refused.0, "its types are nested in more than 14 levels");
    // The list, the tuple and two elements.
    assert!(of("(list (tuple bool bool))", 4).is_ok());
    let refused = of("(list (tuple bool bool))", 3).unwrap_err();
    assert_eq!(refused.0, "its types have more than 4000 parts");
    let definitions = "(type $d (enum \"a\" \"b\")) (export $t \"t\" (type $d))";
    for (parts, is_ok) in [(3, true), (2, false)] {
        let made = WitType::of(&parameter(definitions, "$t"), &mut room(parts));
        assert_eq!(made.is_ok(), is_ok);
    }
}

/// In a few bytes such types say that a value has any number of others.
#[test]
fn lists_of_fixed_length_are_limited_in_their_values() {
    let of = |element: &str, inner: u32, outer: u32| {
        let definitions = format!(
            "(type $pair (tuple u8 (option u8))) (type $inner (list {element} {inner})) (type $t (list $inner {outer}))"
        );
        let mut room = Room {
            parts: 100,
            name_bytes: 100,
        };
        WitType::of(&parameter(&definitions, "$t"), &mut room)
    };
    for (element, inner, outer, is_ok) in [
        ("u8", 1_000_000, 1, true),
        ("u8", 1_000_001, 1, false),
        ("u64", 1_000, 1_000, true),
        ("u64", 1_000, 1_001, false),
        // A pair with an option is three values.
        ("$pair", 1_000, 333, true),
        ("$pair", 1_000, 334, false),
        ("string", 1_000, 1_000, true),
        ("u8", 1_000, 4_194_304, false),
    ] {
        let converted = of(element, inner, outer);
        assert_eq!(
            converted.is_ok(),
            is_ok,
            "{element} {inner} {outer}: {converted:?}"
        );
    }
}

#[test]
fn names_in_types_are_limited_in_bytes() {
    let three = |kind: &str| format!("(type $d ({kind})) (export $t \"t\" (type $d))");
    for kind in [
        r#"enum "aaa" "bbb" "ccc""#,
        r#"flags "aaa" "bbb" "ccc""#,
        r#"variant (case "aaa") (case "bbb") (case "ccc")"#,
        r#"record (field "aaabbbccc" bool)"#,
    ] {
        for (name_bytes, is_ok) in [(9, true), (8, false)] {
            let mut room = Room {
                parts: 100,
                name_bytes,
            };
            let made = WitType::of(&parameter(&three(kind), "$t"), &mut room);
            assert_eq!(made.is_ok(), is_ok, "{kind}");
        }
    }
}

#[tokio::test]
async fn long_names_repeated_in_a_type_are_no_tool() {
    let fields: String = (0..10)
        .map(|n| format!(r#"(field "f{n}{}" bool)"#, "x".repeat(50_000)))
        .collect();
    let many = "$r ".repeat(100);
    let text = format!(
        r#"(component
(core module $m (memory (export "memory") 1) (func (export "f")) (func (export "g") (param i32))
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0)))
(core instance $i (instantiate $m))
(type $record (record {fields})) (export $r "r" (type $record))
(type $tuple (tuple {many}))
(func $f (canon lift (core func $i "f")))
(func $g (param "v" $tuple) (canon lift (core func $i "g") (memory $i "memory") (realloc (func $i "realloc"))))
(export "f" (func $f)) (export "g" (func $g)))"#
    );
    let component = load(&sandbox(), &text).await.unwrap();
    assert_eq!(component.definitions().len(), 1);
    assert_eq!(
        component.left_out()[0].reason,
        "the names in its types have more than 64 KiB"
    );
}

#[tokio::test]
async fn type_that_contains_itself_twice_is_left_out() {
    let doubled: String = (1..13)
        .map(|n| format!("(type $t{n} (tuple $t{0} $t{0}))", n - 1))
        .collect();
    let text = format!(
        r#"(component {ECHO} (type $t0 bool) {doubled}
(core module $n (func (export "f") (param i32)))
(core instance $j (instantiate $n))
(func $f (param "v" $t12) (canon lift (core func $j "f") (memory $i "memory") (realloc (func $i "realloc"))))
(export "f" (func $f)))"#
    );
    let refused = load(&sandbox(), &text).await.unwrap_err().to_string();
    assert!(
        refused.ends_with("`f`: its types have more than 4000 parts"),
        "{refused}"
    );
}

/// A component with `count` functions of the same type, after those that are left out.
fn crowd(ty: &str, count: usize, left_out: usize) -> String {
    let good: String = (0..count)
        .map(|n| format!("(export \"f{n}\" (func $f))"))
        .collect();
    let other: String = (0..left_out)
        .map(|n| format!("(export \"r{n}\" (func $r))"))
        .collect();
    let doubled: String = (1..11)
        .map(|n| format!("(type $t{n} (tuple $t{0} $t{0}))", n - 1))
        .collect();
    format!(
        r#"(component {ECHO} (type $t0 bool) {doubled}
(core module $n (func (export "f") (param i32)))
(core instance $j (instantiate $n))
(type $resource (resource (rep i32)))
(export $thing "thing" (type $resource))
(func $r (param "v" (own $thing)) (canon lift (core func $j "f")))
(func $f (param "v" {ty}) (canon lift (core func $j "f") (memory $i "memory") (realloc (func $i "realloc"))))
{other}{good})"#
    )
}

#[tokio::test]
async fn functions_of_a_component_are_limited_in_number() {
    let component = load(&sandbox(), &crowd("bool", 128, 129)).await.unwrap();
    assert_eq!(
        (component.definitions().len(), component.left_out().len()),
        (128, 128)
    );
    let refused = load(&sandbox(), &crowd("bool", 130, 0)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the component defines 130 tools, expected 1 to 128"
    );
    // A large type in each of many functions: none of them is a tool.
    let refused = load(&sandbox(), &crowd("$t10", 128, 0)).await.unwrap_err();
    assert!(refused.to_string().contains("more than 64 KiB"), "{refused}");
}

/// A component with the function `f`, and another one of this name and these parameters.
fn beside(name: &str, parameters: &str) -> String {
    let count = parameters.matches("(param").count();
    let core = "i32 ".repeat(count);
    format!(
        r#"(component
(core module $m (func (export "f")) (func (export "g") (param {core})))
(core instance $i (instantiate $m))
(func $f (canon lift (core func $i "f")))
(func $g {parameters} (canon lift (core func $i "g")))
(export "f" (func $f)) (export "{name}" (func $g)))"#
    )
}

#[tokio::test]
async fn function_that_cannot_be_a_tool_leaves_the_others() {
    for (length, tools) in [(64, 2), (65, 1)] {
        let component = load(&sandbox(), &beside(&"g".repeat(length), "")).await.unwrap();
        assert_eq!(component.definitions().len(), tools, "{length}");
        let reasons: Vec<&str> = component.left_out().iter().map(|left| left.reason).collect();
        assert_eq!(reasons.len(), 2 - tools);
        assert!(reasons.iter().all(|reason| reason.contains("at most 64 letters")));
    }
    // Few parameters with long names.
    let long = |length: usize| {
        let parameters: String = (0..10)
            .map(|n| format!(r#"(param "p{n}{}" bool)"#, "x".repeat(length)))
            .collect();
        beside("g", &parameters)
    };
    for (length, tools) in [(3_000, 2), (3_300, 1)] {
        let component = load(&sandbox(), &long(length)).await.unwrap();
        assert_eq!(component.definitions().len(), tools, "{length}");
    }
}

/// The deepest schema of the deepest type is accepted.
#[test]
fn schema_of_the_deepest_types_is_accepted() {
    let wrap: [fn(WitType) -> WitType; 4] = [
        |ty| WitType::Variant([("c".into(), Some(ty))].into()),
        |ty| WitType::Option(Box::new(ty)),
        |ty| WitType::Tuple(vec![ty]),
        |ty| WitType::Record(vec![("a".into(), ty)]),
    ];
    for wrap in wrap {
        let deepest = (1..MAX_TYPE_DEPTH).fold(WitType::Bool, |ty, _| wrap(ty));
        let parameters = schema::of_parameters(&[("v".into(), deepest.clone())], &Comments::default());
        assert!(
            Schema::for_arguments(&parameters.to_string()).is_ok(),
            "{deepest:?}"
        );
        let result = schema::of_result(Some(&deepest), &Comments::default()).unwrap();
        assert!(Schema::parse(&result.to_string()).is_ok(), "{deepest:?}");
    }
}

/// The engine adds up sizes in 32 bits. Without a check its compiler panics where overflows do.
#[tokio::test]
async fn types_of_any_size_are_refused_with_the_reason() {
    for types in [
        "(type $a (list u8 1073741824)) (type $b (list $a 4)) (type $t (tuple $b $b))",
        "(type $a (list u64 1073741824)) (type $t (tuple u8 $a))",
        "(type $a (list u8 1073741824)) (type $t (tuple $a $a $a $a))",
        "(type $a (list string 1000000)) (type $b (list $a 1000000)) (type $t (option $b))",
    ] {
        let text = format!(
            r#"(component {ECHO} {types}
(core module $n (func (export "f") (param i32)))
(core instance $j (instantiate $n))
(func $f (param "v" $t) (canon lift (core func $j "f") (memory $i "memory") (realloc (func $i "realloc"))))
(export "f" (func $f)))"#
        );
        let refused = load(&sandbox(), &text).await.unwrap_err().to_string();
        assert!(
            refused.contains("bytes in a value of one type"),
            "{types}: {refused}"
        );
    }
}

use serde_json::json;

use super::{WitType, field, list, load, named, option, sandbox};
use crate::typed::comments::{Comments, MAX_TYPES};
use crate::typed::schema;

#[test]
fn schema_states_the_bounds_of_each_type() {
    let number = json!({"type": ["number", "string"], "pattern": "^(NaN|-?Infinity)$"});
    for (ty, expected) in [
        (WitType::Bool, json!({"type": "boolean"})),
        (
            WitType::U8,
            json!({"type": "integer", "minimum": 0, "maximum": 255}),
        ),
        (
            WitType::S8,
            json!({"type": "integer", "minimum": -128, "maximum": 127}),
        ),
        (
            WitType::U16,
            json!({"type": "integer", "minimum": 0, "maximum": 65_535}),
        ),
        (
            WitType::S16,
            json!({"type": "integer", "minimum": -32_768, "maximum": 32_767}),
        ),
        (
            WitType::U32,
            json!({"type": "integer", "minimum": 0, "maximum": 4_294_967_295_u32}),
        ),
        (
            WitType::S32,
            json!({"type": "integer", "minimum": -2_147_483_648_i64, "maximum": 2_147_483_647}),
        ),
        (WitType::F32, number.clone()),
        (WitType::F64, number),
        (
            WitType::Char,
            json!({"type": "string", "minLength": 1, "maxLength": 1}),
        ),
        (
            WitType::Bytes,
            json!({"type": "string", "contentEncoding": "base64", "contentMediaType": "application/octet-stream"}),
        ),
        (
            list(WitType::String),
            json!({"type": "array", "items": {"type": "string"}}),
        ),
        (
            WitType::FixedList(Box::new(WitType::Bool), 3),
            json!({"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3}),
        ),
        (
            WitType::Map(Box::new(WitType::String), Box::new(WitType::Bool)),
            json!({"type": "object", "additionalProperties": {"type": "boolean"}}),
        ),
        (
            WitType::Map(Box::new(WitType::Bool), Box::new(WitType::String)),
            json!({"type": "array", "items": {
                "type": "array", "prefixItems": [{"type": "boolean"}, {"type": "string"}],
                "items": false, "minItems": 2, "maxItems": 2,
            }}),
        ),
        (
            WitType::Tuple(vec![WitType::Bool, WitType::String]),
            json!({
                "type": "array", "prefixItems": [{"type": "boolean"}, {"type": "string"}],
                "items": false, "minItems": 2, "maxItems": 2,
            }),
        ),
        (
            WitType::Enum(named(&["a", "b"])),
            json!({"type": "string", "enum": ["a", "b"]}),
        ),
        (
            WitType::Flags(named(&["a", "b"])),
            json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "uniqueItems": true}),
        ),
        (option(WitType::Bool), json!({"type": ["boolean", "null"]})),
        (
            option(WitType::U64),
            json!({
                "type": ["integer", "string", "null"], "minimum": 0, "maximum": u64::MAX, "pattern": "^[0-9]{1,20}$",
            }),
        ),
        (
            option(WitType::F64),
            json!({"type": ["number", "string", "null"], "pattern": "^(NaN|-?Infinity)$"}),
        ),
        (
            option(WitType::Enum(named(&["a"]))),
            json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        ),
        (
            option(option(WitType::Bool)),
            json!({
                "type": ["array", "null"], "prefixItems": [{"type": ["boolean", "null"]}],
                "items": false, "minItems": 1, "maxItems": 1,
            }),
        ),
        (
            WitType::Variant([("off".into(), None), ("on".into(), Some(WitType::Bool))].into()),
            json!({"oneOf": [
                {
                    "type": "object", "properties": {"tag": {"const": "off"}},
                    "required": ["tag"], "additionalProperties": false,
                },
                {
                    "type": "object", "properties": {"tag": {"const": "on"}, "value": {"type": "boolean"}},
                    "required": ["tag", "value"], "additionalProperties": false,
                },
            ]}),
        ),
    ] {
        assert_eq!(schema::of(&ty, &Comments::default()), expected, "{ty:?}");
    }
}

#[test]
fn options_of_records_and_parameters_can_be_left_out() {
    let fields = [field("a", WitType::Bool), field("b", option(WitType::Bool))];
    let schema = schema::of_parameters(&fields, &Comments::default());
    assert_eq!(schema["required"], json!(["a"]));
    assert_eq!(
        schema,
        schema::of(&WitType::Record(fields.to_vec()), &Comments::default())
    );
}

#[test]
fn result_is_described_as_an_object() {
    let record = WitType::Record(vec![field("n", WitType::Bool)]);
    let result = |ok: Option<WitType>| WitType::Result(ok.map(Box::new), Some(Box::new(WitType::String)));
    let of = |ty: &WitType| schema::of_result(Some(ty), &Comments::default());
    assert_eq!(schema::of_result(None, &Comments::default()), None);
    assert_eq!(of(&result(None)), None);
    assert_eq!(of(&record), Some(schema::of(&record, &Comments::default())));
    assert_eq!(
        of(&result(Some(record.clone()))),
        Some(schema::of(&record, &Comments::default()))
    );
    let wrapped = of(&list(WitType::Bool)).unwrap();
    assert_eq!(
        wrapped["properties"]["result"],
        schema::of(&list(WitType::Bool), &Comments::default())
    );
    assert_eq!(wrapped["required"], json!(["result"]));
    // An object that is no record.
    let variant = WitType::Variant([("a".into(), None)].into());
    assert_eq!(
        of(&variant).unwrap()["properties"]["result"],
        schema::of(&variant, &Comments::default())
    );
}

/// A component with a function of an exported record and an exported enum, and these comments of them.
fn documented(types: &serde_json::Value) -> String {
    let json = json!({ "worlds": { "w": { "types": types } } }).to_string();
    let data: String = json.bytes().map(|byte| format!("\\{byte:02x}")).collect();
    format!(
        r#"(component
        (core module $m (func (export "f") (param f64 f64 i32 f64 f64) (result i32) i32.const 1))
        (core instance $i (instantiate $m))
        (type $p (record (field "x" f64) (field "y" f64)))
        (export $point "point" (type $p))
        (type $q (record (field "width" f64) (field "height" f64)))
        (export $size "size" (type $q))
        (type $e (enum "fast" "slow"))
        (export $mode "mode" (type $e))
        (func $f (param "at" $point) (param "mode" $mode) (param "size" $size) (result bool) (canon lift (core func $i "f")))
        (export "draw" (func $f))
        (@custom "package-docs" "\01{data}"))"#
    )
}

#[tokio::test]
async fn comments_of_types_fields_and_cases_are_descriptions() {
    let text = documented(&json!({
        "point": { "docs": "A place.", "items": { "x": "To the right.", "y": "Down." } },
        "size": { "items": { "width": "In pixels." } },
        "mode": { "docs": "How to draw.", "items": { "fast": "Without smoothing." } },
    }));
    let component = load(&sandbox(), &text).await.unwrap();
    let schema = component.definitions()[0].input.as_value().clone();
    let of = |pointer: &str| {
        let found = schema.pointer(&format!("/properties/{pointer}/description"));
        found.and_then(|text| text.as_str().map(str::to_owned))
    };
    for (pointer, text) in [
        ("at", Some("A place.")),
        ("at/properties/x", Some("To the right.")),
        ("at/properties/y", Some("Down.")),
        ("mode", Some("How to draw.\n- `fast`: Without smoothing.")),
        ("size", None),
        ("size/properties/width", Some("In pixels.")),
        ("size/properties/height", None),
    ] {
        assert_eq!(of(pointer).as_deref(), text, "{pointer}: {schema}");
    }
}

#[tokio::test]
async fn comments_that_make_a_schema_too_large_are_left_out() {
    let largest = toolcell_core::schema::MAX_SCHEMA_BYTES;
    let with = |size: usize| documented(&json!({ "point": { "docs": "x".repeat(size) } }));
    let component = load(&sandbox(), &with(largest / 2)).await.unwrap();
    let schema = component.definitions()[0].input.as_value().clone();
    assert_eq!(
        schema["properties"]["at"]["description"].as_str().map(str::len),
        Some(largest / 2)
    );
    let component = load(&sandbox(), &with(largest)).await.unwrap();
    let schema = component.definitions()[0].input.as_value().clone();
    assert_eq!(schema["properties"]["at"].get("description"), None);
    assert_eq!(
        schema["properties"]["at"]["properties"]["x"]["type"],
        json!(["number", "string"])
    );
}

#[tokio::test]
async fn type_of_the_structure_of_two_has_no_comments() {
    let text = documented(&json!({ "point": { "docs": "A place." } }));
    let twice = text.replace(
        "(type $q (record (field \"width\" f64) (field \"height\" f64)))",
        "(type $q (record (field \"x\" f64) (field \"y\" f64)))",
    );
    assert_ne!(text, twice);
    let component = load(&sandbox(), &twice).await.unwrap();
    let schema = component.definitions()[0].input.as_value().clone();
    assert_eq!(schema["properties"]["at"].get("description"), None);
}

#[tokio::test]
async fn type_beyond_a_number_has_no_comments() {
    for (others, text) in [(MAX_TYPES - 3, Some("A place.")), (MAX_TYPES, None)] {
        let exports: String = (0..others)
            .map(|i| format!("(type $o{i} (enum \"a{i}\")) (export \"o{i}\" (type $o{i}))"))
            .collect();
        let text_of = documented(&json!({ "point": { "docs": "A place." } }));
        let component = text_of.replacen("(type $p", &format!("{exports}(type $p"), 1);
        let component = load(&sandbox(), &component).await.unwrap();
        let schema = component.definitions()[0].input.as_value().clone();
        assert_eq!(
            schema["properties"]["at"]["description"].as_str(),
            text,
            "{others}"
        );
    }
}

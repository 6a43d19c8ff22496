//! Types with `#[input]` and `#[output]` have the schemas, values and errors of the derives of serde and schemars.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops where something is wrong"
)]

use toolcell_sdk::schemars::{JsonSchema, schema_for};
use toolcell_sdk::serde::Serialize;
use toolcell_sdk::serde::de::DeserializeOwned;
use toolcell_sdk::serde_json::{self, json};

/// The same types under an attribute.
macro_rules! types {
    ($module:ident, $(#[$attribute:meta])*) => {
        mod $module {
            use std::collections::BTreeMap;

            /// A figure.
            $(#[$attribute])*
            #[serde(tag = "kind", rename_all = "snake_case")]
            pub(crate) enum Figure {
                /// A circle.
                Circle {
                    /// Its radius.
                    radius: f64,
                },
                WholeGroup {
                    members: Vec<Figure>,
                    #[serde(rename = "called", alias = "named")]
                    label: Option<String>,
                },
                Nothing,
            }

            /// Everything.
            $(#[$attribute])*
            #[serde(rename_all = "camelCase", deny_unknown_fields)]
            pub(crate) struct Everything {
                /// Two
                /// lines.
                first_name: String,
                pub figures: Option<Vec<Figure>>,
                counts: BTreeMap<String, u8>,
                r#type: (u8, i64),
                pair: Pair,
                id: Id,
                any: Untagged,
                side: Side,
            }

            $(#[$attribute])*
            pub(crate) struct Pair(pub u8, String);

            $(#[$attribute])*
            pub(crate) struct Id(u32);

            $(#[$attribute])*
            #[serde(untagged)]
            pub(crate) enum Untagged {
                Number(u8),
                Texts(Vec<String>),
            }

            $(#[$attribute])*
            pub(crate) enum Side {
                Left,
                Other(String, u8),
                Moved { by: i32 },
            }
        }
    };
}

/// Names that the macro could use itself.
#[toolcell_sdk::input]
struct S {
    d: Option<Box<D>>,
}

#[toolcell_sdk::output]
struct D {
    s: Option<Box<S>>,
    data: Data,
}

#[toolcell_sdk::input]
#[derive(Default)]
struct Data {
    value: F0,
    f0: String,
}

#[toolcell_sdk::input]
#[derive(Default)]
struct F0(u8);

/// What the twin of a type cannot have is left to the derives.
#[allow(non_upper_case_globals, reason = "bindings could mean it")]
const f0: u8 = 7;

#[toolcell_sdk::input]
#[repr(u8)]
enum Numbered {
    A(u8) = 1,
    B = 7,
}

#[toolcell_sdk::output]
struct Sized {
    value: u8,
}

#[toolcell_sdk::input]
#[allow(non_camel_case_types, reason = "a keyword as a name")]
struct r#try {
    value: u8,
}

types!(input, #[toolcell_sdk::input]);
types!(output, #[toolcell_sdk::output]);
types!(
    derived,
    #[derive(
        toolcell_sdk::serde::Deserialize,
        toolcell_sdk::serde::Serialize,
        toolcell_sdk::schemars::JsonSchema
    )]
    #[serde(crate = "toolcell_sdk::serde")]
    #[schemars(crate = "toolcell_sdk::schemars")]
);

/// The schema of a type, and what becomes of each value: the value again, or the error.
fn behaviour<T: JsonSchema + Serialize + DeserializeOwned>(values: &[serde_json::Value]) -> Vec<String> {
    let schema = serde_json::to_string_pretty(&schema_for!(T)).unwrap();
    let values = values
        .iter()
        .map(|value| match serde_json::from_str::<T>(&value.to_string()) {
            Ok(read) => serde_json::to_string(&read).unwrap(),
            Err(error) => format!("error: {error}"),
        });
    std::iter::once(schema).chain(values).collect()
}

#[test]
fn types_behave_as_those_of_the_derives() {
    let circle = json!({"kind": "circle", "radius": 1.5});
    let group = json!({"kind": "whole_group", "members": [circle], "named": "g"});
    let everything = json!({
        "firstName": "A", "figures": [group], "counts": {"a": 1}, "type": [1, -2], "pair": [1, "x"], "id": 7, "any": ["t"],
        "side": {"Moved": {"by": -1}},
    });
    let mut values = vec![circle, group, json!({"kind": "nothing"}), everything.clone()];
    for (key, value) in [
        ("firstName", json!(1)),
        ("figures", json!([{"kind": "square"}])),
        ("figures", json!([{"kind": "circle"}])),
        ("figures", json!(null)),
        ("counts", json!({"a": 256})),
        ("type", json!([1])),
        ("pair", json!({})),
        ("any", json!({})),
        ("side", json!("Left")),
        ("side", json!("Up")),
        ("side", json!({"Other": ["x", 1]})),
        ("side", json!({"Other": []})),
        ("unknown", json!(1)),
    ] {
        let mut changed = everything.clone();
        changed[key] = value;
        values.push(changed);
    }
    for key in ["firstName", "figures", "pair"] {
        let mut short = everything.clone();
        short.as_object_mut().unwrap().remove(key);
        values.push(short);
    }
    let expected = behaviour::<derived::Everything>(&values);
    assert!(
        expected.iter().any(|line| line.starts_with('{'))
            && expected.iter().any(|line| line.contains("error"))
    );
    assert_eq!(behaviour::<input::Everything>(&values), expected);
    assert_eq!(behaviour::<output::Everything>(&values), expected);
    let expected = behaviour::<derived::Figure>(&values);
    assert_eq!(behaviour::<input::Figure>(&values), expected);
    assert_eq!(behaviour::<output::Figure>(&values), expected);
}

#[test]
fn types_that_contain_each_other_are_read_and_written() {
    let text = r#"{"d":{"s":{"d":null},"data":{"value":3,"f0":"x"}}}"#;
    let read: S = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    let schema = schema_for!(S).to_value();
    assert_eq!(schema["$defs"]["D"]["properties"]["s"]["anyOf"][0]["$ref"], "#");
    #[toolcell_sdk::output]
    struct Inside {
        s: u8,
    }
    assert_eq!(serde_json::to_string(&Inside { s: 1 }).unwrap(), r#"{"s":1}"#);
}

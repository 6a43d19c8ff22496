//! Values of generated types, from JSON to a guest and back.

#![expect(clippy::cast_possible_truncation, reason = "values are made of any bits")]

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use toolcell_core::{Policy, Schema};
use wasmtime::component::Val;

use super::{WitType, echo, named};
use crate::cell::memory::MemoryAccount;
use crate::typed::comments::Comments;
use crate::typed::{lift, lower, schema};

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> usize {
        (self.next() % end) as usize
    }

    fn ty(&mut self, depth: usize) -> WitType {
        let kinds = if depth == 0 { 14 } else { 25 };
        match self.below(kinds) {
            0 => WitType::Bool,
            1 => WitType::S8,
            2 => WitType::S16,
            3 => WitType::S32,
            4 => WitType::S64,
            5 => WitType::U16,
            6 => WitType::U32,
            7 => WitType::U64,
            8 => WitType::F32,
            9 => WitType::F64,
            10 => WitType::Char,
            11 => WitType::String,
            12 => WitType::Bytes,
            13 => match self.below(2) {
                0 => WitType::Enum(self.names("e").into_iter().collect()),
                _ => WitType::Flags(self.names("f").into_iter().collect()),
            },
            14 => match self.ty(depth - 1) {
                WitType::U8 => WitType::Bytes,
                item => WitType::List(Box::new(item)),
            },
            15 | 16 => {
                let names = self.names("a");
                WitType::Record(names.into_iter().map(|name| (name, self.ty(depth - 1))).collect())
            }
            17 => WitType::Tuple((0..=self.below(3)).map(|_| self.ty(depth - 1)).collect()),
            18 => {
                let names = self.names("c");
                let case = |name| (name, (self.below(3) > 0).then(|| self.ty(depth - 1)));
                WitType::Variant(names.into_iter().map(case).collect())
            }
            22 => WitType::FixedList(Box::new(self.ty(depth - 1)), 1 + self.below(4) as u32),
            23 | 24 => {
                let key = match self.below(6) {
                    0 => WitType::Bool,
                    1 => WitType::S64,
                    2 => WitType::U16,
                    3 => WitType::Char,
                    _ => WitType::String,
                };
                WitType::Map(Box::new(key), Box::new(self.ty(depth - 1)))
            }
            19 | 20 => WitType::Option(Box::new(self.ty(depth - 1))),
            _ => {
                let mut payload = || (self.below(3) > 0).then(|| Box::new(self.ty(depth - 1)));
                WitType::Result(payload(), payload())
            }
        }
    }

    /// Names of 1 to 40 parts, mostly few: flags of more than 32 have another representation.
    fn names(&mut self, kind: &str) -> Vec<String> {
        let count = match self.below(8) {
            0 if kind == "f" || kind == "e" => 1 + self.below(31),
            _ => 1 + self.below(4),
        };
        (0..count).map(|i| format!("{kind}{i}")).collect()
    }

    fn text(&mut self) -> String {
        const CHARS: [char; 8] = ['a', 'é', '"', '\\', '\u{1}', '日', '\u{1f600}', '\u{10ffff}'];
        (0..self.below(5)).map(|_| CHARS[self.below(8)]).collect()
    }

    fn val(&mut self, ty: &WitType) -> Val {
        let bits = match self.below(4) {
            0 => 0,
            1 => u64::MAX,
            2 => self.next() % 300,
            _ => self.next(),
        };
        let mut payload = |ty: &Option<Box<WitType>>| ty.as_ref().map(|ty| Box::new(self.val(ty)));
        match ty {
            WitType::Bool => Val::Bool(bits & 1 == 1),
            WitType::S8 => Val::S8(bits as i8),
            WitType::S16 => Val::S16(bits as i16),
            WitType::S32 => Val::S32(bits as i32),
            WitType::S64 => Val::S64(bits as i64),
            WitType::U8 => Val::U8(bits as u8),
            WitType::U16 => Val::U16(bits as u16),
            WitType::U32 => Val::U32(bits as u32),
            WitType::U64 => Val::U64(bits),
            WitType::F32 => Val::Float32(match bits {
                0 => -0.0,
                bits => f32::from_bits(bits as u32),
            }),
            WitType::F64 => Val::Float64(match bits {
                0 => f64::NEG_INFINITY,
                bits => f64::from_bits(bits),
            }),
            WitType::Char => Val::Char(char::from_u32((bits % 0xd800) as u32).unwrap()),
            WitType::String => Val::String(self.text()),
            WitType::Bytes => Val::List((0..self.below(9)).map(|_| Val::U8(self.next() as u8)).collect()),
            WitType::List(item) => Val::List((0..self.below(4)).map(|_| self.val(item)).collect()),
            WitType::FixedList(item, length) => {
                Val::FixedLengthList((0..*length).map(|_| self.val(item)).collect())
            }
            WitType::Map(key, item) => {
                // In the order of JSON, each key once.
                let mut pairs = std::collections::BTreeMap::new();
                for _ in 0..self.below(4) {
                    let key = self.val(key);
                    let name = match &key {
                        Val::String(name) => name.clone(),
                        key => format!("{key:?}"),
                    };
                    pairs.insert(name, (key, self.val(item)));
                }
                Val::Map(pairs.into_values().collect())
            }
            WitType::Record(fields) => Val::Record(
                fields
                    .iter()
                    .map(|(name, ty)| (name.clone(), self.val(ty)))
                    .collect(),
            ),
            WitType::Tuple(types) => Val::Tuple(types.iter().map(|ty| self.val(ty)).collect()),
            WitType::Variant(cases) => {
                let (name, ty) = cases.get_index(self.below(cases.len() as u64)).unwrap();
                Val::Variant(name.clone(), ty.as_ref().map(|ty| Box::new(self.val(ty))))
            }
            WitType::Enum(names) => Val::Enum(names[self.below(names.len() as u64)].clone()),
            WitType::Flags(names) => {
                Val::Flags(names.iter().filter(|_| self.below(2) == 1).cloned().collect())
            }
            WitType::Option(ty) => Val::Option((bits & 1 == 1).then(|| Box::new(self.val(ty)))),
            WitType::Result(ok, err) => Val::Result(match bits & 1 {
                0 => Ok(payload(ok)),
                _ => Err(payload(err)),
            }),
        }
    }
}

/// Converts to JSON and back, and checks that the JSON matches the schema.
fn through_json(val: &Val, ty: &WitType) -> serde_json::Value {
    let json = lift::json(val.clone(), ty, &AtomicBool::new(false));
    let parameters = [("v".to_owned(), ty.clone())];
    let arguments = serde_json::json!({ "v": json });
    let schema =
        Schema::for_arguments(&schema::of_parameters(&parameters, &Comments::default()).to_string()).unwrap();
    assert_eq!(schema.validate(&arguments), Ok(()), "{ty:?} {val:?}");
    // As a model writes it.
    let written = toolcell_core::json::parse_object(&arguments.to_string()).unwrap();
    let mut memory = MemoryAccount::unlimited().empty();
    let lowered = lower::arguments(&parameters, &written, &mut memory).unwrap();
    assert_eq!(lowered, std::slice::from_ref(val), "{ty:?} {json}");
    let output = schema::of_result(Some(&WitType::Tuple(vec![ty.clone()])), &Comments::default()).unwrap();
    let output = Schema::parse(&output.to_string()).unwrap();
    assert_eq!(
        output.validate(&serde_json::json!({ "result": [json] })),
        Ok(()),
        "{ty:?}"
    );
    json
}

#[test]
fn generated_values_survive_json_exactly() {
    let mut runner = TestRunner::new(Config::with_cases(2_000));
    runner
        .run(&any::<u64>(), |seed| {
            let mut random = Random(seed);
            let ty = random.ty(3);
            let val = random.val(&ty);
            through_json(&val, &ty);
            Ok(())
        })
        .unwrap();
}

#[test]
fn generated_values_survive_a_guest_exactly() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(Config::with_cases(48));
    runner
        .run(&any::<u64>(), |seed| {
            let mut random = Random(seed);
            let ty = match random.ty(3) {
                // A list of these would be one string.
                WitType::U8 => WitType::U16,
                ty => ty,
            };
            let values: Vec<_> = (0..3)
                .map(|_| {
                    let val = random.val(&ty);
                    through_json(&val, &ty)
                })
                .collect();
            let sent = serde_json::Value::Array(values);
            let returned = runtime.block_on(echo(&ty, Policy::default(), sent.clone()));
            prop_assert_eq!(returned.unwrap(), sent);
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn values_that_need_care_survive_a_guest() {
    use serde_json::json;
    let twice = WitType::Option(Box::new(WitType::Option(Box::new(WitType::U8))));
    for (ty, values) in [
        (
            WitType::U64,
            json!([
                0,
                9_007_199_254_740_991_u64,
                "9007199254740992",
                "18446744073709551615"
            ]),
        ),
        (
            WitType::S64,
            json!([-1, "-9223372036854775808", "9223372036854775807"]),
        ),
        (
            WitType::F32,
            json!([0.1, "NaN", "Infinity", "-Infinity", 3.4028235e38]),
        ),
        (WitType::F64, json!([0.1, 1e300, "NaN", 5e-324])),
        (twice, json!([null, [null], [7]])),
        (WitType::Bytes, json!(["", "AA==", "/+8="])),
        (WitType::Flags(named(&["r", "w"])), json!([[], ["r"], ["r", "w"]])),
        (
            WitType::Map(Box::new(WitType::String), Box::new(WitType::U8)),
            json!([{}, {"": 1, "a\"": 2}]),
        ),
        (
            WitType::Map(Box::new(WitType::U64), Box::new(WitType::Bytes)),
            json!([[], [[1, ""], ["18446744073709551615", "AA=="]]]),
        ),
        (
            WitType::FixedList(Box::new(WitType::String), 2),
            json!([["", "b"], ["c", "d"]]),
        ),
        (
            WitType::Result(Some(Box::new(WitType::String)), None),
            json!([{"tag": "ok", "value": "x"}, {"tag": "err"}]),
        ),
    ] {
        let returned = echo(&ty, Policy::default(), values.clone()).await;
        assert_eq!(returned.unwrap(), values, "{ty:?}");
    }
    // Other forms that are accepted.
    for (ty, sent, returned) in [
        (WitType::U64, json!(["7", 7.0]), json!([7, 7])),
        (WitType::U64, json!([u64::MAX]), json!(["18446744073709551615"])),
        (WitType::Bytes, json!(["AA", "/+8"]), json!(["AA==", "/+8="])),
        (
            WitType::Flags(named(&["r", "w"])),
            json!([["w", "r"]]),
            json!([["r", "w"]]),
        ),
        (
            WitType::Record(vec![("a".into(), WitType::Option(Box::new(WitType::U8)))]),
            json!([{}, {"a": null}, {"a": 1}]),
            json!([{"a": null}, {"a": null}, {"a": 1}]),
        ),
    ] {
        let found = echo(&ty, Policy::default(), sent).await;
        assert_eq!(found.unwrap(), returned, "{ty:?}");
    }
    // A list of bytes is one string.
    let returned = echo(&WitType::U8, Policy::default(), json!("AAEC")).await;
    assert_eq!(returned.unwrap(), json!("AAEC"));
}

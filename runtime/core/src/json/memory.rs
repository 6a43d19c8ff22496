//! Memory that JSON takes once it is parsed: an object of a member of seven bytes takes a hundred times as much as its text.

use serde_json::{Map, Value};

/// Memory of an allocation beside its content, in bytes.
const ALLOCATION: u64 = 16;

/// Memory of a value, in bytes.
const VALUE: u64 = size_of::<Value>() as u64;

/// Number of members that a node of an object's tree has at least, if it is not the only one.
const LEAST_MEMBERS: usize = 5;

/// Memory of a node of an object's tree, in bytes. It has room for eleven members.
const NODE: u64 = 11 * (size_of::<String>() + size_of::<Value>()) as u64 + 128;

/// Returns the bytes of host memory that a JSON text takes at most once it is parsed. An object of a member of seven bytes takes a
/// hundred times as much.
pub fn memory_of_text(text: &str) -> u64 {
    let (mut texts, mut lists, mut objects, mut members, mut items) = (0, 0, 0, 0, 0);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                texts += 1;
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => _ = bytes.next(),
                        _ => {}
                    }
                }
            }
            b'[' => lists += 1,
            b'{' => objects += 1,
            b':' => members += 1,
            b',' => items += 1,
            _ => {}
        }
    }
    // A list has room for four values, and doubles it when it is full.
    let of_lists = lists * (4 * VALUE + ALLOCATION) + items * 2 * VALUE;
    let of_objects = (objects + members / 5) * (NODE + ALLOCATION);
    VALUE + text.len() as u64 + texts * ALLOCATION + of_lists + of_objects
}

/// Returns the bytes of memory that a value takes beside its own, an estimate from above. Does not recurse, so no value overflows
/// the stack.
pub fn memory_of(value: &Value) -> u64 {
    let mut bytes = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => bytes += text.capacity() as u64 + ALLOCATION,
            Value::Array(items) => {
                bytes += items.capacity() as u64 * VALUE + ALLOCATION;
                open.extend(items);
            }
            Value::Object(members) => {
                bytes += of_members(members);
                open.extend(members.values());
            }
        }
    }
    bytes
}

/// As [`memory_of`], of an object.
pub fn memory_of_object(members: &Map<String, Value>) -> u64 {
    of_members(members) + members.values().map(memory_of).sum::<u64>()
}

/// Returns the memory of the tree of an object, with the names.
fn of_members(members: &Map<String, Value>) -> u64 {
    let nodes = members.len().div_ceil(LEAST_MEMBERS) as u64;
    let names = members.keys().map(|name| name.capacity() as u64 + ALLOCATION);
    nodes * (NODE + ALLOCATION) + names.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_parts_outside_of_texts() {
        let empty = |text: &str| VALUE + text.len() as u64;
        let list = 4 * VALUE + ALLOCATION;
        let node = NODE + ALLOCATION;
        for (text, beside) in [
            ("null", 0),
            (r#""[{,:""#, ALLOCATION),
            (r#""\"[\\""#, ALLOCATION),
            ("[]", list),
            ("[[0],1]", 2 * list + 2 * VALUE),
            (r#"{"a":{}}"#, 2 * node + ALLOCATION),
            (
                r#"{"a":0,"b":0,"c":0,"d":0,"e":0}"#,
                2 * node + 5 * ALLOCATION + 4 * 2 * VALUE,
            ),
            // What is no JSON has a size as well.
            (r#""a\"#, ALLOCATION),
            ("]{{", 2 * node),
        ] {
            assert_eq!(memory_of_text(text), empty(text) + beside, "{text}");
        }
    }

    #[test]
    fn text_is_estimated_at_least_as_its_value() {
        let rows = r#"{"id":1,"name":"x","tags":["a","b"],"at":null},"#.repeat(100);
        let wide: String = (0..1_000).map(|number| format!("\"{number}\":0,")).collect();
        for text in [
            "null".to_owned(),
            r#""text""#.to_owned(),
            format!("[{}0]", "0,".repeat(1_000)),
            format!("[{}0]", r#"{"":0},"#.repeat(1_000)),
            format!("[{rows}0]"),
            format!("{{{wide}\"a\":0}}"),
        ] {
            let value: Value = serde_json::from_str(&text).unwrap();
            let (of_text, of_value) = (memory_of_text(&text), VALUE + memory_of(&value));
            assert!(
                of_value <= of_text && of_text < 4 * of_value,
                "{of_value} {of_text} {text:.40}"
            );
        }
    }
}

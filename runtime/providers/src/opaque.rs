//! Provider data that must be sent back unchanged, tagged with the name of its protocol.
//!
//! A conversation can change its provider. Data of one protocol must not be sent to another: a signature of one is
//! invalid for the other.

use serde_json::{Value, json};

/// Tags a value with its protocol.
pub(crate) fn of(wire: &str, value: Value) -> Value {
    json!({ wire: value })
}

/// Returns the value if it belongs to this protocol.
pub(crate) fn for_wire<'a>(wire: &str, opaque: &'a Value) -> Option<&'a Value> {
    opaque.get(wire)
}

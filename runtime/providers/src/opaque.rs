//! What a provider must get back unchanged, kept under the name of its wire.
//!
//! A conversation can change its provider. What one wire demands back another must never see: a signature of one is
//! nonsense to the other.

use serde_json::{Value, json};

/// Marks a value as belonging to a wire.
pub(crate) fn of(wire: &str, value: Value) -> Value {
    json!({ wire: value })
}

/// The value, if it belongs to this wire.
pub(crate) fn for_wire<'a>(wire: &str, opaque: &'a Value) -> Option<&'a Value> {
    opaque.get(wire)
}

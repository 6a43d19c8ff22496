//! Tool with its own types: an enum and a default among the parameters, a structured result.

use toolcell_sdk::{Result, ToolError, input, output, tool};

/// A unit of length.
#[input]
#[serde(rename_all = "lowercase")]
enum Unit {
    Metre,
    Foot,
    Mile,
}

/// A length in metres.
#[output]
struct Length {
    /// The length.
    metres: f64,
}

/// Convert a length to metres.
#[tool(title = "Convert a length", read_only, idempotent)]
fn convert(
    /// Length in the given unit; not negative.
    amount: f64,
    #[default(Unit::Foot)] unit: Unit,
) -> Result<Length> {
    if amount < 0.0 {
        return Err(ToolError::invalid("`amount` must not be negative"));
    }
    let factor = match unit {
        Unit::Metre => 1.0,
        Unit::Foot => 0.3048,
        Unit::Mile => 1609.344,
    };
    Ok(Length {
        metres: amount * factor,
    })
}

toolcell_sdk::export!(convert);

#[cfg(test)]
mod tests {
    use toolcell_sdk::{serde_json::json, testing};

    #[test]
    fn mile_is_converted_to_metres() {
        let output = testing::call::<super::convert>(json!({"amount": 2, "unit": "mile"})).unwrap();
        assert_eq!(output.structured, Some(json!({"metres": 3218.688})));
        assert!(testing::call::<super::convert>(json!({"amount": -1})).is_err());
    }
}

//! Numbers of JSON as those of the component model.

use serde_json::Value;

use crate::typed::lower::{LowerError, expected};

/// Bounds of an integer type.
pub(super) trait Integer: TryFrom<i128> {
    const BOUNDS: (i128, i128);
}

macro_rules! integers {
    ($($ty:ty),*) => { $(impl Integer for $ty {
        const BOUNDS: (i128, i128) = (<$ty>::MIN as i128, <$ty>::MAX as i128);
    })* };
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Converts an integer of at most 32 bits.
pub(super) fn integer<T: Integer>(value: &Value) -> Result<T, LowerError> {
    let whole = match value {
        Value::Number(number) => whole(number),
        other => return Err(expected("an integer", other)),
    };
    within(whole, || value.to_string())
}

/// Converts a number of 64 bits, also from its digits.
pub(super) fn long<T: Integer>(value: &Value) -> Result<T, LowerError> {
    let Value::String(digits) = value else {
        return integer(value);
    };
    let unsigned = digits.strip_prefix('-').unwrap_or(digits);
    if unsigned.is_empty() || unsigned.len() > 20 || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return Err(LowerError::invalid(
            "expected an integer, or its decimal digits as a string",
        ));
    }
    within(digits.parse().ok(), || digits.clone())
}

fn within<T: Integer>(whole: Option<i128>, shown: impl Fn() -> String) -> Result<T, LowerError> {
    let (min, max) = T::BOUNDS;
    whole
        .and_then(|whole| T::try_from(whole).ok())
        .ok_or_else(|| LowerError::invalid(format!("{} is no integer between {min} and {max}", shown())))
}

/// Returns the value of a number without a fraction, such as `3` or `3.0`.
fn whole(number: &serde_json::Number) -> Option<i128> {
    if let Some(number) = number.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = number.as_u64() {
        return Some(number.into());
    }
    let float = number.as_f64()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it has no fraction, and far fewer than 127 bits"
    )]
    let whole = (float.fract() == 0.0 && float.abs() < 1e20).then_some(float as i128);
    whole
}

/// Converts a number, also one that JSON cannot write.
pub(super) fn float(value: &Value) -> Result<f64, LowerError> {
    match value {
        Value::Number(number) => number.as_f64().ok_or_else(|| expected("a number", value)),
        Value::String(text) => match text.as_str() {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(LowerError::invalid(
                "expected a number, \"NaN\", \"Infinity\" or \"-Infinity\"",
            )),
        },
        other => Err(expected("a number", other)),
    }
}

/// Rounds a number to single precision.
pub(super) fn single(value: f64) -> Result<f32, LowerError> {
    #[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
    let single = value as f32;
    match single.is_infinite() && value.is_finite() {
        true => Err(LowerError::invalid(format!(
            "{value} is beyond the range of `f32`"
        ))),
        false => Ok(single),
    }
}

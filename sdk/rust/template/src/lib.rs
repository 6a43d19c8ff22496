use toolcell_sdk::{Result, ToolError, tool};

/// Divides one number by another.
#[tool(read_only, idempotent)]
fn {{function}}(
    /// The number to divide.
    dividend: f64,
    /// The number to divide by; not zero.
    divisor: f64,
    /// Divide whole, and tell the remainder.
    #[default(false)]
    remainder: bool,
) -> Result<String> {
    if divisor == 0.0 {
        return Err(ToolError::invalid("`divisor` is zero"));
    }
    if !remainder {
        return Ok((dividend / divisor).to_string());
    }
    let whole = (dividend / divisor).trunc();
    Ok(format!("{whole} remainder {}", dividend - whole * divisor))
}

toolcell_sdk::export!({{function}});

#[cfg(test)]
mod tests {
    use super::{{function}} as divide;

    #[test]
    fn divides() {
        assert_eq!(divide(7.0, 2.0, false).unwrap(), "3.5");
        assert_eq!(divide(7.0, 2.0, true).unwrap(), "3 remainder 1");
    }

    #[test]
    fn refuses_to_divide_by_zero() {
        let error = divide(7.0, 0.0, false).unwrap_err();
        assert_eq!(error.kind(), toolcell_sdk::ErrorKind::InvalidArguments);
    }
}

//! Numbers of messages in the units of a configuration. Nothing is rounded: a number has the largest unit that divides it.

/// Writes a count: `5`, `1 k`, `2 M`.
pub(crate) fn count(n: u64) -> String {
    let units = [
        (" T", 1_000_000_000_000),
        (" G", 1_000_000_000),
        (" M", 1_000_000),
        (" k", 1_000),
    ];
    exactly(n, &units, "")
}

/// Writes a size: `1 byte`, `5 bytes`, `1 KiB`.
pub(crate) fn size(bytes: u64) -> String {
    let smallest = if bytes == 1 { " byte" } else { " bytes" };
    exactly(
        bytes,
        &[(" GiB", 1 << 30), (" MiB", 1 << 20), (" KiB", 1 << 10)],
        smallest,
    )
}

/// Writes a time: `5 ms`, `2 s`.
pub(crate) fn time(ms: u64) -> String {
    exactly(ms, &[(" s", 1_000)], " ms")
}

fn exactly(value: u64, units: &[(&str, u64)], smallest: &str) -> String {
    let mut units = units.iter();
    match units.find(|(_, unit)| value > 0 && value.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", value / unit),
        None => format!("{value}{smallest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_has_the_largest_unit_that_divides_it() {
        for (n, expected) in [
            (0, ["0", "0 bytes", "0 ms"]),
            (1, ["1", "1 byte", "1 ms"]),
            (1_000, ["1 k", "1000 bytes", "1 s"]),
            (1_001, ["1001", "1001 bytes", "1001 ms"]),
            (1_024, ["1024", "1 KiB", "1024 ms"]),
            (256 << 20, ["268435456", "256 MiB", "268435456 ms"]),
            (3 << 30, ["3221225472", "3 GiB", "3221225472 ms"]),
            (1_000_000_000_000, ["1 T", "976562500 KiB", "1000000000 s"]),
            (
                u64::MAX,
                [
                    "18446744073709551615",
                    "18446744073709551615 bytes",
                    "18446744073709551615 ms",
                ],
            ),
        ] {
            assert_eq!([count(n), size(n), time(n)], expected);
        }
    }
}

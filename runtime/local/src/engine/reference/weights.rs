//! Weights of each type as numbers.

/// Returns the numbers of a tensor.
pub(super) fn numbers(kind: u32, data: &[u8]) -> Vec<f64> {
    match kind {
        0 => {
            let numbers = data
                .chunks(4)
                .map(|four| f32::from_le_bytes(four.try_into().unwrap()));
            numbers.map(f64::from).collect()
        }
        1 => data.chunks(2).map(half).collect(),
        8 => data.chunks(34).flat_map(of_q8_0).collect(),
        12 => data.chunks(144).flat_map(of_q4_k).collect(),
        other => panic!("type {other}"),
    }
}

/// Reads half precision.
fn half(bytes: &[u8]) -> f64 {
    let bits = u16::from_le_bytes(bytes[..2].try_into().unwrap());
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    match exponent {
        0 => sign * fraction * 2f64.powi(-14),
        _ => sign * (1.0 + fraction) * 2f64.powi(exponent - 15),
    }
}

/// 32 numbers of 8 bits with a scale.
fn of_q8_0(block: &[u8]) -> Vec<f64> {
    let scale = half(block);
    let numbers = block[2..].iter().map(|byte| f64::from(byte.cast_signed()));
    numbers.map(|number| number * scale).collect()
}

/// 256 numbers of 4 bits, in groups of 32 with a scale and a minimum of 6 bits each.
fn of_q4_k(block: &[u8]) -> Vec<f64> {
    let (scale, minimum) = (half(block), half(&block[2..]));
    let (scales, numbers) = block[4..].split_at(12);
    let six_bits = |group: usize| match group {
        0..4 => (scales[group] & 63, scales[group + 4] & 63),
        _ => (
            scales[group + 4] & 15 | scales[group - 4] >> 6 << 4,
            scales[group + 4] >> 4 | scales[group] >> 6 << 4,
        ),
    };
    let mut all = Vec::new();
    for group in 0..8 {
        let (times, less) = six_bits(group);
        for byte in &numbers[group / 2 * 32..][..32] {
            let number = if group % 2 == 0 { byte & 15 } else { byte >> 4 };
            all.push(scale * f64::from(times) * f64::from(number) - minimum * f64::from(less));
        }
    }
    all
}

//! Rules of numbers.

use serde_json::Value;

use super::{Builder, InvalidGrammar, Item, literal};

/// Maximum number of digits before the point of a number without bounds, and of an integer: each is exact as a 64-bit integer, and
/// as a floating-point number.
const MAX_DIGITS: u32 = 15;

/// Maximum number of digits after the point. Few, so that no number is rounded to the next integer.
const MAX_FRACTION: u32 = 6;

/// Largest integer with a fraction: with [`MAX_FRACTION`] digits it is exact enough.
const MAX_WITH_FRACTION: i128 = 1_000_000_000;

/// The integers that JSON has here: 64 bits, with or without a sign.
const LEAST: i128 = i64::MIN as i128;
const MOST: i128 = u64::MAX as i128;

/// Bounds of a number, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: Option<i128>,
    pub(super) most: Option<i128>,
}

fn digit() -> Item {
    Item::Bytes(vec![(b'0', b'9')])
}

fn range(from: u8, to: u8) -> Item {
    Item::Bytes(vec![(from, to)])
}

/// Rounds a bound to the nearest integer that is within it. Bounds beyond 64-bit integers are as good as none.
#[expect(clippy::cast_possible_truncation, reason = "it is within 1e18")]
fn integer(bound: &Value, is_least: bool, is_exclusive: bool) -> Option<i128> {
    let exact = bound.as_i64().map(i128::from).or(bound.as_u64().map(i128::from));
    let (rounded, is_whole) = match exact {
        Some(exact) => (exact, true),
        None => {
            let bound = bound.as_f64().filter(|bound| bound.abs() < 1e18)?;
            let rounded = if is_least { bound.ceil() } else { bound.floor() };
            (rounded as i128, rounded == bound)
        }
    };
    Some(match (is_exclusive && is_whole, is_least) {
        (true, true) => rounded + 1,
        (true, false) => rounded - 1,
        _ => rounded,
    })
}

/// Bounds of the integers that match.
pub(super) fn bounds(schema: &Value) -> Bounds {
    let bound = |key: &str, is_least, is_exclusive| {
        schema
            .get(key)
            .and_then(|bound| integer(bound, is_least, is_exclusive))
    };
    let least = [
        bound("minimum", true, false),
        bound("exclusiveMinimum", true, true),
    ];
    let most = [
        bound("maximum", false, false),
        bound("exclusiveMaximum", false, true),
    ];
    Bounds {
        least: least.into_iter().flatten().max(),
        most: most.into_iter().flatten().min(),
    }
}

/// Rule of integers within bounds.
pub(super) fn integers(builder: &mut Builder, bounds: Bounds) -> Result<u32, InvalidGrammar> {
    let alternatives = within(bounds, &[]);
    builder.rule(alternatives)
}

/// Integers within bounds, followed by more.
fn within(Bounds { least, most }: Bounds, more: &[Item]) -> Vec<Vec<Item>> {
    let limit = 10i128.pow(MAX_DIGITS) - 1;
    // Bounds that are far away leave fewer digits; those that need more digits get them.
    let least = least
        .unwrap_or_else(|| -limit.max(most.map_or(0, |most| -most)))
        .clamp(LEAST, MOST);
    let most = most.unwrap_or_else(|| limit.max(least)).clamp(LEAST, MOST);
    let mut all = Vec::new();
    if least <= most && most >= 0 {
        all.extend(positive(least.max(0), most, more));
    }
    if least < 0 && least <= most {
        let minus = literal("-");
        for number in positive((-most).max(1), -least, more) {
            all.push([minus.clone(), number].concat());
        }
    }
    all
}

/// Integers from one to another, neither negative, followed by more.
fn positive(least: i128, most: i128, more: &[Item]) -> Vec<Vec<Item>> {
    let mut all = Vec::new();
    for digits in least.to_string().len()..=most.to_string().len() {
        let power = u32::try_from(digits - 1).unwrap_or(0);
        let (from, to) = (10i128.pow(power), 10i128.pow(power + 1) - 1);
        let from = if digits == 1 { 0 } else { from };
        let (from, to) = (from.max(least), to.min(most));
        if from <= to {
            between(
                from.to_string().as_bytes(),
                to.to_string().as_bytes(),
                &[],
                more,
                &mut all,
            );
        }
    }
    all
}

/// Numbers of as many digits as `from` and `to`, between them.
fn between(from: &[u8], to: &[u8], before: &[Item], more: &[Item], all: &mut Vec<Vec<Item>>) {
    let add = |all: &mut Vec<Vec<Item>>, middle: Vec<Item>| all.push([before, &middle, more].concat());
    let (Some((&first, rest)), Some((&last, rest_to))) = (from.split_first(), to.split_first()) else {
        add(all, Vec::new());
        return;
    };
    let is_low = rest.iter().all(|digit| *digit == b'0');
    let is_high = rest_to.iter().all(|digit| *digit == b'9');
    if is_low && is_high {
        let mut middle = vec![range(first, last)];
        middle.extend(rest.iter().map(|_| digit()));
        add(all, middle);
        return;
    }
    if first == last {
        let before = [before, &[range(first, first)]].concat();
        between(rest, rest_to, &before, more, all);
        return;
    }
    let (mut low, mut high) = (first, last);
    if !is_low {
        let before = [before, &[range(first, first)]].concat();
        between(rest, &vec![b'9'; rest.len()], &before, more, all);
        low += 1;
    }
    if !is_high {
        let before = [before, &[range(last, last)]].concat();
        between(&vec![b'0'; rest.len()], rest_to, &before, more, all);
        high -= 1;
    }
    if low <= high {
        let mut middle = vec![range(low, high)];
        middle.extend(rest.iter().map(|_| digit()));
        add(all, middle);
    }
}

/// Rule of numbers within bounds: integers, and those with a fraction between integers that are within them.
pub(super) fn numbers(builder: &mut Builder, schema: &Value) -> Result<u32, InvalidGrammar> {
    let one = builder.rule(vec![vec![digit()]])?;
    let fraction = [literal("."), vec![Item::Repeat(one, 1, Some(MAX_FRACTION))]].concat();
    let Bounds { least, most } = bounds(schema);
    let mut all = within(Bounds { least, most }, &[]);
    // From `n` on are `n.f`, up to `n + 1`.
    let least = least.unwrap_or(-MAX_WITH_FRACTION).max(-MAX_WITH_FRACTION);
    let most = most.unwrap_or(MAX_WITH_FRACTION).min(MAX_WITH_FRACTION);
    if least.max(0) < most {
        all.extend(positive(least.max(0), most - 1, &fraction));
    }
    if least < most.min(0) {
        for number in positive((-most).max(0), -least - 1, &fraction) {
            all.push([literal("-"), number].concat());
        }
    }
    if all.is_empty() {
        all.extend(middle(schema));
    }
    builder.rule(all)
}

/// Number in the middle of bounds that have no integer between them.
fn middle(schema: &Value) -> Option<Vec<Item>> {
    let bound = |key: &str, other: &str| schema.get(key).or(schema.get(other))?.as_f64();
    let least = bound("minimum", "exclusiveMinimum")?;
    let most = bound("maximum", "exclusiveMaximum")?;
    let middle = serde_json::Number::from_f64(least / 2.0 + most / 2.0)?;
    (least <= most).then(|| literal(&middle.to_string()))
}

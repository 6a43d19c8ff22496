//! Cost estimation of the patterns of a schema.
//!
//! The regex engine takes time of at most the length of the text times the size of the pattern, where a repetition
//! counts as often as it may repeat: `[01]*1[01]{1000}$` and a text of 200 KB take two seconds.

use std::collections::HashMap;

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::Value;

/// Engine steps, one byte in one state each, that take as long as one check (measured: 9 ns for a step).
const STEPS_PER_CHECK: usize = 128;

/// Assumed size of a pattern that only the validator can parse.
const UNKNOWN: usize = 10_000;

/// Maximum total size of all patterns of a schema, in about the number of states that the engine creates: `[a-z]{64}`
/// has 64.
/// A state takes about 40 bytes.
pub const MAX_PATTERN_SIZE: usize = 200_000;

/// Sizes of all patterns in a schema.
#[derive(Debug, Default)]
pub(super) struct Patterns(HashMap<String, usize>);

impl Patterns {
    /// Collects every value of `pattern` and every name in `patternProperties`, at any depth.
    pub(super) fn of(schema: &Value) -> Self {
        let mut sizes = HashMap::new();
        let mut open = vec![schema];
        while let Some(value) = open.pop() {
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(map) => {
                    let named = map.get("patternProperties").and_then(Value::as_object);
                    let names = named.into_iter().flat_map(|n| n.keys().map(String::as_str));
                    for pattern in map
                        .get("pattern")
                        .and_then(Value::as_str)
                        .into_iter()
                        .chain(names)
                    {
                        sizes
                            .entry(pattern.to_owned())
                            .or_insert_with(|| size_of(pattern));
                    }
                    open.extend(map.values());
                }
                _ => {}
            }
        }
        Self(sizes)
    }

    /// Returns the total size, each distinct pattern counted once.
    pub(super) fn size(&self) -> usize {
        self.0.values().copied().fold(0, usize::saturating_add)
    }

    /// Returns the number of checks that matching a text costs.
    pub(super) fn checks(&self, pattern: &str, text: &str) -> usize {
        let size = self.0.get(pattern).copied().unwrap_or(UNKNOWN);
        size.saturating_mul(text.len()) / STEPS_PER_CHECK
    }
}

/// Estimates the number of engine states of a pattern.
fn size_of(pattern: &str) -> usize {
    regex_syntax::parse(pattern).map_or(UNKNOWN, |hir| states(&hir))
}

/// Estimates the states of a parsed pattern, whose depth is bounded by the parser.
fn states(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Bytes(_)) => 1,
        // Non-ASCII characters take several states each; neighbouring ranges share some.
        HirKind::Class(Class::Unicode(class)) => 1 + class.ranges().len() / 4,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1) as usize;
            states(&repetition.sub).saturating_mul(times)
        }
        HirKind::Capture(capture) => states(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(states).fold(0, usize::saturating_add)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_counts_as_often_as_it_may_repeat() {
        assert_eq!(size_of("a"), 1);
        assert_eq!(size_of("[01]{1000}"), 1_000);
        assert_eq!(size_of("([01]{10}){20}"), 200);
        assert_eq!(size_of("[01]*"), 1);
        assert!((36..80).contains(&size_of("^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$")));
        // Too deep for the parser, and in another syntax.
        assert_eq!(size_of(&"(".repeat(100_000)), UNKNOWN);
        assert_eq!(size_of("(?=a)"), UNKNOWN);
    }
}

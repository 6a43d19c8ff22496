//! Cost estimation of the patterns of a schema.
//!
//! The regex engine takes time of at most the length of the text times the size of the pattern, where a repetition
//! counts as often as it may repeat: `[01]*1[01]{1000}$` and a text of 200 KB take two seconds.

use std::collections::HashMap;

use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;
use serde_json::Value;

use super::{MAX_PATTERN_CACHE, Schema, SchemaError};

/// Engine steps, one byte in one state each, that take as long as one check (measured: 9 ns for a step).
const STEPS_PER_CHECK: usize = 128;

/// Assumed size of a pattern that only the validator can parse.
const UNKNOWN: Size = Size {
    steps: 10_000,
    states: 10_000,
};

/// Maximum total size of all patterns of a schema, in about the number of states that the engine creates: `[a-z]{64}`
/// has 64.
/// A state takes about 100 bytes.
pub const MAX_PATTERN_SIZE: usize = 200_000;

/// Maximum total size of the patterns of all schemas of one origin: the tools of a component, of a server, or of a request. Each
/// schema is compiled to check it, which takes about a second for all of them.
pub const MAX_TOTAL_PATTERN_SIZE: usize = 1_000_000;

/// Memory of a state, in bytes, of which a match takes some (measured: 60 and 40).
const STATE: usize = 100;

/// Memory for each state of what a pattern remembers of its matches, in bytes (measured: 870).
const CACHE: usize = 1 << 10;

/// States that the sequences of three and four bytes of a class share.
const SHARED_ENDS: usize = 6;

/// Memory of a compiled pattern without its states, in bytes.
const PATTERN: usize = 8 << 10;

/// Estimated size of a pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    /// Steps of the engine for each byte of a text.
    steps: usize,
    /// States that the engine creates, each of which takes memory.
    states: usize,
}

/// Sizes of all patterns in a schema.
#[derive(Debug, Default)]
pub(super) struct Patterns(HashMap<String, Size>);

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

    /// Returns the number of states of all of them, each distinct pattern counted once.
    pub(super) fn size(&self) -> usize {
        let all = self.0.values().map(|size| size.states);
        all.fold(0, usize::saturating_add)
    }

    /// Estimates the memory of the compiled patterns, in bytes.
    pub(super) fn memory(&self) -> usize {
        let all = self.0.values().map(|size| {
            let cache = size.states.saturating_mul(CACHE).min(MAX_PATTERN_CACHE);
            let of_states = size.states.saturating_mul(STATE);
            of_states.saturating_add(PATTERN + cache)
        });
        all.fold(0, usize::saturating_add)
    }

    /// Returns the number of checks that matching a text costs.
    pub(super) fn checks(&self, pattern: &str, text: &str) -> usize {
        let size = self.0.get(pattern).copied().unwrap_or(UNKNOWN);
        size.steps.saturating_mul(text.len()) / STEPS_PER_CHECK
    }
}

/// Total size of the patterns of several schemas, those of one origin.
#[derive(Debug, Default)]
pub struct PatternTotal(usize);

impl PatternTotal {
    /// Begins with the patterns of a schema.
    pub fn of(schema: &Schema) -> Self {
        Self(schema.patterns.size())
    }

    /// Adds the patterns of a schema. Those that do not fit are not counted, so that smaller ones may follow.
    pub(super) fn add(&mut self, patterns: &Patterns) -> Result<(), SchemaError> {
        let total = self.0.saturating_add(patterns.size());
        if total > MAX_TOTAL_PATTERN_SIZE {
            return Err(SchemaError::TotalTooLarge(total));
        }
        self.0 = total;
        Ok(())
    }
}

/// Estimates the size of a pattern, in the form in which the validator compiles it: `\w` is an ASCII character.
fn size_of(pattern: &str) -> Size {
    let compiled = jsonschema_regex::to_rust_regex(pattern);
    let parsed = compiled
        .ok()
        .and_then(|compiled| regex_syntax::parse(&compiled).ok());
    parsed.map_or(UNKNOWN, |hir| Size::of(&hir))
}

impl Size {
    fn new(steps: usize, states: usize) -> Self {
        Self { steps, states }
    }

    /// Estimates the size of a parsed pattern, whose depth is bounded by the parser.
    fn of(hir: &Hir) -> Self {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Self::new(0, 1),
            HirKind::Literal(literal) => Self::new(literal.0.len(), literal.0.len()),
            HirKind::Class(Class::Bytes(_)) => Self::new(1, 1),
            // Characters of several bytes take several steps each; neighbouring ranges share some.
            HirKind::Class(Class::Unicode(class)) => {
                Self::new(1 + class.ranges().len() / 4, states_of_class(class))
            }
            HirKind::Repetition(repetition) => {
                let times = repetition.max.unwrap_or(repetition.min).max(1) as usize;
                let is_exact = repetition.max == Some(repetition.min);
                let one = Self::of(&repetition.sub).and(Self::new(0, usize::from(!is_exact)));
                Self::new(one.steps.saturating_mul(times), one.states.saturating_mul(times))
            }
            // Both ends of a group are states.
            HirKind::Capture(capture) => Self::of(&capture.sub).and(Self::new(0, 2)),
            HirKind::Concat(parts) => parts.iter().map(Self::of).fold(Self::default(), Self::and),
            HirKind::Alternation(parts) => parts.iter().map(Self::of).fold(Self::new(0, 1), Self::and),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            steps: self.steps.saturating_add(other.steps),
            states: self.states.saturating_add(other.states),
        }
    }
}

/// Estimates the states of a class of characters. Ranges of ASCII characters share one; others take one for each sequence of bytes,
/// whose ends they share.
fn states_of_class(class: &ClassUnicode) -> usize {
    let others = class.ranges().iter().filter(|range| !range.end().is_ascii());
    let sequences = others.flat_map(|range| Utf8Sequences::new(range.start(), range.end()));
    let of_ends = match class.maximum_len() {
        Some(3..) => SHARED_ENDS,
        _ => 0,
    };
    1 + sequences.count() + of_ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_counts_as_often_as_it_may_repeat() {
        let of = |pattern: &str| {
            let size = size_of(pattern);
            (size.steps, size.states)
        };
        assert_eq!(of("a"), (1, 1));
        assert_eq!(of("[01]{1000}"), (1_000, 1_000));
        assert_eq!(of("(?:[01]{10}){20}"), (200, 200));
        assert_eq!(of("[01]*"), (1, 2));
        let (steps, states) = of("^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$");
        assert!((36..80).contains(&steps) && (36..80).contains(&states));
        // As JSON Schema has it, a word has ASCII characters only.
        assert_eq!(of("[\\w+=,.@-]{128}").1, 128);
        // Too deep for the parser, and in another syntax.
        assert_eq!(size_of(&"(".repeat(100_000)), UNKNOWN);
        assert_eq!(size_of("(?=a)"), UNKNOWN);
    }

    #[test]
    fn states_without_a_step_and_bytes_of_characters_count() {
        let states = |pattern: &str| size_of(pattern).states;
        assert_eq!(states("(((a)))"), 7);
        assert_eq!(states("(?:a||||[b-d])"), 6);
        assert_eq!(states("(?:a|^){1000}"), 3_000);
        // Characters of other scripts are sequences of bytes.
        assert_eq!((states("[α-ω]"), states("."), states(".{100}")), (3, 16, 1_600));
        assert!((600..1_200).contains(&states("\\p{L}")));
    }
}

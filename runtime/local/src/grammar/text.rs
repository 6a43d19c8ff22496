//! Rules of strings, as they are written in JSON.

use regex_syntax::hir::{Class, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;

use super::{Builder, InvalidGrammar, Item, literal};

/// Maximum depth of a pattern.
const MAX_NESTING: u32 = 64;

/// Items for one character of these ranges, as JSON writes it: quotes, backslashes and control characters are escaped.
fn characters(ranges: impl Iterator<Item = (char, char)>) -> Vec<Vec<Item>> {
    let mut all = Vec::new();
    for (from, to) in ranges {
        for (part_from, part_to) in plain_parts(from, to) {
            for sequence in Utf8Sequences::new(part_from, part_to) {
                let ranges = sequence.as_slice().iter();
                all.push(
                    ranges
                        .map(|range| Item::Bytes(vec![(range.start, range.end)]))
                        .collect(),
                );
            }
        }
        for escaped in ['"', '\\', '\n', '\r', '\t', '\u{8}', '\u{c}'] {
            if (from..=to).contains(&escaped) {
                let text = serde_json::Value::from(escaped.to_string()).to_string();
                all.push(literal(&text[1..text.len() - 1]));
            }
        }
    }
    all
}

/// Parts of a range without characters that must be escaped.
fn plain_parts(from: char, to: char) -> impl Iterator<Item = (char, char)> {
    let plain = [
        (' ', '!'),
        ('#', '['),
        (']', '~'),
        ('\u{80}', '\u{d7ff}'),
        ('\u{e000}', char::MAX),
    ];
    plain.into_iter().filter_map(move |(low, high)| {
        let (low, high) = (low.max(from), high.min(to));
        (low <= high).then_some((low, high))
    })
}

/// Rule of any one character.
pub(super) fn any_character(builder: &mut Builder) -> Result<u32, InvalidGrammar> {
    builder.rule(characters([('\0', char::MAX)].into_iter()))
}

/// Rule of the texts that a pattern matches as a whole, without quotes, or `None` if it has parts for which there are no rules.
pub(super) fn pattern(builder: &mut Builder, pattern: &str) -> Result<Option<u32>, InvalidGrammar> {
    let Some(pattern) = translated(pattern) else {
        return Ok(None);
    };
    let parsed = regex_syntax::ParserBuilder::new()
        .nest_limit(MAX_NESTING)
        .build()
        .parse(&pattern);
    let Ok(parsed) = parsed else { return Ok(None) };
    match rule(builder, &parsed, MAX_NESTING) {
        Ok(rule) => Ok(Some(rule)),
        Err(NoRule::Unsupported) => Ok(None),
        Err(NoRule::Invalid(error)) => Err(error),
    }
}

/// Pattern of ECMA-262 without anchors at its ends, in the syntax of Rust: a text that matches as a whole also matches a pattern
/// without anchors. Classes are those of ASCII, as they are there.
fn translated(pattern: &str) -> Option<String> {
    let mut rest = pattern;
    rest = rest.strip_prefix('^').unwrap_or(rest);
    let escapes = rest.strip_suffix('$').unwrap_or(rest);
    let backslashes = escapes.len() - escapes.trim_end_matches('\\').len();
    if backslashes.is_multiple_of(2) {
        rest = escapes;
    }
    // An anchor that holds for one alternative only.
    let is_anchored = rest.len() < pattern.len();
    if is_anchored && rest.contains('|') {
        rest = within_group(rest)?;
    }
    let mut translated = String::new();
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            translated.push(character);
            continue;
        }
        match characters.next()? {
            'd' => translated.push_str("[0-9]"),
            'D' => translated.push_str("[^0-9]"),
            'w' => translated.push_str("[A-Za-z0-9_]"),
            'W' => translated.push_str("[^A-Za-z0-9_]"),
            's' => translated.push_str("[ \\t\\n\\r]"),
            'S' => translated.push_str("[!-~]"),
            '/' => translated.push('/'),
            'b' | 'B' => return None,
            other => translated.extend(['\\', other]),
        }
    }
    Some(translated)
}

/// Pattern whose alternatives are all within one group or class, or `None`.
fn within_group(pattern: &str) -> Option<&str> {
    let (mut depth, mut is_escaped) = (0i32, false);
    for character in pattern.chars() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '|' if depth <= 0 => return None,
            _ => {}
        }
    }
    Some(pattern)
}

enum NoRule {
    Unsupported,
    Invalid(InvalidGrammar),
}

impl From<InvalidGrammar> for NoRule {
    fn from(error: InvalidGrammar) -> Self {
        Self::Invalid(error)
    }
}

fn rule(builder: &mut Builder, pattern: &Hir, depth: u32) -> Result<u32, NoRule> {
    let depth = depth.checked_sub(1).ok_or(NoRule::Unsupported)?;
    let alternatives = match pattern.kind() {
        HirKind::Empty => vec![Vec::new()],
        HirKind::Literal(text) => {
            let text = std::str::from_utf8(&text.0).map_err(|_| NoRule::Unsupported)?;
            let mut items = Vec::new();
            for character in text.chars() {
                items.push(Item::Rule(
                    builder.rule(characters([(character, character)].into_iter()))?,
                ));
            }
            vec![items]
        }
        HirKind::Class(Class::Unicode(class)) => {
            characters(class.ranges().iter().map(|range| (range.start(), range.end())))
        }
        HirKind::Repetition(repetition) => {
            if repetition.sub.properties().minimum_len().unwrap_or(0) == 0 {
                return Err(NoRule::Unsupported);
            }
            let each = rule(builder, &repetition.sub, depth)?;
            vec![vec![Item::Repeat(each, repetition.min, repetition.max)]]
        }
        HirKind::Capture(capture) => return rule(builder, &capture.sub, depth),
        HirKind::Concat(parts) => {
            let mut items = Vec::new();
            for part in parts {
                items.push(Item::Rule(rule(builder, part, depth)?));
            }
            vec![items]
        }
        HirKind::Alternation(parts) => {
            let mut alternatives = Vec::new();
            for part in parts {
                alternatives.push(vec![Item::Rule(rule(builder, part, depth)?)]);
            }
            alternatives
        }
        HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => return Err(NoRule::Unsupported),
    };
    Ok(builder.rule(alternatives)?)
}

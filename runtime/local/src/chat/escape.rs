//! Control tokens in the texts of others: they stay text.
//!
//! A tokenizer makes control tokens of their names in a prompt, and the template writes those names. Names in messages and tools,
//! which others wrote, are replaced by characters for private use before the template sees them, and are tokenized as text
//! afterwards. Otherwise a web page could end the result of a call and begin a message of the user.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// First character that stands for a name.
const FIRST: u32 = 0x10_0000;

/// Maximum number of names: one plane of characters for private use. Models have up to 1,000.
pub const MAX_NAMES: usize = 0xfff0;

/// Part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Text.
    pub text: String,
    /// True if names of control tokens in it are text.
    pub is_plain: bool,
}

/// Names of control tokens.
#[derive(Debug, Clone, Default)]
pub struct ControlNames {
    /// From the longest on.
    names: Vec<String>,
    /// Bytes with which they begin.
    first: Vec<u8>,
}

impl ControlNames {
    /// Creates a set of names. Those beyond [`MAX_NAMES`] are left out, and so are empty ones.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        names.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        names.dedup();
        names.truncate(MAX_NAMES);
        let mut first: Vec<u8> = names.iter().filter_map(|name| name.bytes().next()).collect();
        first.sort_unstable();
        first.dedup();
        Self { names, first }
    }

    /// Replaces each name in a text by a character for private use, and those characters by U+FFFD.
    pub(super) fn hide(&self, text: &str) -> String {
        let mut hidden = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let is_first = rest
                .bytes()
                .next()
                .is_some_and(|first| self.first.contains(&first));
            let name = match is_first {
                true => self.names.iter().position(|name| rest.starts_with(name.as_str())),
                false => None,
            };
            if let Some(index) = name {
                hidden.extend(
                    u32::try_from(index)
                        .ok()
                        .and_then(|index| char::from_u32(FIRST + index)),
                );
                rest = &rest[self.names[index].len()..];
                continue;
            }
            let is_private = u32::from(character) >= FIRST;
            hidden.push(if is_private { '\u{fffd}' } else { character });
            rest = &rest[character.len_utf8()..];
        }
        hidden
    }

    /// Hides the names in all texts of a value.
    pub(super) fn hide_in(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.hide(text)),
            Value::Array(items) => items.iter().map(|item| self.hide_in(item)).collect(),
            Value::Object(members) => {
                let hidden = members
                    .iter()
                    .map(|(name, value)| (self.hide(name), self.hide_in(value)));
                Value::Object(hidden.collect())
            }
            other => other.clone(),
        }
    }

    /// Parts of a prompt with its hidden names as text.
    pub(super) fn segments(&self, prompt: &str) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut add = |text: &str, is_plain: bool| match segments.last_mut() {
            Some(last) if last.is_plain == is_plain => last.text.push_str(text),
            _ if text.is_empty() => {}
            _ => segments.push(Segment {
                text: text.to_owned(),
                is_plain,
            }),
        };
        let mut from = 0;
        for (at, character) in prompt.char_indices() {
            let index = u32::from(character)
                .checked_sub(FIRST)
                .and_then(|index| usize::try_from(index).ok());
            let Some(index) = index else { continue };
            add(&prompt[from..at], false);
            from = at + character.len_utf8();
            add(self.names.get(index).map_or("\u{fffd}", String::as_str), true);
        }
        add(&prompt[from..], false);
        segments
    }
}

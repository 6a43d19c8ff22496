//! Grammars of answers: which bytes a model may write next, so that its calls match the schemas of tools by construction.
//!
//! A [`Grammar`] is built from JSON schemas (`schema`) and followed byte by byte by a [`Matcher`]. It has no recursion on the left,
//! and each of its rules has a shortest text, so that a text that was begun can always be completed.

mod keywords;
mod matcher;
mod number;
mod schema;
mod text;

use serde::{Deserialize, Serialize};

pub use matcher::Matcher;
pub use schema::{SchemaGrammar, Unsupported};

/// Maximum number of items of a grammar: some hundred tools with long schemas.
pub const MAX_ITEMS: usize = 200_000;

/// Rules of texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Rules", into = "Rules")]
pub struct Grammar {
    rules: Vec<Vec<Sequence>>,
    root: u32,
}

/// Form of a grammar without what follows from it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Rules {
    rules: Vec<Vec<Vec<Item>>>,
    root: u32,
}

/// Items that follow each other, with the length of the shortest text from each of them on, in bytes.
#[derive(Debug, Clone, PartialEq)]
struct Sequence {
    items: Vec<Item>,
    least: Vec<u64>,
}

/// Part of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Item {
    /// One byte of these ranges, whose ends are included.
    #[serde(rename = "b")]
    Bytes(Vec<(u8, u8)>),
    /// A text of another rule.
    #[serde(rename = "r")]
    Rule(u32),
    /// Texts of another rule, none of which may be empty, in this number.
    #[serde(rename = "n")]
    Repeat(u32, u32, Option<u32>),
}

/// The grammar exceeds [`MAX_ITEMS`], or a rule has no finite text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidGrammar {
    /// Too many items.
    #[error("the schemas need more than {MAX_ITEMS} items of a grammar")]
    TooLarge,
    /// No text matches.
    #[error("nothing matches the schema")]
    Empty,
}

/// Length of the texts of a rule that has none.
const NONE: u64 = u64::MAX;

impl Grammar {
    /// Length of the shortest text, in bytes.
    pub fn least(&self) -> u64 {
        least_of(&self.rules[self.root as usize])
    }

    fn alternatives(&self, rule: u32) -> &[Sequence] {
        self.rules.get(rule as usize).map_or(&[], Vec::as_slice)
    }

    /// Adds the lengths of the shortest texts.
    fn of(rules: Vec<Vec<Vec<Item>>>, root: u32) -> Self {
        let mut least = vec![NONE; rules.len()];
        let length = |items: &[Item], least: &[u64]| {
            items.iter().fold(0u64, |sum, item| {
                let of = |rule: &u32| least.get(*rule as usize).copied().unwrap_or(NONE);
                sum.saturating_add(match item {
                    Item::Bytes(ranges) if ranges.is_empty() => NONE,
                    Item::Bytes(_) => 1,
                    Item::Rule(rule) => of(rule),
                    Item::Repeat(_, 0, _) => 0,
                    Item::Repeat(rule, count, _) => of(rule).saturating_mul(u64::from(*count)),
                })
            })
        };
        loop {
            let mut is_changed = false;
            for (index, alternatives) in rules.iter().enumerate() {
                let shortest = alternatives.iter().map(|items| length(items, &least)).min();
                let shortest = shortest.unwrap_or(NONE);
                if shortest < least[index] {
                    least[index] = shortest;
                    is_changed = true;
                }
            }
            if !is_changed {
                break;
            }
        }
        let sequence = |items: Vec<Item>| Sequence {
            least: (0..=items.len())
                .map(|from| length(&items[from..], &least))
                .collect(),
            items,
        };
        Self {
            rules: rules
                .into_iter()
                .map(|alternatives| alternatives.into_iter().map(sequence).collect())
                .collect(),
            root,
        }
    }
}

fn least_of(alternatives: &[Sequence]) -> u64 {
    let least = alternatives.iter().filter_map(|sequence| sequence.least.first());
    least.min().copied().unwrap_or(NONE)
}

impl From<Rules> for Grammar {
    fn from(Rules { rules, root }: Rules) -> Self {
        Self::of(rules, root)
    }
}

impl From<Grammar> for Rules {
    fn from(grammar: Grammar) -> Self {
        let items = |sequence: Sequence| sequence.items;
        let rules = grammar.rules.into_iter();
        Self {
            rules: rules
                .map(|alternatives| alternatives.into_iter().map(items).collect())
                .collect(),
            root: grammar.root,
        }
    }
}

/// Grammar that is being built.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    rules: Vec<Vec<Vec<Item>>>,
    items: usize,
}

impl Builder {
    /// Adds a rule whose alternatives are set later.
    pub(crate) fn reserve(&mut self) -> u32 {
        self.rules.push(Vec::new());
        u32::try_from(self.rules.len() - 1).unwrap_or(u32::MAX)
    }

    /// Sets the alternatives of a rule.
    pub(crate) fn set(&mut self, rule: u32, alternatives: Vec<Vec<Item>>) -> Result<(), InvalidGrammar> {
        self.items += alternatives.iter().map(|items| items.len() + 1).sum::<usize>();
        if self.items > MAX_ITEMS || self.rules.len() > MAX_ITEMS {
            return Err(InvalidGrammar::TooLarge);
        }
        if let Some(known) = self.rules.get_mut(rule as usize) {
            *known = alternatives;
        }
        Ok(())
    }

    /// Adds a rule.
    pub(crate) fn rule(&mut self, alternatives: Vec<Vec<Item>>) -> Result<u32, InvalidGrammar> {
        let rule = self.reserve();
        self.set(rule, alternatives)?;
        Ok(rule)
    }

    /// Completes the grammar.
    pub(crate) fn build(self, root: u32) -> Result<Grammar, InvalidGrammar> {
        let grammar = Grammar::of(self.rules, root);
        match grammar.least() {
            NONE => Err(InvalidGrammar::Empty),
            _ => Ok(grammar),
        }
    }
}

/// Items of a fixed text.
pub(crate) fn literal(text: &str) -> Vec<Item> {
    text.bytes().map(|byte| Item::Bytes(vec![(byte, byte)])).collect()
}

#[cfg(test)]
mod tests;

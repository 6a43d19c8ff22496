//! Elements of a layout: words and lines in the order of the text, within quotes and items.

use anstyle::Style;

use super::rows::Run;
use super::table::Table;

/// Place of an atom that is not complete before the end of the text.
pub(super) const OPEN: usize = usize::MAX;

/// Distance of an atom from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gap {
    /// So many blanks.
    Blanks(usize),
    /// A new row.
    Break,
    /// A new row after an empty one.
    Empty,
}

/// Part of the text that is shown as a whole, or not yet.
#[derive(Debug)]
pub(super) struct Atom {
    pub(super) gap: Gap,
    pub(super) kind: Kind,
    /// Offset of its end in the text.
    pub(super) end: usize,
}

/// Content of an atom.
#[derive(Debug)]
pub(super) enum Kind {
    Word(Vec<Run>),
    /// A line with its blanks.
    Line {
        style: Style,
        text: String,
        is_code: bool,
    },
    Table(Table),
    /// Nothing, in an item without a text.
    Nothing,
}

/// Element of a layout.
#[derive(Debug)]
pub(super) enum Element {
    Atom(Atom),
    Quote,
    Item(String),
    /// End of a quote or an item.
    End,
}

/// Elements of a text.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) elements: Vec<Element>,
    /// Offset of the last block, and the number of elements before it.
    pub(super) last: (usize, usize),
    /// Offset of a delimiter in the last block that can still become markup.
    pub(super) open: Option<usize>,
}

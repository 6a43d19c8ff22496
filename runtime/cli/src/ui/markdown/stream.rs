//! Markdown that arrives in pieces. A word is written once nothing that follows can change it, and never again: a paragraph
//! word by word, code line by line, a table as a whole.

use std::hash::{DefaultHasher, Hasher as _};

use anstyle::Style;

use super::block::{self, inert_text};
use super::element::{Atom, Element, Gap, Kind};
use super::rows::{Row, Rows};
use crate::ui::terminal::Width;

/// Maximum size of a block, in bytes: far more than models write. The rest of the text is
/// shown as it is written.
const MAX_BLOCK: usize = 256 << 10;

/// Size of a block that is read again with each piece, in bytes.
const SMALL_BLOCK: usize = 4 << 10;

/// Part of a larger block that is new when it is read again: the whole work stays proportional to the text.
const NEW_PART: usize = 32;

/// Maximum number of quotes and lists within each other: more than a terminal has room for. The parser looks at each of them
/// for each line that follows.
const MAX_NESTING: usize = 100;

/// Maximum length of the marker of a quote or an item with the blanks around it, in bytes: three blanks, nine digits, a dot and
/// four blanks (CommonMark 0.31.2, section 5.2).
const MAX_MARKER: usize = 17;

/// A text under way.
#[derive(Debug)]
pub(crate) struct MarkdownStream {
    /// The last blocks, which are not completely shown.
    pending: String,
    /// Number of atoms of `pending` that are shown.
    shown: usize,
    /// Length of `pending` when it was read the last time.
    read: usize,
    /// Letters of these atoms, as a hash, and the end of the last one.
    shown_letters: u64,
    shown_end: usize,
    /// Columns of the last row that is shown, if it is not ended.
    open: Option<usize>,
    /// True if a row of the text is shown.
    has_rows: bool,
}

/// Rows that are ready.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    pub(crate) rows: Vec<Row>,
    /// True if the first one goes on with the last one of those before.
    pub(crate) goes_on: bool,
    /// True if the last one is not ended.
    pub(crate) is_open: bool,
}

impl Default for MarkdownStream {
    fn default() -> Self {
        Self {
            pending: String::new(),
            shown: 0,
            read: 0,
            shown_letters: letters(&[], 0).0,
            shown_end: 0,
            open: None,
            has_rows: false,
        }
    }
}

impl MarkdownStream {
    /// Notes that the row that was open is ended, by something else that was written.
    pub(crate) fn row_was_ended(&mut self) {
        self.open = None;
    }

    /// Adds a piece, and returns the rows that are ready. `Err` has all that is left if a block is too long: what follows is no
    /// Markdown any more.
    pub(crate) fn push(&mut self, piece: &str, width: Width, colour: bool) -> Result<Ready, Ready> {
        self.pending.push_str(piece);
        if self.pending.len() > MAX_BLOCK {
            return Err(self.finish(width, colour));
        }
        let new = self.pending.len().saturating_sub(self.read);
        if self.pending.len() > SMALL_BLOCK && new < self.pending.len() / NEW_PART {
            return Ok(Ready::default());
        }
        self.read = self.pending.len();
        let end = decided(&self.pending);
        Ok(self.rows(end, false, width, colour))
    }

    /// Ends the text, and returns its last rows.
    pub(crate) fn finish(&mut self, width: Width, colour: bool) -> Ready {
        let ready = self.rows(self.pending.len(), true, width, colour);
        *self = Self::default();
        ready
    }

    fn rows(&mut self, end: usize, is_final: bool, width: Width, colour: bool) -> Ready {
        let source = &self.pending[..end];
        if source.lines().any(is_too_deep) {
            return self.as_written(is_final, width);
        }
        let blocks = block::parse(source, colour);
        if end < self.shown_end {
            return Ready::default();
        }
        if letters(&blocks.elements, self.shown).0 != self.shown_letters {
            return self.as_written(is_final, width);
        }
        let limit = match blocks.open {
            _ if is_final => usize::MAX,
            Some(open) => open,
            None => end,
        };
        // A word goes on up to a blank.
        let last_blank = source[..limit.min(source.len())].rfind(char::is_whitespace);
        let is_ended = |atom: &Atom| last_blank.is_some_and(|blank| atom.end <= blank);
        let is_stable = |atom: &Atom| is_final || is_ended(atom);
        let is_line_over = source.trim_end_matches([' ', '\t']).ends_with('\n') && limit == end;
        let mut rows = Rows::behind_gutter(width);
        let mut number = 0;
        let mut is_row_over = is_final || is_line_over;
        for element in &blocks.elements {
            let atom = match element {
                Element::Quote => {
                    rows.begin_quote();
                    continue;
                }
                Element::Item(marker) => {
                    rows.begin_item(marker, number < self.shown);
                    continue;
                }
                Element::End => {
                    rows.end_container();
                    continue;
                }
                Element::Atom(atom) => atom,
            };
            number += 1;
            if number <= self.shown {
                rows.skip_markers();
                if let Some(column) = self.open.filter(|_| number == self.shown) {
                    rows.resume(column);
                }
                continue;
            }
            if !is_stable(atom) {
                is_row_over = atom.gap >= Gap::Break;
                number -= 1;
                break;
            }
            let is_first = number == 1 && !self.has_rows;
            let blanks = match atom.gap {
                Gap::Blanks(blanks) => blanks,
                Gap::Empty if !is_first => {
                    rows.blank();
                    0
                }
                Gap::Empty | Gap::Break => {
                    rows.end();
                    0
                }
            };
            match &atom.kind {
                Kind::Word(word) => rows.word(blanks, word),
                Kind::Line { style, text, is_code } => rows.line(*style, text, *is_code),
                Kind::Table(table) => table.write(&mut rows),
                Kind::Nothing => rows.word(0, &[]),
            }
        }
        let goes_on = self.open.is_some();
        self.open = rows.open_column().filter(|_| !is_row_over);
        self.shown = number.max(self.shown);
        let is_unchanged = goes_on && self.open.is_some() && rows.is_unchanged();
        rows.end();
        self.has_rows |= !rows.done.is_empty();
        self.forget(&blocks.elements, blocks.last, end);
        if is_unchanged {
            return Ready::default();
        }
        Ready {
            rows: rows.done,
            goes_on,
            is_open: self.open.is_some(),
        }
    }

    /// Removes the blocks before the last one: they are shown, and nothing changes them any more.
    fn forget(&mut self, elements: &[Element], last: (usize, usize), end: usize) {
        let (offset, count) = last;
        let before = atoms(&elements[..count]).count();
        let is_forgotten = offset > 0 && offset <= end && before <= self.shown;
        let (keep, count) = match is_forgotten {
            // The empty line before the last block stays.
            true => (self.pending[..offset].trim_end().len(), count),
            false => (0, 0),
        };
        self.pending.drain(..keep);
        self.read = self.read.saturating_sub(keep);
        self.shown -= if is_forgotten { before } else { 0 };
        let (letters, shown_end) = letters(&elements[count..], self.shown);
        self.shown_letters = letters;
        self.shown_end = shown_end.saturating_sub(keep).min(self.pending.len());
    }

    /// Returns the rest of the block as it is written, up to its last complete line: what follows has changed the markup of
    /// text that is shown.
    fn as_written(&mut self, is_final: bool, width: Width) -> Ready {
        let end = match self.pending.rfind('\n') {
            _ if is_final => self.pending.len(),
            Some(end) if end >= self.shown_end => end + 1,
            _ => return Ready::default(),
        };
        let start = self.pending.floor_char_boundary(self.shown_end.min(end));
        let mut rows = Rows::behind_gutter(width);
        if let Some(column) = self.open {
            rows.resume(column);
        }
        for line in self.pending[start..end].lines() {
            rows.line(Style::new(), &inert_text(line), false);
        }
        rows.end();
        let goes_on = self.open.is_some();
        *self = Self {
            pending: self.pending.split_off(end),
            has_rows: true,
            ..Self::default()
        };
        Ready {
            rows: rows.done,
            goes_on,
            is_open: false,
        }
    }
}

/// True if a line begins more quotes and lists than are read as such.
fn is_too_deep(line: &str) -> bool {
    let begin = line.floor_char_boundary(MAX_MARKER * (MAX_NESTING + 1));
    let mut rest = line[..begin].trim_start();
    let mut count = 0;
    while count <= MAX_NESTING {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let after = match number.len() < rest.len() {
            true => number.strip_prefix(['.', ')']),
            false => rest.strip_prefix(['-', '+', '*']),
        };
        let item = after.filter(|after| after.starts_with([' ', '\t']));
        let Some(after) = rest.strip_prefix('>').or(item) else {
            return false;
        };
        rest = after.trim_start();
        count += 1;
    }
    true
}

fn atoms(elements: &[Element]) -> impl Iterator<Item = &Atom> {
    elements.iter().filter_map(|element| match element {
        Element::Atom(atom) => Some(atom),
        _ => None,
    })
}

/// Returns a hash of the letters of the first atoms, and the end of the last one. They depend neither on styles nor on
/// delimiters.
fn letters(elements: &[Element], count: usize) -> (u64, usize) {
    let mut hasher = DefaultHasher::new();
    let mut end = 0;
    for atom in atoms(elements).take(count) {
        let mut write = |text: &str| {
            let letters = text.chars().filter(|c| c.is_alphanumeric());
            letters.for_each(|letter| hasher.write_u32(letter.into()));
        };
        match &atom.kind {
            Kind::Word(word) => word.iter().for_each(|run| write(&run.text)),
            Kind::Line { text, .. } => write(text),
            Kind::Table(_) => write("table"),
            Kind::Nothing => {}
        }
        end = end.max(if atom.end == usize::MAX { 0 } else { atom.end });
    }
    (hasher.finish(), end)
}

/// Returns the end of the text whose blocks are known: its last line can be the beginning of something else, such as a
/// list, a fence or the line below the header of a table.
fn decided(text: &str) -> usize {
    let last = text.rfind('\n').map_or(0, |at| at + 1);
    let end = if is_decided(&text[last..]) {
        text.len()
    } else {
        last
    };
    // The line below the first of these makes them a table.
    let mut start = end;
    while start > 0 {
        let (before, line) = last_line(&text[..start]);
        if !line.contains('|') {
            break;
        }
        start = before;
    }
    start
}

/// Returns the last line of a text and its offset.
fn last_line(text: &str) -> (usize, &str) {
    let lines = text.strip_suffix('\n').unwrap_or(text);
    let start = lines.rfind('\n').map_or(0, |at| at + 1);
    (start, &lines[start..])
}

/// True if a line that is not complete is known to be text, of a paragraph or of an item.
fn is_decided(line: &str) -> bool {
    let is_marker =
        |c: char| c.is_ascii_digit() || matches!(c, '>' | '-' | '*' | '+' | '.' | ')' | '#' | ' ');
    let text = line.trim_start_matches(is_marker);
    let is_open = ["```", "~~~", "<", "["]
        .iter()
        .any(|start| text.starts_with(start));
    if is_open || text.contains('|') {
        return false;
    }
    let letter = text.find(char::is_alphabetic);
    letter.is_some_and(|letter| text[letter..].contains([' ', '\t']))
}

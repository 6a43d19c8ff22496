//! Physical lines: wrapping, and the gutter at the start of every line of foreign text.
//!
//! A terminal that wraps a long line continues it at column 0, where it can look like a line of Toolcell itself.
//! Therefore text is wrapped here, below the width of the terminal, and each physical line that begins with foreign
//! text begins with [`GUTTER`]. Widths are upper bounds of what terminals draw.

use toolcell_core::inert::is_mark;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthChar as _;

use super::escape::{inert, write_escape};

/// Start of each physical line of foreign text, after the indentation of its paragraph.
pub(crate) const GUTTER: &str = "│ ";

/// Minimum number of columns of a layout. A narrower terminal wraps by itself.
pub(crate) const MIN_COLUMNS: usize = 10;

/// Distance of tab stops, in columns.
const TAB: usize = 8;

/// Maximum number of characters in one glyph. The longest emoji in use have ten.
const MAX_GLYPH: usize = 12;

/// Width of a terminal, and its handling of ambiguous-width characters (UAX #11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Width {
    /// Number of columns; `None` if nothing wraps, such as in a file.
    pub(crate) columns: Option<usize>,
    /// True if ambiguous-width characters (Greek, Cyrillic, box drawing) take two columns, as in East Asian locales.
    pub(crate) is_ambiguous_wide: bool,
}

impl Width {
    /// Creates the width of a terminal with so many columns.
    #[allow(
        dead_code,
        reason = "for tests and for the fuzz target, which include this module"
    )]
    pub(crate) const fn of(columns: usize) -> Self {
        Self {
            columns: Some(columns),
            is_ambiguous_wide: false,
        }
    }

    /// Returns the maximum width of a character. A mark counts as one column: a terminal that does not know it draws it
    /// next to its base. A regional indicator counts as two: terminals draw it alone as one or two, and a pair as two to four.
    fn of_char(self, c: char) -> usize {
        if REGIONAL_INDICATORS.contains(&c) {
            return 2;
        }
        let width = if self.is_ambiguous_wide {
            c.width_cjk()
        } else {
            c.width()
        };
        width.unwrap_or(1).max(1)
    }

    /// Returns the maximum width of a text without line ends.
    pub(crate) fn of_text(self, text: &str) -> usize {
        text.chars().map(|c| self.of_char(c)).sum()
    }

    /// The last column stays free: some terminals wrap as soon as it is used.
    pub(crate) fn limit(self) -> usize {
        self.columns
            .map_or(usize::MAX, |columns| columns.max(MIN_COLUMNS) - 1)
    }
}

/// Letters of which flags consist.
const REGIONAL_INDICATORS: std::ops::RangeInclusive<char> = '\u{1f1e6}'..='\u{1f1ff}';

/// Next item to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// Text without line ends.
    Text(&'a str),
    /// A number of blanks.
    Blank(usize),
    /// The gutter.
    Gutter,
    /// End of a physical line.
    End,
}

/// Layout state of one stream.
#[derive(Debug)]
pub(crate) struct Layout {
    /// May change between two texts.
    pub(crate) width: Width,
    /// Indentation of wrapped lines.
    pub(crate) hang: usize,
    column: usize,
    /// True if the line contains only blanks.
    is_blank: bool,
    /// True if the line began with foreign text.
    is_foreign: bool,
    /// True after a finished line of foreign text, until it is known what follows.
    is_ended: bool,
    /// The line goes on with a text that has a line end in it, and is indented like one that was wrapped.
    goes_on: bool,
}

/// Author of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    Toolcell,
    Foreign,
}

impl Layout {
    /// Creates a layout at the start of a line.
    pub(crate) fn new(width: Width) -> Self {
        Self {
            width,
            hang: 2,
            column: 0,
            is_blank: true,
            is_foreign: false,
            is_ended: false,
            goes_on: false,
        }
    }

    /// True if the current line is unfinished.
    pub(crate) fn is_line_open(&self) -> bool {
        self.column > 0 || self.is_ended
    }

    /// Announces foreign text on this line, so that own text wraps to a gutter too.
    pub(crate) fn expect_foreign(&mut self) {
        if !self.is_ended {
            self.is_foreign = true;
        }
    }

    /// Lays out text of Toolcell, without checks.
    pub(crate) fn own(&mut self, text: &str, emit: &mut dyn FnMut(Item<'_>)) {
        self.settle(emit);
        for (i, line) in text.split('\n').enumerate() {
            if i > 0 {
                let goes_on = self.column > 0;
                self.end_line(emit);
                self.goes_on = goes_on;
            }
            if !line.is_empty() {
                self.indent(emit);
            }
            self.words(line, Author::Toolcell, emit);
        }
    }

    /// Lays out foreign text that is [`inert`].
    pub(crate) fn foreign(&mut self, text: &str, emit: &mut dyn FnMut(Item<'_>)) {
        if text.is_empty() {
            return;
        }
        if self.is_ended {
            self.is_ended = false;
            self.wrap(Author::Foreign, emit);
        } else if self.is_blank {
            self.indent(emit);
            emit(Item::Gutter);
            self.column += self.gutter_width();
            self.is_blank = false;
        }
        self.is_foreign = true;
        for (i, line) in text.split('\n').enumerate() {
            if i > 0 {
                if self.is_ended {
                    self.wrap(Author::Foreign, emit);
                }
                self.is_ended = true;
            }
            let line = line.strip_suffix('\r').unwrap_or(line);
            if !line.is_empty() {
                if std::mem::take(&mut self.is_ended) {
                    self.wrap(Author::Foreign, emit);
                }
                self.words(line, Author::Foreign, emit);
            }
        }
    }

    /// Lays out foreign text between backticks, or one word of it, that is [`inert`] and has no line ends: the lines after it
    /// are not foreign.
    pub(crate) fn quoted(&mut self, text: &str, emit: &mut dyn FnMut(Item<'_>)) {
        self.settle(emit);
        let is_foreign = self.is_foreign || self.is_blank;
        self.foreign(text, emit);
        self.is_foreign = is_foreign;
    }

    /// Begins the next line if a word and so many columns do not fit on this one, and fit there.
    pub(crate) fn keep_together(&mut self, word: &str, more: usize, emit: &mut dyn FnMut(Item<'_>)) {
        let width = self.width.of_text(word).saturating_add(more);
        if !self.is_blank && width <= self.room() && self.column.saturating_add(width) > self.width.limit() {
            self.wrap(Author::Toolcell, emit);
        }
    }

    /// Finishes the line, unless foreign text has already finished it.
    pub(crate) fn end_line(&mut self, emit: &mut dyn FnMut(Item<'_>)) {
        emit(Item::End);
        self.restart();
    }

    /// Returns the number of used columns.
    pub(crate) fn column(&self) -> usize {
        self.column
    }

    /// Resets the line after it was erased.
    pub(crate) fn restart(&mut self) {
        self.is_ended = false;
        self.is_foreign = false;
        self.is_blank = true;
        self.goes_on = false;
        self.column = 0;
    }

    /// Begins a line with which a text goes on.
    fn indent(&mut self, emit: &mut dyn FnMut(Item<'_>)) {
        if std::mem::take(&mut self.goes_on) && self.column == 0 {
            self.column = self.indentation();
            if self.column > 0 {
                emit(Item::Blank(self.column));
            }
        }
    }

    fn settle(&mut self, emit: &mut dyn FnMut(Item<'_>)) {
        if self.is_ended {
            self.end_line(emit);
        }
    }

    fn gutter_width(&self) -> usize {
        self.width.of_text(GUTTER)
    }

    /// Returns an indentation that leaves room for text.
    fn indentation(&self) -> usize {
        match self.width.columns {
            None => self.hang,
            Some(columns) => self.hang.min(columns.max(MIN_COLUMNS) / 8),
        }
    }

    fn wrap(&mut self, author: Author, emit: &mut dyn FnMut(Item<'_>)) {
        emit(Item::End);
        let indentation = self.indentation();
        if indentation > 0 {
            emit(Item::Blank(indentation));
        }
        self.column = indentation;
        self.is_blank = true;
        if author == Author::Foreign || self.is_foreign {
            emit(Item::Gutter);
            self.column += self.gutter_width();
            self.is_blank = false;
        }
    }

    /// Returns the number of columns of a wrapped line.
    fn room(&self) -> usize {
        let start = self.indentation() + self.gutter_width();
        self.width.limit().saturating_sub(start).max(1)
    }

    fn words(&mut self, line: &str, author: Author, emit: &mut dyn FnMut(Item<'_>)) {
        for word in line.split_inclusive([' ', '\t']) {
            let (word, blank) = match word.as_bytes().last() {
                Some(b' ') => (&word[..word.len() - 1], Some(' ')),
                Some(b'\t') => (&word[..word.len() - 1], Some('\t')),
                _ => (word, None),
            };
            self.word(word, author, emit);
            match blank {
                // A blank may use the last column: nothing is lost if it is not drawn.
                Some(' ') => {
                    if self.column > self.width.limit() {
                        self.wrap(author, emit);
                    }
                    emit(Item::Blank(1));
                    self.column += 1;
                }
                Some(_) => {
                    let blanks = TAB - self.column % TAB;
                    if self.column.saturating_add(blanks) > self.width.limit() {
                        self.wrap(author, emit);
                    } else {
                        emit(Item::Blank(blanks));
                        self.column += blanks;
                    }
                }
                None => {}
            }
        }
    }

    /// Places text without blanks: on this line if it fits, else on the next, else split where it fits.
    fn word(&mut self, word: &str, author: Author, emit: &mut dyn FnMut(Item<'_>)) {
        let width = self.width.of_text(word);
        let fits = |layout: &Self| layout.column.saturating_add(width) <= layout.width.limit();
        if word.is_empty() || fits(self) {
            return self.put(word, width, emit);
        }
        if width <= self.room() {
            self.wrap(author, emit);
            return self.put(word, width, emit);
        }
        for glyph in word.graphemes(true) {
            self.glyph(glyph, author, emit);
        }
    }

    fn glyph(&mut self, glyph: &str, author: Author, emit: &mut dyn FnMut(Item<'_>)) {
        let width = self.width.of_text(glyph);
        if width <= self.room() && glyph.chars().nth(MAX_GLYPH).is_none() {
            if self.column.saturating_add(width) > self.width.limit() {
                self.wrap(author, emit);
            }
            return self.put(glyph, width, emit);
        }
        // Not a known glyph: characters one by one, with combining characters escaped.
        let mut shown = String::new();
        for c in glyph.chars() {
            if is_mark(c) {
                write_escape(&mut shown, c);
            } else {
                shown.push(c);
            }
        }
        for c in shown.chars() {
            let width = self.width.of_char(c);
            if self.column.saturating_add(width) > self.width.limit() {
                self.wrap(author, emit);
            }
            self.put(c.encode_utf8(&mut [0; 4]), width, emit);
        }
    }

    fn put(&mut self, text: &str, width: usize, emit: &mut dyn FnMut(Item<'_>)) {
        if !text.is_empty() {
            emit(Item::Text(text));
            self.column = self.column.saturating_add(width);
            self.is_blank = false;
        }
    }
}

/// Returns foreign text in physical lines for a terminal of this width. Every line begins with [`GUTTER`].
#[allow(
    dead_code,
    reason = "for tests and for the fuzz target, which include this module"
)]
pub(crate) fn framed(text: &str, width: Width) -> String {
    let mut layout = Layout::new(width);
    layout.hang = 0;
    let mut out = String::new();
    let mut emit = |item: Item<'_>| push(&mut out, item);
    layout.foreign(&inert(text), &mut emit);
    layout.end_line(&mut emit);
    out
}

/// Appends an item as plain text.
#[allow(
    dead_code,
    reason = "for tests and for the fuzz target, which include this module"
)]
pub(crate) fn push(out: &mut String, item: Item<'_>) {
    match item {
        Item::Text(text) => out.push_str(text),
        Item::Blank(count) => out.extend(std::iter::repeat_n(' ', count)),
        Item::Gutter => out.push_str(GUTTER),
        Item::End => out.push('\n'),
    }
}

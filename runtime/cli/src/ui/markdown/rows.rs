//! Rows of a given width, with the indentation of lists and quotes.

use anstyle::Style;
use toolcell_core::inert::is_mark;
use unicode_segmentation::UnicodeSegmentation as _;

use crate::ui::terminal::{FAINT, GUTTER, Width, write_escape};

/// Indentation of code, in columns.
const CODE_INDENT: usize = 2;

/// Text with one style. It is inert, and has no line ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) style: Style,
    pub(crate) text: String,
}

impl Run {
    pub(super) fn new(style: Style, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { style, text }
    }
}

/// A physical line after the gutter.
pub(crate) type Row = Vec<Run>;

/// A block that contains others.
#[derive(Debug)]
enum Container {
    Quote,
    Item {
        marker: String,
        width: usize,
        /// True once a row has the marker.
        is_marked: bool,
    },
}

impl Container {
    fn width(&self) -> usize {
        match self {
            Self::Quote => 2,
            Self::Item { width, .. } => *width,
        }
    }
}

/// Rows under construction.
#[derive(Debug)]
pub(super) struct Rows {
    width: Width,
    /// Number of columns of a row.
    room: usize,
    pub(super) done: Vec<Row>,
    current: Row,
    column: usize,
    is_open: bool,
    /// Open containers that are indented: at most as many as columns.
    containers: Vec<Container>,
    /// Width of their indentation.
    indentation: usize,
    /// For each open container whether it is indented. Those that are too deep are not.
    nesting: Vec<bool>,
    /// Marker of an item that is too deep to be indented.
    marker: String,
}

impl Rows {
    /// Creates rows that fit a terminal of this width, behind the gutter.
    pub(super) fn behind_gutter(width: Width) -> Self {
        Self::of(width, width.limit().saturating_sub(width.of_text(GUTTER)))
    }

    /// Creates rows of so many columns.
    pub(super) fn of(width: Width, room: usize) -> Self {
        Self {
            width,
            room: room.max(1),
            done: Vec::new(),
            current: Vec::new(),
            column: 0,
            is_open: false,
            containers: Vec::new(),
            indentation: 0,
            nesting: Vec::new(),
            marker: String::new(),
        }
    }

    /// Goes on with a row that has so many columns, and is not part of these rows.
    pub(super) fn resume(&mut self, column: usize) {
        self.is_open = true;
        self.column = column;
    }

    /// True if nothing was added.
    pub(super) fn is_unchanged(&self) -> bool {
        self.done.is_empty() && self.current.is_empty()
    }

    /// Returns the column of the row that is not ended.
    pub(super) fn open_column(&self) -> Option<usize> {
        self.is_open.then_some(self.column)
    }

    /// Returns the number of columns that the indentation leaves.
    pub(super) fn free(&self) -> usize {
        self.room.saturating_sub(self.indentation).max(1)
    }

    /// Returns the width of a text.
    pub(super) fn width_of(&self, text: &str) -> usize {
        self.width.of_text(text)
    }

    /// Returns rows of so many columns, for a part of these.
    pub(super) fn part(&self, room: usize) -> Self {
        Self::of(self.width, room)
    }

    /// Begins a quote.
    pub(super) fn begin_quote(&mut self) {
        self.end();
        self.begin(2, |_| Container::Quote);
    }

    /// Begins a container, which is indented if that leaves half of the row.
    fn begin(&mut self, width: usize, container: impl FnOnce(usize) -> Container) -> bool {
        let fits = self.indentation.saturating_add(width) <= self.room / 2;
        if fits {
            self.containers.push(container(width));
            self.indentation += width;
        }
        self.nesting.push(fits);
        fits
    }

    /// Begins an item of a list. The marker of one that is too deep to be indented is part of its first word.
    pub(super) fn begin_item(&mut self, marker: &str, is_skipped: bool) {
        let item = |width| Container::Item {
            marker: marker.to_owned(),
            width,
            is_marked: is_skipped,
        };
        let is_indented = self.begin(self.width.of_text(marker) + 1, item);
        if is_indented {
            self.end();
        }
        if !is_indented && !is_skipped {
            self.marker.push_str(marker);
            self.marker.push(' ');
        }
    }

    /// Ends a quote or an item.
    pub(super) fn end_container(&mut self) {
        if self.nesting.pop() == Some(true) {
            let ended = self.containers.pop();
            self.indentation -= ended.map_or(0, |container| container.width());
        }
    }

    /// Notes that a row, written earlier, has the markers.
    pub(super) fn skip_markers(&mut self) {
        for container in &mut self.containers {
            if let Container::Item { is_marked, .. } = container {
                *is_marked = true;
            }
        }
    }

    /// Begins a row unless one is open.
    pub(super) fn start(&mut self) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        let mut prefix = Vec::new();
        for container in &mut self.containers {
            match container {
                Container::Quote => prefix.push(Run::new(FAINT, "> ")),
                Container::Item {
                    marker,
                    width,
                    is_marked,
                } => {
                    let text = match std::mem::replace(is_marked, true) {
                        false => format!("{marker} "),
                        true => " ".repeat(*width),
                    };
                    prefix.push(Run::new(Style::new(), text));
                }
            }
        }
        self.column = self.indentation;
        for run in prefix {
            self.push(run.style, &run.text);
        }
    }

    /// Ends the row, if one is open.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.done.push(std::mem::take(&mut self.current));
            self.column = 0;
        }
    }

    /// Adds an empty row.
    pub(super) fn blank(&mut self) {
        self.end();
        self.done.push(Row::new());
    }

    /// Adds a word after so many blanks: on this row if it fits, else on the next, else split where it fits.
    pub(super) fn word(&mut self, blanks: usize, runs: &[Run]) {
        let marked;
        let runs = match self.marker.is_empty() {
            true => runs,
            false => {
                let marker = Run::new(Style::new(), std::mem::take(&mut self.marker));
                marked = [&[marker], runs].concat();
                &marked
            }
        };
        let width: usize = runs.iter().map(|run| self.width.of_text(&run.text)).sum();
        if self.is_open && self.column > self.indentation {
            let after = self.column.saturating_add(blanks);
            if after.saturating_add(width) > self.room && (width <= self.free() || after >= self.room) {
                self.end();
            } else {
                self.push(Style::new(), &" ".repeat(blanks));
                self.column = after;
            }
        }
        self.start();
        if self.column.saturating_add(width) <= self.room {
            for run in runs {
                self.push(run.style, &run.text);
            }
            self.column += width;
            return;
        }
        for run in runs {
            self.glyphs(run.style, &run.text, 0);
        }
    }

    /// Adds a line of code or the like, with its blanks; `indent` if it is indented.
    pub(super) fn line(&mut self, style: Style, text: &str, indent: bool) {
        self.end();
        if !self.marker.is_empty() {
            self.word(0, &[]);
            self.end();
        }
        self.start();
        let indentation = if indent && self.free() > 4 * CODE_INDENT {
            CODE_INDENT
        } else {
            0
        };
        self.push(Style::new(), &" ".repeat(indentation));
        self.column += indentation;
        self.glyphs(style, text, indentation);
        self.end();
    }

    /// Adds a row of parts that are known to fit.
    pub(super) fn fitting(&mut self, row: &[Run]) {
        self.end();
        self.start();
        for run in row {
            self.push(run.style, &run.text);
        }
        self.end();
    }

    /// Adds glyphs, and begins a row before one that does not fit.
    fn glyphs(&mut self, style: Style, text: &str, indentation: usize) {
        for glyph in text.graphemes(true) {
            let width = self.width.of_text(glyph);
            if width <= self.free().saturating_sub(indentation) {
                self.glyph(style, glyph, width, indentation);
                continue;
            }
            // Not a glyph that the terminal must know: its characters one by one, combining ones escaped.
            let mut shown = String::new();
            for c in glyph.chars() {
                if is_mark(c) {
                    write_escape(&mut shown, c);
                } else {
                    shown.push(c);
                }
            }
            for c in shown.chars() {
                let one = c.encode_utf8(&mut [0; 4]).to_owned();
                self.glyph(style, &one, self.width.of_text(&one), indentation);
            }
        }
    }

    fn glyph(&mut self, style: Style, glyph: &str, width: usize, indentation: usize) {
        if self.column.saturating_add(width) > self.room {
            self.end();
            self.start();
            self.push(Style::new(), &" ".repeat(indentation));
            self.column += indentation;
        }
        self.push(style, glyph);
        self.column += width;
    }

    fn push(&mut self, style: Style, text: &str) {
        match self.current.last_mut() {
            Some(last) if last.style == style => last.text.push_str(text),
            _ if text.is_empty() => {}
            _ => self.current.push(Run::new(style, text)),
        }
    }
}

//! Tables: columns if they fit, otherwise each row as a list of its cells.

use std::ops::Range;

use anstyle::Style;
use pulldown_cmark::Alignment;

use super::block::Builder;
use super::element::Gap;
use super::rows::{Row, Rows, Run};
use crate::ui::terminal::{FAINT, STRONG};

/// Text between two columns.
const BETWEEN: &str = " | ";

/// Minimum width of a column that is narrower than its text, in columns of the terminal.
const MIN_COLUMN: usize = 6;

/// Maximum number of cells of a table that is shown with columns: each takes its room also if it is empty.
const MAX_CELLS: usize = 20_000;

/// Maximum size of the header in all rows together, in bytes, when each row is a list.
const MAX_TITLES: usize = 64 << 10;

/// A word with the number of blanks before it.
pub(super) type Word = (usize, Vec<Run>);

/// Cells of a table; the first row is the header.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) alignments: Vec<Alignment>,
    pub(super) rows: Vec<Vec<Vec<Word>>>,
}

impl Table {
    /// Begins a row.
    pub(super) fn row(&mut self) {
        self.rows.push(Vec::new());
    }

    /// Begins a cell.
    pub(super) fn cell(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.push(Vec::new());
        }
    }

    /// Adds a word to the last cell.
    pub(super) fn word(&mut self, word: Word) {
        if let Some(cell) = self.rows.last_mut().and_then(|row| row.last_mut()) {
            cell.push(word);
        }
    }

    /// Adds the table.
    pub(super) fn write(&self, rows: &mut Rows) {
        let cells = self.rows.iter().map(Vec::len).sum::<usize>();
        match self.columns(rows) {
            Some(columns) if cells <= MAX_CELLS => self.write_columns(&columns, rows),
            None if self.titles() <= MAX_TITLES => self.write_list(rows),
            _ => self.write_plain(rows),
        }
    }

    /// Size of the header in all rows together.
    fn titles(&self) -> usize {
        let header = self.rows.first().into_iter().flatten().flatten();
        let size: usize = header.flat_map(|(_, runs)| runs).map(|run| run.text.len()).sum();
        size.saturating_mul(self.rows.len())
    }

    /// Adds each row as its cells, one after another.
    fn write_plain(&self, rows: &mut Rows) {
        for row in &self.rows {
            rows.end();
            let filled = row
                .iter()
                .rposition(|cell| !cell.is_empty())
                .map_or(0, |last| last + 1);
            for (column, cell) in row[..filled].iter().enumerate() {
                if column > 0 {
                    rows.word(1, &[Run::new(FAINT, BETWEEN.trim())]);
                }
                for (index, (blanks, runs)) in cell.iter().enumerate() {
                    rows.word(if index == 0 { 1 } else { *blanks }, runs);
                }
            }
            rows.end();
        }
    }

    /// Returns the widths of the columns, or `None` if there is no room for them.
    fn columns(&self, rows: &Rows) -> Option<Vec<usize>> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let between = rows.width_of(BETWEEN).checked_mul(count.checked_sub(1)?)?;
        let mut free = rows.free().checked_sub(between)?;
        let mut natural = vec![1; count];
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                natural[column] = natural[column].max(width_of(cell, rows));
            }
        }
        // Narrow columns get their width, and the others share the rest.
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|column| natural[*column]);
        let mut columns = vec![0; count];
        for (done, column) in order.into_iter().enumerate() {
            let share = free / (count - done);
            let taken = natural[column].min(share);
            if taken < natural[column].min(MIN_COLUMN) {
                return None;
            }
            columns[column] = taken;
            free -= taken;
        }
        Some(columns)
    }

    fn write_columns(&self, columns: &[usize], rows: &mut Rows) {
        for (number, row) in self.rows.iter().enumerate() {
            let cells: Vec<Vec<Row>> = columns
                .iter()
                .enumerate()
                .map(|(column, width)| {
                    let cell = row.get(column).map_or(&[][..], Vec::as_slice);
                    wrapped(cell, rows.part(*width), number == 0)
                })
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
            for line in 0..height {
                let mut physical = Row::new();
                for (column, width) in columns.iter().enumerate() {
                    if column > 0 {
                        physical.push(Run::new(FAINT, BETWEEN));
                    }
                    let part = cells[column].get(line).cloned().unwrap_or_default();
                    let taken: usize = part.iter().map(|run| rows.width_of(&run.text)).sum();
                    let blanks = width.saturating_sub(taken);
                    let before = match self.alignments.get(column) {
                        Some(Alignment::Right) => blanks,
                        Some(Alignment::Center) => blanks / 2,
                        _ => 0,
                    };
                    physical.push(Run::new(Style::new(), " ".repeat(before)));
                    physical.extend(part);
                    physical.push(Run::new(Style::new(), " ".repeat(blanks - before)));
                }
                rows.fitting(&physical);
            }
            if number == 0 {
                let lines: Vec<String> = columns.iter().map(|width| "-".repeat(*width)).collect();
                rows.fitting(&[Run::new(FAINT, lines.join("-+-"))]);
            }
        }
    }

    /// Adds each row as lines of `HEADER: CELL`.
    fn write_list(&self, rows: &mut Rows) {
        let header = self.rows.first();
        let bodies = if self.rows.len() > 1 {
            &self.rows[1..]
        } else {
            &self.rows[..]
        };
        for (number, row) in bodies.iter().enumerate() {
            if number > 0 {
                rows.blank();
            }
            for (column, cell) in row.iter().enumerate() {
                rows.end();
                let title = header
                    .filter(|_| self.rows.len() > 1)
                    .and_then(|header| header.get(column));
                for (blanks, runs) in title.into_iter().flatten() {
                    rows.word(*blanks, &strong(runs));
                }
                if title.is_some_and(|title| !title.is_empty()) {
                    rows.word(0, &[Run::new(STRONG, ":")]);
                }
                for (index, (blanks, runs)) in cell.iter().enumerate() {
                    rows.word(if index == 0 { 1 } else { *blanks }, runs);
                }
            }
            rows.end();
        }
    }
}

impl Builder<'_> {
    /// Ends a row of a table. The parser leaves out cells beyond those of the header.
    pub(super) fn end_row(&mut self, range: &Range<usize>) {
        self.flush();
        let rest = self.source.get(self.cell_end..range.end).unwrap_or_default();
        if rest.contains(char::is_alphanumeric) {
            self.gap = Gap::Blanks(0);
            if let Some(table) = &mut self.table {
                table.cell();
            }
            let rest = rest.trim_start_matches(['|', ' ', '\t']).to_owned();
            self.text(&rest, &(range.end..range.end));
            self.flush();
        }
    }
}

fn width_of(cell: &[Word], rows: &Rows) -> usize {
    let widths = cell.iter().enumerate().map(|(index, (blanks, runs))| {
        let text: usize = runs.iter().map(|run| rows.width_of(&run.text)).sum();
        text + if index == 0 { 0 } else { *blanks }
    });
    widths.sum()
}

fn wrapped(cell: &[Word], mut rows: Rows, is_header: bool) -> Vec<Row> {
    for (blanks, runs) in cell {
        if is_header {
            rows.word(*blanks, &strong(runs));
        } else {
            rows.word(*blanks, runs);
        }
    }
    rows.end();
    rows.done
}

fn strong(runs: &[Run]) -> Vec<Run> {
    let strong = |run: &Run| Run::new(run.style | STRONG.get_effects(), run.text.clone());
    runs.iter().map(strong).collect()
}

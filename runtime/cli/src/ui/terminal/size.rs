//! Size of the terminal.

use crate::environment::Environment;

use super::foreign::layout::Width;

/// Default number of columns (VT100).
const COLUMNS: usize = 80;

/// Default number of rows (VT100).
const ROWS: usize = 24;

/// Size of the terminal of one stream. It is read on each use, because a window can be resized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    stream: Stream,
    /// Values of `COLUMNS` and `LINES`, for a terminal without a size.
    columns: usize,
    rows: usize,
    is_ambiguous_wide: bool,
}

#[derive(Debug, Clone, Copy)]
enum Stream {
    Output,
    Error,
    /// Not a terminal.
    Nothing,
    /// A terminal of fixed size.
    Fixed,
}

impl Size {
    /// Creates the size of a stream without a terminal: lines do not wrap.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        stream: Stream::Nothing,
        columns: COLUMNS,
        rows: ROWS,
        is_ambiguous_wide: false,
    };

    /// Creates the size of a terminal with so many columns.
    #[cfg(test)]
    pub(crate) const fn fixed(columns: usize) -> Self {
        Self::NONE.fixed_to(columns)
    }

    /// Returns this size with a fixed number of columns.
    pub(crate) const fn fixed_to(self, columns: usize) -> Self {
        Self {
            stream: Stream::Fixed,
            columns,
            ..self
        }
    }

    /// Returns the size of standard output.
    pub(crate) fn of_output(environment: &Environment) -> Self {
        Self::new(environment, Stream::Output, environment.terminals.stdout)
    }

    /// Returns the size of standard error.
    pub(crate) fn of_error(environment: &Environment) -> Self {
        Self::new(environment, Stream::Error, environment.terminals.stderr)
    }

    fn new(environment: &Environment, stream: Stream, is_terminal: bool) -> Self {
        let number = |name: &str| environment.var(name).and_then(|value| value.parse().ok());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(|name| environment.var(name))
            .unwrap_or_default();
        Self {
            stream: if is_terminal { stream } else { Stream::Nothing },
            columns: number("COLUMNS").filter(|n| *n > 0).unwrap_or(COLUMNS),
            rows: number("LINES").filter(|n| *n > 0).unwrap_or(ROWS),
            is_ambiguous_wide: ["zh", "ja", "ko"]
                .iter()
                .any(|language| locale.starts_with(language)),
        }
    }

    /// Returns the current columns and rows; `None` without a terminal.
    pub(crate) fn now(self) -> Option<(usize, usize)> {
        let reported = match self.stream {
            Stream::Nothing => return None,
            Stream::Fixed => return Some((self.columns, self.rows)),
            Stream::Output => rustix::termios::tcgetwinsize(std::io::stdout()),
            Stream::Error => rustix::termios::tcgetwinsize(std::io::stderr()),
        };
        let (columns, rows) = reported.map_or((0, 0), |size| {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        });
        Some((
            if columns == 0 { self.columns } else { columns },
            if rows == 0 { self.rows } else { rows },
        ))
    }

    /// Returns the current width.
    pub(crate) fn width(self) -> Width {
        Width {
            columns: self.now().map(|(columns, _)| columns),
            is_ambiguous_wide: self.is_ambiguous_wide,
        }
    }
}

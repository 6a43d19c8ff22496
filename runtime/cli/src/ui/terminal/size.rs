//! How wide and high the terminal is.

use crate::environment::Environment;

use super::foreign::layout::Width;

/// Where nothing says otherwise (VT100).
const COLUMNS: usize = 80;

/// See [`COLUMNS`].
const ROWS: usize = 24;

/// The size of the terminal behind one stream. It is read anew each time: a window can be resized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    stream: Stream,
    /// What `COLUMNS` and `LINES` say, for a terminal that does not say it.
    columns: usize,
    rows: usize,
    is_ambiguous_wide: bool,
}

#[derive(Debug, Clone, Copy)]
enum Stream {
    Output,
    Error,
    /// No terminal.
    Nothing,
    /// One that does not change.
    Fixed,
}

impl Size {
    /// No terminal: lines are as long as they are.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        stream: Stream::Nothing,
        columns: COLUMNS,
        rows: ROWS,
        is_ambiguous_wide: false,
    };

    /// A terminal of so many columns.
    #[cfg(test)]
    pub(crate) const fn fixed(columns: usize) -> Self {
        Self::NONE.fixed_to(columns)
    }

    /// The same with so many columns, whatever becomes of the terminal.
    pub(crate) const fn fixed_to(self, columns: usize) -> Self {
        Self {
            stream: Stream::Fixed,
            columns,
            ..self
        }
    }

    /// That of standard output, if it is a terminal.
    pub(crate) fn of_output(environment: &Environment) -> Self {
        Self::new(environment, Stream::Output, environment.terminals.stdout)
    }

    /// That of standard error, if it is a terminal.
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

    /// Columns and rows at this moment; `None` without a terminal.
    pub(crate) fn now(self) -> Option<(usize, usize)> {
        let told = match self.stream {
            Stream::Nothing => return None,
            Stream::Fixed => return Some((self.columns, self.rows)),
            #[cfg(unix)]
            Stream::Output => rustix::termios::tcgetwinsize(std::io::stdout()),
            #[cfg(unix)]
            Stream::Error => rustix::termios::tcgetwinsize(std::io::stderr()),
            #[cfg(not(unix))]
            _ => return Some((self.columns, self.rows)),
        };
        #[cfg(unix)]
        let (columns, rows) = told.map_or((0, 0), |size| {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        });
        Some((
            if columns == 0 { self.columns } else { columns },
            if rows == 0 { self.rows } else { rows },
        ))
    }

    /// The width at this moment.
    pub(crate) fn width(self) -> Width {
        Width {
            columns: self.now().map(|(columns, _)| columns),
            is_ambiguous_wide: self.is_ambiguous_wide,
        }
    }
}

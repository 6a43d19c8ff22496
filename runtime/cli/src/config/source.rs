//! Where a value of the configuration comes from, and how to point at it.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// How the names of components begin that a project's file brings. No other name has a colon.
pub(crate) const PROJECT: &str = "project:";

/// One layer of the configuration. Later ones win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    /// The person's own file.
    User,
    /// The file of the project in which the person works. It may come from anybody.
    Project,
}

/// A configuration file and its text.
#[derive(Debug)]
pub(crate) struct Source {
    /// Which layer it is.
    pub(crate) layer: Layer,
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// The path as a person reads it.
    pub(crate) shown: String,
    /// Its text.
    pub(crate) text: String,
    /// Where its lines begin, once somebody asked.
    pub(crate) line_starts: OnceLock<Vec<usize>>,
}

/// Where a value comes from.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// Built in.
    Default,
    /// A place in a file: bytes of its text.
    File(Arc<Source>, Range<usize>),
    /// An environment variable.
    Variable(&'static str),
    /// A flag of the command line.
    Flag(&'static str),
}

/// A value and where it comes from.
#[derive(Debug, Clone)]
pub(crate) struct Sourced<T> {
    /// The value.
    pub(crate) value: T,
    /// Where it comes from.
    pub(crate) origin: Origin,
}

impl Source {
    /// Line and column of a byte, both from 1. Columns count characters.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let at = self.text.floor_char_boundary(at);
        // The lines are counted once: a file may be pointed into for each of its lines.
        let starts = self.line_starts.get_or_init(|| {
            let newlines = self.text.match_indices('\n').map(|(newline, _)| newline + 1);
            std::iter::once(0).chain(newlines).collect()
        });
        let line = starts.partition_point(|start| *start <= at);
        let start = starts.get(line - 1).copied().unwrap_or(0);
        (line, self.text[start..at].chars().count() + 1)
    }

    /// Where `span` is, with its line and a mark below it.
    ///
    /// ```text
    /// in toolcell.toml, line 3, column 1
    ///   3 | grnts = ["read=."]
    ///     | ^^^^^
    /// ```
    pub(crate) fn point_at(&self, span: &Range<usize>) -> String {
        let (line, column) = self.position(span.start);
        let text = self.text.lines().nth(line - 1).unwrap_or_default();
        // Tabs become single spaces, so that the mark stands where it should.
        let text: String = text.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
        let marked = self.text.get(span.clone()).unwrap_or_default();
        let width = marked.lines().next().unwrap_or_default().chars().count();
        let number = line.to_string();
        let gutter = " ".repeat(number.len());
        format!(
            "in {}, line {line}, column {column}\n  {number} | {text}\n  {gutter} | {}{}",
            self.shown,
            " ".repeat(column - 1),
            "^".repeat(width.clamp(1, 80)),
        )
    }
}

impl Origin {
    /// The place in a file with its line and a mark, or the name of the origin.
    pub(crate) fn point_at(&self) -> String {
        match self {
            Self::File(source, span) => source.point_at(span),
            other => format!("from {other}"),
        }
    }

    /// Whether a file decided it, and which layer.
    pub(crate) fn layer(&self) -> Option<Layer> {
        match self {
            Self::File(source, _) => Some(source.layer),
            _ => None,
        }
    }
}

impl<T> Sourced<T> {
    /// A value that is built in.
    pub(crate) fn default(value: T) -> Self {
        Self {
            value,
            origin: Origin::Default,
        }
    }

    /// A value of a flag.
    pub(crate) fn flag(flag: &'static str, value: T) -> Self {
        Self {
            value,
            origin: Origin::Flag(flag),
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Project => "project",
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(source, span) => write!(f, "{}:{}", source.shown, source.position(span.start).0),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            layer: Layer::User,
            path: PathBuf::from("/c.toml"),
            shown: "c.toml".into(),
            text: text.into(),
            line_starts: OnceLock::new(),
        }
    }

    #[test]
    fn a_place_is_shown_with_its_line_and_a_mark() {
        let source = source("a = 1\n\té = \"x\"\n");
        let at = source.text.find("\"x\"").unwrap();
        assert_eq!(
            source.point_at(&(at..at + 3)),
            "in c.toml, line 2, column 6\n  2 |  é = \"x\"\n    |      ^^^"
        );
    }

    #[test]
    fn lines_and_columns_are_counted_from_one() {
        let source = source("a\né\n\nxyz");
        for (at, expected) in [
            (0, (1, 1)),
            (1, (1, 2)),
            (2, (2, 1)),
            (3, (2, 1)),
            (4, (2, 2)),
            (5, (3, 1)),
            (6, (4, 1)),
            (8, (4, 3)),
            (9, (4, 4)),
        ] {
            assert_eq!(source.position(at), expected, "{at}");
        }
    }

    #[test]
    fn a_place_at_the_end_of_the_text_is_no_panic() {
        let source = source("a = ");
        for at in 0..10 {
            assert!(source.point_at(&(at.min(4)..at)).contains("line 1"));
        }
    }
}

//! Origins of configuration values, and error locations in files.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::ui::terminal::{Own, Shown, Text, TextValue, text};

/// Prefix of the names of project components. No other name contains a colon.
pub(crate) const PROJECT: &str = "project:";

/// One layer of the configuration. Later ones win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    /// The user's own file.
    User,
    /// The file of the current project, which is untrusted.
    Project,
}

/// A configuration file and its text.
#[derive(Debug)]
pub(crate) struct Source {
    /// Layer of the file.
    pub(crate) layer: Layer,
    /// Path of the file.
    pub(crate) path: PathBuf,
    /// Path for display.
    pub(crate) shown: String,
    /// Contents of the file.
    pub(crate) text: String,
    /// Byte offsets of its lines, computed on first use.
    pub(crate) line_starts: OnceLock<Vec<usize>>,
}

/// Origin of a value.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// Built-in default.
    Default,
    /// Preset of the loop.
    Preset(&'static str),
    /// Location in a file: a byte range of its text.
    File(Arc<Source>, Range<usize>),
    /// An environment variable.
    Variable(&'static str),
    /// A command-line flag.
    Flag(&'static str),
}

/// A value with its origin.
#[derive(Debug, Clone)]
pub(crate) struct Sourced<T> {
    /// The value.
    pub(crate) value: T,
    /// The origin of the value.
    pub(crate) origin: Origin,
}

/// An effective setting, as `config show` lists it.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// Key in the configuration.
    pub(crate) key: String,
    /// Its value as text; `None` means that it is unset and has no default, or unlimited.
    pub(crate) value: Option<String>,
    /// Origin of the value.
    pub(crate) origin: Origin,
}

impl Row {
    /// Creates a row with a value.
    pub(crate) fn new(key: impl Into<String>, value: impl ToString, origin: &Origin) -> Self {
        Self {
            key: key.into(),
            value: Some(without_user(value.to_string())),
            origin: origin.clone(),
        }
    }
}

/// Leaves out the user and the password of a URL.
fn without_user(value: String) -> String {
    let Some((scheme, rest)) = value.split_once("://") else {
        return value;
    };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    match authority.rfind('@') {
        Some(at) => format!("{scheme}://…{}", &rest[at..]),
        None => value,
    }
}

impl Source {
    /// Returns line and column of a byte offset, both starting at 1. Columns count characters.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let at = self.text.floor_char_boundary(at);
        let line = self.line_starts().partition_point(|start| *start <= at);
        (line, self.text[self.line_start(line)..at].chars().count() + 1)
    }

    /// Returns the byte offsets of all lines, computed once: a file can be pointed into for each of its lines.
    fn line_starts(&self) -> &[usize] {
        self.line_starts.get_or_init(|| {
            let newlines = self.text.match_indices('\n').map(|(newline, _)| newline + 1);
            std::iter::once(0).chain(newlines).collect()
        })
    }

    /// Returns the byte offset of a line, the first of which is 1.
    fn line_start(&self, line: usize) -> usize {
        self.line_starts().get(line - 1).copied().unwrap_or(0)
    }

    /// Formats the location of `span`, with its line and a marker below it.
    ///
    /// ```text
    /// in toolcell.toml, line 3, column 1
    ///   3 | grnts = ["read=."]
    ///     | ^^^^^
    /// ```
    pub(crate) fn point_at(&self, span: &Range<usize>) -> Text {
        let (line, column) = self.position(span.start);
        let start = self.line_start(line);
        let text = self.text[start..].lines().next().unwrap_or_default();
        // Tabs are replaced by single spaces to keep the marker aligned.
        let text: String = text.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
        let marked = self.text.get(span.clone()).unwrap_or_default();
        let width = marked.lines().next().unwrap_or_default().chars().count();
        let number = line.to_string();
        let gutter = " ".repeat(number.len());
        let marked = format!(
            "  {number} | {text}\n  {gutter} | {}{}",
            " ".repeat(column - 1),
            "^".repeat(width.clamp(1, 80)),
        );
        text!(
            "in {}, line {}, column {}\n{}",
            Shown(&self.shown),
            line,
            column,
            marked
        )
    }
}

impl Origin {
    /// Formats the location in a file with its line and a marker, or the name of the origin.
    pub(crate) fn point_at(&self) -> Text {
        match self {
            Self::File(source, span) => source.point_at(span),
            other => text!("from {}", other),
        }
    }

    /// Returns the layer if the origin is a file.
    pub(crate) fn layer(&self) -> Option<Layer> {
        match self {
            Self::File(source, _) => Some(source.layer),
            _ => None,
        }
    }
}

impl<T> Sourced<T> {
    /// Creates a value with the default origin.
    pub(crate) fn default(value: T) -> Self {
        Self {
            value,
            origin: Origin::Default,
        }
    }

    /// Creates a value from a flag.
    pub(crate) fn flag(flag: &'static str, value: T) -> Self {
        Self {
            value,
            origin: Origin::Flag(flag),
        }
    }
}

impl TextValue for Origin {
    fn append_to(&self, text: &mut Text) {
        match self {
            Self::Default => Own("default").append_to(text),
            Self::Preset(name) => text!("preset {}", Own(name)).append_to(text),
            Self::File(source, span) => {
                text!("{}:{}", Shown(&source.shown), source.position(span.start).0).append_to(text);
            }
            Self::Variable(name) => text!("${}", Own(name)).append_to(text),
            Self::Flag(flag) => Own(flag).append_to(text),
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
            Self::Preset(name) => write!(f, "preset {name}"),
            Self::File(source, span) => write!(f, "{}:{}", source.shown, source.position(span.start).0),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_shows_no_password() {
        for (value, shown) in [
            ("http://u:p@host/v1", "http://…@host/v1"),
            ("http://u:p@w@host", "http://…@host"),
            ("https://host/@user?a@b", "https://host/@user?a@b"),
            ("https://host#u@v", "https://host#u@v"),
            ("a@b", "a@b"),
        ] {
            let row = Row::new("k", value, &Origin::Default);
            assert_eq!(row.value.as_deref(), Some(shown));
        }
    }

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
    fn location_is_shown_with_line_and_marker() {
        let source = source("a = 1\n\té = \"x\"\n");
        let at = source.text.find("\"x\"").unwrap();
        assert_eq!(
            source.point_at(&(at..at + 3)).plain(),
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
    fn location_at_end_of_text_does_not_panic() {
        let source = source("a = ");
        for at in 0..10 {
            assert!(source.point_at(&(at.min(4)..at)).plain().contains("line 1"));
        }
    }

    #[test]
    fn origin_is_shown_and_has_the_layer_of_its_file() {
        let file = |layer| {
            let source = Source {
                layer,
                ..source("a = 1\nb = 2\n")
            };
            Origin::File(Arc::new(source), 6..7)
        };
        for (origin, layer, shown, pointed) in [
            (
                file(Layer::User),
                Some(Layer::User),
                "c.toml:2",
                "in c.toml, line 2",
            ),
            (
                file(Layer::Project),
                Some(Layer::Project),
                "c.toml:2",
                "in c.toml, line 2",
            ),
            (Origin::Default, None, "default", "from default"),
            (Origin::Preset("task"), None, "preset task", "from preset task"),
            (Origin::Variable("X"), None, "$X", "from $X"),
            (Origin::Flag("--x"), None, "--x", "from --x"),
        ] {
            assert_eq!(origin.layer(), layer);
            assert_eq!(origin.to_string(), shown);
            let place = origin.point_at().plain();
            assert!(place.starts_with(pointed), "{place}");
        }
    }
}

//! Messages: our own text with foreign values.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use super::foreign::escape::inert;
use super::foreign::layout::GUTTER;
use super::foreign::names;

/// Maximum length of a quotation between backticks, in characters; longer ones lose their middle.
const MAX_QUOTED: usize = 400;

/// A message to the user.
///
/// It consists of string literals of the program ([`text!`](text), `&'static str`) and foreign values, which are kept
/// apart: a value between backticks is shown on one line, bounded, and without backticks of its own; any other may have
/// several lines, each of which a [`Screen`](super::Screen) shows behind a gutter. A `String` is foreign as a whole.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Text(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Own(Cow<'static, str>),
    /// Value between backticks.
    Quoted(String),
    /// Value between backticks of which nothing is ever omitted.
    Whole(String),
    /// Any other foreign text.
    Foreign(String),
}

/// Part of a message, by author.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// Text of Toolcell.
    Own(&'a str),
    /// Foreign text between backticks, or one word of it: inert, and on one line.
    Quoted(String),
    /// Foreign text, inert.
    Foreign(String),
}

/// Text of Toolcell as a value in [`text!`](text).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own(pub(crate) &'static str);

/// Name, such as that of a tool. ASCII letters, digits, `_`, `-` and `.` are shown unquoted, anything else between
/// backticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a>(pub(crate) &'a str);

/// Name of a model: [`Name`]s with `/`, `:` or `@` in between, such as `meta/llama3:8b`. Anything else is shown between
/// backticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelName<'a>(pub(crate) &'a str);

/// Key of the configuration: a [`Name`], or one with an index such as `deny[0]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'a>(pub(crate) &'a str);

/// Name or path on one line, bounded. Visible ASCII characters are shown unquoted, anything else between backticks, so
/// that a name with blanks is not read as our text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a>(pub(crate) &'a str);

/// URL in canonical form, as [`Shown`], except that its scheme and host are never shortened: a long host must not hide
/// the domain at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownUrl<'a>(pub(crate) &'a str);

/// Maximum size of a scheme, host and port that are not shortened, in bytes: `https://`, a DNS name (RFC 1035, section
/// 2.3.4), `:` and five digits. A URL for HTTP has no longer one.
const MAX_ORIGIN: usize = 8 + 253 + 6;

/// Value that can be used in [`text!`](text).
pub(crate) trait TextValue {
    /// Appends the value.
    fn append_to(&self, text: &mut Text);
}

impl Text {
    /// Fills the placeholders (`{}`) of a literal. [`text!`](text) checks the number of values.
    pub(crate) fn filled(literal: &'static str, values: &[&dyn TextValue]) -> Self {
        let mut text = Self::default();
        let mut values = values.iter();
        for (i, own) in literal.split("{}").enumerate() {
            if i > 0
                && let Some(value) = values.next()
            {
                value.append_to(&mut text);
            }
            text.push(Piece::Own(Cow::Borrowed(own)));
        }
        text
    }

    /// Creates foreign text.
    pub(crate) fn foreign(text: impl Into<String>) -> Self {
        Self(vec![Piece::Foreign(text.into())])
    }

    /// Joins messages with our own text in between.
    pub(crate) fn join(texts: impl IntoIterator<Item = Text>, between: &'static str) -> Self {
        let mut all = Self::default();
        for (i, text) in texts.into_iter().enumerate() {
            if i > 0 {
                all.push(Piece::Own(Cow::Borrowed(between)));
            }
            all.0.extend(text.0);
        }
        all
    }

    /// Appends foreign text, as a quotation if it stands between backticks.
    pub(super) fn push_foreign(&mut self, words: String) {
        let ticks = self.0.iter().map(|piece| match piece {
            Piece::Own(own) => own.matches('`').count(),
            _ => 0,
        });
        let is_quoted = ticks.sum::<usize>() % 2 == 1;
        self.push(if is_quoted {
            Piece::Quoted(words)
        } else {
            Piece::Foreign(words)
        });
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.0
    }

    pub(super) fn pieces_mut(&mut self) -> &mut Vec<Piece> {
        &mut self.0
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn push(&mut self, piece: Piece) {
        if !matches!(&piece, Piece::Own(own) if own.is_empty()) {
            self.0.push(piece);
        }
    }

    /// Returns the unescaped text without gutters, for programs.
    pub(crate) fn plain(&self) -> String {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Own(own) if own == GUTTER => "",
                Piece::Own(own) => own.as_ref(),
                Piece::Quoted(text) | Piece::Whole(text) | Piece::Foreign(text) => text,
            })
            .collect()
    }

    /// Returns the message as a screen shows it, for use in a longer one.
    pub(crate) fn inert(&self) -> String {
        self.parts()
            .map(|part| match part {
                Part::Own(own) => Cow::Borrowed(own),
                Part::Quoted(foreign) | Part::Foreign(foreign) => Cow::Owned(foreign),
            })
            .collect()
    }

    /// Returns the message with at most `most` characters of each foreign part; longer ones lose their middle.
    pub(crate) fn excerpt(&self, most: usize) -> Self {
        let mut text = Self::default();
        for piece in &self.0 {
            let Piece::Foreign(foreign) = piece else {
                text.push(piece.clone());
                continue;
            };
            let length = foreign.chars().count();
            if length <= most {
                text.push(piece.clone());
                continue;
            }
            let (head, tail) = (most * 2 / 3, most / 3);
            let start: String = foreign.chars().take(head).collect();
            let end: String = foreign.chars().skip(length - tail).collect();
            text.push(Piece::Foreign(start));
            let left_out = format!("\n[{} characters omitted]\n", length - head - tail);
            text.push(Piece::Own(Cow::Owned(left_out)));
            text.push(Piece::Foreign(end));
        }
        text
    }

    /// Returns the message with about `most` characters of foreign text in each place, on one line.
    pub(crate) fn shortened(&self, most: usize) -> Self {
        let short = |text: &String| {
            let is_long = text.chars().nth(most).is_some();
            is_long.then(|| names::quoted(text, most))
        };
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Quoted(text) => short(text).map(Piece::Quoted),
            Piece::Foreign(text) => short(text).map(Piece::Foreign),
            Piece::Own(_) | Piece::Whole(_) => None,
        });
        Self(
            pieces
                .zip(&self.0)
                .map(|(short, piece)| short.unwrap_or_else(|| piece.clone()))
                .collect(),
        )
    }

    /// Creates the words of others, such as a server, a model or a tool, behind the gutter: in a place where words of Toolcell
    /// stand as well, they must not pass for those.
    pub(crate) fn of_others(words: impl Into<String>) -> Self {
        let mut text = Self::from(GUTTER);
        text.push(Piece::Foreign(words.into()));
        text
    }

    /// True if the message does not begin with our own words.
    pub(crate) fn begins_foreign(&self) -> bool {
        matches!(
            self.0.first(),
            Some(Piece::Foreign(_) | Piece::Quoted(_) | Piece::Whole(_))
        )
    }

    /// Returns the parts in order, as a screen shows them.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.0.iter().map(|piece| match piece {
            Piece::Own(own) => Part::Own(own),
            Piece::Quoted(text) => Part::Quoted(names::quoted(text, MAX_QUOTED)),
            Piece::Whole(text) => Part::Quoted(names::quoted(text, usize::MAX)),
            Piece::Foreign(text) => Part::Foreign(inert(text)),
        })
    }
}

impl From<&'static str> for Text {
    fn from(own: &'static str) -> Self {
        Self(vec![Piece::Own(Cow::Borrowed(own))])
    }
}

/// A string built at run time can contain foreign text.
impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::foreign(text)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.plain(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain())
    }
}

impl TextValue for Own {
    fn append_to(&self, text: &mut Text) {
        text.push(Piece::Own(Cow::Borrowed(self.0)));
    }
}

impl TextValue for Name<'_> {
    fn append_to(&self, text: &mut Text) {
        // The name of a project's component includes its origin.
        let name = self.0.strip_prefix("project:").unwrap_or(self.0);
        if names::is_plain(name) {
            text.push(Piece::Own(Cow::Owned(self.0.to_owned())));
            return;
        }
        // A literal may have the backticks already.
        let is_quoted = matches!(text.0.last(), Some(Piece::Own(own)) if own.ends_with('`'));
        let tick = if is_quoted { "" } else { "`" };
        Own(tick).append_to(text);
        text.push(Piece::Quoted(self.0.to_owned()));
        Own(tick).append_to(text);
    }
}

impl TextValue for ModelName<'_> {
    fn append_to(&self, text: &mut Text) {
        match self.0.split(['/', ':', '@']).all(names::is_plain) {
            true => text.push(Piece::Own(Cow::Owned(self.0.to_owned()))),
            false => Name(self.0).append_to(text),
        }
    }
}

impl TextValue for Key<'_> {
    fn append_to(&self, text: &mut Text) {
        let (name, index) = match self.0.split_once('[') {
            Some((name, index)) => (name, Some(index)),
            None => (self.0, None),
        };
        let is_index = |index: &str| {
            let number = index.strip_suffix(']');
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        };
        text.push(if names::is_plain(name) && index.is_none_or(is_index) {
            Piece::Own(Cow::Owned(self.0.to_owned()))
        } else {
            Piece::Quoted(self.0.to_owned())
        });
    }
}

impl TextValue for Shown<'_> {
    fn append_to(&self, text: &mut Text) {
        Own(tick(self.0)).append_to(text);
        text.push(Piece::Quoted(self.0.to_owned()));
        Own(tick(self.0)).append_to(text);
    }
}

impl TextValue for ShownUrl<'_> {
    fn append_to(&self, text: &mut Text) {
        let url = self.0;
        let host = url.find("://").map_or(0, |at| at + 3);
        let end = url[host..]
            .find(['/', '?', '#'])
            .map_or(url.len(), |at| host + at);
        if end > MAX_ORIGIN {
            return Shown(url).append_to(text);
        }
        Own(tick(url)).append_to(text);
        text.push(Piece::Whole(url[..end].to_owned()));
        text.push(Piece::Quoted(url[end..].to_owned()));
        Own(tick(url)).append_to(text);
    }
}

/// Returns the backtick around a value, or nothing if it is one word.
fn tick(value: &str) -> &'static str {
    if is_one_word(value) { "" } else { "`" }
}

/// True for one word of visible ASCII characters.
pub(super) fn is_one_word(value: &str) -> bool {
    let is_part = |c: char| c.is_ascii_graphic() && !matches!(c, ',' | '`');
    !value.is_empty() && value.chars().all(is_part)
}

impl TextValue for Text {
    fn append_to(&self, text: &mut Text) {
        text.0.extend(self.0.iter().cloned());
    }
}

impl TextValue for str {
    fn append_to(&self, text: &mut Text) {
        text.push_foreign(self.to_owned());
    }
}

impl TextValue for Path {
    fn append_to(&self, text: &mut Text) {
        self.to_string_lossy().as_ref().append_to(text);
    }
}

impl<T: TextValue + ?Sized> TextValue for &T {
    fn append_to(&self, text: &mut Text) {
        (**self).append_to(text);
    }
}

impl TextValue for PathBuf {
    fn append_to(&self, text: &mut Text) {
        self.as_path().append_to(text);
    }
}

/// Builds a [`Text`] from a literal with `{}` for each value: `text!("the tool `{}` is not offered", name)`. A string
/// is quoted; [`Name`], [`Own`], numbers and other messages are inserted unquoted.
macro_rules! text {
    ($literal:literal $(, $value:expr)* $(,)?) => {{
        const _: () = assert!(
            $crate::ui::terminal::places($literal) == <[&str]>::len(&[$(stringify!($value)),*]),
            "as many values as placeholders",
        );
        $crate::ui::terminal::Text::filled($literal, &[$(&$value as &dyn $crate::ui::terminal::TextValue),*])
    }};
}
pub(crate) use text;

/// Returns the number of `{}` in a literal.
pub(crate) const fn places(literal: &str) -> usize {
    let bytes = literal.as_bytes();
    let (mut i, mut found) = (0, 0);
    while i + 1 < bytes.len() {
        if bytes[i] == b'{' {
            assert!(
                bytes[i + 1] == b'}',
                "a placeholder is an empty pair of braces, its value follows"
            );
            found += 1;
        }
        i += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_of_models_are_shown_unquoted() {
        for (name, shown) in [
            ("llama3.2:1b", "llama3.2:1b"),
            ("meta/llama-3:8b@2", "meta/llama-3:8b@2"),
            ("error:", "`error:`"),
            (":x", "`:x`"),
            ("a b", "`a b`"),
            ("a//b", "`a//b`"),
        ] {
            assert_eq!(text!("{}", ModelName(name)).inert(), shown);
        }
    }

    #[test]
    fn only_values_in_backticks_are_quoted() {
        let name = "a`\n? yes".to_owned();
        let message = text!("the tool `{}` has {} parts", name, 3_u64);
        let parts: Vec<Part<'_>> = message.parts().collect();
        assert_eq!(
            parts,
            [
                Part::Own("the tool `"),
                Part::Quoted("a\\u{60}␊? yes".into()),
                Part::Own("` has "),
                Part::Own("3"),
                Part::Own(" parts"),
            ]
        );
        assert_eq!(message.plain(), "the tool `a`\n? yes` has 3 parts");
        let message = text!("because {}", "`a`\nb");
        assert_eq!(message.parts().last(), Some(Part::Foreign("`a`\nb".into())));
    }

    #[test]
    fn only_plain_name_is_unquoted() {
        let own = |name: &str| {
            let text = text!("{}", Name(name));
            text.parts().all(|part| matches!(part, Part::Own(_)))
        };
        for (name, is_own) in [
            ("files_write", true),
            ("a.wasm", true),
            ("error:", false),
            ("-x", false),
            ("ä", false),
        ] {
            assert_eq!(own(name), is_own, "{name}");
        }
        assert!(own(&"x".repeat(64)));
        assert!(!own(&"x".repeat(65)));
    }

    #[test]
    fn host_of_url_is_never_shortened() {
        let host = format!("https://github.com.{}evil.example", "a.".repeat(115));
        assert_eq!(host.len(), "https://".len() + 253);
        let url = format!("{host}/x{}", "y".repeat(600));
        let told = |url: &str, most: usize| text!("it resolves to {}", ShownUrl(url)).shortened(most).inert();
        for most in [400, 120, 60, 30] {
            let told = told(&url, most);
            assert!(told.starts_with(&format!("it resolves to {host}/x")), "{told}");
            assert!(told.contains(" more]…"), "{told}");
        }
        for (url, expected) in [
            ("https://example.com", "https://example.com"),
            ("https://example.com/a,b", "`https://example.com/a,b`"),
            ("https://example.com?q", "https://example.com?q"),
        ] {
            assert_eq!(told(url, 30), format!("it resolves to {expected}"));
        }
        // No host of a request is that long.
        let long = format!("ftp://{}", "a".repeat(MAX_ORIGIN));
        assert!(told(&long, 400).len() > MAX_ORIGIN);
        assert!(told(&long, 30).contains(" more]…"), "{}", told(&long, 30));
    }

    #[test]
    fn indexed_configuration_key_is_own_text() {
        for (key, is_own) in [
            ("deny[0]", true),
            ("tools.files.grants[12]", true),
            ("deny", true),
            ("deny[]", false),
            ("deny[0] = yes", false),
            ("a b[0]", false),
            ("deny[0][1]", false),
        ] {
            let text = text!("{}", Key(key));
            let own = text.parts().all(|part| matches!(part, Part::Own(_)));
            assert_eq!(own, is_own, "{key}");
        }
    }

    #[test]
    fn concatenated_text_is_foreign() {
        let text = Text::from(format!("error: {}", 1));
        assert_eq!(
            text.parts().collect::<Vec<_>>(),
            [Part::Foreign("error: 1".into())]
        );
    }
}

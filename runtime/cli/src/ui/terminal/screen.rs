//! Text output stream: layout in physical lines, with no control sequences except colours.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::foreign::escape::{Filter, inert};
use super::foreign::layout::{GUTTER, Item, Layout, Width};
use super::size::Size;
use super::text::{Part, Text};
use crate::environment::Environment;
use crate::ui::markdown::Ready;

/// Bold: the most important text.
pub(crate) const STRONG: Style = Style::new().bold();
/// Faint: secondary text.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// Style of success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Style of a warning.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// Style of a failure.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Names: tools, files, keys.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();

/// True if a stream gets colours: `NO_COLOR` (no-color.org) disables them, `CLICOLOR_FORCE` forces them
/// (bixense.com/clicolors), and otherwise a terminal that is not `dumb` gets them.
pub(crate) fn wants_colour(environment: &Environment, is_terminal: bool) -> bool {
    if environment.var("NO_COLOR").is_some() {
        return false;
    }
    match environment.var("CLICOLOR_FORCE") {
        Some(value) if value != "0" => true,
        _ => {
            is_terminal && environment.var("TERM") != Some("dumb") && environment.var("CLICOLOR") != Some("0")
        }
    }
}

/// Text writer for one stream.
///
/// Own text wraps to an indentation, foreign text to a gutter; a line that begins with foreign text begins with the
/// gutter. All text is inert; styles appear only if colours are enabled.
pub(crate) struct Screen<W> {
    out: W,
    colour: bool,
    size: Size,
    layout: Layout,
    filter: Filter,
    /// Last word of a text that arrives in pieces; its width is not known yet.
    word: String,
}

impl<W: Write> Screen<W> {
    /// Creates a screen that writes to `out`, with or without colours, in lines that fit `size`.
    pub(crate) fn new(out: W, colour: bool, size: Size) -> Self {
        Self {
            out,
            colour,
            size,
            layout: Layout::new(size.width()),
            filter: Filter::default(),
            word: String::new(),
        }
    }

    /// Returns the stream.
    pub(crate) fn inner(&mut self) -> &mut W {
        &mut self.out
    }

    /// True if styles are enabled.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour
    }

    /// Returns columns and rows, or `None` if the stream is not a terminal.
    pub(crate) fn size(&self) -> Option<(usize, usize)> {
        self.size.now()
    }

    /// Returns the current width.
    pub(crate) fn width(&self) -> Width {
        self.size.width()
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, text: impl Into<Text>) -> io::Result<()> {
        self.styled(Style::new(), text)
    }

    /// Writes a text with a style.
    pub(crate) fn styled(&mut self, style: Style, text: impl Into<Text>) -> io::Result<()> {
        self.write(style, &text.into(), false)
    }

    /// Writes a text. In a sentence, our own words after a quoted name wrap without a gutter; elsewhere, such as in questions,
    /// every line after words of others has one.
    fn write(&mut self, style: Style, text: &Text, is_sentence: bool) -> io::Result<()> {
        let is_quoted = |part: &Part<'_>| is_sentence && matches!(part, Part::Quoted(_));
        let has_foreign = text
            .parts()
            .any(|part| !matches!(part, Part::Own(_)) && !is_quoted(&part));
        self.lay(style, |layout, emit| {
            if has_foreign {
                layout.expect_foreign();
            }
            let mut parts = text.parts().peekable();
            while let Some(part) = parts.next() {
                match part {
                    // A backtick stands on the line of the name that it opens.
                    Part::Own(own) if own.ends_with('`') && parts.peek().is_some_and(is_quoted) => {
                        layout.own(&own[..own.len() - 1], emit);
                        if let Some(Part::Quoted(quoted)) = parts.peek() {
                            layout.keep_together(quoted.split(' ').next().unwrap_or_default(), 2, emit);
                        }
                        layout.own("`", emit);
                    }
                    Part::Own(own) => layout.own(own, emit),
                    Part::Quoted(quoted) if is_sentence => layout.quoted(&quoted, emit),
                    Part::Quoted(foreign) | Part::Foreign(foreign) => layout.foreign(&foreign, emit),
                }
            }
        })
    }

    /// Writes a message and finishes the line. Words of others that are not between backticks begin on lines of their own,
    /// behind the gutter, and what follows them too; all lines after the first are indented by `hang` columns.
    pub(crate) fn message(&mut self, style: Style, text: &Text, hang: usize) -> io::Result<()> {
        self.hang(hang);
        for (number, paragraph) in text.paragraphs().into_iter().enumerate() {
            if number > 0 {
                self.text("\n")?;
                self.hang(hang);
            }
            self.write(style, &paragraph, true)?;
        }
        self.end_line()
    }

    /// Writes a sentence of ours and finishes the line.
    pub(crate) fn sentence(&mut self, text: &Text) -> io::Result<()> {
        self.write(Style::new(), text, true)?;
        self.end_line()
    }

    /// Writes a text and finishes the line.
    pub(crate) fn line(&mut self, text: impl Into<Text>) -> io::Result<()> {
        self.text(text)?;
        self.end_line()
    }

    /// Writes a text with a style, padded to a width, for tables.
    pub(crate) fn cell(&mut self, style: Style, text: impl Into<Text>, width: usize) -> io::Result<()> {
        let start = self.layout.column();
        self.styled(style, text)?;
        let taken = self.layout.column().saturating_sub(start);
        self.lay(Style::new(), |layout, emit| {
            (taken..width).for_each(|_| layout.own(" ", emit));
        })
    }

    /// Finishes the line.
    pub(crate) fn end_line(&mut self) -> io::Result<()> {
        self.lay(Style::new(), |layout, emit| layout.end_line(emit))
    }

    /// True if this line has `columns` free columns.
    pub(crate) fn has_room(&self, columns: usize) -> bool {
        let end = self.layout.column().saturating_add(columns);
        self.width().columns.is_none_or(|width| end < width)
    }

    /// True if the current line is unfinished.
    pub(crate) fn is_line_open(&self) -> bool {
        self.layout.is_line_open()
    }

    /// Finishes the line if it is not empty.
    pub(crate) fn end_open_line(&mut self) -> io::Result<()> {
        if self.layout.is_line_open() {
            self.end_line()?;
        }
        Ok(())
    }

    /// Sets the indentation of wrapped lines, until the line ends.
    pub(crate) fn hang(&mut self, columns: usize) {
        self.layout.hang = columns;
    }

    /// Writes foreign text as data: behind gutters on a terminal, unchanged but inert otherwise.
    pub(crate) fn data(&mut self, text: &str) -> io::Result<()> {
        if self.size.now().is_none() {
            return self.out.write_all(inert(text).as_bytes());
        }
        self.hang(0);
        self.text(Text::foreign(text))
    }

    /// Writes the next piece of streamed foreign text; on a terminal up to its last word.
    pub(crate) fn stream(&mut self, piece: &str) -> io::Result<()> {
        let text = self.filter.push(piece);
        let Some((columns, _)) = self.size.now() else {
            self.out.write_all(text.as_bytes())?;
            return self.out.flush();
        };
        self.word.push_str(&text);
        let is_long = self.word.len() > 4 * columns;
        let end = match self.word.rfind([' ', '\t', '\n']) {
            Some(at) => at + 1,
            // No word is this long; only its last glyph may be incomplete.
            None if is_long => last_glyph(&self.word),
            None => 0,
        };
        let ready: String = self.word.drain(..end).collect();
        self.stream_part(&ready)?;
        self.out.flush()
    }

    /// Writes rows of foreign text that is laid out and inert; on a terminal behind the gutter. The first one may go on with the
    /// row before, and the last one may stay open.
    pub(crate) fn rows(&mut self, ready: &Ready) -> io::Result<()> {
        let style = |style: Style| if self.colour { style } else { Style::new() };
        let gutter = style(FAINT);
        let mut lines = Vec::new();
        for (number, row) in ready.rows.iter().enumerate() {
            if self.size.now().is_some() && !(number == 0 && ready.goes_on) {
                write!(lines, "{gutter}{GUTTER}{gutter:#}")?;
            }
            for run in row {
                let style = style(run.style);
                write!(lines, "{style}{}{style:#}", run.text)?;
            }
            if number + 1 < ready.rows.len() || !ready.is_open {
                writeln!(lines)?;
            }
        }
        self.out.write_all(&lines)?;
        self.out.flush()
    }

    /// Returns `true` if streamed text is on the last line or about to be written: the end of a line is, until what follows it
    /// is known. `None` if the stream is not a terminal, and has no lines.
    pub(crate) fn is_stream_open(&self) -> Option<bool> {
        self.size.now()?;
        Some(!self.word.is_empty() || self.layout.is_line_open())
    }

    /// Finishes streamed text.
    pub(crate) fn end_stream(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.word) + &self.filter.finish();
        if self.size.now().is_none() {
            self.out.write_all(rest.as_bytes())?;
        } else {
            self.stream_part(&rest)?;
        }
        self.out.flush()
    }

    fn stream_part(&mut self, inert: &str) -> io::Result<()> {
        self.hang(0);
        self.lay(Style::new(), |layout, emit| layout.foreign(inert, emit))
    }

    /// Moves to the start of the line and clears it.
    pub(crate) fn erase_line(&mut self) -> io::Result<()> {
        self.layout.restart();
        self.out.write_all(b"\r\x1b[2K")?;
        self.out.flush()
    }

    /// Flushes the stream.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn lay(
        &mut self,
        style: Style,
        write: impl FnOnce(&mut Layout, &mut dyn FnMut(Item<'_>)),
    ) -> io::Result<()> {
        self.layout.width = self.size.width();
        let mut line = Vec::new();
        let style = if self.colour { style } else { Style::new() };
        let gutter = if self.colour { FAINT } else { Style::new() };
        write(&mut self.layout, &mut |item| {
            // Each run of text has its own style sequence, so that none extends over a line end or a gutter.
            let _ = match item {
                Item::Text(text) => write!(line, "{style}{text}{style:#}"),
                Item::Blank(count) => write!(line, "{:count$}", ""),
                Item::Gutter => write!(line, "{gutter}{GUTTER}{gutter:#}"),
                Item::End => writeln!(line),
            };
        });
        if line.ends_with(b"\n") {
            self.layout.hang = HANG;
        }
        self.out.write_all(&line)
    }
}

/// Default indentation of wrapped lines.
pub(crate) const HANG: usize = 2;

/// Returns the offset of the last glyph of a text.
fn last_glyph(text: &str) -> usize {
    use unicode_segmentation::UnicodeSegmentation as _;
    text.grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_core::inert::is_hidden;

    #[test]
    fn screen_output_never_controls_terminal() {
        let every: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        for colour in [false, true] {
            let mut out = Vec::new();
            let mut screen = Screen::new(&mut out, colour, Size::NONE);
            screen.text(every.clone()).unwrap();
            screen.styled(BAD, every.clone()).unwrap();
            screen.data(&every).unwrap();
            screen.stream(&every).unwrap();
            screen.end_stream().unwrap();
            let text = String::from_utf8(out).unwrap();
            let own = [BAD, FAINT].map(|style| [format!("{style}"), format!("{style:#}")]);
            let foreign = (own.iter().flatten()).fold(text, |text, sequence| text.replace(sequence, ""));
            let obeyed = |c: &char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_hidden(*c);
            assert_eq!(foreign.chars().find(obeyed), None);
        }
    }

    #[test]
    fn text_in_pieces_is_laid_out_like_the_whole() {
        let text =
            "one two three\n\nfour fünf 👩\u{200d}🔬 and some more words so that it wraps \u{1b}[2J end";
        let shown = |pieces: &mut dyn Iterator<Item = String>| {
            let mut out = Vec::new();
            let mut screen = Screen::new(&mut out, false, Size::fixed(24));
            pieces.for_each(|piece| screen.stream(&piece).unwrap());
            screen.end_stream().unwrap();
            screen.end_open_line().unwrap();
            String::from_utf8(out).unwrap()
        };
        let whole = shown(&mut [text.to_owned()].into_iter());
        assert_eq!(shown(&mut text.chars().map(String::from)), whole);
        assert!(whole.lines().all(|line| line.starts_with(GUTTER)), "{whole}");
    }

    #[test]
    fn streamed_line_is_open_until_its_end_is_written() {
        for (text, open) in [("", false), ("abc", true), ("abc\n", true), ("abc \n\n", true)] {
            let mut screen = Screen::new(Vec::new(), false, Size::fixed(24));
            screen.stream(text).unwrap();
            assert_eq!(screen.is_stream_open(), Some(open), "{text:?}");
            screen.end_stream().unwrap();
            assert_eq!(screen.is_stream_open(), Some(open), "{text:?}");
            screen.end_open_line().unwrap();
            assert_eq!(screen.is_stream_open(), Some(false), "{text:?}");
        }
        let screen = Screen::new(Vec::new(), false, Size::NONE);
        assert_eq!(screen.is_stream_open(), None);
    }

    #[test]
    fn own_line_follows_foreign_text_at_column_zero() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, false, Size::NONE);
        screen.text("log ").unwrap();
        screen.line("a\nerror: forged".to_owned()).unwrap();
        screen.line("own").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "log a\n  │ error: forged\nown\n");
    }

    #[test]
    fn colours_follow_environment_variables() {
        let cwd = std::path::Path::new("/");
        for (vars, terminal, colour) in [
            (&[][..], true, true),
            (&[], false, false),
            (&[("NO_COLOR", "1")], true, false),
            (&[("NO_COLOR", "")], true, true),
            (&[("CLICOLOR_FORCE", "1")], false, true),
            (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false, false),
            (&[("CLICOLOR_FORCE", "0")], false, false),
            (&[("CLICOLOR", "0")], true, false),
            (&[("TERM", "dumb")], true, false),
        ] {
            let environment = Environment::for_tests(cwd, vars);
            assert_eq!(
                wants_colour(&environment, terminal),
                colour,
                "{vars:?} {terminal}"
            );
        }
    }
}

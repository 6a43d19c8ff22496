//! What may reach a terminal.
//!
//! A tool, a server or a model can put anything into its text: sequences that clear the screen, set the title, write to
//! the clipboard, or reorder what is read. [`inert`] shows all of that instead of sending it. [`Screen`] is the one way
//! to write for people, and it passes every text through [`Filter`]; only the colours are its own.

use std::fmt::Write as _;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::environment::Environment;

/// Bold, for what to look at first.
pub(crate) const STRONG: Style = Style::new().bold();
/// Faint, for what can be skipped.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// For what went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// For what needs attention.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// For what failed.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// For names: tools, files, keys.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();

/// Text without anything that a terminal would obey or hide.
///
/// Line ends and tabs stay. Other control characters (C0, DEL, C1) become their pictures (`␛`) or `\u{9b}`; characters
/// that reorder or hide text (bidirectional controls, zero-width characters, tags, fillers) become `\u{202e}`. A joiner
/// stays where writing needs it, between two characters beyond ASCII (👩‍🔬, می‌خواهم).
pub(crate) fn inert(text: &str) -> String {
    let mut filter = Filter::default();
    let mut out = filter.push(text);
    out.push_str(&filter.finish());
    out
}

/// [`inert`] on one line: line ends and tabs are shown, too.
pub(crate) fn inert_line(text: &str) -> String {
    inert(text)
        .chars()
        .map(|c| match c {
            '\n' => '␊',
            '\r' => '␍',
            '\t' => '␉',
            other => other,
        })
        .collect()
}

/// Whether a character is invisible or changes how others are shown, so that a reader and a model see different text.
pub(crate) fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{00ad}'                            // soft hyphen
        | '\u{034f}'                          // combining grapheme joiner
        | '\u{061c}'                          // Arabic letter mark
        | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // Hangul fillers
        | '\u{17b4}' | '\u{17b5}'             // Khmer inherent vowels
        | '\u{180b}'..='\u{180f}'             // Mongolian selectors
        | '\u{200b}'..='\u{200f}'             // zero-width space and joiners, direction marks
        | '\u{2028}' | '\u{2029}'             // line and paragraph separators
        | '\u{202a}'..='\u{202e}'             // embeddings and overrides
        | '\u{2060}'..='\u{206f}'             // word joiner, invisible operators, isolates
        | '\u{fe00}'..='\u{fe0d}'             // variation selectors without a meaning for emoji
        | '\u{feff}'                          // byte order mark
        | '\u{fff0}'..='\u{fffb}'             // unassigned and interlinear annotation
        | '\u{1bca0}'..='\u{1bca3}'           // shorthand format controls
        | '\u{1d173}'..='\u{1d17a}'           // musical format controls
        | '\u{e0000}'..='\u{e0fff}'           // tags and further variation selectors
    )
}

/// [`inert`] for text that comes in pieces: what it says about a character may depend on the one after it.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    previous: Option<char>,
    held: Option<char>,
}

impl Filter {
    /// The next piece, as far as it is decided.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            if let Some(held) = self.held.take() {
                self.write_held(held, Some(c), &mut out);
            }
            if matches!(c, '\r' | '\u{200c}' | '\u{200d}') {
                self.held = Some(c);
                continue;
            }
            match c {
                '\n' | '\t' => out.push(c),
                '\u{0}'..='\u{1f}' => out.push(picture(c)),
                '\u{7f}' => out.push('␡'),
                '\u{80}'..='\u{9f}' => write_escape(&mut out, c),
                c if is_hidden(c) => write_escape(&mut out, c),
                c => out.push(c),
            }
            self.previous = Some(c);
        }
        out
    }

    /// What was held back, once nothing follows.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        if let Some(held) = self.held.take() {
            self.write_held(held, None, &mut out);
        }
        out
    }

    fn write_held(&mut self, held: char, next: Option<char>, out: &mut String) {
        let visible = |c: char| !c.is_ascii() && !is_hidden(c) && !c.is_control();
        let joins = self.previous.is_some_and(visible) && next.is_some_and(visible);
        match held {
            '\r' if next == Some('\n') => out.push('\r'),
            '\r' => out.push(picture('\r')),
            joiner if joins => out.push(joiner),
            other => write_escape(out, other),
        }
        self.previous = Some(held);
    }
}

/// The picture of a C0 control character, such as `␛` for ESC (Unicode block Control Pictures).
fn picture(c: char) -> char {
    char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn write_escape(out: &mut String, c: char) {
    write!(out, "\\u{{{:x}}}", u32::from(c)).expect("a string takes every text");
}

/// Whether a stream gets colours: `NO_COLOR` (no-color.org) forbids them, `CLICOLOR_FORCE` demands them
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

/// Text for people on one stream. Everything written to it is inert; styles appear only where colours are wanted.
pub(crate) struct Screen<W> {
    out: W,
    colour: bool,
    stream: Filter,
}

impl<W: Write> Screen<W> {
    /// Writes to `out`, with or without colours.
    pub(crate) fn new(out: W, colour: bool) -> Self {
        Self {
            out,
            colour,
            stream: Filter::default(),
        }
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(inert(text).as_bytes())
    }

    /// Writes a text in a style.
    pub(crate) fn styled(&mut self, style: Style, text: &str) -> io::Result<()> {
        if self.colour && !text.is_empty() {
            write!(self.out, "{style}{}{style:#}", inert(text))
        } else {
            self.text(text)
        }
    }

    /// Writes a text and ends the line.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.text(text)?;
        self.end_line()
    }

    /// Ends the line.
    pub(crate) fn end_line(&mut self) -> io::Result<()> {
        self.out.write_all(b"\n")
    }

    /// Writes the next piece of a text that comes in pieces, at once.
    pub(crate) fn stream(&mut self, piece: &str) -> io::Result<()> {
        let text = self.stream.push(piece);
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Ends a text that came in pieces.
    pub(crate) fn end_stream(&mut self) -> io::Result<()> {
        let text = self.stream.finish();
        self.stream = Filter::default();
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Goes back to the start of the line and empties it.
    pub(crate) fn erase_line(&mut self) -> io::Result<()> {
        self.out.write_all(b"\r\x1b[2K")?;
        self.out.flush()
    }

    /// Hands everything written so far to the stream.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_are_shown_and_not_sent() {
        for (text, shown) in [
            ("plain\n\ttext", "plain\n\ttext"),
            ("\u{1b}[2J\u{1b}[31mred", "␛[2J␛[31mred"),
            ("\u{1b}]52;c;cm0gLXJm\u{7}", "␛]52;c;cm0gLXJm␇"),
            ("\u{9b}31m \u{90}", "\\u{9b}31m \\u{90}"),
            ("safe\rrm -rf", "safe␍rm -rf"),
            ("dos\r\nline", "dos\r\nline"),
            ("end\r", "end␍"),
            ("a\u{8}b\u{0}c\u{7f}", "a␈b␀c␡"),
        ] {
            assert_eq!(inert(text), shown, "{text:?}");
        }
    }

    #[test]
    fn characters_that_hide_or_reorder_text_are_shown() {
        for (text, shown) in [
            ("a\u{202e}txt.exe", "a\\u{202e}txt.exe"),
            ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
            ("a\u{200b}b", "a\\u{200b}b"),
            ("a\u{200d}b", "a\\u{200d}b"),
            ("\u{feff}x", "\\u{feff}x"),
            ("x\u{e0041}\u{e007f}", "x\\u{e0041}\\u{e007f}"),
            ("é\u{200d}\u{200d}é", "é\\u{200d}\\u{200d}é"),
        ] {
            assert_eq!(inert(text), shown, "{text:?}");
        }
    }

    #[test]
    fn writing_that_needs_a_joiner_keeps_it() {
        for text in ["👩\u{200d}🔬", "می\u{200c}خواهم", "❤\u{fe0f}", "naïve ñ 漢字"] {
            assert_eq!(inert(text), text);
        }
    }

    #[test]
    fn text_that_comes_in_pieces_is_as_inert_as_the_whole() {
        let text = "a\u{1b}[0m\r\nb\rc👩\u{200d}🔬\u{200d}x\u{202e}";
        let mut filter = Filter::default();
        let mut pieces: String = text.chars().map(|c| filter.push(&c.to_string())).collect();
        pieces.push_str(&filter.finish());
        assert_eq!(pieces, inert(text));
    }

    #[test]
    fn nothing_written_to_a_screen_is_obeyed_by_a_terminal() {
        let every: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        for colour in [false, true] {
            let mut out = Vec::new();
            let mut screen = Screen::new(&mut out, colour);
            screen.text(&every).unwrap();
            screen.styled(BAD, &every).unwrap();
            screen.stream(&every).unwrap();
            screen.end_stream().unwrap();
            let text = String::from_utf8(out).unwrap();
            let own = [format!("{BAD}"), format!("{BAD:#}")];
            let foreign = own.iter().fold(text, |text, sequence| text.replace(sequence, ""));
            let obeyed = |c: &char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_hidden(*c);
            assert_eq!(foreign.chars().find(obeyed), None);
        }
    }

    #[test]
    fn colours_follow_the_variables_that_people_set() {
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

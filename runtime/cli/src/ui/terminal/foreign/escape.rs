//! Makes characters visible that a terminal executes, hides, reorders or stacks.

use std::fmt::Write as _;

use toolcell_core::inert::{MAX_MARKS, has_no_glyph, is_hidden, is_mark};

/// Maximum number of zero-width joiners in one glyph. The longest emoji in use join four others.
pub(crate) const MAX_JOINERS: usize = 4;

/// Returns the text without anything that a terminal would execute or hide.
///
/// Line ends and tabs are kept. Other control characters (C0, DEL, C1) become their pictures (`␛`) or `\\u{9b}`.
/// Characters that reorder or hide text (bidirectional controls, zero-width characters, tags, fillers, blank symbols),
/// characters without an agreed glyph or width (private use, unassigned, noncharacters), and combining marks without a
/// base or beyond [`MAX_MARKS`] become `\\u{202e}`. Joiners and variation selectors are kept where scripts need them
/// (👩‍🔬, می‌خواهم, ❤️).
pub(crate) fn inert(text: &str) -> String {
    let mut filter = Filter::default();
    let mut out = filter.push(text);
    out.push_str(&filter.finish());
    out
}

/// Returns [`inert`] text on one line: line ends and tabs are made visible too.
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

/// [`inert`] for streamed text: the result for a character can depend on its neighbours.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    previous: Option<char>,
    held: Option<char>,
    /// Number of marks on the last base character.
    marks: usize,
    /// Number of joiners in the current glyph.
    joiners: usize,
}

impl Filter {
    /// Appends a piece and returns the text that is decided.
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
            self.write(c, &mut out);
        }
        out
    }

    /// Returns the pending text at the end.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        if let Some(held) = self.held.take() {
            self.write_held(held, None, &mut out);
        }
        *self = Self::default();
        out
    }

    fn write(&mut self, c: char, out: &mut String) {
        match c {
            '\n' | '\t' => out.push(c),
            '\u{0}'..='\u{1f}' => out.push(picture(c)),
            '\u{7f}' => out.push('␡'),
            '\u{80}'..='\u{9f}' => write_escape(out, c),
            '\u{fe0e}' | '\u{fe0f}' if self.marks == 0 && self.previous.is_some_and(has_variants) => {
                self.marks += 1;
                out.push(c);
                return;
            }
            '\u{fe0e}' | '\u{fe0f}' => write_escape(out, c),
            c if is_hidden(c) || has_no_glyph(c) => write_escape(out, c),
            c if is_mark(c) => {
                if self.marks < MAX_MARKS && self.previous.is_some_and(is_base) {
                    self.marks += 1;
                    out.push(c);
                    // The base remains the base of the next mark.
                    return;
                }
                write_escape(out, c);
            }
            c => {
                out.push(c);
                self.marks = 0;
                if self.previous != Some('\u{200d}') && !is_skin_tone(c) {
                    self.joiners = 0;
                }
            }
        }
        self.previous = Some(c);
    }

    fn write_held(&mut self, held: char, next: Option<char>, out: &mut String) {
        let joins = self.previous.is_some_and(joins) && next.is_some_and(joins);
        match held {
            '\r' if next == Some('\n') => out.push('\r'),
            '\r' => out.push(picture('\r')),
            '\u{200d}' if joins && self.joiners < MAX_JOINERS => {
                self.joiners += 1;
                out.push(held);
            }
            '\u{200c}' if joins => out.push(held),
            other => write_escape(out, other),
        }
        self.previous = Some(held);
    }
}

/// True if a mark can be drawn on a character. On a blank it would be drawn on the previous one.
fn is_base(c: char) -> bool {
    !c.is_control() && !c.is_whitespace() && !is_hidden(c) && !is_mark(c) && !has_no_glyph(c)
}

/// True if a joiner next to a character has a meaning.
fn joins(c: char) -> bool {
    !c.is_ascii() && is_base(c)
}

/// True if a character changes the skin tone of the previous emoji, and belongs to its glyph.
fn is_skin_tone(c: char) -> bool {
    matches!(c, '\u{1f3fb}'..='\u{1f3ff}')
}

/// True if a character has a text and an emoji style (Unicode emoji-variation-sequences).
fn has_variants(c: char) -> bool {
    matches!(c, '0'..='9' | '#' | '*') || joins(c)
}

/// Returns the picture of a C0 control character, such as `␛` for ESC (Unicode block Control Pictures).
fn picture(c: char) -> char {
    char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Appends a character as `\u{…}`.
pub(crate) fn write_escape(out: &mut String, c: char) {
    write!(out, "\\u{{{:x}}}", u32::from(c)).expect("a string takes every text");
}

//! Blocks and inline markup, as words and lines in the order of the text.

use std::ops::Range;

use anstyle::Style;
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::code::Code;
use super::delimiter::Delimiters;
use super::element::{Atom, Blocks, Element, Gap, Kind, OPEN};
use super::inline::Link;
use super::rows::Run;
use super::table::Table;
use crate::ui::terminal::{FAINT, NAME, STRONG, inert};

/// A tab in a line of code.
const TAB: &str = "    ";

/// Characters of a thematic break.
const RULE: &str = "--------";

/// Returns the elements of a text, which may be the beginning of a longer one. Without colours the delimiters of emphasis,
/// headings and code stay.
pub(super) fn parse(source: &str, colour: bool) -> Blocks {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut builder = Builder {
        source,
        colour,
        elements: Vec::new(),
        gap: Gap::Blanks(0),
        word: Vec::new(),
        word_end: 0,
        last_end: 0,
        counted: (0, 0, 0),
        covered: 0,
        styles: Vec::new(),
        items: 0,
        items_with_atom: 0,
        links: Vec::new(),
        table: None,
        table_gap: Gap::Break,
        cell_end: 0,
        code: None,
        depth: 0,
        last: (0, 0),
        open: None,
        delimiters: Delimiters::default(),
    };
    for (event, range) in Parser::new_ext(source, options).into_offset_iter() {
        builder.event(event, range);
    }
    builder.flush();
    builder.uncovered(source.len());
    if is_blank_at_end(source) {
        builder.open = None;
    }
    Blocks {
        elements: builder.elements,
        last: builder.last,
        open: builder.open,
    }
}

/// Returns a line of text without anything that a terminal would execute.
pub(super) fn inert_text(line: &str) -> String {
    inert(line)
        .replace('\t', TAB)
        .replace('\r', "␍")
        .replace('\n', "␊")
}

/// True if the last line of a text is empty: no paragraph goes on after it.
pub(super) fn is_blank_at_end(source: &str) -> bool {
    let after = &source[source.trim_end().len()..];
    after.bytes().filter(|byte| *byte == b'\n').count() > 1
}

pub(super) struct Builder<'a> {
    pub(super) source: &'a str,
    pub(super) colour: bool,
    pub(super) elements: Vec<Element>,
    pub(super) gap: Gap,
    pub(super) word: Vec<Run>,
    pub(super) word_end: usize,
    /// End of the last atom.
    pub(super) last_end: usize,
    /// Line ends from the end of the last atom up to an offset: both offsets, and their number.
    counted: (usize, usize, usize),
    /// End of the text that the parser has shown. Definitions of links are left out by it.
    pub(super) covered: usize,
    /// Styles of the open elements, each with those around it.
    pub(super) styles: Vec<Style>,
    /// Number of open items, and of those, counted from the outside, that have an atom.
    items: usize,
    items_with_atom: usize,
    pub(super) links: Vec<Link>,
    pub(super) table: Option<Table>,
    pub(super) table_gap: Gap,
    pub(super) cell_end: usize,
    pub(super) code: Option<Code>,
    pub(super) depth: usize,
    pub(super) last: (usize, usize),
    pub(super) open: Option<usize>,
    pub(super) delimiters: Delimiters,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, range: Range<usize>) {
        if self.depth == 0 && !matches!(event, Event::End(_)) {
            self.flush();
            self.uncovered(range.start);
            self.last = (range.start, self.elements.len());
        }
        match event {
            Event::Start(tag) => {
                self.depth += 1;
                self.start(tag, range);
            }
            Event::End(tag) => {
                self.end(tag, range);
                self.depth = self.depth.saturating_sub(1);
            }
            Event::Text(text) if self.code.is_some() => self.lines(&text, &range),
            Event::Html(html) => self.lines(&html, &range),
            Event::Text(text) => {
                self.cover(&range);
                self.note_open(&text, &range);
                self.text(&text, &range);
            }
            Event::Code(code) => {
                self.cover(&range);
                self.styled(NAME, &code, &range, "`");
            }
            Event::SoftBreak | Event::HardBreak => {
                self.cover(&range);
                self.gap(Gap::Break);
            }
            Event::Rule => {
                self.block(range.start);
                self.cover(&range);
                let end = range.start + self.source[range.clone()].trim_end().len();
                self.atom(Kind::Word(vec![Run::new(FAINT, RULE)]), end);
                self.gap(Gap::Break);
            }
            Event::TaskListMarker(is_done) => {
                self.cover(&range);
                self.run(if is_done { "[x]" } else { "[ ]" }, range.end);
                self.gap(Gap::Blanks(1));
            }
            Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => {
                self.cover(&range);
                self.text(&text, &range);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>, range: Range<usize>) {
        match tag {
            Tag::Emphasis => self.begin(Style::new().italic(), "*", &range),
            Tag::Strong => self.begin(STRONG, "**", &range),
            Tag::Strikethrough => self.begin(Style::new().strikethrough(), "~~", &range),
            Tag::Link {
                link_type,
                dest_url,
                title,
                id,
            } => self.begin_link(link_type, [dest_url, title, id], false, &range),
            Tag::Image {
                link_type,
                dest_url,
                title,
                id,
            } => self.begin_link(link_type, [dest_url, title, id], true, &range),
            Tag::TableRow | Tag::TableHead => {
                self.cell_end = range.start;
                if let Some(table) = &mut self.table {
                    table.row();
                }
            }
            Tag::TableCell => {
                self.flush();
                self.gap = Gap::Blanks(0);
                if let Some(table) = &mut self.table {
                    table.cell();
                }
                self.cell_end = range.end;
            }
            tag => self.start_block(tag, range),
        }
    }

    fn start_block(&mut self, tag: Tag<'_>, range: Range<usize>) {
        self.block(range.start);
        match tag {
            Tag::BlockQuote(_) => {
                self.elements.push(Element::Quote);
                self.covered = self.covered.max(range.start);
            }
            Tag::List(_) => self.covered = self.covered.max(range.start),
            Tag::Item => self.start_item(range),
            Tag::Heading { level, .. } => {
                let is_top = matches!(level, HeadingLevel::H1 | HeadingLevel::H2);
                let style = if is_top { STRONG.underline() } else { STRONG };
                self.begin_style(style);
                if !self.colour && self.source[range.start..].starts_with('#') {
                    let marks = "#".repeat(level as usize);
                    self.run(&marks, range.start + marks.len());
                    self.gap(Gap::Blanks(1));
                }
                self.cover(&range);
            }
            Tag::CodeBlock(kind) => {
                self.cover(&range);
                let mut is_first = true;
                if let CodeBlockKind::Fenced(info) = kind {
                    let text = if self.colour {
                        info.to_string()
                    } else {
                        format!("```{info}")
                    };
                    if !text.is_empty() {
                        let end = self.source[range.start..]
                            .find('\n')
                            .map_or(OPEN, |at| range.start + at);
                        self.line(FAINT, &text, end, false);
                        is_first = false;
                    }
                }
                self.code = Some(Code::new(true, is_first));
            }
            Tag::HtmlBlock => {
                self.cover(&range);
                self.code = Some(Code::new(false, true));
            }
            Tag::Table(alignments) => {
                self.cover(&range);
                self.table = Some(Table {
                    alignments,
                    rows: Vec::new(),
                });
                self.table_gap = self.gap;
            }
            _ => self.cover(&range),
        }
    }

    fn start_item(&mut self, range: Range<usize>) {
        let written = self.source[range.start..].trim_start();
        let start = self.source.len() - written.len();
        let digits = written.bytes().take_while(u8::is_ascii_digit).count();
        self.covered = self.covered.max((start + digits + 1).min(range.end));
        // The number is the written one.
        let marker = match written.get(..=digits) {
            Some(number) if digits > 0 => number.to_owned(),
            _ if self.colour => "•".to_owned(),
            _ => "-".to_owned(),
        };
        self.elements.push(Element::Item(marker));
        self.items += 1;
    }

    fn end(&mut self, tag: TagEnd, range: Range<usize>) {
        match tag {
            TagEnd::Emphasis => self.finish("*", &range),
            TagEnd::Strong => self.finish("**", &range),
            TagEnd::Strikethrough => self.finish("~~", &range),
            TagEnd::Link | TagEnd::Image => self.end_link(&range),
            TagEnd::Heading(level) => {
                self.end_style();
                let is_underlined = !self.source[range.start..].starts_with('#');
                if !self.colour && is_underlined {
                    let line = if level == HeadingLevel::H1 { "===" } else { "---" };
                    self.gap(Gap::Break);
                    let end = range.start + self.source[range.clone()].trim_end().len();
                    self.line(Style::new(), line, end, false);
                }
                self.gap(Gap::Break);
            }
            TagEnd::CodeBlock | TagEnd::HtmlBlock => self.end_code(&range),
            TagEnd::TableHead | TagEnd::TableRow => self.end_row(&range),
            TagEnd::Table => {
                let after = &self.source[range.end..];
                let is_complete = !after.trim_start().is_empty() || is_blank_at_end(self.source);
                let end = if is_complete { range.end } else { OPEN };
                if let Some(table) = self.table.take() {
                    self.gap = self.table_gap;
                    self.atom(Kind::Table(table), end);
                    self.last_end = range.start + self.source[range.clone()].trim_end().len();
                }
                self.gap(Gap::Break);
            }
            TagEnd::Item => {
                self.flush();
                self.uncovered(range.end);
                let is_empty = self.items_with_atom < self.items;
                if is_empty {
                    self.gap = self.gap.max(Gap::Break);
                    self.elements.push(Element::Atom(Atom {
                        gap: std::mem::replace(&mut self.gap, Gap::Break),
                        kind: Kind::Nothing,
                        end: self.covered.max(range.start),
                    }));
                }
                self.items = self.items.saturating_sub(1);
                self.items_with_atom = self.items;
                self.elements.push(Element::End);
                self.gap(Gap::Break);
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.uncovered(range.end);
                self.elements.push(Element::End);
                self.gap(Gap::Break);
            }
            TagEnd::List(_) => {
                self.flush();
                self.uncovered(range.end);
            }
            _ => self.gap(Gap::Break),
        }
    }

    /// Begins a block at this offset.
    fn block(&mut self, start: usize) {
        self.flush();
        self.uncovered(start);
        self.open = None;
        let gap = self.gap_before(start);
        self.gap(gap);
    }

    /// Returns the distance of a block at this offset from the last atom. Many blocks can begin before the next atom: line ends
    /// that were counted for one are not counted again.
    fn gap_before(&mut self, start: usize) -> Gap {
        let (from, to, lines) = self.counted;
        let (to, lines) = if from == self.last_end {
            (to, lines)
        } else {
            (self.last_end, 0)
        };
        let more = self.source.as_bytes().get(to..start).unwrap_or_default();
        let lines = lines + more.iter().filter(|byte| **byte == b'\n').count();
        self.counted = (self.last_end, to.max(start), lines);
        if lines > 1 { Gap::Empty } else { Gap::Break }
    }

    /// Shows text between two blocks that the parser leaves out, such as definitions of links.
    fn uncovered(&mut self, end: usize) {
        let start = self.covered;
        self.covered = start.max(end);
        let Some(text) = self.source.get(start..end) else {
            return;
        };
        if !text.contains(char::is_alphanumeric) {
            return;
        }
        let mut at = start;
        for line in text.split_inclusive('\n') {
            if line.contains(char::is_alphanumeric) {
                let gap = self.gap_before(at);
                self.gap(gap);
                self.text(line, &(at..at + line.len()));
                self.flush();
            }
            at += line.len();
        }
        self.gap(Gap::Break);
    }

    pub(super) fn cover(&mut self, range: &Range<usize>) {
        self.uncovered(range.start);
        self.covered = self.covered.max(range.end);
    }

    /// Ends the word, and sets a minimum distance of the next one.
    pub(super) fn gap(&mut self, gap: Gap) {
        self.flush();
        self.gap = self.gap.max(gap);
    }

    /// Adds text in the current style.
    pub(super) fn text(&mut self, text: &str, range: &Range<usize>) {
        let is_verbatim = text.len() == range.len();
        if let Some(link) = self.links.last_mut() {
            link.text.push_str(text);
        }
        let mut at = 0;
        for part in text.split_inclusive([' ', '\t', '\n']) {
            let word = part.trim_end_matches([' ', '\t', '\n']);
            at += part.len();
            if !word.is_empty() {
                let end = range.start + at - (part.len() - word.len());
                self.run(word, if is_verbatim { end } else { range.end });
            }
            match part.as_bytes().last() {
                Some(b'\n') => self.gap(Gap::Break),
                Some(b' ' | b'\t') => {
                    self.flush();
                    self.gap = match self.gap {
                        Gap::Blanks(count) => Gap::Blanks(count.saturating_add(1)),
                        gap => gap,
                    };
                }
                _ => {}
            }
        }
    }

    /// Adds a part of a word.
    pub(super) fn run(&mut self, text: &str, end: usize) {
        let style = self.styles.last().copied().unwrap_or_default();
        let text = inert(text).replace('\r', "␍");
        self.word.push(Run::new(style, text));
        self.word_end = end;
    }

    pub(super) fn flush(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let runs = std::mem::take(&mut self.word);
        let end = self.word_end;
        if let Some(table) = &mut self.table {
            let blanks = match std::mem::replace(&mut self.gap, Gap::Blanks(0)) {
                Gap::Blanks(count) => count,
                _ => 1,
            };
            table.word((blanks, runs));
            return;
        }
        self.atom(Kind::Word(runs), end);
    }

    pub(super) fn atom(&mut self, kind: Kind, end: usize) {
        let gap = std::mem::replace(&mut self.gap, Gap::Blanks(0));
        self.elements.push(Element::Atom(Atom { gap, kind, end }));
        if end != OPEN {
            self.last_end = self.last_end.max(end);
        }
        self.items_with_atom = self.items;
    }
}

//! Inline markup: emphasis, code, links and pictures with their addresses.

use std::ops::Range;

use anstyle::Style;
use pulldown_cmark::{CowStr, LinkType};

use super::block::Builder;
use super::element::Gap;
use crate::ui::terminal::FAINT;

/// A link or a picture whose text is being read.
#[derive(Debug)]
pub(super) struct Link {
    kind: LinkType,
    address: String,
    title: String,
    id: String,
    /// Text so far.
    pub(super) text: String,
    is_picture: bool,
}

impl Builder<'_> {
    /// Adds text in a style; without colours between delimiters.
    pub(super) fn styled(&mut self, style: Style, text: &CowStr<'_>, range: &Range<usize>, delimiter: &str) {
        self.begin(style, delimiter, range);
        // The offsets within are not known.
        self.text(text, &(range.end..range.end));
        self.finish(delimiter, range);
    }

    pub(super) fn begin(&mut self, style: Style, delimiter: &str, range: &Range<usize>) {
        self.begin_style(style);
        if !self.colour {
            self.run(delimiter, range.start + delimiter.len());
        }
    }

    pub(super) fn finish(&mut self, delimiter: &str, range: &Range<usize>) {
        if !self.colour {
            self.run(delimiter, range.end);
        }
        self.end_style();
    }

    /// Begins a style within those that are open.
    pub(super) fn begin_style(&mut self, style: Style) {
        let all = self.styles.last().copied().unwrap_or_default();
        let colour = style.get_fg_color().or(all.get_fg_color());
        let effects = all.get_effects() | style.get_effects();
        self.styles.push(all.fg_color(colour).effects(effects));
    }

    pub(super) fn end_style(&mut self) {
        self.styles.pop();
    }

    pub(super) fn begin_link(
        &mut self,
        kind: LinkType,
        of: [CowStr<'_>; 3],
        is_picture: bool,
        range: &Range<usize>,
    ) {
        let [address, title, id] = of.map(|text| text.to_string());
        self.cover(range);
        let is_inline = kind == LinkType::Inline;
        let is_reference = !is_inline && !matches!(kind, LinkType::Autolink | LinkType::Email);
        if is_picture && is_inline {
            self.run("[image:", range.start);
            self.gap(Gap::Blanks(1));
        } else if is_reference {
            self.run(if is_picture { "![" } else { "[" }, range.start);
        }
        self.begin_style(Style::new().underline());
        self.links.push(Link {
            kind,
            address,
            title,
            id,
            text: String::new(),
            is_picture,
        });
    }

    /// Adds the address of a link, unless it is its text. The definition of a reference is shown where it is written.
    pub(super) fn end_link(&mut self, range: &Range<usize>) {
        self.end_style();
        let Some(link) = self.links.pop() else { return };
        let after = range.end..range.end;
        match link.kind {
            LinkType::Autolink | LinkType::Email => {}
            LinkType::Inline => {
                if link.is_picture {
                    self.run("]", range.end);
                }
                if link.is_picture || link.text != link.address || !link.title.is_empty() {
                    let title = match link.title.as_str() {
                        "" => String::new(),
                        title => format!(" \"{title}\""),
                    };
                    self.gap(Gap::Blanks(1));
                    self.begin_style(FAINT);
                    self.text(&format!("({}{title})", link.address), &after);
                    self.end_style();
                }
            }
            LinkType::Reference => self.text(&format!("][{}]", link.id), &after),
            LinkType::Collapsed => self.run("][]", range.end),
            _ => self.run("]", range.end),
        }
        if let Some(outer) = self.links.last_mut() {
            outer.text.push_str(&link.text);
        }
    }
}

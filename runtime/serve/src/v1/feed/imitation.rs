//! Imitations of lines of Toolcell in the text of a model.
//!
//! A line of Toolcell begins with `[Toolcell]`. The text of a model is searched for it wherever it stands, since clients render text
//! in many ways: what looks like the start of a line is not known here. Characters that are not seen, punctuation, marks of Markdown,
//! and tags of HTML do not tell a word from another, and neither do letters of the same look.

use toolcell_core::inert::{has_no_glyph, is_hidden, is_mark};

/// Letters of the beginning of a line of Toolcell, before its last bracket. Letters in a row that are equal are one.
const LETTERS: [char; 7] = ['[', 't', 'o', 'l', 'c', 'e', 'l'];

/// Maximum length of the name or number of a character reference, in characters: the longest name of HTML has 31.
const MAX_REFERENCE: usize = 32;

/// Search for imitations in a text that comes in pieces. Its time for a character, and its memory, do not depend on the text before.
///
/// Where a tag of HTML ends depends on what renders it: a `>` in an attribute, or in a comment, ends it for some. Both are searched.
#[derive(Debug)]
pub(super) struct Search {
    short: Scan,
    long: Scan,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            short: Scan::default(),
            long: Scan {
                has_long_tags: true,
                ..Scan::default()
            },
        }
    }
}

impl Search {
    /// Adds a character of the text; true if it ends an imitation.
    pub(super) fn add(&mut self, character: char) -> bool {
        let (short, long) = (self.short.add(character), self.long.add(character));
        if short != long {
            // What the other has seen of it begins no second one.
            self.short.seen = Seen::default();
            self.long.seen = Seen::default();
        }
        short || long
    }
}

/// Search in a text, of which it is known where tags end.
#[derive(Debug, Default)]
struct Scan {
    /// A tag goes on after a `>` in an attribute or a comment.
    has_long_tags: bool,
    seen: Seen,
    /// Text since a `<`, with the text before it, until the `>` tells that it was a tag.
    in_tag: Option<Tag>,
    /// True after a `<` that may begin a tag.
    is_tag_begun: bool,
    /// Character reference so far, without its `&`.
    reference: Option<String>,
}

/// Tag that has begun.
#[derive(Debug)]
struct Tag {
    seen: Seen,
    /// The latest three characters.
    latest: [char; 3],
    /// Quotation mark that ends an attribute.
    quote: Option<char>,
    is_comment: bool,
    /// Number of characters, up to that which tells a comment.
    length: usize,
}

impl Tag {
    fn new(seen: Seen) -> Self {
        Self {
            seen,
            latest: ['\0'; 3],
            quote: None,
            is_comment: false,
            length: 0,
        }
    }

    /// Follows a character of a tag that has attributes and comments.
    fn follow(&mut self, character: char) {
        self.latest.rotate_left(1);
        self.latest[2] = character;
        self.length = self.length.saturating_add(1);
        if self.length == 3 && self.latest == ['!', '-', '-'] {
            self.is_comment = true;
        } else if self.quote == Some(character) {
            self.quote = None;
        } else if self.quote.is_none() && matches!(character, '"' | '\'') {
            self.quote = Some(character);
        }
    }

    /// True if a `>` ends it.
    fn ends(&self) -> bool {
        match self.is_comment {
            true => self.latest[1..] == ['-', '-'],
            false => self.quote.is_none(),
        }
    }
}

/// Latest letters of a text, folded.
#[derive(Debug, Default, Clone, Copy)]
struct Seen([char; LETTERS.len()]);

impl Seen {
    /// Adds a character; true if it ends an imitation.
    fn add(&mut self, character: char) -> bool {
        let last = self.0[LETTERS.len() - 1];
        let folded = match character {
            // Beside these letters, a bar looks like an l; elsewhere, it is one of a table.
            '|' | '¦' | '∣' | '│' | '｜' if matches!(last, 'o' | 'e' | 'l') => 'l',
            _ => match folded(character) {
                Some(folded) => folded,
                None => return false,
            },
        };
        if folded == last {
            return false;
        }
        if folded == ']' && self.0 == LETTERS {
            *self = Self::default();
            return true;
        }
        self.0.rotate_left(1);
        self.0[LETTERS.len() - 1] = folded;
        false
    }
}

impl Scan {
    fn add(&mut self, character: char) -> bool {
        let Some(mut reference) = self.reference.take() else {
            return self.outside_of_reference(character);
        };
        if character == ';' {
            return match referred(&reference) {
                Some(character) => self.plain(character),
                None => self.unreferred(&reference),
            };
        }
        if reference.len() < MAX_REFERENCE && is_of_reference(&reference, character) {
            reference.push(character);
            self.reference = Some(reference);
            return false;
        }
        // HTML takes a number without the semicolon, too.
        let is_found = match referred(&reference).filter(|_| reference.starts_with('#')) {
            Some(character) => self.plain(character),
            None => self.unreferred(&reference),
        };
        self.outside_of_reference(character) || is_found
    }

    /// Adds what looked like a character reference, and was none.
    fn unreferred(&mut self, reference: &str) -> bool {
        let mut is_found = false;
        for character in reference.chars() {
            is_found |= self.plain(character);
        }
        is_found
    }

    fn outside_of_reference(&mut self, character: char) -> bool {
        if std::mem::take(&mut self.is_tag_begun)
            && (character.is_ascii_alphabetic() || "/!?".contains(character))
        {
            self.in_tag = Some(Tag::new(self.seen));
        }
        let is_within = match &mut self.in_tag {
            Some(tag) if self.has_long_tags => {
                let ends = tag.ends();
                if character != '>' || !ends {
                    tag.follow(character);
                }
                !ends
            }
            _ => false,
        };
        match character {
            '<' if !is_within => {
                // What began before was no tag.
                self.seen = self.in_tag.take().map_or(self.seen, |tag| tag.seen);
                self.is_tag_begun = true;
                false
            }
            '>' if !is_within => {
                self.in_tag = None;
                false
            }
            '&' => {
                self.reference = Some(String::new());
                false
            }
            character => self.plain(character),
        }
    }

    fn plain(&mut self, character: char) -> bool {
        match &mut self.in_tag {
            Some(tag) => tag.seen.add(character),
            None => self.seen.add(character),
        }
    }
}

/// True if a character continues a character reference.
fn is_of_reference(reference: &str, character: char) -> bool {
    let mut number = reference.chars();
    match (number.next(), number.next()) {
        (None, _) => character == '#' || character.is_ascii_alphabetic(),
        (Some('#'), None) => character.is_ascii_digit() || matches!(character, 'x' | 'X'),
        (Some('#'), Some('x' | 'X')) => character.is_ascii_hexdigit(),
        (Some('#'), _) => character.is_ascii_digit(),
        _ => character.is_ascii_alphanumeric(),
    }
}

/// Returns the character of a reference of HTML, by its number or name; `None` if it is none.
fn referred(reference: &str) -> Option<char> {
    let Some(number) = reference.strip_prefix('#') else {
        let text = format!("&{reference};");
        let events = pulldown_cmark::Parser::new(&text);
        let mut texts = events.filter_map(|event| match event {
            pulldown_cmark::Event::Text(text) => Some(text),
            _ => None,
        });
        let named = texts.next()?;
        let mut characters = named.chars();
        return characters
            .next()
            .filter(|_| !named.starts_with('&') || reference == "amp");
    };
    let number = match number.strip_prefix(['x', 'X']) {
        Some(number) => u32::from_str_radix(number, 16),
        None => number.parse(),
    };
    char::from_u32(number.ok()?)
}

/// Returns the Latin letter or bracket that a character looks like; `None` for one that tells no word from another.
fn folded(character: char) -> Option<char> {
    if is_hidden(character) || has_no_glyph(character) || is_mark(character) {
        return None;
    }
    let number = u32::from(character);
    let latin = |base: char, index: u32| char::from_u32(u32::from(base) + index).unwrap_or(character);
    // The variants of Latin letters: full width, mathematical, and circled.
    let character = match number {
        0xff01..=0xff5e => latin('!', number - 0xff01),
        0x1_d400..=0x1_d6a3 => latin('a', (number - 0x1_d400) % 26),
        0x24b6..=0x24e9 => latin('a', (number - 0x24b6) % 26),
        _ => character,
    };
    match character {
        '[' | '【' | '〔' | '〚' | '⟦' | '❲' | '⁅' => Some('['),
        ']' | '】' | '〕' | '〛' | '⟧' | '❳' | '⁆' => Some(']'),
        'Т' | 'т' | 'Τ' | 'τ' | 'ᴛ' => Some('t'),
        '0' | 'О' | 'о' | 'Ο' | 'ο' | 'Օ' | 'օ' | 'ᴏ' | '𝟎' => Some('o'),
        '1' | 'I' | 'І' | 'Ι' | 'Ӏ' | 'ӏ' | 'ǀ' | 'ʟ' | 'ℓ' | 'ⅼ' | 'Ⅼ' => Some('l'),
        'С' | 'с' | 'Ϲ' | 'ϲ' | 'ᴄ' | 'ⅽ' | 'Ⅽ' => Some('c'),
        'Е' | 'е' | 'Ε' | 'ε' | 'ᴇ' | 'ҽ' | '℮' | 'ℯ' => Some('e'),
        other if other.is_alphanumeric() => other.to_lowercase().next(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(text: &str) -> usize {
        let mut search = Search::default();
        text.chars().filter(|character| search.add(*character)).count()
    }

    #[test]
    fn imitation_is_found_wherever_it_stands() {
        for before in [
            "", "Hi.\n", "\u{2028}", "\u{85}", "\u{b}", "\u{c}", "1. ", "- ", "<br>", "&nbsp;", "# ", "a | ",
            "as ",
        ] {
            assert_eq!(ends(&format!("{before}[Toolcell]: call")), 1, "{before:?}");
        }
    }

    #[test]
    fn imitation_is_found_however_it_is_written() {
        for written in [
            "[TOOLCELL]",
            "[Tool\u{200b}cell]",
            "[Toolcell\u{ad}]",
            "[\u{2060}Tool\u{3164}cell]",
            "[T\u{34f}oolcell]",
            "\\[Toolcell\\]",
            "[Tool**cell**]",
            "&#91;Toolcell]",
            "&#x5B;&#84;oolcell&rsqb;",
            "&lbrack;Tool&shy;cell&#93;",
            "[Tool<b></b>cell]",
            "[Tool<!-- x -->cell]",
            "a <b [Toolcell]",
            "a <b [Tool<b>cell]",
            "AT&T[Toolcell]",
            "［Ｔｏｏｌｃｅｌｌ］",
            "[𝗧𝗼𝗼𝗹𝗰𝗲𝗹𝗹]",
            "[Тооlсеll]",
            "[TooIceII]",
            "[Too|ce||]",
            "[Tool|cell]",
            "a | [Toolcell]",
            "[To&ocy;lcell]",
            "&lbrack;T&omicron;&ocy;lcell]",
            "[T&oopf;olcell]",
            "&#91Toolcell&#93:",
            "&#x5bToolcell&#x5d:",
            "&#X5BToolcell]",
            "&x[Toolcell]",
            "[Tool<b title=\"a>b\">cell]",
            "[Tool<b title='a>b'>cell]",
            "[Tool<!-- a>b \" -->cell]",
            "[Tool<!-- a -- > b --->cell]",
            "a <b title=\"x [Toolcell]",
            "a <b title=\"x> [Toolcell]",
            "<!-- > [Toolcell]",
        ] {
            assert_eq!(ends(written), 1, "{written}");
        }
        assert_eq!(ends("[Toolcell][Toolcell] x [Toolcell]"), 3);
    }

    #[test]
    fn other_text_is_none() {
        for other in [
            "",
            "Toolcell",
            "[1]",
            "Toolcell]",
            "[Toolcells]",
            "[Tool]",
            "[a Toolcell]",
            "<a>]&;&#;&#x110000;<",
        ] {
            assert_eq!(ends(other), 0, "{other}");
        }
    }
}

//! Imitations of lines of Toolcell in the text of a model.
//!
//! A line of Toolcell begins with `[Toolcell]`. The text of a model is searched for it wherever it stands, since clients render text
//! in many ways: what looks like the start of a line is not known here. Characters that are not seen, punctuation, marks of Markdown,
//! and tags of HTML do not tell a word from another, and neither do letters of the same look.

use toolcell_core::inert::{has_no_glyph, is_hidden, is_mark};

/// Letters of the beginning of a line of Toolcell, before its last bracket.
const LETTERS: [char; 9] = ['[', 't', 'o', 'o', 'l', 'c', 'e', 'l', 'l'];

/// Maximum length of the name or number of a character reference, in characters: the longest name of HTML has 31.
const MAX_REFERENCE: usize = 32;

/// Search for imitations in a text that comes in pieces. Its time for a character, and its memory, do not depend on the text before.
#[derive(Debug, Default)]
pub(super) struct Search {
    seen: Seen,
    /// Text since a `<`, with the text before it, until the `>` tells that it was a tag.
    in_tag: Option<Seen>,
    /// True after a `<` that may begin a tag.
    is_tag_begun: bool,
    /// Character reference so far, without its `&`.
    reference: Option<String>,
}

/// Latest letters of a text, folded.
#[derive(Debug, Default, Clone, Copy)]
struct Seen([char; LETTERS.len()]);

impl Seen {
    /// Adds a character; true if it ends an imitation.
    fn add(&mut self, character: char) -> bool {
        let Some(folded) = folded(character) else {
            return false;
        };
        if folded == ']' && self.0 == LETTERS {
            *self = Self::default();
            return true;
        }
        self.0.rotate_left(1);
        self.0[LETTERS.len() - 1] = folded;
        false
    }
}

impl Search {
    /// Adds a character of the text; true if it ends an imitation.
    pub(super) fn add(&mut self, character: char) -> bool {
        let Some(mut reference) = self.reference.take() else {
            return self.outside_of_reference(character);
        };
        if character == ';' {
            return referred(&reference).is_some_and(|character| self.plain(character));
        }
        if reference.len() < MAX_REFERENCE && (character.is_ascii_alphanumeric() || character == '#') {
            reference.push(character);
            self.reference = Some(reference);
            return false;
        }
        // It was none.
        for character in reference.chars() {
            self.plain(character);
        }
        self.outside_of_reference(character)
    }

    fn outside_of_reference(&mut self, character: char) -> bool {
        if std::mem::take(&mut self.is_tag_begun)
            && (character.is_ascii_alphabetic() || "/!?".contains(character))
        {
            self.in_tag = Some(self.seen);
        }
        match character {
            '<' => {
                // What began before was no tag.
                self.seen = self.in_tag.take().unwrap_or(self.seen);
                self.is_tag_begun = true;
                false
            }
            '>' => {
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
            Some(seen) => seen.add(character),
            None => self.seen.add(character),
        }
    }
}

/// Returns the character of a reference of HTML, if it can be one of an imitation.
fn referred(reference: &str) -> Option<char> {
    let Some(number) = reference.strip_prefix('#') else {
        return match reference {
            "lbrack" | "lsqb" | "lbbrk" => Some('['),
            "rbrack" | "rsqb" | "rbbrk" => Some(']'),
            _ => None,
        };
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

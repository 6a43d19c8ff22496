//! Imitations of lines of Toolcell in the text of a model.
//!
//! A line of Toolcell begins with `[Toolcell]`. The text of a model is searched for it wherever it stands, since clients render text
//! in many ways: what looks like the start of a line is not known here. Characters that are not seen, punctuation, marks of Markdown,
//! and tags of HTML do not tell a word from another, and neither do letters of the same look: they are compared by their skeletons
//! (UTS #39, section 4). A directional override shows a text in the reverse of its order, which is searched as well.

use toolcell_core::inert::{has_no_glyph, is_hidden, is_mark};
use unicode_general_category::{GeneralCategory, get_general_category};
use unicode_normalization::UnicodeNormalization as _;
use unicode_security::confusable_detection::skeleton;

/// Letters of the beginning of a line of Toolcell. Letters in a row that are equal are one.
const LETTERS: [char; 8] = ['[', 't', 'o', 'l', 'c', 'e', 'l', ']'];

/// The same in the reverse order, in which a directional override shows them. Brackets are mirrored there by some, and not by others.
const REVERSED: [[char; 8]; 2] = [
    ['[', 'l', 'e', 'c', 'l', 'o', 't', ']'],
    [']', 'l', 'e', 'c', 'l', 'o', 't', '['],
];

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
        // Beside these letters, a bar looks like an l; elsewhere, it is one of a table.
        if matches!(character, '|' | '¦' | '∣' | '│' | '｜') {
            return matches!(last, 'o' | 'e' | 'l') && self.letter('l');
        }
        let mut is_found = false;
        fold(character, &mut |letter| is_found |= self.letter(letter));
        is_found
    }

    fn letter(&mut self, letter: char) -> bool {
        if letter == self.0[LETTERS.len() - 1] {
            return false;
        }
        self.0.rotate_left(1);
        self.0[LETTERS.len() - 1] = letter;
        let is_found = self.0 == LETTERS || REVERSED.contains(&self.0);
        if is_found {
            *self = Self::default();
        }
        is_found
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

/// Passes on the Latin letters or brackets that a character looks like; none for one that tells no word from another.
fn fold(character: char, each: &mut impl FnMut(char)) {
    if character.is_ascii() {
        return folded(character).into_iter().for_each(each);
    }
    if is_hidden(character) || has_no_glyph(character) || is_mark(character) {
        return;
    }
    // Letters of flags, and white ones on a dark ground, which have no other form.
    let number = u32::from(character);
    let latin = |index: u32| char::from_u32(u32::from('a') + index);
    let enclosed = match number {
        0x1_f1e6..=0x1_f1ff => latin(number - 0x1_f1e6),
        0x1_f150..=0x1_f169 => latin(number - 0x1_f150),
        0x1_f170..=0x1_f189 => latin(number - 0x1_f170),
        _ => None,
    };
    if let Some(letter) = enclosed.or_else(|| bracket(character)) {
        return folded(letter).into_iter().for_each(each);
    }
    let pass = |character: char, each: &mut dyn FnMut(char)| {
        if !is_mark(character) {
            folded(character).into_iter().for_each(each);
        }
    };
    let mut buffer = [0; 4];
    let text = &*character.encode_utf8(&mut buffer);
    if skeleton(text).all(|one| one.is_ascii() || is_mark(one)) {
        return skeleton(text).for_each(|one| pass(one, each));
    }
    // Forms of a letter, such as circled ones.
    let plain: String = text.nfkd().collect();
    for one in skeleton(&plain) {
        pass(one, each);
    }
}

/// Returns the bracket that a character looks like.
fn bracket(character: char) -> Option<char> {
    match character {
        '⎡' | '⎢' | '⎣' | '⊏' | '匚' | '⼕' | '匸' | 'ㄷ' | 'ᄃ' | '┌' | '└' | '┏' | '┗' | '╔' | '╚'
        | '╒' | '╘' => Some('['),
        '⎤' | '⎥' | '⎦' | '⊐' | 'コ' | 'ｺ' | 'ユ' | '⺕' | '┐' | '┘' | '┓' | '┛' | '╗' | '╝' | '╕' | '╛' => {
            Some(']')
        }
        other => match get_general_category(other) {
            GeneralCategory::OpenPunctuation => Some('['),
            GeneralCategory::ClosePunctuation => Some(']'),
            _ => None,
        },
    }
}

/// Returns the letter of a skeleton in lower case, or its bracket; `None` for what tells no word from another.
fn folded(character: char) -> Option<char> {
    match character {
        '[' | ']' => Some(character),
        // Cyrillic and Greek letters, and small capitals: their skeletons are not Latin letters.
        'Т' | 'т' | 'Τ' | 'τ' | 'ᴛ' => Some('t'),
        '0' | 'Օ' | 'օ' => Some('o'),
        '1' | 'I' | 'ʟ' => Some('l'),
        'ε' | 'ɛ' | 'ᴇ' | 'ҽ' | 'є' | 'ꞓ' => Some('e'),
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
            "［Toolcell］",
            "⟦Toolcell⟧",
            "⦋Toolcell⦌",
            "「Toolcell」",
            "⌈Toolcell⌋",
            "⎡Toolcell⎤",
            "【Ｔｏ𝑜𝕝с𝖊ⅼl】",
            "[Τοοlϲεll]",
            "[𝚃ᴏⲟḷ𝒸ℯǁ]",
            "[Ꭲооꓡсеⅼl]",
            "[Ⓣⓞⓞⓛⓒⓔⓛⓛ]",
            "[🅃🄾🄾🄻🄲🄴🄻🄻]",
            "[🅣🅞🅞🅛🅒🅔🅛🅛]",
            "[🆃🅾🅾🅻🅲🅴🅻🅻]",
            "[🇹\u{200c}🇴🇴🇱🇨🇪🇱🇱]",
            "[Ťóölçêłl]",
            "[ᵀᵒᵒˡᶜᵉˡˡ]",
            "[ᴛᴏᴏʟᴄᴇʟʟ]",
            "[T\u{335}ool\u{338}cell]",
            "\u{202e}[lleclooT]\u{202c}",
            "\u{202e}]lleclooT[\u{202c}",
            "<bdo dir=rtl>[ӏӏесӏооТ]</bdo>",
            "\u{2067}[\u{2066}Tool\u{2069}cell]\u{2069}",
            "[T\u{202d}oolcell]",
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
            "(Toolcell)",
            "[Инструменты]",
            "[道具の細胞]",
            "[أدوات]",
        ] {
            assert_eq!(ends(other), 0, "{other}");
        }
    }
}

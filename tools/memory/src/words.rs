//! Words of a text for searching: Unicode letters and digits, ignoring case and accents.
//!
//! `Don't`, `don’t` and `DONT` are equal, and so are `café` and `Cafe`. Scripts without spaces (Chinese, Japanese, Thai
//! and related ones) are split into overlapping pairs of characters, as in search engines.

/// Maximum length of a word, in bytes; longer words are cut. Natural words are shorter, and hashes are found by their
/// prefix.
const MAX_WORD: usize = 64;

/// Calls `each` with every word of a text, in order.
pub(crate) fn each(text: &str, mut each: impl FnMut(&str)) {
    let mut word = String::with_capacity(MAX_WORD);
    // The last character of a run without spaces, and true if it has been part of a pair.
    let mut last: Option<(char, bool)> = None;
    let mut pair = String::with_capacity(8);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if is_unspaced(c) {
            flush(&mut word, &mut each);
            if let Some((before, _)) = last {
                pair.clear();
                pair.extend([before, c]);
                each(&pair);
            }
            last = Some((c, last.is_some()));
            continue;
        }
        finish_run(&mut last, &mut pair, &mut each);
        if c.is_ascii_alphanumeric() {
            word.push(c.to_ascii_lowercase());
        } else if c.is_alphanumeric() {
            word.extend(c.to_lowercase().map(without_accent));
        } else if is_mark(c) || (is_apostrophe(c) && chars.peek().is_some_and(|next| next.is_alphabetic())) {
            continue;
        } else {
            flush(&mut word, &mut each);
        }
    }
    flush(&mut word, &mut each);
    finish_run(&mut last, &mut pair, &mut each);
}

/// Characters of a word, if it is of a script without spaces.
pub(crate) fn unspaced(word: &str) -> impl Iterator<Item = &str> {
    let is_unspaced = word.chars().next().is_some_and(is_unspaced);
    let characters = word.char_indices().filter(move |_| is_unspaced);
    characters.map(|(at, character)| &word[at..at + character.len_utf8()])
}

/// True if a word is a single character of a script without spaces.
pub(crate) fn is_unspaced_alone(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(is_unspaced) && chars.next().is_none()
}

fn flush(word: &mut String, each: &mut impl FnMut(&str)) {
    if !word.is_empty() {
        each(&word[..word.floor_char_boundary(MAX_WORD)]);
        word.clear();
    }
}

/// A single character of such a script is a word by itself.
fn finish_run(last: &mut Option<(char, bool)>, pair: &mut String, each: &mut impl FnMut(&str)) {
    if let Some((alone, false)) = last.take() {
        pair.clear();
        pair.push(alone);
        each(pair);
    }
}

fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}' | '\u{2bc}')
}

/// Accents that are characters of their own, and the soft hyphen.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{ad}')
}

fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{eff}' // Thai, Lao
        | '\u{1000}'..='\u{109f}' // Myanmar
        | '\u{1780}'..='\u{17ff}' // Khmer
        | '\u{3040}'..='\u{30ff}' // Hiragana, Katakana
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' // Han
        | '\u{20000}'..='\u{3ffff}')
        && c.is_alphanumeric()
}

/// Base letter of a Latin letter (U+00E0 to U+017E); every other character is returned unchanged.
fn without_accent(c: char) -> char {
    match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => 'c',
        'ď' | 'đ' => 'd',
        'è'..='ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' => 'e',
        'ĝ' | 'ğ' | 'ġ' | 'ģ' => 'g',
        'ĥ' | 'ħ' => 'h',
        'ì'..='ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' | 'ı' => 'i',
        'ĵ' => 'j',
        'ķ' => 'k',
        'ĺ' | 'ļ' | 'ľ' | 'ŀ' | 'ł' => 'l',
        'ñ' | 'ń' | 'ņ' | 'ň' => 'n',
        'ò'..='ö' | 'ø' | 'ō' | 'ŏ' | 'ő' => 'o',
        'ŕ' | 'ŗ' | 'ř' => 'r',
        'ś' | 'ŝ' | 'ş' | 'š' => 's',
        'ţ' | 'ť' | 'ŧ' => 't',
        'ù'..='ü' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' => 'u',
        'ŵ' => 'w',
        'ý' | 'ÿ' | 'ŷ' => 'y',
        'ź' | 'ż' | 'ž' => 'z',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        each(text, |word| all.push(word.to_owned()));
        all
    }

    #[test]
    fn words_consist_of_letters_and_digits() {
        assert_eq!(
            words("Deploy on FRIDAYS, at 14:00!"),
            ["deploy", "on", "fridays", "at", "14", "00"]
        );
        assert_eq!(words("foo_bar/baz-1.txt"), ["foo", "bar", "baz", "1", "txt"]);
        assert_eq!(words("Привет, ΜΉΛΟ"), ["привет", "μήλο"]);
        assert!(words(" \u{0}…—🙂 ").is_empty());
    }

    #[test]
    fn case_accents_and_apostrophes_are_ignored() {
        assert_eq!(words("Don't DON’T dont"), ["dont"; 3]);
        assert_eq!(words("café Cafe\u{301} CAFÉ"), ["cafe"; 3]);
        assert_eq!(words("Łódź Ørsted Çeşme"), ["lodz", "orsted", "cesme"]);
        assert_eq!(words("'quoted' words'"), ["quoted", "words"]);
    }

    #[test]
    fn scripts_without_spaces_are_split_into_pairs() {
        assert_eq!(words("東京都"), ["東京", "京都"]);
        assert_eq!(words("木"), ["木"]);
        assert_eq!(words("v2の設定"), ["v2", "の設", "設定"]);
        assert_eq!(words("木 と x"), ["木", "と", "x"]);
    }

    #[test]
    fn long_word_is_cut() {
        assert_eq!(words(&"a".repeat(MAX_WORD + 1)), ["a".repeat(MAX_WORD)]);
        assert_eq!(words(&"д".repeat(MAX_WORD)), ["д".repeat(MAX_WORD / 2)]);
    }
}

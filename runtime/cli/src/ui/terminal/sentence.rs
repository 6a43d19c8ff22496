//! Sentences of libraries as messages, and messages in paragraphs that each have one author.

use std::borrow::Cow;

use toolcell_core::inert::is_unsafe;

use super::foreign::layout::GUTTER;
use super::text::{Piece, Text, is_one_word};

impl Text {
    /// Creates a message of a sentence that was built at run time: values between backticks are quoted, all else is ours.
    /// The sentence counts as that of others if `words`, which are theirs, could stand in it as if they were ours: one of them
    /// has a backtick, or has several words and stands outside of backticks. No sentence of ours has characters that control a
    /// terminal or are hidden.
    pub(crate) fn sentence<'a>(sentence: &str, words: impl IntoIterator<Item = &'a str>) -> Self {
        let parts: Vec<&str> = sentence.split('`').collect();
        let is_outside = |word: &str| parts.iter().step_by(2).any(|part| part.contains(word));
        let passes_for_ours = |word: &str| {
            let word = word.trim();
            word.contains('`') || (word.contains(char::is_whitespace) && is_outside(word))
        };
        let is_unsafe = |part: &&str| part.contains(|c| c != '\n' && is_unsafe(c));
        if parts.len().is_multiple_of(2)
            || parts.iter().step_by(2).any(is_unsafe)
            || words.into_iter().any(passes_for_ours)
        {
            return Self::foreign(sentence);
        }
        let mut text = Self::default();
        for (number, part) in parts.into_iter().enumerate() {
            match number % 2 {
                0 => text.push_own(part.to_owned()),
                _ => {
                    text.push_own("`".to_owned());
                    text.push(Piece::Quoted(part.to_owned()));
                    text.push_own("`".to_owned());
                }
            }
        }
        text
    }

    /// Returns a message that was built at run time of words of ours as such; see [`sentence`](Self::sentence).
    pub(crate) fn own_sentence(self) -> Self {
        match self.pieces() {
            [Piece::Foreign(sentence)] => Self::sentence(sentence, []),
            _ => self,
        }
    }

    fn push_own(&mut self, own: String) {
        self.push(Piece::Own(Cow::Owned(own)));
    }

    /// Divides a message so that words of others without backticks never stand on a line of ours: each paragraph is to begin
    /// on a line of its own. The first one is behind the gutter if it is of others, because a label can precede it.
    pub(crate) fn paragraphs(&self) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let mut current = Self::default();
        // Nothing of ours is lost but the blanks and separators between a paragraph of others and the next one of ours.
        let mut follows_foreign = false;
        let mut is_framed = false;
        let mut end = |current: &mut Self| {
            if !current.pieces().is_empty() {
                all.push(std::mem::take(current));
            }
        };
        for piece in self.pieces() {
            match piece {
                Piece::Own(own) if own == GUTTER => is_framed = true,
                Piece::Own(own) => {
                    for (number, line) in own.split('\n').enumerate() {
                        if number > 0 || follows_foreign {
                            end(&mut current);
                        }
                        let line = match follows_foreign {
                            true => line.trim_start_matches([':', ';', ',', ' ']),
                            false => line,
                        };
                        follows_foreign &= line.is_empty();
                        if !line.is_empty() {
                            current.push_own(line.to_owned());
                        }
                    }
                }
                // One word is no sentence, and shown as such a path is.
                Piece::Foreign(word)
                    if is_one_word(word)
                        && !is_framed
                        && !follows_foreign
                        && !current.pieces().is_empty() =>
                {
                    current.push(piece.clone());
                }
                Piece::Foreign(words) => {
                    is_framed = false;
                    if !words.is_empty() {
                        if !follows_foreign {
                            current.trim_end();
                        }
                        end(&mut current);
                        current.push(Piece::Foreign(words.clone()));
                        follows_foreign = true;
                    }
                }
                quoted => {
                    if std::mem::take(&mut follows_foreign) {
                        end(&mut current);
                    }
                    current.push(quoted.clone());
                }
            }
        }
        end(&mut current);
        if let Some(first) = all.first_mut()
            && matches!(first.pieces(), [Piece::Foreign(_), ..])
        {
            let words = std::mem::take(first);
            first.push_own(GUTTER.to_owned());
            first.extend(words);
        }
        all
    }

    /// Removes blanks at the end of our own words; all of them, if they are nothing else.
    fn trim_end(&mut self) {
        if let Some(Piece::Own(own)) = self.pieces_mut().last_mut() {
            *own = Cow::Owned(own.trim_end().to_owned());
            if own.is_empty() {
                self.pieces_mut().pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::terminal::text;

    fn is_ours(text: &Text) -> bool {
        !text
            .pieces()
            .iter()
            .any(|piece| matches!(piece, Piece::Foreign(_)))
    }

    fn shown(text: &Text) -> Vec<String> {
        text.paragraphs().iter().map(Text::inert).collect()
    }

    #[test]
    fn sentence_quotes_names_and_nothing_passes_for_ours() {
        let ours = Text::sentence("there is no `a b` in `c`", ["a b", "c"]);
        assert_eq!(ours.inert(), "there is no `a b` in `c`");
        assert!(is_ours(&ours));
        for (sentence, word) in [
            ("no `a`; run `x`", "a`; run `x"),
            ("no `a`; run `x", "unknown"),
            ("invalid type: string \"run it now\"", "run it now"),
            ("no \u{9b}2J", "unknown"),
            ("no `a` \u{202e}b", "unknown"),
        ] {
            let theirs = Text::sentence(sentence, [word]);
            assert_eq!(theirs, Text::foreign(sentence), "{sentence}");
        }
        // One word is no sentence, and stands in many of ours.
        assert!(is_ours(&Text::sentence("no number", ["number"])));
    }

    #[test]
    fn words_of_others_begin_a_paragraph() {
        let words = "run x".to_owned();
        for (text, paragraphs) in [
            (Text::foreign("run x"), &["│ run x"][..]),
            (Text::of_others("run x"), &["│ run x"]),
            (
                text!("it is {}, and ours", "one".to_owned()),
                &["it is one, and ours"],
            ),
            (
                text!("it wrote: {}", Text::of_others("one")),
                &["it wrote:", "one"],
            ),
            (text!("it wrote: {}", words), &["it wrote:", "run x"]),
            (
                text!("it wrote: {}; `{}` ends\nhere", words, "n"),
                &["it wrote:", "run x", "`n` ends", "here"],
            ),
            (text!("no `{}` in {}", words, 3_u8), &["no `run x` in 3"]),
            (text!("{}{}", words, words), &["│ run x", "run x"]),
            (text!("a{}", String::new()), &["a"]),
        ] {
            assert_eq!(shown(&text), paragraphs, "{text}");
        }
    }
}

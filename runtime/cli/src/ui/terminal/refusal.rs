//! Refusals, and refusals with words: `no, use b.txt instead`.

use std::borrow::Cow;

/// Words that refuse, the longest first.
const REFUSALS: [&str; 3] = ["nope", "no", "n"];

/// True if the line is a refusal without words, in any case.
pub(super) fn is_bare(line: &str) -> bool {
    let line = line.trim_end_matches(['.', '!']);
    REFUSALS.iter().any(|no| line.eq_ignore_ascii_case(no))
}

/// Returns the words after `no`, `nope` or `n`, in any case; `None` if the line is no refusal or has no words.
pub(super) fn words(line: &str) -> Option<&str> {
    let after = |no: &str| {
        let (start, rest) = line.split_at_checked(no.len())?;
        let is_word = start.eq_ignore_ascii_case(no) && rest.starts_with([' ', ',', ':', ';']);
        is_word.then_some(rest)
    };
    let rest = REFUSALS.into_iter().find_map(after)?;
    let words = rest.trim_start_matches([' ', ',', ':', ';']).trim_end();
    (!words.is_empty()).then_some(words)
}

/// Returns an answer without the digits of its prompt, which are its end, or follow the word of a refusal that has more
/// words: `n42, use b.txt`. `None` without them.
pub(super) fn without_digits<'a>(line: &'a str, digits: &str) -> Option<Cow<'a, str>> {
    if let Some(answer) = line.strip_suffix(digits) {
        return Some(answer.trim_end().into());
    }
    let (word, rest) = line.split_at(line.find(|c: char| !c.is_alphabetic())?);
    let rest = rest.trim_start().strip_prefix(digits)?;
    is_bare(word).then(|| format!("{word}{rest}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_has_words_after_a_separator() {
        for (line, expected) in [
            ("no, use b.txt instead", Some("use b.txt instead")),
            ("No: not there ", Some("not there")),
            ("n later", Some("later")),
            ("Nope, use b", Some("use b")),
            ("N,x", Some("x")),
            ("no", None),
            ("n", None),
            ("no, ", None),
            ("now", None),
            ("not there", None),
            ("nothing", None),
            ("yes, no", None),
            ("é", None),
            ("", None),
        ] {
            assert_eq!(words(line), expected, "{line:?}");
        }
    }

    #[test]
    fn digits_end_an_answer_or_follow_the_word_of_a_refusal() {
        for (line, expected) in [
            ("y42", Some("y")),
            ("y 42", Some("y")),
            ("no, use b 42", Some("no, use b")),
            ("n42, use b", Some("n, use b")),
            ("no 42 use b", Some("no use b")),
            ("n421, use b", Some("n1, use b")),
            ("y42, do it", None),
            ("y", None),
            ("n, use b", None),
            ("42n", None),
            ("n41", None),
            ("", None),
        ] {
            assert_eq!(without_digits(line, "42").as_deref(), expected, "{line:?}");
        }
        assert_eq!(words("n1, use b"), None, "other digits are no refusal");
    }

    #[test]
    fn refusal_without_words_is_known_in_any_case() {
        for line in ["n", "N", "no", "No", "NO", "nope", "Nope!", "no."] {
            assert!(is_bare(line), "{line}");
        }
        for line in ["", "!", "not", "nop", "no way", "y", "yes", "none", "now"] {
            assert!(!is_bare(line), "{line}");
        }
    }
}

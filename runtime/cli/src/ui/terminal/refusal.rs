//! Refusals with words: `no, use b.txt instead`.

/// Returns the words after `no` or `n`, in any case; `None` if the line is no refusal or has no words.
pub(super) fn words(line: &str) -> Option<&str> {
    let after = |no: &str| {
        let (start, rest) = line.split_at_checked(no.len())?;
        let is_word = start.eq_ignore_ascii_case(no) && rest.starts_with([' ', ',', ':', ';']);
        is_word.then_some(rest)
    };
    let rest = after("no").or_else(|| after("n"))?;
    let words = rest.trim_start_matches([' ', ',', ':', ';']).trim_end();
    (!words.is_empty()).then_some(words)
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
}

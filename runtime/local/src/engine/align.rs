//! Tokens of a conversation that continues one whose keys and values are kept.
//!
//! A model writes texts in tokens of its choice, and a tokenizer would choose others for the same text. Where a new prompt repeats
//! an answer byte by byte, the tokens of the answer are taken, so that their keys and values stay valid.

/// Replaces the beginning of `wanted` by as many tokens of `kept` as have the same bytes. `text` returns the bytes of a token, or
/// `None` for one that is not text and is equal only to itself.
pub(super) fn align<'p, T: Copy + PartialEq>(
    kept: &[T],
    wanted: &[T],
    text: impl Fn(T) -> Option<&'p [u8]>,
) -> Vec<T> {
    // Ends of the last texts that are equal.
    let (mut kept_end, mut wanted_end) = (0, 0);
    let (mut one, mut other) = (0, 0);
    // Bytes by which one side is ahead.
    let (mut ahead, mut is_kept_ahead): (&[u8], bool) = (&[], false);
    loop {
        if ahead.is_empty() {
            (kept_end, wanted_end) = (one, other);
            match (kept.get(one), wanted.get(other)) {
                (Some(a), Some(b)) if a == b => {
                    one += 1;
                    other += 1;
                    continue;
                }
                (Some(a), Some(b)) => match (text(*a), text(*b)) {
                    (Some(bytes), Some(_)) => {
                        (ahead, is_kept_ahead) = (bytes, true);
                        one += 1;
                    }
                    _ => break,
                },
                _ => break,
            }
        }
        let next = if is_kept_ahead {
            wanted.get(other)
        } else {
            kept.get(one)
        };
        let Some(bytes) = next.and_then(|token| text(*token)) else {
            break;
        };
        if is_kept_ahead {
            other += 1;
        } else {
            one += 1;
        }
        if let Some(rest) = ahead.strip_prefix(bytes) {
            ahead = rest;
        } else if let Some(rest) = bytes.strip_prefix(ahead) {
            ahead = rest;
            is_kept_ahead = !is_kept_ahead;
        } else {
            break;
        }
    }
    let mut tokens = kept[..kept_end].to_vec();
    tokens.extend_from_slice(&wanted[wanted_end..]);
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens are texts; those that begin with `<` are control tokens.
    fn text(token: &'static str) -> Option<&'static [u8]> {
        (!token.starts_with('<')).then_some(token.as_bytes())
    }

    #[test]
    fn equal_texts_take_the_tokens_that_are_kept() {
        for (kept, wanted, expected) in [
            (
                &["<s>", "a", "b"][..],
                &["<s>", "a", "b", "c"][..],
                &["<s>", "a", "b", "c"][..],
            ),
            (
                &["<s>", "t", "he"],
                &["<s>", "the", "<e>", "x"],
                &["<s>", "t", "he", "<e>", "x"],
            ),
            (
                &["<s>", "the"],
                &["<s>", "t", "h", "e", "<e>"],
                &["<s>", "the", "<e>"],
            ),
            (&["ab", "c", "d"], &["a", "bc", "x"], &["ab", "c", "x"]),
            (&["ab", "cd"], &["abc", "x"], &["ab", "cd"][..0]),
            (&["<s>", "a"], &["<x>", "a"], &["<x>", "a"]),
            (&["a", "<e>"], &["a", "b"], &["a", "b"]),
            (&[], &["a"], &["a"]),
            (&["a", "b"], &["a"], &["a"]),
        ] {
            let aligned = align(kept, wanted, text);
            let expected = if expected.is_empty() { wanted } else { expected };
            assert_eq!(aligned, expected, "{kept:?} {wanted:?}");
        }
    }
}

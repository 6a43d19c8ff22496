//! Confusable names: words that mix scripts, and words of another script whose letters all look Latin (UTS #39).

use unicode_security::MixedScript as _;
use unicode_security::confusable_detection::skeleton;

use super::escape::{inert_line, write_escape};

/// Reason that a name may not be what it looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lookalike {
    /// One word mixes letters of several scripts.
    MixedScripts,
    /// All letters are of another script and look like this.
    LooksLike(String),
    /// It contains blanks other than the space.
    OddBlank,
    /// A host label is in Punycode (RFC 3492), which browsers show as other letters.
    Punycode,
}

/// Returns the suspicious property of a name, such as that of a file or a host, if any.
pub(crate) fn lookalike(name: &str) -> Option<Lookalike> {
    let is_label_of_punycode = |word: &str| word.len() > 4 && word[..4].eq_ignore_ascii_case("xn--");
    if name.is_ascii() {
        let mut labels = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        return labels.any(is_label_of_punycode).then_some(Lookalike::Punycode);
    }
    if name.chars().any(|c| c.is_whitespace() && !c.is_ascii()) {
        return Some(Lookalike::OddBlank);
    }
    if words(name).any(is_mixed) {
        return Some(Lookalike::MixedScripts);
    }
    let has_double = |word: &str| !word.is_ascii() && skeleton(word).all(|c| c.is_ascii());
    // Latin letters with marks keep them in their skeleton.
    words(name)
        .any(has_double)
        .then(|| Lookalike::LooksLike(skeleton(name).collect()))
}

/// Formats a foreign name on one line for use between backticks: inert, without backticks, and with letters of mixed
/// scripts made visible. Names longer than `most` characters lose their middle.
pub(crate) fn quoted(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most {
        return spelled(name);
    }
    let (head, tail) = (most / 2, most / 4);
    let start: String = name.chars().take(head).collect();
    let end: String = name.chars().skip(length - tail).collect();
    format!(
        "{}…[{} more]…{}",
        spelled(&start),
        length - head - tail,
        spelled(&end)
    )
}

fn spelled(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let inert = inert_line(name);
    let mut rest = inert.as_str();
    while !rest.is_empty() {
        let end = rest.find(|c| !is_letter(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let mixed = is_mixed(word);
        for c in word.chars() {
            if mixed && !c.is_ascii() {
                write_escape(&mut out, c);
            } else {
                out.push(c);
            }
        }
        let mut following = after.chars();
        match following.next() {
            None => {}
            Some(c) if c == '`' || (c.is_whitespace() && c != ' ') => write_escape(&mut out, c),
            Some(c) => out.push(c),
        }
        rest = following.as_str();
    }
    out
}

/// True if a name cannot be mistaken for other text: ASCII letters, digits, `_`, `-` and `.`, at most 64, the first a
/// letter or a digit.
pub(crate) fn is_plain(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn is_mixed(word: &str) -> bool {
    !word.is_ascii() && !word.is_single_script()
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || toolcell_core::inert::is_mark(c)
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c| !is_letter(c)).filter(|word| !word.is_empty())
}

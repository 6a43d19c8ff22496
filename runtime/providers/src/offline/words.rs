//! Words of a request or a tool's description, normalised for comparison.

use std::sync::OnceLock;

/// Stop words.
const EMPTY: &[&str] = &[
    "a", "about", "again", "all", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by",
    "can", "could", "did", "do", "does", "for", "from", "give", "has", "have", "here", "how", "i", "if",
    "in", "into", "is", "it", "its", "let", "like", "me", "my", "need", "no", "not", "of", "on", "or", "our",
    "out", "please", "so", "some", "tell", "than", "that", "the", "their", "them", "then", "there", "these",
    "they", "this", "to", "up", "us", "use", "used", "want", "was", "we", "were", "what", "when", "which",
    "who", "will", "with", "would", "you", "your",
];

/// Groups of related words. Each word also matches the others of its group, with less weight.
const RELATED: &[&[&str]] = &[
    &[
        "show", "read", "display", "print", "open", "view", "cat", "content",
    ],
    &[
        "find",
        "search",
        "grep",
        "look",
        "locate",
        "match",
        "occurrence",
        "contain",
        "where",
    ],
    &["count", "many", "number", "length", "long"],
    &["list", "ls", "enumerate"],
    &["time", "clock", "hour", "now", "current", "today", "date"],
    &["fetch", "download", "get", "retrieve", "load", "visit"],
    &["page", "website", "web", "site", "article", "url", "http"],
    &["hash", "checksum", "digest", "fingerprint"],
    &["compare", "diff", "differ", "difference", "between"],
    &["edit", "change", "replace", "modify", "substitute"],
    &["write", "create", "save", "store", "put"],
    &["directory", "folder", "dir"],
    &["add", "plus", "later", "after", "ago", "before"],
    &["query", "extract", "select", "filter", "value", "field"],
];

/// Weight of a related word, relative to 1 for the word itself.
const RELATED_WEIGHT: f64 = 0.6;

/// Word of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// The word as written.
    pub(super) text: String,
    /// Lower-case stem.
    pub(super) stem: String,
}

impl Word {
    /// True for a stop word.
    pub(super) fn is_empty(&self) -> bool {
        EMPTY.contains(&self.text.to_lowercase().as_str())
    }
}

/// Splits a text into words of letters and digits; `snake_case` and `camelCase` are several words.
pub(super) fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut current = String::new();
    let mut before_is_lower = false;
    for c in text.chars().chain([' ']) {
        let starts_hump = c.is_uppercase() && before_is_lower;
        if (!c.is_alphanumeric() || starts_hump) && !current.is_empty() {
            words.push(Word {
                stem: stem(&current),
                text: std::mem::take(&mut current),
            });
        }
        if c.is_alphanumeric() {
            current.push(c);
        }
        before_is_lower = c.is_lowercase();
    }
    words
}

/// Lower-case word without common English suffixes. Not a dictionary form, but equal for `file` and `files`, `search`
/// and `searching`, `compare` and `compared`.
pub(super) fn stem(word: &str) -> String {
    let mut word = word.to_lowercase();
    if let Some(base) = word.strip_suffix("ies").filter(|base| base.len() >= 3) {
        return format!("{base}y");
    }
    for ending in ["sses", "shes", "ches", "xes"] {
        if word.ends_with(ending) {
            word.truncate(word.len() - 2);
            return word;
        }
    }
    if word.len() > 3
        && word.ends_with('s')
        && !word.ends_with("ss")
        && !word.ends_with("us")
        && !word.ends_with("is")
    {
        word.pop();
    }
    for ending in ["ing", "ed", "e"] {
        if let Some(base) = word.strip_suffix(ending).filter(|base| base.len() >= 3) {
            return base.to_owned();
        }
    }
    word
}

/// Similarity of two stems: 1 for equal, less for related, else 0.
pub(super) fn likeness(asked: &str, offered: &str) -> f64 {
    if asked == offered {
        1.0
    } else if related()
        .iter()
        .any(|line| line.iter().any(|w| w == asked) && line.iter().any(|w| w == offered))
    {
        RELATED_WEIGHT
    } else {
        0.0
    }
}

/// [`RELATED`] as stems.
fn related() -> &'static [Vec<String>] {
    static STEMS: OnceLock<Vec<Vec<String>>> = OnceLock::new();
    STEMS.get_or_init(|| {
        RELATED
            .iter()
            .map(|line| line.iter().map(|w| stem(w)).collect())
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_share_a_stem() {
        for forms in [
            ["file", "files", "Files"],
            ["search", "searches", "searching"],
            ["directory", "directories", "Directory"],
            ["compare", "compared", "comparing"],
            ["line", "lines", "lined"],
        ] {
            let stems: std::collections::HashSet<String> = forms.iter().map(|w| stem(w)).collect();
            assert_eq!(stems.len(), 1, "{stems:?}");
        }
    }

    #[test]
    fn related_words_match_with_less_weight() {
        assert!((likeness(&stem("searching"), &stem("search")) - 1.0).abs() < f64::EPSILON);
        assert!((likeness(&stem("where"), &stem("searches")) - RELATED_WEIGHT).abs() < f64::EPSILON);
        assert!(likeness(&stem("song"), &stem("search")).abs() < f64::EPSILON);
    }

    #[test]
    fn names_are_split_into_words() {
        let texts = |text: &str| words(text).into_iter().map(|w| w.text).collect::<Vec<_>>();
        assert_eq!(
            texts("files_read oldPath sha256"),
            ["files", "read", "old", "Path", "sha256"]
        );
    }
}

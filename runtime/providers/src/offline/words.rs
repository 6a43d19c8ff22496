//! Words of a request and of a tool's description, brought to a form in which they can be compared.

use std::sync::OnceLock;

/// Words that say nothing about what is wanted.
const EMPTY: &[&str] = &[
    "a", "about", "again", "all", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by",
    "can", "could", "did", "do", "does", "for", "from", "give", "has", "have", "here", "how", "i", "if",
    "in", "into", "is", "it", "its", "let", "like", "me", "my", "need", "no", "not", "of", "on", "or", "our",
    "out", "please", "so", "some", "tell", "than", "that", "the", "their", "them", "then", "there", "these",
    "they", "this", "to", "up", "us", "use", "used", "want", "was", "we", "were", "what", "when", "which",
    "who", "will", "with", "would", "you", "your",
];

/// Words that people use for one another. Each word of a line stands for all others of it, with less weight.
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

/// What a related word counts, beside 1 for the word itself.
const RELATED_WEIGHT: f64 = 0.6;

/// One word of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// As it is written.
    pub(super) text: String,
    /// In lower case, without its ending.
    pub(super) stem: String,
}

impl Word {
    /// Whether the word says nothing about what is wanted.
    pub(super) fn is_empty(&self) -> bool {
        EMPTY.contains(&self.text.to_lowercase().as_str())
    }
}

/// The words of a text: letters and digits; `snake_case` and `camelCase` are several words.
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

/// A word in lower case without the commonest English endings. Not a dictionary form, but the same for `file` and
/// `files`, `search` and `searching`, `compare` and `compared`.
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

/// How much `asked` speaks for `offered`, both stems: 1 for the same word, less for a related one, else 0.
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
    fn forms_of_one_word_have_one_stem() {
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
    fn a_related_word_speaks_for_another_in_any_form_with_less_weight() {
        assert!((likeness(&stem("searching"), &stem("search")) - 1.0).abs() < f64::EPSILON);
        assert!((likeness(&stem("where"), &stem("searches")) - RELATED_WEIGHT).abs() < f64::EPSILON);
        assert!(likeness(&stem("song"), &stem("search")).abs() < f64::EPSILON);
    }

    #[test]
    fn names_of_tools_and_parameters_are_several_words() {
        let texts = |text: &str| words(text).into_iter().map(|w| w.text).collect::<Vec<_>>();
        assert_eq!(
            texts("files_read oldPath sha256"),
            ["files", "read", "old", "Path", "sha256"]
        );
    }
}

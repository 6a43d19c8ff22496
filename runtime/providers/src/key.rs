//! A key that cannot be printed by accident.

/// A provider's API key. Its `Debug` output is `***`, it has no `Display`, and it is not serialisable.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Takes a key; white space around it, as a file or a shell leaves it, is cut off.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().to_owned())
    }

    /// The key itself, for the header of a request and nothing else.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// Shortest beginning of a secret that is cut out at the end of a text; most secrets share their first bytes (`sk-`).
const MIN_BEGINNING: usize = 4;

/// `text` with every occurrence of `secret` replaced by `***`, also one whose end was cut off with the text.
pub(crate) fn redact(secret: &str, text: &str) -> String {
    if secret.is_empty() {
        return text.to_owned();
    }
    let mut redacted = text.replace(secret, "***");
    if let Some(kept) = redacted.strip_suffix('…') {
        let cut = (MIN_BEGINNING..secret.len())
            .rev()
            .filter_map(|length| secret.get(..length))
            .find_map(|beginning| kept.strip_suffix(beginning));
        if let Some(before) = cut {
            redacted = format!("{before}***…");
        }
    }
    redacted
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown_by_debug() {
        let key = ApiKey::new(" sk-planted\n");
        assert_eq!(format!("{:?}", Some(&key)), "Some(***)");
        assert_eq!(key.expose(), "sk-planted");
    }

    #[test]
    fn a_key_is_cut_out_of_a_text_that_repeats_it() {
        let redact = |text: &str| redact("sk-planted", text);
        assert_eq!(redact("bad key sk-planted!"), "bad key ***!");
        assert_eq!(redact("bad key sk-plan…"), "bad key ***…");
        assert_eq!(redact("bad key sk-p…"), "bad key ***…");
        assert_eq!(redact("a task-…"), "a task-…");
        assert_eq!(super::redact("", "unchanged"), "unchanged");
    }
}

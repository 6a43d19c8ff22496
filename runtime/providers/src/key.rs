//! API key that cannot be printed by accident.

/// API key of a provider. Its `Debug` output is `***`; it has no `Display` and is not serialisable.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Creates a key; surrounding white space, as in a file or shell output, is removed.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().to_owned())
    }

    /// Returns the key for the header of a request. Not to be used elsewhere.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// Minimum length of a prefix of a secret that is redacted at the end of a text, in bytes; most secrets share their
/// first bytes (`sk-`).
const MIN_BEGINNING: usize = 4;

/// Replaces every occurrence of `secret` in `text` by `***`, including one cut off at the end of the text.
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
    fn debug_hides_the_key() {
        let key = ApiKey::new(" sk-planted\n");
        assert_eq!(format!("{:?}", Some(&key)), "Some(***)");
        assert_eq!(key.expose(), "sk-planted");
    }

    #[test]
    fn key_is_redacted_from_text() {
        let redact = |text: &str| redact("sk-planted", text);
        assert_eq!(redact("bad key sk-planted!"), "bad key ***!");
        assert_eq!(redact("bad key sk-plan…"), "bad key ***…");
        assert_eq!(redact("bad key sk-p…"), "bad key ***…");
        assert_eq!(redact("a task-…"), "a task-…");
        assert_eq!(super::redact("", "unchanged"), "unchanged");
    }
}

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

    /// `text` with every occurrence of the key replaced by `***`.
    pub(crate) fn redact(&self, text: &str) -> String {
        if self.0.is_empty() {
            text.to_owned()
        } else {
            text.replace(&self.0, "***")
        }
    }
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
        let key = ApiKey::new("sk-planted");
        assert_eq!(key.redact("bad key sk-planted!"), "bad key ***!");
        assert_eq!(ApiKey::new("").redact("unchanged"), "unchanged");
    }
}

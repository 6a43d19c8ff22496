//! Prefixes of URL paths, matched by whole segments under every interpretation of a path by servers.

use toolcell_core::url_reading::climbs;

/// A prefix of whole path segments, such as `/api/v1`; the empty one matches every path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PathPrefix(String);

impl PathPrefix {
    /// A trailing `/` is ignored: `/api/` covers the same paths as `/api`.
    pub(crate) fn new(path: &str) -> Self {
        Self(path.trim_end_matches('/').to_owned())
    }

    /// Returns `true` if every path matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if the path of a canonical target is the prefix or below it, and contains no upward step under
    /// any interpretation.
    pub(crate) fn covers(&self, path: &str) -> bool {
        if self.is_empty() {
            return true;
        }
        let below = path
            .strip_prefix(self.0.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        below && !climbs(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_prefix_covers_every_path() {
        for prefix in ["", "/"] {
            assert!(PathPrefix::new(prefix).covers("/any/..%2f"), "{prefix}");
        }
        assert!(!PathPrefix::new("/a").covers("/"));
    }
}

//! Prefixes of URL paths, matched by whole segments under every interpretation of a path by servers.

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

/// Returns `true` if a server could interpret the path as an upward step: after repeated decoding, with `\` for `/`,
/// and without path parameters (`..;x`). The canonical form has already resolved what every server treats as a dot
/// segment; this detects what only some do, such as `..%2f` and `%252e%252e`.
pub(crate) fn climbs(path: &str) -> bool {
    let mut path = path.as_bytes().to_vec();
    loop {
        let upwards = path
            .split(|b| matches!(b, b'/' | b'\\'))
            .map(|part| part.split(|b| *b == b';').next().unwrap_or_default())
            .any(|part| matches!(part, b"." | b".."));
        if upwards || path.contains(&0) {
            return true;
        }
        match decode_once(&path) {
            Some(decoded) => path = decoded,
            None => return false,
        }
    }
}

/// Decodes percent-encoding repeatedly, so that all spellings that clients and servers treat as equal become equal.
pub(crate) fn decoded(text: &str) -> Vec<u8> {
    let mut text = text.as_bytes().to_vec();
    while let Some(shorter) = decode_once(&text) {
        text = shorter;
    }
    text
}

/// Folds a path so that paths that some server could treat as equal become equal: decoded repeatedly, `\` as `/`, in
/// lower case, without path parameters, empty segments, and trailing dots or spaces of segments.
pub(crate) fn folded(path: &str) -> String {
    let text = String::from_utf8_lossy(&decoded(path)).to_lowercase();
    text.split(['/', '\\'])
        .map(|segment| segment.split([';', '\0']).next().unwrap_or_default())
        .map(|segment| segment.trim_end_matches(['.', ' ']))
        .filter(|segment| !segment.is_empty())
        .fold(String::new(), |path, segment| path + "/" + segment)
}

/// Performs one round of percent-decoding; `None` if there is nothing to decode. Each round shortens the text, so the
/// rounds end.
fn decode_once(path: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        let hex = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        match (first, after) {
            (b'%', [a, b, tail @ ..]) if hex(*a).is_some() && hex(*b).is_some() => {
                decoded.push(hex(*a)? << 4 | hex(*b)?);
                rest = tail;
            }
            _ => {
                decoded.push(first);
                rest = after;
            }
        }
    }
    (decoded.len() < path.len()).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_of_one_text_decode_to_the_same() {
        for (written, read) in [
            ("/a%7Eb", "/a~b"),
            ("/a%257eb", "/a~b"),
            ("/100%", "/100%"),
            ("/%2", "/%2"),
            ("/%zz", "/%zz"),
            ("/%4z%7E", "/%4z~"),
            ("/%z4%7E", "/%z4~"),
            ("", ""),
        ] {
            assert_eq!(decoded(written), read.as_bytes(), "{written}");
        }
    }

    #[test]
    fn empty_prefix_covers_every_path() {
        for prefix in ["", "/"] {
            assert!(PathPrefix::new(prefix).covers("/any/..%2f"), "{prefix}");
        }
        assert!(!PathPrefix::new("/a").covers("/"));
    }
}

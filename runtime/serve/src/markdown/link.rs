//! Addresses of links.

use std::ops::Range;

use url::Url;

/// Maximum length of an address that a link has, in bytes. Longer ones are shown as text: an address is the cheapest way to
/// carry data away, and browsers differ beyond this.
const MAX_ADDRESS_BYTES: usize = 2_048;

/// An address that a link may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// Address in ASCII, as a browser will request it.
    pub(super) href: String,
    /// Host in ASCII with its port, or the address of the mail.
    pub(super) host: String,
}

/// Returns the address of a link if it leads to `http`, `https` or `mailto`, is absolute, and has no user name, which
/// could be read as the host.
pub(super) fn address(destination: &str) -> Option<Address> {
    // Browsers remove these before they look for a scheme.
    let has_blank = destination.chars().any(|c| c.is_control() || c.is_whitespace());
    if destination.len() > MAX_ADDRESS_BYTES || has_blank {
        return None;
    }
    let url = Url::parse(destination).ok()?;
    let host = match url.scheme() {
        "http" | "https" if url.username().is_empty() && url.password().is_none() => {
            let host = url.host_str()?;
            match url.port() {
                Some(port) => format!("{host}:{port}"),
                None => host.to_owned(),
            }
        }
        // A mail with a subject or a text would be written by the model.
        "mailto" if url.query().is_none() && url.fragment().is_none() => url.path().to_owned(),
        _ => return None,
    };
    let href = url.to_string();
    let is_safe = !host.is_empty() && href.is_ascii() && href.len() <= MAX_ADDRESS_BYTES;
    is_safe.then_some(Address { href, host })
}

/// Returns the addresses in a text that are not written as links, with their ranges. The time is linear in the text: no part of
/// it is looked at again for a further address.
pub(super) fn bare(text: &str) -> impl Iterator<Item = (Range<usize>, Address)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        while let Some(found) = text[from..].find("http") {
            let start = from + found;
            let rest = &text[start..];
            let scheme = ["https://", "http://"]
                .into_iter()
                .find(|scheme| rest.starts_with(scheme));
            let is_in_word = text[..start]
                .chars()
                .next_back()
                .is_some_and(char::is_alphanumeric);
            let Some(scheme) = scheme.filter(|_| !is_in_word) else {
                from = start + "http".len();
                continue;
            };
            let end = rest.find(is_end).unwrap_or(rest.len());
            from = start + end;
            let written = without_punctuation(&rest[..end]);
            if written.len() > scheme.len()
                && let Some(address) = address(written)
            {
                return Some((start..start + written.len(), address));
            }
        }
        None
    })
}

/// True for a character that an address in a text does not have.
fn is_end(character: char) -> bool {
    character.is_whitespace() || character.is_control() || "<>\"'`|{}\\^".contains(character)
}

/// Returns an address without the punctuation of the sentence around it.
fn without_punctuation(address: &str) -> &str {
    // What is removed has no opening parenthesis.
    let has_opening = address.contains('(');
    let is_around = |character: char| ".,;:!?*_~]".contains(character) || (character == ')' && !has_opening);
    address.trim_end_matches(is_around)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_schemes_are_links() {
        for (destination, host) in [
            ("https://example.com/a?b#c", "example.com"),
            ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
            ("https://[::1]/", "[::1]"),
            ("HTTPS://EXAMPLE.com", "example.com"),
            ("https://g\u{456}thub.com", "xn--gthub-n2e.com"),
            ("mailto:a@example.com", "a@example.com"),
        ] {
            assert_eq!(
                address(destination).map(|address| address.host).as_deref(),
                Some(host)
            );
        }
        for destination in [
            "javascript:alert(1)",
            "JaVaScRiPt:alert(1)",
            "java\nscript:alert(1)",
            " javascript:alert(1)",
            "\u{1}javascript:alert(1)",
            "data:text/html,<script>alert(1)</script>",
            "vbscript:x",
            "file:///etc/passwd",
            "blob:https://example.com/x",
            "view-source:https://example.com",
            "intent://x#Intent;end",
            "/api/sessions",
            "//example.com",
            "#x",
            "?x",
            "",
            "https://",
            "https://github.com@evil.test/",
            "https://:password@evil.test/",
            "mailto:a@b.test?body=secret",
            "mailto:",
        ] {
            assert_eq!(address(destination), None, "{destination:?}");
        }
    }

    #[test]
    fn address_at_the_limit_is_a_link_and_longer_is_not() {
        let at = format!("https://a.test/{}", "x".repeat(MAX_ADDRESS_BYTES - 15));
        assert_eq!(at.len(), MAX_ADDRESS_BYTES);
        assert!(address(&at).is_some());
        assert!(address(&format!("{at}x")).is_none());
        // Percent-encoding makes it longer.
        assert!(address(&format!("{}é", &at[..at.len() - 2])).is_none());
    }

    #[test]
    fn bare_address_ends_before_punctuation() {
        for (text, found) in [
            ("see https://a.test/x.", Some("https://a.test/x")),
            ("(https://a.test/x)", Some("https://a.test/x")),
            ("https://a.test/x_(y)", Some("https://a.test/x_(y)")),
            ("http://a.test, https://b.test", Some("http://a.test")),
            ("xhttps://a.test", None),
            ("xhttps://a.test and https://b.test", Some("https://b.test")),
            ("http https http: https://b.test", Some("https://b.test")),
            ("https://a@evil.test/ https://b.test", Some("https://b.test")),
            ("https:// https://b.test", Some("https://b.test")),
            ("https://", None),
            ("nothing", None),
        ] {
            let first = bare(text).next();
            assert_eq!(first.map(|(range, _)| &text[range]), found, "{text}");
        }
        let all = bare("http://a.test, https://b.test (http://c.test)");
        let hosts: Vec<String> = all.map(|(_, address)| address.host).collect();
        assert_eq!(hosts, ["a.test", "b.test", "c.test"]);
    }

    #[test]
    fn addresses_are_found_in_linear_time() {
        // With a search of the whole rest for each of them, these would take minutes.
        let count = 200_000;
        for (text, found) in [
            ("http://a.b ".repeat(count), count),
            (format!("http://a{}", ")".repeat(8 * count)), 1),
            (format!("http://a({}", ")".repeat(8 * count)), 0),
            ("http://".repeat(count), 0),
            ("xhttp://".repeat(count), 0),
            ("http".repeat(count), 0),
        ] {
            assert_eq!(bare(&text).count(), found, "{}", &text[..20]);
        }
    }
}

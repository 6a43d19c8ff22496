//! URLs as any server could read them, for rules that ask or deny: in these, two spellings of one resource are equal.
//!
//! Servers differ in what they decode, and how often, before they resolve a path. A rule that restricts therefore compares
//! the reading that all of them could come to: decoded until nothing is left to decode, in lower case, without path
//! parameters, empty segments, and blanks or dots at the end of a segment, with compatibility characters of Unicode replaced
//! (NFKC: `‥` is `..`, `ａ` is `a`) and invisible ones removed. Each function takes time in the length of its input.

use std::borrow::Cow;
use std::net::IpAddr;

use unicode_normalization::UnicodeNormalization as _;

use crate::inert::is_hidden;

/// Decodes percent-encoding until nothing is left to decode, so that all spellings that clients and servers treat as equal
/// become equal; also `%u002e` as IIS reads it, and UTF-8 that is longer than needed (`%c0%ae`).
pub fn decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        push(&mut out, byte);
    }
    out
}

/// Adds a byte, and decodes what ends with it. What is decoded may end a code as well, such as that of `%25` in `%2541`;
/// each round shortens the text, so that the time is in its length.
fn push(out: &mut Vec<u8>, byte: u8) {
    out.push(byte);
    while let Some((length, bytes)) = last_code(out) {
        out.truncate(out.len() - length);
        out.extend(bytes);
    }
}

/// Returns the length of the code at the end of the bytes, and what it encodes; `None` if there is none.
fn last_code(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let hex = |digits: &[u8]| -> Option<u32> {
        digits.iter().try_fold(0, |value, digit| {
            Some(value << 4 | char::from(*digit).to_digit(16)?)
        })
    };
    let continues = |byte: u8| byte & 0xc0 == 0x80;
    if let Some(b"%u" | b"%U") = bytes.len().checked_sub(6).map(|start| &bytes[start..start + 2])
        && let Some(code) = hex(&bytes[bytes.len() - 4..]).and_then(char::from_u32)
    {
        return Some((6, code.to_string().into_bytes()));
    }
    match bytes {
        [.., b'%', a, b] => {
            let byte = u8::try_from(hex(&[*a, *b])?).ok()?;
            Some((3, vec![byte]))
        }
        [.., 0xf0, 0x80, b @ 0x80..=0x81, c] if continues(*c) => Some((4, vec![(b & 1) << 6 | c & 0x3f])),
        [.., 0xe0, b @ 0x80..=0x81, c] if continues(*c) => Some((3, vec![(b & 1) << 6 | c & 0x3f])),
        [.., b @ 0xc0..=0xc1, c] if continues(*c) => Some((2, vec![(b & 1) << 6 | c & 0x3f])),
        _ => None,
    }
}

/// True for a character that some servers drop: invisible, or what stands for invalid UTF-8. A zero may be the end instead.
fn is_dropped(c: char) -> bool {
    is_hidden(c) || (c.is_control() && c != '\0') || matches!(c, '\u{fe0e}' | '\u{fe0f}' | '\u{fffd}')
}

/// Maximum number of rounds in which a text is normalized. Each decodes what the one before left; more are no spelling of a
/// client, and the time must not grow with the square of the length.
const MAX_ROUNDS: usize = 8;

/// Returns a decoded text as servers read it that normalize it to NFKC or drop characters, and then decode it once more, until
/// nothing changes: `%%9992` is `%`, a byte that is dropped, and `92`, which together are a code again.
fn normalized(decoded: &[u8]) -> Cow<'_, [u8]> {
    let mut read = Cow::Borrowed(decoded);
    for _ in 0..MAX_ROUNDS {
        if read
            .iter()
            .all(|byte| byte.is_ascii() && !is_dropped(char::from(*byte)))
        {
            break;
        }
        let text = String::from_utf8_lossy(&read);
        let text: String = text.chars().filter(|c| !is_dropped(*c)).nfkc().collect();
        let next = self::decoded(&text);
        if next == *read {
            break;
        }
        read = Cow::Owned(next);
    }
    read
}

/// Returns the part of a decoded path segment that names something: without path parameters (`;x`), what some servers take
/// for a query or the end, and blanks or control characters at the end.
fn name(segment: &[u8]) -> &[u8] {
    let segment = segment.split(|b| matches!(b, b';' | b'?' | b'#' | 0)).next();
    let mut name = segment.unwrap_or_default();
    while let [rest @ .., last] = name
        && *last <= b' '
    {
        name = rest;
    }
    while let [first, rest @ ..] = name
        && *first <= b' '
    {
        name = rest;
    }
    name
}

/// True for `.`, `..`, and `..` before other punctuation, at which some servers end a name.
fn is_step(name: &[u8]) -> bool {
    match name {
        b"." | b".." => true,
        [b'.', b'.', next, ..] => next.is_ascii_punctuation() && !matches!(next, b'.' | b'-' | b'_'),
        _ => false,
    }
}

fn segments(decoded: &[u8]) -> impl Iterator<Item = &[u8]> {
    decoded.split(|b| matches!(b, b'/' | b'\\')).map(name)
}

/// Returns true if a server could read an upward step, or the end of the text, in a path: after repeated decoding, with `\`
/// for `/`, and without path parameters (`..;x`). The canonical form has already resolved what every server treats as a dot
/// segment; this detects what only some do, such as `..%2f` and `%252e%252e`.
pub fn climbs(path: &str) -> bool {
    let decoded = decoded(path);
    let normalized = normalized(&decoded);
    normalized.contains(&0) || segments(&normalized).any(is_step)
}

/// Folds a path so that paths which some server could treat as equal become equal. It begins with `/`, unless it is empty.
pub fn folded_path(path: &str) -> String {
    let decoded = decoded(path);
    let mut folded = String::new();
    for segment in segments(&normalized(&decoded)) {
        let segment = without_case(&String::from_utf8_lossy(segment));
        let segment = segment.trim_end_matches(|c| c <= ' ' || c == '.');
        if !segment.is_empty() {
            folded.push('/');
            folded.push_str(segment);
        }
    }
    folded
}

/// Folds a text of which it is not known which part of a URL it is, or a query, in which `+` is a blank.
pub fn folded_text(text: &str) -> String {
    without_case(&String::from_utf8_lossy(&normalized(&decoded(text)))).replace('+', " ")
}

/// Lower case by way of capitals: `ı`, `İ` and `ſ` are `i` and `s` for a server that compares capitals.
fn without_case(text: &str) -> String {
    text.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        // Of `İ`, the dot.
        .filter(|c| *c != '\u{307}')
        .collect()
}

/// Folds a URL, or a pattern for URLs in which `*` matches any characters, so that spellings of one resource become equal:
/// scheme, host without a dot at its end, port if it is not the default one, path as [`folded_path`], query as
/// [`folded_text`]. There is no user name and no fragment.
pub fn folded(url: &str) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
        None => (None, url),
    };
    let (authority, rest) = rest.split_at(rest.find(['/', '\\', '?']).unwrap_or(rest.len()));
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let mut folded = scheme
        .as_deref()
        .map(|scheme| format!("{scheme}://"))
        .unwrap_or_default();
    folded.push_str(&folded_authority(authority, scheme.as_deref()));
    folded.push_str(&folded_path(path));
    if let Some(query) = query {
        folded.push('?');
        // In a query, `+` is a blank (HTML forms).
        folded.push_str(&folded_text(&query.replace('+', " ")));
    }
    folded
}

/// Returns the forms of a folded URL that a pattern may be written in: with and without its scheme and its default port.
pub fn forms(folded: &str) -> Vec<String> {
    let mut forms = vec![folded.to_owned()];
    let Some((scheme, rest)) = folded.split_once("://") else {
        return forms;
    };
    forms.push(rest.to_owned());
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return forms,
    };
    // The colons of an IPv6 address are in brackets.
    let has_port = host.rfind(':') > host.rfind(']');
    if !has_port {
        forms.push(format!("{scheme}://{host}{port}{path}"));
        forms.push(format!("{host}{port}{path}"));
    }
    forms
}

fn folded_authority(authority: &str, scheme: Option<&str>) -> String {
    let authority = folded_text(authority.rsplit('@').next().unwrap_or_default());
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (host, port),
        _ => (authority.as_str(), ""),
    };
    let host = host.trim_end_matches('.');
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bare.unwrap_or(host).parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(IpAddr::V4(ip)) => ip.to_string(),
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        Err(_) => host.to_owned(),
    };
    match (scheme, port) {
        (_, "") | (Some("http"), "80") | (Some("https"), "443") => host,
        (_, port) => format!("{host}:{port}"),
    }
}

/// Returns why a pattern can match no URL in the form in which hosts are sent; `None` if it can.
pub fn unusable_host(pattern: &str) -> Option<&'static str> {
    let rest = pattern.split_once("://")?.1;
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    if !host.is_ascii() {
        return Some(
            "its host has letters beyond ASCII, and hosts are compared as they are sent: write it as `xn--…`",
        );
    }
    if host.contains('*') {
        return None;
    }
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    is_unusual_address(host).then_some("its host is an address in an unusual form: write it as `192.0.2.1`")
}

/// Returns true for a host that ends with a number, which URLs read as an IPv4 address (WHATWG URL, section 3.5), and that is not
/// one in the form in which hosts are sent: `127.1`, `0x7f.0.0.1`, or no address at all, such as `a.1` and `1.2.3.256`.
pub fn is_unusual_address(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let last = host.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number = match hex {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()),
    };
    is_number && host.parse::<IpAddr>().is_err()
}

/// Returns true if servers differ in what a path names: in parameters (`;x`), an encoded end or query, control characters,
/// invalid UTF-8, invisible characters, a segment of dots and other punctuation (`..,`), or characters that some systems take
/// for punctuation of ASCII. No pattern that allows should hold for it.
pub fn is_ambiguous(path: &str) -> bool {
    // Like a dot or a slash, and not replaced by NFKC; in some code pages the Yen and Won signs are backslashes.
    const LIKE_DOT_OR_SLASH: [char; 8] = [
        '\u{3002}', '\u{ff61}', '\u{2044}', '\u{2215}', '\u{2216}', '\u{29f5}', '\u{a5}', '\u{20a9}',
    ];
    let decoded = decoded(path);
    let Ok(text) = std::str::from_utf8(&decoded) else {
        return true;
    };
    let odd = |c: char| {
        matches!(c, ';' | '?' | '#' | '\\')
            || c.is_control()
            || is_dropped(c)
            || LIKE_DOT_OR_SLASH.contains(&c)
    };
    let is_odd_name = |segment: &str| {
        segment
            .strip_prefix('.')
            .and_then(|rest| rest.trim_start_matches('.').chars().next())
            .is_some_and(|next| !next.is_alphanumeric() && !matches!(next, '_' | '-' | '*'))
    };
    let punctuation = |c: &char| c.is_ascii() && !c.is_ascii_alphanumeric();
    text.contains(odd)
        || text.split('/').any(is_odd_name)
        || !text
            .chars()
            .filter(punctuation)
            .eq(text.nfkc().filter(punctuation))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn path_that_servers_read_in_different_ways_is_ambiguous() {
        for path in [
            "/delete;.json",
            "/delete%3b.json",
            "/a%3f.json",
            "/a%23.json",
            "/a%0a.json",
            "/a%5cb",
            "/ok/%uff0e%uff0e",
            "/ok/..%c1",
            "/ok/..%c2%a0",
            "/ok/..%7f",
            "/%ef%bc%8e%ef%bc%8e%ef%bc%8f",
            "/%ff",
            // Two dots in one character, an ideographic blank, a comma, a zero-width space, slashes of other scripts.
            "/ok/%e2%80%a5/admin",
            "/ok/..%e3%80%80/admin",
            "/ok/..%2c/admin",
            "/ok/..,x",
            "/ok/.%e2%80%8b./admin",
            "/ok%e2%88%95admin",
            "/ok%e2%84%80admin",
            "/ok/%ef%bc%85",
            "/ok/%ef%bd%a1%ef%bd%a1/admin",
            "/ok/x%e2%88%96..%e2%88%96admin",
            "/ok/x%c2%a5..%c2%a5admin",
            "/ok/.%ef%b8%8f./x",
            // Characters within a name that some servers drop, and one that ends it for others.
            "/ok/a%e2%80%8bb",
            "/ok/a%ef%bf%bdb",
            "/ok/a%00b",
        ] {
            assert!(is_ambiguous(path), "{path}");
        }
        for path in [
            "/",
            "/a.json",
            "/a%20b",
            "/%e6%97%a5",
            "/a+b~c:d@e",
            "/100%",
            "/.well-known/x",
            "/.../.-/._a",
            "/gr%c3%b6%c3%9fe,1",
            "/%ef%bd%81",
        ] {
            assert!(!is_ambiguous(path), "{path}");
        }
    }

    #[test]
    fn plus_in_a_query_is_a_blank() {
        assert_eq!(
            folded("https://a.com/a+b?q=drop+table"),
            folded("https://a.com/a%2bb?q=drop%20table")
        );
    }

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
            ("/%4%31", "/A"),
            ("/%252525252e", "/."),
            ("/%u002e%U002E", "/.."),
            ("/%c0%ae%e0%80%ae", "/.."),
            ("/%c0%a52e", "/."),
            ("/%f0%80%80%ae%f0%80%81%81", "/.A"),
            ("/%uD800", "/%uD800"),
            // What looks like the beginning of a longer code is none.
            ("/%us%65cret", "/%usecret"),
            ("/%%55.%2e", "/%U.."),
            ("", ""),
        ] {
            assert_eq!(decoded(written), read.as_bytes(), "{written}");
        }
    }

    /// One round of percent-decoding, as most servers do it.
    fn once(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some((&first, after)) = rest.split_first() {
            match after {
                [a, b, tail @ ..] if first == b'%' && a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                    let digits = String::from_utf8(vec![*a, *b]).unwrap();
                    out.push(u8::from_str_radix(&digits, 16).unwrap());
                    rest = tail;
                }
                _ => {
                    out.push(first);
                    rest = after;
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn decoding_in_one_pass_equals_rounds_until_nothing_changes(text in "[%2546eE/.]{0,24}") {
            let mut rounds = text.clone().into_bytes();
            loop {
                let next = once(&rounds);
                if next == rounds {
                    break;
                }
                rounds = next;
            }
            // `%U` may begin a code that the rounds do not know.
            prop_assume!(!rounds.windows(2).any(|pair| pair == b"%U"));
            prop_assert_eq!(decoded(&text), rounds);
        }

        #[test]
        fn folding_twice_changes_nothing(url in "(https?|HTTP)://[a-zA-Z]{1,4}(\\.[a-z]{1,3}){0,2}\\.?(:(80|443|8080))?(/[/a-zA-Z%02e59;?.+\\\\ ]{0,20})?") {
            let once = folded(&url);
            prop_assert_eq!(folded(&once), once.clone());
        }
    }

    #[test]
    fn time_of_decoding_grows_with_the_length_alone() {
        // Decoded in rounds, this would take as many as there are bytes.
        let deep = format!("%{}", "25".repeat(1 << 20));
        assert_eq!(decoded(&deep), b"%");
        assert_eq!(folded_path(&format!("/{deep}")), "/%");
    }

    #[test]
    fn upward_steps_are_found_in_every_reading() {
        for (path, expected) in [
            ("/ok/..%2fx", true),
            ("/ok/%252e%252e/x", true),
            ("/ok/..;a/x", true),
            ("/ok/.;/x", true),
            ("/ok/..%5cx", true),
            ("/ok/%c0%ae%c0%ae/x", true),
            ("/ok/%u002e%u002e/x", true),
            ("/ok/..%20/x", true),
            ("/ok/..%0d/x", true),
            ("/ok/..%3f/x", true),
            ("/ok/%00", true),
            ("/ok/%e2%80%a5/x", true),
            ("/ok/%ef%bc%8e%ef%bc%8e/x", true),
            ("/ok/.%e2%80%8b./x", true),
            ("/ok/..%e3%80%80/x", true),
            ("/ok/%ef%bc%852e%ef%bc%852e/x", true),
            ("/ok/.%ef%b8%8f./x", true),
            ("/ok/.%ff./x", true),
            ("/ok/.%7f./x", true),
            ("/ok/%20../x", true),
            ("/ok/..%2c/x", true),
            ("/ok/..a/..-/.._", false),
            ("/ok/...", false),
            ("/ok/a..b/.x/x.", false),
            ("/group%2Fname/a;b=c", false),
        ] {
            assert_eq!(climbs(path), expected, "{path}");
        }
    }

    #[test]
    fn spellings_of_one_url_fold_to_the_same() {
        for (url, expected) in [
            ("http://127.0.0.1:8819", "http://127.0.0.1:8819"),
            ("http://127.0.0.1:8819/", "http://127.0.0.1:8819"),
            (
                "http://[::ffff:127.0.0.1]:8819/Admin",
                "http://127.0.0.1:8819/admin",
            ),
            ("http://[2001:DB8::1]/", "http://[2001:db8::1]"),
            ("https://EVIL.example.:443/a", "https://evil.example/a"),
            ("http://evil.example:443/a", "http://evil.example:443/a"),
            ("http://[::FFFF:127.0.0.1]/", "http://127.0.0.1"),
            ("evil.example:443/a", "evil.example:443/a"),
            ("https://ev%69l.example/", "https://evil.example"),
            ("https://evil.example/a.%09./b. .", "https://evil.example/a/b"),
            ("https://evil.example/a?b+c%2bd", "https://evil.example/a?b c d"),
            ("https://u:p@evil.example/a#b", "https://evil.example/a"),
            (
                "https://evil.example//%61/;/%2fb;x=1/",
                "https://evil.example/a/b",
            ),
            ("https://evil.example/a%20b", "https://evil.example/a b"),
            (
                "https://evil.example/gr%C3%B6%C3%9Fe",
                "https://evil.example/grösse",
            ),
            (
                "https://evil.example/%ef%bd%81dm%c4%b1n%e2%80%8b",
                "https://evil.example/admin",
            ),
            ("https://evil.example/adm%c4%b0n", "https://evil.example/admin"),
            (
                "https://evil.example/adm%ef%b8%8fin",
                "https://evil.example/admin",
            ),
            (
                "https://evil.example/%20a%09d%0am%7fin",
                "https://evil.example/admin",
            ),
            (
                "https://evil.example/%ff%e2%80%89admin",
                "https://evil.example/admin",
            ),
            (
                "https://evil.example?%ef%bd%81=%ef%bc%a1",
                "https://evil.example?a=a",
            ),
            (
                "https://evil.example?%64elete=%31",
                "https://evil.example?delete=1",
            ),
            ("https://evil.example\\a", "https://evil.example/a"),
            ("https://*.Example.com/Admin/*", "https://*.example.com/admin/*"),
            ("*", "*"),
            ("*delete=1*", "*delete=1*"),
            ("", ""),
        ] {
            assert_eq!(folded(url), expected, "{url}");
        }
    }

    #[test]
    fn url_has_forms_with_and_without_scheme_and_default_port() {
        for (url, expected) in [
            ("data:,a", &["data:,a"][..]),
            (
                "https://h/a?b:c",
                &["https://h/a?b:c", "h/a?b:c", "https://h:443/a?b:c", "h:443/a?b:c"],
            ),
            ("http://h", &["http://h", "h", "http://h:80", "h:80"]),
            ("http://h?b", &["http://h?b", "h?b", "http://h:80?b", "h:80?b"]),
            ("http://h:443/a", &["http://h:443/a", "h:443/a"]),
            (
                "http://[::1]/a",
                &["http://[::1]/a", "[::1]/a", "http://[::1]:80/a", "[::1]:80/a"],
            ),
            ("http://[::1]:8/a", &["http://[::1]:8/a", "[::1]:8/a"]),
            ("ftp://h/a", &["ftp://h/a", "h/a"]),
        ] {
            assert_eq!(forms(url), expected, "{url}");
        }
    }

    #[test]
    fn hosts_that_no_url_has_are_unusable() {
        for (pattern, is_unusable) in [
            ("https://bücher.example/*", true),
            ("https://xn--bcher-kva.example/größe", false),
            ("http://127.1:8819/*", true),
            ("http://0x7f.1/", true),
            ("http://2130706433/", true),
            ("http://a.1/", true),
            ("http://1.2.3.256/", true),
            ("http://0x/", true),
            ("http://0xyz/", false),
            ("http://127.0.0.1:8819/*", false),
            ("http://127.*/", false),
            ("http://*.0.1/", false),
            ("http://[::1]/", false),
            ("http://[::ffff:127.0.0.1]:80/", false),
            ("https://example.com./", false),
            ("*bücher*", false),
            ("https://*", false),
        ] {
            assert_eq!(unusable_host(pattern).is_some(), is_unusable, "{pattern}");
        }
    }
}

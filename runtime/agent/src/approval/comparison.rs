//! Comparison of a call with rules.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;
use toolcell_core::protected::fold;
use toolcell_core::{ArgumentPlace, PlaceKind, url_reading};

use super::wildcard::{MAX_WORK, Work, matches};
use super::{ApprovalRule, Verdict};
use crate::tools::fingerprint::canonical;

/// A call that is compared with rules, within a limit of work. Beyond it, every rule that asks or denies matches, and
/// none that allows.
pub(super) struct Comparison<'a> {
    tool: &'a str,
    arguments: &'a Value,
    places: &'a [ArgumentPlace],
    base: Option<&'a str>,
    work: Work,
    /// Arguments as JSON, by pointer.
    texts: RefCell<BTreeMap<String, Rc<str>>>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(
        tool: &'a str,
        arguments: &'a Value,
        places: &'a [ArgumentPlace],
        base: Option<&'a str>,
    ) -> Self {
        Self {
            tool,
            arguments,
            places,
            base,
            work: Work::new(MAX_WORK),
            texts: RefCell::default(),
        }
    }

    /// Returns `true` if the rule applies to the call.
    pub(super) fn is_judged_by(&self, rule: &ApprovalRule) -> bool {
        let widens = rule.verdict != Verdict::Allow;
        let tool = self.work.matches(&rule.tool, self.tool).unwrap_or(widens);
        tool && (rule.arguments.iter())
            .all(|(pointer, pattern)| self.argument(rule.verdict, pointer, pattern))
    }

    /// Returns `true` if a limit of work was reached, so that a rule may apply only because of it.
    pub(super) fn is_undecided(&self) -> bool {
        self.work.is_used_up()
    }

    fn argument(&self, verdict: Verdict, pointer: &str, pattern: &str) -> bool {
        let Some(argument) = self.arguments.pointer(pointer) else {
            return false;
        };
        let widens = verdict != Verdict::Allow;
        if self.work.charge(self.places.len()).is_err() {
            return widens;
        }
        let below = |place: &&ArgumentPlace| {
            let rest = place.pointer.strip_prefix(pointer);
            // One without a pointer stands for arguments that are not listed.
            place.pointer.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut below = self.places.iter().filter(below).peekable();
        let path = plain(PlaceKind::Path, pattern);
        let plain = |place: &ArgumentPlace| match place.kind {
            PlaceKind::Path => path.as_str(),
            PlaceKind::Url => pattern,
        };
        // Of a list of paths all must be allowed, and one is enough to be asked or denied for.
        if !widens {
            let fits = |pattern: &str, text: &str| self.work.matches(pattern, text).unwrap_or(false);
            return match below.peek() {
                Some(_) => below.all(|place| {
                    place.is_within(self.base, |text| in_parts(place.kind, plain(place), text, fits))
                }),
                None => self.is_written(argument, pointer, |text| fits(pattern, text)),
            };
        }
        let meets = |pattern: &str, text: &str| {
            let is_it = self.work.matches(pattern, text).unwrap_or(true);
            is_it || directory(pattern).is_some_and(|dir| self.work.matches(dir, text).unwrap_or(true))
        };
        self.is_written(argument, pointer, |text| meets(pattern, text))
            || below.any(|place| {
                place.is_met_by(self.base, |text| {
                    meets(plain(place), text)
                        || meets(pattern, text)
                        || (place.kind == PlaceKind::Path && self.is_same_file(plain(place), text, meets))
                        || (place.kind == PlaceKind::Url && self.reads_as(pattern, text, meets))
                })
            })
    }

    /// True if a file system could take the path for one that the pattern matches: in another case, or with letters that
    /// are composed in another way.
    fn is_same_file(&self, pattern: &str, path: &str, meets: impl Fn(&str, &str) -> bool) -> bool {
        if self
            .work
            .charge(pattern.len().saturating_add(path.len()))
            .is_err()
        {
            return true;
        }
        meets(&fold_path(pattern), &fold_path(path))
    }

    /// True if a server could read the URL as one that the pattern matches. A pattern without a path is for all of them. One
    /// that begins with `*` may be about the query, where nothing is a path.
    fn reads_as(&self, pattern: &str, url: &str, meets: impl Fn(&str, &str) -> bool) -> bool {
        if self.work.charge(pattern.len().saturating_add(url.len())).is_err() {
            return true;
        }
        if meets(&url_reading::folded_text(pattern), &url_reading::folded_text(url)) {
            return true;
        }
        let (pattern, url) = (url_reading::folded(pattern), url_reading::folded(url));
        let (_, rest) = pattern.split_once("://").unwrap_or(("", &pattern));
        let is_origin = !rest.contains(['/', '?']);
        let in_unicode = with_host_in_unicode(&url);
        let mut forms = url_reading::forms(&url);
        forms.extend(in_unicode.iter().flat_map(|url| url_reading::forms(url)));
        forms.iter().any(|url| {
            meets(&pattern, url)
                || (is_origin && (meets(&format!("{pattern}/*"), url) || meets(&format!("{pattern}?*"), url)))
        })
    }

    /// True if the argument as the model wrote it satisfies a condition: a string as it is, any other value as JSON.
    fn is_written(&self, argument: &Value, pointer: &str, fits: impl Fn(&str) -> bool) -> bool {
        if let Value::String(text) = argument {
            return fits(text);
        }
        let known = self.texts.borrow().get(pointer).cloned();
        let text = known.unwrap_or_else(|| {
            let text: Rc<str> = canonical(argument).into();
            // If no work is left, the comparison says so.
            let _ = self.work.charge(text.len());
            self.texts.borrow_mut().insert(pointer.to_owned(), text.clone());
            text
        });
        fits(&text)
    }
}

fn fold_path(path: &str) -> String {
    let parts: Vec<String> = path.split('/').map(fold).collect();
    parts.join("/")
}

/// Returns a URL with the letters of its host in place of their encoding (RFC 5891); `None` if there is none.
fn with_host_in_unicode(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
    if !host.contains("xn--") {
        return None;
    }
    let (host, _) = idna::domain_to_unicode(host);
    Some(format!("{scheme}://{host}{port}{rest}"))
}

/// The directory of a pattern for everything in it: `private` of `private/*` and `private/**`. Who reads or changes a
/// directory reaches what is in it.
fn directory(pattern: &str) -> Option<&str> {
    let dir = pattern
        .strip_suffix("/**")
        .or_else(|| pattern.strip_suffix("/*"))?;
    (!dir.is_empty()).then_some(dir)
}

/// True if the resolved target of an argument matches the pattern, as required by `allow` rules and by approvals saved
/// for a pattern. Relative patterns start at `base`.
pub fn is_within(place: &ArgumentPlace, pattern: &str, base: Option<&str>) -> bool {
    let plain = plain(place.kind, pattern);
    place.is_within(base, |text| in_parts(place.kind, &plain, text, matches))
}

/// True if a pattern that allows matches the text. In a URL, `*` in the host matches no part of the path: in
/// `https://*.example.com/*` the host is one below `example.com`.
fn in_parts(kind: PlaceKind, pattern: &str, text: &str, fits: impl Fn(&str, &str) -> bool) -> bool {
    if kind == PlaceKind::Path {
        return fits(pattern, text);
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return fits(pattern, text);
    };
    let (wanted_scheme, wanted) = pattern.split_once("://").unwrap_or(("*", pattern));
    let (origin, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (wanted_origin, wanted_path) = match wanted.find(['/', '?']) {
        Some(at) => wanted.split_at(at),
        // `https://*` and `https://example.com*` say nothing about the path.
        None if wanted.ends_with('*') => (wanted, "*"),
        None => (wanted, "/"),
    };
    let wanted_origin = wanted_origin.to_ascii_lowercase();
    fits(wanted_scheme, scheme) && fits(&wanted_origin, origin) && is_path_allowed(wanted_path, path, fits)
}

/// True if path and query match. A `*` in the path matches nothing of the query, unless the pattern ends with it.
fn is_path_allowed(wanted: &str, path: &str, fits: impl Fn(&str, &str) -> bool) -> bool {
    let (path, query) = path
        .split_once('?')
        .map_or((path, None), |(path, query)| (path, Some(query)));
    if !matches!(wanted, "*" | "/*") && url_reading::is_ambiguous(path) {
        return false;
    }
    match wanted.split_once('?') {
        Some((wanted, wanted_query)) => fits(wanted, path) && fits(wanted_query, query.unwrap_or_default()),
        None => fits(wanted, path) && (query.is_none() || wanted.ends_with('*')),
    }
}

/// Removes `.`, empty parts, and `..` after plain names from a path pattern.
fn plain(kind: PlaceKind, pattern: &str) -> String {
    if kind == PlaceKind::Url {
        return pattern.to_owned();
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." if parts
                .last()
                .is_some_and(|last| *last != ".." && !last.contains('*')) =>
            {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let root = if pattern.starts_with('/') { "/" } else { "" };
    match format!("{root}{}", parts.join("/")) {
        plain if plain.is_empty() && !pattern.is_empty() => ".".into(),
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn argument_is_written_as_json_once_for_all_rules() {
        let list = json!({ "text": vec!["a"; 1_000] });
        let call = Comparison::new("t", &list, &[], None);
        let rule = ApprovalRule::tool("*", Verdict::Deny).with_argument("/text", "a*b*a");
        assert!((0..100).all(|_| !call.is_judged_by(&rule)));
        assert_eq!(call.texts.borrow().len(), 1);
    }

    #[test]
    fn pattern_that_allows_holds_for_no_ambiguous_path() {
        for (pattern, url, is_allowed) in [
            ("http://h/*.json", "http://h/a.json", true),
            ("http://h/*.json", "http://h/delete;.json", false),
            ("http://h/*.json", "http://h/delete%3f.json", false),
            ("http://h/ok/*", "http://h/ok/%e6%97%a5", true),
            ("http://h/ok/*", "http://h/ok/..%c2%a0/x", false),
            // It says nothing about the path.
            ("http://h/*", "http://h/delete;.json", true),
            ("http://h*", "http://h/delete;.json", true),
        ] {
            assert_eq!(
                in_parts(PlaceKind::Url, pattern, url, matches),
                is_allowed,
                "{url}"
            );
        }
    }

    #[test]
    fn rule_that_denies_meets_a_host_in_unicode() {
        let url = "https://xn--bcher-kva.example/a";
        let arguments = json!({ "url": url });
        let place = [ArgumentPlace {
            pointer: "/url".into(),
            kind: PlaceKind::Url,
            plain: url.into(),
            named: None,
            real: None,
            is_unresolved: false,
        }];
        for (pattern, is_met) in [
            ("*bücher*", true),
            ("bücher.example/*", true),
            ("BÜCHER.example", true),
            ("xn--bcher-kva.example", true),
            ("bucher.example", false),
        ] {
            let rule = ApprovalRule::tool("*", Verdict::Deny).with_argument("/url", pattern);
            assert_eq!(rule.judges("t", &arguments, &place, None), is_met, "{pattern}");
        }
    }

    #[test]
    fn rule_about_a_path_meets_each_case_and_composition() {
        for (pattern, path, is_met) in [
            ("Secret*", "secret.txt", true),
            ("secret*", "SECRET.txt", true),
            ("café/*", "cafe\u{301}/a", true),
            ("cafe\u{301}/*", "CAFÉ/a", true),
            ("café/*", "café", true),
            ("secret", "secret. ", true),
            ("secret", "sec\u{200c}ret", true),
            ("café/*", "cafe/a", false),
            ("secret", "s\u{435}cret", false),
        ] {
            let places = [ArgumentPlace {
                pointer: "/path".into(),
                kind: PlaceKind::Path,
                plain: path.into(),
                named: None,
                real: None,
                is_unresolved: false,
            }];
            let arguments = json!({ "path": path });
            for (verdict, is_met) in [
                (Verdict::Deny, is_met),
                (Verdict::Ask, is_met),
                // What is allowed is exactly what was written.
                (Verdict::Allow, false),
            ] {
                let rule = ApprovalRule::tool("*", verdict).with_argument("/path", pattern);
                let judged = rule.judges("t", &arguments, &places, None);
                assert_eq!(judged, is_met, "{verdict:?} {pattern} {path}");
            }
        }
    }

    #[test]
    fn star_in_a_host_that_is_allowed_matches_no_path() {
        for (pattern, url, is_allowed) in [
            ("https://*.example.com/*", "https://a.example.com/b", true),
            (
                "https://*.example.com/*",
                "https://evil.test/a.example.com/",
                false,
            ),
            (
                "https://*.example.com/*",
                "https://evil.test/?.example.com/",
                false,
            ),
            ("*.example.com/*", "https://evil.test/?.example.com/", false),
            ("*.example.com/*", "http://a.example.com/", true),
            ("https://*", "https://a.com/b?c", true),
            ("http*://a.com/*", "https://a.com/b/c?d", true),
            ("https://a.com*", "https://a.com/b", true),
            ("https://a.com*", "https://a.com.evil.test/", true),
            ("https://a.com", "https://a.com/", true),
            ("https://a.com", "https://a.com/b", false),
            ("https://a.com/b*", "https://a.com/b/c?d", true),
            ("*", "https://a.com/b", true),
            ("https://A.com/b", "https://a.com/b", true),
            ("https://a.com/*/issues", "https://a.com/x/issues", true),
            ("https://a.com/*/issues", "https://a.com/x/issues?a=1", false),
            ("https://a.com/*/issues", "https://a.com/x/admin?/issues", false),
            ("https://a.com/*.json", "https://a.com/delete?.json", false),
            ("https://a.com/b?page=*", "https://a.com/b?page=2", true),
            ("https://a.com/b?page=*", "https://a.com/b?x", false),
            ("https://a.com/b?*", "https://a.com/b", true),
            ("data:*", "data:,a", true),
        ] {
            let place = ArgumentPlace {
                pointer: "/url".into(),
                kind: PlaceKind::Url,
                plain: url.into(),
                named: None,
                real: None,
                is_unresolved: false,
            };
            let places = [place];
            let rule = ApprovalRule::tool("t", Verdict::Allow).with_argument("/url", pattern);
            let arguments = json!({ "url": url });
            assert_eq!(
                rule.judges("t", &arguments, &places, None),
                is_allowed,
                "{pattern} {url}"
            );
            assert_eq!(
                is_within(&places[0], pattern, None),
                is_allowed,
                "{pattern} {url}"
            );
        }
    }

    #[test]
    fn rule_that_denies_meets_every_reading_of_a_url() {
        let is_denied = |pattern: &str, url: &str, is_unresolved: bool| {
            let places = [ArgumentPlace {
                pointer: "/url".into(),
                kind: PlaceKind::Url,
                plain: url.into(),
                named: None,
                real: None,
                is_unresolved,
            }];
            let rule = ApprovalRule::tool("t", Verdict::Deny).with_argument("/url", pattern);
            rule.judges("t", &json!({ "url": "x" }), &places, None)
        };
        for (pattern, url, denied) in [
            ("http://127.0.0.1:8819", "http://127.0.0.1:8819/", true),
            ("https://evil.example", "https://evil.example/a?b", true),
            ("https://evil.example", "https://evil.example?b", true),
            ("https://evil.example", "https://evil.example.org/", false),
            ("https://*.evil.example", "https://a.evil.example/x", true),
            ("https://EVIL.example/*", "https://evil.example/x", true),
            ("https://evil.example:443/*", "https://evil.example/x", true),
            ("evil.example/*", "https://evil.example/x", true),
            ("http://h/admin*", "http://h/ADMIN", true),
            ("http://h/admin*", "http://h/;/admin", true),
            ("http://h/admin*", "http://h/%2fadmin", true),
            ("http://h/admin*", "http://h/%5Cadmin/x", true),
            ("http://h/%61dmin*", "http://h/admin", true),
            ("http://h/a b*", "http://h/a%20b", true),
            ("http://h/größe*", "http://h/gr%C3%B6%C3%9Fe", true),
            ("*delete=1*", "http://h/?%64elete=%31", true),
            (
                "http://127.0.0.1:1/admin*",
                "http://[::ffff:7f00:1]:1/admin",
                true,
            ),
            ("http://h/admin/*", "http://h/admin", true),
            ("http://h/admin/*", "http://h/administration", false),
            ("http://h/admin", "http://other/admin", false),
            ("http://h/admin", "http://h/admin/x", false),
            ("evil.example", "https://evil.example/a?b", true),
            ("*.evil.example", "https://a.evil.example/x", true),
            ("evil.example", "https://evil.example.org/", false),
            ("*://evil.example:443/*", "https://evil.example/x", true),
            ("http://h:*", "http://h/x", true),
            ("evil.example:443/*", "http://evil.example:443/x", true),
            ("evil.example:443/*", "http://evil.example/x", false),
            ("*file=../*", "http://h/?file=%2E%2e/x", true),
            ("*q=a//b", "http://h/?q=a%2F%2fb", true),
            ("*q=a b*", "http://h/?q=A+b", true),
            ("*q=a b*", "http://h/?q=a-b", false),
        ] {
            assert_eq!(is_denied(pattern, url, false), denied, "{pattern} {url}");
        }
        assert!(is_denied("http://h/admin", "http://h/ok/..%2fadmin", true));
    }

    #[test]
    fn path_pattern_is_normalised_without_changing_its_meaning() {
        for (pattern, expected) in [
            ("./a//b/", "a/b"),
            ("/a/../b", "/b"),
            ("a/b/../../c", "c"),
            ("../a", "../a"),
            ("../../a", "../../a"),
            ("*/../a", "*/../a"),
            ("a*/../b", "a*/../b"),
            ("a/..", "."),
            (".", "."),
            ("", ""),
            ("/", "/"),
        ] {
            assert_eq!(plain(PlaceKind::Path, pattern), expected, "{pattern}");
            assert_eq!(plain(PlaceKind::Url, pattern), pattern);
        }
    }
}

//! Files and URLs in the arguments of a call, resolved under the grants of its tool.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use toolcell_core::place::places_in;
use toolcell_core::policy::DirGrant;
use toolcell_core::{ArgumentPlace, PlaceKind};

use crate::egress::target::{InvalidTarget, MAX_URL, Target};

/// Maximum size of a path or URL that is resolved, in bytes: that of a URL. A longer one may lead anywhere: no rule that
/// allows applies to it, and each that asks or denies does.
const MAX_TEXT: usize = MAX_URL;

/// Maximum length of the shown beginning of a text that is not resolved, in characters.
const SHOWN: usize = 200;

/// Maximum number of paths of one call whose links are resolved in the file system. Further ones may lead anywhere: rules that
/// ask or deny for a path match them, and rules that allow do not.
const MAX_RESOLVED: usize = 256;

/// Maximum number of parts of all these paths. Each is looked up in the file system, before the call starts.
const MAX_PARTS: usize = 4_096;

/// Returns the files and URLs that the arguments refer to.
pub(crate) fn of(arguments: &Value, schema: &Value, dirs: &[DirGrant]) -> Vec<ArgumentPlace> {
    let mut left = Left {
        paths: MAX_RESOLVED,
        parts: MAX_PARTS,
    };
    places_in(arguments, schema)
        .into_iter()
        .map(|(pointer, kind, text)| match kind {
            _ if text.len() > MAX_TEXT => unresolved(pointer, kind, &text),
            PlaceKind::Path => path(pointer, &text, dirs, &mut left),
            PlaceKind::Url => url(pointer, &text),
        })
        .collect()
}

/// Numbers of paths, and of their parts, that are still resolved for one call.
struct Left {
    paths: usize,
    parts: usize,
}

/// A text that cannot be resolved, so that it may lead anywhere. Its beginning is kept for display.
fn unresolved(pointer: String, kind: PlaceKind, text: &str) -> ArgumentPlace {
    ArgumentPlace {
        pointer,
        kind,
        plain: text.chars().take(SHOWN).collect(),
        named: None,
        real: None,
        is_unresolved: true,
    }
}

/// Normalizes a URL as the host sends it. What is no URL, such as one without a scheme, a tool may complete in its own way.
fn url(pointer: String, text: &str) -> ArgumentPlace {
    let Ok(url) = url::Url::parse(text) else {
        return unresolved(pointer, PlaceKind::Url, text);
    };
    let plain = match Target::parse(url.as_str()) {
        Ok(target) => canonical(&target),
        // Not for the network, such as `data:`.
        Err(InvalidTarget::Scheme(url)) => url,
        Err(_) => return unresolved(pointer, PlaceKind::Url, text),
    };
    ArgumentPlace {
        pointer,
        kind: PlaceKind::Url,
        plain,
        named: None,
        real: None,
        is_unresolved: false,
    }
}

/// Returns a URL in the form that all spellings have in common which servers treat as equal: without empty segments of the
/// path, and with characters decoded that need no encoding (RFC 3986, section 2.3).
fn canonical(target: &Target) -> String {
    let mut path = String::new();
    for segment in target.path.split('/').filter(|segment| !segment.is_empty()) {
        path.push('/');
        path.push_str(&without_needless_encoding(segment));
    }
    if path.is_empty() || target.path.ends_with('/') {
        path.push('/');
    }
    let query = target.query.as_ref().map(|query| format!("?{query}"));
    format!(
        "{}://{}{path}{}",
        target.scheme,
        target.authority(),
        query.unwrap_or_default()
    )
}

/// Decodes the percent-encoding of unreserved characters, repeatedly, because some servers decode twice.
fn without_needless_encoding(segment: &str) -> String {
    let mut text = segment.to_owned();
    loop {
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find('%') {
            out.push_str(&rest[..at]);
            let code = rest.get(at + 1..at + 3);
            let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
            match byte.map(char::from) {
                Some(c) if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | '%') => {
                    out.push(c);
                    rest = &rest[at + 3..];
                }
                _ => {
                    out.push('%');
                    rest = &rest[at + 1..];
                }
            }
        }
        out.push_str(rest);
        if out.len() == text.len() {
            return out;
        }
        text = out;
    }
}

fn path(pointer: String, text: &str, dirs: &[DirGrant], left: &mut Left) -> ArgumentPlace {
    let resolves = left.paths > 0;
    left.paths = left.paths.saturating_sub(1);
    let plain = absolute(text);
    // A tool uses the longest directory that contains its path.
    let holding = dirs
        .iter()
        .filter_map(|grant| Some((grant, below(&plain, &grant.guest)?)))
        .max_by_key(|(grant, _)| grant.guest.len());
    let (named, real) = match holding {
        None => (None, None),
        Some((grant, rest)) => {
            let named = grant.host.join(rest);
            // The path as written may pass through a link and up again, which differs from its normalized form.
            let written = below(&format!("/{}", text.trim_start_matches('/')), &grant.guest)
                .map_or_else(|| named.clone(), |rest| grant.host.join(rest));
            let real = resolves.then(|| real(&written, &mut left.parts)).flatten();
            (Some(shown(&named)), real.as_deref().map(shown))
        }
    };
    ArgumentPlace {
        pointer,
        kind: PlaceKind::Path,
        plain,
        // What no grant holds leads nowhere.
        is_unresolved: named.is_some() && real.is_none(),
        named,
        real,
    }
}

/// Returns the rest of an absolute path below a directory of the guest.
fn below<'a>(path: &'a str, guest: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(guest.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
}

/// Normalizes a path of the guest: absolute, without `.`, `..` and empty parts. Its working directory is `/`.
fn absolute(text: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Resolves links part by part, like the system, as far as the path exists. Returns `None` if no parts are left.
fn real(written: &Path, left: &mut usize) -> Option<PathBuf> {
    let mut here = PathBuf::new();
    // The longest part of `here` that exists.
    let mut existing = PathBuf::new();
    for part in written.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                here.pop();
                if existing.starts_with(&here) {
                    existing.clone_from(&here);
                }
            }
            part => {
                *left = left.checked_sub(1)?;
                here.push(part);
                // Missing or inaccessible parts are kept as written.
                let Ok(found) = here.symlink_metadata() else {
                    continue;
                };
                if found.is_symlink()
                    && let Ok(real) = here.canonicalize()
                {
                    here = real;
                }
                existing.clone_from(&here);
            }
        }
    }
    // Of names that differ in case only, some file systems take one for the other.
    let real = existing.canonicalize().unwrap_or_else(|_| existing.clone());
    Some(match here.strip_prefix(&existing) {
        Ok(rest) if rest == Path::new("") => real,
        Ok(rest) => real.join(rest),
        Err(_) => here,
    })
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolcell_core::policy::DirAccess;

    fn grant(host: &Path, guest: &str) -> DirGrant {
        DirGrant {
            host: host.to_owned(),
            guest: guest.into(),
            access: DirAccess::READ,
            overlay: None,
        }
    }

    #[test]
    fn path_is_reported_normalized_and_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("private/sub")).unwrap();
        std::fs::create_dir_all(root.join("notes")).unwrap();
        std::os::unix::fs::symlink("../private/sub", root.join("notes/way")).unwrap();
        let dirs = [grant(&root, "/"), grant(&root.join("notes"), "/scratch")];
        for (text, plain, named, real) in [
            ("notes/a", "/notes/a", "notes/a", "notes/a"),
            ("./notes//a/", "/notes/a", "notes/a", "notes/a"),
            (
                "/notes/../private/key",
                "/private/key",
                "private/key",
                "private/key",
            ),
            ("notes/way/x", "/notes/way/x", "notes/way/x", "private/sub/x"),
            ("notes/way/../key", "/notes/key", "notes/key", "private/key"),
            ("/scratch/a", "/scratch/a", "notes/a", "notes/a"),
            ("scratch/way/x", "/scratch/way/x", "notes/way/x", "private/sub/x"),
            ("scratched", "/scratched", "scratched", "scratched"),
        ] {
            let found = of(&json!({ "path": text }), &json!({}), &dirs);
            let at = |path: &str| Some(root.join(path).display().to_string());
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0].plain, plain, "{text}");
            assert_eq!(found[0].named, at(named), "{text}");
            assert_eq!(found[0].real, at(real), "{text}");
        }
    }

    #[test]
    fn url_is_reported_in_one_form_for_all_spellings() {
        for (text, plain) in [
            ("https://evil.example./a", "https://evil.example/a"),
            ("https://EVIL.example.:443/a#b", "https://evil.example/a"),
            (" https://evil.example/a\t", "https://evil.example/a"),
            ("https:/\\evil.example/a", "https://evil.example/a"),
            ("http://a.com/%61dmin/x", "http://a.com/admin/x"),
            ("http://a.com/%41%2561/", "http://a.com/Aa/"),
            ("http://a.com//admin///x", "http://a.com/admin/x"),
            ("http://a.com/b/%2e%2e/c", "http://a.com/c"),
            ("http://a.com/b%2Fc?d=%61", "http://a.com/b%2Fc?d=%61"),
            ("http://a.com", "http://a.com/"),
            ("http://0x7f.1:8799/x", "http://127.0.0.1:8799/x"),
            ("data:,a", "data:,a"),
        ] {
            let found = of(&json!({ "url": text }), &json!({}), &[]);
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(
                (found[0].plain.as_str(), found[0].is_unresolved),
                (plain, false),
                "{text}"
            );
        }
        for text in [
            "evil.example/a",
            "evil.example",
            "//evil.example/a",
            "",
            "https://a@b.com/",
            "http://",
        ] {
            let found = of(&json!({ "url": text }), &json!({}), &[]);
            assert!(found[0].is_unresolved, "{text}");
        }
    }

    #[test]
    fn text_beyond_8_kib_may_lead_anywhere() {
        let long = "https://a.com/".len();
        for (length, is_unresolved) in [(MAX_TEXT, false), (MAX_TEXT + 1, true)] {
            let arguments = json!({
                "path": format!("{}x", "/".repeat(length - 1)),
                "url": format!("https://a.com/{}", "x".repeat(length - long)),
            });
            let found = of(&arguments, &json!({}), &[grant(Path::new("/"), "/")]);
            let flags: Vec<bool> = found.iter().map(|place| place.is_unresolved).collect();
            assert_eq!(flags, [is_unresolved; 2], "{length}");
            assert!(
                found
                    .iter()
                    .all(|place| !is_unresolved || place.plain.len() <= SHOWN)
            );
        }
    }

    #[test]
    fn links_are_resolved_for_a_limited_number_of_paths() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("there", root.join("way")).unwrap();
        std::fs::create_dir(root.join("there")).unwrap();
        let paths = vec!["way"; MAX_RESOLVED + 1];
        let found = of(&json!({ "paths": paths }), &json!({}), &[grant(&root, "/")]);
        let real: Vec<bool> = found
            .iter()
            .map(|place| place.real == Some(root.join("there").display().to_string()))
            .collect();
        assert_eq!(real[..MAX_RESOLVED], [true; MAX_RESOLVED]);
        assert_eq!(real[MAX_RESOLVED..], [false]);
        let unresolved: Vec<bool> = found.iter().map(|place| place.is_unresolved).collect();
        assert_eq!(unresolved[..MAX_RESOLVED], [false; MAX_RESOLVED]);
        assert_eq!(unresolved[MAX_RESOLVED..], [true]);
    }

    #[test]
    fn parts_are_resolved_in_a_limited_number() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let above = root
            .components()
            .filter(|part| matches!(part, Component::Normal(_)))
            .count()
            + 1;
        for (parts, is_unresolved) in [(MAX_PARTS, false), (MAX_PARTS + 1, true)] {
            // Two paths, of which the second has the last parts.
            let first = parts / 2;
            let text = |parts: usize| vec!["a"; parts - above].join("/");
            let arguments = json!({ "paths": [text(first), text(parts - first)] });
            let found = of(&arguments, &json!({}), &[grant(&root, "/")]);
            assert_eq!(
                found.iter().map(|place| place.is_unresolved).collect::<Vec<_>>(),
                [false, is_unresolved],
                "{parts}"
            );
        }
    }

    #[test]
    fn path_outside_of_all_grants_has_no_host_path() {
        let dirs = [grant(Path::new("/"), "/w")];
        let found = of(
            &json!({"path": "x", "url": "HTTPS://Example.com:443/a/../b"}),
            &json!({}),
            &dirs,
        );
        assert_eq!((found[0].plain.as_str(), &found[0].real), ("/x", &None));
        assert_eq!(found[1].plain, "https://example.com/b");
    }
}

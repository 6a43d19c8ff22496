//! Files and URLs in the arguments of a call, resolved under the grants of its tool.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use toolcell_core::place::places_in;
use toolcell_core::policy::DirGrant;
use toolcell_core::url_reading::climbs;
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

/// Maximum number of symbolic links in one path, as on Linux. A path with more may lead anywhere.
const MAX_LINKS: u32 = 40;

/// Returns the files and URLs that the arguments refer to.
pub(crate) fn of(arguments: &Value, schema: &Value, dirs: &[DirGrant]) -> Vec<ArgumentPlace> {
    let mut left = Left {
        paths: MAX_RESOLVED,
        parts: MAX_PARTS,
    };
    let found = places_in(arguments, schema);
    // Before the others, so that a question shows it.
    let rest = (!found.is_complete).then(|| unresolved(String::new(), PlaceKind::Path, ""));
    let listed = found.places.into_iter().map(|(pointer, kind, text)| match kind {
        _ if text.len() > MAX_TEXT => unresolved(pointer, kind, text),
        PlaceKind::Path => path(pointer, text, dirs, &mut left),
        PlaceKind::Url => url(pointer, text),
    });
    rest.into_iter().chain(listed).collect()
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
        // Some servers read an upward step in such a path, which then leads anywhere.
        Ok(target) if climbs(&target.path) => {
            return ArgumentPlace {
                real: Some(format!("{}://{}/", target.scheme, target.authority())),
                ..unresolved(pointer, PlaceKind::Url, &canonical(&target))
            };
        }
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
    let mut out = String::with_capacity(segment.len());
    for c in segment.chars() {
        out.push(c);
        // What is decoded may end a code as well, such as that of `%25` in `%2541`.
        while let Some(decoded) = last_unreserved(&out) {
            out.truncate(out.len() - 3);
            out.push(decoded);
        }
    }
    out
}

/// Returns the character of the percent-encoding at the end of a text, if it needs none.
fn last_unreserved(text: &str) -> Option<char> {
    let code = text.get(text.len().checked_sub(3)?..)?.strip_prefix('%')?;
    let is_hex = code.bytes().all(|b| b.is_ascii_hexdigit());
    let c = char::from(u8::from_str_radix(code, 16).ok().filter(|_| is_hex)?);
    (c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | '%')).then_some(c)
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
            let written = format!("/{}", text.trim_start_matches('/'));
            let written = below(&written, &grant.guest).unwrap_or(rest);
            let real = resolves.then(|| real(grant, written, &mut left.parts)).flatten();
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

/// Resolves links part by part, as the tool sees them, as far as the path exists. Returns `None` if no parts are left, or
/// if a part cannot be looked up.
fn real(grant: &DirGrant, rest: &str, left: &mut usize) -> Option<PathBuf> {
    let view = View::of(grant);
    let mut here = view.root.clone();
    // The part of `here` that exists, and the parts still to be resolved, the last one first.
    let mut existing = here.clone();
    let mut parts = parts(Path::new(rest));
    let (mut links, mut is_changed) = (0, false);
    while let Some(part) = parts.pop() {
        *left = left.checked_sub(1)?;
        if part == ".." {
            here.pop();
            if existing.starts_with(&here) {
                existing.clone_from(&here);
            }
            continue;
        }
        // Below what is missing nothing exists.
        let is_missing = here != existing;
        here.push(part);
        if is_missing {
            continue;
        }
        let (entry, is_upper) = view.entry(&here).ok()?;
        is_changed |= is_upper;
        match entry {
            Entry::Missing => {}
            Entry::Other => existing.clone_from(&here),
            Entry::Link(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                here.pop();
                if target.has_root() {
                    here = PathBuf::from("/");
                }
                existing.clone_from(&here);
                parts.extend(self::parts(&target));
            }
        }
    }
    // Of names that differ in case only, some file systems take one for the other. What was changed in an overlay may have
    // the name of a link below.
    let real = match is_changed {
        true => existing.clone(),
        false => existing.canonicalize().unwrap_or_else(|_| existing.clone()),
    };
    Some(match here.strip_prefix(&existing) {
        Ok(rest) if rest == Path::new("") => real,
        Ok(rest) => real.join(rest),
        Err(_) => here,
    })
}

/// Returns the names and `..` of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let kept = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    kept.collect()
}

/// A granted directory as its tool sees it: with a scratch overlay, both layers together.
struct View {
    root: PathBuf,
    overlay: Option<PathBuf>,
}

/// What is at a path without links.
enum Entry {
    Missing,
    Link(PathBuf),
    Other,
}

impl View {
    fn of(grant: &DirGrant) -> Self {
        Self {
            root: grant.host.canonicalize().unwrap_or_else(|_| grant.host.clone()),
            overlay: grant.overlay.clone(),
        }
    }

    /// Returns what is at a path, and whether it was made in the overlay.
    fn entry(&self, path: &Path) -> io::Result<(Entry, bool)> {
        if let Some(overlay) = &self.overlay
            && let Ok(below) = path.strip_prefix(&self.root)
        {
            match entry(&overlay.join("upper").join(below))? {
                Entry::Missing => {}
                upper => return Ok((upper, true)),
            }
            if is_hidden(&overlay.join("gone").join(below))? {
                return Ok((Entry::Missing, true));
            }
        }
        Ok((entry(path)?, false))
    }
}

fn entry(path: &Path) -> io::Result<Entry> {
    match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => path.read_link().map(Entry::Link),
        Ok(_) => Ok(Entry::Other),
        Err(error) if is_missing(&error) => Ok(Entry::Missing),
        Err(error) => Err(error),
    }
}

/// True if a path of the lower layer was removed: there is a file at it, or at one of its parents.
fn is_hidden(gone: &Path) -> io::Result<bool> {
    match gone.symlink_metadata() {
        Ok(found) => Ok(!found.is_dir()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
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
    fn places_that_are_too_many_are_one_that_may_lead_anywhere() {
        for (number, first) in [(1_024, ("/path/0", false)), (1_025, ("", true))] {
            let found = of(&json!({ "path": vec!["a"; number] }), &json!({}), &[]);
            assert_eq!((found[0].pointer.as_str(), found[0].is_unresolved), first);
            assert_eq!(found.len(), 1_024 + usize::from(first.1));
        }
    }

    #[test]
    fn origin_of_a_url_that_may_climb_is_known() {
        let text = format!("https://github.com{}.evil.example/..%2fx", ".a".repeat(100));
        let found = of(&json!({ "url": text }), &json!({}), &[]);
        let origin = format!("https://github.com{}.evil.example/", ".a".repeat(100));
        assert!(found[0].is_unresolved);
        assert_eq!(found[0].real.as_deref(), Some(origin.as_str()));
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
    fn url_with_an_upward_step_in_any_reading_may_lead_anywhere() {
        for (text, plain) in [
            ("https://a.com/ok/..%2fx", "https://a.com/ok/..%2fx"),
            ("https://a.com/ok/%252e%252e/x", "https://a.com/ok/../x"),
            ("https://a.com/ok/..;a/x?b", "https://a.com/ok/..;a/x?b"),
        ] {
            let found = of(&json!({ "url": text }), &json!({}), &[]);
            assert_eq!(
                (found[0].plain.as_str(), found[0].is_unresolved),
                (plain, true),
                "{text}"
            );
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
        for (parts, is_unresolved) in [(MAX_PARTS, false), (MAX_PARTS + 1, true)] {
            // Two paths, of which the second has the last parts.
            let first = parts / 2;
            let text = |parts: usize| vec!["a"; parts].join("/");
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
    fn path_leads_through_a_limited_number_of_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for number in 1..=MAX_LINKS + 1 {
            let target = (number - 1).to_string();
            std::os::unix::fs::symlink(target, root.join(number.to_string())).unwrap();
        }
        for (links, is_unresolved) in [(MAX_LINKS, false), (MAX_LINKS + 1, true)] {
            let path = links.to_string();
            let found = of(&json!({ "path": path }), &json!({}), &[grant(&root, "/")]);
            assert_eq!(found[0].is_unresolved, is_unresolved, "{links}");
        }
    }

    /// Guests, paths of arguments and where they lead, in a directory with an overlay: `way` was made in it as a link,
    /// `notes` was removed and made as a link, `both` and `anew` were removed and made as directories: the first where a link is below,
    /// the second where a directory with a link is.
    #[test]
    fn path_is_resolved_through_the_scratch_overlay() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (lower, overlay) = (root.join("lower"), root.join("overlay"));
        let link = |target: &str, at: PathBuf| std::os::unix::fs::symlink(target, at).unwrap();
        for made in ["private", "notes", "gone", "anew"] {
            std::fs::create_dir_all(lower.join(made)).unwrap();
        }
        link("private", lower.join("both"));
        link("private", lower.join("below"));
        for made in [
            "upper/anew",
            "upper/both",
            "upper/kept",
            "gone/kept",
            "work",
            "base",
        ] {
            std::fs::create_dir_all(overlay.join(made)).unwrap();
        }
        link("private", overlay.join("upper/way"));
        link("private", overlay.join("upper/notes"));
        link("../way/./x", overlay.join("upper/kept/twice"));
        link("nowhere", overlay.join("upper/dangling"));
        link("round", overlay.join("upper/round"));
        std::fs::write(overlay.join("upper/kept/plain"), "").unwrap();
        for gone in ["anew", "notes", "both", "gone", "kept/b"] {
            std::fs::write(overlay.join("gone").join(gone), "").unwrap();
        }
        std::fs::create_dir(lower.join("kept")).unwrap();
        link("../private", lower.join("kept/b"));
        link("../private", lower.join("kept/c"));
        link("../private", lower.join("anew/link"));
        let dirs = [DirGrant {
            overlay: Some(overlay),
            ..grant(&lower, "/")
        }];
        for (text, real) in [
            ("private/key", Some("private/key")),
            ("way/key", Some("private/key")),
            ("way/../x", Some("x")),
            ("notes/key", Some("private/key")),
            ("both/key", Some("both/key")),
            ("anew/link/key", Some("anew/link/key")),
            ("below/key", Some("private/key")),
            ("gone/key", Some("gone/key")),
            ("kept/plain", Some("kept/plain")),
            ("kept/new", Some("kept/new")),
            ("kept/b/key", Some("kept/b/key")),
            ("kept/c/key", Some("private/key")),
            ("kept/twice/y", Some("private/x/y")),
            ("dangling", Some("nowhere")),
            ("round/x", None),
        ] {
            let found = of(&json!({ "path": text }), &json!({}), &dirs);
            let real = real.map(|path| lower.join(path).display().to_string());
            assert_eq!(found[0].real, real, "{text}");
            assert_eq!(found[0].is_unresolved, real.is_none(), "{text}");
        }
    }

    #[test]
    fn link_to_what_is_missing_leads_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("private")).unwrap();
        std::os::unix::fs::symlink("private/new", root.join("way")).unwrap();
        std::os::unix::fs::symlink("/elsewhere/x", root.join("out")).unwrap();
        for (text, real) in [
            ("way", root.join("private/new")),
            ("way/a/../b", root.join("private/new/b")),
            ("out/a", "/elsewhere/x/a".into()),
        ] {
            let found = of(&json!({ "path": text }), &json!({}), &[grant(&root, "/")]);
            assert_eq!(found[0].real, Some(shown(&real)), "{text}");
        }
    }

    #[test]
    fn path_that_cannot_be_looked_up_may_lead_anywhere() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        // A name has at most 255 bytes.
        for (length, is_unresolved) in [(255, false), (256, true)] {
            let found = of(
                &json!({ "path": "x".repeat(length) }),
                &json!({}),
                &[grant(&root, "/")],
            );
            assert_eq!(found[0].is_unresolved, is_unresolved, "{length}");
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

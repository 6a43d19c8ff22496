//! Files and URLs in the arguments of a call, resolved under the grants of its tool.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use toolcell_core::place::places_in;
use toolcell_core::policy::DirGrant;
use toolcell_core::{ArgumentPlace, PlaceKind};

/// Maximum size of an argument treated as a path or URL, in bytes. Longer ones are neither, and are rejected where they
/// are used as one.
const MAX_TEXT: usize = 8 << 10;

/// Maximum number of paths of one call whose links are resolved in the file system. Further ones may lead anywhere: rules that
/// ask or deny for a path match them, and rules that allow do not.
const MAX_RESOLVED: usize = 256;

/// Returns the files and URLs that the arguments refer to.
pub(crate) fn of(arguments: &Value, schema: &Value, dirs: &[DirGrant]) -> Vec<ArgumentPlace> {
    let mut resolved = 0;
    places_in(arguments, schema)
        .into_iter()
        .filter(|(_, _, text)| text.len() <= MAX_TEXT)
        .filter_map(|(pointer, kind, text)| match kind {
            PlaceKind::Path => {
                resolved += 1;
                Some(path(pointer, &text, dirs, resolved <= MAX_RESOLVED))
            }
            PlaceKind::Url => url(pointer, &text),
        })
        .collect()
}

/// Normalizes a URL as clients send it.
fn url(pointer: String, text: &str) -> Option<ArgumentPlace> {
    let plain = url::Url::parse(text.trim()).ok()?.to_string();
    Some(ArgumentPlace {
        pointer,
        kind: PlaceKind::Url,
        plain,
        named: None,
        real: None,
        is_unresolved: false,
    })
}

fn path(pointer: String, text: &str, dirs: &[DirGrant], resolves: bool) -> ArgumentPlace {
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
            (Some(shown(&named)), resolves.then(|| shown(&real(&written))))
        }
    };
    ArgumentPlace {
        pointer,
        kind: PlaceKind::Path,
        plain,
        // What no grant holds leads nowhere.
        is_unresolved: named.is_some() && !resolves,
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

/// Resolves links part by part, like the system, as far as the path exists.
fn real(written: &Path) -> PathBuf {
    let mut here = PathBuf::new();
    for part in written.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                here.pop();
            }
            part => {
                here.push(part);
                // Missing or inaccessible parts are kept as written.
                if let Ok(real) = here.canonicalize() {
                    here = real;
                }
            }
        }
    }
    here
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

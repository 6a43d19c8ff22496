//! Suggestions for a path that does not exist.

use std::fs;
use std::path::Path;

use crate::show;

/// Maximum number of listed names.
const MAX_NAMES: usize = 8;

/// Maximum number of names of a directory that are compared.
pub(super) const MAX_LOOKED_AT: usize = 2000;

/// Message that a path does not exist, with similar names.
pub(crate) fn missing(path: &Path) -> String {
    let shown = show::quoted(path);
    if let Some(at) = super::invalid_part(path) {
        return format!(
            "{} cannot be opened: its name is not UTF-8, and each `\\xNN` stands for one of its bytes; the user can rename it",
            show::quoted(at)
        );
    }
    if let Some(meant) = unquoted(path) {
        return format!(
            "{shown} does not exist, {} does: the quotation marks around a name in a result are not part of it",
            show::quoted(meant)
        );
    }
    // The first missing part, in the deepest directory that exists.
    let mut missing = path;
    while let Some(parent) = missing.parent() {
        let directory = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        if let Some(names) = names_in(directory) {
            let wanted = missing
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            let place = if missing == path {
                String::new()
            } else {
                format!(", nor does {}", show::quoted(missing))
            };
            return match near(&wanted, &names) {
                _ if names.is_empty() => {
                    format!(
                        "{shown} does not exist{place}; {} is empty",
                        show::quoted(directory)
                    )
                }
                near if near.is_empty() => format!(
                    "{shown} does not exist{place}; {} has {}",
                    show::quoted(directory),
                    listed(&names)
                ),
                near => format!("{shown} does not exist{place}; near names: {}", listed(&near)),
            };
        }
        missing = parent;
    }
    match super::roots().as_slice() {
        [] => format!("{shown} does not exist: no files are granted to this tool"),
        roots => format!("{shown} does not exist; this tool can access {}", listed(roots)),
    }
}

/// The path that exists if `path` is one as [`show::name`] shows it, with quotation marks. It is only suggested: rules about
/// arguments were applied to the path that was given.
fn unquoted(path: &Path) -> Option<String> {
    let shown = path.to_str().filter(|path| path.starts_with('"'))?;
    let meant: String = serde_json::from_str(shown).ok()?;
    fs::symlink_metadata(&meant).is_ok().then_some(meant)
}

/// Names in a directory, with a `/` behind those of directories.
fn names_in(directory: &Path) -> Option<Vec<String>> {
    let entries = fs::read_dir(directory).ok()?;
    let mut names: Vec<String> = entries
        .take(MAX_LOOKED_AT)
        .flatten()
        .map(|entry| {
            let mut name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                name.push('/');
            }
            name
        })
        .collect();
    names.sort();
    Some(names)
}

fn listed(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(MAX_NAMES).map(show::name).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Names that may have been meant, most similar first.
fn near(wanted: &str, names: &[String]) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let allowed = (wanted.chars().count() / 3).max(1);
    let mut near: Vec<(usize, &String)> = names
        .iter()
        .filter_map(|name| {
            let plain = name.trim_end_matches('/').to_lowercase();
            let stem = |name: &str| {
                name.rsplit_once('.')
                    .map_or(name.to_owned(), |(stem, _)| stem.to_owned())
            };
            let distance = if !wanted.is_empty() && stem(&plain) == stem(&wanted) {
                1
            } else {
                distance(&wanted, &plain)
            };
            (distance <= allowed).then_some((distance, name))
        })
        .collect();
    near.sort();
    near.into_iter()
        .take(MAX_NAMES)
        .map(|(_, name)| name.clone())
        .collect()
}

/// Levenshtein distance between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_similar_by_edits_or_extension() {
        let names = ["Cargo.toml", "README.md", "src/"].map(String::from);
        assert_eq!(near("cargo.tml", &names), ["Cargo.toml"]);
        assert_eq!(near("readme.txt", &names), ["README.md"]);
        assert_eq!(near("scr", &names), Vec::<String>::new());
        assert_eq!(near("sr", &names), ["src/"]);
    }

    #[test]
    fn quoted_path_is_answered_with_the_path_that_it_shows() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let said = missing(Path::new(&format!("\"{root}/files\"")));
        assert!(
            said.contains(&format!(" does not exist, `{root}/files` does: ")),
            "{said}"
        );
        let said = missing(Path::new(&format!("\"{root}/no-such-thing\"")));
        assert!(!said.contains(" does: "), "{said}");
    }

    #[test]
    fn missing_path_lists_existing_names() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let said = missing(Path::new(&format!("{root}/fils/decode.rs")));
        assert!(
            said.contains("nor does") && said.ends_with("near names: files/"),
            "{said}"
        );
        let said = missing(Path::new(&format!("{root}/files/no-such-thing")));
        assert!(
            said.ends_with("has decode.rs, mod.rs, near.rs, text.rs"),
            "{said}"
        );
    }
}

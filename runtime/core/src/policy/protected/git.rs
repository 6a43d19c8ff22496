//! Directories that Git takes for a repository, whatever their name.
//!
//! Git looks for one in the current directory and in each above it, and takes any directory for a bare repository that
//! has a `HEAD`, `objects` and `refs`, or a `HEAD` and a `commondir` that says where the others are (`is_git_directory`
//! in Git's `setup.c`); so do `.git/modules/x`, `.git/worktrees/x` and what a `.git` file leads to. The `config` there
//! names programs (`core.fsmonitor`, `core.pager`) that run when the user asks for the status, and `hooks` holds
//! others.
//!
//! The decisions here depend on names alone, so that it errs on the safe side of what Git accepts. No guest makes a
//! `HEAD` ([`protection`](super::protection)), so that one becomes a repository only by what is made beside it.

use super::fold;

/// The file that every one has.
const HEAD: &str = "HEAD";

/// The file by which a directory shares what is in another one.
const COMMON: &str = "commondir";

/// Entries that a standalone Git directory has.
const OWN: [&str; 2] = ["objects", "refs"];

/// Returns true if Git accepts a directory as a repository. `has` says whether it has an entry of a name, as its file
/// system compares names.
///
/// # Errors
/// Those of `has`.
pub fn is_git_dir<E>(mut has: impl FnMut(&str) -> Result<bool, E>) -> Result<bool, E> {
    if !has(HEAD)? {
        return Ok(false);
    }
    let [objects, refs] = OWN;
    Ok(has(COMMON)? || (has(objects)? && has(refs)?))
}

/// Returns true if an entry called `name` could make its directory a Git directory. `has` is as in [`is_git_dir`].
///
/// # Errors
/// Those of `has`.
pub fn makes_git_dir<E>(name: &str, mut has: impl FnMut(&str) -> Result<bool, E>) -> Result<bool, E> {
    let name = fold(name);
    if name == COMMON || OWN.contains(&name.as_str()) {
        return has(HEAD);
    }
    // Where the file system takes it for the other.
    Ok(name == "head" && (has(COMMON)? || has(OWN[0])? || has(OWN[1])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(names: &'static [&'static str]) -> impl FnMut(&str) -> Result<bool, ()> {
        move |name| Ok(names.contains(&name))
    }

    #[test]
    fn git_directory_is_recognised_by_its_content() {
        for (names, expected) in [
            (&["HEAD", "objects", "refs", "config"][..], true),
            (&["HEAD", "commondir", "gitdir"], true),
            (&["HEAD", "objects"], false),
            (&["HEAD", "refs"], false),
            (&["objects", "refs", "commondir"], false),
            (&[], false),
        ] {
            assert_eq!(is_git_dir(has(names)), Ok(expected), "{names:?}");
        }
        assert_eq!(is_git_dir(|_| Err("unreadable")), Err("unreadable"));
    }

    #[test]
    fn last_entry_of_git_directory_is_recognised() {
        for (names, name, expected) in [
            (&["HEAD"][..], "objects", true),
            (&["HEAD"], "Refs", true),
            (&["HEAD"], "commondir", true),
            (&["HEAD"], "config", false),
            (&[], "objects", false),
            (&["objects"], "head", true),
            (&["commondir"], "Head.", true),
            (&["x"], "head", false),
        ] {
            assert_eq!(makes_git_dir(name, has(names)), Ok(expected), "{names:?} {name}");
        }
    }
}

//! Line-by-line differences of a scratch directory.

use std::io::{self, Write};
use std::path::Path;

use similar::{ChangeTag, TextDiff};
use toolcell_sandbox::overlay::{Change, Version, versions};

use crate::config::units::Bytes;
use crate::scratch::overlay::Changed;
use crate::ui::terminal::{BAD, FAINT, GOOD, NAME, Screen, Text, text};

/// Maximum size of a file that is compared, in bytes: longer diffs are not readable and take long to compute.
const MAX_FILE: u64 = 1 << 20;

/// Number of unchanged lines shown around a change, as in `diff -u`.
const CONTEXT: usize = 3;

/// Time limit of an exact comparison; after it, the diff is approximate.
const TIME: std::time::Duration = std::time::Duration::from_millis(500);

/// Writes the change of a file as a unified diff (POSIX `diff -u`); for binary files, a description.
pub(crate) fn lines<W: Write>(
    screen: &mut Screen<W>,
    directory: &Path,
    overlay: &Path,
    change: &Change,
) -> io::Result<()> {
    let (old, new) = match versions(directory, overlay, &change.path, MAX_FILE) {
        Ok(versions) => versions,
        Err(error) => return screen.line(text!("    cannot be shown: {}", error)),
    };
    match (text_of(&old), text_of(&new)) {
        (Some(old), Some(new)) => unified(screen, old, new),
        _ => match (describe(&old), describe(&new)) {
            (None, None) => Ok(()),
            (None, Some(new)) => screen.line(text!("    is {}", new)),
            (Some(old), None) => screen.line(text!("    was {}", old)),
            (Some(old), Some(new)) => screen.line(text!("    was {}, is {}", old, new)),
        },
    }
}

/// A change as plain text.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    /// Unified diff without the names of the files; empty if only the permissions changed or a directory is made.
    pub(crate) diff: Option<String>,
    /// Description of what has no diff.
    pub(crate) about: Option<String>,
}

/// Returns the change of a file as a unified diff; for binary files, a description.
pub(crate) fn plain(changed: &Changed, change: &Change) -> Plain {
    let (old, new) = match versions(&changed.directory, &changed.overlay, &change.path, MAX_FILE) {
        Ok(versions) => versions,
        Err(error) => {
            return Plain {
                about: Some(format!("cannot be shown: {error}")),
                ..Plain::default()
            };
        }
    };
    let describe = |version| describe(version).map(|text| text.plain());
    let about = match (describe(&old), describe(&new)) {
        (None, None) => None,
        (None, Some(new)) => Some(format!("is {new}")),
        (Some(old), None) => Some(format!("was {old}")),
        (Some(old), Some(new)) => Some(format!("was {old}, is {new}")),
    };
    let diff = match (text_of(&old), text_of(&new)) {
        (Some(old), Some(new)) => {
            let diff = TextDiff::configure().timeout(TIME).diff_lines(old, new);
            Some(diff.unified_diff().context_radius(CONTEXT).to_string())
        }
        _ => None,
    };
    Plain { diff, about }
}

/// Returns the text of a file. Anything but a regular file counts as empty.
fn text_of(version: &Version) -> Option<&str> {
    match version {
        Version::Nothing => Some(""),
        Version::File { bytes, .. } => std::str::from_utf8(bytes.as_deref()?)
            .ok()
            .filter(|text| !text.contains('\0')),
        _ => None,
    }
}

fn describe(version: &Version) -> Option<Text> {
    match version {
        Version::Nothing => None,
        Version::Directory => Some("a directory".into()),
        Version::Link(target) => Some(text!("a link to `{}`", target)),
        Version::File { len, .. } if text_of(version).is_some() => Some(text!("a text of {}", Bytes(*len))),
        Version::File { len, .. } => Some(text!("{} of binary data, or too long to show", Bytes(*len))),
        _ => Some("something else".into()),
    }
}

/// Writes the difference of two texts as a unified diff.
pub(crate) fn unified<W: Write>(screen: &mut Screen<W>, old: &str, new: &str) -> io::Result<()> {
    let diff = TextDiff::configure().timeout(TIME).diff_lines(old, new);
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        screen.styled(NAME, text!("    {}", hunk.header()))?;
        screen.end_line()?;
        for line in hunk.iter_changes() {
            let (style, sign) = match line.tag() {
                ChangeTag::Insert => (GOOD, '+'),
                ChangeTag::Delete => (BAD, '-'),
                ChangeTag::Equal => (FAINT, ' '),
            };
            // A carriage return is made visible: it can be the only change of a line.
            let text = line.value().trim_end_matches('\n');
            screen.hang(4);
            screen.styled(style, text!("    │ {}{}", sign, text))?;
            screen.end_line()?;
            if line.missing_newline() {
                screen.line("    \\ no newline at the end of the file")?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::terminal::Size;

    fn shown(old: &str, new: &str) -> String {
        let mut out = Vec::new();
        unified(&mut Screen::new(&mut out, false, Size::NONE), old, new).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn diff_shows_context_lines_and_is_inert() {
        insta::assert_snapshot!(shown("1\n2\n3\n4\n5\n", "1\n2\n3\n4\nfünf\u{1b}[2J"), @r"
            @@ -2,4 +2,4 @@
            │  2
            │  3
            │  4
            │ -5
            │ +fünf␛[2J
            \ no newline at the end of the file
        ");
        assert_eq!(shown("same\n", "same\n"), "");
    }
}

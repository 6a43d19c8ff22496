//! The lines that a scratch directory would change.

use std::io::{self, Write};
use std::path::Path;

use similar::{ChangeTag, TextDiff};
use toolcell_sandbox::overlay::{Change, Version, versions};

use crate::config::units::Bytes;
use crate::terminal::{BAD, FAINT, GOOD, NAME, Screen};

/// Longest file whose lines are compared, in bytes: more is not read by people, and takes long to compare.
const MAX_FILE: u64 = 1 << 20;

/// Lines around a change that are shown with it, as `diff -u` does.
const CONTEXT: usize = 3;

/// Time after which a comparison is finished coarsely instead of finely.
const TIME: std::time::Duration = std::time::Duration::from_millis(500);

/// Shows what a change does to the contents, in the unified form of POSIX `diff`; of what is no text, what it is.
pub(crate) fn lines<W: Write>(
    screen: &mut Screen<W>,
    directory: &Path,
    overlay: &Path,
    change: &Change,
) -> io::Result<()> {
    let (old, new) = versions(directory, overlay, &change.path, MAX_FILE)?;
    match (text(&old), text(&new)) {
        (Some(old), Some(new)) => unified(screen, old, new),
        _ => match (in_words(&old), in_words(&new)) {
            (None, None) => Ok(()),
            (None, Some(new)) => screen.line(&format!("      is {new}")),
            (Some(old), None) => screen.line(&format!("      was {old}")),
            (Some(old), Some(new)) => screen.line(&format!("      was {old}, is {new}")),
        },
    }
}

/// The text of a file; nothing and nothing else are the empty text.
fn text(version: &Version) -> Option<&str> {
    match version {
        Version::Nothing => Some(""),
        Version::File { bytes, .. } => std::str::from_utf8(bytes.as_deref()?)
            .ok()
            .filter(|text| !text.contains('\0')),
        _ => None,
    }
}

fn in_words(version: &Version) -> Option<String> {
    match version {
        Version::Nothing => None,
        Version::Directory => Some("a directory".into()),
        Version::Link(target) => Some(format!("a link to `{}`", target.display())),
        Version::File { len, .. } if text(version).is_some() => Some(format!("a text of {}", Bytes(*len))),
        Version::File { len, .. } => Some(format!("{} that are no text or too long to show", Bytes(*len))),
        _ => Some("something else".into()),
    }
}

fn unified<W: Write>(screen: &mut Screen<W>, old: &str, new: &str) -> io::Result<()> {
    let diff = TextDiff::configure().timeout(TIME).diff_lines(old, new);
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        screen.styled(NAME, &format!("      {}", hunk.header()))?;
        screen.end_line()?;
        for line in hunk.iter_changes() {
            let (style, sign) = match line.tag() {
                ChangeTag::Insert => (GOOD, '+'),
                ChangeTag::Delete => (BAD, '-'),
                ChangeTag::Equal => (FAINT, ' '),
            };
            let text = line.value().trim_end_matches(['\n', '\r']);
            screen.styled(style, &format!("      {sign}{text}"))?;
            screen.end_line()?;
            if line.missing_newline() {
                screen.line("      \\ No newline at end of file")?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str) -> String {
        let mut out = Vec::new();
        unified(&mut Screen::new(&mut out, false), old, new).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn changed_lines_are_shown_with_the_lines_around_them_and_are_inert() {
        insta::assert_snapshot!(shown("1\n2\n3\n4\n5\n", "1\n2\n3\n4\nfünf\u{1b}[2J"), @r"
              @@ -2,4 +2,4 @@
               2
               3
               4
              -5
              +fünf␛[2J
              \ No newline at end of file
        ");
        assert_eq!(shown("same\n", "same\n"), "");
    }
}

//! Completion in a chat: commands, and names of files after `/attach` and `@`.

use std::path::Path;

use super::command::COMMANDS;
use crate::ui::terminal::inert_line;

/// Maximum number of file names offered.
const MAX_FILES: usize = 200;

/// Returns the byte at which the completed part of a line begins, and what could stand there.
pub(super) fn of(line: &str, directory: &Path) -> (usize, Vec<String>) {
    if line.starts_with('/') && !line.contains(char::is_whitespace) {
        let fits = COMMANDS.iter().filter(|(name, _, _)| name.starts_with(line));
        // What follows a command with an argument is typed at once.
        let name = |(name, takes, _): &(&str, &str, &str)| match takes.is_empty() {
            true => (*name).to_owned(),
            false => format!("{name} "),
        };
        return (0, fits.map(name).collect());
    }
    if let Some(rest) = line.strip_prefix("/attach ") {
        let at = line.len() - rest.trim_start().len();
        return (at, files(&line[at..], directory));
    }
    let mut characters = line.char_indices().rev();
    let blank = characters.find(|(_, c)| c.is_whitespace());
    let at = blank.map_or(0, |(at, c)| at + c.len_utf8());
    match line[at..].strip_prefix('@') {
        Some(name) => {
            let mut names = files(name, directory);
            // `@NAME` ends at a blank.
            names.retain(|name| !name.contains(char::is_whitespace));
            (at + 1, names)
        }
        None => (line.len(), Vec::new()),
    }
}

/// Names of files that begin with this text, in order. Names that a terminal would not show as they are are left out.
fn files(written: &str, directory: &Path) -> Vec<String> {
    let (folder, begin) = match written.rfind('/') {
        Some(at) => written.split_at(at + 1),
        None => ("", written),
    };
    let Ok(entries) = std::fs::read_dir(directory.join(folder)) else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let is_hidden = name.starts_with('.') && !begin.starts_with('.');
        if is_hidden || !name.starts_with(begin) || inert_line(&name) != name {
            return None;
        }
        let end = if entry.path().is_dir() { "/" } else { "" };
        Some(format!("{folder}{name}{end}"))
    };
    let mut names: Vec<String> = entries.filter_map(name).take(MAX_FILES).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_file_names_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["notes.md", "no te", "nothing\u{1b}[2J", ".hidden", "docs/one.txt"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let of = |line: &str| {
            let (at, candidates) = of(line, dir.path());
            (at, candidates.join(","))
        };
        assert_eq!(of("/co"), (0, "/cost,/compact".into()));
        assert_eq!(of("/q"), (0, "/quit".into()));
        assert_eq!(of("/at"), (0, "/attach ".into()));
        assert_eq!(of("/attach no"), (8, "no te,notes.md".into()));
        assert_eq!(of("/attach ."), (8, ".hidden".into()));
        assert_eq!(of("see @no"), (5, "notes.md".into()));
        assert_eq!(of("é\u{a0}@d"), (5, "docs/".into()));
        assert_eq!(of("@docs/o"), (1, "docs/one.txt".into()));
        assert_eq!(of("@absent/x"), (1, String::new()));
        assert_eq!(of("plain no"), (8, String::new()));
    }
}

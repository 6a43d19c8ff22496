//! Input history of `toolcell chat`, shared by all sessions of the user.
//!
//! One entry per line; line ends and backslashes are written as `\
//! ` and `\\\\`. The file is read and replaced as a whole, so that nothing is written through a link. Two concurrent
//! chats can lose one entry.

use std::path::{Path, PathBuf};

use toolcell_fs::{FileError, Rules};

/// Name of the file in the state directory.
const FILE: &str = "history";

/// Maximum number of entries.
pub(crate) const MAX_ENTRIES: usize = 1_000;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// Maximum length of an entry, in bytes; longer entries are not saved.
const MAX_ENTRY: usize = 4 << 10;

/// Input history of one user.
#[derive(Debug)]
pub(crate) struct History {
    file: PathBuf,
}

impl History {
    /// Creates the history of a state directory.
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self {
            file: state_dir.join(FILE),
        }
    }

    /// Reads all entries, oldest first.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not a regular file of this user.
    pub(crate) fn read(&self) -> Result<Vec<String>, FileError> {
        match toolcell_fs::read_text(&self.file, &Rules::own(MAX_BYTES)) {
            Ok(text) => Ok(text.lines().map(unescape).collect()),
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Appends an entry, unless it repeats the last one or is too long.
    ///
    /// # Errors
    /// Same as [`History::read`], or an error if the file cannot be written.
    pub(crate) fn add(&self, entry: &str) -> Result<(), FileError> {
        let mut all = self.read()?;
        if entry.is_empty() || entry.len() > MAX_ENTRY || all.last().is_some_and(|last| last == entry) {
            return Ok(());
        }
        all.push(entry.to_owned());
        let first = all.len().saturating_sub(MAX_ENTRIES);
        let text: String = all[first..].iter().map(|entry| escape(entry) + "\n").collect();
        if let Some(dir) = self.file.parent() {
            toolcell_fs::private_dir(dir)?;
        }
        toolcell_fs::replace(&self.file, text.as_bytes(), toolcell_fs::PRIVATE)
    }
}

fn escape(entry: &str) -> String {
    entry
        .replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
}

fn unescape(line: &str) -> String {
    let mut entry = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => entry.push(match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            }),
            c => entry.push(c),
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back_as_they_were_typed() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::new(&dir.path().join("state"));
        assert_eq!(history.read().unwrap(), Vec::<String>::new());
        let typed = ["one", "a\nb", "c:\\new\\", "\\\\n\r", "#V2"];
        for entry in typed {
            history.add(entry).unwrap();
            history.add(entry).unwrap();
        }
        history.add("").unwrap();
        assert_eq!(history.read().unwrap(), typed);
    }

    #[test]
    fn entries_are_kept_up_to_their_number_and_length() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::new(dir.path());
        let all: String = (0..MAX_ENTRIES).map(|i| format!("{i}\n")).collect();
        std::fs::write(dir.path().join(FILE), all).unwrap();
        assert_eq!(history.read().unwrap().len(), MAX_ENTRIES);
        history.add("new").unwrap();
        let all = history.read().unwrap();
        assert_eq!((all.len(), all[0].as_str()), (MAX_ENTRIES, "1"));
        history.add(&"x".repeat(MAX_ENTRY)).unwrap();
        history.add(&"y".repeat(MAX_ENTRY + 1)).unwrap();
        assert_eq!(history.read().unwrap().last(), Some(&"x".repeat(MAX_ENTRY)));
    }

    #[test]
    fn symlinked_history_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("precious");
        std::fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join(FILE)).unwrap();
        let history = History::new(dir.path());
        history.read().unwrap_err();
        history.add("x").unwrap_err();
        assert_eq!(std::fs::read_to_string(target).unwrap(), "mine");
    }
}

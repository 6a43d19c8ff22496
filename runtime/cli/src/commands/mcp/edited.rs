//! A configuration file that is changed: shown as a difference, and replaced with a copy of the old one beside it.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use toolcell_fs::{Owner, PRIVATE, Rules};

use crate::environment::Environment;
use crate::scratch::diff;
use crate::ui::render::Console;
use crate::ui::terminal::{Shown, text};

/// Maximum size of a file, in bytes. That of Claude Code holds its history as well.
const MAX_BYTES: u64 = 64 << 20;

/// End of the name of the copy that is kept of a changed file.
const BACKUP: &str = ".toolcell-backup";

/// A file, and its contents before the change.
pub(crate) struct Edited {
    file: PathBuf,
    /// Its path for display.
    pub(crate) shown: String,
    /// Text and permissions; `None` if there is no file.
    old: Option<(String, u32)>,
}

impl Edited {
    /// A file that was not read yet. A link is followed, as its owner does.
    pub(crate) fn of(file: PathBuf, environment: &Environment) -> Self {
        let file = std::fs::canonicalize(&file).unwrap_or(file);
        Self {
            shown: environment.shown(&file),
            file,
            old: None,
        }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// Returns an error if it is no regular file of the user, too large, or not UTF-8.
    pub(crate) fn read(mut self) -> anyhow::Result<Self> {
        self.old = read(&self.file)?;
        Ok(self)
    }

    /// Text of the file; empty if there is none.
    pub(crate) fn text(&self) -> &str {
        self.old.as_ref().map_or("", |(text, _)| text.as_str())
    }

    /// Shows the change to a new text.
    pub(crate) fn show(&self, new: &str, console: &Console) -> io::Result<()> {
        console.write(|s| {
            s.out.line(text!("change of {}:", Shown(&self.shown)))?;
            diff::unified(&mut s.out, self.text(), new)?;
            s.out.flush()
        })
    }

    /// Writes the changed file, and a copy of the old one.
    ///
    /// # Errors
    /// Returns an error if one of them cannot be written, or if the file was changed since it was read. The file then stays
    /// as it was.
    pub(crate) fn write(&self, new: &str) -> anyhow::Result<()> {
        let mode = self.old.as_ref().map_or(PRIVATE, |(_, mode)| *mode);
        let directory = self.file.parent().unwrap_or(Path::new("/"));
        if self.old.is_none() {
            std::fs::create_dir_all(directory)?;
        }
        // Two of these commands write one after the other. Other programs do not know the lock, so that the time between
        // the comparison and the replacement is kept short.
        let lock = std::fs::File::open(directory)?;
        lock.lock()?;
        // One that cannot be removed is no reason to write nothing.
        _ = toolcell_fs::remove_unfinished(directory, toolcell_fs::UNFINISHED_AGE);
        if let Some((old, _)) = &self.old {
            toolcell_fs::replace(&backup_of(&self.file), old.as_bytes(), mode)?;
        }
        anyhow::ensure!(
            read(&self.file)? == self.old,
            "it was changed in the meantime; run the command again"
        );
        Ok(toolcell_fs::replace(&self.file, new.as_bytes(), mode)?)
    }
}

/// Path of the copy of a file.
fn backup_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(BACKUP);
    file.with_file_name(name)
}

/// Reads a file with its permissions; `None` if there is none.
fn read(file: &Path) -> anyhow::Result<Option<(String, u32)>> {
    let rules = Rules {
        owner: Owner::User,
        follow: false,
        max_bytes: MAX_BYTES,
    };
    if matches!(std::fs::symlink_metadata(file), Err(error) if error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let opened = toolcell_fs::open(file, &rules)?;
    let mode = opened.metadata()?.mode() & 0o777;
    let mut bytes = Vec::new();
    opened.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("it is not UTF-8"))?;
    Ok(Some((text, mode)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_changed_since_it_was_read_is_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(home.path(), &[]);
        let file = home.path().join("client/mcp.json");
        let edited = || Edited::of(file.clone(), &environment).read().unwrap();
        let (first, second) = (edited(), edited());
        first.write("first").unwrap();
        let error = second.write("second").unwrap_err().to_string();
        assert!(error.contains("changed in the meantime"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "first");
        edited().write("second").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "second");
        assert_eq!(std::fs::read_to_string(backup_of(&file)).unwrap(), "first");
    }
}

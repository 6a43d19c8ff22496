//! The tool `files_write`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use toolcell_sdk::{Result, ToolError, files, input, show, tool};

use crate::replace::replace;

/// Maximum size of old content that is restored if overwriting fails, in bytes.
const MAX_KEPT: u64 = 16 << 20;

/// Action if the file exists.
#[input]
#[serde(rename_all = "lowercase")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Create,
    Overwrite,
    Append,
}

/// Write a text file: create a new one, overwrite one, or append to one.
///
/// To change a part of a file, use `files_edit`.
#[tool(title = "Write a file", destructive)]
pub(crate) fn files_write(
    /// Path of the file.
    #[format("path")]
    #[alias("file_path", "filename", "file")]
    path: String,
    /// The text to write.
    #[alias("contents", "text", "file_text")]
    content: String,
    /// `create` fails if the file exists; `overwrite` replaces all that is in it; `append` adds to its end. The last two
    /// create it if it does not exist.
    #[default(Mode::Create)]
    mode: Mode,
    /// Create missing directories on the way.
    #[default(false)]
    parents: bool,
) -> Result<String> {
    let file = Path::new(&path);
    files::must_be_creatable(file)?;
    if parents && let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(|error| files::explain(parent, &error))?;
    }
    let done = match mode {
        Mode::Create => create(file, &content).map(|()| Done::Created),
        Mode::Append => append(file, &content),
        Mode::Overwrite => overwrite(file, &content),
    };
    match done {
        Ok(done) => Ok(format!(
            "{}: {} in {} written.",
            done.said_of(&path),
            count(content.len(), "byte"),
            count(content.lines().count(), "line")
        )),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(ToolError::failed(format_args!(
            "{} already exists; choose another path, or `mode` `overwrite` or `append`",
            show::quoted(&path)
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !parents => {
            Err(files::explain(&path, &error)
                .context("nothing written (`parents` creates missing directories)"))
        }
        Err(error) => Err(files::explain(&path, &error)),
    }
}

/// What was done with a file, and its size before, in bytes.
enum Done {
    Created,
    Appended(u64),
    Overwrote(u64),
}

impl Done {
    fn said_of(&self, path: &str) -> String {
        let path = show::quoted(path);
        let before = |bytes: u64| format!("which had {bytes} byte{}", if bytes == 1 { "" } else { "s" });
        match *self {
            Self::Created => format!("Created {path}"),
            Self::Appended(bytes) => format!("Appended to {path}, {}", before(bytes)),
            Self::Overwrote(bytes) => format!("Overwrote {path}, {}", before(bytes)),
        }
    }
}

fn create(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(content.as_bytes()).inspect_err(|_| {
        // Removes the incomplete file.
        let _ = fs::remove_file(path);
    })
}

fn append(path: &Path, content: &str) -> io::Result<Done> {
    if !path.exists() {
        return create(path, content).map(|()| Done::Created);
    }
    let mut file = OpenOptions::new().append(true).open(path)?;
    let before = file.metadata()?.len();
    file.write_all(content.as_bytes()).inspect_err(|_| {
        let _ = file.set_len(before);
    })?;
    Ok(Done::Appended(before))
}

fn overwrite(path: &Path, content: &str) -> io::Result<Done> {
    let before = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return create(path, content).map(|()| Done::Created);
        }
        Err(error) => return Err(error),
    };
    // A write-only or very large file is overwritten without a copy.
    let old = if before <= MAX_KEPT {
        fs::read(path).ok()
    } else {
        None
    };
    match old {
        Some(old) => replace(path, &old, content.as_bytes())?,
        None => OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path)?
            .write_all(content.as_bytes())?,
    }
    Ok(Done::Overwrote(before))
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::json;
    use toolcell_sdk::testing;

    fn write(path: &Path, content: &str, mode: &str) -> Result<String> {
        testing::call::<files_write>(json!({"path": path, "content": content, "mode": mode}))
            .map(|o| o.to_text())
    }

    #[cfg(unix)]
    #[test]
    fn name_that_shows_another_entry_is_not_written() {
        use std::os::unix::ffi::OsStrExt as _;
        let root = tempfile::tempdir().unwrap();
        for name in [&b"caf\xe9"[..], b"dir\xff"] {
            fs::write(root.path().join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
        }
        for (path, mode) in [
            ("caf\\xe9", "create"),
            ("caf\\xe9", "overwrite"),
            ("caf\\xe9", "append"),
            ("dir\\xff/new", "create"),
        ] {
            let error = testing::call::<files_write>(
                json!({"path": root.path().join(path), "content": "x", "mode": mode, "parents": true}),
            )
            .unwrap_err();
            assert!(
                error
                    .message()
                    .contains("` cannot be opened: its name is not UTF-8"),
                "{error}"
            );
        }
        assert_eq!(fs::read_dir(&root).unwrap().count(), 2);
        // Without such an entry it is a name like any other.
        write(&root.path().join("x\\xe9"), "", "create").unwrap();
        write(&root.path().join("x\\xe9"), "1", "overwrite").unwrap();
    }

    #[test]
    fn each_mode_reports_its_action() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.txt");
        let said = write(&path, "one\n", "create").unwrap();
        assert!(
            said.starts_with("Created `") && said.ends_with("a.txt`: 4 bytes in 1 line written."),
            "{said}"
        );
        let error = write(&path, "two\n", "create").unwrap_err();
        assert!(
            error.message().contains("already exists; choose another path"),
            "{error}"
        );
        assert!(
            write(&path, "two\n", "append")
                .unwrap()
                .ends_with("a.txt`, which had 4 bytes: 4 bytes in 1 line written.")
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert!(
            write(&path, "3", "overwrite")
                .unwrap()
                .ends_with("a.txt`, which had 8 bytes: 1 byte in 1 line written.")
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "3");
    }

    #[test]
    fn directories_are_created_on_request_only() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/c.txt");
        let error = write(&path, "x", "create").unwrap_err();
        assert!(
            error
                .message()
                .starts_with("nothing written (`parents` creates missing directories)"),
            "{error}"
        );
        testing::call::<files_write>(json!({"path": path, "content": "x", "parents": true})).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
    }

    #[test]
    fn directory_is_not_written_to() {
        let root = tempfile::tempdir().unwrap();
        for mode in ["create", "overwrite", "append"] {
            assert!(write(root.path(), "x", mode).is_err(), "{mode}");
        }
    }
}

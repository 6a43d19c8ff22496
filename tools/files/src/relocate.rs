//! The tools `files_move`, `files_copy` and `files_make_directory`: none of them overwrites anything.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use toolcell_sdk::{Result, ToolError, files, show, tool};

/// Move or rename a file or a directory. Nothing is overwritten: the destination must not exist.
#[tool(title = "Move a file", destructive)]
pub(crate) fn files_move(
    /// Path of the file or directory.
    #[format("path")]
    #[alias("from", "src", "old_path", "source_path")]
    source: String,
    /// Its new path, with its name; the directory must exist.
    #[format("path")]
    #[alias("to", "dest", "dst", "new_path", "destination_path")]
    destination: String,
) -> Result<String> {
    let (from, to) = (Path::new(&source), Path::new(&destination));
    let metadata = fs::symlink_metadata(from).map_err(|error| files::explain(&source, &error))?;
    must_be_free(to)?;
    match fs::rename(from, to) {
        Ok(()) => {}
        // Between two granted directories a file is copied.
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices && metadata.is_file() => {
            copy(from, to).map_err(|error| explain_copy(from, to, &error))?;
            fs::remove_file(from).map_err(|error| {
                files::explain(&source, &error)
                    .context(format_args!("copied to {}, but not removed", show::quoted(to)))
            })?;
        }
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            return Err(ToolError::failed(format_args!(
                "{} and {} are in different granted directories, between which only files can be moved",
                show::quoted(from),
                show::quoted(to)
            )));
        }
        // EINVAL of rename(2).
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && metadata.is_dir() => {
            return Err(ToolError::failed(format_args!(
                "{} cannot be moved to {}: a directory does not fit into itself",
                show::quoted(from),
                show::quoted(to)
            )));
        }
        Err(error) => return Err(explain_copy(from, to, &error)),
    }
    Ok(format!("Moved {} to {}.", show::quoted(from), show::quoted(to)))
}

/// Copy a file. Nothing is overwritten: the destination must not exist.
#[tool(title = "Copy a file")]
pub(crate) fn files_copy(
    /// Path of the file.
    #[format("path")]
    #[alias("from", "src", "source_path")]
    source: String,
    /// Path of the copy, with its name; the directory must exist.
    #[format("path")]
    #[alias("to", "dest", "dst", "new_path", "destination_path")]
    destination: String,
) -> Result<String> {
    let (from, to) = (Path::new(&source), Path::new(&destination));
    must_be_free(to)?;
    drop(files::open(from)?);
    let bytes = copy(from, to).map_err(|error| explain_copy(from, to, &error))?;
    Ok(format!(
        "Copied {} to {}: {bytes} bytes.",
        show::quoted(from),
        show::quoted(to)
    ))
}

/// Make a directory, with the missing directories on the way. It is no error if it exists.
#[tool(title = "Make a directory", idempotent)]
pub(crate) fn files_make_directory(
    /// Path of the directory.
    #[format("path")]
    #[alias("directory", "dir", "dir_path", "folder")]
    path: String,
) -> Result<String> {
    if Path::new(&path).is_dir() {
        return Ok(format!("{} exists already.", show::quoted(&path)));
    }
    files::must_be_creatable(&path)?;
    fs::create_dir_all(&path).map_err(|error| files::explain(&path, &error))?;
    Ok(format!("Made the directory {}.", show::quoted(&path)))
}

fn must_be_free(to: &Path) -> Result<()> {
    match fs::symlink_metadata(to) {
        Err(_) => files::must_be_creatable(to),
        Ok(metadata) if metadata.is_dir() => Err(ToolError::failed(format_args!(
            "{} is a directory that exists; write the path with the new name, such as {}",
            show::quoted(to),
            show::quoted(to.join("NAME"))
        ))),
        Ok(_) => Err(ToolError::failed(format_args!(
            "{} already exists; delete it first, or choose another path",
            show::quoted(to)
        ))),
    }
}

/// Copies a file to a new one; an incomplete copy is removed.
fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let mut source = File::open(from)?;
    let mut copy = OpenOptions::new().write(true).create_new(true).open(to)?;
    io::copy(&mut source, &mut copy).inspect_err(|_| {
        let _ = fs::remove_file(to);
    })
}

/// Says which of the two paths is missing.
fn explain_copy(from: &Path, to: &Path, error: &io::Error) -> ToolError {
    match (error.kind(), to.parent()) {
        (io::ErrorKind::NotFound, Some(parent)) if from.exists() => {
            files::explain(parent, error).context("`files_make_directory` makes directories")
        }
        _ => files::explain(to, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::json;
    use toolcell_sdk::testing;

    fn text(answer: Result<toolcell_sdk::Output>) -> Result<String, String> {
        answer
            .map(|output| output.to_text())
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn directory_is_not_moved_into_itself() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("a");
        fs::create_dir(&directory).unwrap();
        let paths = json!({"source": directory, "destination": directory.join("b")});
        let error = text(testing::call::<files_move>(paths)).unwrap_err();
        assert!(error.ends_with("a directory does not fit into itself"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn destination_that_shows_another_entry_is_refused() {
        use std::os::unix::ffi::OsStrExt as _;
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "").unwrap();
        fs::write(root.path().join("a"), "").unwrap();
        let (source, destination) = (root.path().join("a"), root.path().join("caf\\xe9"));
        let paths = json!({"source": source, "destination": destination});
        for answer in [
            testing::call::<files_copy>(paths.clone()),
            testing::call::<files_move>(paths),
            testing::call::<files_make_directory>(json!({"path": destination.join("d")})),
        ] {
            let error = text(answer).unwrap_err();
            assert!(
                error.contains("` cannot be opened: its name is not UTF-8"),
                "{error}"
            );
        }
        assert_eq!(fs::read_dir(&root).unwrap().count(), 2);
    }

    #[test]
    fn file_is_copied_and_moved() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("a"), "12345").unwrap();
        let copied = text(testing::call::<files_copy>(
            json!({"source": path("a"), "destination": path("b")}),
        ));
        assert!(copied.unwrap().ends_with(": 5 bytes."));
        text(testing::call::<files_move>(
            json!({"source": path("b"), "destination": path("c")}),
        ))
        .unwrap();
        assert!(!path("b").exists());
        assert_eq!(fs::read(path("c")).unwrap(), b"12345");
        assert_eq!(fs::read(path("a")).unwrap(), b"12345");
    }

    #[test]
    fn existing_destination_is_never_overwritten() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("a"), "a").unwrap();
        fs::write(path("b"), "b").unwrap();
        fs::create_dir(path("d")).unwrap();
        for (to, says) in [("b", "already exists"), ("d", "is a directory that exists")] {
            let arguments = json!({"source": path("a"), "destination": path(to)});
            for answer in [
                testing::call::<files_copy>(arguments.clone()),
                testing::call::<files_move>(arguments.clone()),
            ] {
                let error = text(answer).unwrap_err();
                assert!(error.contains(says), "{error}");
            }
        }
        assert_eq!(fs::read(path("b")).unwrap(), b"b");
        assert!(path("a").exists());
    }

    #[test]
    fn missing_source_or_directory_is_named() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("a"), "a").unwrap();
        for (from, to, says) in [
            ("none", "b", "none` does not exist"),
            ("a", "no/b", "`files_make_directory` makes directories"),
        ] {
            let arguments = json!({"source": path(from), "destination": path(to)});
            for answer in [
                testing::call::<files_copy>(arguments.clone()),
                testing::call::<files_move>(arguments.clone()),
            ] {
                let error = text(answer).unwrap_err();
                assert!(error.contains(says), "{error}");
            }
        }
    }

    #[test]
    fn directories_on_the_way_are_made() {
        let root = tempfile::tempdir().unwrap();
        let made = root.path().join("a/b/c");
        for _ in 0..2 {
            text(testing::call::<files_make_directory>(json!({"path": made}))).unwrap();
            assert!(made.is_dir());
        }
        fs::write(root.path().join("file"), "").unwrap();
        let below = root.path().join("file/x");
        assert!(text(testing::call::<files_make_directory>(json!({"path": below}))).is_err());
    }
}

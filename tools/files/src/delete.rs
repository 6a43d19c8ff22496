//! The tool `files_delete`.

use std::fs;
use std::path::{Path, PathBuf};

use toolcell_sdk::{Result, ToolError, files, show, tool};

/// Delete a file, a link or an empty directory; with `recursive`, a directory and everything in it. It cannot be undone.
#[tool(title = "Delete a file", destructive)]
pub(crate) fn files_delete(
    /// Path of the file or directory.
    #[format("path")]
    #[alias("file_path", "filename", "file", "directory")]
    path: String,
    /// Delete a directory with everything in it.
    #[default(false)]
    recursive: bool,
) -> Result<String> {
    let target = Path::new(&path);
    let shown = show::quoted(&path);
    // Of the link itself, not of what it leads to.
    let metadata = fs::symlink_metadata(target).map_err(|error| files::explain(&path, &error))?;
    if !metadata.is_dir() {
        fs::remove_file(target).map_err(|error| files::explain(&path, &error))?;
        return Ok(format!("Deleted {shown}."));
    }
    let entries = fs::read_dir(target)
        .map_err(|error| files::explain(&path, &error))?
        .count();
    if entries > 0 && !recursive {
        return Err(ToolError::failed(format_args!(
            "{shown} is a directory with {entries} {}; nothing deleted. `recursive` deletes it with everything in it",
            if entries == 1 { "entry" } else { "entries" }
        )));
    }
    // A granted directory has no parent here, and removing it would fail after everything in it was deleted.
    if fs::symlink_metadata(target.join("..")).is_err() {
        return Err(ToolError::failed(format_args!(
            "{shown} is a granted directory itself, which cannot be deleted; nothing deleted. Delete the entries in it"
        )));
    }
    if entries == 0 {
        fs::remove_dir(target).map_err(|error| files::explain(&path, &error))?;
        return Ok(format!("Deleted the empty directory {shown}."));
    }
    if let Some(entry) = undeletable(target) {
        return Err(ToolError::failed(format_args!(
            "the name of {} is not UTF-8, so that it cannot be deleted; nothing deleted. The user can rename it",
            show::quoted(entry)
        )));
    }
    fs::remove_dir_all(target)
        .map_err(|error| files::explain(&path, &error).context("some of it may be deleted"))?;
    Ok(format!("Deleted the directory {shown} and everything in it."))
}

/// An entry below a directory whose name is not UTF-8.
fn undeletable(directory: &Path) -> Option<PathBuf> {
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if files::has_invalid_name(&entry) {
                return Some(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::json;
    use toolcell_sdk::testing;

    fn delete(path: &Path, recursive: bool) -> Result<String, String> {
        let answer = testing::call::<files_delete>(json!({"path": path, "recursive": recursive}));
        answer
            .map(|output| output.to_text())
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn file_and_empty_directory_are_deleted() {
        let root = tempfile::tempdir().unwrap();
        let (file, directory) = (root.path().join("a"), root.path().join("d"));
        fs::write(&file, "x").unwrap();
        fs::create_dir(&directory).unwrap();
        assert!(delete(&file, false).unwrap().starts_with("Deleted `"));
        assert!(
            delete(&directory, false)
                .unwrap()
                .starts_with("Deleted the empty directory")
        );
        assert!(!file.exists() && !directory.exists());
        assert!(delete(&file, false).unwrap_err().contains("does not exist"));
    }

    #[test]
    fn full_directory_is_deleted_only_with_recursive() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("d");
        fs::create_dir_all(directory.join("deep")).unwrap();
        fs::write(directory.join("deep/a"), "x").unwrap();
        let error = delete(&directory, false).unwrap_err();
        assert!(
            error.contains("is a directory with 1 entry; nothing deleted"),
            "{error}"
        );
        assert!(directory.join("deep/a").exists());
        delete(&directory, true).unwrap();
        assert!(!directory.exists());
    }

    #[cfg(unix)]
    #[test]
    fn directory_with_an_entry_of_no_text_stays_as_it_is() {
        use std::os::unix::ffi::OsStrExt as _;
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("d");
        fs::create_dir_all(directory.join("deep")).unwrap();
        for name in [&b"plain"[..], b"caf\xe9"] {
            fs::write(directory.join("deep").join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
        }
        let error = delete(&directory, true).unwrap_err();
        assert!(
            error.contains("deep/caf\\xe9` is not UTF-8, so that it cannot be deleted; nothing deleted."),
            "{error}"
        );
        assert!(directory.join("deep/plain").exists());
    }

    #[cfg(unix)]
    #[test]
    fn link_is_deleted_and_not_its_target() {
        let root = tempfile::tempdir().unwrap();
        let (directory, link) = (root.path().join("d"), root.path().join("link"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("a"), "x").unwrap();
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        delete(&link, true).unwrap();
        assert!(!link.exists() && directory.join("a").exists());
    }
}

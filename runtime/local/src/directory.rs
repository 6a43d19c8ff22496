//! Models in a directory.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::GgufError;
use crate::model::Model;

/// Maximum number of entries of a directory that are looked at: 10,000. What comes after them is reported as left out.
pub const MAX_ENTRIES: usize = 10_000;

/// Maximum number of files that are read: 1,000.
pub const MAX_FILES: usize = 1_000;

/// Files of a directory.
#[derive(Debug, Default)]
pub struct Listed {
    /// Files that end in `.gguf`, by name, with the facts about them or the reason why there are none.
    pub files: Vec<(PathBuf, Result<Model, GgufError>)>,
    /// True if the directory has more entries or files than are looked at.
    pub is_cut: bool,
}

/// Lists the models in a directory, without those in directories below.
///
/// # Errors
/// The error of reading the directory; one that does not exist is [`io::ErrorKind::NotFound`].
pub fn list(dir: &Path) -> io::Result<Listed> {
    let mut paths = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(dir)? {
        count += 1;
        if count > MAX_ENTRIES {
            break;
        }
        let path = entry?.path();
        let is_model = path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
        if is_model {
            paths.push(path);
        }
    }
    paths.sort();
    let is_cut = count > MAX_ENTRIES || paths.len() > MAX_FILES;
    paths.truncate(MAX_FILES);
    let files = paths
        .into_iter()
        .map(|path| {
            let model = Model::open(&path);
            (path, model)
        })
        .collect();
    Ok(Listed { files, is_cut })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::small_llama;

    #[test]
    fn models_are_listed_by_name_with_their_faults() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [
            ("b.gguf", small_llama().bytes()),
            ("a.GGUF", b"GGUF".to_vec()),
            ("c.txt", Vec::new()),
        ] {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        // Neither is opened in a way that waits.
        std::fs::create_dir(dir.path().join("d.gguf")).unwrap();
        let listed = list(dir.path()).unwrap();
        let found: Vec<_> = listed
            .files
            .iter()
            .map(|(path, model)| (path.file_name().unwrap().to_str().unwrap(), model.is_ok()))
            .collect();
        assert_eq!(found, [("a.GGUF", false), ("b.gguf", true), ("d.gguf", false)]);
        assert!(!listed.is_cut);
        let missing = list(&dir.path().join("none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn number_of_files_is_limited_on_both_sides() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..MAX_FILES {
            std::fs::write(dir.path().join(format!("{number}.gguf")), "").unwrap();
        }
        assert!(!list(dir.path()).unwrap().is_cut);
        std::fs::write(dir.path().join("one-more.gguf"), "").unwrap();
        let listed = list(dir.path()).unwrap();
        assert!(listed.is_cut);
        assert_eq!(listed.files.len(), MAX_FILES);
    }
}

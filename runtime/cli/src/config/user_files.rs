//! Files of the user and of projects: lists in the state directory, and reasons for refusing a file.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use toolcell_fs::{FileError, Refusal, Rules};

use crate::environment::Environment;
use crate::error::Failure;

/// Maximum size of a list in the state directory, in bytes.
const MAX_LIST_BYTES: u64 = 4 << 20;

/// Name of the user's configuration file, in the directory for configuration.
pub(crate) const USER_FILE: &str = "config.toml";

/// Returns the path of the user's file, existing or not: the one that was named, or the usual one.
pub(crate) fn user_file(environment: &Environment) -> Option<PathBuf> {
    if let Some(named) = &environment.named_config {
        return Some(named.clone());
    }
    environment.config_dir.as_ref().map(|dir| dir.join(USER_FILE))
}

/// Returns the path of the user's file, for display.
pub(crate) fn user_file_shown(environment: &Environment) -> String {
    user_file(environment).map_or_else(
        || "your own configuration".into(),
        |path| environment.shown(&path),
    )
}

/// Reads a list from the state directory. A missing file is an empty list.
///
/// # Errors
/// Returns an error if the file cannot be used or is not a valid list.
pub(crate) fn read_list<T: DeserializeOwned>(file: &Path) -> io::Result<Vec<T>> {
    match toolcell_fs::read(file, &Rules::own(MAX_LIST_BYTES)) {
        Ok(text) => serde_json::from_slice(&text).map_err(io::Error::other),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Replaces a list atomically. The file is readable only by the user.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub(crate) fn write_list<T: Serialize>(file: &Path, list: &[T]) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        toolcell_fs::private_dir(dir)?;
    }
    let text = serde_json::to_vec_pretty(list).map_err(io::Error::other)?;
    Ok(toolcell_fs::replace(file, &text, toolcell_fs::PRIVATE)?)
}

/// Adds the reason and, if there is one, a hint.
pub(crate) fn because(failure: Failure, error: FileError) -> Failure {
    let refusal = match error {
        FileError::Refused { reason, .. } => reason,
        // The failure already names the file, by the path the user knows.
        FileError::Io { source, .. } => return failure.because(source),
        error => return failure.because(error),
    };
    let failure = failure.because(refusal);
    match refusal {
        Refusal::Link => failure.hint("a link could point anywhere: replace it with the file itself"),
        Refusal::OtherOwner(_) => failure.hint(
            "only files owned by you or root are used here: change its owner (`chown`), or work in another directory",
        ),
        Refusal::WritableByAll => failure.hint("remove write access for others: chmod o-w"),
        Refusal::HardLink(_) => failure.hint("replace it with a copy"),
        Refusal::NotUtf8(_) => failure.hint("save it as UTF-8"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Exit;

    #[test]
    fn missing_list_is_empty_and_unusable_one_is_error() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("list");
        let read = || read_list::<String>(&list);
        assert_eq!(read().unwrap(), [] as [String; 0]);
        let entries = ["a".to_owned(), "b".to_owned()];
        write_list(&list, &entries).unwrap();
        assert_eq!(read().unwrap(), entries);
        std::fs::write(&list, "[\"a\"").unwrap();
        assert!(read().is_err());
        std::fs::remove_file(&list).unwrap();
        std::fs::create_dir(&list).unwrap();
        assert!(read().is_err());
        std::fs::remove_dir(&list).unwrap();
        std::os::unix::fs::symlink("none", &list).unwrap();
        assert!(read().is_err());
    }

    #[test]
    fn refused_file_is_explained_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::fs::write(at("latin"), b"\xff").unwrap();
        let rules = Rules::found(100);
        for (name, remedy) in [
            ("link", Some("replace it with the file itself")),
            ("latin", Some("save it as UTF-8")),
            ("absent", None),
        ] {
            let error = toolcell_fs::read_text(&at(name), &rules).unwrap_err();
            let failure = format!("{:?}", because(Failure::new(Exit::Config, "x"), error));
            assert_eq!(failure.contains("hints: []"), remedy.is_none(), "{failure}");
            assert!(failure.contains(remedy.unwrap_or_default()), "{failure}");
        }
    }

    #[test]
    fn file_of_the_user_is_the_named_or_the_usual_one() {
        let mut environment = Environment::for_tests(Path::new("/work"), &[]);
        assert_eq!(user_file_shown(&environment), "your own configuration");
        environment.config_dir = Some("/config".into());
        assert_eq!(user_file_shown(&environment), "/config/config.toml");
        environment.named_config = Some("/work/mine.toml".into());
        assert_eq!(user_file_shown(&environment), "mine.toml");
    }
}

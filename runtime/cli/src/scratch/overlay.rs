//! `--scratch DIR`: redirects the changes of tools to DIR, for review before they are committed.
//!
//! A tool can also have a scratch directory in the configuration (`scratch = "DIR"`).
//!
//! DIR contains an overlay for each granted directory, named by a digest of the directory's path, and next to it a file
//! with that path. Such files can also come from a cloned repository or a tool, so the state directory has a record of
//! each overlay; an overlay without a record is neither committed nor removed. The overlay holds a random mark, which is
//! in its record as well: what was moved to the path of another overlay is not taken for it.
//! No tool can access what has the name of an overlay ([`toolcell_core::protected`]) but the one whose changes go
//! there.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use toolcell_core::policy::DirGrant;
use toolcell_core::protected::OVERLAY_PREFIX;
use toolcell_fs::Rules;
use toolcell_sandbox::Digest;
use toolcell_sandbox::overlay::{self, Change, Changes, CommitError, CommitOptions, OnConflict, Skipped};
use uuid::Uuid;

use crate::config::user_files;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Extension of files that hold the path of a granted directory.
const ENDING: &str = "path";

/// Name of the directory of records, in the state directory.
const RECORDS: &str = "scratch";

/// Name of the file in an overlay that holds its mark.
const MARK: &str = "mark";

/// Length of a mark, in bytes: a UUID as text.
const MARK_BYTES: u64 = 36;

/// Length of an overlay's name, in characters of a digest.
const NAME_LENGTH: usize = 16;

/// Maximum length of the path of a granted directory, in bytes: `PATH_MAX` of Linux.
const MAX_PATH: u64 = 4096;

/// Changes in one granted directory.
pub(crate) struct Changed {
    /// The granted directory.
    pub(crate) directory: PathBuf,
    /// The overlay with its changes.
    pub(super) overlay: PathBuf,
    /// Pending changes.
    pub(crate) changes: Vec<Change>,
    /// Paths that were changed by others in the meantime.
    pub(crate) conflicts: Vec<PathBuf>,
    /// Entries that cannot be compared or committed, and stay in the overlay.
    pub(crate) skipped: Vec<Skipped>,
}

/// Redirects the changes of a granted directory to `scratch`.
///
/// # Errors
/// Returns an error if `scratch` is within the directory, contains changes of it that Toolcell did not make, or is not
/// writable.
pub(crate) fn divert(grant: &mut DirGrant, scratch: &Path, environment: &Environment) -> Result<(), Failure> {
    if !grant.access.can_change() {
        return Ok(());
    }
    let fail = || {
        Failure::new(
            Exit::Config,
            text!("`{}` cannot be the scratch directory", scratch.display()),
        )
    };
    let is_outside = |scratch: &Path| match scratch.starts_with(&grant.host) {
        false => Ok(()),
        true => Err(fail()
            .why(text!("it is within `{}`, which is granted", grant.host.display()))
            .hint("name a directory outside, such as /tmp/scratch")),
    };
    // Before anything is created, and again below, when links on the way are resolved.
    is_outside(&real_place(scratch))?;
    // A new directory is private, because it holds copies of files. An existing one keeps its mode.
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(scratch)
        .map_err(|e| fail().because(e))?;
    let scratch = scratch.canonicalize().map_err(|e| fail().because(e))?;
    is_outside(&scratch)?;
    let overlay = scratch.join(overlay_name(&grant.host));
    if overlay.is_symlink() {
        return Err(fail().why(text!("`{}` is a symbolic link", overlay.display())));
    }
    toolcell_fs::private_dir(&overlay).map_err(|e| user_files::because(fail(), e))?;
    keep_record(&overlay, &grant.host, environment, &fail)?;
    let path = overlay.with_extension(ENDING);
    toolcell_fs::replace(&path, grant.host.as_os_str().as_bytes(), toolcell_fs::PRIVATE)
        .map_err(|e| user_files::because(fail(), e))?;
    grant.overlay = Some(overlay);
    Ok(())
}

/// Returns the path that a directory will have, of which only the first parts may exist.
fn real_place(dir: &Path) -> PathBuf {
    let existing = dir
        .ancestors()
        .find_map(|above| Some((above, above.canonicalize().ok()?)));
    match existing.map(|(above, real)| (real, dir.strip_prefix(above))) {
        Some((real, Ok(rest))) => real.join(rest),
        _ => dir.to_owned(),
    }
}

/// Records in the state directory that Toolcell made an overlay.
fn keep_record(
    overlay: &Path,
    directory: &Path,
    environment: &Environment,
    fail: &dyn Fn() -> Failure,
) -> Result<(), Failure> {
    let origin = origin(overlay, directory, environment);
    if origin == Origin::Own {
        return Ok(());
    }
    let found = read_overlay(
        directory.to_owned(),
        overlay.to_owned(),
        &CommitOptions::default(),
    );
    if !found.changes.is_empty() || !found.skipped.is_empty() {
        if origin == Origin::Replaced {
            return Err(replaced(fail(), directory, overlay, environment));
        }
        return Err(fail()
            .why(text!(
                "it contains changes of `{}` that you did not make with Toolcell",
                directory.display()
            ))
            .hint("name another directory"));
    }
    let record = record(overlay, directory, environment).ok_or_else(|| {
        fail()
            .why("there is no home directory, which is needed to record that the overlay is yours")
            .hint("set HOME")
    })?;
    if let Some(dir) = record.parent() {
        toolcell_fs::private_dir(dir).map_err(|e| user_files::because(fail(), e))?;
    }
    let mark = Uuid::new_v4().to_string();
    let content = content(directory, mark.as_bytes());
    toolcell_fs::replace(&overlay.join(MARK), mark.as_bytes(), toolcell_fs::PRIVATE)
        .and_then(|()| toolcell_fs::replace(&record, &content, toolcell_fs::PRIVATE))
        .map_err(|e| user_files::because(fail(), e))
}

/// Adds that the overlay at a path is not the one that was made there.
pub(crate) fn replaced(
    failure: Failure,
    directory: &Path,
    overlay: &Path,
    environment: &Environment,
) -> Failure {
    failure
        .why(text!(
            "`{}` is not the overlay of `{}` that Toolcell made: it was moved or replaced since",
            environment.shown(overlay),
            environment.shown(directory)
        ))
        .hint("move the directories back to their places, or remove the overlay to give its changes up")
}

/// Returns the path of the record of an overlay, or `None` without a state directory.
fn record(overlay: &Path, directory: &Path, environment: &Environment) -> Option<PathBuf> {
    let state = environment.state_dir.as_ref()?;
    let name = [overlay.as_os_str().as_bytes(), directory.as_os_str().as_bytes()].join(&0);
    Some(state.join(RECORDS).join(Digest::of(&name).hex()))
}

/// Content of the record of an overlay.
fn content(directory: &Path, mark: &[u8]) -> Vec<u8> {
    [directory.as_os_str().as_bytes(), mark].join(&0)
}

/// Origin of the overlay at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Toolcell made it there.
    Own,
    /// Toolcell made another one there.
    Replaced,
    /// Toolcell made none there.
    Foreign,
}

fn origin(overlay: &Path, directory: &Path, environment: &Environment) -> Origin {
    let recorded = record(overlay, directory, environment)
        .and_then(|record| toolcell_fs::read(&record, &Rules::own(MAX_PATH + 1 + MARK_BYTES)).ok());
    let Some(recorded) = recorded else {
        return Origin::Foreign;
    };
    let mark = toolcell_fs::read(&overlay.join(MARK), &Rules::own(MARK_BYTES));
    match mark {
        Ok(mark) if !overlay.is_symlink() && recorded == content(directory, &mark) => Origin::Own,
        _ => Origin::Replaced,
    }
}

/// Returns the name of the overlay of a granted directory.
fn overlay_name(directory: &Path) -> String {
    let digest = Digest::of(directory.as_os_str().as_bytes());
    let digest: String = digest.hex().chars().take(NAME_LENGTH).collect();
    format!("{OVERLAY_PREFIX}{digest}")
}

/// Returns the granted directory that this file names, or `None` if [`divert`] did not write it; the overlay next to
/// such a file is neither committed nor removed.
fn directory_of(path: &Path) -> Option<PathBuf> {
    let bytes = toolcell_fs::read(path, &Rules::own(MAX_PATH)).ok()?;
    let directory = PathBuf::from(OsString::from_vec(bytes));
    let is_ours = path.file_stem()? == OsStr::new(&overlay_name(&directory));
    (is_ours && directory.is_absolute()).then_some(directory)
}

/// Contents of a scratch directory.
#[derive(Default)]
pub(crate) struct Found {
    /// Changes that Toolcell recorded.
    pub(crate) all: Vec<Changed>,
    /// Directories with overlays that Toolcell did not make.
    pub(crate) foreign: Vec<PathBuf>,
    /// Directories with overlays that are not the ones that Toolcell made there, and these overlays.
    pub(crate) replaced: Vec<(PathBuf, PathBuf)>,
}

/// Reads all changes in a scratch directory.
///
/// # Errors
/// Returns an error if they cannot be read, or the directory has other content but no overlay.
pub(crate) fn read(scratch: &Path, environment: &Environment, options: &CommitOptions) -> io::Result<Found> {
    let (mut all, mut foreign, mut replaced) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_empty = true;
    for entry in std::fs::read_dir(scratch.canonicalize()?)? {
        let path = entry?.path();
        is_empty = false;
        if path.extension().is_none_or(|ending| ending != ENDING) {
            continue;
        }
        let Some(directory) = directory_of(&path) else {
            continue;
        };
        let overlay = path.with_extension("");
        match origin(&overlay, &directory, environment) {
            Origin::Own => all.push(read_overlay(directory, overlay, options)),
            Origin::Replaced => replaced.push((directory, overlay)),
            Origin::Foreign => foreign.push(directory),
        }
    }
    if !is_empty && all.is_empty() && foreign.is_empty() && replaced.is_empty() {
        return Err(io::Error::other("it has other content, and no changes of tools"));
    }
    all.sort_by(|a, b| a.directory.cmp(&b.directory));
    foreign.sort();
    replaced.sort();
    Ok(Found {
        all,
        foreign,
        replaced,
    })
}

/// Reads one overlay. An unreadable one is skipped as a whole.
fn read_overlay(directory: PathBuf, overlay: PathBuf, options: &CommitOptions) -> Changed {
    let found = overlay::changes(&directory, &overlay, options)
        .and_then(|changes| Ok((changes, overlay::conflicts(&directory, &overlay, options)?)));
    let (changes, skipped, conflicts) = match found {
        Ok((changes, conflicts)) => (changes.found, changes.skipped, conflicts),
        Err(error) => (Vec::new(), vec![Skipped::new(PathBuf::new(), error)], Vec::new()),
    };
    Changed {
        directory,
        overlay,
        changes,
        conflicts,
        skipped,
    }
}

impl Changed {
    #[cfg(test)]
    pub(crate) fn for_tests(directory: &str) -> Self {
        Self {
            directory: directory.into(),
            overlay: PathBuf::new(),
            changes: Vec::new(),
            conflicts: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Paths of the changes.
    pub(crate) fn paths(&self) -> BTreeSet<PathBuf> {
        self.changes.iter().map(|change| change.path.clone()).collect()
    }

    /// True if others changed this path or something below it.
    pub(crate) fn is_conflict(&self, path: &Path) -> bool {
        self.conflicts.iter().any(|conflict| conflict.starts_with(path))
    }

    /// True if the overlay is unreadable as a whole.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.skipped.iter().any(|one| one.path == Path::new(""))
    }

    /// True if an entry was already skipped while reading.
    pub(crate) fn knows(&self, skipped: &Skipped) -> bool {
        self.skipped.iter().any(|one| one.path == skipped.path)
    }

    /// Commits the changes.
    ///
    /// # Errors
    /// Returns an error if others changed the same files in the meantime, or the directory cannot be used. Entries that
    /// cannot be committed are skipped and stay in the overlay.
    pub(crate) fn commit(
        &self,
        on_conflict: OnConflict,
        options: &CommitOptions,
    ) -> Result<Changes, CommitError> {
        overlay::commit(&self.directory, &self.overlay, on_conflict, options)
    }

    /// Discards the changes at and below some paths.
    ///
    /// # Errors
    /// Returns an error if one cannot be discarded alone, or something cannot be removed.
    pub(crate) fn discard_only(&self, paths: &BTreeSet<PathBuf>) -> io::Result<()> {
        overlay::discard_only(&self.directory, &self.overlay, paths)
    }

    /// Discards the changes.
    ///
    /// # Errors
    /// Returns an error if something cannot be removed.
    pub(crate) fn discard(&self) -> io::Result<()> {
        overlay::discard(&self.directory, &self.overlay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_overlays_made_by_divert_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let granted = tempfile::tempdir().unwrap();
        let host = granted.path().canonicalize().unwrap();
        let state = tempfile::tempdir().unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.state_dir = Some(state.path().join("toolcell"));
        let mut grant = DirGrant {
            host: host.clone(),
            guest: "/".into(),
            access: toolcell_core::policy::DirAccess::WRITE,
            overlay: None,
        };
        divert(&mut grant, dir.path(), &environment).unwrap();
        let overlay = grant.overlay.clone().unwrap();
        std::fs::create_dir_all(overlay.join("upper")).unwrap();
        std::fs::write(overlay.join("upper/new"), "x").unwrap();
        // A foreign directory that uses our names.
        for name in ["project", "0123456789abcdef"] {
            std::fs::create_dir_all(at(name).join("upper")).unwrap();
            std::fs::write(at(name).join("upper/precious"), "mine").unwrap();
            std::fs::write(at(&format!("{name}.path")), host.as_os_str().as_bytes()).unwrap();
        }
        let linked = overlay_name(Path::new("/elsewhere"));
        std::fs::write(at("target"), "/elsewhere").unwrap();
        std::os::unix::fs::symlink(at("target"), at(&format!("{linked}.path"))).unwrap();
        // A foreign overlay with a correct name.
        let planted = tempfile::tempdir().unwrap().keep().canonicalize().unwrap();
        let name = overlay_name(&planted);
        std::fs::create_dir_all(at(&name).join("upper")).unwrap();
        std::fs::write(at(&name).join("upper/precious"), "theirs").unwrap();
        std::fs::write(at(&format!("{name}.path")), planted.as_os_str().as_bytes()).unwrap();

        let found = read(dir.path(), &environment, &CommitOptions::default()).unwrap();
        assert_eq!(found.foreign, std::slice::from_ref(&planted));
        let all = found.all;
        assert_eq!(all.len(), 1);
        assert_eq!((&all[0].directory, all[0].changes.len()), (&host, 1));
        all[0].discard().unwrap();
        assert!(!overlay.join("upper").exists());
        assert!(at("project/upper/precious").exists());

        // Using it does not make it ours.
        grant.host = planted.clone();
        assert!(divert(&mut grant, dir.path(), &environment).is_err());
        assert_eq!(
            read(dir.path(), &environment, &CommitOptions::default())
                .unwrap()
                .foreign,
            std::slice::from_ref(&planted)
        );
        std::fs::remove_dir(planted).unwrap();
    }

    #[test]
    fn overlay_in_the_place_of_another_is_not_taken_for_it() {
        let (dir, granted) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.state_dir = Some(dir.path().join("state"));
        let grant = || DirGrant {
            host: granted.path().canonicalize().unwrap(),
            guest: "/".into(),
            access: toolcell_core::policy::DirAccess::WRITE,
            overlay: None,
        };
        let at = |name: &str| dir.path().join(name);
        for name in ["one", "two"] {
            let mut grant = grant();
            divert(&mut grant, &at(name), &environment).unwrap();
            let upper = grant.overlay.unwrap().join("upper");
            std::fs::create_dir(&upper).unwrap();
            std::fs::write(upper.join("new"), name).unwrap();
        }
        let read = |name: &str| read(&at(name), &environment, &CommitOptions::default());
        let own = |name: &str| {
            read(name)
                .map(|found| (found.all.len(), found.replaced.len()))
                .unwrap()
        };
        assert_eq!((own("one"), own("two")), ((1, 0), (1, 0)));
        let exchange = || {
            std::fs::rename(at("one"), at("x")).unwrap();
            std::fs::rename(at("two"), at("one")).unwrap();
            std::fs::rename(at("x"), at("two")).unwrap();
        };
        exchange();
        assert_eq!((own("one"), own("two")), ((0, 1), (0, 1)));
        // Using it does not make it the other one.
        assert!(divert(&mut grant(), &at("one"), &environment).is_err());
        assert_eq!(own("one"), (0, 1));
        exchange();
        assert_eq!((own("one"), own("two")), ((1, 0), (1, 0)));
        // An empty one is made anew.
        let overlay = read("one").unwrap().all.remove(0).overlay;
        std::fs::remove_dir_all(&overlay).unwrap();
        divert(&mut grant(), &at("one"), &environment).unwrap();
        assert_eq!(own("one"), (1, 0));
    }

    #[test]
    fn refused_scratch_directory_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path().canonicalize().unwrap().join("granted");
        std::fs::create_dir(&host).unwrap();
        std::os::unix::fs::symlink(&host, dir.path().join("link")).unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.state_dir = Some(dir.path().join("state"));
        let mut grant = DirGrant {
            host: host.clone(),
            guest: "/w".into(),
            access: toolcell_core::policy::DirAccess::WRITE,
            overlay: None,
        };
        for scratch in [
            host.join("in"),
            host.join("deep/er"),
            dir.path().join("link/in/deeper"),
        ] {
            let refused = divert(&mut grant, &scratch, &environment).unwrap_err();
            assert!(
                refused.to_json()["why"].to_string().contains("it is within"),
                "{}",
                scratch.display()
            );
            assert!(!scratch.exists() && grant.overlay.is_none());
        }
        assert_eq!(std::fs::read_dir(&host).unwrap().count(), 0);
    }
}

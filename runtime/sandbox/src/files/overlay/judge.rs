//! Changes that are not committed: of denied paths, of files that start programs, and links that lead out.
//!
//! A tool could not have made such a change under the same policy. An overlay can hold one all the same: from a run
//! with other denials or with the word `dangerous`, or because something else wrote to it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{Mode, openat, readlinkat};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;
use toolcell_core::Denials;

use super::entry::{above, enter, is_missing};
use super::pace::Pace;
use crate::files::denied::{DeniedBy, DeniedPlaces, Use};
use crate::files::dir::ENTER;
use crate::files::rights::stays_below;

/// Symbolic links that the target of one link leads through, as many as the guard follows. Systems follow some 40,
/// programs that do it themselves more.
const MAX_LINKS: u32 = 128;

/// Options for listing and committing changes.
#[derive(Debug, Clone, Default)]
pub struct CommitOptions {
    /// Denials; they also cover files that start programs, unless allowed here.
    pub denials: Denials,
    /// Paths of the changes that are carried out, with everything below them and the directories that they need; `None` for all.
    /// What is not carried out stays in the overlay.
    pub only: Option<BTreeSet<PathBuf>>,
    /// Ends the work. What was carried out by then stays, and the rest stays in the overlay.
    pub cancellation: CancellationToken,
}

impl CommitOptions {
    pub(super) fn pace(&self) -> Pace {
        Pace::of(&self.cancellation)
    }
}

/// Judges changes of one directory.
pub(super) struct Judge {
    denied: DeniedPlaces,
    lower: File,
    upper: Option<File>,
}

impl Judge {
    /// # Errors
    /// The directory cannot be opened, or is denied as a whole.
    pub(super) fn new(directory: &Path, upper: Option<&Dir>, options: &CommitOptions) -> io::Result<Self> {
        let lower = openat(
            rustix::fs::CWD,
            directory,
            ENTER.difference(rustix::fs::OFlags::NOFOLLOW),
            Mode::empty(),
        )?;
        let lower = File::from(lower);
        Ok(Self {
            denied: DeniedPlaces::new(&lower, directory, &options.denials).map_err(named)?,
            upper: upper.map(file_of).transpose()?,
            lower,
        })
    }

    /// Refuses making, changing or removing what is at a path.
    pub(super) fn change(&self, path: &Path) -> io::Result<()> {
        match enter(&self.lower, above(path)) {
            Ok(dir) => self.change_in(&dir, path),
            // It is made before, and so judged.
            Err(error) if is_missing(&error) => self.by_name(path),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::change`], of an entry of the open directory above it.
    pub(super) fn change_in(&self, dir: &File, path: &Path) -> io::Result<()> {
        self.by_name(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.denied.check_git(dir, &name).map_err(named)?;
        match dir_metadata(dir, path) {
            Ok((device, number)) => {
                let same = self.denied.check_identity(device, number, Use::Change);
                same.map_err(|denied| named(denied.into()))
            }
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn by_name(&self, path: &Path) -> io::Result<()> {
        let path = path.to_string_lossy();
        let allowed = self.denied.check(&path, Use::Change);
        allowed.map_err(|denied| named(denied.into()))
    }

    /// Refuses a symbolic link at a path that leads out, takes the place of what holds something denied, or leads
    /// through a link that leads out.
    pub(super) fn link(&self, path: &Path, target: &Path, when: When) -> io::Result<()> {
        let replaces = self.denied.check_above(&path.to_string_lossy());
        replaces.map_err(|denied| named(denied.into()))?;
        let mut links = 0;
        let mut ways = vec![Way {
            here: above(path).to_owned(),
            rest: parts(target)?,
            open: vec![(path.to_owned(), 0)],
        }];
        while let Some(mut way) = ways.pop() {
            while let Some(part) = way.rest.pop() {
                way.open.retain(|(_, after)| way.rest.len() >= *after);
                way.here.push(part);
                if way.open.iter().any(|(link, _)| *link == way.here) {
                    // It leads to itself, which is nowhere.
                    break;
                }
                for target in self.targets(&way.here, when)? {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(leads_out());
                    }
                    let mut through = way.clone();
                    through.open.push((way.here.clone(), way.rest.len()));
                    through.here.pop();
                    through.rest.extend(parts(&target)?);
                    ways.push(through);
                }
            }
        }
        Ok(())
    }

    /// The targets of the links that are, or are to be, at a path.
    fn targets(&self, path: &Path, when: When) -> io::Result<BTreeSet<PathBuf>> {
        let mut targets = BTreeSet::new();
        for layer in self.upper.iter().chain([&self.lower]) {
            let name = path.file_name().unwrap_or_default();
            let found = enter(layer, above(path)).and_then(|dir| Ok(readlinkat(&dir, name, Vec::new())?));
            match found {
                Ok(target) => {
                    use std::os::unix::ffi::OsStringExt as _;
                    let target = std::ffi::OsString::from_vec(target.into_bytes());
                    targets.insert(target.into());
                }
                // Something else is there.
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
                Err(error) if is_missing(&error) => continue,
                Err(error) => return Err(error),
            }
            if when == When::Finally {
                break;
            }
        }
        Ok(targets)
    }
}

/// Time at which a link leads somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// After all changes.
    Finally,
    /// At any time: instead of a change that is not carried out, or later, the old entry is there.
    Always,
}

/// Way of a link to what it leads to.
#[derive(Clone)]
struct Way {
    here: PathBuf,
    /// Names that are not walked yet, the first one last.
    rest: Vec<PathBuf>,
    /// Links whose targets are walked, with the length of what comes after them.
    open: Vec<(PathBuf, usize)>,
}

/// The names in the target of a link, the first one last.
fn parts(target: &Path) -> io::Result<Vec<PathBuf>> {
    if !target.to_str().is_some_and(stays_below) {
        return Err(leads_out());
    }
    let names = target.components().rev();
    Ok(names
        .filter(|part| matches!(part, Component::Normal(_)))
        .map(|part| part.as_os_str().into())
        .collect())
}

fn leads_out() -> io::Error {
    io::Error::other("it is a link that leads out of the directory, or could")
}

/// A refusal with the rule that refuses: the user reads it.
fn named(error: io::Error) -> io::Error {
    match DeniedBy::of(&error) {
        Some(DeniedBy(by)) => io::Error::new(io::ErrorKind::PermissionDenied, by.clone()),
        None => error,
    }
}

fn dir_metadata(dir: &File, path: &Path) -> io::Result<(u64, u64)> {
    use cap_primitives::fs::{FollowSymlinks, MetadataExt as _, stat};
    let name = Path::new(path.file_name().unwrap_or_default());
    let metadata = stat(dir, name, FollowSymlinks::No)?;
    Ok((metadata.dev(), metadata.ino()))
}

pub(super) fn file_of(dir: &Dir) -> io::Result<File> {
    Ok(dir.try_clone()?.into_std_file())
}

//! `--scratch DIR`: what tools change goes to DIR, and a person looks at it before anything is carried out.
//!
//! DIR holds for each granted directory an overlay, named by a digest of the directory's path, and beside it a file with
//! that path.

use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use toolcell_core::policy::DirGrant;
use toolcell_sandbox::Digest;
use toolcell_sandbox::overlay::{self, Change};

use crate::report::{Exit, Failure};

/// Ending of the files that hold the path of a granted directory.
const ENDING: &str = "path";

/// Characters of a digest that name an overlay.
const NAME: usize = 16;

/// The changes of one granted directory.
pub(crate) struct Changed {
    /// The directory.
    pub(crate) directory: PathBuf,
    overlay: PathBuf,
    /// What would change in it.
    pub(crate) changes: Vec<Change>,
}

/// Sends the changes of a granted directory to `scratch`.
///
/// # Errors
/// When `scratch` lies in the directory itself, or cannot be written.
pub(crate) fn divert(grant: &mut DirGrant, scratch: &Path) -> Result<(), Failure> {
    if !grant.access.can_change() {
        return Ok(());
    }
    let fail = || {
        Failure::new(
            Exit::Config,
            format!("`{}` cannot be the scratch directory", scratch.display()),
        )
    };
    std::fs::create_dir_all(scratch).map_err(|e| fail().because(e))?;
    let scratch = scratch.canonicalize().map_err(|e| fail().because(e))?;
    if scratch.starts_with(&grant.host) {
        return Err(fail()
            .why(format!("it lies in `{}`, which is granted", grant.host.display()))
            .hint("name a directory outside, such as /tmp/scratch"));
    }
    let name: String = Digest::of(grant.host.as_os_str().as_bytes())
        .hex()
        .chars()
        .take(NAME)
        .collect();
    let path = scratch.join(&name).with_extension(ENDING);
    std::fs::write(path, grant.host.as_os_str().as_bytes()).map_err(|e| fail().because(e))?;
    grant.overlay = Some(scratch.join(name));
    Ok(())
}

/// All changes that lie in a scratch directory.
///
/// # Errors
/// When they cannot be read.
pub(crate) fn read(scratch: &Path) -> io::Result<Vec<Changed>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(scratch)? {
        let path = entry?.path();
        if path.extension().is_none_or(|ending| ending != ENDING) {
            continue;
        }
        let directory = PathBuf::from(std::ffi::OsString::from_vec(std::fs::read(&path)?));
        let overlay = path.with_extension("");
        let changes = overlay::changes(&directory, &overlay)?;
        all.push(Changed {
            directory,
            overlay,
            changes,
        });
    }
    all.sort_by(|a, b| a.directory.cmp(&b.directory));
    Ok(all)
}

impl Changed {
    /// Carries the changes out.
    ///
    /// # Errors
    /// When one cannot be carried out; what is left stays where it is.
    pub(crate) fn commit(&self) -> io::Result<()> {
        overlay::commit(&self.directory, &self.overlay).map(|_| ())
    }

    /// Throws the changes away.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub(crate) fn discard(&self) -> io::Result<()> {
        overlay::discard(&self.overlay)
    }
}

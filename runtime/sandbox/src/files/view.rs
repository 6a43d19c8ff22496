//! View of a call's files for the checks: descriptors with their locations, rights, quotas.

use std::sync::Arc;

use cap_primitives::fs::MetadataExt as _;
use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView};
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, OpenFlags};
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types};
use wasmtime_wasi::p2::{DynOutputStream, FsError, FsResult};

use super::denied::{DeniedBy, Use};
use super::open::{self, Mode, Opened};
use super::open_files::OpenFile;
use super::preopen::{Files, Handle};
use super::rights::{Place, Right};
use super::stream::Writing;
use super::walk::{Walked, walk};

/// Maximum length of a path given by a guest, and of the resulting guest path, in bytes, as on Linux.
pub(super) const MAX_PATH: usize = 4_096;

/// Files of a call together with its resource table.
pub(crate) struct FilesView<'a> {
    pub(crate) files: &'a mut Files,
    pub(crate) table: &'a mut ResourceTable,
}

/// Type-level link from the linker to the host state.
struct HasFiles;

impl HasData for HasFiles {
    type Data<'a> = FilesView<'a>;
}

/// Replaces `wasi:filesystem`. The linker must allow shadowing.
pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> FilesView<'_>,
) -> wasmtime::Result<()> {
    preopens::add_to_linker::<T, HasFiles>(linker, view)?;
    types::add_to_linker::<T, HasFiles>(linker, view)
}

impl FilesView<'_> {
    pub(super) fn upstream(&mut self) -> WasiFilesystemCtxView<'_> {
        WasiFilesystemCtxView {
            ctx: &mut self.files.upstream,
            table: self.table,
        }
    }

    pub(super) fn handle(&self, fd: &Resource<Descriptor>) -> FsResult<&Handle> {
        let handle = self.files.open.get(&fd.rep());
        handle.ok_or_else(|| ErrorCode::BadDescriptor.into())
    }

    pub(super) fn place(&self, fd: &Resource<Descriptor>) -> FsResult<Place> {
        Ok(self.handle(fd)?.place.clone())
    }

    /// Returns the location of `path` below another one. Both the path and the result are limited in length, because
    /// the host stores them for each descriptor.
    pub(super) fn at(from: &Place, path: &str) -> FsResult<Place> {
        if path.len() > MAX_PATH {
            return Err(ErrorCode::NameTooLong.into());
        }
        let place = from.join(path);
        if place.path.len() > MAX_PATH {
            return Err(ErrorCode::NameTooLong.into());
        }
        Ok(place)
    }

    /// Returns the location of `path` below a directory, if the guest has the right there.
    pub(super) fn permit(&self, fd: &Resource<Descriptor>, path: &str, right: Right) -> FsResult<Place> {
        let place = Self::at(&self.handle(fd)?.place, path)?;
        if place.check(right) {
            Ok(place)
        } else {
            Err(ErrorCode::NotPermitted.into())
        }
    }

    pub(super) fn dir(&self, fd: &Resource<Descriptor>) -> FsResult<Arc<std::fs::File>> {
        match self.table.get(fd)? {
            Descriptor::Dir(dir) => Ok(dir.dir.clone()),
            Descriptor::File(_) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    pub(super) fn file(&self, fd: &Resource<Descriptor>) -> FsResult<Arc<std::fs::File>> {
        match self.table.get(fd)? {
            Descriptor::File(file) => Ok(file.file.clone()),
            Descriptor::Dir(_) => Err(ErrorCode::BadDescriptor.into()),
        }
    }

    pub(super) fn push(&mut self, descriptor: Descriptor, handle: Handle) -> FsResult<Resource<Descriptor>> {
        let fd = self.table.push(descriptor)?;
        self.files.open.insert(fd.rep(), handle);
        Ok(fd)
    }

    /// Records an operation at `place` that was refused by a denial; the guest only learns that access is denied.
    pub(super) fn judge<T>(place: &Place, result: std::io::Result<T>) -> FsResult<T> {
        result.map_err(|error| match DeniedBy::of(&error) {
            Some(denied) => {
                place.refused(denied);
                ErrorCode::NotPermitted.into()
            }
            None => error.into(),
        })
    }

    /// Resolves a path in a directory without an overlay.
    pub(super) fn walk(&self, fd: &Resource<Descriptor>, path: &str, follow: bool) -> FsResult<Walked> {
        let (dir, from) = (self.dir(fd)?, self.place(fd)?);
        let walked = walk(&dir, &from.below, path, follow, &from.root.denied);
        Self::judge(&from.join(path), walked)
    }

    /// Resolves a path whose entry is about to be moved or linked. Denied entries, and those that contain denied ones,
    /// are refused.
    pub(super) fn walk_to_move(&self, fd: &Resource<Descriptor>, path: &str) -> FsResult<Walked> {
        let from = self.place(fd)?;
        let walked = self.walk_to_remove(fd, path)?;
        Self::may_replace(&from, path, &walked.below())?;
        Ok(walked)
    }

    /// Resolves a path whose entry is about to be removed. Denied entries are refused.
    pub(super) fn walk_to_remove(&self, fd: &Resource<Descriptor>, path: &str) -> FsResult<Walked> {
        let from = self.place(fd)?;
        let walked = self.walk(fd, path, false)?;
        Self::may_change_at(&from, path, &walked)?;
        walked.check_kind()?;
        Ok(walked)
    }

    /// Rejects a denied entry under any name by which it was reached.
    pub(super) fn check_walked(
        &self,
        fd: &Resource<Descriptor>,
        at: &Walked,
        wanted: Use,
    ) -> std::io::Result<()> {
        let denied = &self.place(fd).map_err(std::io::Error::other)?.root.denied;
        let metadata = at.metadata()?;
        Ok(denied.check_identity(metadata.dev(), metadata.ino(), wanted)?)
    }

    /// Checks that the entry at `below` may be moved or replaced.
    pub(super) fn may_replace(from: &Place, path: &str, below: &str) -> FsResult<()> {
        Self::may_change(from, path, below)?;
        let allowed = from.root.denied.check_above(below);
        Self::judge(&from.join(path), allowed.map_err(Into::into))
    }

    /// Checks that the entry at `below` may be changed or removed.
    pub(super) fn may_change(from: &Place, path: &str, below: &str) -> FsResult<()> {
        let allowed = from.root.denied.check(below, Use::Change);
        Self::judge(&from.join(path), allowed.map_err(Into::into))
    }

    /// Checks that the entry a walk led to may be created, changed or removed.
    pub(super) fn may_change_at(from: &Place, path: &str, at: &Walked) -> FsResult<()> {
        Self::may_change(from, path, &at.below())?;
        Self::judge(&from.join(path), from.root.denied.check_git(&at.parent, &at.name))
    }

    /// Counts another descriptor of the host, if the limit allows.
    pub(super) fn count(&self) -> FsResult<Arc<OpenFile>> {
        let counted = self.files.open_files.open(&self.files.recorder);
        counted.map_err(|_| ErrorCode::InsufficientMemory.into())
    }

    pub(super) fn take_bytes(&self, bytes: u64) -> FsResult<()> {
        let taken = self.files.quota.take_bytes(bytes);
        taken.map_err(|_| ErrorCode::Quota.into())
    }

    pub(super) fn take_file(&self) -> FsResult<()> {
        self.files.quota.take_file().map_err(|_| ErrorCode::Quota.into())
    }

    /// Returns a unit of the quota if the file was not created.
    pub(super) fn made<T>(&self, result: FsResult<T>) -> FsResult<T> {
        result.inspect_err(|_| self.files.quota.return_file())
    }

    /// Opens an existing file or creates a new one, and returns which and where.
    pub(super) fn open_or_make(
        &self,
        fd: &Resource<Descriptor>,
        place: &Place,
        path: &str,
        oflags: OpenFlags,
        mode: Mode,
    ) -> FsResult<(Opened, bool, String)> {
        let exclusive = oflags.contains(OpenFlags::EXCLUSIVE);
        if oflags.contains(OpenFlags::CREATE) {
            // No file is created through a link: this is the entry itself.
            let at = self.walk(fd, path, false)?;
            let exists = open::exists(&at.parent, &at.name);
            if at.wants_dir && !exists {
                return Err(ErrorCode::IsDirectory.into());
            }
            if exclusive && exists {
                return Err(ErrorCode::Exist.into());
            }
            if !exists {
                if !place.check(Right::Create) {
                    return Err(ErrorCode::NotPermitted.into());
                }
                let below = at.below();
                Self::may_change_at(place, "", &at)?;
                self.take_file()?;
                let made = open::open(&at.parent, &at.name, Mode { new: true, ..mode });
                match self.made(made.map_err(FsError::from)) {
                    Err(error) if has_appeared(&error, exclusive) => {}
                    made => return made.map(|opened| (opened, true, below)),
                }
            }
        }
        let at = self.walk(fd, path, mode.follow)?;
        let changes = mode.write || mode.truncate;
        if changes && !place.check(Right::Write) {
            return Err(ErrorCode::NotPermitted.into());
        }
        let wanted = if changes { Use::Change } else { Use::Look };
        let below = at.below();
        Self::judge(place, place.root.denied.check(&below, wanted).map_err(Into::into))?;
        if changes {
            Self::may_change_at(place, "", &at)?;
        }
        let opened = open::open(&at.parent, &at.name, mode)?;
        if let Opened::File(file) | Opened::Dir(file) = &opened {
            Self::judge(place, place.root.denied.check_open(file, wanted))?;
        }
        match &opened {
            Opened::File(_) if at.wants_dir => return Err(ErrorCode::NotDirectory.into()),
            Opened::File(file) if mode.truncate => file.set_len(0)?,
            _ => {}
        }
        Ok((opened, false, below))
    }
}

impl FilesView<'_> {
    /// Returns a stream that writes to a file from `position`, or at its end.
    pub(super) fn writing(
        &mut self,
        fd: &Resource<Descriptor>,
        position: Option<u64>,
    ) -> FsResult<Resource<DynOutputStream>> {
        let file = match self.table.get(fd)? {
            Descriptor::File(file) if file.perms.write_not_permitted() => {
                return Err(ErrorCode::NotPermitted.into());
            }
            Descriptor::File(file) => file.file.clone(),
            Descriptor::Dir(_) => return Err(ErrorCode::BadDescriptor.into()),
        };
        let counted = self.handle(fd)?.counted.clone();
        let stream = Writing::new(file, position, self.files.quota.clone(), counted);
        let stream: DynOutputStream = Box::new(stream);
        Ok(self.table.push(stream)?)
    }

    /// Returns the locations of two directories of which one has an overlay; nothing moves between different overlays.
    pub(super) fn shared_overlay(
        &self,
        fd: &Resource<Descriptor>,
        other: &Resource<Descriptor>,
    ) -> FsResult<Option<(Place, Place)>> {
        let (from, to) = (self.place(fd)?, self.place(other)?);
        if from.root.overlay.is_none() && to.root.overlay.is_none() {
            return Ok(None);
        }
        if !Arc::ptr_eq(&from.root, &to.root) {
            return Err(ErrorCode::CrossDevice.into());
        }
        Ok(Some((from, to)))
    }

    /// Returns `true` if there is an entry at a path.
    pub(super) fn exists(&self, fd: &Resource<Descriptor>, path: &str) -> FsResult<bool> {
        let place = self.place(fd)?;
        Ok(match &place.root.overlay {
            Some(overlay) => overlay.find(&place.below, path, false)?.at.is_some(),
            None => {
                let at = self.walk(fd, path, false)?;
                open::exists(&at.parent, &at.name)
            }
        })
    }
}

/// Returns `true` if creating a file failed only because it appeared meanwhile, and may be opened instead.
pub(super) fn has_appeared(error: &FsError, exclusive: bool) -> bool {
    !exclusive && is(error, ErrorCode::Exist)
}

/// Returns `true` if the error has this code.
pub(super) fn is(error: &FsError, code: ErrorCode) -> bool {
    error.downcast_ref().is_some_and(|found| *found == code)
}

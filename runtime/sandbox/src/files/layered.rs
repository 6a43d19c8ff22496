//! The operations of a guest on a directory with an overlay. Rights are checked by `guard` before.

use std::io;
use std::path::Path;

use cap_primitives::fs;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, OpenFlags};

use super::open::{self, Mode, Opened};
use super::overlay::{Found, Layer, Overlay};
use super::rights::{Place, Right, stays_below};
use super::view::FilesView;

/// What an operation wants at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Something to look at, behind a symbolic link or not.
    Look { follow: bool },
    /// Something to change in place.
    Change { follow: bool },
    /// A place where nothing is.
    Make,
}

/// A directory and a path below it, as `wasmtime-wasi` takes them.
pub(super) struct At {
    descriptor: u32,
    /// Whether the descriptor exists for this operation alone.
    is_own: bool,
    pub(super) path: String,
}

impl At {
    pub(super) fn fd(&self) -> Resource<Descriptor> {
        Resource::new_borrow(self.descriptor)
    }
}

impl FilesView<'_> {
    /// Where an operation on `path` takes place: at the path itself, or in a layer of the overlay.
    pub(super) fn locate(&mut self, fd: &Resource<Descriptor>, path: String, need: Need) -> FsResult<At> {
        let place = self.place(fd)?;
        let Some(overlay) = &place.root.overlay else {
            return Ok(At {
                descriptor: fd.rep(),
                is_own: false,
                path,
            });
        };
        self.dir(fd)?;
        let follow = match need {
            Need::Look { follow } | Need::Change { follow } => follow,
            Need::Make => false,
        };
        let found = overlay.find(&place.below, &path, follow)?;
        let (path, layer) = match need {
            Need::Look { .. } => {
                let (path, layer, _) = found.existing()?;
                (path, layer)
            }
            Need::Change { .. } => (self.raise(overlay, found)?, Layer::Upper),
            Need::Make if found.at.is_some() => return Err(ErrorCode::Exist.into()),
            Need::Make => {
                overlay.make_parents(&found.path)?;
                (found.path, Layer::Upper)
            }
        };
        let own = self.table.push(Descriptor::Dir(overlay.dir(layer).clone()))?;
        Ok(At {
            descriptor: own.rep(),
            is_own: true,
            path: if path.is_empty() { ".".into() } else { path },
        })
    }

    /// Ends what [`Self::locate`] began.
    pub(super) fn leave(&mut self, at: &At) {
        if at.is_own {
            // It was pushed for this operation and nobody else knows its number.
            let _ = self.table.delete(Resource::<Descriptor>::new_own(at.descriptor));
        }
    }

    /// Brings something to the upper layer, for the quota as if the guest had written it.
    fn raise(&self, overlay: &Overlay, found: Found) -> FsResult<String> {
        let (path, layer, _) = found.existing()?;
        if layer == Layer::Lower {
            self.take_bytes(overlay.lower_len(&path)?)?;
            overlay.copy_up(&path, false)?;
        }
        Ok(path)
    }

    /// Opens or makes a file, or opens a directory; says whether it is new, and its path in the layers.
    pub(super) fn open_layered(
        &self,
        overlay: &Overlay,
        from: &Place,
        place: &Place,
        path: &str,
        oflags: OpenFlags,
        mode: Mode,
    ) -> FsResult<(Opened, bool, String)> {
        let found = overlay.find(&from.below, path, mode.follow)?;
        let creates = oflags.contains(OpenFlags::CREATE);
        let flat = Mode {
            follow: false,
            ..mode
        };
        let (layer, metadata) = match found.at {
            None if !creates => return Err(ErrorCode::NoEntry.into()),
            // A link that leads to nothing: no file is made through it, with or without an overlay.
            None if overlay.find(&from.below, path, false)?.at.is_some() => {
                return Err(ErrorCode::NoEntry.into());
            }
            None if !place.check(Right::Create) => return Err(ErrorCode::NotPermitted.into()),
            None => {
                self.take_file()?;
                let new = Mode { new: true, ..flat };
                let made = overlay
                    .make_parents(&found.path)
                    .and_then(|()| open::open(&overlay.upper.dir, &found.path, new));
                return Ok((self.made(made.map_err(Into::into))?, true, found.path));
            }
            Some(_) if creates && oflags.contains(OpenFlags::EXCLUSIVE) => {
                return Err(ErrorCode::Exist.into());
            }
            Some(at) => at,
        };
        let path = found.path;
        let changes = (mode.write || mode.truncate) && !metadata.is_dir();
        if changes && !place.check(Right::Write) {
            return Err(ErrorCode::NotPermitted.into());
        }
        let mut layer = layer;
        if changes && layer == Layer::Lower && metadata.is_file() {
            if !mode.truncate {
                self.take_bytes(metadata.len())?;
            }
            overlay.copy_up(&path, mode.truncate)?;
            layer = Layer::Upper;
        }
        let at = if path.is_empty() { "." } else { &path };
        let opened = open::open(&overlay.dir(layer).dir, at, flat)?;
        Ok((opened, false, path))
    }

    /// Removes a file (`wants_dir` is false) or an empty directory.
    pub(super) fn remove_layered(
        &self,
        overlay: &Overlay,
        place: &Place,
        path: &str,
        wants_dir: bool,
    ) -> FsResult<()> {
        let found = overlay.find(&place.below, path, false)?;
        let is_dir = found.is_dir();
        let (path, layer, _) = found.existing()?;
        match (wants_dir, is_dir) {
            (false, true) => return Err(ErrorCode::IsDirectory.into()),
            (true, false) => return Err(ErrorCode::NotDirectory.into()),
            (true, true) if path.is_empty() => return Err(ErrorCode::Busy.into()),
            (true, true) if !overlay.is_empty(&path)? => return Err(ErrorCode::NotEmpty.into()),
            _ => {}
        }
        let at = Path::new(&path);
        match (layer, wants_dir) {
            (Layer::Upper, true) => fs::remove_dir(&overlay.upper.dir, at)?,
            (Layer::Upper, false) => fs::remove_file(&overlay.upper.dir, at)?,
            (Layer::Lower, _) => {}
        }
        if overlay.is_below(&path)? {
            overlay.hide(&path)?;
        }
        Ok(())
    }

    /// Renames. A directory that the lower layer has, too, is refused with `cross-device`, after which programs copy.
    pub(super) fn rename_layered(
        &self,
        overlay: &Overlay,
        old: (&Place, &str),
        new: (&Place, &str),
    ) -> FsResult<()> {
        let old = overlay.find(&old.0.below, old.1, false)?;
        let new = overlay.find(&new.0.below, new.1, false)?;
        let old_is_dir = old.is_dir();
        if old.path == new.path {
            old.existing()?;
            return Ok(());
        }
        if old_is_dir {
            if old.path.is_empty() || format!("{}/", new.path).starts_with(&format!("{}/", old.path)) {
                return Err(ErrorCode::Invalid.into());
            }
            if overlay.is_below(&old.path)? || overlay.is_below(&new.path)? {
                return Err(ErrorCode::CrossDevice.into());
            }
        }
        match (old_is_dir, &new.at) {
            (false, Some((_, metadata))) if metadata.is_dir() => return Err(ErrorCode::IsDirectory.into()),
            (true, Some((_, metadata))) if !metadata.is_dir() => return Err(ErrorCode::NotDirectory.into()),
            _ => {}
        }
        let from = self.raise(overlay, old)?;
        overlay.make_parents(&new.path)?;
        if overlay.is_below(&new.path)? {
            overlay.note(&new.path)?;
        }
        let upper = &overlay.upper.dir;
        fs::rename(upper, Path::new(&from), upper, Path::new(&new.path))?;
        if overlay.is_below(&from)? {
            overlay.hide(&from)?;
        }
        Ok(())
    }

    /// Makes a second name for a file.
    pub(super) fn link_layered(
        &self,
        overlay: &Overlay,
        old: (&Place, &str),
        new: (&Place, &str),
    ) -> FsResult<()> {
        let old = overlay.find(&old.0.below, old.1, false)?;
        let new = overlay.find(&new.0.below, new.1, false)?;
        if old.is_dir() {
            return Err(ErrorCode::NotPermitted.into());
        }
        if new.at.is_some() {
            return Err(ErrorCode::Exist.into());
        }
        let from = self.raise(overlay, old)?;
        overlay.make_parents(&new.path)?;
        let upper = &overlay.upper.dir;
        Ok(fs::hard_link(
            upper,
            Path::new(&from),
            upper,
            Path::new(&new.path),
        )?)
    }

    /// Whether a link may be moved: one that goes up would point elsewhere afterwards.
    pub(super) fn may_move_layered(overlay: &Overlay, place: &Place, path: &str) -> io::Result<bool> {
        let found = overlay.find(&place.below, path.trim_end_matches('/'), false)?;
        match found.existing()? {
            (path, layer, metadata) if metadata.is_symlink() => {
                let target = fs::read_link_contents(&overlay.dir(layer).dir, Path::new(&path))?;
                Ok(target.to_str().is_some_and(stays_below))
            }
            _ => Ok(true),
        }
    }
}

//! Operations of a guest on a directory with an overlay. `guard` has checked the rights before.

use std::path::Path;
use std::sync::Arc;

use cap_primitives::fs::{self, MetadataExt as _};
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, OpenFlags};

use super::denied::Use;
use super::open::{self, Mode, Opened};
use super::overlay::{Found, Layer, Overlay, Pace};
use super::quota::Quota;
use super::rights::{Place, Right};
use super::view::FilesView;
use super::walk::{Walked, walk};

/// Kind of access of an operation at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Reads, following a symbolic link at the end or not.
    Look { follow: bool },
    /// Changes in place; with an overlay the file was copied up ([`Layered::raise_at`]).
    Change { follow: bool },
    /// Creates a new entry.
    Make,
}

/// A directory and a path below it, as used by `wasmtime-wasi`.
pub(super) struct At {
    /// Exists only for this operation.
    descriptor: u32,
    pub(super) path: String,
}

impl At {
    pub(super) fn fd(&self) -> Resource<Descriptor> {
        Resource::new_borrow(self.descriptor)
    }
}

impl FilesView<'_> {
    /// Returns the location of an operation on `path`: in a directory that was walked to, or in a layer of the overlay.
    /// The entry there is not a link, unless the access does not follow links.
    pub(super) fn locate(&mut self, fd: &Resource<Descriptor>, path: &str, need: Need) -> FsResult<At> {
        let place = self.place(fd)?;
        let (follow, wanted) = match need {
            Need::Look { follow } => (follow, Use::Look),
            Need::Change { follow } => (follow, Use::Change),
            Need::Make => (false, Use::Change),
        };
        let may = |below: &str| {
            let allowed = place.root.denied.check(below, wanted);
            Self::judge(&place.join(path), allowed.map_err(Into::into))
        };
        let Some(overlay) = &place.root.overlay else {
            let walked = self.walk(fd, path, follow)?;
            may(&walked.below())?;
            if wanted == Use::Change {
                Self::may_change_at(&place, path, &walked)?;
            }
            if need != Need::Make {
                walked.check_kind()?;
            }
            return self.at_walked(fd, walked);
        };
        self.dir(fd)?;
        let found = Self::judge(&place.join(path), overlay.find(&place.below, path, follow))?;
        may(&found.path)?;
        if wanted == Use::Change {
            Self::judge(&place.join(path), overlay.check_git(&found.path))?;
        }
        let (path, layer) = match need {
            Need::Look { .. } => {
                let (path, layer, _) = found.existing()?;
                (path, layer)
            }
            Need::Change { .. } => match found.existing()? {
                (path, Layer::Upper, _) => (path, Layer::Upper),
                // It was copied up before, and another process has removed it since.
                (_, Layer::Lower, _) => return Err(ErrorCode::Busy.into()),
            },
            Need::Make if found.at.is_some() => return Err(ErrorCode::Exist.into()),
            Need::Make => {
                overlay.make_parents(&found.path)?;
                (found.path, Layer::Upper)
            }
        };
        let own = self.table.push(Descriptor::Dir(overlay.dir(layer).clone()))?;
        Ok(At {
            descriptor: own.rep(),
            path: if path.is_empty() { ".".into() } else { path },
        })
    }

    /// Returns the location of a new symbolic link, which must not replace a directory that is to contain a denied
    /// path.
    pub(super) fn locate_link(&mut self, fd: &Resource<Descriptor>, path: &str) -> FsResult<At> {
        let place = self.place(fd)?;
        let below = match &place.root.overlay {
            Some(overlay) => {
                let found = Self::judge(&place.join(path), overlay.find(&place.below, path, false))?;
                let below = found.path.clone();
                if found.wants_dir {
                    found.existing()?;
                }
                below
            }
            None => self.walk(fd, path, false)?.below(),
        };
        Self::may_replace(&place, path, &below)?;
        self.locate(fd, path, Need::Make)
    }

    /// Returns a location that was walked to from `fd`, as used by `wasmtime-wasi`.
    fn at_walked(&mut self, fd: &Resource<Descriptor>, walked: Walked) -> FsResult<At> {
        let Descriptor::Dir(from) = self.table.get(fd)? else {
            return Err(ErrorCode::NotDirectory.into());
        };
        let mut dir = from.clone();
        dir.dir = walked.parent;
        let own = self.table.push(Descriptor::Dir(dir))?;
        let slash = if walked.wants_dir && walked.name != "." {
            "/"
        } else {
            ""
        };
        Ok(At {
            descriptor: own.rep(),
            path: format!("{}{slash}", walked.name),
        })
    }

    /// Ends an operation begun by [`Self::locate`].
    pub(super) fn leave(&mut self, at: &At) {
        // It was pushed for this operation, and its number is not known elsewhere.
        let _ = self.table.delete(Resource::<Descriptor>::new_own(at.descriptor));
    }

    /// Runs an operation on an overlay on a separate thread, because it reads whole files. Dropping the future ends the
    /// work at its next piece.
    pub(super) async fn layered<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Layered) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        let layered = Layered {
            quota: self.files.quota.clone(),
            pace: Pace::default(),
        };
        let _stop = layered.pace.stop_when_dropped();
        wasmtime_wasi::runtime::spawn_blocking(move || work(&layered)).await
    }
}

/// Context of operations on an overlay.
pub(super) struct Layered {
    quota: Arc<Quota>,
    pace: Pace,
}

impl Layered {
    /// Copies a file to the upper layer, charged as if the guest had written it.
    fn raise(&self, overlay: &Overlay, found: Found) -> FsResult<String> {
        let (path, layer, metadata) = found.existing()?;
        if layer == Layer::Lower {
            self.take_bytes(metadata.len())?;
            overlay.copy_up(&path, Some(metadata.len()), &self.pace)?;
        }
        Ok(path)
    }

    /// Copies the file at a path to the upper layer.
    pub(super) fn raise_at(&self, place: &Place, path: &str, follow: bool) -> FsResult<()> {
        let overlay = overlay(place)?;
        let found = FilesView::judge(&place.join(path), overlay.find(&place.below, path, follow))?;
        Self::may_change(overlay, place, path, &found)?;
        self.raise(overlay, found).map(drop)
    }

    fn take_bytes(&self, bytes: u64) -> FsResult<()> {
        let taken = self.quota.take_bytes(bytes);
        taken.map_err(|_| ErrorCode::Quota.into())
    }

    /// Opens or creates a file, or opens a directory; returns whether it is new, and its path in the layers.
    pub(super) fn open(
        &self,
        from: &Place,
        place: &Place,
        path: &str,
        oflags: OpenFlags,
        mode: Mode,
    ) -> FsResult<(Opened, bool, String)> {
        let overlay = overlay(place)?;
        let find = |follow| FilesView::judge(place, overlay.find(&from.below, path, follow));
        let may = |below: &str, wanted| {
            FilesView::judge(place, place.root.denied.check(below, wanted).map_err(Into::into))
        };
        if oflags.contains(OpenFlags::CREATE) {
            // No file is created through a link: this is the entry itself.
            let found = find(false)?;
            let exists = found.at.is_some();
            if found.wants_dir && !exists {
                return Err(ErrorCode::IsDirectory.into());
            }
            if exists && oflags.contains(OpenFlags::EXCLUSIVE) {
                return Err(ErrorCode::Exist.into());
            }
            if !exists {
                if !place.check(Right::Create) {
                    return Err(ErrorCode::NotPermitted.into());
                }
                may(&found.path, Use::Change)?;
                FilesView::judge(place, overlay.check_git(&found.path))?;
                self.quota.take_file().map_err(|_| ErrorCode::Quota)?;
                let new = Mode { new: true, ..mode };
                let made = overlay
                    .make_parents(&found.path)
                    .and_then(|()| open::open(&overlay.upper.dir, &found.path, new));
                let made = made.inspect_err(|_| self.quota.return_file())?;
                return Ok((made, true, found.path));
            }
        }
        let (path, layer, metadata) = find(mode.follow)?.existing()?;
        let changes = (mode.write || mode.truncate) && !metadata.is_dir();
        if changes && !place.check(Right::Write) {
            return Err(ErrorCode::NotPermitted.into());
        }
        let wanted = if changes { Use::Change } else { Use::Look };
        may(&path, wanted)?;
        if changes {
            FilesView::judge(place, overlay.check_git(&path))?;
        }
        let denied = &place.root.denied;
        let same = denied.check_identity(metadata.dev(), metadata.ino(), wanted);
        FilesView::judge(place, same.map_err(Into::into))?;
        let mut layer = layer;
        if changes && layer == Layer::Lower && metadata.is_file() {
            let most = (!mode.truncate).then(|| metadata.len());
            self.take_bytes(most.unwrap_or_default())?;
            overlay.copy_up(&path, most, &self.pace)?;
            layer = Layer::Upper;
        }
        let at = if path.is_empty() { "." } else { &path };
        let at = FilesView::judge(place, walk(&overlay.dir(layer).dir, "", at, false, denied))?;
        let opened = open::open(&at.parent, &at.name, mode)?;
        if let Opened::File(file) | Opened::Dir(file) = &opened {
            FilesView::judge(place, denied.check_open(file, wanted))?;
        }
        if let (Opened::File(file), true) = (&opened, mode.truncate) {
            file.set_len(0)?;
        }
        Ok((opened, false, path))
    }

    /// Removes a file (`wants_dir` is false) or an empty directory.
    pub(super) fn remove(&self, place: &Place, path: &str, wants_dir: bool) -> FsResult<()> {
        let overlay = overlay(place)?;
        let found = FilesView::judge(&place.join(path), overlay.find(&place.below, path, false))?;
        Self::may_change(overlay, place, path, &found)?;
        let (is_dir, is_dot) = (found.is_dir(), ends_in_dots(path));
        let (path, layer, _) = found.existing()?;
        match (wants_dir, is_dir) {
            (false, true) => return Err(ErrorCode::IsDirectory.into()),
            (true, false) => return Err(ErrorCode::NotDirectory.into()),
            (true, true) if is_dot || path.is_empty() => return Err(ErrorCode::Invalid.into()),
            (true, true) if !overlay.is_empty(&path, &self.pace)? => return Err(ErrorCode::NotEmpty.into()),
            _ => {}
        }
        let at = Path::new(&path);
        match (layer, wants_dir) {
            (Layer::Upper, true) => fs::remove_dir(&overlay.upper.dir, at)?,
            (Layer::Upper, false) => fs::remove_file(&overlay.upper.dir, at)?,
            (Layer::Lower, _) => {}
        }
        if overlay.is_below(&path)? {
            overlay.hide(&path, &self.pace)?;
        }
        Ok(())
    }

    /// Renames. A directory that also exists in the lower layer is refused with `cross-device`, after which programs
    /// copy.
    pub(super) fn rename(&self, old: (&Place, &str), new: (&Place, &str)) -> FsResult<()> {
        let overlay = overlay(old.0)?;
        let is_dot = ends_in_dots(old.1) || ends_in_dots(new.1);
        let (old, new) = (
            Self::find_to_move(overlay, old)?,
            Self::find_to_move(overlay, new)?,
        );
        let old_is_dir = old.is_dir();
        match (old_is_dir, &new.at) {
            (false, _) if new.wants_dir => {
                old.existing()?;
                return Err(ErrorCode::NotDirectory.into());
            }
            (false, Some((_, metadata))) if metadata.is_dir() => {
                old.existing()?;
                return Err(ErrorCode::IsDirectory.into());
            }
            (true, _) if is_dot => return Err(ErrorCode::Busy.into()),
            (true, Some((_, metadata))) if !metadata.is_dir() => return Err(ErrorCode::NotDirectory.into()),
            _ => {}
        }
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
        let from = self.raise(overlay, old)?;
        overlay.make_parents(&new.path)?;
        if overlay.is_below(&new.path)? {
            overlay.note(&new.path, &self.pace)?;
        }
        let upper = &overlay.upper.dir;
        fs::rename(upper, Path::new(&from), upper, Path::new(&new.path))?;
        if overlay.is_below(&from)? {
            overlay.hide(&from, &self.pace)?;
        }
        Ok(())
    }

    /// Finds the entry to be moved, linked or replaced, unless a denial protects it.
    fn find_to_move(overlay: &Overlay, (place, path): (&Place, &str)) -> FsResult<Found> {
        let found = FilesView::judge(&place.join(path), overlay.find(&place.below, path, false))?;
        FilesView::may_replace(place, path, &found.path)?;
        FilesView::judge(&place.join(path), overlay.check_git(&found.path))?;
        Ok(found)
    }

    /// Returns true if the entry may be changed or removed.
    fn may_change(overlay: &Overlay, place: &Place, path: &str, found: &Found) -> FsResult<()> {
        FilesView::may_change(place, path, &found.path)?;
        FilesView::judge(&place.join(path), overlay.check_git(&found.path))
    }

    /// Makes a second name for a file.
    pub(super) fn link(&self, old: (&Place, &str), new: (&Place, &str)) -> FsResult<()> {
        let overlay = overlay(old.0)?;
        let (old, new) = (
            Self::find_to_move(overlay, old)?,
            Self::find_to_move(overlay, new)?,
        );
        if old.is_dir() {
            return Err(ErrorCode::NotPermitted.into());
        }
        if new.wants_dir && new.at.is_none() {
            old.existing()?;
            return Err(ErrorCode::NoEntry.into());
        }
        if new.wants_dir && !new.is_dir() {
            return Err(ErrorCode::NotDirectory.into());
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
}

/// Returns true if a path ends in `.` or `..`, by which no entry can be removed or renamed.
pub(super) fn ends_in_dots(path: &str) -> bool {
    matches!(path.trim_end_matches('/').rsplit('/').next(), Some("." | ".."))
}

fn overlay(place: &Place) -> FsResult<&Overlay> {
    place
        .root
        .overlay
        .as_ref()
        .ok_or_else(|| ErrorCode::CrossDevice.into())
}

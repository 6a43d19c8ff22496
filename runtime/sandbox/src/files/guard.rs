//! Implementation of `wasi:filesystem` that checks the policy before each operation.

use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::{Descriptor, File};
use wasmtime_wasi::p2::bindings::filesystem::types;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult};
use wasmtime_wasi::{FsPerms, OpenMode};

use super::denied::Use;
use super::dir::{ON_THIS_THREAD, dir_descriptor};
use super::layered::Need;
use super::listing::{Listing, hash_of_name, is_escaped};
use super::open::{Mode, Opened};
use super::preopen::Handle;
use super::quota::{QuotaExceeded, cost};
use super::rights::Right;
use super::stream::Reading;
use super::view::{FilesView, is};
use types::{DescriptorFlags, ErrorCode, OpenFlags};

impl types::Host for FilesView<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        if self.table.get(&error)?.is::<QuotaExceeded>() {
            return Ok(Some(ErrorCode::Quota));
        }
        self.upstream().filesystem_error_code(error)
    }
}

impl types::HostDescriptor for FilesView<'_> {
    async fn open_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: types::PathFlags,
        path: String,
        oflags: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<Descriptor>> {
        let from = self.place(&fd)?;
        let mut place = Self::at(&from, &path)?;
        let sync = DescriptorFlags::FILE_INTEGRITY_SYNC
            | DescriptorFlags::DATA_INTEGRITY_SYNC
            | DescriptorFlags::REQUESTED_WRITE_SYNC;
        if flags.intersects(sync) {
            return Err(ErrorCode::Unsupported.into());
        }
        let wants_dir = oflags.contains(OpenFlags::DIRECTORY);
        if wants_dir && oflags != OpenFlags::DIRECTORY {
            return Err(ErrorCode::Invalid.into());
        }
        let mode = Mode {
            read: flags.contains(DescriptorFlags::READ),
            write: flags.contains(DescriptorFlags::WRITE),
            truncate: oflags.contains(OpenFlags::TRUNCATE),
            new: false,
            follow: path_flags.contains(types::PathFlags::SYMLINK_FOLLOW),
        };
        let reads = mode.read || !(mode.write || mode.truncate || oflags.contains(OpenFlags::CREATE));
        if reads && !wants_dir && !place.check(Right::Read) {
            return Err(ErrorCode::NotPermitted.into());
        }
        let counted = Some(self.count()?);
        let opened = match &place.root.overlay {
            Some(_) => {
                let (from, place, path) = (from.clone(), place.clone(), path.clone());
                self.layered(move |layers| layers.open(&from, &place, &path, oflags, mode))
                    .await
            }
            None => self.open_or_make(&fd, &place, &path, oflags, mode),
        };
        let (opened, is_new, below) = opened.inspect_err(|error| {
            if is(error, ErrorCode::NotPermitted) && climbs(&path) {
                place.deny(None);
            }
        })?;
        let writable = mode.write || mode.truncate || is_new;
        let descriptor = match opened {
            Opened::Special => {
                place.deny(None);
                return Err(ErrorCode::NotPermitted.into());
            }
            Opened::File(_) if wants_dir => return Err(ErrorCode::NotDirectory.into()),
            Opened::Dir(dir) => Descriptor::Dir(dir_descriptor(dir, place.root.grant.access.can_change())),
            Opened::File(file) => {
                let (perms, modes) = match (writable, mode.read) {
                    (true, true) => (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE),
                    (true, false) => (FsPerms::ReadWrite, OpenMode::WRITE),
                    (false, _) if place.may_change(&below) => (FsPerms::ReadWrite, OpenMode::READ),
                    (false, _) => (FsPerms::ReadOnly, OpenMode::READ),
                };
                Descriptor::File(File::new(file, perms, modes, ON_THIS_THREAD))
            }
        };
        place.note(writable);
        place.below = below;
        self.push(
            descriptor,
            Handle {
                place,
                writable,
                counted,
            },
        )
    }

    fn drop(&mut self, fd: Resource<Descriptor>) -> wasmtime::Result<()> {
        self.files.open.remove(&fd.rep());
        types::HostDescriptor::drop(&mut self.upstream(), fd)
    }

    async fn advise(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
        length: u64,
        advice: types::Advice,
    ) -> FsResult<()> {
        self.upstream().advise(fd, offset, length, advice).await
    }

    async fn sync_data(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        match self.file(&fd) {
            Ok(file) => off_worker(move || file.sync_data()).await,
            Err(_) => self.upstream().sync_data(fd).await,
        }
    }

    async fn sync(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        match self.file(&fd) {
            Ok(file) => off_worker(move || file.sync_all()).await,
            Err(_) => self.upstream().sync(fd).await,
        }
    }

    async fn get_flags(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorFlags> {
        self.upstream().get_flags(fd).await
    }

    async fn get_type(&mut self, fd: Resource<Descriptor>) -> FsResult<types::DescriptorType> {
        self.upstream().get_type(fd).await
    }

    async fn set_size(&mut self, fd: Resource<Descriptor>, size: u64) -> FsResult<()> {
        let now = self.file(&fd)?.metadata()?.len();
        self.take_bytes(size.saturating_sub(now))?;
        self.upstream().set_size(fd, size).await
    }

    async fn set_times(
        &mut self,
        fd: Resource<Descriptor>,
        accessed: types::NewTimestamp,
        modified: types::NewTimestamp,
    ) -> FsResult<()> {
        let handle = self.handle(&fd)?;
        // With an overlay, a file that was opened only for reading may be in the layer that never changes.
        let layered = handle.place.root.overlay.is_some();
        if !handle.writable && (layered || !handle.place.check(Right::Write)) {
            return Err(ErrorCode::NotPermitted.into());
        }
        let allowed = handle.place.root.denied.check(&handle.place.below, Use::Change);
        Self::judge(&handle.place, allowed.map_err(Into::into))?;
        self.upstream().set_times(fd, accessed, modified).await
    }

    async fn set_times_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: types::PathFlags,
        path: String,
        accessed: types::NewTimestamp,
        modified: types::NewTimestamp,
    ) -> FsResult<()> {
        let place = self.permit(&fd, &path, Right::Write)?;
        let follow = flags.contains(types::PathFlags::SYMLINK_FOLLOW);
        let from = self.place(&fd)?;
        if from.root.overlay.is_some() {
            let path = path.clone();
            self.layered(move |layers| layers.raise_at(&from, &path, follow))
                .await?;
        }
        let at = self.locate(&fd, &path, Need::Change { follow })?;
        let mut upstream = self.upstream();
        let set = upstream
            .set_times_at(at.fd(), not_again(), at.path.clone(), accessed, modified)
            .await;
        self.leave(&at);
        set.inspect(|()| place.note(true))
    }

    async fn read(
        &mut self,
        fd: Resource<Descriptor>,
        length: u64,
        offset: u64,
    ) -> FsResult<(Vec<u8>, bool)> {
        self.upstream().read(fd, length, offset).await
    }

    async fn write(&mut self, fd: Resource<Descriptor>, bytes: Vec<u8>, offset: u64) -> FsResult<u64> {
        let size = self.file(&fd)?.metadata()?.len();
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.take_bytes(cost(size, offset, length))?;
        self.upstream().write(fd, bytes, offset).await
    }

    async fn read_directory(
        &mut self,
        fd: Resource<Descriptor>,
    ) -> FsResult<Resource<types::DirectoryEntryStream>> {
        self.permit(&fd, "", Right::Read)?;
        let (dir, place) = (self.dir(&fd)?, self.place(&fd)?);
        let listing = Listing::open(&dir, place, &self.files.account, self.count()?)?;
        let stream = self.table.push(listing)?;
        Ok(Resource::new_own(stream.rep()))
    }

    async fn create_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        let place = self.permit(&fd, &path, Right::Create)?;
        self.take_file()?;
        let made = match self.locate(&fd, &path, Need::Make) {
            Ok(at) => {
                let made = self
                    .upstream()
                    .create_directory_at(at.fd(), at.path.clone())
                    .await;
                self.leave(&at);
                made
            }
            Err(error) => Err(error),
        };
        self.made(made).inspect(|()| place.note(true))
    }

    async fn stat(&mut self, fd: Resource<Descriptor>) -> FsResult<types::DescriptorStat> {
        self.upstream().stat(fd).await
    }

    async fn stat_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: types::PathFlags,
        path: String,
    ) -> FsResult<types::DescriptorStat> {
        self.permit(&fd, &path, Right::Read)?;
        let follow = flags.contains(types::PathFlags::SYMLINK_FOLLOW);
        let at = self.locate(&fd, &path, Need::Look { follow })?;
        let stat = self
            .upstream()
            .stat_at(at.fd(), not_again(), at.path.clone())
            .await;
        self.leave(&at);
        stat
    }

    async fn link_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: types::PathFlags,
        path: String,
        new_fd: Resource<Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        let (old, new) = (
            self.permit(&fd, &path, Right::Read),
            self.permit(&new_fd, &new_path, Right::Create),
        );
        let (old, new) = (old?, new?);
        if old.gains_in(&new) {
            new.deny(None);
            return Err(ErrorCode::NotPermitted.into());
        }
        self.may_link((&fd, &path), (&new_fd, &new_path))?;
        if flags.contains(types::PathFlags::SYMLINK_FOLLOW) {
            return Err(ErrorCode::Invalid.into());
        }
        let linked_to = (Resource::new_borrow(new_fd.rep()), new_path.clone());
        let linked = match self.shared_overlay(&fd, &new_fd)? {
            Some((from, to)) => {
                self.take_file()?;
                self.layered(move |layers| layers.link((&from, &path), (&to, &new_path)))
                    .await
            }
            None => {
                // A hard link to a read-only file would be a way to change it.
                let (from, to) = (
                    self.walk_to_move(&fd, &path)?,
                    self.walk_to_move(&new_fd, &new_path)?,
                );
                Self::judge(&old, self.check_walked(&fd, &from, Use::Change))?;
                self.take_file()?;
                from.link(&to).map_err(Into::into)
            }
        };
        self.made(linked).inspect(|()| new.note(true))?;
        self.judge_again(&linked_to.0, &linked_to.1).await
    }

    async fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<String> {
        self.permit(&fd, &path, Right::Read)?;
        let at = self.locate(&fd, &path, Need::Look { follow: false })?;
        let target = self.upstream().readlink_at(at.fd(), at.path.clone()).await;
        self.leave(&at);
        target
    }

    async fn remove_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        let place = self.permit(&fd, &path, Right::Delete)?;
        let from = self.place(&fd)?;
        let removed = match &from.root.overlay {
            Some(_) => {
                self.layered(move |layers| layers.remove(&from, &path, true))
                    .await
            }
            None => {
                let at = self.walk_to_remove(&fd, &path)?;
                at.remove_dir().map_err(Into::into)
            }
        };
        removed.inspect(|()| place.note(true))
    }

    async fn rename_at(
        &mut self,
        fd: Resource<Descriptor>,
        path: String,
        new_fd: Resource<Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        // Both are judged, so that the user learns of both rights at once.
        let (old, new) = (
            self.permit(&fd, &path, Right::Delete),
            self.permit(&new_fd, &new_path, Right::Create),
        );
        let (old, new) = (old?, new?);
        let replaces = !new.has(Right::Delete) && self.exists(&new_fd, &new_path)?;
        if replaces && !new.check(Right::Delete) {
            return Err(ErrorCode::NotPermitted.into());
        }
        if old.gains_in(&new) {
            new.deny(None);
            return Err(ErrorCode::NotPermitted.into());
        }
        self.may_move((&fd, &path), (&new_fd, &new_path)).await?;
        let moved_to = (Resource::new_borrow(new_fd.rep()), new_path.clone());
        let renamed = match self.shared_overlay(&fd, &new_fd)? {
            Some((from, to)) => {
                self.layered(move |layers| layers.rename((&from, &path), (&to, &new_path)))
                    .await
            }
            None => {
                let (from, to) = (
                    self.walk_to_move(&fd, &path)?,
                    self.walk_to_move(&new_fd, &new_path)?,
                );
                from.rename(&to).map_err(Into::into)
            }
        };
        renamed.inspect(|()| {
            old.note(true);
            new.note(true);
        })?;
        self.judge_again(&moved_to.0, &moved_to.1).await
    }

    async fn symlink_at(&mut self, fd: Resource<Descriptor>, target: String, path: String) -> FsResult<()> {
        let place = self.permit(&fd, &path, Right::Create)?;
        self.may_make_link(&fd, &path, &target).await?;
        self.take_file()?;
        let made = match self.locate_link(&fd, &path) {
            Ok(at) => {
                let made = self.upstream().symlink_at(at.fd(), target, at.path.clone()).await;
                self.leave(&at);
                made
            }
            Err(error) => Err(error),
        };
        self.made(made).inspect(|()| place.note(true))
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        let place = self.permit(&fd, &path, Right::Delete)?;
        let from = self.place(&fd)?;
        let removed = match &from.root.overlay {
            Some(_) => {
                self.layered(move |layers| layers.remove(&from, &path, false))
                    .await
            }
            None => {
                let at = self.walk_to_remove(&fd, &path)?;
                at.remove_file().map_err(Into::into)
            }
        };
        removed.inspect(|()| place.note(true))
    }

    fn read_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
    ) -> FsResult<Resource<DynInputStream>> {
        let file = match self.table.get(&fd)? {
            Descriptor::File(file) => file.file.clone(),
            Descriptor::Dir(_) => return Err(ErrorCode::IsDirectory.into()),
        };
        let counted = self.handle(&fd)?.counted.clone();
        let stream: DynInputStream = Box::new(Reading::new(file, offset, counted));
        Ok(self.table.push(stream)?)
    }

    fn write_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.writing(&fd, Some(offset))
    }

    fn append_via_stream(&mut self, fd: Resource<Descriptor>) -> FsResult<Resource<DynOutputStream>> {
        self.writing(&fd, None)
    }

    async fn is_same_object(
        &mut self,
        a: Resource<Descriptor>,
        b: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        self.upstream().is_same_object(a, b).await
    }

    async fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> FsResult<types::MetadataHashValue> {
        self.upstream().metadata_hash(fd).await
    }

    async fn metadata_hash_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: types::PathFlags,
        path: String,
    ) -> FsResult<types::MetadataHashValue> {
        self.permit(&fd, &path, Right::Read)?;
        let follow = flags.contains(types::PathFlags::SYMLINK_FOLLOW);
        let is_listed = |error: &FsError| {
            is(error, ErrorCode::NotPermitted) || (is(error, ErrorCode::NoEntry) && is_escaped(&path))
        };
        let at = match self.locate(&fd, &path, Need::Look { follow }) {
            Err(error) if !follow && is_name(&path) && is_listed(&error) => return Ok(hash_of_name(&path)),
            at => at?,
        };
        let hash = self
            .upstream()
            .metadata_hash_at(at.fd(), not_again(), at.path.clone())
            .await;
        self.leave(&at);
        match hash {
            Err(error) if !follow && is_name(&path) && is_listed(&error) => Ok(hash_of_name(&path)),
            hash => hash,
        }
    }
}

/// Returns `true` if a path is a single name, as returned by a listing.
fn is_name(path: &str) -> bool {
    !matches!(path, "" | "." | "..") && !path.contains('/')
}

/// The walk has already followed links; a link found now was created since.
fn not_again() -> types::PathFlags {
    types::PathFlags::empty()
}

/// Returns `true` if a path is absolute or goes up.
fn climbs(path: &str) -> bool {
    path.starts_with('/') || path.split('/').any(|part| part == "..")
}

/// Runs a blocking disk operation on a separate thread.
async fn off_worker(wait: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> FsResult<()> {
    let done = wasmtime_wasi::runtime::spawn_blocking(wait);
    Ok(done.await?)
}

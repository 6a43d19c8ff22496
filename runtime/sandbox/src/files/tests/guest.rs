//! A guest with directories.

use std::path::Path;
use std::sync::Arc;

use toolcell_core::policy::{DirAccess, DirGrant, Limits};
use toolcell_core::{Denials, Grant, Grants, Policy};
use wasmtime::component::{Resource, ResourceTable};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::preopens::Host as _;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor, HostDirectoryEntryStream, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{FsError, FsResult};

use crate::cell::receipt::ReceiptRecorder;
use crate::files::{FilePool, Files, FilesView, NotOpened};

pub(super) type Fd = Resource<Descriptor>;

pub(super) struct Guest {
    pub(super) files: Files,
    pub(super) table: ResourceTable,
    pub(super) recorder: ReceiptRecorder,
    roots: Vec<u32>,
}

fn files(grants: Grants, limits: &Limits, recorder: &ReceiptRecorder) -> Files {
    let policy = Policy {
        grants,
        ..Policy::default()
    };
    Files::new(Arc::new(policy), limits, &FilePool::new(1_000), recorder)
}

/// Opens granted directories as the first request of a guest does.
pub(super) fn open_roots(grants: Grants) -> Result<(), NotOpened> {
    let mut files = files(grants, &Limits::default(), &ReceiptRecorder::default());
    files.roots().map(|_| ())
}

impl Guest {
    /// Creates a guest that sees each directory at its path with these rights, as in a grant: `read+create`.
    pub(super) fn new(dirs: &[(&Path, &str, &str)]) -> Self {
        Self::with_limits(dirs, &Limits::default())
    }

    pub(super) fn with_limits(dirs: &[(&Path, &str, &str)], limits: &Limits) -> Self {
        let grants: Vec<DirGrant> = dirs
            .iter()
            .map(|(host, guest, rights)| DirGrant {
                host: host.to_path_buf(),
                guest: (*guest).to_owned(),
                access: access(rights),
                overlay: None,
            })
            .collect();
        Self::granted(grants, limits, Denials::default())
    }

    /// Creates a guest that sees a directory at `/w`, restricted by these lines, such as `deny=/tmp/x`.
    pub(super) fn denied(host: &Path, overlay: Option<&Path>, lines: &[String]) -> Self {
        let grant = DirGrant {
            host: host.to_path_buf(),
            guest: "/w".into(),
            access: DirAccess::WRITE,
            overlay: overlay.map(Path::to_path_buf),
        };
        let policy = Policy::granting(lines.iter().map(String::as_str)).unwrap();
        Self::granted(vec![grant], &Limits::default(), policy.grants.denied)
    }

    /// Creates a guest that sees `host` at `/w`, with an overlay for its changes.
    pub(super) fn layered(host: &Path, overlay: &Path, rights: &str, limits: &Limits) -> Self {
        let grant = DirGrant {
            host: host.to_path_buf(),
            guest: "/w".into(),
            access: access(rights),
            overlay: Some(overlay.to_path_buf()),
        };
        Self::granted(vec![grant], limits, Denials::default())
    }

    pub(super) fn granted(dirs: Vec<DirGrant>, limits: &Limits, denied: Denials) -> Self {
        let recorder = ReceiptRecorder::default();
        let grants = Grants {
            dirs,
            denied,
            ..Grants::default()
        };
        let mut guest = Self {
            files: files(grants, limits, &recorder),
            table: ResourceTable::new(),
            recorder,
            roots: Vec::new(),
        };
        guest.roots = guest
            .view()
            .get_directories()
            .unwrap()
            .iter()
            .map(|(fd, _)| fd.rep())
            .collect();
        guest
    }

    pub(super) fn view(&mut self) -> FilesView<'_> {
        FilesView {
            files: &mut self.files,
            table: &mut self.table,
        }
    }

    /// Returns the descriptor of the first, second, … directory.
    pub(super) fn root(&self, number: usize) -> Fd {
        Resource::new_borrow(self.roots[number])
    }

    pub(super) async fn open(
        &mut self,
        path: &str,
        oflags: OpenFlags,
        flags: DescriptorFlags,
    ) -> Result<Fd, ErrorCode> {
        let root = self.root(0);
        let mut view = self.view();
        let follow = PathFlags::SYMLINK_FOLLOW;
        code(view.open_at(root, follow, path.into(), oflags, flags).await)
    }

    pub(super) async fn read(&mut self, path: &str) -> Result<Vec<u8>, ErrorCode> {
        let fd = self.open(path, OpenFlags::empty(), DescriptorFlags::READ).await?;
        let read = self.view().read(borrow(&fd), 1 << 20, 0).await;
        self.close(fd);
        code(read).map(|(bytes, _)| bytes)
    }

    /// Writes like ordinary programs: create or truncate.
    pub(super) async fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), ErrorCode> {
        let make = OpenFlags::CREATE | OpenFlags::TRUNCATE;
        let fd = self.open(path, make, DescriptorFlags::WRITE).await?;
        let written = self.view().write(borrow(&fd), bytes.to_vec(), 0).await;
        self.close(fd);
        code(written).map(|n| assert_eq!(n, bytes.len() as u64))
    }

    pub(super) async fn rename(&mut self, from: (usize, &str), to: (usize, &str)) -> Result<(), ErrorCode> {
        let (old, new) = (self.root(from.0), self.root(to.0));
        code(self.view().rename_at(old, from.1.into(), new, to.1.into()).await)
    }

    pub(super) async fn link(&mut self, from: (usize, &str), to: (usize, &str)) -> Result<(), ErrorCode> {
        let (old, new) = (self.root(from.0), self.root(to.0));
        let flags = PathFlags::empty();
        code(
            self.view()
                .link_at(old, flags, from.1.into(), new, to.1.into())
                .await,
        )
    }

    pub(super) async fn symlink(&mut self, target: &str, path: &str) -> Result<(), ErrorCode> {
        let root = self.root(0);
        code(self.view().symlink_at(root, target.into(), path.into()).await)
    }

    pub(super) async fn mkdir(&mut self, path: &str) -> Result<(), ErrorCode> {
        let root = self.root(0);
        code(self.view().create_directory_at(root, path.into()).await)
    }

    pub(super) async fn unlink(&mut self, path: &str) -> Result<(), ErrorCode> {
        let root = self.root(0);
        code(self.view().unlink_file_at(root, path.into()).await)
    }

    pub(super) async fn rmdir(&mut self, path: &str) -> Result<(), ErrorCode> {
        let root = self.root(0);
        code(self.view().remove_directory_at(root, path.into()).await)
    }

    pub(super) async fn stat(&mut self, path: &str) -> Result<u64, ErrorCode> {
        let root = self.root(0);
        let stat = self.view().stat_at(root, PathFlags::empty(), path.into()).await;
        code(stat).map(|stat| stat.size)
    }

    pub(super) async fn hash(&mut self, path: &str) -> Result<(), ErrorCode> {
        let root = self.root(0);
        let hash = self
            .view()
            .metadata_hash_at(root, PathFlags::empty(), path.into())
            .await;
        code(hash).map(drop)
    }

    pub(super) async fn list(&mut self, path: &str) -> Result<Vec<String>, ErrorCode> {
        let fd = self
            .open(path, OpenFlags::DIRECTORY, DescriptorFlags::READ)
            .await?;
        let stream = code(self.view().read_directory(fd).await)?;
        let mut names = Vec::new();
        loop {
            let stream = Resource::new_borrow(stream.rep());
            match code(self.view().read_directory_entry(stream).await)? {
                Some(entry) => names.push(entry.name),
                None => break,
            }
        }
        HostDirectoryEntryStream::drop(&mut self.view(), stream).unwrap();
        names.sort();
        Ok(names)
    }

    pub(super) fn close(&mut self, fd: Fd) {
        HostDescriptor::drop(&mut self.view(), fd).unwrap();
    }

    /// Returns denials as target and grant.
    pub(super) fn denials(&self) -> Vec<(String, Option<String>)> {
        let receipt = self.recorder.lock();
        receipt
            .denials
            .iter()
            .map(|d| (d.target.clone(), d.allow_with.clone()))
            .collect()
    }

    /// Returns the origins of denials, in order.
    pub(super) fn refusals(&self) -> Vec<String> {
        let receipt = self.recorder.lock();
        receipt
            .denials
            .iter()
            .filter_map(|d| d.denied_by.clone())
            .collect()
    }

    /// Returns files of the receipt, marked with `*` if written.
    pub(super) fn touched(&self) -> Vec<String> {
        let receipt = self.recorder.lock();
        let star = |write: bool| if write { "*" } else { "" };
        receipt
            .files
            .iter()
            .map(|f| format!("{}{}", f.path, star(f.write)))
            .collect()
    }
}

/// Returns another handle to the same resource, like a borrow.
pub(super) fn borrow(fd: &Fd) -> Fd {
    Resource::new_borrow(fd.rep())
}

/// Returns the code that the guest sees.
pub(super) fn code<T>(result: FsResult<T>) -> Result<T, ErrorCode> {
    result.map_err(|error: FsError| error.downcast().expect("no trap"))
}

/// Parses rights of a grant: `read+create`.
pub(super) fn access(rights: &str) -> DirAccess {
    match format!("{rights}=x").parse().unwrap() {
        Grant::Dir { access, .. } => access,
        other => panic!("{other}"),
    }
}

//! Granted directories of one call, which are opened once it uses one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use cap_primitives::ambient_authority;
use cap_primitives::fs::open_ambient_dir;
use tokio::sync::OwnedSemaphorePermit;
use toolcell_core::denial::{DeniedUse, PathDenial};
use toolcell_core::policy::{DirGrant, Limits};
use toolcell_core::protected::Protection;
use toolcell_core::{Denials, Grants, Policy};
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::{Descriptor, Dir, WasiFilesystemCtx};
use wasmtime_wasi::p2::bindings::filesystem::preopens;

use super::denied::{DeniedBy, DeniedPlaces};
use super::dir::dir_descriptor;
use super::open_files::{FilePool, OpenFile, OpenFiles};
use super::overlay::Overlay;
use super::quota::Quota;
use super::rights::{Place, Root};
use super::view::FilesView;
use crate::cell::memory::MemoryAccount;
use crate::cell::receipt::ReceiptRecorder;

/// Files of one call: its directories, its open descriptors, its quota.
pub(crate) struct Files {
    policy: Arc<Policy>,
    /// Opened when the guest first asks for them: most calls of most tools do not.
    roots: Option<Roots>,
    /// Open descriptors, by resource number.
    pub(super) open: HashMap<u32, Handle>,
    pub(super) quota: Arc<Quota>,
    pub(super) recorder: ReceiptRecorder,
    pub(super) open_files: OpenFiles,
    pub(super) account: MemoryAccount,
    pub(super) upstream: WasiFilesystemCtx,
}

/// The open directories of a call.
struct Roots {
    dirs: Vec<(Dir, Place)>,
    _counted: Vec<OwnedSemaphorePermit>,
}

/// A granted directory that is missing or may not be opened, or for which the running calls leave no open file. It ends the
/// call.
#[derive(Debug, thiserror::Error)]
#[error("could not open the directory `{guest}`")]
pub(crate) struct NotOpened {
    /// Path of the directory in the guest.
    pub(super) guest: String,
    #[source]
    pub(super) source: io::Error,
}

/// State of an open descriptor.
pub(super) struct Handle {
    pub(super) place: Place,
    /// True if it was opened for writing.
    pub(super) writable: bool,
    /// Held by the descriptor and by the streams created from it.
    pub(super) counted: Option<Arc<OpenFile>>,
}

impl Files {
    pub(crate) fn new(
        policy: Arc<Policy>,
        limits: &Limits,
        pool: &FilePool,
        recorder: &ReceiptRecorder,
    ) -> Self {
        Self {
            policy,
            roots: None,
            open: HashMap::new(),
            quota: Arc::new(Quota::new(limits, recorder.clone())),
            recorder: recorder.clone(),
            open_files: OpenFiles::new(pool.clone()),
            account: recorder.account().clone(),
            upstream: WasiFilesystemCtx::default(),
        }
    }

    /// Returns the directories of the policy, which the first request opens.
    pub(super) fn roots(&mut self) -> Result<&[(Dir, Place)], NotOpened> {
        let roots = match self.roots.take() {
            Some(roots) => roots,
            None => Roots::open(&self.policy.grants, self.open_files.pool(), &self.recorder)?,
        };
        Ok(&self.roots.insert(roots).dirs)
    }
}

impl Roots {
    fn open(grants: &Grants, pool: &FilePool, recorder: &ReceiptRecorder) -> Result<Self, NotOpened> {
        let denials = with_overlays(grants);
        let mut dirs = Vec::with_capacity(grants.dirs.len());
        let mut counted = Vec::with_capacity(grants.dirs.len());
        for grant in &grants.dirs {
            let not_opened = |source| NotOpened {
                guest: grant.guest.clone(),
                source,
            };
            let full = |full| not_opened(io::Error::other(full));
            counted.push(pool.take().map_err(full)?);
            dirs.push(open_root(grant, &denials, recorder).map_err(not_opened)?);
        }
        Ok(Self {
            dirs,
            _counted: counted,
        })
    }
}

fn open_root(grant: &DirGrant, denials: &Denials, recorder: &ReceiptRecorder) -> io::Result<(Dir, Place)> {
    let dir = open_ambient_dir(&grant.host, ambient_authority())?;
    let denied = DeniedPlaces::new(&dir, &grant.host, denials).inspect_err(|error| {
        if let Some(DeniedBy(by)) = DeniedBy::of(error) {
            recorder.refusal("file", grant.guest.clone(), by.clone());
        }
    })?;
    let denied = Arc::new(denied);
    let dir = dir_descriptor(dir, grant.access.can_change());
    let overlay = grant.overlay.as_deref();
    let overlay = overlay.map(|host| Overlay::open(dir.clone(), host, denied.clone()));
    let place = Place {
        path: grant.guest.clone(),
        below: String::new(),
        root: Arc::new(Root {
            overlay: overlay.transpose()?,
            denied,
            grant: grant.clone(),
            recorder: recorder.clone(),
        }),
    };
    Ok((dir, place))
}

/// The denials of a policy, and its scratch overlays: what lies in one is reached through it alone.
fn with_overlays(grants: &Grants) -> Cow<'_, Denials> {
    let mut denials = Cow::Borrowed(&grants.denied);
    for overlay in grants.dirs.iter().filter_map(|grant| grant.overlay.as_ref()) {
        denials.to_mut().paths.push(PathDenial {
            host: overlay.clone(),
            uses: DeniedUse::All,
            by: Protection::Overlay.rule().to_owned(),
        });
    }
    denials
}

impl preopens::Host for FilesView<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let roots = self.files.roots()?.to_vec();
        if roots.is_empty() {
            // The requested file is unknown to the host.
            self.files.recorder.denial("directories", "/".into(), None);
        }
        let mut directories = Vec::with_capacity(roots.len());
        for (dir, place) in roots {
            let name = place.path.clone();
            let handle = Handle {
                place,
                writable: false,
                counted: None,
            };
            let fd = self.table.push(Descriptor::Dir(dir))?;
            self.files.open.insert(fd.rep(), handle);
            directories.push((fd, name));
        }
        Ok(directories)
    }
}

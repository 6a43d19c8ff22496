//! Granted directories of one call.

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
use toolcell_core::{Denials, Grants};
use wasmtime_wasi::filesystem::{Dir, WasiFilesystemCtx};

use super::denied::{DeniedBy, DeniedPlaces};
use super::dir::dir_descriptor;
use super::open_files::{FilePool, OpenFile, OpenFiles};
use super::overlay::Overlay;
use super::quota::Quota;
use super::rights::{Place, Root};
use crate::cell::memory::MemoryAccount;
use crate::cell::receipt::ReceiptRecorder;

/// Files of one call: its directories, its open descriptors, its quota.
pub(crate) struct Files {
    pub(super) roots: Vec<(Dir, Place)>,
    /// Open descriptors, by resource number.
    pub(super) open: HashMap<u32, Handle>,
    pub(super) quota: Arc<Quota>,
    pub(super) recorder: ReceiptRecorder,
    pub(super) open_files: OpenFiles,
    _roots: Vec<OwnedSemaphorePermit>,
    pub(super) account: MemoryAccount,
    pub(super) upstream: WasiFilesystemCtx,
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
    /// Opens the directories of a policy.
    ///
    /// # Errors
    /// If one is missing or cannot be opened, or the running calls leave no open file for it; the error includes the
    /// grant.
    pub(crate) fn open<'a>(
        grants: &'a Grants,
        limits: &Limits,
        pool: &FilePool,
        recorder: &ReceiptRecorder,
    ) -> Result<Self, (&'a DirGrant, io::Error)> {
        let denials = with_overlays(grants);
        let mut roots = Vec::with_capacity(grants.dirs.len());
        let mut counted = Vec::with_capacity(grants.dirs.len());
        for grant in &grants.dirs {
            counted.push(pool.take().map_err(|full| (grant, io::Error::other(full)))?);
            let dir = open_ambient_dir(&grant.host, ambient_authority()).map_err(|e| (grant, e))?;
            let denied = DeniedPlaces::new(&dir, &grant.host, &denials).map_err(|error| {
                if let Some(DeniedBy(by)) = DeniedBy::of(&error) {
                    recorder.refusal("file", grant.guest.clone(), by.clone());
                }
                (grant, error)
            })?;
            let denied = Arc::new(denied);
            let dir = dir_descriptor(dir, grant.access.can_change());
            let overlay = grant
                .overlay
                .as_deref()
                .map(|host| Overlay::open(dir.clone(), host, denied.clone()));
            let place = Place {
                path: grant.guest.clone(),
                below: String::new(),
                root: Arc::new(Root {
                    overlay: overlay.transpose().map_err(|e| (grant, e))?,
                    denied,
                    grant: grant.clone(),
                    recorder: recorder.clone(),
                }),
            };
            roots.push((dir, place));
        }
        Ok(Self {
            roots,
            open: HashMap::new(),
            quota: Arc::new(Quota::new(limits, recorder.clone())),
            recorder: recorder.clone(),
            open_files: OpenFiles::new(pool.clone()),
            _roots: counted,
            account: recorder.account().clone(),
            upstream: WasiFilesystemCtx::default(),
        })
    }
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

//! What a call did, written down while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcell_core::Receipt;
use toolcell_core::receipt::Denial;

/// The receipt of one running call, shared by everything that serves the call. Clones write to the same receipt.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Receipt>>);

impl Ledger {
    /// Notes a host that was contacted, as `host:port`.
    pub(crate) fn host(&self, host: String) {
        self.lock().note_host(host);
    }

    /// Notes a file by its guest path.
    pub(crate) fn file(&self, path: String, write: bool) {
        self.lock().note_file(path, write);
    }

    /// Notes a bucket by its name on the host.
    pub(crate) fn bucket(&self, name: &str, write: bool) {
        self.lock().note_bucket(name, write);
    }

    /// Notes something that the guest did not get; `allow_with` is the grant expression that would allow it.
    pub(crate) fn denial(&self, what: &str, target: String, allow_with: Option<String>) {
        self.lock().note_denial(Denial {
            what: what.into(),
            target,
            allow_with,
        });
    }

    /// The receipt, to read or to fill in.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Receipt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What a call did, written down while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcell_core::receipt::Denial;
use toolcell_core::{Receipt, Redactor};

use crate::cell::memory::{MemoryAccount, Reservation};

/// The receipt of one running call, shared by everything that serves the call. Clones write to the same receipt. What is
/// written down counts as memory of the call; what it has no memory for is left out and counted.
#[derive(Debug, Clone)]
pub(crate) struct ReceiptRecorder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    receipt: Mutex<Receipt>,
    account: MemoryAccount,
    memory: Mutex<Reservation>,
    redactor: Redactor,
}

impl ReceiptRecorder {
    pub(crate) fn new(account: &MemoryAccount, redactor: &Redactor) -> Self {
        Self(Arc::new(Inner {
            receipt: Mutex::default(),
            account: account.clone(),
            memory: Mutex::new(account.empty()),
            redactor: redactor.clone(),
        }))
    }

    /// The memory of the call.
    pub(crate) fn account(&self) -> &MemoryAccount {
        &self.0.account
    }

    /// Notes a host that was contacted, as `host:port`.
    pub(crate) fn host(&self, host: String) {
        let host = self.bounded(host);
        self.note(host.len(), |receipt| receipt.note_host(host));
    }

    /// Notes a file by its guest path.
    pub(crate) fn file(&self, path: String, write: bool) {
        let path = self.bounded(path);
        self.note(path.len(), |receipt| receipt.note_file(path, write));
    }

    /// Notes a bucket by its name on the host.
    pub(crate) fn bucket(&self, name: &str, write: bool) {
        self.note(name.len(), |receipt| receipt.note_bucket(name, write));
    }

    /// Notes something that the guest did not get; `allow_with` is the grant expression that would allow it.
    pub(crate) fn denial(&self, what: &str, target: String, allow_with: Option<String>) {
        let target = self.bounded(target);
        let length = what.len() + target.len() + allow_with.as_ref().map_or(0, String::len);
        let denial = Denial {
            what: what.into(),
            target,
            allow_with,
            denied_by: None,
        };
        self.note(length, |receipt| receipt.note_denial(denial));
    }

    /// Notes something that a denial refused, although it may be granted; `denied_by` says which, for the user.
    pub(crate) fn refusal(&self, what: &str, target: String, denied_by: String) {
        let target = self.bounded(target);
        let length = what.len() + target.len() + denied_by.len();
        let denial = Denial {
            what: what.into(),
            target,
            allow_with: None,
            denied_by: Some(denied_by),
        };
        self.note(length, |receipt| receipt.note_denial(denial));
    }

    /// The receipt, to read or to fill in.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Receipt> {
        self.0.receipt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A text that is short enough for a receipt, and no longer in memory than that. Secrets are taken out before it is
    /// cut, for half a secret would not be found afterwards.
    fn bounded(&self, text: String) -> String {
        if text.len() <= Receipt::MAX_TEXT {
            return text;
        }
        let text = self.0.redactor.text(&text);
        text[..text.floor_char_boundary(Receipt::MAX_TEXT)].to_owned()
    }

    /// Changes the receipt, which may add an entry with so many bytes of text.
    fn note(&self, length: usize, change: impl FnOnce(&mut Receipt)) {
        let mut receipt = self.lock();
        let before = receipt.entries();
        // An entry is charged before it is made, and one that was there already gives the bytes back.
        let mut memory = self.0.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = (length + size_of::<Denial>()) as u64;
        if memory.grow(bytes).is_err() {
            receipt.omitted += 1;
            return;
        }
        change(&mut receipt);
        if receipt.entries() == before {
            memory.shrink(bytes);
        }
    }
}

/// A ledger of a call without limits.
#[cfg(test)]
impl Default for ReceiptRecorder {
    fn default() -> Self {
        Self::new(&MemoryAccount::unlimited(), &Redactor::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::memory::MemoryPool;

    const SECRET: &str = "hunter2-hunter2";

    #[test]
    fn a_long_text_is_cut_after_secrets_are_taken_out() {
        let account = MemoryAccount::unlimited();
        let ledger = ReceiptRecorder::new(&account, &Redactor::new([("token", SECRET)]));
        for length in [Receipt::MAX_TEXT, Receipt::MAX_TEXT + 1] {
            ledger.file("x".repeat(length), false);
        }
        let half = "y".repeat(Receipt::MAX_TEXT - 5);
        ledger.denial("file", format!("{half}{SECRET}"), None);
        let receipt = ledger.lock();
        let lengths: Vec<usize> = receipt.files.iter().map(|file| file.path.len()).collect();
        assert_eq!(lengths, [Receipt::MAX_TEXT], "two that are cut alike are one");
        let target = &receipt.denials[0].target;
        assert_eq!(target.len(), Receipt::MAX_TEXT);
        assert!(!target.contains("hunte"), "{target}");
    }

    #[test]
    fn what_is_written_down_is_memory_of_the_call() {
        let entry = 100 + size_of::<Denial>() as u64;
        let account = MemoryAccount::new(2 * entry, MemoryPool::new(u64::MAX));
        let ledger = ReceiptRecorder::new(&account, &Redactor::default());
        let path = |i: u32| format!("{i:0100}");
        for _ in 0..9 {
            ledger.file(path(0), false);
        }
        assert_eq!(account.left(), entry, "the same file is one entry");
        ledger.file(path(1), false);
        ledger.file(path(2), false);
        let noted = ledger.lock().clone();
        assert_eq!((noted.files.len(), noted.omitted), (2, 1));
        drop(ledger);
        assert_eq!(account.left(), 2 * entry);
    }
}

//! Recording of a call's receipt while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcell_core::keyvalue::Quota;
use toolcell_core::receipt::Denial;
use toolcell_core::{Receipt, Redactor};

use crate::cell::memory::{MemoryAccount, Reservation};

/// Receipt of one running call, shared by everything that serves the call. Clones write to the same receipt. Entries
/// count as memory of the call; entries for which it has no memory are omitted and counted.
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

    /// Returns the memory account of the call.
    pub(crate) fn account(&self) -> &MemoryAccount {
        &self.0.account
    }

    /// Returns the redactor of the call.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.0.redactor
    }

    /// Records a contacted host, as `host:port`.
    pub(crate) fn host(&self, host: String) {
        let host = self.bounded(host);
        self.note(host.len(), |receipt| receipt.note_host(host));
    }

    /// Records a file by its guest path.
    pub(crate) fn file(&self, path: String, write: bool) {
        let path = self.bounded(path);
        self.note(path.len(), |receipt| receipt.note_file(path, write));
    }

    /// Records a bucket by its name on the host.
    pub(crate) fn bucket(&self, name: &str, write: bool) {
        self.note(name.len(), |receipt| receipt.note_bucket(name, write));
    }

    /// Records a denied operation; `allow_with` is the grant that would allow it.
    pub(crate) fn denial(&self, what: &str, target: String, allow_with: Option<String>) {
        let target = self.bounded(target);
        let length = what.len() + target.len() + allow_with.as_ref().map_or(0, String::len);
        let denial = Denial {
            what: what.into(),
            target,
            allow_with,
            denied_by: None,
            needed: 0,
        };
        self.note(length, |receipt| receipt.note_denial(denial));
    }

    /// Records an operation beyond a limit that the guest sees as an error; `needed` is the total with it.
    pub(crate) fn too_much(&self, name: &str, limit: u64, needed: u64) {
        self.beyond(Denial::too_much(name, limit, needed));
    }

    /// Records a change with which a bucket would have more than `limit` keys or bytes.
    pub(crate) fn full_bucket(&self, bucket: &str, limit: u64, of: Quota) {
        self.beyond(Denial::full_bucket(bucket, limit, of));
    }

    fn beyond(&self, denial: Denial) {
        let length = denial.what.len() + denial.target.len();
        self.note(length, |receipt| receipt.note_denial(denial));
    }

    /// Records an operation refused by a denial although a grant may allow it; `denied_by` is the denial, for the user.
    pub(crate) fn refusal(&self, what: &str, target: String, denied_by: String) {
        let target = self.bounded(target);
        let length = what.len() + target.len() + denied_by.len();
        let denial = Denial {
            what: what.into(),
            target,
            allow_with: None,
            denied_by: Some(denied_by),
            needed: 0,
        };
        self.note(length, |receipt| receipt.note_denial(denial));
    }

    /// Removes the entries recorded until now, and returns them without secrets. The memory of the call is released.
    pub(crate) fn take_entries(&self) -> Receipt {
        let mut taken = {
            let mut receipt = self.lock();
            let mut memory = self.0.memory.lock().unwrap_or_else(PoisonError::into_inner);
            *memory = self.0.account.empty();
            receipt.take_entries()
        };
        self.redactor().receipt(&mut taken);
        taken
    }

    /// Locks the receipt for reading or writing.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Receipt> {
        self.0.receipt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a text bounded in length and capacity. Half a secret at the end would not be found afterwards, and is left out.
    fn bounded(&self, text: String) -> String {
        if text.len() <= Receipt::MAX_TEXT {
            return text;
        }
        let text = self.0.redactor.beginning(&text, Receipt::MAX_TEXT);
        text[..text.floor_char_boundary(Receipt::MAX_TEXT)].to_owned()
    }

    /// Changes the receipt, which may add an entry with this many bytes of text.
    fn note(&self, length: usize, change: impl FnOnce(&mut Receipt)) {
        let mut receipt = self.lock();
        let before = receipt.entries();
        // An entry is charged before it is created; an entry that already exists releases the bytes.
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

/// Creates a recorder for a call without limits.
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
    fn long_text_is_truncated_after_redaction() {
        let account = MemoryAccount::unlimited();
        let recorder = ReceiptRecorder::new(&account, &Redactor::new([("token", SECRET)]));
        for length in [Receipt::MAX_TEXT, Receipt::MAX_TEXT + 1, Receipt::MAX_TEXT + 2] {
            // No secret begins with it.
            recorder.file("\u{1}".repeat(length), false);
        }
        let half = "\u{1}".repeat(Receipt::MAX_TEXT - 5);
        recorder.denial("file", format!("{half}{SECRET}"), None);
        let receipt = recorder.lock();
        let lengths: Vec<usize> = receipt.files.iter().map(|file| file.path.len()).collect();
        assert_eq!(
            lengths,
            [Receipt::MAX_TEXT],
            "two that are equal after truncation are one"
        );
        let target = &receipt.denials[0].target;
        assert!(target.len() <= Receipt::MAX_TEXT && target.starts_with(&half));
        assert!(!target.contains("hunte"), "{target}");
    }

    #[test]
    fn receipt_entries_count_as_memory_of_the_call() {
        let entry = 100 + size_of::<Denial>() as u64;
        let account = MemoryAccount::new(2 * entry, MemoryPool::new(u64::MAX));
        let recorder = ReceiptRecorder::new(&account, &Redactor::default());
        let path = |i: u32| format!("{i:0100}");
        for _ in 0..9 {
            recorder.file(path(0), false);
        }
        assert_eq!(account.left(), entry, "the same file is one entry");
        recorder.file(path(1), false);
        recorder.file(path(2), false);
        let noted = recorder.lock().clone();
        assert_eq!((noted.files.len(), noted.omitted), (2, 1));
        let taken = recorder.take_entries();
        assert_eq!((taken.files, taken.omitted), (noted.files, 1));
        assert_eq!(
            account.left(),
            2 * entry,
            "what was taken is no memory of the call"
        );
        recorder.file(path(2), false);
        assert_eq!(recorder.lock().files.len(), 1);
        drop(recorder);
        assert_eq!(account.left(), 2 * entry);
    }

    #[test]
    fn denials_and_hosts_are_charged_by_all_their_texts() {
        let base = size_of::<Denial>() as u64;
        let account = MemoryAccount::new(10_000, MemoryPool::new(u64::MAX));
        let recorder = ReceiptRecorder::new(&account, &Redactor::default());
        let mut before = account.left();
        let mut charged = || {
            let bytes = before - account.left();
            before = account.left();
            bytes
        };
        recorder.denial("file", "x".repeat(0x10), Some("y".repeat(0x40)));
        assert_eq!(charged(), base + 4 + 0x10 + 0x40);
        recorder.denial("file", "x".repeat(0x20), None);
        assert_eq!(charged(), base + 4 + 0x20);
        recorder.refusal("http", "x".repeat(0x10), "y".repeat(0x80));
        assert_eq!(charged(), base + 4 + 0x10 + 0x80);
        recorder.host("a:1".into());
        assert_eq!(charged(), base + 3);
        recorder.bucket("b", true);
        assert_eq!(charged(), base + 1);
        let receipt = recorder.lock();
        assert_eq!(receipt.hosts, ["a:1"]);
        assert_eq!((receipt.denials.len(), receipt.omitted), (3, 0));
    }
}

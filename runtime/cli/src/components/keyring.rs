//! The keyring of the operating system: the keychain of macOS, the Secret Service of a Linux desktop.
//!
//! Nothing is opened before a value is asked for, so that a machine without a keyring runs everything that needs none.
//! Each request runs on a thread of its own with a limit on its time: the stores block, and one that asks a person to
//! unlock it may never answer. A value is in no error.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use keyring_core::{CredentialStore, Entry, Error};

use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// The service under which all entries stand, as programs for looking at keyrings show it.
pub(crate) const SERVICE: &str = "toolcell";

/// How long one request may take. Long enough for a person to type the password that unlocks the keyring.
const WAIT: Duration = Duration::from_secs(30);

/// What opens the store.
type Open = Arc<dyn Fn() -> keyring_core::Result<Arc<CredentialStore>> + Send + Sync>;

/// A keyring, not opened yet.
pub(crate) struct Keyring {
    open: Open,
    wait: Duration,
}

/// Why a request came to nothing.
enum Refused {
    /// The store cannot be opened.
    Closed(Error),
    /// The store is open, and refuses.
    Entry(Error),
}

impl Keyring {
    /// The keyring of this system.
    pub(crate) fn of_system() -> Self {
        Self {
            open: Arc::new(open_system),
            wait: WAIT,
        }
    }

    /// The value of an account; `None` when there is no such entry.
    ///
    /// # Errors
    /// When there is no keyring, it stays locked, or it does not answer in time.
    pub(crate) fn get(&self, account: &str) -> Result<Option<String>, Failure> {
        let fail = || {
            Failure::new(
                Exit::Config,
                text!("the account `{}` cannot be read from the keyring", account),
            )
        };
        self.ask(account, fail, |entry| entry.get_password())
    }

    /// Stores a value, in the place of the one that was there.
    ///
    /// # Errors
    /// As [`Keyring::get`].
    pub(crate) fn set(&self, account: &str, value: String) -> Result<(), Failure> {
        let fail = || {
            Failure::new(
                Exit::Config,
                text!("the account `{}` cannot be stored in the keyring", account),
            )
        };
        match self.ask(account, fail, move |entry| entry.set_password(&value))? {
            Some(()) => Ok(()),
            None => Err(fail().why("the keyring lost the entry while it was written")),
        }
    }

    /// Deletes an entry. Says whether there was one.
    ///
    /// # Errors
    /// As [`Keyring::get`].
    pub(crate) fn delete(&self, account: &str) -> Result<bool, Failure> {
        let fail = || {
            Failure::new(
                Exit::Config,
                text!("the account `{}` cannot be deleted from the keyring", account),
            )
        };
        let deleted = self.ask(account, fail, |entry| entry.delete_credential())?;
        Ok(deleted.is_some())
    }

    /// Runs `request` on a thread outside the async runtime, in which the stores must not block. `None` means that there
    /// is no such entry.
    fn ask<T: Send + 'static>(
        &self,
        account: &str,
        fail: impl Fn() -> Failure,
        request: impl FnOnce(&Entry) -> keyring_core::Result<T> + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        let (open, name) = (self.open.clone(), account.to_owned());
        let (answer, answered) = mpsc::channel();
        std::thread::Builder::new()
            .name("keyring".into())
            .spawn(move || {
                let result = open().map_err(Refused::Closed).and_then(|store| {
                    let entry = store.build(SERVICE, &name, None).map_err(Refused::Entry)?;
                    request(&entry).map_err(Refused::Entry)
                });
                // Nobody waits any more when the time was over.
                let _ = answer.send(result);
            })
            .map_err(|e| fail().because(e))?;
        match answered.recv_timeout(self.wait) {
            Ok(Ok(value)) => Ok(Some(value)),
            Ok(Err(Refused::Entry(Error::NoEntry))) => Ok(None),
            Ok(Err(Refused::Entry(error))) => Err(fail().why(reason(&error)).hint(ELSEWHERE)),
            Ok(Err(Refused::Closed(error))) => Err(fail().why(MISSING).why(reason(&error)).hint(ELSEWHERE)),
            Err(RecvTimeoutError::Timeout) => Err(fail()
                .why(text!(
                    "it did not answer within {} seconds; it may be locked",
                    self.wait.as_secs()
                ))
                .hint("unlock it and try again")
                .hint(ELSEWHERE)),
            Err(RecvTimeoutError::Disconnected) => Err(fail()
                .why("the request to the keyring ended without an answer")
                .hint(ELSEWHERE)),
        }
    }
}

/// The failure for an entry that is not there.
pub(crate) fn no_entry(exit: Exit, account: &str) -> Failure {
    Failure::new(exit, text!("the keyring has no account `{}`", account))
        .why(text!("there is no entry for it under the service `{}`", SERVICE))
}

/// What is missing where the store cannot be opened.
const MISSING: &str = if cfg!(target_os = "linux") {
    "no keyring service (`org.freedesktop.secrets` on the D-Bus of the session) can be reached"
} else {
    "this system has no keyring that can be used"
};

/// What works without a keyring.
const ELSEWHERE: &str = "without a keyring, name a variable or a file: `env` or `file` for a secret, `api_key_env` for a provider";

/// The reason, without the data that some errors carry along.
fn reason(error: &Error) -> String {
    match error {
        Error::PlatformFailure(cause) | Error::NoStorageAccess(cause) => cause.to_string(),
        Error::BadEncoding(_) => "its value is not UTF-8".into(),
        Error::BadDataFormat(..) => "its value has a form that the keyring does not know".into(),
        Error::Ambiguous(entries) => format!("{} entries have this name", entries.len()),
        Error::TooLong(what, most) => format!("its {what} is longer than {most} characters"),
        Error::Invalid(what, _) => format!("its {what} is not one that the keyring takes"),
        Error::BadStoreFormat(_) => "the keyring itself is damaged".into(),
        Error::NoDefaultStore | Error::NotSupportedByStore(_) => "the keyring cannot do that".into(),
        _ => "the keyring refuses".into(),
    }
}

#[cfg(target_os = "linux")]
fn open_system() -> keyring_core::Result<Arc<CredentialStore>> {
    Ok(zbus_secret_service_keyring_store::Store::new()?)
}

#[cfg(target_os = "macos")]
fn open_system() -> keyring_core::Result<Arc<CredentialStore>> {
    Ok(apple_native_keyring_store::keychain::Store::new()?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn open_system() -> keyring_core::Result<Arc<CredentialStore>> {
    Err(Error::NoDefaultStore)
}

#[cfg(test)]
impl Keyring {
    /// A keyring in memory, for tests.
    pub(crate) fn in_memory() -> Self {
        let store: Arc<CredentialStore> = keyring_core::mock::Store::new().expect("it needs nothing");
        Self {
            open: Arc::new(move || Ok(store.clone())),
            wait: WAIT,
        }
    }

    /// A keyring that cannot be opened.
    pub(crate) fn closed() -> Self {
        Self {
            open: Arc::new(|| Err(Error::NoStorageAccess("no such bus".into()))),
            wait: WAIT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "planted-secret-value";

    #[test]
    fn a_value_is_stored_read_replaced_and_deleted() {
        let keyring = Keyring::in_memory();
        assert_eq!(keyring.get("token").unwrap(), None);
        keyring.set("token", VALUE.into()).unwrap();
        assert_eq!(keyring.get("token").unwrap().as_deref(), Some(VALUE));
        assert_eq!(keyring.get("other").unwrap(), None);
        keyring.set("token", "another-value".into()).unwrap();
        assert_eq!(keyring.get("token").unwrap().as_deref(), Some("another-value"));
        assert!(keyring.delete("token").unwrap());
        assert_eq!(keyring.get("token").unwrap(), None);
        assert!(!keyring.delete("token").unwrap());
    }

    #[test]
    fn a_keyring_that_is_not_there_is_named_and_the_value_is_not() {
        let keyring = Keyring::closed();
        for failure in [
            keyring.get("token").unwrap_err(),
            keyring.set("token", VALUE.into()).unwrap_err(),
            keyring.delete("token").unwrap_err(),
        ] {
            let text = format!("{failure} {failure:?}");
            assert_eq!(failure.exit, Exit::Config);
            assert!(text.contains("`token`") && text.contains(MISSING), "{text}");
            assert!(
                text.contains("no such bus") && text.contains("`env` or `file`"),
                "{text}"
            );
            assert!(!text.contains(VALUE), "{text}");
        }
    }

    #[test]
    fn a_keyring_that_never_answers_is_given_up() {
        let (held, never) = mpsc::channel::<()>();
        let never = std::sync::Mutex::new(never);
        let keyring = Keyring {
            open: Arc::new(move || {
                let _ = never.lock().unwrap().recv();
                Err(Error::NoDefaultStore)
            }),
            wait: Duration::from_millis(10),
        };
        let text = keyring.get("token").unwrap_err().to_string();
        assert!(text.contains("did not answer"), "{text}");
        drop(held);
    }

    #[test]
    fn a_value_that_an_error_carries_is_not_told() {
        let bytes = || VALUE.as_bytes().to_vec();
        for error in [
            Error::BadEncoding(bytes()),
            Error::BadDataFormat(bytes(), VALUE.into()),
            Error::Invalid("password".into(), VALUE.into()),
        ] {
            assert!(!reason(&error).contains(VALUE));
        }
    }
}

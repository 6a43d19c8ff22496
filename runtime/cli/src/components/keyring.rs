//! The keyring of the operating system: the keychain of macOS, the Secret Service of a Linux desktop.
//!
//! The store is opened on first use, so that a machine without a keyring runs everything that does not need one. Each
//! request runs on its own thread with a timeout: stores block, and one that asks the user to unlock it may never
//! return. Errors never contain a value.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use keyring_core::{CredentialStore, Entry, Error};

use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Service name of all entries, as shown by keyring applications.
pub(crate) const SERVICE: &str = "toolcell";

/// Timeout of one request. Long enough for the user to type the password of the keyring.
const WAIT: Duration = Duration::from_secs(30);

/// Function that opens the store.
type Open = Arc<dyn Fn() -> keyring_core::Result<Arc<CredentialStore>> + Send + Sync>;

/// Keyring that is opened on first use.
pub(crate) struct Keyring {
    open: Open,
    wait: Duration,
}

/// Reason a request failed.
enum Refused {
    /// The store could not be opened.
    Closed(Error),
    /// The open store returned an error.
    Entry(Error),
}

impl Keyring {
    /// Creates the keyring of this system.
    pub(crate) fn of_system() -> Self {
        Self {
            open: Arc::new(open_system),
            wait: WAIT,
        }
    }

    /// Returns the value of an account, or `None` if there is no such entry.
    ///
    /// # Errors
    /// Returns an error if there is no keyring, it stays locked, or it does not respond in time.
    pub(crate) fn get(&self, account: &str) -> Result<Option<String>, Failure> {
        let fail = || {
            Failure::new(
                Exit::Config,
                text!("the account `{}` cannot be read from the keyring", account),
            )
        };
        self.ask(account, fail, |entry| entry.get_password())
    }

    /// Stores a value and replaces the previous one.
    ///
    /// # Errors
    /// Same as [`Keyring::get`].
    pub(crate) fn set(&self, account: &str, value: String) -> Result<(), Failure> {
        let fail = || {
            Failure::new(
                Exit::Config,
                text!("the account `{}` cannot be stored in the keyring", account),
            )
        };
        match self.ask(account, fail, move |entry| entry.set_password(&value))? {
            Some(()) => Ok(()),
            None => Err(fail().why("the keyring lost the entry during the write")),
        }
    }

    /// Deletes an entry. Returns true if it existed.
    ///
    /// # Errors
    /// Same as [`Keyring::get`].
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

    /// Runs `request` on a separate thread, because stores must not block the async runtime. Returns `None` if there is
    /// no such entry.
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
                // After a timeout the receiver is gone.
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
                    "it did not respond within {} seconds; it may be locked",
                    self.wait.as_secs()
                ))
                .hint("unlock it and try again")
                .hint(ELSEWHERE)),
            Err(RecvTimeoutError::Disconnected) => Err(fail()
                .why("the keyring thread ended without a response")
                .hint(ELSEWHERE)),
        }
    }
}

/// Creates the failure for a missing entry.
pub(crate) fn no_entry(exit: Exit, account: &str) -> Failure {
    Failure::new(exit, text!("the keyring has no account `{}`", account))
        .why(text!("there is no entry for it in the service `{}`", SERVICE))
}

/// Reason shown if the store cannot be opened.
const MISSING: &str = if cfg!(target_os = "linux") {
    "no keyring service (`org.freedesktop.secrets` on the D-Bus of the session) can be reached"
} else {
    "this system has no keyring that can be used"
};

/// Hint shown if there is no keyring.
const ELSEWHERE: &str = "without a keyring, name a variable or a file: `env` or `file` for a secret, `api_key_env` for a provider";

/// Describes an error without the data some variants carry, which may contain the value.
fn reason(error: &Error) -> String {
    match error {
        Error::PlatformFailure(cause) | Error::NoStorageAccess(cause) => cause.to_string(),
        Error::BadEncoding(_) => "its value is not UTF-8".into(),
        Error::BadDataFormat(..) => "its value has an unsupported format".into(),
        Error::Ambiguous(entries) => format!("{} entries have this name", entries.len()),
        Error::TooLong(what, most) => format!("its {what} is longer than {most} characters"),
        Error::Invalid(what, _) => format!("its {what} is not accepted by the keyring"),
        Error::BadStoreFormat(_) => "the keyring itself is damaged".into(),
        Error::NoDefaultStore | Error::NotSupportedByStore(_) => {
            "the keyring does not support this operation".into()
        }
        _ => "the keyring refused the request".into(),
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
    /// Creates an in-memory keyring.
    pub(crate) fn in_memory() -> Self {
        let store: Arc<CredentialStore> = keyring_core::mock::Store::new().expect("it needs nothing");
        Self {
            open: Arc::new(move || Ok(store.clone())),
            wait: WAIT,
        }
    }

    /// Creates a keyring that cannot be opened.
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
    fn value_is_stored_read_replaced_and_deleted() {
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
    fn missing_keyring_is_named_and_value_is_not() {
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
    fn keyring_that_never_answers_times_out() {
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
        assert!(text.contains("did not respond"), "{text}");
        drop(held);
    }

    #[test]
    fn value_inside_error_is_not_shown() {
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

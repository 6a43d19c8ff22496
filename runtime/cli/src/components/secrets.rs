//! Values of secrets, read from the places the configuration names.
//!
//! Values are passed only to the host side of the sandbox. A missing value is an error only for a tool bound to it.

use toolcell_core::Secrets;
use toolcell_fs::{FileError, Rules};

use crate::components::keyring::{self, Keyring};
use crate::config::Settings;
use crate::config::file::SecretTable;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::terminal::text;

/// Maximum size of a file that holds a secret, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Reads all available values except those in the keyring.
///
/// # Errors
/// Returns an error if a file cannot be read, or a value is too short or contains characters that a secret cannot
/// contain. The error does not contain the value.
pub(crate) fn read(settings: &Settings, environment: &Environment) -> Result<Secrets, Failure> {
    let mut secrets = Secrets::default();
    for (name, table) in &settings.secrets {
        let fail = || Failure::new(Exit::Config, text!("the secret `{}` cannot be used", name));
        let value = match &table.value {
            SecretTable {
                env: Some(variable),
                file: None,
                keyring: None,
            } => environment.var(variable).map(str::to_owned),
            SecretTable {
                env: None,
                file: Some(file),
                keyring: None,
            } => Some(read_file(file, environment).map_err(|e| fail().because(e))?),
            SecretTable {
                env: None,
                file: None,
                keyring: Some(_),
            } => None,
            _ => {
                return Err(fail()
                    .why("it needs exactly one source")
                    .hint("set one of `env`, `file` and `keyring`"));
            }
        };
        if let Some(value) = value {
            secrets
                .insert(name.as_str(), value.trim())
                .map_err(|e| fail().because(e))?;
        }
    }
    Ok(secrets)
}

/// Adds the keyring values of the secrets with these names. Only their accounts are read; without any, the keyring is not opened.
///
/// # Errors
/// Returns an error if the keyring cannot be used, has no such account, or a value is not valid as a secret. The error
/// does not contain the value.
pub(crate) fn with_keyring<'a>(
    secrets: &Secrets,
    settings: &Settings,
    names: impl IntoIterator<Item = &'a str>,
    keyring: &Keyring,
) -> Result<Secrets, Failure> {
    let mut secrets = secrets.clone();
    for name in names {
        let table = settings.secrets.get(name);
        let Some(account) = table.and_then(|table| table.value.keyring.as_ref()) else {
            continue;
        };
        let place = || format!("the configuration places the secret `{name}` there");
        let value = keyring
            .get(account)
            .map_err(|failure| failure.why(place()))?
            .ok_or_else(|| {
                keyring::no_entry(Exit::Config, account).why(place()).hint(text!(
                    "to store the value: toolcell secret set {}",
                    escape::shell(account)
                ))
            })?;
        secrets.insert(name, value.trim()).map_err(|e| {
            Failure::new(Exit::Config, text!("the secret `{}` cannot be used", name)).because(e)
        })?;
    }
    Ok(secrets)
}

fn read_file(written: &str, environment: &Environment) -> Result<String, FileError> {
    let path = environment.path(written, &environment.cwd);
    toolcell_fs::read_text(&path, &Rules::named(MAX_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};

    const VALUE: &str = "planted-secret-value";

    fn settings(dir: &std::path::Path, toml: &str) -> (Settings, Environment) {
        let path = dir.join("config.toml");
        std::fs::write(&path, toml).unwrap();
        let environment = Environment::for_tests(dir, &[("MY_TOKEN", "from-the-variable")]);
        let overrides = Overrides {
            config: Some(path),
            ..Overrides::default()
        };
        (config::load(&environment, overrides).unwrap(), environment)
    }

    const BOTH: &str = "[secrets.a]\nkeyring = \"token\"\n[secrets.b]\nenv = \"MY_TOKEN\"\n";

    #[test]
    fn keyring_secret_is_read_for_bound_tool() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, environment) = settings(dir.path(), BOTH);
        let secrets = read(&settings, &environment).unwrap();
        assert!(secrets.get("a").is_none());
        let keyring = Keyring::in_memory();
        let failure = with_keyring(&secrets, &settings, ["a"], &keyring).unwrap_err();
        assert_eq!(failure.exit, Exit::Config);
        assert!(format!("{failure:?}").contains("toolcell secret set token"));
        keyring.set("token", format!(" {VALUE}\n")).unwrap();
        let all = with_keyring(&secrets, &settings, ["a", "b"], &keyring).unwrap();
        assert_eq!(all.get("a").unwrap().expose(), VALUE);
        assert_eq!(all.get("b").unwrap().expose(), "from-the-variable");
    }

    #[test]
    fn unbound_tool_runs_without_keyring() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, environment) = settings(dir.path(), BOTH);
        let secrets = read(&settings, &environment).unwrap();
        let closed = Keyring::closed();
        for names in [vec![], vec!["b"]] {
            let same = with_keyring(&secrets, &settings, names, &closed).unwrap();
            assert_eq!(same, secrets);
        }
        assert!(with_keyring(&secrets, &settings, ["a"], &closed).is_err());
    }

    #[test]
    fn secret_has_exactly_one_source() {
        let dir = tempfile::tempdir().unwrap();
        for table in [
            "",
            "env = \"A\"\nkeyring = \"b\"",
            "file = \"a\"\nkeyring = \"b\"",
        ] {
            let (settings, environment) = settings(dir.path(), &format!("[secrets.a]\n{table}\n"));
            let failure = read(&settings, &environment).unwrap_err();
            assert!(failure.to_string().contains("exactly one source"), "{failure}");
        }
    }

    #[test]
    fn secret_of_a_file_is_its_content_without_line_end() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("key"), format!("{VALUE}\n")).unwrap();
        let (settings, environment) = settings(dir.path(), "[secrets.a]\nfile = \"key\"\n");
        let secrets = read(&settings, &environment).unwrap();
        assert_eq!(secrets.get("a").unwrap().expose(), VALUE);
        std::fs::remove_file(dir.path().join("key")).unwrap();
        assert!(read(&settings, &environment).is_err());
    }
}

//! The values of secrets, from where configuration says that they are.
//!
//! They go from here to the host's side of the sandbox and nowhere else. A value that is missing is an error only for the
//! tool that is bound to it.

use toolcell_core::Secrets;

use crate::config::Settings;
use crate::config::file::SecretTable;
use crate::environment::Environment;
use crate::report::{Exit, Failure};

/// Largest file that holds a secret, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Reads all values that are there.
///
/// # Errors
/// When a file cannot be read, or a value is too short or has characters that no secret has. The value is not shown.
pub(crate) fn read(settings: &Settings, environment: &Environment) -> Result<Secrets, Failure> {
    let mut secrets = Secrets::default();
    for (name, table) in &settings.secrets {
        let fail = || Failure::new(Exit::Config, format!("the secret `{name}` cannot be used"));
        let value = match table {
            SecretTable {
                env: Some(variable),
                file: None,
            } => environment.var(variable).map(str::to_owned),
            SecretTable {
                env: None,
                file: Some(file),
            } => Some(read_file(file, environment).map_err(|e| fail().because(e))?),
            _ => {
                return Err(fail()
                    .why("it has not one place")
                    .hint("give either `env` or `file`"));
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

fn read_file(written: &str, environment: &Environment) -> std::io::Result<String> {
    let path = environment.path(written, &environment.cwd);
    let metadata = std::fs::metadata(&path)?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(std::io::Error::other(format!(
            "`{}` is no file of at most {} KiB",
            path.display(),
            MAX_BYTES >> 10
        )));
    }
    std::fs::read_to_string(path)
}

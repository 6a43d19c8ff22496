//! Credentials of registries, from the file of docker (`~/.docker/config.json`, `auths`).

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Deserialize;
use toolcell_fs::Rules;

use crate::environment::Environment;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Credentials by registry: the value of the header `authorization`, without its scheme.
#[derive(Default)]
pub(crate) struct Credentials(BTreeMap<String, String>);

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
}

#[derive(Deserialize)]
struct Auth {
    /// User and password, as in the header.
    auth: Option<String>,
}

impl Credentials {
    /// Reads the file of the user: below `$DOCKER_CONFIG`, or `~/.docker`. Without one there are none.
    ///
    /// # Errors
    /// Returns an error if it cannot be used.
    pub(crate) fn read(environment: &Environment) -> anyhow::Result<Self> {
        let directory = match environment.var("DOCKER_CONFIG") {
            Some(directory) => environment.path(directory, &environment.cwd),
            None => environment.path("~/.docker", &environment.cwd),
        };
        let file = directory.join("config.json");
        let what = || format!("the credentials in `{}` cannot be used", environment.shown(&file));
        let bytes = match toolcell_fs::read(&file, &Rules::own(MAX_BYTES)) {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(what),
        };
        // The error of the parser could repeat a part of the file.
        let file: File = serde_json::from_slice(&bytes)
            .map_err(|error| anyhow::anyhow!("line {} is not as expected", error.line()))
            .with_context(what)?;
        let usable = file.auths.into_iter().filter_map(|(name, auth)| {
            let name = name.trim_start_matches("https://");
            let host = name.split('/').next().unwrap_or(name);
            Some((host.to_owned(), auth.auth.filter(|auth| !auth.is_empty())?))
        });
        Ok(Self(usable.collect()))
    }

    /// Value of the header `authorization` for a registry.
    pub(crate) fn basic(&self, registry: &str) -> Option<String> {
        let names: &[&str] = match registry {
            "docker.io" | "index.docker.io" => &["index.docker.io", "docker.io"],
            other => &[other],
        };
        let found = names.iter().find_map(|name| self.0.get(*name));
        found.map(|auth| format!("Basic {auth}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_belong_to_one_registry() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[("DOCKER_CONFIG", "docker")]);
        assert_eq!(Credentials::read(&environment).unwrap().basic("ghcr.io"), None);
        std::fs::create_dir(dir.path().join("docker")).unwrap();
        let file = dir.path().join("docker/config.json");
        let text = r#"{"auths": {"ghcr.io": {"auth": "bWU6eA=="}, "https://index.docker.io/v1/": {"auth": "eQ=="}, "empty": {}}}"#;
        std::fs::write(&file, text).unwrap();
        let credentials = Credentials::read(&environment).unwrap();
        assert_eq!(credentials.basic("ghcr.io").unwrap(), "Basic bWU6eA==");
        assert_eq!(credentials.basic("docker.io").unwrap(), "Basic eQ==");
        for other in ["ghcr.io.example.com", "empty", "GHCR.IO"] {
            assert_eq!(credentials.basic(other), None, "{other}");
        }
        std::fs::write(&file, r#"{"auths": {"ghcr.io": {"auth": s3cret}}}"#).unwrap();
        let error = format!("{:#}", Credentials::read(&environment).err().unwrap());
        assert!(error.contains("line 1") && !error.contains("s3cret"), "{error}");
    }
}

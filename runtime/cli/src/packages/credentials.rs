//! Credentials of registries, from the file of docker (`~/.docker/config.json`): `auths`, and the programs that `credHelpers` and
//! `credsStore` name, which keep them in a keychain.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use toolcell_fs::Rules;

use crate::environment::Environment;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum size of what a program answers, in bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// Maximum time for a program: a keychain may ask the user for a password.
const HELPER_TIME: Duration = Duration::from_secs(60);

/// Name under which programs keep the credentials of Docker Hub.
const HUB: &str = "https://index.docker.io/v1/";

/// Credentials by registry.
#[derive(Default)]
pub(crate) struct Credentials {
    /// Values of the header `authorization`, without their scheme.
    auths: BTreeMap<String, String>,
    /// Programs by registry, without `docker-credential-`.
    helpers: BTreeMap<String, String>,
    /// Program for all other registries.
    store: Option<String>,
    /// Directories in which programs are searched.
    path: Option<OsString>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    #[serde(default)]
    creds_store: Option<String>,
}

/// Answer of a program.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Stored {
    username: String,
    secret: String,
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
        Ok(Self {
            auths: usable.collect(),
            helpers: file.cred_helpers,
            store: file.creds_store.filter(|store| !store.is_empty()),
            path: environment.var("PATH").map(Into::into),
        })
    }

    /// Value of the header `authorization` for a registry; `None` if there is none. A program is asked before the file, as docker does.
    ///
    /// # Errors
    /// Returns an error if the program for the registry fails.
    pub(crate) async fn basic(&self, registry: &str) -> anyhow::Result<Option<String>> {
        let (names, server): (&[&str], _) = match registry {
            "docker.io" | "index.docker.io" => (&["index.docker.io", "docker.io"], HUB),
            other => (&[other], other),
        };
        let mut helpers = names
            .iter()
            .chain([&server])
            .filter_map(|name| self.helpers.get(*name));
        if let Some(helper) = helpers.next().or(self.store.as_ref())
            && let Some(auth) = self.ask(helper, server).await?
        {
            return Ok(Some(format!("Basic {auth}")));
        }
        let found = names.iter().find_map(|name| self.auths.get(*name));
        Ok(found.map(|auth| format!("Basic {auth}")))
    }

    /// Asks a program for the credentials of a registry; `None` if it has none. What it says otherwise is not shown: it could be a
    /// secret.
    async fn ask(&self, helper: &str, server: &str) -> anyhow::Result<Option<String>> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            !helper.is_empty() && helper.chars().all(is_part),
            "the credential helper `{}` has no name of letters, digits, `-`, `_` and `.`",
            helper.escape_debug()
        );
        let program = format!("docker-credential-{helper}");
        let failed = || format!("the credential helper `{program}` cannot be used");
        let mut command = Command::new(&program);
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        let mut child = command
            .arg("get")
            // Not that of a project.
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let asked = async {
            if let Some(mut stdin) = stdin {
                // One that does not read says so by its status.
                let _ = stdin.write_all(format!("{server}\n").as_bytes()).await;
            }
            let mut answer = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(MAX_ANSWER + 1).read_to_end(&mut answer).await?;
            }
            anyhow::Ok((child.wait().await?, answer))
        };
        let asked = tokio::time::timeout(HELPER_TIME, asked).await;
        let (status, answer) = asked
            .map_err(|_| anyhow::anyhow!("it has not answered within {} s", HELPER_TIME.as_secs()))
            .flatten()
            .with_context(failed)?;
        if !status.success() {
            let says_none = String::from_utf8_lossy(&answer).contains("credentials not found");
            ensure!(says_none, "{}: it failed", failed());
            return Ok(None);
        }
        let stored: Option<Stored> = serde_json::from_slice(&answer).ok();
        let Some(stored) = stored else {
            bail!("{}: its answer is not as expected", failed());
        };
        ensure!(
            stored.username != "<token>",
            "{}: it has an identity token, and no user and password",
            failed()
        );
        Ok(Some(
            STANDARD.encode(format!("{}:{}", stored.username, stored.secret)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn basic(environment: &Environment, registry: &str) -> Option<String> {
        Credentials::read(environment)
            .unwrap()
            .basic(registry)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn credentials_belong_to_one_registry() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[("DOCKER_CONFIG", "docker")]);
        assert_eq!(basic(&environment, "ghcr.io").await, None);
        std::fs::create_dir(dir.path().join("docker")).unwrap();
        let file = dir.path().join("docker/config.json");
        let text = r#"{"auths": {"ghcr.io": {"auth": "bWU6eA=="}, "https://index.docker.io/v1/": {"auth": "eQ=="}, "empty": {}}}"#;
        std::fs::write(&file, text).unwrap();
        assert_eq!(basic(&environment, "ghcr.io").await.unwrap(), "Basic bWU6eA==");
        assert_eq!(basic(&environment, "docker.io").await.unwrap(), "Basic eQ==");
        for other in ["ghcr.io.example.com", "empty", "GHCR.IO"] {
            assert_eq!(basic(&environment, other).await, None, "{other}");
        }
        std::fs::write(&file, r#"{"auths": {"ghcr.io": {"auth": s3cret}}}"#).unwrap();
        let error = format!("{:#}", Credentials::read(&environment).err().unwrap());
        assert!(error.contains("line 1") && !error.contains("s3cret"), "{error}");
    }

    #[tokio::test]
    async fn credential_helpers_are_asked_before_the_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let program = |name: &str, script: &str| {
            let path = dir.path().join(format!("docker-credential-{name}"));
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        program(
            "keys",
            r#"read server; test "$1" = get && printf '{"ServerURL": "%s", "Username": "%s", "Secret": "x"}' "$server" "$server""#,
        );
        program("none", "echo credentials not found in native keychain; exit 1");
        program("broken", "echo s3cret; exit 1");
        program("odd", "echo s3cret");
        program("token", r#"echo '{"Username": "<token>", "Secret": "s3cret"}'"#);
        program("flood", "cat /dev/zero");
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let environment = Environment::for_tests(dir.path(), &[("DOCKER_CONFIG", "docker"), ("PATH", &path)]);
        std::fs::create_dir(dir.path().join("docker")).unwrap();
        let text = r#"{"credsStore": "keys", "auths": {"none.test": {"auth": "eQ=="}, "ghcr.io": {}},
            "credHelpers": {"none.test": "none", "broken.test": "broken", "odd.test": "odd", "token.test": "token", "flood.test": "flood",
            "gone.test": "gone", "up.test": "../x"}}"#;
        std::fs::write(dir.path().join("docker/config.json"), text).unwrap();
        let user = |name: &str| Some(format!("Basic {}", STANDARD.encode(format!("{name}:x"))));
        assert_eq!(basic(&environment, "ghcr.io").await, user("ghcr.io"));
        assert_eq!(basic(&environment, "docker.io").await, user(HUB));
        assert_eq!(basic(&environment, "none.test").await.unwrap(), "Basic eQ==");
        for (registry, said) in [
            ("broken.test", "it failed"),
            ("odd.test", "not as expected"),
            ("flood.test", "cannot be used"),
            ("token.test", "an identity token"),
            ("gone.test", "cannot be used"),
            ("up.test", "has no name of letters"),
        ] {
            let credentials = Credentials::read(&environment).unwrap();
            let error = format!("{:#}", credentials.basic(registry).await.unwrap_err());
            assert!(
                error.contains(said) && !error.contains("s3cret"),
                "{registry}: {error}"
            );
        }
    }
}

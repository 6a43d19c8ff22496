//! Components of packages by their digests, and the list of packages, below the data directory.
//!
//! A component is complete or absent: it is written beside its place and renamed. The list is replaced as a whole, under a
//! lock that all processes of the user share. A process that is killed leaves at most a component that no package uses or
//! files that it had not finished, which the next change removes.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolcell_sandbox::Digest;

use crate::components::sandbox::MAX_COMPONENT_BYTES;
use crate::config::user_files::{read_list, user_file, write_list};
use crate::environment::Environment;
use crate::packages::Fetched;
use crate::packages::keys::NamedKey;
use crate::packages::publisher::Publisher;

/// Directory of the packages, in the data directory.
const DIRECTORY: &str = "packages";

/// The list of packages.
const LIST: &str = "packages.json";

/// Directory of the components, in that of the packages.
const COMPONENTS: &str = "sha256";

/// A package that the user added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Package {
    /// Name in the configuration.
    pub(crate) name: String,
    /// Reference from which it came.
    pub(crate) origin: String,
    /// Digest of its component.
    pub(crate) digest: Digest,
    /// Publisher that must have signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) publisher: Option<Publisher>,
    /// Configuration file that names it; `None` in lists of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<PathBuf>,
    /// True if the host of the reference can have a private address.
    #[serde(default)]
    pub(crate) private: bool,
}

impl Package {
    /// Converts the origin and the publisher to JSON, with the names that the publisher has among these keys.
    pub(crate) fn to_json(&self, keys: &[NamedKey]) -> Value {
        let mut json = json!({ "origin": self.origin, "publisher": self.publisher });
        if let Some(publisher) = &self.publisher {
            let names = keys.iter().filter(|key| key.publisher == *publisher);
            json["publisher_names"] = names.map(|key| key.name.as_str()).collect();
        }
        json
    }
}

/// The list of packages cannot be read any more.
#[derive(Debug)]
pub(crate) struct DamagedList {
    /// Its file.
    pub(crate) file: PathBuf,
    source: io::Error,
}

impl fmt::Display for DamagedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the list of packages cannot be read")
    }
}

impl Error for DamagedList {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// The packages of the user, locked for other processes until it is dropped.
pub(crate) struct PackageStore {
    directory: PathBuf,
    /// Configuration file of the user.
    configuration: Option<PathBuf>,
    _lock: File,
}

impl PackageStore {
    /// Opens the store; `None` while another process has it.
    ///
    /// # Errors
    /// Returns an error if there is no home directory or the store cannot be used.
    pub(crate) fn try_open(environment: &Environment) -> anyhow::Result<Option<Self>> {
        let directory = directory(environment).context("there is no home directory for packages")?;
        toolcell_fs::private_dir(&directory.join(COMPONENTS))?;
        let directory = toolcell_fs::private_dir(&directory)?;
        let lock = File::open(&directory)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self {
                directory,
                configuration: user_file(environment),
                _lock: lock,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// Returns the packages by name.
    ///
    /// # Errors
    /// Returns an error if the list is damaged.
    pub(crate) fn packages(&self) -> anyhow::Result<Vec<Package>> {
        Ok(read(self.directory.join(LIST))?)
    }

    /// Returns the package of a name.
    ///
    /// # Errors
    /// As [`PackageStore::packages`].
    pub(crate) fn package(&self, name: &str) -> anyhow::Result<Option<Package>> {
        let mut packages = self.packages()?.into_iter();
        Ok(packages.find(|package| package.name == name))
    }

    /// Path of a component, existing or not.
    pub(crate) fn path(&self, digest: Digest) -> PathBuf {
        component(&self.directory, digest)
    }

    /// True if a path is one of the components, existing or not.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        path.parent() == Some(&self.directory.join(COMPONENTS)) && is_component(path)
    }

    /// Stores a component, and returns its path.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(crate) fn write(&self, fetched: &Fetched) -> anyhow::Result<PathBuf> {
        let path = self.path(fetched.digest);
        toolcell_fs::replace(&path, &fetched.bytes, toolcell_fs::PRIVATE)?;
        Ok(path)
    }

    /// True if a component is there, and has its digest.
    pub(crate) fn has(&self, digest: Digest) -> bool {
        let read = toolcell_fs::read(&self.path(digest), &toolcell_fs::Rules::own(MAX_COMPONENT_BYTES));
        read.is_ok_and(|bytes| Digest::of(&bytes) == digest)
    }

    /// Adds a package, in place of one of the same name.
    ///
    /// # Errors
    /// Returns an error if the list cannot be written.
    pub(crate) fn set(&self, package: Package) -> anyhow::Result<()> {
        let mut packages = self.packages()?;
        packages.retain(|other| other.name != package.name);
        packages.push(package);
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(write_list(&self.directory.join(LIST), &packages)?)
    }

    /// Removes a package from the list.
    ///
    /// # Errors
    /// Returns an error if the list cannot be written.
    pub(crate) fn remove(&self, name: &str) -> anyhow::Result<()> {
        let mut packages = self.packages()?;
        packages.retain(|package| package.name != name);
        Ok(write_list(&self.directory.join(LIST), &packages)?)
    }

    /// Removes components that no package and no configuration of the user uses, and files that a killed process has not finished: a process that writes one holds
    /// the lock.
    ///
    /// # Errors
    /// Returns an error if the list is damaged or a configuration cannot be read: then nothing is removed.
    pub(crate) fn collect_garbage(&self) -> anyhow::Result<()> {
        let packages = self.packages()?;
        let used: BTreeSet<PathBuf> = packages.iter().map(|package| self.path(package.digest)).collect();
        // A list that was moved away, as a damaged one is, leaves components that are configured.
        let named = packages.iter().filter_map(|package| package.config.as_ref());
        let mut configured = String::new();
        for file in named.chain(&self.configuration).collect::<BTreeSet<_>>() {
            match std::fs::read(file) {
                Ok(text) => configured.push_str(&String::from_utf8_lossy(&text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        let is_used = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            used.contains(path) || name.is_some_and(|name| configured.contains(name))
        };
        let components = self.directory.join(COMPONENTS);
        for directory in [&components, &self.directory] {
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                let path = entry.path();
                let is_orphan = directory == &components && is_component(&path) && !is_used(&path);
                if is_orphan || toolcell_fs::is_unfinished(&entry.file_name()) {
                    std::fs::remove_file(&path)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the digest that a component at this path must have, if the path is one of the store.
pub(crate) fn digest_at(path: &Path, environment: &Environment) -> Option<Digest> {
    let hex = path.file_stem()?.to_str().filter(|_| is_component(path))?;
    let components = directory(environment)?.join(COMPONENTS);
    if path.parent()?.canonicalize().ok()? != components.canonicalize().ok()? {
        return None;
    }
    Digest::try_from(format!("sha256:{hex}")).ok()
}

fn directory(environment: &Environment) -> Option<PathBuf> {
    environment.data_dir.as_ref().map(|data| data.join(DIRECTORY))
}

/// True for the name of a file that [`PackageStore::write`] makes.
fn is_component(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let digits = name.and_then(|name| name.strip_suffix(".wasm"));
    digits.is_some_and(|digits| digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn component(directory: &Path, digest: Digest) -> PathBuf {
    directory.join(COMPONENTS).join(format!("{}.wasm", digest.hex()))
}

/// Returns the packages of the user. The list is replaced as a whole, so that reading it needs no lock.
///
/// # Errors
/// Returns an error if the list is damaged.
pub(crate) fn packages(environment: &Environment) -> anyhow::Result<Vec<Package>> {
    let directory = directory(environment).context("there is no home directory for packages")?;
    Ok(read(directory.join(LIST))?)
}

fn read(file: PathBuf) -> Result<Vec<Package>, DamagedList> {
    read_list(&file).map_err(|source| DamagedList { file, source })
}

/// Returns the package of a configured component, if it is one, as it was added.
pub(crate) fn package_at(name: &str, path: &Path, environment: &Environment) -> Option<Package> {
    let digest = digest_at(path, environment)?;
    let mut packages = packages(environment).ok()?.into_iter();
    packages.find(|package| package.name == name && package.digest == digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, bytes: &[u8]) -> Package {
        Package {
            name: name.into(),
            origin: "x".into(),
            digest: Digest::of(bytes),
            publisher: None,
            config: None,
            private: false,
        }
    }

    fn fetched(bytes: &[u8]) -> Fetched {
        Fetched {
            bytes: bytes.to_vec(),
            digest: Digest::of(bytes),
        }
    }

    #[test]
    fn component_is_kept_while_a_package_uses_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        assert!(PackageStore::try_open(&environment).is_err());
        environment.data_dir = Some(dir.path().join("data"));
        let store = PackageStore::try_open(&environment).unwrap().unwrap();
        let shared = store.write(&fetched(b"shared")).unwrap();
        let orphan = store.write(&fetched(b"orphan")).unwrap();
        assert!(store.contains(&shared) && !store.contains(&dir.path().join(shared.file_name().unwrap())));
        for name in ["b", "a"] {
            store.set(package(name, b"shared")).unwrap();
        }
        store.set(package("a", b"shared")).unwrap();
        let names = || -> Vec<String> {
            store
                .packages()
                .unwrap()
                .into_iter()
                .map(|one| one.name)
                .collect()
        };
        assert_eq!(names(), ["a", "b"]);
        let other = shared.with_file_name("mine.txt");
        std::fs::write(&other, "not of Toolcell").unwrap();
        let list = dir.path().join("data/packages/packages.json");
        let unfinished = [&shared, &list].map(|file| file.with_file_name(".toolcell-new-Ab1"));
        for file in &unfinished {
            std::fs::write(file, "half").unwrap();
        }
        store.collect_garbage().unwrap();
        assert!(shared.exists() && other.exists() && list.exists() && !orphan.exists());
        assert!(!unfinished.iter().any(|file| file.exists()));
        store.remove("a").unwrap();
        store.collect_garbage().unwrap();
        assert!(shared.exists());
        store.remove("b").unwrap();
        store.collect_garbage().unwrap();
        assert!(!shared.exists());
    }

    #[test]
    fn one_process_has_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.data_dir = Some(dir.path().to_owned());
        let store = PackageStore::try_open(&environment).unwrap();
        assert!(store.is_some() && PackageStore::try_open(&environment).unwrap().is_none());
        drop(store);
        assert!(PackageStore::try_open(&environment).unwrap().is_some());
    }

    #[test]
    fn damaged_list_removes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.data_dir = Some(dir.path().to_owned());
        let store = PackageStore::try_open(&environment).unwrap().unwrap();
        let path = store.write(&fetched(b"x")).unwrap();
        std::fs::write(dir.path().join("packages/packages.json"), "[{").unwrap();
        assert!(store.collect_garbage().is_err() && store.set(package("a", b"x")).is_err());
        assert!(path.exists());
    }
}

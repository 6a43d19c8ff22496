//! On-disk cache of compiled code and definitions, so that later starts neither compile nor read definitions.
//!
//! Loading compiled code means running it, so only code written by this user is loaded: the directory belongs to the
//! user alone, and each entry ends in a keyed BLAKE3 hash of its name and content, with a random key stored beside it.
//! An invalid entry counts as absent and is written anew.
//!
//! An entry is written to a temporary file and renamed, never modified in place: a mapped file never changes.

use std::fs::{self, DirBuilder, File, Metadata};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use wasmtime::Engine;

use crate::component::Digest;
use crate::error::CacheError;
use crate::hook::HookManifest;
use crate::load::compile::{self, Artefact};
use crate::load::definitions::Stored;

/// Changes when the format of entries changes.
const FORMAT: &str = "toolcell cache 1";

/// Name prefix of unfinished files.
const TEMPORARY: &str = ".toolcell-new-";

/// Name of the key file.
const KEY_FILE: &str = "key";

/// Size of the hash at the end of an entry, in bytes.
const MAC: usize = blake3::OUT_LEN;

/// Maximum total size of all entries, in bytes. About a dozen components of language runtimes fit; the least recently
/// used entries are removed first.
const MAX_BYTES: u64 = 2 << 30;

/// Age after which a temporary file is considered abandoned by a dead process.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Bytes that are read and hashed at a time. BLAKE3 reaches its speed with pieces of 128 KiB and more.
const PIECE: usize = 256 << 10;

/// Maximum size of a definitions entry, in bytes; the limits of definitions are lower.
const MAX_DEFINITIONS: u64 = 16 << 20;

/// A directory of compiled code.
pub(crate) struct Cache {
    dir: PathBuf,
    key: [u8; blake3::KEY_LEN],
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Code,
    Definitions,
    Hook,
}

/// Name of the entries of one component under one engine.
#[derive(Debug, Clone)]
pub(crate) struct EntryName(String);

impl EntryName {
    pub(crate) fn new(engine: &Engine, component: Digest) -> Self {
        let mut hasher = EngineHasher(blake3::Hasher::new());
        FORMAT.hash(&mut hasher);
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let engine = hasher.0.finalize().to_hex();
        Self(format!("{}-{}", component.hex(), &engine[..32]))
    }

    fn file(&self, kind: Kind) -> String {
        match kind {
            Kind::Code => format!("{}.code", self.0),
            Kind::Definitions => format!("{}.tools", self.0),
            Kind::Hook => format!("{}.hook", self.0),
        }
    }
}

impl Cache {
    /// Opens the directory and creates it if missing.
    pub(crate) fn open(dir: &Path) -> Result<Self, CacheError> {
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |source| CacheError::Io { path, source }
        };
        if let Some(parent) = dir.parent() {
            fs::create_dir_all(parent).map_err(io_error(parent))?;
        }
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_error(dir)(error)),
            _ => {}
        }
        let metadata = fs::symlink_metadata(dir).map_err(io_error(dir))?;
        let untrusted = |path: &Path, reason| CacheError::Untrusted {
            path: path.to_owned(),
            reason,
        };
        if !metadata.is_dir() {
            return Err(untrusted(dir, "it is a link or a file, not a directory"));
        }
        check_private(&metadata).map_err(|reason| untrusted(dir, reason))?;

        let key_path = dir.join(KEY_FILE);
        let key = match read_key(&key_path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_key(dir, &key_path).and_then(|()| read_key(&key_path))
            }
            other => other,
        };
        let key = key
            .map_err(io_error(&key_path))?
            .map_err(|reason| untrusted(&key_path, reason))?;
        Ok(Self {
            dir: dir.to_owned(),
            key,
        })
    }

    /// Returns the compiled code of a component, mapped from disk.
    pub(crate) fn code(&self, engine: &Engine, name: &EntryName) -> Option<wasmtime::component::Component> {
        let (file, _) = self.verified(name, Kind::Code)?;
        match compile::adopt(engine, Artefact::Verified(&file)) {
            Ok(component) => {
                // So that `prune` sees the last use. If this fails, the entry is removed earlier.
                let _ = file.set_modified(SystemTime::now());
                Some(component)
            }
            Err(error) => {
                tracing::debug!("an entry of the cache is unusable: {error}");
                None
            }
        }
    }

    /// Returns the definitions of a component.
    pub(crate) fn definitions(&self, name: &EntryName) -> Option<Vec<Stored>> {
        self.read(name, Kind::Definitions)
    }

    /// Returns the manifest of a hook.
    pub(crate) fn hook(&self, name: &EntryName) -> Option<HookManifest> {
        self.read(name, Kind::Hook)
    }

    fn read<T: DeserializeOwned>(&self, name: &EntryName, kind: Kind) -> Option<T> {
        let (mut file, len) = self.verified(name, kind)?;
        if len > MAX_DEFINITIONS {
            return None;
        }
        let mut content = Vec::new();
        io::Seek::rewind(&mut file).ok()?;
        file.take(len).read_to_end(&mut content).ok()?;
        serde_json::from_slice(&content).ok()
    }

    /// Stores compiled code. A failure only costs time later.
    pub(crate) fn keep_code(&self, name: &EntryName, code: &[u8]) {
        self.keep(name, Kind::Code, code);
        if let Err(error) = prune(&self.dir, MAX_BYTES) {
            tracing::warn!("could not prune the cache: {error}");
        }
    }

    /// Stores definitions.
    pub(crate) fn keep_definitions(&self, name: &EntryName, definitions: &[Stored]) {
        let text = serde_json::to_vec(definitions).expect("definitions are plain data");
        self.keep(name, Kind::Definitions, &text);
    }

    /// Stores the manifest of a hook.
    pub(crate) fn keep_hook(&self, name: &EntryName, claims: &HookManifest) {
        let text = serde_json::to_vec(claims).expect("manifests are plain data");
        self.keep(name, Kind::Hook, &text);
    }

    /// Opens an entry and verifies every byte of it; returns the file and the length of its content. Later reads and
    /// mappings use this open file, whatever its name refers to by then.
    fn verified(&self, name: &EntryName, kind: Kind) -> Option<(File, u64)> {
        let file = name.file(kind);
        let checked = self.check(&self.dir.join(&file), &file);
        match checked {
            Ok(entry) => Some(entry),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!("ignoring the entry `{file}` of the cache: {error}");
                None
            }
        }
    }

    fn check(&self, path: &Path, name: &str) -> io::Result<(File, u64)> {
        let mut file = open_private(path)?;
        let len = file.metadata()?.len();
        let content = len
            .checked_sub(MAC as u64)
            .ok_or_else(|| io::Error::other("it is truncated"))?;
        let mut hasher = self.hasher(name, content);
        let mut piece = vec![0; PIECE];
        let mut left = content;
        while left > 0 {
            let most = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
            file.read_exact(&mut piece[..most])?;
            hasher.update(&piece[..most]);
            left -= most as u64;
        }
        let mut mac = [0; MAC];
        file.read_exact(&mut mac)?;
        // Constant-time comparison.
        if hasher.finalize() == blake3::Hash::from(mac) {
            Ok((file, content))
        } else {
            Err(io::Error::other("it was not written with the key of this cache"))
        }
    }

    fn hasher(&self, name: &str, len: u64) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(FORMAT.as_bytes());
        hasher.update(&[0]);
        hasher.update(name.as_bytes());
        hasher.update(&[0]);
        hasher.update(&len.to_le_bytes());
        hasher
    }

    fn keep(&self, name: &EntryName, kind: Kind, content: &[u8]) {
        let file = name.file(kind);
        let write = || -> io::Result<()> {
            let mut temporary = tempfile::Builder::new()
                .prefix(TEMPORARY)
                .tempfile_in(&self.dir)?;
            let mut hasher = self.hasher(&file, content.len() as u64);
            hasher.update(content);
            temporary.write_all(content)?;
            temporary.write_all(hasher.finalize().as_bytes())?;
            temporary.persist(self.dir.join(&file))?;
            Ok(())
        };
        if let Err(error) = write() {
            tracing::warn!("could not write the entry `{file}` of the cache: {error}");
        }
    }
}

/// Removes abandoned files, and the least recently used entries until the total size is at most `most`. Other files are
/// kept. A mapped file remains usable without its name.
fn prune(dir: &Path, most: u64) -> io::Result<()> {
    let now = SystemTime::now();
    let mut entries = Vec::new();
    for file in fs::read_dir(dir)? {
        let file = file?;
        let path = file.path();
        // Of the entry itself, and not of the target of a link.
        let Ok(metadata) = file.metadata() else { continue };
        if !metadata.is_file() || check_private(&metadata).is_err() {
            continue;
        }
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        if is_entry(&path) {
            entries.push((used, metadata.len(), path));
        } else if file
            .file_name()
            .as_encoded_bytes()
            .starts_with(TEMPORARY.as_bytes())
            && now.duration_since(used).is_ok_and(|age| age > ABANDONED_AFTER)
        {
            fs::remove_file(path)?;
        }
    }
    entries.sort_unstable();
    let mut sum: u64 = entries.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in entries {
        if sum <= most {
            break;
        }
        // Another process may have removed it first.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => sum -= size,
        }
    }
    Ok(())
}

/// Returns `true` if a file has the name of an entry, as created by [`EntryName`]. A cache may share a directory with
/// other files.
fn is_entry(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str());
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let Some((component, engine)) = stem.and_then(|stem| stem.split_once('-')) else {
        return false;
    };
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    matches!(extension, Some("code" | "tools" | "hook")) && is_hex(component, 64) && is_hex(engine, 32)
}

/// Opens a file without following a link at its end, and fails if another user could have written it.
fn open_private(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    check_private(&metadata).map_err(io::Error::other)?;
    Ok(file)
}

fn check_private(metadata: &Metadata) -> Result<(), &'static str> {
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        Err("it belongs to another user")
    } else if metadata.permissions().mode() & 0o022 != 0 {
        Err("it is writable by other users")
    } else {
        Ok(())
    }
}

type Key = [u8; blake3::KEY_LEN];

fn read_key(path: &Path) -> io::Result<Result<Key, &'static str>> {
    let file = match open_private(path) {
        Err(error) if error.kind() == io::ErrorKind::Other => {
            return Ok(Err("the key is writable by other users"));
        }
        other => other?,
    };
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        return Ok(Err("the key is readable by other users"));
    }
    let mut bytes = Vec::new();
    file.take(blake3::KEY_LEN as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Key::try_from(bytes).map_err(|_| "the key has the wrong length"))
}

/// Creates a random key. If two processes do so concurrently, the first one wins and both use its key.
fn create_key(dir: &Path, path: &Path) -> io::Result<()> {
    let mut key: Key = [0; blake3::KEY_LEN];
    getrandom::fill(&mut key).map_err(|e| io::Error::other(e.to_string()))?;
    let mut temporary = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(dir)?;
    temporary.write_all(&key)?;
    temporary.as_file().sync_all()?;
    match temporary.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

/// Passes the engine's description of itself to BLAKE3.
struct EngineHasher(blake3::Hasher);

impl Hasher for EngineHasher {
    fn finish(&self) -> u64 {
        let hash = self.0.finalize();
        let (first, _) = hash.as_bytes().split_at(8);
        u64::from_le_bytes(first.try_into().expect("it has 8 bytes"))
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a file of `size` bytes, last used `age` hours ago.
    fn file(dir: &Path, name: &str, size: usize, age: u64) {
        let file = File::create(dir.join(name)).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        (&file).write_all(&vec![0; size]).unwrap();
        let used = SystemTime::now() - Duration::from_secs(age * 60 * 60);
        file.set_modified(used).unwrap();
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|f| f.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Returns the name of an entry.
    fn entry(letter: char, ending: &str) -> String {
        let hex = |length| letter.to_string().repeat(length);
        format!("{}-{}.{ending}", hex(64), hex(32))
    }

    #[test]
    fn entries_beyond_limit_are_removed_oldest_first() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b, c] = [entry('a', "code"), entry('b', "code"), entry('c', "tools")];
        for (name, age) in [(&a, 3), (&b, 1), (&c, 2)] {
            file(dir.path(), name, 100, age);
        }
        file(dir.path(), "key", 32, 1_000);
        prune(dir.path(), 300).unwrap();
        assert_eq!(names(dir.path()), [&a, &b, &c, "key"]);
        prune(dir.path(), 299).unwrap();
        assert_eq!(names(dir.path()), [&b, &c, "key"]);
        prune(dir.path(), 0).unwrap();
        assert_eq!(names(dir.path()), ["key"]);
    }

    #[test]
    fn abandoned_files_are_removed_after_a_day() {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), ".toolcell-new-1", 1, 25);
        file(dir.path(), ".toolcell-new-2", 1, 23);
        prune(dir.path(), 0).unwrap();
        assert_eq!(names(dir.path()), [".toolcell-new-2"]);
    }

    #[test]
    fn unrelated_files_in_the_cache_directory_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = vec!["notes.code", "a-b.tools", "my.hook", ".new-1", ".new-file"];
        let (short, long) = (
            entry('a', "code").replacen('a', "", 1),
            entry('a', "code") + ".bak",
        );
        let upper = entry('A', "code");
        let link = entry('d', "code");
        all.extend([&*short, &*long, &*upper]);
        for name in &all {
            file(dir.path(), name, 100, 1_000);
        }
        std::os::unix::fs::symlink(dir.path().join("notes.code"), dir.path().join(&link)).unwrap();
        fs::create_dir(dir.path().join(entry('e', "code"))).unwrap();
        let before = names(dir.path());
        prune(dir.path(), 0).unwrap();
        assert_eq!(names(dir.path()), before);
    }
}

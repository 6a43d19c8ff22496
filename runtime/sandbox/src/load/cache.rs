//! On-disk cache of compiled code and definitions, so that later starts neither compile nor read definitions.
//!
//! Loading compiled code means running it, so only code written by this user is loaded: the directory belongs to the
//! user alone, and each entry ends in a keyed BLAKE3 hash of its name, its length and the BLAKE3 hashes of its segments,
//! with a random key stored beside it. An invalid entry counts as absent and is written anew.
//!
//! Facts about a component that are expensive to check (its shape, its definitions) are stored once they were checked,
//! with the version of the rules ([`RULES`]) that they passed. Those of other rules count as absent.
//!
//! An entry is written to a temporary file and renamed, never modified in place: a mapped file never changes.

use std::fs::{self, DirBuilder, File, Metadata};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wasmtime::Engine;

use crate::component::Digest;
use crate::engine::EngineKind;
use crate::error::CacheError;
use crate::hook::HookManifest;
use crate::load::compile::{self, Artefact};
use crate::load::definitions::Stored;
use crate::load::preflight::Shape;
use crate::load::rules::RULES;

/// Changes when the format of entries changes.
const FORMAT: &str = "toolcell cache 3";

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

/// Bytes of a segment, which is read and hashed at once. BLAKE3 reaches its speed with 128 KiB and more.
const SEGMENT: usize = 256 << 10;

/// Segments of an entry for which another thread is started: a thread takes as long to start as a tenth of them.
const SEGMENTS_PER_THREAD: usize = 8;

/// Maximum number of threads that hash an entry; beyond it, memory is the limit.
const MAX_THREADS: usize = 4;

/// Maximum size of an entry of facts, in bytes; the limits of definitions are lower.
const MAX_FACTS: u64 = 16 << 20;

/// A directory of compiled code.
pub(crate) struct Cache {
    dir: PathBuf,
    key: [u8; blake3::KEY_LEN],
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Code,
    Shape,
    Definitions,
    Hook,
}

/// Facts that passed the rules of a version.
#[derive(Serialize, Deserialize)]
struct Checked<T> {
    rules: u64,
    facts: T,
}

/// Name of the entries of one component under one engine.
#[derive(Debug, Clone)]
pub(crate) struct EntryName(String);

impl EntryName {
    /// Returns the name of a component that runs in an engine of this kind. `engine` is the one of most components, whose
    /// version and settings both have.
    pub(crate) fn new(engine: &Engine, kind: EngineKind, component: Digest) -> Self {
        let mut hasher = EngineHasher(blake3::Hasher::new());
        FORMAT.hash(&mut hasher);
        match kind {
            EngineKind::Sequential => 0_u8,
            EngineKind::Concurrent => 1,
        }
        .hash(&mut hasher);
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let engine = hasher.0.finalize().to_hex();
        Self(format!("{}-{}", component.hex(), &engine[..32]))
    }

    fn file(&self, kind: Kind) -> String {
        match kind {
            Kind::Code => format!("{}.code", self.0),
            Kind::Shape => format!("{}.shape", self.0),
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

    /// True if there is an entry with code; whether it can be used is found when it is read.
    pub(crate) fn has_code(&self, name: &EntryName) -> bool {
        self.dir.join(name.file(Kind::Code)).is_file()
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

    /// Returns the shape of a component.
    pub(crate) fn shape(&self, name: &EntryName) -> Option<Shape> {
        self.read(name, Kind::Shape)
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
        let (file, len) = self.verified(name, kind)?;
        let len = usize::try_from(len).ok().filter(|_| len <= MAX_FACTS)?;
        let mut content = vec![0; len];
        file.read_exact_at(&mut content, 0).ok()?;
        let checked: Checked<T> = serde_json::from_slice(&content).ok()?;
        (checked.rules == RULES).then_some(checked.facts)
    }

    /// Stores compiled code. A failure only costs time later.
    pub(crate) fn keep_code(&self, name: &EntryName, code: &[u8]) {
        self.keep(name, Kind::Code, code);
        if let Err(error) = prune(&self.dir, MAX_BYTES) {
            tracing::warn!("could not prune the cache: {error}");
        }
    }

    /// Stores a shape that was checked.
    pub(crate) fn keep_shape(&self, name: &EntryName, shape: &Shape) {
        self.keep_facts(name, Kind::Shape, shape);
    }

    /// Stores definitions that were checked.
    pub(crate) fn keep_definitions(&self, name: &EntryName, definitions: &[Stored]) {
        self.keep_facts(name, Kind::Definitions, definitions);
    }

    /// Stores the manifest of a hook that was checked.
    pub(crate) fn keep_hook(&self, name: &EntryName, claims: &HookManifest) {
        self.keep_facts(name, Kind::Hook, claims);
    }

    fn keep_facts<T: Serialize + ?Sized>(&self, name: &EntryName, kind: Kind, facts: &T) {
        let checked = Checked { rules: RULES, facts };
        let text = serde_json::to_vec(&checked).expect("facts are plain data");
        self.keep(name, kind, &text);
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
        let file = open_private(path)?;
        let len = file.metadata()?.len();
        let content = len
            .checked_sub(MAC as u64)
            .ok_or_else(|| io::Error::other("it is truncated"))?;
        let computed = self.mac(name, content, |segment, at| file.read_exact_at(segment, at))?;
        let mut mac = [0; MAC];
        file.read_exact_at(&mut mac, content)?;
        // Constant-time comparison.
        if computed == blake3::Hash::from(mac) {
            Ok((file, content))
        } else {
            Err(io::Error::other("it was not written with the key of this cache"))
        }
    }

    /// Returns the authentication code of an entry with `len` bytes of content. `read` fills a buffer from an offset.
    fn mac(
        &self,
        name: &str,
        len: u64,
        read: impl Fn(&mut [u8], u64) -> io::Result<()> + Sync,
    ) -> io::Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(FORMAT.as_bytes());
        hasher.update(&[0]);
        hasher.update(name.as_bytes());
        hasher.update(&[0]);
        hasher.update(&len.to_le_bytes());
        for hash in segment_hashes(len, read)? {
            hasher.update(hash.as_bytes());
        }
        Ok(hasher.finalize())
    }

    fn keep(&self, name: &EntryName, kind: Kind, content: &[u8]) {
        let file = name.file(kind);
        let write = || -> io::Result<()> {
            let mut temporary = tempfile::Builder::new()
                .prefix(TEMPORARY)
                .tempfile_in(&self.dir)?;
            let mac = self.mac(&file, content.len() as u64, |segment, at| {
                let at = usize::try_from(at).map_err(io::Error::other)?;
                segment.copy_from_slice(&content[at..at + segment.len()]);
                Ok(())
            })?;
            temporary.write_all(content)?;
            temporary.write_all(mac.as_bytes())?;
            temporary.persist(self.dir.join(&file))?;
            Ok(())
        };
        if let Err(error) = write() {
            tracing::warn!("could not write the entry `{file}` of the cache: {error}");
        }
    }
}

/// Returns the number of processors that this process may use. Finding it reads several files of the system.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// Returns the hash of each segment of `len` bytes. Long contents are hashed by several threads.
fn segment_hashes(
    len: u64,
    read: impl Fn(&mut [u8], u64) -> io::Result<()> + Sync,
) -> io::Result<Vec<blake3::Hash>> {
    let count = usize::try_from(len.div_ceil(SEGMENT as u64)).map_err(io::Error::other)?;
    let mut hashes = vec![blake3::Hash::from([0; blake3::OUT_LEN]); count];
    let hash_all = |first: usize, hashes: &mut [blake3::Hash]| -> io::Result<()> {
        // Most entries are facts, of a few KiB: to clear a whole segment for each takes longer than to hash them.
        let mut buffer = vec![0; usize::try_from(len).map_or(SEGMENT, |len| len.min(SEGMENT))];
        for (i, hash) in hashes.iter_mut().enumerate() {
            let at = ((first + i) * SEGMENT) as u64;
            let size = usize::try_from(len - at).map_or(SEGMENT, |left| left.min(SEGMENT));
            read(&mut buffer[..size], at)?;
            *hash = blake3::hash(&buffer[..size]);
        }
        Ok(())
    };
    let useful = MAX_THREADS.min(count / SEGMENTS_PER_THREAD);
    let threads = match useful {
        0 | 1 => 1,
        _ => processors().min(useful),
    };
    let share = count.div_ceil(threads).max(1);
    thread::scope(|scope| {
        let mut parts = hashes.chunks_mut(share).enumerate();
        let first = parts.next();
        let others: Vec<_> = parts
            .map(|(part, hashes)| {
                let hash_all = &hash_all;
                scope.spawn(move || hash_all(part * share, hashes))
            })
            .collect();
        first.map_or(Ok(()), |(_, hashes)| hash_all(0, hashes))?;
        others.into_iter().try_for_each(|other| match other.join() {
            Ok(hashed) => hashed,
            Err(_) => Err(io::Error::other("a thread that hashes it panicked")),
        })
    })?;
    Ok(hashes)
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
    matches!(extension, Some("code" | "shape" | "tools" | "hook"))
        && is_hex(component, 64)
        && is_hex(engine, 32)
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

    fn cache(dir: &Path) -> (Cache, EntryName) {
        let name = entry('a', "code");
        let (name, _) = name.split_once('.').unwrap();
        (
            Cache::open(&dir.join("cache")).unwrap(),
            EntryName(name.to_owned()),
        )
    }

    #[test]
    fn every_segment_of_an_entry_is_authenticated() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, name) = cache(dir.path());
        let path = cache.dir.join(name.file(Kind::Code));
        // One thread, and several, the last with fewer segments.
        for length in [0, 1, SEGMENT, SEGMENT + 1, 2 * SEGMENTS_PER_THREAD * SEGMENT + 7] {
            let content: Vec<u8> = (0..length).map(|i| u8::try_from(i / SEGMENT).unwrap()).collect();
            cache.keep(&name, Kind::Code, &content);
            assert!(cache.verified(&name, Kind::Code).is_some(), "{length}");
            let good = fs::read(&path).unwrap();
            assert_eq!(good[..length], content);
            let changed = |change: &dyn Fn(&mut Vec<u8>)| {
                let mut bad = good.clone();
                change(&mut bad);
                fs::write(&path, bad).unwrap();
                cache.verified(&name, Kind::Code).is_none()
            };
            for at in (0..good.len()).step_by(SEGMENT).chain([good.len() - 1]) {
                assert!(changed(&|bad| bad[at] ^= 1), "{length} {at}");
            }
            assert!(changed(&|bad| bad.truncate(length.saturating_sub(1))), "{length}");
            assert!(changed(&|bad| bad.insert(0, 0)), "{length}");
            if length > 2 * SEGMENT {
                assert!(changed(&|bad| bad[..2 * SEGMENT].rotate_left(SEGMENT)));
            }
        }
    }

    #[test]
    fn facts_of_other_rules_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, name) = cache(dir.path());
        let shape = Shape {
            instance_bytes: 7,
            ..Shape::default()
        };
        for (rules, found) in [(RULES, Some(shape.clone())), (RULES ^ 1, None)] {
            let checked = Checked { rules, facts: &shape };
            cache.keep(&name, Kind::Shape, &serde_json::to_vec(&checked).unwrap());
            assert_eq!(cache.shape(&name), found);
        }
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

//! Directory listings, read entry by entry from the system, never as a whole.
//!
//! With an overlay a directory is listed in two parts: first the entries of its upper layer, then the remaining visible
//! ones of the lower layer. Names of the first part are remembered, so that each name occurs once, even if a file is
//! changed during the listing and then exists in both layers.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;
use std::sync::Arc;

use cap_primitives::fs as cap;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{self, DescriptorType, DirectoryEntry, ErrorCode};

use super::open_files::OpenFile;
use super::overlay::{Layer, Overlay};
use super::rights::Place;
use super::view::FilesView;
use crate::cell::memory::{MemoryAccount, Reservation};

/// Memory of an open directory in bytes: the entries that the system returns at once, about 25 KiB.
const OPEN_DIRECTORY: u64 = 32 << 10;

/// Memory of a remembered name in bytes, in addition to its length.
const REMEMBERED: u64 = 64;

/// Number of skipped entries after which the operation yields, so that the deadline of the call takes effect.
const PIECE: u32 = 64;

/// A directory being listed.
pub(super) struct Listing {
    place: Place,
    entries: Entries,
    memory: Reservation,
    /// Its slot among the open descriptors of the call.
    _counted: Arc<OpenFile>,
}

/// Entries still to be listed.
enum Entries {
    Plain(Dir),
    Upper(Dir, HashSet<String>),
    Lower(Dir, HashSet<String>),
    End,
}

impl Listing {
    /// Starts a listing of the directory `dir`; with an overlay, of `place` in its layers.
    pub(super) fn open(
        dir: &File,
        place: Place,
        account: &MemoryAccount,
        counted: Arc<OpenFile>,
    ) -> FsResult<Self> {
        let memory = account
            .reserve(OPEN_DIRECTORY)
            .map_err(|_| ErrorCode::InsufficientMemory)?;
        let entries = match &place.root.overlay {
            Some(overlay) => Entries::of_layers(overlay, &place.below)?,
            None => Entries::Plain(read(dir)?),
        };
        Ok(Self {
            place,
            entries,
            memory,
            _counted: counted,
        })
    }

    /// Returns the next entry; `None` at the end.
    ///
    /// Paths of guests are UTF-8, so that no guest can open a file with another name. Such a name is listed in an
    /// [`escaped`] form, with an unknown type. An error would end the listing in most guests, and hide other files.
    pub(super) async fn next(&mut self) -> FsResult<Option<DirectoryEntry>> {
        let mut passed_over = 0;
        loop {
            passed_over += 1;
            if passed_over % PIECE == 0 {
                tokio::task::yield_now().await;
            }
            let dir = match &mut self.entries {
                Entries::Plain(dir) | Entries::Upper(dir, _) | Entries::Lower(dir, _) => dir,
                Entries::End => return Ok(None),
            };
            let Some(entry) = dir.read() else {
                self.entries = self.entries_after()?;
                continue;
            };
            let entry = entry.map_err(io::Error::from)?;
            let (name, kind) = match entry.file_name().to_str() {
                Ok("." | "..") => continue,
                Ok(name) => (name.to_owned(), kind(dir, &entry)?),
                Err(_) => {
                    let name = escaped(entry.file_name().to_bytes());
                    (name, Some(DescriptorType::Unknown))
                }
            };
            let Some(kind) = kind else { continue };
            if self.is_new(&name)? {
                return Ok(Some(DirectoryEntry { type_: kind, name }));
            }
        }
    }

    /// Returns `true` if an entry is to be listed: neither hidden by an overlay nor already listed.
    fn is_new(&mut self, name: &str) -> FsResult<bool> {
        match &mut self.entries {
            Entries::Plain(_) | Entries::End => Ok(true),
            Entries::Upper(_, seen) => {
                let charged = self.memory.grow(name.len() as u64 + REMEMBERED);
                charged.map_err(|_| ErrorCode::InsufficientMemory)?;
                seen.insert(name.to_owned());
                Ok(true)
            }
            Entries::Lower(_, seen) => {
                let Some(overlay) = &self.place.root.overlay else {
                    return Ok(true);
                };
                Ok(!seen.contains(name) && !overlay.is_hidden(&child(&self.place.below, name))?)
            }
        }
    }

    /// Returns the part that follows the current entries.
    fn entries_after(&mut self) -> io::Result<Entries> {
        match (
            std::mem::replace(&mut self.entries, Entries::End),
            &self.place.root.overlay,
        ) {
            (Entries::Upper(_, seen), Some(overlay)) => Entries::of_lower(overlay, &self.place.below, seen),
            _ => Ok(Entries::End),
        }
    }
}

impl Entries {
    fn of_layers(overlay: &Overlay, path: &str) -> io::Result<Self> {
        match overlay.stat(Layer::Upper, path)? {
            Some(metadata) if metadata.is_dir() => {
                Ok(Self::Upper(open(overlay, Layer::Upper, path)?, HashSet::new()))
            }
            _ => Self::of_lower(overlay, path, HashSet::new()),
        }
    }

    fn of_lower(overlay: &Overlay, path: &str, seen: HashSet<String>) -> io::Result<Self> {
        match overlay.below(path)? {
            Some(metadata) if metadata.is_dir() => Ok(Self::Lower(open(overlay, Layer::Lower, path)?, seen)),
            _ => Ok(Self::End),
        }
    }
}

fn open(overlay: &Overlay, layer: Layer, path: &str) -> io::Result<Dir> {
    let dir = &overlay.dir(layer).dir;
    let path = if path.is_empty() { "." } else { path };
    read(&cap::open_dir(dir, Path::new(path))?)
}

/// Opens a directory for reading, from its start; `dir` itself may only permit look-ups.
fn read(dir: &File) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Dir::new(openat(dir, c".", flags, Mode::empty())?)?)
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}/{name}")
    }
}

/// Name in which each byte that is not part of UTF-8 is replaced by `\xNN`, in hexadecimal.
fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// True if a name can be the escaped form of one that is not UTF-8.
pub(super) fn is_escaped(name: &str) -> bool {
    let is_byte = |code: &str| u8::from_str_radix(code, 16).is_ok_and(|byte| !byte.is_ascii());
    name.split("\\x")
        .skip(1)
        .any(|rest| rest.get(..2).is_some_and(is_byte))
}

/// Returns the type of an entry; `None` if it was removed. Most file systems return it with the name.
fn kind(dir: &Dir, entry: &rustix::fs::DirEntry) -> io::Result<Option<DescriptorType>> {
    let mut found = entry.file_type();
    if found == FileType::Unknown {
        found = match statat(dir.fd()?, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Some(type_of(found)))
}

fn type_of(found: FileType) -> DescriptorType {
    match found {
        FileType::Directory => DescriptorType::Directory,
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        _ => DescriptorType::Unknown,
    }
}

impl types::HostDirectoryEntryStream for FilesView<'_> {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<types::DirectoryEntryStream>,
    ) -> FsResult<Option<types::DirectoryEntry>> {
        self.table.get_mut(&listing(&stream))?.next().await
    }

    fn drop(&mut self, stream: Resource<types::DirectoryEntryStream>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Listing>::new_own(stream.rep()))?;
        Ok(())
    }
}

/// Returns the listing of the guest's handle.
fn listing(stream: &Resource<types::DirectoryEntryStream>) -> Resource<Listing> {
    Resource::new_borrow(stream.rep())
}

/// Replaces the metadata hash of a denied file, or of one whose name is not UTF-8, and reveals no more than its listing. The C
/// library requests the hash of each entry and ends a listing if it fails, so that one denied name would hide all entries after it.
pub(super) fn hash_of_name(name: &str) -> types::MetadataHashValue {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    types::MetadataHashValue {
        lower: hasher.finish(),
        upper: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf8_are_escaped() {
        for (name, expected) in [
            (b"a\xffb".as_slice(), "a\\xffb"),
            (b"\xe9t\xe9", "\\xe9t\\xe9"),
            ("été".as_bytes(), "été"),
            (b"\xc3", "\\xc3"),
        ] {
            assert_eq!(escaped(name), expected);
            assert_eq!(is_escaped(expected), expected.contains("\\x"));
        }
    }

    #[test]
    fn name_with_another_escape_is_no_escaped_one() {
        for name in ["a\\x41", "a\\x", "\\xg0", "\\x+f", "x80"] {
            assert!(!is_escaped(name), "{name}");
        }
    }

    #[test]
    fn each_kind_of_entry_has_its_type() {
        for (found, expected) in [
            (FileType::Directory, DescriptorType::Directory),
            (FileType::RegularFile, DescriptorType::RegularFile),
            (FileType::Symlink, DescriptorType::SymbolicLink),
            (FileType::BlockDevice, DescriptorType::BlockDevice),
            (FileType::CharacterDevice, DescriptorType::CharacterDevice),
            (FileType::Fifo, DescriptorType::Unknown),
            (FileType::Socket, DescriptorType::Unknown),
        ] {
            assert_eq!(type_of(found), expected, "{found:?}");
        }
    }
}

use std::collections::BTreeSet;
use std::fs;

use toolcell_core::Redactor;
use toolcell_core::policy::Limits;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DirectoryEntryStream, ErrorCode, HostDescriptor as _, HostDirectoryEntryStream,
    OpenFlags, PathFlags,
};

use super::guest::{Guest, borrow, code};
use crate::cell::memory::{MemoryAccount, MemoryPool};
use crate::cell::receipt::ReceiptRecorder;
use crate::files::{MAX_OPEN, MAX_PATH};

/// Charge of an open directory.
const OPEN_DIRECTORY: u64 = 32 << 10;

/// Limits the memory of the guest's call to this many bytes.
fn with_memory(guest: &mut Guest, bytes: u64) -> MemoryAccount {
    let account = MemoryAccount::new(bytes, MemoryPool::new(u64::MAX));
    guest.recorder = ReceiptRecorder::new(&account, &Redactor::default());
    guest.files.account = account.clone();
    account
}

async fn start(guest: &mut Guest) -> Result<Resource<DirectoryEntryStream>, ErrorCode> {
    let root = guest.root(0);
    code(guest.view().read_directory(root).await)
}

async fn next(
    guest: &mut Guest,
    stream: &Resource<DirectoryEntryStream>,
) -> Result<Option<String>, ErrorCode> {
    let stream = Resource::new_borrow(stream.rep());
    let entry = code(guest.view().read_directory_entry(stream).await)?;
    Ok(entry.map(|entry| entry.name))
}

fn close(guest: &mut Guest, stream: Resource<DirectoryEntryStream>) {
    HostDirectoryEntryStream::drop(&mut guest.view(), stream).unwrap();
}

#[tokio::test]
async fn cost_of_a_listing_does_not_depend_on_its_length() {
    let dir = tempfile::tempdir().unwrap();
    let names: BTreeSet<String> = (0..5_000).map(|i| format!("{i:0100}")).collect();
    for name in &names {
        fs::write(dir.path().join(name), "").unwrap();
    }
    let mut guest = Guest::new(&[(dir.path(), "/w", "read")]);
    let account = with_memory(&mut guest, u64::MAX);
    let before = account.left();
    let stream = start(&mut guest).await.unwrap();
    let mut found = BTreeSet::new();
    while let Some(name) = next(&mut guest, &stream).await.unwrap() {
        assert!(found.insert(name), "each name comes once");
        assert_eq!(before - account.left(), OPEN_DIRECTORY);
    }
    assert_eq!(found, names);
    assert_eq!(next(&mut guest, &stream).await, Ok(None), "the end is the end");
    close(&mut guest, stream);
    assert_eq!(account.left(), before);
}

#[tokio::test]
async fn listings_count_as_memory_and_descriptors_of_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::new(&[(dir.path(), "/w", "read")]);
    with_memory(&mut guest, 2 * OPEN_DIRECTORY);
    let first = start(&mut guest).await.unwrap();
    let _second = start(&mut guest).await.unwrap();
    let full = Err(ErrorCode::InsufficientMemory);
    assert_eq!(start(&mut guest).await.map(drop), full);
    close(&mut guest, first);
    start(&mut guest).await.unwrap();

    let mut guest = Guest::new(&[(dir.path(), "/w", "read")]);
    for _ in 0..MAX_OPEN {
        start(&mut guest).await.unwrap();
    }
    assert_eq!(start(&mut guest).await.map(drop), full);
}

#[tokio::test]
async fn remembered_names_count_as_memory_of_the_call() {
    let (host, overlay) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut guest = Guest::layered(host.path(), overlay.path(), "write", &Limits::default());
    for name in ["a", "b"] {
        guest.write(name, b"").await.unwrap();
    }
    for (names, bytes) in [(2, 2 * 65), (1, 2 * 65 - 1)] {
        with_memory(&mut guest, OPEN_DIRECTORY + bytes);
        let stream = start(&mut guest).await.unwrap();
        for _ in 0..names {
            assert!(next(&mut guest, &stream).await.unwrap().is_some());
        }
        let end = next(&mut guest, &stream).await;
        assert_eq!(end.is_ok(), names == 2, "{end:?}");
        close(&mut guest, stream);
    }
}

#[tokio::test]
async fn file_changed_during_a_listing_occurs_once() {
    let (host, overlay) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let names: BTreeSet<String> = (0..200).map(|i| format!("f{i}")).collect();
    for name in &names {
        fs::write(host.path().join(name), "old").unwrap();
    }
    let mut guest = Guest::layered(host.path(), overlay.path(), "write", &Limits::default());
    guest.write("f7", b"before").await.unwrap();
    guest.unlink("f8").await.unwrap();
    let stream = start(&mut guest).await.unwrap();
    let mut found = BTreeSet::new();
    while let Some(name) = next(&mut guest, &stream).await.unwrap() {
        guest.write(&name, b"new").await.unwrap();
        // A name that is added later, if it did not occur before.
        if name != "f9" {
            guest.write("f9", b"newer").await.unwrap();
        }
        assert!(found.insert(name), "each name comes once");
    }
    let mut expected = names;
    expected.remove("f8");
    assert_eq!(found, expected);
}

#[tokio::test]
async fn open_directory_that_became_a_file_lists_as_empty() {
    let (host, overlay) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for by_guest in [true, false] {
        let name = format!("d{by_guest}");
        fs::create_dir(host.path().join(&name)).unwrap();
        let mut guest = Guest::layered(host.path(), overlay.path(), "write", &Limits::default());
        let opened = guest
            .open(&name, OpenFlags::DIRECTORY, DescriptorFlags::READ)
            .await;
        let opened = opened.unwrap();
        if by_guest {
            guest.rmdir(&name).await.unwrap();
            guest.write(&name, b"a file").await.unwrap();
        } else {
            fs::remove_dir(host.path().join(&name)).unwrap();
            fs::write(host.path().join(&name), "a file").unwrap();
        }
        let stream = code(guest.view().read_directory(opened).await).unwrap();
        assert_eq!(next(&mut guest, &stream).await, Ok(None), "{name}");
        close(&mut guest, stream);
    }
}

#[tokio::test]
async fn many_hidden_names_are_skipped_in_pieces() {
    let (host, overlay) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for i in 0..300 {
        fs::write(host.path().join(format!("f{i}")), "").unwrap();
    }
    let mut guest = Guest::layered(host.path(), overlay.path(), "write", &Limits::default());
    for i in 0..300 {
        guest.unlink(&format!("f{i}")).await.unwrap();
    }
    let stream = start(&mut guest).await.unwrap();
    let mut listing = Box::pin(next(&mut guest, &stream));
    let mut polls = 1;
    let waker = std::task::Waker::noop();
    while listing
        .as_mut()
        .poll(&mut std::task::Context::from_waker(waker))
        .is_pending()
    {
        polls += 1;
    }
    assert!(polls >= 300 / 64, "{polls}");
}

#[tokio::test]
async fn path_beyond_4096_bytes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "").unwrap();
    let mut guest = Guest::new(&[(dir.path(), "/w", "write")]);
    // The system counts an additional terminating byte.
    let path = |length: usize| format!(".{}a", "/".repeat(length - 2));
    guest.stat(&path(MAX_PATH - 1)).await.unwrap();
    let long = Err(ErrorCode::NameTooLong);
    let path = path(MAX_PATH + 1);
    let read = DescriptorFlags::READ;
    assert_eq!(guest.open(&path, OpenFlags::empty(), read).await.map(drop), long);
    assert_eq!(guest.stat(&path).await.map(drop), long);
    assert_eq!(guest.mkdir(&path).await, long);
    assert_eq!(guest.unlink(&path).await, long);
    assert_eq!(guest.rename((0, &path), (0, "b")).await, long);
    assert_eq!(guest.rename((0, "a"), (0, &path)).await, long);
    assert_eq!(guest.link((0, "a"), (0, &path)).await, long);
    assert_eq!(guest.symlink("a", &path).await, long);
    assert!(guest.denials().is_empty(), "nothing of it is kept");
}

#[tokio::test]
async fn guest_path_is_limited_to_4096_bytes_however_reached() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::new(&[(dir.path(), "/w", "write+create")]);
    let name = "d".repeat(255);
    let mut here = guest.root(0);
    let mut depth = 0;
    loop {
        let at = borrow(&here);
        if code(guest.view().create_directory_at(at, name.clone()).await).is_err() {
            break;
        }
        let flags = PathFlags::empty();
        let (at, read) = (borrow(&here), DescriptorFlags::READ);
        let opened = guest
            .view()
            .open_at(at, flags, name.clone(), OpenFlags::DIRECTORY, read)
            .await;
        here = code(opened).unwrap();
        depth += 1;
    }
    assert_eq!(depth, (MAX_PATH - "/w".len()) / 256);
}

#[tokio::test]
async fn name_that_is_not_utf8_is_listed_escaped() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = tempfile::tempdir().unwrap();
    let overlay = tempfile::tempdir().unwrap();
    for name in [b"a".as_slice(), b"b\xff", b"c"] {
        fs::write(dir.path().join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
    }
    fs::create_dir(dir.path().join("sub")).unwrap();
    let plain = Guest::new(&[(dir.path(), "/w", "read")]);
    let layered = Guest::layered(dir.path(), overlay.path(), "read", &Limits::default());
    for mut guest in [plain, layered] {
        let stream = start(&mut guest).await.unwrap();
        let mut names = BTreeSet::new();
        while let Some(name) = next(&mut guest, &stream).await.unwrap() {
            assert!(names.insert(name));
        }
        assert_eq!(names, ["a", "b\\xff", "c", "sub"].map(str::to_owned).into());
        // The C library asks for the hash of each entry, and ends a listing if it fails.
        for name in names {
            guest.hash(&name).await.unwrap();
        }
        for missing in ["d", "d\\x41", "d/b\\xff", "sub/b\\xff"] {
            assert_eq!(guest.hash(missing).await, Err(ErrorCode::NoEntry));
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn descriptors_of_files_are_not_inherited() {
    const CLOEXEC: u32 = 0o2_000_000;
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("f"), "x").unwrap();
    let mut guest = Guest::new(&[(dir.path(), "/w", "write")]);
    let both = DescriptorFlags::READ | DescriptorFlags::WRITE;
    guest.open("f", OpenFlags::empty(), both).await.unwrap();
    let read = DescriptorFlags::READ;
    guest.open("d", OpenFlags::DIRECTORY, read).await.unwrap();
    start(&mut guest).await.unwrap();
    let real = dir.path().canonicalize().unwrap();
    let mut seen = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let number = entry.unwrap().file_name().into_string().unwrap();
        let target = fs::read_link(format!("/proc/self/fd/{number}"));
        if !target.is_ok_and(|target| target.starts_with(&real)) {
            continue;
        }
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        assert_eq!(flags & CLOEXEC, CLOEXEC, "{info}");
        seen += 1;
    }
    assert!(seen >= 4, "{seen}");
}

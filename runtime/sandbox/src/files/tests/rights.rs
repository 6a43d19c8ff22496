//! Each right allows its operations and no others.

use std::fs;
use std::path::Path;

use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor, NewTimestamp, OpenFlags, PathFlags,
};

use super::guest::{Guest, borrow, code};

const DENIED: ErrorCode = ErrorCode::NotPermitted;

fn dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), "old").unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    dir
}

/// Returns the operations that succeed with some rights.
async fn works(rights: &str) -> Vec<&'static str> {
    let mut worked = Vec::new();
    let operations = [
        "read",
        "list",
        "stat",
        "overwrite",
        "truncate",
        "touch",
        "times",
        "make",
        "mkdir",
        "symlink",
        "unlink",
        "rmdir",
        "rename",
        "replace",
        "link",
    ];
    for operation in operations {
        let dir = dir();
        let mut guest = Guest::new(&[(dir.path(), "/w", rights)]);
        let root = guest.root(0);
        let none = OpenFlags::empty();
        let result = match operation {
            "read" => guest.read("old").await.map(drop),
            "list" => guest.list(".").await.map(drop),
            "stat" => guest.stat("old").await.map(drop),
            "overwrite" => guest.open("old", none, DescriptorFlags::WRITE).await.map(drop),
            "truncate" => guest
                .open("old", OpenFlags::TRUNCATE, DescriptorFlags::WRITE)
                .await
                .map(drop),
            "touch" => guest
                .open("old", OpenFlags::CREATE, DescriptorFlags::WRITE)
                .await
                .map(drop),
            "times" => {
                let (a, m) = (NewTimestamp::Now, NewTimestamp::Now);
                code(
                    guest
                        .view()
                        .set_times_at(root, PathFlags::empty(), "old".into(), a, m)
                        .await,
                )
            }
            "make" => guest.write("new", b"x").await,
            "mkdir" => guest.mkdir("new").await,
            "symlink" => guest.symlink("old", "new").await,
            "unlink" => guest.unlink("old").await,
            "rmdir" => guest.rmdir("sub").await,
            "rename" => guest.rename((0, "old"), (0, "new")).await,
            "replace" => {
                fs::write(dir.path().join("new"), "").unwrap();
                guest.rename((0, "old"), (0, "new")).await
            }
            "link" => guest.link((0, "old"), (0, "new")).await,
            other => panic!("{other}"),
        };
        match result {
            Ok(()) => worked.push(operation),
            Err(code) => {
                assert_eq!(code, DENIED, "{rights} {operation}");
                let (target, hint) = guest.denials().pop().expect(operation);
                assert!(target.starts_with("/w"), "{target}");
                assert!(hint.unwrap().contains(&format!("={}:/w", dir.path().display())));
            }
        }
    }
    worked
}

#[tokio::test]
async fn each_right_allows_its_operations_and_no_others() {
    assert_eq!(works("read").await, ["read", "list", "stat"]);
    assert_eq!(works("modify").await, ["overwrite", "truncate", "touch", "times"]);
    assert_eq!(works("create").await, ["make", "mkdir", "symlink"]);
    assert_eq!(works("delete").await, ["unlink", "rmdir"]);
    assert_eq!(
        works("read+create").await,
        ["read", "list", "stat", "make", "mkdir", "symlink", "link"]
    );
    assert_eq!(
        works("create+delete").await,
        ["make", "mkdir", "symlink", "unlink", "rmdir", "rename", "replace"]
    );
    assert_eq!(works("write").await.len(), 15);
}

#[tokio::test]
async fn read_only_file_stays_unchanged() {
    let dir = dir();
    let mut guest = Guest::new(&[(dir.path(), "/w", "read")]);
    for (oflags, flags) in [
        (OpenFlags::TRUNCATE, DescriptorFlags::READ),
        (OpenFlags::TRUNCATE, DescriptorFlags::WRITE),
        (OpenFlags::CREATE | OpenFlags::TRUNCATE, DescriptorFlags::WRITE),
        (OpenFlags::empty(), DescriptorFlags::READ | DescriptorFlags::WRITE),
    ] {
        assert_eq!(guest.open("old", oflags, flags).await.unwrap_err(), DENIED);
    }
    let fd = guest
        .open("old", OpenFlags::empty(), DescriptorFlags::READ)
        .await
        .unwrap();
    assert!(guest.view().set_size(borrow(&fd), 0).await.is_err());
    assert!(guest.view().write(borrow(&fd), b"x".to_vec(), 0).await.is_err());
    assert!(guest.view().write_via_stream(borrow(&fd), 0).is_err());
    assert!(guest.view().append_via_stream(borrow(&fd)).is_err());
    let now = || NewTimestamp::Now;
    assert!(guest.view().set_times(borrow(&fd), now(), now()).await.is_err());
    assert_eq!(fs::read_to_string(dir.path().join("old")).unwrap(), "old");
}

#[tokio::test]
async fn file_opened_for_reading_is_never_written() {
    let dir = dir();
    let mut guest = Guest::new(&[(dir.path(), "/w", "write")]);
    let fd = guest
        .open("old", OpenFlags::empty(), DescriptorFlags::READ)
        .await
        .unwrap();
    assert!(guest.view().write(borrow(&fd), b"x".to_vec(), 0).await.is_err());
    assert_eq!(fs::read_to_string(dir.path().join("old")).unwrap(), "old");
}

#[tokio::test]
async fn moving_between_directories_gains_no_right() {
    let (a, b) = (dir(), tempfile::tempdir().unwrap());
    let pairs: &[(&str, &str, Result<(), ErrorCode>)] = &[
        ("write", "write", Ok(())),
        // An unreadable file would become readable; a read-only file would become writable.
        ("create+delete", "write", Err(DENIED)),
        ("read+create+delete", "write", Err(DENIED)),
        ("read", "write", Err(DENIED)),
        ("write", "read+create", Ok(())),
    ];
    for (from, to, expected) in pairs {
        let _ = fs::remove_file(b.path().join("moved"));
        fs::write(a.path().join("old"), "old").unwrap();
        let dirs: [(&Path, &str, &str); 2] = [(a.path(), "/a", from), (b.path(), "/b", to)];
        let mut guest = Guest::new(&dirs);
        assert_eq!(
            guest.rename((0, "old"), (1, "moved")).await,
            *expected,
            "rename {from} {to}"
        );
        assert_eq!(b.path().join("moved").exists(), expected.is_ok());
    }
    // A hard link from a read-only directory would make its file writable.
    fs::write(a.path().join("old"), "old").unwrap();
    let mut guest = Guest::new(&[(a.path(), "/a", "read"), (b.path(), "/b", "write")]);
    assert_eq!(guest.link((0, "old"), (1, "linked")).await, Err(DENIED));
    assert!(!b.path().join("linked").exists());
}

#[tokio::test]
async fn receipt_lists_touched_files_by_guest_path() {
    let dir = dir();
    let mut guest = Guest::new(&[(dir.path(), "/w", "write")]);
    guest.read("old").await.unwrap();
    guest.read("sub/../old").await.unwrap();
    guest.write("sub/new", b"x").await.unwrap();
    guest.mkdir("made").await.unwrap();
    guest
        .rename((0, "sub/new"), (0, "made/x\u{1b}[31m\n"))
        .await
        .unwrap();
    assert_eq!(guest.read("missing").await, Err(ErrorCode::NoEntry));
    assert_eq!(
        guest.touched(),
        ["/w/old", "/w/sub/new*", "/w/made*", "/w/made/x\u{1b}[31m\n*"]
    );
    assert_eq!(guest.denials(), []);
}

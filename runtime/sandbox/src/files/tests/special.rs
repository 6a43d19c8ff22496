//! Special files, unusual names and unusual times.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor, NewTimestamp, OpenFlags, PathFlags,
};

use super::guest::{Guest, code, open_roots};

fn mkfifo(path: &Path) {
    let status = std::process::Command::new("mkfifo").arg(path).status();
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn fifo_or_socket_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    mkfifo(&dir.path().join("fifo"));
    std::os::unix::fs::symlink("fifo", dir.path().join("link")).unwrap();
    let _listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    let mut guest = Guest::new(&[(dir.path(), "/w", "write")]);
    for path in ["fifo", "link", "socket"] {
        for (oflags, flags) in [
            (OpenFlags::empty(), DescriptorFlags::READ),
            (OpenFlags::empty(), DescriptorFlags::WRITE),
            (OpenFlags::CREATE, DescriptorFlags::READ | DescriptorFlags::WRITE),
            (OpenFlags::TRUNCATE, DescriptorFlags::WRITE),
        ] {
            let opened = guest.open(path, oflags, flags).await;
            assert_eq!(opened.map(drop), Err(ErrorCode::NotPermitted), "{path}");
        }
    }
    assert_eq!(
        guest.denials(),
        [
            ("/w/fifo".to_owned(), None),
            ("/w/link".to_owned(), None),
            ("/w/socket".to_owned(), None)
        ]
    );
}

#[tokio::test]
async fn fifo_that_replaces_a_file_does_not_block() {
    use crate::files::open::{Mode, Opened, open};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    mkfifo(&path);
    // Simulates `open` after it saw a regular file.
    let mut options = cap_primitives::fs::OpenOptions::new();
    use cap_fs_ext::OpenOptionsSyncExt;
    options.read(true).nonblock(true);
    let parent = fs::File::open(dir.path()).unwrap();
    cap_primitives::fs::open(&parent, Path::new("x"), &options).unwrap();
    let mode = Mode {
        read: true,
        write: false,
        truncate: false,
        new: false,
        follow: true,
    };
    assert!(matches!(open(&parent, "x", mode), Ok(Opened::Special)));
}

#[tokio::test]
async fn devices_are_refused() {
    let mut guest = Guest::new(&[(Path::new("/dev"), "/dev", "read+modify")]);
    for path in ["null", "zero", "urandom", "tty"] {
        for flags in [DescriptorFlags::READ, DescriptorFlags::WRITE] {
            assert!(
                guest.open(path, OpenFlags::empty(), flags).await.is_err(),
                "{path}"
            );
        }
    }
    assert!(guest.touched().is_empty());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn magic_links_of_proc_lead_nowhere() {
    let mut guest = Guest::new(&[(Path::new("/proc/self"), "/p", "read")]);
    for path in ["root/etc/passwd", "cwd/Cargo.toml", "exe", "fd/0"] {
        assert!(guest.read(path).await.is_err(), "{path}");
    }
}

#[tokio::test]
async fn unusual_names_are_names() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::new(&[(dir.path(), "/w", "write")]);
    for name in [
        "a\u{1b}[31mb",
        "new\nline",
        "\u{202e}txt.exe",
        "ü",
        " ",
        "-rf",
        "a\\b",
    ] {
        guest.write(name, b"x").await.unwrap();
        assert_eq!(guest.read(name).await.unwrap(), b"x");
        assert!(guest.touched().contains(&format!("/w/{name}*")));
    }
    for name in ["", "nul\0byte", &"n".repeat(300)] {
        assert!(guest.write(name, b"x").await.is_err(), "{name:?}");
    }
}

#[tokio::test]
async fn extreme_times_are_errors_or_times() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "").unwrap();
    let mut guest = Guest::new(&[(dir.path(), "/w", "write")]);
    for (seconds, nanoseconds) in [
        (0, 0),
        (u64::MAX, 0),
        (u64::MAX, u32::MAX),
        (i64::MAX as u64, 999_999_999),
        (1, u32::MAX),
    ] {
        let time = || {
            NewTimestamp::Timestamp(wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime {
                seconds,
                nanoseconds,
            })
        };
        let root = guest.root(0);
        // No panic; file systems differ in the times that they can store.
        let _ = code(
            guest
                .view()
                .set_times_at(root, PathFlags::empty(), "a".into(), time(), time())
                .await,
        );
        let fd = guest
            .open("a", OpenFlags::empty(), DescriptorFlags::WRITE)
            .await
            .unwrap();
        let _ = code(guest.view().set_times(fd, time(), time()).await);
    }
    assert_eq!(guest.read("a").await.unwrap(), b"");
}

#[tokio::test]
async fn missing_directory_is_an_error_that_names_its_grant() {
    use toolcell_core::policy::{DirAccess, DirGrant};
    let grant = DirGrant {
        host: "/no/such/directory".into(),
        guest: "/w".into(),
        access: DirAccess::READ,
        overlay: None,
    };
    let grants = toolcell_core::Grants {
        dirs: vec![grant],
        ..Default::default()
    };
    let error = open_roots(grants).unwrap_err();
    assert_eq!(
        (error.guest.as_str(), error.source.kind()),
        ("/w", std::io::ErrorKind::NotFound)
    );
}

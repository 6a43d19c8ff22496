//! Both sides of the quotas.

use std::fs;

use bytes::Bytes;
use toolcell_core::policy::Limits;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::StreamError;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, Host as _, HostDescriptor, OpenFlags,
};

use super::guest::{Guest, borrow, code};
use crate::files::MAX_OPEN;

fn guest(dir: &tempfile::TempDir, file_bytes: u64, file_count: u64) -> Guest {
    let limits = Limits {
        file_bytes,
        file_count,
        ..Limits::default()
    };
    Guest::with_limits(&[(dir.path(), "/w", "write")], &limits)
}

#[tokio::test]
async fn bytes_beyond_the_limit_of_a_call_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = guest(&dir, 10, 100);
    guest.write("a", b"12345").await.unwrap();
    guest.write("b", b"12345").await.unwrap();
    assert_eq!(guest.write("c", b"1").await, Err(ErrorCode::Quota));
    assert_eq!(
        guest.denials(),
        [("more than 10 bytes written in one call".to_owned(), None)]
    );
}

#[tokio::test]
async fn growing_a_file_costs_like_writing_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = guest(&dir, 1000, 100);
    let fd = guest
        .open("a", OpenFlags::CREATE, DescriptorFlags::WRITE)
        .await
        .unwrap();
    assert_eq!(
        code(guest.view().set_size(borrow(&fd), 1001).await),
        Err(ErrorCode::Quota)
    );
    assert_eq!(
        code(guest.view().write(borrow(&fd), b"x".to_vec(), 1 << 40).await),
        Err(ErrorCode::Quota)
    );
    assert_eq!(
        code(guest.view().write(borrow(&fd), b"x".to_vec(), u64::MAX).await),
        Err(ErrorCode::Quota)
    );
    guest.view().set_size(borrow(&fd), 1000).await.unwrap();
    assert_eq!(
        code(guest.view().write(borrow(&fd), b"x".to_vec(), 0).await),
        Err(ErrorCode::Quota)
    );
    guest.view().set_size(borrow(&fd), 0).await.unwrap();
    assert_eq!(fs::metadata(dir.path().join("a")).unwrap().len(), 0);
}

#[tokio::test]
async fn stream_ends_at_the_quota_with_a_reason() {
    for append in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut guest = guest(&dir, 10, 100);
        let fd = guest
            .open("a", OpenFlags::CREATE, DescriptorFlags::WRITE)
            .await
            .unwrap();
        let stream = match append {
            true => guest.view().append_via_stream(borrow(&fd)).unwrap(),
            false => guest.view().write_via_stream(borrow(&fd), 0).unwrap(),
        };
        let stream = guest.table.get_mut(&stream).unwrap();
        let six = Bytes::from_static(b"123456");
        stream.blocking_write_and_flush(six.clone()).await.unwrap();
        let Err(StreamError::LastOperationFailed(error)) = stream.blocking_write_and_flush(six).await else {
            panic!("the quota did not end the stream");
        };
        assert!(!format!("{error:?}").contains(dir.path().to_str().unwrap()));
        stream
            .blocking_write_and_flush(Bytes::from_static(b"7890"))
            .await
            .unwrap();
        let error: Resource<wasmtime::Error> = guest.table.push(error).unwrap();
        assert_eq!(
            guest.view().filesystem_error_code(error).unwrap(),
            Some(ErrorCode::Quota)
        );
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"1234567890");
    }
}

#[tokio::test]
async fn files_beyond_the_limit_of_a_call_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = guest(&dir, 1000, 4);
    guest.write("a", b"").await.unwrap();
    guest.mkdir("d").await.unwrap();
    guest.symlink("a", "s").await.unwrap();
    // Failed creations and existing files cost nothing.
    assert_eq!(guest.mkdir("d").await, Err(ErrorCode::Exist));
    assert_eq!(guest.symlink("a", "s").await, Err(ErrorCode::Exist));
    assert_eq!(guest.write("no/where", b"").await, Err(ErrorCode::NoEntry));
    guest.write("a", b"again").await.unwrap();
    guest.link((0, "a"), (0, "l")).await.unwrap();
    for result in [
        guest.write("b", b"").await,
        guest.mkdir("e").await,
        guest.symlink("a", "t").await,
        guest.link((0, "a"), (0, "m")).await,
    ] {
        assert_eq!(result, Err(ErrorCode::Quota));
    }
    guest.unlink("a").await.unwrap();
    assert_eq!(guest.write("a", b"").await, Err(ErrorCode::Quota));
}

#[tokio::test]
async fn descriptors_of_a_call_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "a").unwrap();
    let mut guest = guest(&dir, 0, 0);
    let none = OpenFlags::empty();
    let mut open = Vec::new();
    for _ in 0..MAX_OPEN {
        open.push(guest.open("a", none, DescriptorFlags::READ).await.unwrap());
    }
    let full = Err(ErrorCode::InsufficientMemory);
    assert_eq!(guest.open("a", none, DescriptorFlags::READ).await.map(drop), full);
    assert_eq!(
        guest
            .open(".", OpenFlags::DIRECTORY, DescriptorFlags::READ)
            .await
            .map(drop),
        full
    );
    // A stream holds the descriptor after its file is closed.
    let last = open.pop().unwrap();
    let stream = guest.view().read_via_stream(borrow(&last), 0).unwrap();
    guest.close(last);
    assert_eq!(guest.open("a", none, DescriptorFlags::READ).await.map(drop), full);
    drop(guest.table.delete(stream).unwrap());
    guest.open("a", none, DescriptorFlags::READ).await.unwrap();
}

#[tokio::test]
async fn failed_operation_costs_no_file() {
    let (dir, overlay) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("f"), "").unwrap();
    let limits = Limits {
        file_count: 1,
        ..Limits::default()
    };
    let plain = Guest::with_limits(&[(dir.path(), "/w", "write")], &limits);
    let layered = Guest::layered(dir.path(), overlay.path(), "write", &limits);
    for mut guest in [plain, layered] {
        for _ in 0..2 {
            for (from, to) in [
                ("none", "new"),
                ("f", "d"),
                ("f", "none/new"),
                ("f", "new/"),
                ("d", "new"),
            ] {
                guest.link((0, from), (0, to)).await.unwrap_err();
            }
            for path in ["f", "d", "none/new"] {
                guest.mkdir(path).await.unwrap_err();
                guest.symlink("f", path).await.unwrap_err();
            }
            guest.write("none/new", b"").await.unwrap_err();
        }
        guest.link((0, "f"), (0, "new")).await.unwrap();
        assert_eq!(guest.link((0, "f"), (0, "newer")).await, Err(ErrorCode::Quota));
        guest.unlink("new").await.unwrap();
    }
}

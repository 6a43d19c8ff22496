//! Confinement of paths to the granted directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, ErrorCode, OpenFlags};

use super::guest::Guest;

/// A directory `inside` with a file, and a sibling file `secret`.
struct Tree {
    _dir: tempfile::TempDir,
    inside: PathBuf,
    secret: PathBuf,
}

fn tree() -> Tree {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    fs::create_dir_all(inside.join("sub")).unwrap();
    fs::write(inside.join("file"), "file").unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    Tree {
        _dir: dir,
        inside,
        secret,
    }
}

fn guest(tree: &Tree) -> Guest {
    Guest::new(&[(&tree.inside, "/w", "write")])
}

#[tokio::test]
async fn path_that_leads_out_is_refused_by_every_operation() {
    let tree = tree();
    let absolute = tree.secret.to_str().unwrap().to_owned();
    for path in [
        "../secret",
        "sub/../../secret",
        "./../secret",
        "sub/./../.././secret",
        "//secret",
        "/secret",
        "/",
        "..",
        "../",
        "../inside/file",
        &absolute,
        "../secret/",
        "nothing/../../secret",
    ] {
        let mut guest = guest(&tree);
        assert!(guest.read(path).await.is_err(), "read {path}");
        assert!(guest.write(path, b"x").await.is_err(), "write {path}");
        assert!(guest.stat(path).await.is_err(), "stat {path}");
        assert!(guest.unlink(path).await.is_err(), "unlink {path}");
        assert!(guest.mkdir(path).await.is_err(), "mkdir {path}");
        assert!(guest.rmdir(path).await.is_err(), "rmdir {path}");
        assert!(guest.list(path).await.is_err(), "list {path}");
        assert!(
            guest.rename((0, path), (0, "x")).await.is_err(),
            "rename from {path}"
        );
        assert!(
            guest.rename((0, "file"), (0, path)).await.is_err(),
            "rename to {path}"
        );
        assert!(guest.link((0, path), (0, "x")).await.is_err(), "link from {path}");
        assert!(
            guest.link((0, "file"), (0, path)).await.is_err(),
            "link to {path}"
        );
        assert!(guest.symlink("file", path).await.is_err(), "symlink {path}");
    }
    assert_eq!(fs::read_to_string(&tree.secret).unwrap(), "secret");
    assert_eq!(fs::read_to_string(tree.inside.join("file")).unwrap(), "file");
}

#[tokio::test]
async fn attempt_to_leave_is_recorded_in_the_receipt() {
    let tree = tree();
    let mut guest = guest(&tree);
    assert_eq!(guest.read("../secret").await, Err(ErrorCode::NotPermitted));
    assert_eq!(guest.denials(), [("/secret".to_owned(), None)]);
    assert_eq!(guest.touched(), [] as [&str; 0]);
}

#[tokio::test]
async fn link_that_leads_out_is_never_followed() {
    let tree = tree();
    symlink(&tree.secret, tree.inside.join("absolute")).unwrap();
    symlink("../secret", tree.inside.join("relative")).unwrap();
    symlink("..", tree.inside.join("up")).unwrap();
    symlink("relative", tree.inside.join("chain")).unwrap();
    symlink("file", tree.inside.join("good")).unwrap();
    let mut guest = guest(&tree);
    for path in ["absolute", "relative", "chain", "up/secret", "relative/"] {
        assert!(guest.read(path).await.is_err(), "{path}");
        assert!(guest.write(path, b"x").await.is_err(), "{path}");
    }
    assert_eq!(guest.read("good").await.unwrap(), b"file");
    assert_eq!(fs::read_to_string(&tree.secret).unwrap(), "secret");
}

#[tokio::test]
async fn guest_creates_no_link_that_goes_up() {
    let tree = tree();
    let mut guest = guest(&tree);
    for target in ["../secret", "/etc/passwd", "..", "sub/../file"] {
        assert_eq!(
            guest.symlink(target, "link").await,
            Err(ErrorCode::NotPermitted),
            "{target}"
        );
        assert!(fs::symlink_metadata(tree.inside.join("link")).is_err());
    }
    guest.symlink("file", "link").await.unwrap();
    assert_eq!(guest.read("link").await.unwrap(), b"file");
}

#[tokio::test]
async fn link_is_not_moved_to_where_it_leads_out() {
    let tree = tree();
    symlink("../file", tree.inside.join("sub/link")).unwrap();
    symlink("../secret", tree.inside.join("out")).unwrap();
    let mut guest = guest(&tree);
    for (from, to) in [
        ("sub/link", "link"),
        ("sub/link/", "link"),
        ("out", "other"),
        ("out/", "other"),
    ] {
        assert!(guest.rename((0, from), (0, to)).await.is_err(), "{from}");
        assert!(fs::symlink_metadata(tree.inside.join(to)).is_err());
    }
    // With a trailing slash the target is meant, which is outside.
    assert!(guest.rename((0, "file"), (0, "out/")).await.is_err());
    assert_eq!(fs::read_to_string(&tree.secret).unwrap(), "secret");
}

#[tokio::test]
async fn link_changed_during_opening_never_leads_out() {
    let tree = tree();
    let stop = Arc::new(AtomicBool::new(false));
    let (inside, done) = (tree.inside.clone(), stop.clone());
    let swapper = std::thread::spawn(move || {
        let (path, next) = (inside.join("race"), inside.join("next"));
        let mut swaps = 0_u64;
        while !done.load(Ordering::Relaxed) {
            for target in ["file", "../secret"] {
                symlink(target, &next).unwrap();
                fs::rename(&next, &path).unwrap();
            }
            swaps += 1;
        }
        swaps
    });
    let mut guest = guest(&tree);
    let mut inside = 0;
    for _ in 0..20_000 {
        if let Ok(bytes) = guest.read("race").await {
            assert_eq!(bytes, b"file");
            inside += 1;
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > 0);
    assert!(inside > 0, "the race was never seen from its good side");
}

#[tokio::test]
async fn subdirectory_is_as_confined_as_its_parent() {
    let tree = tree();
    let mut guest = guest(&tree);
    let sub = guest
        .open("sub", OpenFlags::DIRECTORY, DescriptorFlags::READ)
        .await
        .unwrap();
    use wasmtime_wasi::p2::bindings::filesystem::types::{HostDescriptor, PathFlags};
    let follow = PathFlags::SYMLINK_FOLLOW;
    // Not even to granted files: a descriptor only gives access to itself and everything below.
    for path in ["../file", "../../secret"] {
        let sub = super::guest::borrow(&sub);
        let opened = guest
            .view()
            .open_at(
                sub,
                follow,
                path.into(),
                OpenFlags::empty(),
                DescriptorFlags::READ,
            )
            .await;
        assert!(opened.is_err(), "{path}");
    }
}

//! Git directories of any name are read and not changed, and no guest makes one.

use std::fs;
use std::path::{Path, PathBuf};

use toolcell_core::policy::{DirAccess, DirGrant, Limits};
use toolcell_core::{Denials, protected::OVERLAY_PREFIX};
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, HostDescriptor, OpenFlags, PathFlags};

use super::guest::{Guest, borrow, code, open_roots};

/// A bare repository `mirror`, a worktree's `trees/x`, a lone `HEAD` in `lone`, and the pieces of a repository in `pieces`.
fn repositories() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("root");
    for dir in [
        "sub/mirror/objects",
        "sub/mirror/refs/heads",
        "sub/mirror/hooks",
        "trees/x",
        "lone",
        "pieces/objects",
        "pieces/refs",
    ] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for file in [
        "sub/mirror/HEAD",
        "sub/mirror/config",
        "sub/mirror/hooks/old",
        "trees/x/HEAD",
        "trees/x/commondir",
        "lone/HEAD",
        "pieces/config",
        "file",
    ] {
        fs::write(root.join(file), "old").unwrap();
    }
    (dir, root)
}

fn granted(host: &Path, overlay: Option<PathBuf>, programs: bool) -> Guest {
    let dir = DirGrant {
        host: host.to_owned(),
        guest: "/w".into(),
        access: DirAccess::WRITE,
        overlay,
    };
    let denied = Denials {
        programs,
        ..Denials::default()
    };
    Guest::granted(vec![dir], &Limits::default(), denied)
}

/// A guest without and one with an overlay.
fn guests(root: &Path) -> [Guest; 2] {
    [None, Some(root.with_file_name("changes"))].map(|overlay| granted(root, overlay, false))
}

#[tokio::test]
async fn git_directory_of_any_name_is_not_changed() {
    let (_dir, root) = repositories();
    for (layer, mut guest) in guests(&root).into_iter().enumerate() {
        for at in ["sub/mirror", "trees/x"] {
            let path = |name: &str| format!("{at}/{name}");
            assert_eq!(guest.read(&path("HEAD")).await.unwrap(), b"old");
            for new in ["config", "new", "hooks/pre-commit", "config.worktree"] {
                let new = path(new);
                assert!(guest.write(&new, b"x").await.is_err(), "{layer} {new}");
                assert!(guest.mkdir(&new).await.is_err(), "{layer} {new}");
                assert!(guest.symlink("file", &new).await.is_err(), "{layer} {new}");
                assert!(guest.link((0, "file"), (0, &new)).await.is_err(), "{layer} {new}");
                assert!(
                    guest.rename((0, "file"), (0, &new)).await.is_err(),
                    "{layer} {new}"
                );
            }
            let head = path("HEAD");
            assert!(guest.unlink(&head).await.is_err(), "{layer}");
            assert!(guest.link((0, &head), (0, "y")).await.is_err(), "{layer}");
            assert!(guest.rename((0, &head), (0, "y")).await.is_err(), "{layer}");
        }
        for piece in ["objects", "refs", "config", "hooks", "hooks/old"] {
            let piece = format!("sub/mirror/{piece}");
            assert!(
                guest.rename((0, &piece), (0, "y")).await.is_err(),
                "{layer} {piece}"
            );
            assert!(guest.unlink(&piece).await.is_err(), "{layer} {piece}");
            assert!(guest.rmdir(&piece).await.is_err(), "{layer} {piece}");
        }
        guest.write("sub/beside", b"x").await.unwrap();
    }
    assert!(!root.join("sub/mirror/new").exists());
}

#[tokio::test]
async fn no_guest_puts_a_git_directory_together() {
    let (_dir, root) = repositories();
    for (layer, mut guest) in guests(&root).into_iter().enumerate() {
        for name in ["objects", "Refs", "commondir"] {
            let path = format!("lone/{name}");
            assert!(guest.write(&path, b"x").await.is_err(), "{layer} {path}");
            assert!(guest.mkdir(&path).await.is_err(), "{layer} {path}");
            assert!(guest.symlink("file", &path).await.is_err(), "{layer} {path}");
            assert!(
                guest.link((0, "file"), (0, &path)).await.is_err(),
                "{layer} {path}"
            );
            assert!(
                guest.rename((0, "file"), (0, &path)).await.is_err(),
                "{layer} {path}"
            );
        }
        guest.mkdir(&format!("made{layer}")).await.unwrap();
        let moved = guest.rename((0, &format!("made{layer}")), (0, "lone/refs")).await;
        assert!(moved.is_err(), "{layer}");
        // Where capitals do not count, this is the `HEAD` of a repository.
        for name in ["HEAD", "head", "Head"] {
            let path = format!("pieces/{name}");
            assert!(guest.write(&path, b"x").await.is_err(), "{layer} {path}");
            assert!(
                guest.rename((0, "file"), (0, &path)).await.is_err(),
                "{layer} {path}"
            );
        }
        assert!(guest.rename((0, "lone/HEAD"), (0, "pieces/HEAD")).await.is_err());
        guest.write("pieces/config", b"x").await.unwrap();
        guest.write("lone/config", b"x").await.unwrap();
        guest.write("head", b"x").await.unwrap();
    }
}

#[tokio::test]
async fn moved_git_directory_is_not_changed_by_old_descriptors() {
    let (_dir, root) = repositories();
    let mut guest = granted(&root, None, false);
    let hooks = guest
        .open("sub/mirror/hooks", OpenFlags::DIRECTORY, DescriptorFlags::READ)
        .await
        .unwrap();
    // By another program: no guest moves it.
    assert!(guest.rename((0, "sub"), (0, "moved")).await.is_err());
    fs::rename(root.join("sub"), root.join("moved")).unwrap();
    fs::create_dir_all(root.join("sub/mirror/hooks")).unwrap();
    for name in ["pre-commit", "old"] {
        let opened = guest
            .view()
            .open_at(
                borrow(&hooks),
                PathFlags::empty(),
                name.into(),
                OpenFlags::CREATE,
                DescriptorFlags::WRITE,
            )
            .await;
        assert!(code(opened).is_err(), "{name}");
        let made = guest
            .view()
            .create_directory_at(borrow(&hooks), "new".into())
            .await;
        assert!(code(made).is_err());
    }
    assert!(guest.write("moved/mirror/config", b"x").await.is_err());
}

#[tokio::test]
async fn grant_inside_git_directory_changes_nothing() {
    let (_dir, root) = repositories();
    for host in ["sub/mirror", "sub/mirror/hooks", "trees/x"] {
        let host = root.join(host);
        let mut guest = granted(&host, None, false);
        assert!(guest.write("new", b"x").await.is_err(), "{}", host.display());
        granted(&host, None, true).write("new", b"x").await.unwrap();
    }
    // A grant that names `.git`, which is a dangerous grant, includes what is in it.
    fs::rename(root.join("sub/mirror"), root.join("sub/.git")).unwrap();
    let mut guest = granted(&root.join("sub/.git"), None, false);
    guest.write("config", b"x").await.unwrap();
}

#[tokio::test]
async fn scratch_overlays_are_neither_read_nor_changed() {
    let (_dir, root) = repositories();
    let overlay = format!("scratch/{OVERLAY_PREFIX}0123456789abcdef");
    fs::create_dir_all(root.join(&overlay).join("upper")).unwrap();
    fs::write(root.join(&overlay).join("upper/x"), "theirs").unwrap();
    for mut guest in guests(&root) {
        let file = format!("{overlay}/upper/x");
        assert!(guest.read(&file).await.is_err());
        assert!(guest.list(&overlay).await.is_err());
        assert!(guest.write(&file, b"x").await.is_err());
        assert!(guest.write(&format!("{overlay}/upper/y"), b"x").await.is_err());
        assert!(guest.write(&format!("{overlay}.path"), b"x").await.is_err());
        assert!(guest.rename((0, &overlay), (0, "z")).await.is_err());
        assert!(
            guest
                .rename((0, "lone"), (0, &format!("{overlay}2")))
                .await
                .is_err()
        );
        guest.write("scratch/mine", b"x").await.unwrap();
    }
    for inside in ["", "upper"] {
        let dir = DirGrant {
            host: root.join(&overlay).join(inside),
            guest: "/w".into(),
            access: DirAccess::READ,
            overlay: None,
        };
        let grants = toolcell_core::Grants {
            dirs: vec![dir],
            ..Default::default()
        };
        assert!(open_roots(grants).is_err(), "{inside}");
    }
}

#[tokio::test]
async fn overlay_is_accessible_only_through_its_own_grant() {
    let (_dir, root) = repositories();
    let overlay = root.join("changes");
    fs::create_dir_all(overlay.join("upper")).unwrap();
    let grant = |host: PathBuf, guest: &str, overlay| DirGrant {
        host,
        guest: guest.into(),
        access: DirAccess::WRITE,
        overlay,
    };
    let dirs = vec![
        grant(root.join("lone"), "/w", Some(overlay)),
        grant(root.clone(), "/all", None),
    ];
    let mut guest = Guest::granted(dirs, &Limits::default(), Denials::default());
    guest.write("x", b"x").await.unwrap();
    let all = guest.root(1);
    let read = guest
        .view()
        .open_at(
            all,
            PathFlags::empty(),
            "changes/upper/x".into(),
            OpenFlags::empty(),
            DescriptorFlags::READ,
        )
        .await;
    assert!(code(read).is_err());
}

//! A directory with an overlay behaves like any other, and the directory itself does not change.

mod behind_links;
mod chosen;
mod commit;
mod conflicts;
mod interrupted;
mod long_files;
mod model;
mod skipped;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use toolcell_core::policy::Limits;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor, NewTimestamp, OpenFlags, PathFlags,
};

use super::guest::{Guest, borrow, code};
use crate::files::overlay::{
    Change, ChangeKind, CommitError, CommitOptions, OnConflict, Version, cancelled_after, changes, commit,
    conflicts, discard, versions,
};

struct Scratch {
    _dir: tempfile::TempDir,
    host: PathBuf,
    overlay: PathBuf,
}

/// A directory with `a/x`, `a/y`, `b/x`, `c` and the link `l` to `c`.
fn scratch() -> Scratch {
    let dir = tempfile::tempdir().unwrap();
    let (host, overlay) = (dir.path().join("host"), dir.path().join("changes"));
    plant(&host);
    Scratch {
        _dir: dir,
        host,
        overlay,
    }
}

fn options() -> CommitOptions {
    CommitOptions::default()
}

fn plant(host: &Path) {
    for sub in ["a", "b"] {
        fs::create_dir_all(host.join(sub)).unwrap();
    }
    for file in ["a/x", "a/y", "b/x", "c"] {
        fs::write(host.join(file), format!("old {file}")).unwrap();
    }
    symlink("c", host.join("l")).unwrap();
}

impl Scratch {
    fn guest(&self, rights: &str) -> Guest {
        Guest::layered(&self.host, &self.overlay, rights, &Limits::default())
    }

    fn changes(&self) -> Vec<String> {
        shown(&changes(&self.host, &self.overlay, &options()).unwrap().found)
    }
}

fn shown(changes: &[Change]) -> Vec<String> {
    let sign = |kind| match kind {
        ChangeKind::Added => '+',
        ChangeKind::Changed => '~',
        ChangeKind::Deleted => '-',
    };
    let line = |c: &Change| format!("{}{}", sign(c.kind), c.path.display());
    changes.iter().map(line).collect()
}

/// Everything below a directory: contents of files, targets of links, nothing for directories.
fn tree(root: &Path) -> BTreeMap<PathBuf, Option<String>> {
    fn walk(root: &Path, at: &Path, found: &mut BTreeMap<PathBuf, Option<String>>) {
        for entry in fs::read_dir(root.join(at)).unwrap() {
            let path = at.join(entry.unwrap().file_name());
            let kind = fs::symlink_metadata(root.join(&path)).unwrap().file_type();
            let what = match () {
                () if kind.is_symlink() => Some(format!(
                    "-> {}",
                    fs::read_link(root.join(&path)).unwrap().display()
                )),
                () if kind.is_dir() => None,
                () => Some(fs::read_to_string(root.join(&path)).unwrap()),
            };
            found.insert(path.clone(), what);
            if kind.is_dir() {
                walk(root, &path, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(root, Path::new(""), &mut found);
    found
}

/// The same, as seen by a guest.
async fn seen(guest: &mut Guest, at: &str, found: &mut BTreeMap<PathBuf, Option<String>>) {
    for name in guest.list(if at.is_empty() { "." } else { at }).await.unwrap() {
        let path = if at.is_empty() {
            name
        } else {
            format!("{at}/{name}")
        };
        let root = guest.root(0);
        let target = guest.view().readlink_at(root, path.clone()).await;
        let what = match code(target) {
            Ok(target) => Some(format!("-> {target}")),
            Err(_) => match guest.list(&path).await {
                Ok(_) => None,
                Err(_) => Some(String::from_utf8(guest.read(&path).await.unwrap()).unwrap()),
            },
        };
        let is_dir = what.is_none();
        found.insert(path.clone().into(), what);
        if is_dir {
            Box::pin(seen(guest, &path, found)).await;
        }
    }
}

#[tokio::test]
async fn changes_are_seen_by_the_guest_and_not_in_the_directory() {
    let scratch = scratch();
    let before = tree(&scratch.host);
    let mut guest = scratch.guest("write");
    assert_eq!(guest.read("a/x").await.unwrap(), b"old a/x");
    guest.write("a/x", b"new").await.unwrap();
    guest.write("d/none", b"").await.unwrap_err();
    guest.mkdir("d").await.unwrap();
    guest.write("d/e", b"made").await.unwrap();
    guest.unlink("c").await.unwrap();
    guest.unlink("b/x").await.unwrap();
    guest.rmdir("b").await.unwrap();
    assert_eq!(guest.read("a/x").await.unwrap(), b"new");
    assert_eq!(guest.read("c").await, Err(ErrorCode::NoEntry));
    assert_eq!(guest.list(".").await.unwrap(), ["a", "d", "l"]);

    // The next call sees it as well.
    let mut next = scratch.guest("read");
    assert_eq!(next.read("d/e").await.unwrap(), b"made");
    assert_eq!(next.list("a").await.unwrap(), ["x", "y"]);
    assert_eq!(next.list(".").await.unwrap(), ["a", "d", "l"]);

    assert_eq!(tree(&scratch.host), before);
    assert_eq!(scratch.changes(), ["~a/x", "-b", "-c", "+d", "+d/e"]);
}

#[tokio::test]
async fn removed_entry_stays_hidden_when_recreated() {
    let scratch = scratch();
    let mut guest = scratch.guest("write");
    for path in ["a/x", "a/y"] {
        guest.unlink(path).await.unwrap();
    }
    guest.rmdir("a").await.unwrap();
    guest.mkdir("a").await.unwrap();
    assert_eq!(guest.list("a").await.unwrap(), [] as [&str; 0]);
    guest.write("a/y", b"again").await.unwrap();
    assert_eq!(guest.list("a").await.unwrap(), ["y"]);
    assert_eq!(scratch.changes(), ["-a/x", "~a/y"]);
    commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options()).unwrap();
    assert_eq!(fs::read_to_string(scratch.host.join("a/y")).unwrap(), "again");
    assert!(!scratch.host.join("a/x").exists());
}

#[tokio::test]
async fn commit_applies_the_listed_changes_and_discard_drops_them() {
    for carry_out in [true, false] {
        let scratch = scratch();
        let before = tree(&scratch.host);
        let mut guest = scratch.guest("write");
        guest.write("a/x", b"new").await.unwrap();
        guest.rename((0, "c"), (0, "a/c")).await.unwrap();
        guest.symlink("a", "link").await.unwrap();
        guest.unlink("b/x").await.unwrap();
        let listed = scratch.changes();
        assert_eq!(listed, ["+a/c", "~a/x", "-b/x", "-c", "+link"]);
        let mut visible = BTreeMap::new();
        seen(&mut guest, "", &mut visible).await;
        if carry_out {
            assert_eq!(
                shown(
                    &commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options())
                        .unwrap()
                        .found
                ),
                listed
            );
            assert_eq!(tree(&scratch.host), visible);
        } else {
            discard(&scratch.host, &scratch.overlay).unwrap();
            assert_eq!(tree(&scratch.host), before);
        }
        assert_eq!(scratch.changes(), [] as [&str; 0]);
        let mut after = BTreeMap::new();
        seen(&mut scratch.guest("read"), "", &mut after).await;
        assert_eq!(after, tree(&scratch.host));
    }
}

#[tokio::test]
async fn versions_of_long_files_are_shown_by_length_only() {
    let scratch = scratch();
    let mut guest = scratch.guest("write");
    guest.write("a/x", b"mine").await.unwrap();
    guest.unlink("c").await.unwrap();
    guest.symlink("a/x", "d").await.unwrap();
    let look = |path: &str, most| versions(&scratch.host, &scratch.overlay, Path::new(path), most).unwrap();
    let file = |text: &str| Version::File {
        len: text.len() as u64,
        bytes: Some(text.into()),
    };
    let long = |len| Version::File { len, bytes: None };
    assert_eq!(look("a/x", 7), (file("old a/x"), file("mine")));
    assert_eq!(look("a/x", 6), (long(7), file("mine")));
    assert_eq!(look("c", 100), (file("old c"), Version::Nothing));
    assert_eq!(look("d", 100), (Version::Nothing, Version::Link("a/x".into())));
    assert_eq!(look("a", 100), (Version::Directory, Version::Directory));
}

#[tokio::test]
async fn rights_quotas_and_confinement_hold_with_an_overlay() {
    let scratch = scratch();
    fs::write(scratch.host.parent().unwrap().join("secret"), "secret").unwrap();
    symlink("../secret", scratch.host.join("out")).unwrap();
    symlink("loop", scratch.host.join("loop")).unwrap();
    let denied = Err(ErrorCode::NotPermitted);
    let mut reader = scratch.guest("read");
    assert_eq!(reader.write("a/x", b"x").await, denied);
    assert_eq!(reader.unlink("a/x").await, denied);
    assert_eq!(reader.mkdir("new").await, denied);
    assert_eq!(reader.rename((0, "c"), (0, "d")).await, denied);

    let mut guest = scratch.guest("write");
    for path in [
        "../secret",
        "out",
        "a/../../secret",
        "/etc/passwd",
        "../changes/upper",
        "loop",
    ] {
        assert!(guest.read(path).await.is_err(), "{path}");
        assert!(guest.write(path, b"x").await.is_err(), "{path}");
        assert!(guest.stat(&format!("{path}/.")).await.is_err(), "{path}");
    }
    assert_eq!(guest.symlink("../secret", "mine").await, denied);
    assert!(guest.rename((0, "out"), (0, "a/out")).await.is_err());
    assert_eq!(guest.read("l").await.unwrap(), b"old c");

    // Copying a file up costs as much as writing it.
    let limits = Limits {
        file_bytes: 6,
        ..Limits::default()
    };
    let mut small = Guest::layered(&scratch.host, &scratch.overlay, "write", &limits);
    let opened = small
        .open("a/x", OpenFlags::empty(), DescriptorFlags::WRITE)
        .await;
    assert_eq!(opened.map(drop), Err(ErrorCode::Quota));
    let opened = small.open("c", OpenFlags::empty(), DescriptorFlags::WRITE).await;
    assert!(opened.is_ok());
    assert_eq!(
        scratch.changes(),
        [] as [&str; 0],
        "a file that is the same is no change"
    );
}

#[tokio::test]
async fn file_that_is_only_read_is_not_copied() {
    let scratch = scratch();
    let mut guest = scratch.guest("write");
    let modified = || fs::metadata(scratch.host.join("c")).unwrap().modified().unwrap();
    let before = modified();
    let fd = guest
        .open("c", OpenFlags::empty(), DescriptorFlags::READ)
        .await
        .unwrap();
    let now = || NewTimestamp::Now;
    assert!(guest.view().set_times(borrow(&fd), now(), now()).await.is_err());
    assert!(guest.view().set_size(borrow(&fd), 0).await.is_err());
    assert!(guest.view().write(borrow(&fd), b"x".to_vec(), 0).await.is_err());
    let root = guest.root(0);
    let set = guest
        .view()
        .set_times_at(root, PathFlags::SYMLINK_FOLLOW, "l".into(), now(), now())
        .await;
    code(set).unwrap();
    assert_eq!(modified(), before);
}

#[tokio::test]
async fn directory_of_the_lower_layer_is_copied_not_renamed() {
    let scratch = scratch();
    let mut guest = scratch.guest("write");
    assert_eq!(
        guest.rename((0, "a"), (0, "z")).await,
        Err(ErrorCode::CrossDevice)
    );
    guest.mkdir("new").await.unwrap();
    guest.write("new/f", b"f").await.unwrap();
    guest.rename((0, "new"), (0, "newer")).await.unwrap();
    assert_eq!(guest.read("newer/f").await.unwrap(), b"f");
}

#[tokio::test]
async fn what_was_removed_and_made_again_survives_commit() {
    for number in 0..4 {
        let scratch = scratch();
        let before = tree(&scratch.host);
        let mut guest = scratch.guest("write");
        let old = |path: &str| before[Path::new(path)].clone().unwrap().into_bytes();
        match number {
            0 => {
                guest.rename((0, "c"), (0, "new")).await.unwrap();
                guest.rename((0, "new"), (0, "c")).await.unwrap();
            }
            1 => {
                guest.unlink("c").await.unwrap();
                guest.write("c", &old("c")).await.unwrap();
            }
            2 => {
                guest.unlink("b/x").await.unwrap();
                guest.rmdir("b").await.unwrap();
                guest.mkdir("b").await.unwrap();
                guest.write("b/x", &old("b/x")).await.unwrap();
            }
            _ => {
                guest.unlink("b/x").await.unwrap();
                guest.rmdir("b").await.unwrap();
                guest.write("b", b"file").await.unwrap();
                guest.unlink("b").await.unwrap();
                guest.mkdir("b").await.unwrap();
                guest.write("b/x", &old("b/x")).await.unwrap();
            }
        }
        let listed = changes(&scratch.host, &scratch.overlay, &options())
            .unwrap()
            .found;
        assert_eq!(listed, [], "{number}");
        let done = commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options()).unwrap();
        assert_eq!(done.found, [], "{number}");
        assert_eq!(tree(&scratch.host), before, "{number}");
    }
}

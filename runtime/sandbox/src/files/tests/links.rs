//! Links never lead another program out of a granted directory, whatever a guest creates, moves and links.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use toolcell_core::policy::Limits;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

use super::guest::Guest;
use crate::files::overlay::{CommitOptions, OnConflict, commit};

/// A granted directory, two levels below one with the same names.
struct Tree {
    dir: tempfile::TempDir,
    inside: PathBuf,
}

fn tree() -> Tree {
    let dir = tempfile::tempdir().unwrap();
    let outer = dir.path().join("outer");
    let inside = outer.join("inside");
    // Every upward path finds an entry.
    for above in [dir.path(), &outer] {
        for name in ["a", "b", "c"] {
            fs::create_dir_all(above.join(name).join("b")).unwrap();
            fs::write(above.join(name).join("f"), "secret").unwrap();
        }
        fs::write(above.join("f"), "secret").unwrap();
    }
    for name in ["a/b", "b", "c/a/b"] {
        fs::create_dir_all(inside.join(name)).unwrap();
    }
    for name in ["f", "a/f", "c/a/f"] {
        fs::write(inside.join(name), "inside").unwrap();
    }
    // Links that a user may have: leading out, up and down, and dangling.
    for (target, path) in [
        ("../../f", "a/out"),
        ("../..", "b/up"),
        ("../c/a", "a/across"),
        ("../../c", "a/b/far"),
        ("b/far/f", "a/deep"),
        ("b/x/f", "c/nothing"),
        ("a", "same"),
    ] {
        symlink(target, inside.join(path)).unwrap();
    }
    symlink(dir.path().join("f"), inside.join("c/absolute")).unwrap();
    symlink(inside.join("c/a/f"), inside.join("c/home")).unwrap();
    Tree { dir, inside }
}

/// Returns every link that leads another program out, with its target.
fn leading_out(top: &Path) -> BTreeMap<PathBuf, PathBuf> {
    let root = top.canonicalize().unwrap();
    let mut found = BTreeMap::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_symlink() && entry.path().canonicalize().is_ok_and(|to| !to.starts_with(&root))
            {
                found.insert(entry.path(), fs::read_link(entry.path()).unwrap());
            }
        }
    }
    found
}

/// Returns every entry beside the granted directory and the overlay, with the content of files.
fn contents(tree: &Tree) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![tree.dir.path().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path == tree.inside || path == tree.dir.path().join("overlay") {
                continue;
            }
            if path.is_dir() {
                directories.push(path.clone());
            }
            found.insert(path.clone(), fs::read(path).ok());
        }
    }
    found
}

#[derive(Debug, Clone)]
enum Step {
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    Mkdir(String),
    Write(String),
    Remove(String),
}

fn path() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "c", "f", "x", "same"]),
        2 => prop::sample::select(vec!["out", "up", "across", "far", "deep", "nothing", "home"]),
    ];
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn target() -> impl Strategy<Value = String> {
    prop_oneof![8 => path(), 1 => path().prop_map(|path| format!("../{path}")), 1 => Just("..".to_owned())]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (path(), path()).prop_map(|(a, b)| Step::Rename(a, b)),
        2 => (path(), path()).prop_map(|(a, b)| Step::Link(a, b)),
        5 => (target(), path()).prop_map(|(a, b)| Step::Symlink(a, b)),
        2 => path().prop_map(Step::Mkdir),
        1 => path().prop_map(Step::Write),
        2 => path().prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 1..40)
}

async fn take(guest: &mut Guest, step: &Step) {
    // Most operations are refused or impossible.
    let _ = match step {
        Step::Rename(from, to) => guest.rename((0, from), (0, to)).await,
        Step::Link(from, to) => guest.link((0, from), (0, to)).await,
        Step::Symlink(target, path) => guest.symlink(target, path).await,
        Step::Mkdir(path) => guest.mkdir(path).await,
        Step::Write(path) => guest.write(path, b"x").await,
        Step::Remove(path) => match guest.unlink(path).await {
            Ok(()) => Ok(()),
            Err(_) => guest.rmdir(path).await,
        },
    };
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_operations_make_a_link_lead_out(steps in steps()) {
        let tree = tree();
        let before = leading_out(&tree.inside);
        prop_assert_eq!(before.len(), 3);
        let mut guest = Guest::new(&[(&tree.inside, "/w", "write")]);
        runtime().block_on(async {
            for step in &steps {
                take(&mut guest, step).await;
                for (path, target) in leading_out(&tree.inside) {
                    prop_assert_eq!(before.get(&path), Some(&target), "{:?} after {:?}", path, step);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn no_operations_on_an_overlay_make_a_link_lead_out(steps in steps()) {
        let tree = tree();
        let before = leading_out(&tree.inside);
        let overlay = tree.dir.path().join("overlay");
        runtime().block_on(async {
            let mut guest = Guest::layered(&tree.inside, &overlay, "write", &Limits::default());
            for step in &steps {
                take(&mut guest, step).await;
            }
        });
        commit(&tree.inside, &overlay, OnConflict::Refuse, &CommitOptions::default()).unwrap();
        for (path, target) in leading_out(&tree.inside) {
            prop_assert_eq!(before.get(&path), Some(&target), "{:?}", path);
        }
    }

    #[test]
    fn no_order_of_partial_commits_makes_a_link_lead_out(
        steps in steps(),
        only in prop::collection::vec(prop::collection::btree_set(path().prop_map(PathBuf::from), 1..4), 1..4),
        more in steps(),
    ) {
        let tree = tree();
        let before = leading_out(&tree.inside);
        let outside = contents(&tree);
        let overlay = tree.dir.path().join("overlay");
        for (round, only) in only.into_iter().enumerate() {
            runtime().block_on(async {
                let mut guest = Guest::layered(&tree.inside, &overlay, "write", &Limits::default());
                for step in if round == 1 { &more } else { &steps } {
                    take(&mut guest, step).await;
                }
            });
            let options = CommitOptions { only: Some(only.clone()), ..CommitOptions::default() };
            // What is refused stays in the overlay.
            let _ = commit(&tree.inside, &overlay, OnConflict::Overwrite, &options);
            for (path, target) in leading_out(&tree.inside) {
                prop_assert_eq!(before.get(&path), Some(&target), "{:?} after {:?}", path, only);
            }
            prop_assert_eq!(&contents(&tree), &outside, "{:?}", only);
        }
    }
}

#[tokio::test]
async fn climbing_link_gets_no_hard_link() {
    let tree = tree();
    let mut guest = Guest::new(&[(&tree.inside, "/w", "write")]);
    for path in ["a/across", "same", "a/out", "c/absolute"] {
        let linked = guest.link((0, path), (0, "second")).await;
        assert_eq!(linked, Err(ErrorCode::NotPermitted), "{path}");
        assert!(fs::symlink_metadata(tree.inside.join("second")).is_err());
    }
    guest.link((0, "f"), (0, "second")).await.unwrap();
    assert_eq!(guest.read("second").await.unwrap(), b"inside");
}

#[tokio::test]
async fn directory_with_a_climbing_link_is_not_moved() {
    let tree = tree();
    let mut guest = Guest::new(&[(&tree.inside, "/w", "write")]);
    for (from, to) in [("a/b", "moved"), ("a", "b/moved"), ("b", "moved"), ("c", "moved")] {
        let moved = guest.rename((0, from), (0, to)).await;
        assert_eq!(moved, Err(ErrorCode::NotPermitted), "{from}");
    }
    // One without moves, with links that lead down.
    fs::create_dir_all(tree.inside.join("d/e")).unwrap();
    symlink("e", tree.inside.join("d/down")).unwrap();
    guest.rename((0, "d"), (0, "c/moved")).await.unwrap();
    assert!(tree.inside.join("c/moved/down").canonicalize().is_ok());
    assert_eq!(guest.denials()[0], ("/w/moved".to_owned(), None));
}

#[tokio::test]
async fn link_through_a_climbing_one_is_not_created() {
    let tree = tree();
    let mut guest = Guest::new(&[(&tree.inside, "/w", "write")]);
    for (target, path) in [
        ("a/out", "new"),
        ("a/across/f", "new"),
        ("same/out", "new"),
        // To a directory that contains one.
        ("a", "new"),
        ("out", "a/new"),
    ] {
        let made = guest.symlink(target, path).await;
        assert_eq!(made, Err(ErrorCode::NotPermitted), "{target}");
    }
    for target in ["f", "c/a/f", "c/a", "nothing/yet"] {
        guest.symlink(target, "new").await.unwrap();
        guest.unlink("new").await.unwrap();
    }
}

#[tokio::test]
async fn link_is_checked_at_its_new_location() {
    let tree = tree();
    let mut guest = Guest::new(&[(&tree.inside, "/w", "write")]);
    guest.symlink("out", "b/link").await.unwrap();
    let moved = guest.rename((0, "b/link"), (0, "a/link")).await;
    assert_eq!(moved, Err(ErrorCode::NotPermitted));
    guest.rename((0, "b/link"), (0, "c/link")).await.unwrap();
}

#[tokio::test]
async fn directory_beyond_a_number_of_entries_is_not_moved() {
    for (entries, moves) in [(10_000, true), (10_001, false)] {
        let tree = tree();
        let large = tree.inside.join("large");
        fs::create_dir(&large).unwrap();
        for number in 0..entries {
            fs::write(large.join(number.to_string()), "").unwrap();
        }
        let mut guest = Guest::new(&[(&tree.inside, "/w", "write")]);
        let moved = guest.rename((0, "large"), (0, "moved")).await;
        let expected = if moves {
            Ok(())
        } else {
            Err(ErrorCode::CrossDevice)
        };
        assert_eq!(moved, expected, "{entries}");
        assert_eq!(guest.refusals().len(), usize::from(!moves), "{entries}");
    }
}

#[tokio::test]
async fn long_search_for_links_yields() {
    let tree = tree();
    for number in 0..1_000 {
        fs::write(tree.inside.join("c/a").join(number.to_string()), "").unwrap();
    }
    let mut guest = Guest::new(&[(&tree.inside, "/w", "write")]);
    let moving = guest.rename((0, "c/a"), (0, "moved"));
    let turns = std::sync::atomic::AtomicU32::new(0);
    let others = async {
        loop {
            turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        moved = moving => moved.unwrap(),
        () = others => unreachable!(),
    }
    assert!(turns.into_inner() >= 5);
}

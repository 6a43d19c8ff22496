//! Moves of directories that hold denied or protected files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use toolcell_core::Denials;
use toolcell_core::denial::{DeniedUse, PathDenial};
use toolcell_core::policy::{DirAccess, DirGrant, Limits};
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

use super::guest::Guest;

struct Tree {
    _dir: tempfile::TempDir,
    root: PathBuf,
    changes: PathBuf,
}

impl Tree {
    /// Those that end with `/` are directories.
    fn new(paths: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let tree = Self {
            root: top.join("root"),
            changes: top.join("changes"),
            _dir: dir,
        };
        make(&tree.root, paths);
        tree
    }

    fn guest(&self, overlay: Option<&Path>, denied: Denials) -> Guest {
        let dir = DirGrant {
            host: self.root.clone(),
            guest: "/w".into(),
            access: DirAccess::WRITE,
            overlay: overlay.map(Path::to_path_buf),
        };
        Guest::granted(vec![dir], &Limits::default(), denied)
    }

    fn denial(&self, path: &str, uses: DeniedUse) -> Denials {
        let denial = PathDenial {
            host: self.root.join(path),
            uses,
            by: format!("deny={path}"),
        };
        Denials {
            paths: vec![denial],
            ..Denials::default()
        }
    }
}

fn make(root: &Path, paths: &[&str]) {
    for path in paths {
        let at = root.join(path);
        if path.ends_with('/') {
            fs::create_dir_all(at).unwrap();
        } else {
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, path).unwrap();
        }
    }
}

/// Files by which a directory is protected, at any depth.
const PROTECTED: [&str; 9] = [
    "toolcell.toml",
    "deep/er/toolcell.lock",
    ".git/config",
    "deep/.envrc",
    ".vscode/tasks.json",
    "deep/.cargo/config.toml",
    ".github/workflows/ci.yml",
    "mirror/HEAD",
    "deep/toolcell-overlay-0123456789abcdef/upper/x",
];

#[tokio::test]
async fn directory_with_a_protected_file_is_not_moved() {
    for file in PROTECTED {
        // As the user made them, and as they lie in the upper layer of an overlay.
        let tree = Tree::new(&[&format!("dl/pkg/{file}"), "plain/x"]);
        make(
            &tree.changes,
            &[&format!("upper/made/pkg/{file}"), "upper/fine/x"],
        );
        let layered = tree.guest(Some(&tree.changes), Denials::default());
        let plain = tree.guest(None, Denials::default());
        for (mut guest, at, fine) in [(layered, "made", "fine"), (plain, "dl", "plain")] {
            for from in [at.to_owned(), format!("{at}/pkg")] {
                for to in ["app", &format!("{fine}/app")] {
                    let moved = guest.rename((0, &from), (0, to)).await;
                    assert_eq!(moved, Err(ErrorCode::NotPermitted), "{file} {from}");
                    // Nor does a link make it appear.
                    let linked = guest.symlink(&from, "app").await;
                    assert_eq!(linked, Err(ErrorCode::NotPermitted), "{file} {from}");
                }
            }
            let refused = guest.refusals();
            assert!(
                refused.iter().all(|by| by.starts_with("built-in: ")),
                "{refused:?}"
            );
            guest.rename((0, fine), (0, "app")).await.unwrap();
        }
        assert!(tree.root.join("dl/pkg").join(file).exists(), "{file}");
    }
}

#[tokio::test]
async fn refused_move_names_what_lies_in_the_directory() {
    let tree = Tree::new(&["app/sub/.git/config"]);
    let mut guest = tree.guest(None, Denials::default());
    assert!(guest.rename((0, "app"), (0, "old")).await.is_err());
    assert_eq!(guest.denials(), [("/w/app/sub/.git".to_owned(), None)]);
}

#[tokio::test]
async fn directory_with_programs_is_moved_only_if_allowed() {
    let tree = Tree::new(&[
        "a/.git/HEAD",
        "a/.git/objects/",
        "a/.git/refs/",
        "b/toolcell.toml",
    ]);
    let denied = Denials {
        programs: true,
        ..Denials::default()
    };
    let mut guest = tree.guest(None, denied);
    guest.rename((0, "a"), (0, "moved")).await.unwrap();
    assert!(guest.rename((0, "b"), (0, "moved/b")).await.is_err());
}

#[tokio::test]
async fn name_is_protected_at_its_old_and_its_new_path() {
    // Only one of the two paths ends in a protected name.
    for (file, from, to, moves) in [
        ("x/bin/tool", "x", ".local", false),
        (".local/bin/tool", ".local", "x", false),
        (".local/bin/tool", ".local/bin", "x", false),
        ("lib/x.pth", "lib", "site-packages", false),
        ("lib/x.pth", "lib", "packages", true),
        ("x/bin/tool", "x", "y", true),
        ("sub/x/bin/tool", "sub/x/bin", "z", true),
    ] {
        let tree = Tree::new(&[file]);
        let mut guest = tree.guest(None, Denials::default());
        let moved = guest.rename((0, from), (0, to)).await;
        assert_eq!(moved.is_ok(), moves, "{from} {to}");
    }
}

#[tokio::test]
async fn denied_file_of_another_name_is_not_moved_with_its_directory() {
    for uses in [DeniedUse::All, DeniedUse::Change] {
        let tree = Tree::new(&["private/key", "data/deep/", "data/x"]);
        fs::hard_link(tree.root.join("private/key"), tree.root.join("data/deep/second")).unwrap();
        let mut guest = tree.guest(None, tree.denial("private/key", uses));
        for from in ["data", "data/deep", "private"] {
            let moved = guest.rename((0, from), (0, "elsewhere")).await;
            assert_eq!(moved, Err(ErrorCode::NotPermitted), "{from}");
        }
        assert!(guest.refusals().iter().all(|by| by == "deny=private/key"));
    }
}

#[tokio::test]
async fn link_with_a_slash_moves_no_directory_unseen() {
    let tree = Tree::new(&["app/.git/config"]);
    symlink("app", tree.root.join("way")).unwrap();
    for overlay in [None, Some(&*tree.changes)] {
        let mut guest = tree.guest(overlay, Denials::default());
        let moved = guest.rename((0, "way/"), (0, "old")).await;
        assert!(moved.is_err(), "{overlay:?}");
    }
    assert!(tree.root.join("app/.git/config").exists());
}

#[tokio::test]
async fn links_on_the_way_to_a_denied_path_are_not_changed() {
    for (links, denied) in [
        // The denied path itself, in one step or several.
        (&[("v1/t.wasm", "my.wasm")][..], "my.wasm"),
        (
            &[("other.wasm", "my.wasm"), ("v1/t.wasm", "other.wasm")],
            "my.wasm",
        ),
        // A directory on the way.
        (&[("v1", "cur")], "cur/t.wasm"),
        (&[("sub/cur", "way"), ("../v1", "sub/cur")], "way/t.wasm"),
        (&[("v1", "cur")], "cur/../v1/t.wasm"),
        // Nothing is there yet.
        (&[("v1", "cur")], "cur/later.wasm"),
        (&[("v2", "cur")], "cur/later.wasm"),
    ] {
        for overlay in [false, true] {
            let tree = Tree::new(&["v1/t.wasm", "sub/x", "dropped"]);
            for (target, link) in links {
                symlink(target, tree.root.join(link)).unwrap();
            }
            let overlay = overlay.then_some(&*tree.changes);
            let mut guest = tree.guest(overlay, tree.denial(denied, DeniedUse::Change));
            for (target, link) in links {
                assert!(guest.unlink(link).await.is_err(), "{link} {denied}");
                assert!(
                    guest.rename((0, link), (0, "x")).await.is_err(),
                    "{link} {denied}"
                );
                assert!(
                    guest.rename((0, "dropped"), (0, link)).await.is_err(),
                    "{link} {denied}"
                );
                assert!(guest.link((0, link), (0, "x")).await.is_err(), "{link} {denied}");
                if let Some((parent, _)) = link.rsplit_once('/') {
                    assert!(
                        guest.rename((0, parent), (0, "x")).await.is_err(),
                        "{parent} {denied}"
                    );
                }
                assert_eq!(fs::read_link(tree.root.join(link)).unwrap(), Path::new(target));
            }
            if links[0].0 != "v2" {
                assert!(guest.rename((0, "v1"), (0, "x")).await.is_err(), "{denied}");
            }
            assert!(guest.refusals().iter().all(|by| *by == format!("deny={denied}")));
            guest.write("v1/ordinary", b"x").await.unwrap();
            if !denied.ends_with("later.wasm") {
                assert_eq!(guest.read(denied).await.unwrap(), b"v1/t.wasm");
                assert!(guest.write("v1/t.wasm", b"x").await.is_err(), "{denied}");
            }
        }
    }
}

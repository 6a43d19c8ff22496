//! Denials hold for every operation and every path.

mod programs;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use toolcell_core::denial::{Denials, DeniedUse, PathDenial};
use toolcell_core::policy::{DirAccess, DirGrant, Limits};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor, NewTimestamp, OpenFlags, PathFlags,
};

use super::guest::{Guest, borrow, code, open_roots};
use crate::files::denied::ancestors;

/// `private/key`, `data/file`, and links and hard links that lead to `private`.
struct Tree {
    _dir: tempfile::TempDir,
    root: PathBuf,
    scratch: PathBuf,
}

fn tree() -> Tree {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("root");
    fs::create_dir_all(root.join("private/sub")).unwrap();
    fs::create_dir_all(root.join("data/deep")).unwrap();
    fs::write(root.join("private/key"), "secret").unwrap();
    fs::write(root.join("data/file"), "file").unwrap();
    symlink("private", root.join("way")).unwrap();
    symlink("private/key", root.join("alias")).unwrap();
    symlink("../private", root.join("data/up")).unwrap();
    symlink("way/sub/../key", root.join("crooked")).unwrap();
    Tree {
        scratch: dir.path().join("scratch"),
        root,
        _dir: dir,
    }
}

impl Tree {
    fn deny(&self, path: &str) -> String {
        format!("deny={}", self.root.join(path).display())
    }

    /// A guest without and one with an overlay.
    fn guests(&self, lines: &[String]) -> [Guest; 2] {
        [None, Some(self.scratch.as_path())].map(|overlay| Guest::denied(&self.root, overlay, lines))
    }
}

const SPELLINGS: [&str; 17] = [
    "private",
    "private/",
    "private/.",
    "private/key",
    "./private/key",
    ".//private//key",
    "data/../private/key",
    "data/deep/../../private/key",
    "private/sub/../key",
    "private/../private/key",
    "private/nothing",
    "way",
    "way/key",
    "alias",
    "data/up/key",
    "crooked",
    "PRIVATE/key",
];

#[tokio::test]
async fn denied_directory_is_denied_in_every_spelling() {
    let tree = tree();
    for (layer, mut guest) in tree.guests(&[tree.deny("private")]).into_iter().enumerate() {
        for path in SPELLINGS {
            let denied = Some(ErrorCode::NotPermitted);
            assert_eq!(guest.read(path).await.err(), denied, "{layer} read {path}");
            assert_eq!(guest.list(path).await.err(), denied, "{layer} list {path}");
            assert!(guest.write(path, b"x").await.is_err(), "{layer} write {path}");
            let root = guest.root(0);
            let follow = PathFlags::SYMLINK_FOLLOW;
            let stat = guest.view().stat_at(root, follow, path.into()).await;
            assert_eq!(code(stat).err(), denied, "{layer} stat {path}");
            let root = guest.root(0);
            let hash = guest.view().metadata_hash_at(root, follow, path.into()).await;
            assert_eq!(code(hash).err(), denied, "{layer} hash {path}");
            let now = || NewTimestamp::Now;
            let root = guest.root(0);
            let times = guest
                .view()
                .set_times_at(root, follow, path.into(), now(), now())
                .await;
            assert_eq!(code(times).err(), denied, "{layer} times {path}");
        }
        for path in SPELLINGS
            .into_iter()
            .filter(|path| !["way", "alias", "crooked"].contains(path))
        {
            assert!(guest.unlink(path).await.is_err(), "{layer} unlink {path}");
            assert!(guest.rmdir(path).await.is_err(), "{layer} rmdir {path}");
            assert!(
                guest.rename((0, path), (0, "x")).await.is_err(),
                "{layer} from {path}"
            );
            assert!(
                guest.rename((0, "data/file"), (0, path)).await.is_err(),
                "{layer} to {path}"
            );
            assert!(
                guest.rename((0, "data/deep"), (0, path)).await.is_err(),
                "{layer} to {path}"
            );
            assert!(
                guest.link((0, path), (0, "x")).await.is_err(),
                "{layer} link {path}"
            );
            assert!(
                guest.link((0, "data/file"), (0, path)).await.is_err(),
                "{layer} link to {path}"
            );
            assert!(
                guest.symlink("data", path).await.is_err(),
                "{layer} symlink {path}"
            );
            assert!(guest.mkdir(path).await.is_err(), "{layer} mkdir {path}");
        }
        assert!(guest.refusals().iter().all(|by| *by == tree.deny("private")));
        assert!(!guest.refusals().is_empty());
        // Siblings are unaffected, and the denied name is listed.
        assert_eq!(guest.read("data/file").await.unwrap(), b"file");
        assert!(guest.list(".").await.unwrap().contains(&"private".to_owned()));
    }
    assert_eq!(
        fs::read_to_string(tree.root.join("private/key")).unwrap(),
        "secret"
    );
    assert!(!tree.root.join("x").exists());
}

#[tokio::test]
async fn denied_file_is_denied_under_each_of_its_names() {
    let tree = tree();
    fs::hard_link(tree.root.join("private/key"), tree.root.join("data/second")).unwrap();
    for mut guest in tree.guests(&[tree.deny("private/key")]) {
        for path in ["private/key", "alias", "data/second", "data/up/key"] {
            assert_eq!(
                guest.read(path).await.err(),
                Some(ErrorCode::NotPermitted),
                "{path}"
            );
            assert!(guest.write(path, b"x").await.is_err(), "{path}");
        }
        for path in ["private/key", "data/second", "data/up/key"] {
            assert!(guest.link((0, path), (0, "third")).await.is_err(), "{path}");
        }
        assert!(guest.list("private").await.is_ok());
    }
    assert_eq!(
        fs::read_to_string(tree.root.join("private/key")).unwrap(),
        "secret"
    );
}

#[tokio::test]
async fn missing_path_is_denied_by_name() {
    let tree = tree();
    for (made, mut guest) in ["made", "again"]
        .into_iter()
        .zip(tree.guests(&[tree.deny("data/later/key")]))
    {
        guest.write("data/later", b"x").await.unwrap();
        guest.unlink("data/later").await.unwrap();
        guest.mkdir("data/later").await.unwrap();
        assert!(guest.write("data/later/key", b"x").await.is_err());
        assert!(guest.write("data/later/KEY", b"x").await.is_err());
        assert!(guest.mkdir("data/later/key").await.is_err());
        assert!(guest.symlink("../file", "data/later/key").await.is_err());
        // It is not told apart from what exists, from wherever it is reached.
        for path in [
            "data/later/key/x",
            "data/deep/../later/key/x",
            "data/deep/../../data/later/key/x",
        ] {
            assert_eq!(
                guest.read(path).await.err(),
                Some(ErrorCode::NotPermitted),
                "{path}"
            );
        }
        guest.write("data/later/other", b"x").await.unwrap();
        assert!(
            guest
                .rename((0, "data/later/other"), (0, "data/later/key"))
                .await
                .is_err()
        );
        guest.unlink("data/later/other").await.unwrap();
        guest.rmdir("data/later").await.unwrap();
        // Nor is it created elsewhere and moved there, or reached through a link in place of its directory.
        guest.mkdir(made).await.unwrap();
        guest.write(&format!("{made}/key"), b"x").await.unwrap();
        assert!(guest.rename((0, made), (0, "data/later")).await.is_err());
        assert!(guest.symlink("deep", "data/later").await.is_err());
    }
    assert!(!tree.root.join("data/later/key").exists());
}

#[tokio::test]
async fn parent_of_a_denied_path_is_not_moved() {
    let tree = tree();
    fs::write(tree.root.join("data/deep/key"), "secret").unwrap();
    for mut guest in tree.guests(&[tree.deny("data/deep/key")]) {
        for path in ["data", "data/deep", "./data/", "data/deep/../deep"] {
            let moved = guest.rename((0, path), (0, "elsewhere")).await;
            assert_eq!(moved.err(), Some(ErrorCode::NotPermitted), "{path}");
        }
        assert_eq!(guest.read("data/file").await.unwrap(), b"file");
    }
    assert!(tree.root.join("data/deep/key").exists());
}

#[tokio::test]
async fn open_directory_below_gives_no_access() {
    let tree = tree();
    for mut guest in tree.guests(&[tree.deny("data/deep")]) {
        let dir = OpenFlags::DIRECTORY;
        let data = guest.open("data", dir, DescriptorFlags::READ).await.unwrap();
        for path in ["deep", "deep/x", "./deep/../deep", "../private"] {
            let opened = guest
                .view()
                .open_at(
                    borrow(&data),
                    PathFlags::SYMLINK_FOLLOW,
                    path.into(),
                    OpenFlags::empty(),
                    DescriptorFlags::READ,
                )
                .await;
            assert_eq!(code(opened).err(), Some(ErrorCode::NotPermitted), "{path}");
        }
    }
}

#[test]
fn grant_inside_of_a_denied_directory_is_refused() {
    let tree = tree();
    for (granted, denied, allowed) in [
        ("private", "private", false),
        ("private/sub", "private", false),
        ("private", "way", false),
        ("data", "private", true),
    ] {
        let mut grants = toolcell_core::Grants {
            dirs: vec![DirGrant {
                host: tree.root.join(granted),
                guest: "/w".into(),
                access: DirAccess::READ,
                overlay: None,
            }],
            ..Default::default()
        };
        grants.denied.paths.push(PathDenial {
            host: tree.root.join(denied),
            uses: DeniedUse::All,
            by: "deny".into(),
        });
        assert_eq!(open_roots(grants).is_ok(), allowed, "{granted} {denied}");
    }
}

/// Where a directory is mounted at another path, names alone would not tell that it is denied.
#[test]
fn directories_above_a_grant_are_known_by_identity() {
    use std::os::unix::fs::MetadataExt as _;
    let tree = tree();
    let granted = tree.root.join("private/sub");
    let above: Vec<_> = granted.ancestors().collect();
    let identities = above.iter().map(|dir| {
        let metadata = dir.metadata().unwrap();
        (metadata.dev(), metadata.ino())
    });
    assert_eq!(
        ancestors(&granted).collect::<Vec<_>>(),
        identities.collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn listing_continues_past_a_denied_name() {
    let tree = tree();
    let lines = [tree.deny("private"), tree.deny("data/file")];
    for mut guest in tree.guests(&lines) {
        // Like the C library, which stops at the first name without a hash.
        for name in guest.list(".").await.unwrap() {
            guest.hash(&name).await.unwrap();
        }
        guest.hash("private").await.unwrap();
        for denied in ["private/key", "./private", "data/file", "private/sub", ".."] {
            assert!(guest.hash(denied).await.is_err(), "{denied}");
        }
        assert!(guest.read("private/key").await.is_err());
    }
}

#[tokio::test]
async fn denial_of_changes_allows_reading() {
    let tree = tree();
    let dir = DirGrant {
        host: tree.root.clone(),
        guest: "/w".into(),
        access: DirAccess::WRITE,
        overlay: None,
    };
    let denied = Denials {
        paths: vec![PathDenial {
            host: tree.root.join("data/file"),
            uses: DeniedUse::Change,
            by: "a component".into(),
        }],
        ..Denials::default()
    };
    let mut guest = Guest::granted(vec![dir], &Limits::default(), denied);
    assert_eq!(guest.read("data/file").await.unwrap(), b"file");
    assert!(guest.write("data/file", b"x").await.is_err());
    assert!(guest.unlink("data/file").await.is_err());
    assert!(guest.rename((0, "data"), (0, "x")).await.is_err());
    assert!(guest.link((0, "data/file"), (0, "x")).await.is_err());
    guest.write("data/other", b"x").await.unwrap();
}

#[tokio::test]
async fn link_changed_during_opening_reaches_nothing_denied() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let tree = tree();
    let (switch, other) = (tree.root.join("switch"), tree.root.join("other"));
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let swapping = std::thread::spawn(move || {
        while !flag.load(Ordering::Relaxed) {
            for target in ["data", "private"] {
                let _ = fs::remove_file(&other);
                symlink(target, &other).unwrap();
                fs::rename(&other, &switch).unwrap();
            }
        }
    });
    fs::write(tree.root.join("data/key"), "open").unwrap();
    let [mut plain, mut layered] = tree.guests(&[tree.deny("private")]);
    for _ in 0..500 {
        for guest in [&mut plain, &mut layered] {
            if let Ok(bytes) = guest.read("switch/key").await {
                assert_eq!(bytes, b"open");
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
}

#[tokio::test]
async fn path_beyond_the_limits_of_a_walk_is_refused() {
    let tree = tree();
    let [mut guest, _] = tree.guests(&[]);
    let long = |bytes: usize| format!("{}{}", "./".repeat((bytes - 10) / 2), ".//data/file");
    assert!(
        guest
            .read(&format!("{}data/file", "./".repeat(2_043)))
            .await
            .is_ok()
    );
    assert!(guest.read(&long(4_110)).await.is_err());
    let up_and_down = |times: usize| format!("{}data/file", "data/../".repeat(times));
    assert!(guest.read(&up_and_down(500)).await.is_ok());
    fs::remove_file(tree.root.join("way")).unwrap();
    for i in 0..42 {
        symlink(format!("hop{}", i + 1), tree.root.join(format!("hop{i}"))).unwrap();
    }
    symlink("data/file", tree.root.join("hop42")).unwrap();
    assert!(guest.read("hop3").await.is_ok());
    assert_eq!(guest.read("hop2").await.err(), Some(ErrorCode::Loop));
}

#[test]
fn relative_denial_starts_at_the_working_directory() {
    let tree = tree();
    let here = std::env::current_dir().unwrap();
    let up: PathBuf = here.components().skip(1).map(|_| Path::new("..")).collect();
    let relative = up.join(tree.root.strip_prefix("/").unwrap()).join("private");
    let mut guest = Guest::denied(&tree.root, None, &[format!("deny={}", relative.display())]);
    let denied = &guest.files.roots().unwrap()[0].1.root.denied;
    assert!(
        denied
            .check("private/key", crate::files::denied::Use::Look)
            .is_err()
    );
    assert!(denied.check("data", crate::files::denied::Use::Look).is_ok());
}

/// Paths used by attacks: denied ones, routes to them, and siblings.
const PIECES: [&str; 20] = [
    "private",
    "private/key",
    "private/sub",
    "./private//key",
    "data",
    "data/later",
    "data/later/key",
    "data/file",
    "data/deep",
    "data/up",
    "data/up/key",
    "way",
    "way/key",
    "alias",
    "x",
    "x/key",
    "x/../private/key",
    "y",
    "y/x",
    "data/deep/../../way",
];

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn no_sequence_of_operations_reaches_a_denied_file(
        steps in proptest::collection::vec((0..9_u8, 0..PIECES.len(), 0..PIECES.len()), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tree = tree();
            let lines = [tree.deny("private"), tree.deny("data/later/key")];
            for mut guest in tree.guests(&lines) {
                for (operation, one, other) in &steps {
                    let (one, other) = (PIECES[*one], PIECES[*other]);
                    match operation {
                        0 => {
                            let read = guest.read(one).await.unwrap_or_default();
                            assert!(!read.starts_with(b"secret"), "{one}");
                        }
                        1 => drop(guest.write(one, b"written").await),
                        2 => drop(guest.mkdir(one).await),
                        3 => drop(guest.rmdir(one).await),
                        4 => drop(guest.unlink(one).await),
                        5 => drop(guest.rename((0, one), (0, other)).await),
                        6 => drop(guest.link((0, one), (0, other)).await),
                        7 => drop(guest.symlink(other, one).await),
                        _ => {
                            let names = guest.list(one).await.unwrap_or_default();
                            assert!(!names.contains(&"sub".to_owned()), "{one}");
                        }
                    }
                }
            }
            let inside: Vec<_> = fs::read_dir(tree.root.join("private")).unwrap().flatten().collect();
            assert_eq!(inside.len(), 2, "{inside:?}");
            assert_eq!(fs::read_to_string(tree.root.join("private/key")).unwrap(), "secret");
            assert!(tree.root.join("private").symlink_metadata().unwrap().is_dir());
            assert!(tree.root.join("data/later/key").symlink_metadata().is_err());
        });
    }
}

#[tokio::test]
async fn denied_path_through_a_loop_of_links_is_denied_as_written() {
    let tree = tree();
    for (target, link) in [("b", "a"), ("a", "b")] {
        symlink(target, tree.root.join(link)).unwrap();
    }
    for mut guest in tree.guests(&[tree.deny("a/key")]) {
        assert!(guest.read("a/key").await.is_err());
        assert!(guest.read("data/file").await.is_ok());
    }
}

#[tokio::test]
async fn denial_is_found_at_every_step_of_a_walk() {
    let tree = tree();
    for dir in ["a/b/private", "a/b/c/d", "a/toolcell-overlay-x/upper"] {
        fs::create_dir_all(tree.root.join(dir)).unwrap();
    }
    fs::write(tree.root.join("a/b/private/key"), "secret").unwrap();
    fs::write(tree.root.join("a/b/c/private"), "no secret").unwrap();
    symlink("../private", tree.root.join("a/b/c/up")).unwrap();
    let mut guest = Guest::denied(&tree.root, None, &[tree.deny("a/b/private")]);
    let below = guest
        .open("a/b", OpenFlags::DIRECTORY, DescriptorFlags::READ)
        .await
        .unwrap();
    for path in [
        "private",
        "private/key",
        "Private/key",
        "c/../private/key",
        "c/d/../../private/key",
        "c/up/key",
    ] {
        let denied = Err(ErrorCode::NotPermitted);
        assert_eq!(
            guest.stat(&format!("a/b/{path}")).await.map(drop),
            denied,
            "{path}"
        );
        let follow = PathFlags::SYMLINK_FOLLOW;
        let from_below = guest.view().stat_at(borrow(&below), follow, path.into()).await;
        assert_eq!(code(from_below).map(drop), denied, "{path} from below");
    }
    for (path, allowed) in [
        ("a/b/c/private", true),
        ("a/b/c/d/../private", true),
        ("a/toolcell-overlay-x/upper", false),
    ] {
        assert_eq!(guest.stat(path).await.is_ok(), allowed, "{path}");
    }
}

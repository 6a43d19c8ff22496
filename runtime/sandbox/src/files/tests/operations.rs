//! Single operations at the edges of their rights, without an overlay and with one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use toolcell_core::policy::Limits;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor, NewTimestamp, OpenFlags, PathFlags,
};

use super::guest::{Fd, Guest, borrow, code};

/// A directory with the file `f`, the directory `d` with a file in it, and the link `nowhere`.
struct Tree {
    dir: tempfile::TempDir,
    host: PathBuf,
}

fn tree() -> Tree {
    let dir = tempfile::tempdir().unwrap();
    let host = dir.path().canonicalize().unwrap().join("host");
    fs::create_dir_all(host.join("d")).unwrap();
    fs::write(host.join("f"), "old").unwrap();
    fs::write(host.join("d/inner"), "old").unwrap();
    symlink("missing", host.join("nowhere")).unwrap();
    Tree { dir, host }
}

impl Tree {
    fn plain(&self, rights: &str) -> Guest {
        Guest::new(&[(&self.host, "/w", rights)])
    }

    fn layered(&self, rights: &str) -> Guest {
        let overlay = self.dir.path().join("changes");
        Guest::layered(&self.host, &overlay, rights, &Limits::default())
    }

    /// With an overlay and without, in this order: what the first one changes is not in the directory.
    fn both(&self, rights: &str) -> [Guest; 2] {
        [self.layered(rights), self.plain(rights)]
    }
}

async fn touch(guest: &mut Guest, fd: &Fd) -> Result<(), ErrorCode> {
    let now = || NewTimestamp::Now;
    code(guest.view().set_times(borrow(fd), now(), now()).await)
}

#[tokio::test]
async fn each_wish_for_synchronous_writes_is_refused() {
    for mut guest in tree().both("write") {
        for flag in [
            DescriptorFlags::FILE_INTEGRITY_SYNC,
            DescriptorFlags::DATA_INTEGRITY_SYNC,
            DescriptorFlags::REQUESTED_WRITE_SYNC,
        ] {
            let opened = guest.open("f", OpenFlags::empty(), DescriptorFlags::READ | flag);
            assert!(matches!(opened.await, Err(ErrorCode::Unsupported)));
        }
    }
}

#[tokio::test]
async fn what_is_opened_to_change_needs_no_right_to_read() {
    let (none, create, truncate) = (OpenFlags::empty(), OpenFlags::CREATE, OpenFlags::TRUNCATE);
    let (nothing, read, write) = (
        DescriptorFlags::empty(),
        DescriptorFlags::READ,
        DescriptorFlags::WRITE,
    );
    for (path, oflags, flags, is_open) in [
        ("f", none, write, true),
        ("f", truncate, nothing, true),
        ("new", create, nothing, true),
        ("f", none, nothing, false),
        ("f", none, read, false),
        ("f", none, read | write, false),
    ] {
        for mut guest in tree().both("modify+create") {
            let opened = guest.open(path, oflags, flags).await;
            assert_eq!(opened.is_ok(), is_open, "{path} {oflags:?} {flags:?}");
        }
    }
}

#[tokio::test]
async fn making_and_emptying_a_file_counts_as_writing() {
    for (path, oflags) in [("new", OpenFlags::CREATE), ("f", OpenFlags::TRUNCATE)] {
        for mut guest in tree().both("write") {
            let fd = guest.open(path, oflags, DescriptorFlags::READ).await.unwrap();
            assert_eq!(guest.touched(), [format!("/w/{path}*")]);
            assert!(touch(&mut guest, &fd).await.is_ok(), "{path}");
        }
    }
    for mut guest in tree().both("write") {
        guest.read("f").await.unwrap();
        assert_eq!(guest.touched(), ["/w/f"]);
    }
}

#[tokio::test]
async fn file_opened_for_both_is_read_and_written() {
    for mut guest in tree().both("write") {
        let flags = DescriptorFlags::READ | DescriptorFlags::WRITE;
        let fd = guest.open("f", OpenFlags::empty(), flags).await.unwrap();
        code(guest.view().write(borrow(&fd), b"new".to_vec(), 0).await).unwrap();
        let (bytes, _) = code(guest.view().read(borrow(&fd), 10, 0).await).unwrap();
        assert_eq!(bytes, b"new");
    }
}

#[tokio::test]
async fn file_and_directory_are_distinguished() {
    for mut guest in tree().both("write") {
        let opened = guest.open("f", OpenFlags::DIRECTORY, DescriptorFlags::READ).await;
        assert!(matches!(opened, Err(ErrorCode::NotDirectory)));
        assert!(matches!(guest.unlink("d").await, Err(ErrorCode::IsDirectory)));
        assert!(matches!(guest.rmdir("f").await, Err(ErrorCode::NotDirectory)));
        assert!(matches!(guest.rmdir("d").await, Err(ErrorCode::NotEmpty)));
        assert!(guest.rmdir(".").await.is_err());
        assert!(matches!(
            guest.rename((0, "f"), (0, "d")).await,
            Err(ErrorCode::IsDirectory)
        ));
        guest.mkdir("made").await.unwrap();
        assert!(guest.rename((0, "made"), (0, "f")).await.is_err());
        assert_eq!(guest.read("f").await.unwrap(), b"old");
    }
}

#[tokio::test]
async fn link_with_a_slash_at_its_end_is_not_made() {
    for mut guest in tree().both("write") {
        let made = guest.link((0, "f"), (0, "new/")).await;
        assert!(matches!(made, Err(ErrorCode::NoEntry)), "{made:?}");
        for existing in ["d/", "f"] {
            let made = guest.link((0, "f"), (0, existing)).await;
            assert!(matches!(made, Err(ErrorCode::Exist)), "{existing}: {made:?}");
        }
        let made = guest.link((0, "f"), (0, "f/")).await;
        assert!(matches!(made, Err(ErrorCode::NotDirectory)), "{made:?}");
        assert!(guest.read("new").await.is_err());
    }
}

#[tokio::test]
async fn what_is_there_is_not_made_anew() {
    for mut guest in tree().both("write") {
        for path in ["d", "f", "nowhere"] {
            assert!(matches!(guest.mkdir(path).await, Err(ErrorCode::Exist)), "{path}");
            assert!(
                matches!(guest.symlink("f", path).await, Err(ErrorCode::Exist)),
                "{path}"
            );
        }
        let exclusive = OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        let opened = guest.open("f", exclusive, DescriptorFlags::WRITE).await;
        assert!(matches!(opened, Err(ErrorCode::Exist)));
        let opened = guest
            .open("nowhere", OpenFlags::CREATE, DescriptorFlags::WRITE)
            .await;
        assert!(opened.is_err());
    }
}

#[tokio::test]
async fn file_is_created_only_with_create_right() {
    for (rights, is_made) in [("read+modify+delete", false), ("create", true)] {
        for mut guest in tree().both(rights) {
            let made = guest.open("new", OpenFlags::CREATE, DescriptorFlags::WRITE).await;
            assert_eq!(made.is_ok(), is_made, "{rights}");
        }
    }
}

#[tokio::test]
async fn times_are_set_where_writing_is_allowed() {
    let tree = tree();
    for (mut guest, flags, is_set) in [
        (tree.plain("write"), DescriptorFlags::READ, true),
        (tree.plain("read+modify"), DescriptorFlags::READ, true),
        (tree.plain("read+create"), DescriptorFlags::READ, false),
        (tree.plain("read"), DescriptorFlags::READ, false),
        (tree.layered("write"), DescriptorFlags::READ, false),
        (tree.layered("write"), DescriptorFlags::WRITE, true),
    ] {
        let fd = guest.open("f", OpenFlags::empty(), flags).await.unwrap();
        assert_eq!(touch(&mut guest, &fd).await.is_ok(), is_set);
    }
}

#[tokio::test]
async fn file_is_replaced_only_with_delete_right() {
    let (from, to) = (tree(), tree());
    for (rights, replaces) in [("read+modify+create", false), ("write", true)] {
        let dirs = [
            (from.host.as_path(), "/from", "write"),
            (to.host.as_path(), "/to", rights),
        ];
        let mut guest = Guest::new(&dirs);
        guest.write("moved", b"new").await.unwrap();
        let renamed = guest.rename((0, "moved"), (1, "f")).await;
        assert_eq!(renamed.is_ok(), replaces, "{rights}");
    }
    let dirs = [
        (from.host.as_path(), "/from", "write"),
        (to.host.as_path(), "/to", "write"),
    ];
    let mut guest = Guest::new(&dirs);
    guest.write("moved", b"new").await.unwrap();
    guest.rename((0, "moved"), (1, "other")).await.unwrap();
    assert_eq!(fs::read(to.host.join("other")).unwrap(), b"new");
}

#[tokio::test]
async fn one_file_opened_twice_is_the_same_and_another_is_not() {
    for mut guest in tree().both("read") {
        let read = DescriptorFlags::READ;
        let mut fds = Vec::new();
        for path in ["f", "f", "d/inner"] {
            fds.push(guest.open(path, OpenFlags::empty(), read).await.unwrap());
        }
        for (other, is_same) in [(1, true), (2, false)] {
            let (a, b) = (borrow(&fds[0]), borrow(&fds[other]));
            let same = guest.view().is_same_object(a, b).await;
            assert_eq!(same.unwrap(), is_same);
        }
    }
}

#[tokio::test]
async fn operations_on_paths_leave_no_handle_behind() {
    for mut guest in tree().both("write") {
        guest.table.set_max_capacity(8);
        for _ in 0..50 {
            guest.stat("f").await.unwrap();
            guest.hash("d/inner").await.unwrap();
            let fd = guest
                .open("f", OpenFlags::empty(), DescriptorFlags::READ)
                .await
                .unwrap();
            guest.close(fd);
        }
    }
}

#[tokio::test]
async fn reading_copies_nothing_into_an_overlay() {
    let tree = tree();
    let mut guest = tree.layered("write");
    guest.read("f").await.unwrap();
    guest.list("d").await.unwrap();
    let copies = walk_files(&tree.dir.path().join("changes"));
    assert!(!copies.iter().any(|path| path.ends_with("f")), "{copies:?}");
    guest.write("f", b"new").await.unwrap();
    let copies = walk_files(&tree.dir.path().join("changes"));
    assert!(copies.iter().any(|path| path.ends_with("f")), "{copies:?}");
}

/// All files below a directory.
fn walk_files(top: &std::path::Path) -> Vec<PathBuf> {
    let mut open = vec![top.to_path_buf()];
    let mut files = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

#[tokio::test]
async fn directories_of_the_lower_layer_are_not_moved() {
    let tree = tree();
    symlink("../..", tree.host.join("d/up")).unwrap();
    let mut guest = tree.layered("write");
    assert!(matches!(
        guest.rename((0, "d"), (0, "e")).await,
        Err(ErrorCode::CrossDevice)
    ));
    // One of the upper layer onto a name of the lower one, and onto a free one.
    guest.mkdir("made").await.unwrap();
    fs::create_dir(tree.host.join("empty")).unwrap();
    assert!(matches!(
        guest.rename((0, "made"), (0, "empty")).await,
        Err(ErrorCode::CrossDevice)
    ));
    guest.rename((0, "made"), (0, "free")).await.unwrap();
}

#[tokio::test]
async fn denial_keeps_only_its_ancestors_in_place() {
    let tree = tree();
    fs::create_dir_all(tree.host.join("a/b/secret")).unwrap();
    fs::create_dir_all(tree.host.join("x/y")).unwrap();
    let deny = [format!("deny={}", tree.host.join("a/b/secret").display())];
    let mut guest = Guest::denied(&tree.host, None, &deny);
    for path in ["a", "a/b", "a/b/secret"] {
        assert!(guest.rename((0, path), (0, "z")).await.is_err(), "{path}");
    }
    guest.rename((0, "x/y"), (0, "z")).await.unwrap();
    guest.rename((0, "x"), (0, "other")).await.unwrap();
}

#[tokio::test]
async fn denial_through_a_link_holds_at_its_target() {
    let tree = tree();
    let way = tree.dir.path().join("way");
    symlink(&tree.host, &way).unwrap();
    fs::create_dir(tree.host.join("real")).unwrap();
    symlink("real", tree.host.join("link")).unwrap();
    let deny = [
        format!("deny={}", way.join("new").display()),
        format!("deny={}", way.join("not/yet").display()),
        format!("deny={}", tree.host.join("link/private").display()),
    ];
    let mut guest = Guest::denied(&tree.host, None, &deny);
    assert!(guest.write("new", b"x").await.is_err());
    assert!(guest.write("real/private", b"x").await.is_err());
    assert!(guest.write("yet", b"x").await.is_ok());
    guest.mkdir("not").await.unwrap();
    assert!(guest.write("not/yet", b"x").await.is_err());
    assert!(guest.write("not/other", b"x").await.is_ok());
    // A directory that another program puts in the place of the link is denied as it is written.
    assert!(guest.unlink("link").await.is_err());
    fs::remove_file(tree.host.join("link")).unwrap();
    assert!(guest.mkdir("link").await.is_err());
    fs::create_dir(tree.host.join("link")).unwrap();
    let mut guest = Guest::denied(&tree.host, None, &deny);
    assert!(guest.write("link/private", b"x").await.is_err());
    assert!(guest.write("link/other", b"x").await.is_ok());
}

#[tokio::test]
async fn links_are_followed_up_to_a_number_and_depth() {
    // `l0` leads to a directory, each other one to the one before it.
    for (links, is_made) in [(128, true), (129, false)] {
        let tree = tree();
        let mut guest = tree.plain("write");
        symlink("d", tree.host.join("l0")).unwrap();
        for n in 1..links {
            symlink(format!("l{}", n - 1), tree.host.join(format!("l{n}"))).unwrap();
        }
        let made = guest.symlink(&format!("l{}", links - 1), "last").await;
        assert_eq!(made.is_ok(), is_made, "{links} {made:?}");
    }
    for (depth, is_moved) in [(128, true), (129, false)] {
        let tree = tree();
        fs::create_dir_all(tree.host.join("deep").join("x/".repeat(depth))).unwrap();
        let mut guest = tree.plain("write");
        let moved = guest.rename((0, "deep"), (0, "moved")).await;
        assert_eq!(moved.is_ok(), is_moved, "{depth} {moved:?}");
    }
}

#[tokio::test]
async fn file_metadata_is_read_without_following_links() {
    let tree = tree();
    symlink("f", tree.host.join("link")).unwrap();
    for mut guest in tree.both("read") {
        let root = guest.root(0);
        let stat = guest
            .view()
            .stat_at(root, PathFlags::empty(), "link".into())
            .await;
        let size = code(stat).unwrap().size;
        assert_eq!(size, 1, "of the link, not of the file");
    }
}

#[tokio::test]
async fn parent_components_stay_inside_grant() {
    for mut guest in tree().both("write") {
        assert_eq!(guest.read("d/../f").await.unwrap(), b"old");
        assert_eq!(guest.read("d/./inner").await.unwrap(), b"old");
        for path in ["..", "../host/f", "d/../../host/f"] {
            assert!(
                matches!(guest.read(path).await, Err(ErrorCode::NotPermitted)),
                "{path}"
            );
        }
        let flags = DescriptorFlags::READ;
        let d = guest.open("d", OpenFlags::DIRECTORY, flags).await.unwrap();
        let up = guest
            .view()
            .open_at(
                borrow(&d),
                PathFlags::empty(),
                "../f".into(),
                OpenFlags::empty(),
                flags,
            )
            .await;
        assert!(matches!(code(up), Err(ErrorCode::NotPermitted)));
    }
}

#[tokio::test]
async fn path_has_up_to_4096_bytes_and_40_links() {
    let tree = tree();
    for i in 0..42 {
        symlink(format!("hop{}", i + 1), tree.host.join(format!("hop{i}"))).unwrap();
    }
    symlink("f", tree.host.join("hop42")).unwrap();
    for mut guest in tree.both("read") {
        for (bytes, is_read) in [(4_096, true), (4_097, false)] {
            let path = format!("{}f", "/".repeat(bytes - 3));
            let path = format!("./{path}");
            assert_eq!(path.len(), bytes);
            assert_eq!(guest.read(&path).await.is_ok(), is_read, "{bytes}");
        }
        assert!(guest.read("hop3").await.is_ok());
        assert!(guest.read("hop2").await.is_err());
        assert!(guest.read("").await.is_err());
        assert!(guest.read("f\0").await.is_err());
    }
}

#[tokio::test]
async fn what_is_opened_to_be_emptied_is_empty() {
    for mut guest in tree().both("write") {
        let fd = guest.open("f", OpenFlags::TRUNCATE, DescriptorFlags::WRITE).await;
        guest.close(fd.unwrap());
        assert!(guest.read("f").await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn nothing_moves_between_an_overlay_and_a_directory() {
    use toolcell_core::policy::{DirAccess, DirGrant};

    let (layered, plain) = (tree(), tree());
    let grant = |tree: &Tree, guest: &str, overlay| DirGrant {
        host: tree.host.clone(),
        guest: guest.into(),
        access: DirAccess::WRITE,
        overlay,
    };
    let overlay = layered.dir.path().join("changes");
    let dirs = vec![
        grant(&layered, "/layered", Some(overlay)),
        grant(&plain, "/plain", None),
    ];
    let mut guest = Guest::granted(dirs, &Limits::default(), toolcell_core::Denials::default());
    for (from, to) in [(0, 1), (1, 0)] {
        let renamed = guest.rename((from, "f"), (to, "g")).await;
        assert!(matches!(renamed, Err(ErrorCode::CrossDevice)), "{from}");
        let linked = guest.link((from, "f"), (to, "g")).await;
        assert!(matches!(linked, Err(ErrorCode::CrossDevice)), "{from}");
    }
    assert!(!layered.host.join("g").exists() && !plain.host.join("g").exists());
}

#[tokio::test]
async fn listing_has_the_type_of_each_entry() {
    use wasmtime::component::Resource;
    use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, HostDirectoryEntryStream};

    for mut guest in tree().both("write") {
        guest.mkdir("new").await.unwrap();
        let flags = DescriptorFlags::READ;
        let root = guest.open(".", OpenFlags::DIRECTORY, flags).await.unwrap();
        let stream = code(guest.view().read_directory(root).await).unwrap();
        let mut found = Vec::new();
        loop {
            let stream = Resource::new_borrow(stream.rep());
            match code(guest.view().read_directory_entry(stream).await).unwrap() {
                Some(entry) => found.push((entry.name, entry.type_)),
                None => break,
            }
        }
        HostDirectoryEntryStream::drop(&mut guest.view(), stream).unwrap();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["d", "f", "new", "nowhere"]);
        assert!(matches!(
            found.iter().map(|(_, kind)| *kind).collect::<Vec<_>>()[..],
            [
                DescriptorType::Directory,
                DescriptorType::RegularFile,
                DescriptorType::Directory,
                DescriptorType::SymbolicLink,
            ]
        ));
    }
}

#[tokio::test]
async fn denial_names_the_grant_with_the_missing_right() {
    let tree = tree();
    let mut guest = tree.plain("read");
    assert!(guest.write("new", b"x").await.is_err());
    let (_, allow_with) = guest.denials().remove(0);
    let expected = format!("read+create={}:/w", tree.host.display());
    assert_eq!(allow_with.as_deref(), Some(expected.as_str()));
}

#[tokio::test]
async fn walk_enters_at_most_1024_directories() {
    let tree = tree();
    fs::create_dir_all(tree.host.join("a/b/c")).unwrap();
    for file in ["a/b/f", "a/b/c/f"] {
        fs::write(tree.host.join(file), "x").unwrap();
    }
    let mut guest = tree.plain("read");
    // `a` once, and twice for each `..`: `b`, and `a` again from the top.
    let path = format!("a/{}", "b/../".repeat(511));
    guest.stat(&format!("{path}b/f")).await.unwrap();
    let beyond = guest.stat(&format!("{path}b/c/f")).await;
    assert_eq!(beyond.map(drop), Err(ErrorCode::NameTooLong));
}

#[tokio::test]
async fn location_and_guest_path_have_up_to_4096_bytes() {
    let tree = tree();
    let mut guest = tree.plain("read");
    // The guest path of the granted directory is `/w`.
    let missing = |bytes: usize| format!("{}{}", "x/".repeat(2_000), "y".repeat(bytes - 4_003));
    for (bytes, error) in [(4_096, ErrorCode::NoEntry), (4_097, ErrorCode::NameTooLong)] {
        let path = missing(bytes);
        assert_eq!("/w/".len() + path.len(), bytes);
        assert_eq!(guest.stat(&path).await.map(drop), Err(error));
    }
    // A link makes a short path lead to a long location.
    let mut deep = format!("{}/", "n".repeat(255)).repeat(15);
    deep.push_str("n".repeat(10).as_str());
    fs::create_dir_all(tree.host.join(&deep)).unwrap();
    symlink(&deep, tree.host.join("short")).unwrap();
    for (bytes, error) in [(4_096, ErrorCode::NoEntry), (4_097, ErrorCode::NameTooLong)] {
        let name = "m".repeat(bytes - deep.len() - 1);
        assert_eq!(
            guest.stat(&format!("short/{name}")).await.map(drop),
            Err(error),
            "{bytes}"
        );
    }
}

#[tokio::test]
async fn empty_path_is_no_entry_of_a_directory() {
    for mut guest in tree().both("read") {
        assert_eq!(guest.stat("").await.map(drop), Err(ErrorCode::NoEntry));
    }
}

#[tokio::test]
async fn open_file_states_what_it_was_opened_for() {
    let tree = tree();
    let mut guest = tree.plain("write");
    let (read, write) = (DescriptorFlags::READ, DescriptorFlags::WRITE);
    for flags in [read, write, read | write] {
        let fd = guest.open("f", OpenFlags::empty(), flags).await.unwrap();
        let stated = code(guest.view().get_flags(borrow(&fd)).await).unwrap();
        assert_eq!(stated & (read | write), flags);
    }
}

#[test]
fn file_that_appears_meanwhile_is_opened_unless_it_must_be_new() {
    use crate::files::view::has_appeared;
    for (error, exclusive, is_opened) in [
        (ErrorCode::Exist, false, true),
        (ErrorCode::Exist, true, false),
        (ErrorCode::Access, false, false),
        (ErrorCode::Access, true, false),
    ] {
        assert_eq!(
            has_appeared(&error.into(), exclusive),
            is_opened,
            "{error:?} {exclusive}"
        );
    }
}

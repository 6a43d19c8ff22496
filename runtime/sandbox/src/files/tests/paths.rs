//! Each operation answers a path of any spelling with the same code, with and without an overlay.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use toolcell_core::policy::Limits;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor, NewTimestamp, OpenFlags, PathFlags,
};

use super::guest::{Guest, code};

/// Spellings of what exists and what does not: a file `f`, a directory `d` with a file, an empty directory `e`, and
/// links to each of them, to nothing, to itself and out.
const PATHS: &str = "f f/ f/x f/. f/.. ./f d//f d/../f d d/ d/. d/.. d/f d/f/ e e/ new new/ new/x new/. new/.. d/new \
                     d/new/ lf lf/ lf/x ld ld/ ld/f ld/new nowhere nowhere/ nowhere/x slash loop loop/ loop/x out out/ \
                     out/x . ./ .. ../x d/../.. /f";

const OPERATIONS: &[&str] = &[
    "stat",
    "stat link",
    "hash",
    "read",
    "read entry",
    "read dir",
    "create",
    "create new",
    "truncate",
    "write",
    "mkdir",
    "unlink",
    "rmdir",
    "rename file",
    "rename dir",
    "rename to",
    "link",
    "link to",
    "symlink",
    "readlink",
    "times",
    "times of link",
    "list",
];

/// Those that change nothing.
const LOOKS: &[&str] = &[
    "stat",
    "stat link",
    "hash",
    "read",
    "read entry",
    "read dir",
    "readlink",
    "list",
];

fn plant(host: &Path) {
    fs::create_dir_all(host.join("d")).unwrap();
    fs::create_dir_all(host.join("e")).unwrap();
    for file in ["f", "g", "d/f"] {
        fs::write(host.join(file), "x").unwrap();
    }
    for (target, link) in [
        ("f", "lf"),
        ("d", "ld"),
        ("missing", "nowhere"),
        ("f/", "slash"),
        ("loop", "loop"),
        ("../x", "out"),
    ] {
        symlink(target, host.join(link)).unwrap();
    }
}

/// Performs an operation, and returns the code that the guest sees.
async fn run(guest: &mut Guest, operation: &str, path: &str) -> Result<(), ErrorCode> {
    let (root, own) = (guest.root(0), path.to_owned());
    let (empty, follow) = (PathFlags::empty(), PathFlags::SYMLINK_FOLLOW);
    let now = || NewTimestamp::Now;
    let open = |flags, oflags, rights| (flags, oflags, rights);
    let opening = match operation {
        "read" => open(follow, OpenFlags::empty(), DescriptorFlags::READ),
        "read entry" => open(empty, OpenFlags::empty(), DescriptorFlags::READ),
        "read dir" => open(follow, OpenFlags::DIRECTORY, DescriptorFlags::READ),
        "create" => open(follow, OpenFlags::CREATE, DescriptorFlags::WRITE),
        "create new" => open(
            follow,
            OpenFlags::CREATE | OpenFlags::EXCLUSIVE,
            DescriptorFlags::WRITE,
        ),
        "truncate" => open(follow, OpenFlags::TRUNCATE, DescriptorFlags::WRITE),
        "write" => open(follow, OpenFlags::empty(), DescriptorFlags::WRITE),
        _ => open(empty, OpenFlags::empty(), DescriptorFlags::empty()),
    };
    match operation {
        "stat" => code(guest.view().stat_at(root, follow, own).await).map(drop),
        "stat link" => code(guest.view().stat_at(root, empty, own).await).map(drop),
        "hash" => guest.hash(path).await,
        "mkdir" => guest.mkdir(path).await,
        "unlink" => guest.unlink(path).await,
        "rmdir" => guest.rmdir(path).await,
        "rename file" => guest.rename((0, path), (0, "elsewhere")).await,
        "rename dir" => {
            let _ = guest.mkdir("made").await;
            guest.rename((0, "made"), (0, path)).await
        }
        "rename to" => guest.rename((0, "g"), (0, path)).await,
        "link" => guest.link((0, path), (0, "elsewhere")).await,
        "link to" => guest.link((0, "g"), (0, path)).await,
        "symlink" => guest.symlink("f", path).await,
        "readlink" => code(guest.view().readlink_at(root, own).await).map(drop),
        "times" => code(guest.view().set_times_at(root, follow, own, now(), now()).await),
        "times of link" => code(guest.view().set_times_at(root, empty, own, now(), now()).await),
        "list" => guest.list(path).await.map(drop),
        _ => {
            let (flags, oflags, rights) = opening;
            code(guest.view().open_at(root, flags, own, oflags, rights).await).map(drop)
        }
    }
}

/// The same directory twice: as it is, and with an overlay.
struct Pair {
    _dirs: [tempfile::TempDir; 3],
    plain: Guest,
    layered: Guest,
}

impl Pair {
    fn new() -> Self {
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [plain, host, overlay] = &dirs;
        plant(plain.path());
        plant(host.path());
        Self {
            plain: Guest::new(&[(plain.path(), "/w", "write")]),
            layered: Guest::layered(host.path(), overlay.path(), "write", &Limits::default()),
            _dirs: dirs,
        }
    }
}

#[tokio::test]
async fn overlay_answers_each_path_like_the_directory_itself() {
    let mut differences = Vec::new();
    let long = "n".repeat(300);
    for path in PATHS.split(' ').chain(["", "f\0", &long]) {
        let mut pair = Pair::new();
        for operation in OPERATIONS {
            let theirs = run(&mut pair.plain, operation, path).await;
            let ours = run(&mut pair.layered, operation, path).await;
            // Directories of the lower layer are copied by the program instead.
            let is_copied = operation.starts_with("rename") && ours == Err(ErrorCode::CrossDevice);
            if theirs != ours && !is_copied {
                differences.push(format!(
                    "{operation} `{path}`: {theirs:?}, with an overlay {ours:?}"
                ));
            }
            if !LOOKS.contains(operation) && (theirs.is_ok() || ours.is_ok()) {
                pair = Pair::new();
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

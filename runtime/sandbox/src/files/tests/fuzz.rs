//! Fuzz targets for sequences of file operations, against a model of what they may reach: a writable directory, a
//! readable one, and a surrounding tree with denied paths, which must be unchanged after any sequence and never read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use toolcell_core::Policy;
use toolcell_core::policy::{DirGrant, Limits};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, HostDescriptor, HostDirectoryEntryStream, NewTimestamp, OpenFlags, PathFlags,
};

use super::guest::{Fd, Guest, access, borrow};
use crate::fuzz_runner::Target;

/// Content of each file outside of the grants.
const CANARY: &str = "nothing that a guest may read";

/// Denied paths of the granted directory.
const DENIED: [&str; 2] = ["inside/private", "inside/dir/denied"];

/// Maximum number of operations of one sequence.
const MAX_OPERATIONS: usize = 40;

/// Maximum number of open directories in addition to the granted ones.
const MAX_OPEN: usize = 6;

const WORDS: &[&str] = &[
    "open 0 ",
    "dir 0 ",
    "new 0 ",
    "read 0 ",
    "write 0 ",
    "stat 0 ",
    "list 0 ",
    "mkdir 0 ",
    "rmdir 0 ",
    "unlink 0 ",
    "rename 0 ",
    "link 0 ",
    "symlink 0 ",
    "readlink 0 ",
    "resize 0 ",
    "times 0 ",
    "close 2",
    " 0 ",
    " 1 ",
    " 2 ",
    " 3 ",
    "\n",
    "/",
    "..",
    ".",
    "../",
    "a",
    "b",
    "file",
    "sub",
    "sub/deep",
    "sub/deep/up2",
    "sub/up1",
    "out",
    "up",
    "loop",
    "absolute",
    "outside",
    "../outside",
    "../outside/outside-canary",
    "readable",
    "b/up2",
    "private",
    "private/outside-canary",
    "dir/denied",
    "//",
    "./",
];

/// The tree of one sequence: `inside` and `readable`, which are granted, and their surroundings.
struct Tree {
    root: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = |below: &str| root.path().join(below);
        for dir in [
            "inside/sub/deep",
            "inside/b",
            "inside/private/dir",
            "inside/dir",
            "readable/dir",
            "outside/outside-dir",
            "overlay",
        ] {
            fs::create_dir_all(path(dir)).unwrap();
        }
        for file in [
            "outside-file",
            "outside/outside-canary",
            "outside/outside-dir/outside-canary",
            "inside/private/outside-canary",
            "inside/private/dir/outside-canary",
            "inside/dir/denied",
        ] {
            fs::write(path(file), CANARY).unwrap();
        }
        for dir in [
            "",
            "outside",
            "outside/outside-dir",
            "inside/private",
            "inside/private/dir",
        ] {
            fs::write(path(dir).join(unlisted(root.path())), CANARY).unwrap();
        }
        for file in [
            "inside/file",
            "inside/sub/file",
            "readable/file",
            "readable/dir/file",
        ] {
            fs::write(path(file), "granted").unwrap();
        }
        // Links that a user may have: some lead out from their location, some would from elsewhere.
        for (target, link) in [
            ("../outside/outside-canary", "inside/out"),
            ("..", "inside/up"),
            ("loop", "inside/loop"),
            ("../file", "inside/sub/up1"),
            ("../../file", "inside/sub/deep/up2"),
            ("../../../outside-file", "inside/sub/deep/out3"),
            ("../outside", "readable/out"),
        ] {
            symlink(target, path(link)).unwrap();
        }
        symlink(path("outside/outside-canary"), path("inside/absolute")).unwrap();
        Self { root }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// State of the tree except below the directory named `but`, where only denied files count: type, times, link count
    /// and content.
    fn snapshot(&self, but: &str) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        let mut add = |path: &Path, metadata: &fs::Metadata| {
            if path == self.path(but) {
                return false;
            }
            let content = if metadata.is_symlink() {
                fs::read_link(path).unwrap().display().to_string()
            } else if metadata.is_file() {
                fs::read_to_string(path).unwrap_or_default()
            } else {
                String::new()
            };
            let (mode, links) = (metadata.mode(), metadata.nlink());
            let state = format!(
                "{mode:o} {links} {}.{} {content}",
                metadata.mtime(),
                metadata.mtime_nsec()
            );
            all.insert(path.to_owned(), state);
            true
        };
        walk(self.root.path(), &mut add);
        for denied in DENIED {
            let path = self.path(denied);
            add(&path, &fs::symlink_metadata(&path).expect("what is denied stays"));
            walk(&path, &mut add);
        }
        all
    }

    /// Symbolic links below a directory whose target is outside of it, resolved from the link.
    fn links_out(&self, of: &str) -> BTreeSet<(PathBuf, PathBuf)> {
        let mut links = BTreeSet::new();
        let top = self.path(of);
        walk(&top, &mut |path, metadata| {
            if metadata.is_symlink() {
                let target = fs::read_link(path).unwrap();
                let below = path.parent().and_then(|dir| dir.strip_prefix(&top).ok()).unwrap();
                if leads_out(below, &target) {
                    links.insert((path.to_owned(), target));
                }
            }
            true
        });
        links
    }
}

/// Name of a file in each directory without a grant. It differs between trees, so that no guest uses it for its own
/// file.
fn unlisted(root: &Path) -> String {
    root.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Visits everything below a directory, and descends where the visitor returns `true`.
fn walk(dir: &Path, visit: &mut impl FnMut(&Path, &fs::Metadata) -> bool) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        if visit(&path, &metadata) && metadata.is_dir() {
            walk(&path, visit);
        }
    }
}

/// Returns `true` if a target goes above the top, resolved from the directory `below` the top.
fn leads_out(below: &Path, target: &Path) -> bool {
    use std::path::Component;
    let mut depth = below.components().count();
    for part in target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return true,
        }
    }
    false
}

/// A guest, its open directories, and the results of its operations.
struct Run {
    guest: Guest,
    open: Vec<Fd>,
    done: BTreeSet<&'static str>,
    unlisted: String,
}

impl Run {
    /// Returns a directory by its number: the granted ones first, then opened ones.
    fn dir(&self, number: &str) -> Fd {
        let number: usize = number.parse().unwrap_or(0);
        match number {
            0 | 1 => self.guest.root(number),
            _ if self.open.is_empty() => self.guest.root(0),
            _ => borrow(&self.open[(number - 2) % self.open.len()]),
        }
    }

    /// Runs one line: a verb, the number of a directory, a path; optionally a second pair of these.
    async fn operation(&mut self, line: &str) {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap_or_default();
        let (verb, dir, path, dir2, path2) = (next(), next(), next(), next(), next());
        let (fd, other) = (self.dir(dir), self.dir(dir2));
        let (path, path2) = (path.to_owned(), path2.to_owned());
        let follow = if dir.ends_with('f') {
            PathFlags::empty()
        } else {
            PathFlags::SYMLINK_FOLLOW
        };
        let read_write = DescriptorFlags::READ | DescriptorFlags::WRITE;
        let mut view = self.guest.view();
        let done = match verb {
            "dir" => {
                let flags = if dir2 == "w" {
                    DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY
                } else {
                    DescriptorFlags::READ
                };
                let opened = view.open_at(fd, follow, path, OpenFlags::DIRECTORY, flags).await;
                opened.map(|fd| {
                    if self.open.len() < MAX_OPEN {
                        self.open.push(fd);
                    } else {
                        self.guest.close(fd);
                    }
                    "dir"
                })
            }
            "read" => match view
                .open_at(fd, follow, path, OpenFlags::empty(), DescriptorFlags::READ)
                .await
            {
                Ok(file) => {
                    let read = view.read(borrow(&file), 1 << 16, 0).await;
                    self.guest.close(file);
                    read.map(|(bytes, _)| {
                        let text = String::from_utf8_lossy(&bytes);
                        assert!(!text.contains(CANARY), "read: {line:?}");
                        "read"
                    })
                }
                Err(error) => Err(error),
            },
            "new" | "write" | "resize" => {
                let (oflags, flags) = match verb {
                    "new" if dir2 == "x" => (OpenFlags::CREATE | OpenFlags::EXCLUSIVE, read_write),
                    "new" => (OpenFlags::CREATE | OpenFlags::TRUNCATE, DescriptorFlags::WRITE),
                    _ => (OpenFlags::empty(), read_write),
                };
                match view.open_at(fd, follow, path, oflags, flags).await {
                    Ok(file) => {
                        let written = if verb == "resize" {
                            view.set_size(borrow(&file), 7).await
                        } else {
                            view.write(borrow(&file), b"written".to_vec(), 0).await.map(drop)
                        };
                        self.guest.close(file);
                        written.map(|()| "write")
                    }
                    Err(error) => Err(error),
                }
            }
            "stat" => view.stat_at(fd, follow, path).await.map(|stat| {
                assert_ne!(stat.size, CANARY.len() as u64, "stat: {line:?}");
                "stat"
            }),
            "list" => match view
                .open_at(fd, follow, path, OpenFlags::DIRECTORY, DescriptorFlags::READ)
                .await
            {
                Ok(dir) => {
                    let listed = view.read_directory(borrow(&dir)).await;
                    if let Ok(stream) = listed {
                        let rep = stream.rep();
                        while let Ok(Some(entry)) = view
                            .read_directory_entry(wasmtime::component::Resource::new_borrow(rep))
                            .await
                        {
                            assert_ne!(entry.name, self.unlisted, "list: {line:?}");
                        }
                        HostDirectoryEntryStream::drop(&mut view, stream).unwrap();
                    }
                    self.guest.close(dir);
                    Ok("list")
                }
                Err(error) => Err(error),
            },
            "mkdir" => view.create_directory_at(fd, path).await.map(|()| "mkdir"),
            "rmdir" => view.remove_directory_at(fd, path).await.map(|()| "rmdir"),
            "unlink" => view.unlink_file_at(fd, path).await.map(|()| "unlink"),
            "rename" => view.rename_at(fd, path, other, path2).await.map(|()| "rename"),
            "link" => {
                let flags = if dir.ends_with('f') {
                    PathFlags::SYMLINK_FOLLOW
                } else {
                    PathFlags::empty()
                };
                view.link_at(fd, flags, path, other, path2).await.map(|()| "link")
            }
            "symlink" => view.symlink_at(fd, path2, path).await.map(|()| "symlink"),
            "readlink" => view.readlink_at(fd, path).await.map(|_| "readlink"),
            "times" => {
                let now = NewTimestamp::Now;
                view.set_times_at(fd, follow, path, now, NewTimestamp::NoChange)
                    .await
                    .map(|()| "times")
            }
            "close" => {
                if !self.open.is_empty() {
                    let fd = self.open.swap_remove(dir.len() % self.open.len());
                    self.guest.close(fd);
                }
                return;
            }
            _ => return,
        };
        match done {
            Ok(done) => drop(self.done.insert(done)),
            // Every error has a code for the guest; any other error would end the call.
            Err(error) => drop(error.downcast().expect("no trap")),
        }
    }
}

/// Runs a sequence, one operation a line, and checks the invariants after it.
async fn sequence(input: &[u8], layered: bool) -> String {
    let tree = Tree::new();
    // Without an overlay `inside` may change, with one the overlay.
    let changeable = if layered { "overlay" } else { "inside" };
    let (before, links_before) = (tree.snapshot(changeable), tree.links_out(changeable));
    let grant = |name: &str, rights: &str, overlay| DirGrant {
        host: tree.path(name),
        guest: format!("/{name}"),
        access: access(rights),
        overlay,
    };
    let overlay = layered.then(|| tree.path("overlay"));
    let grants = vec![grant("inside", "write", overlay), grant("readable", "read", None)];
    let denied = DENIED.map(|path| format!("deny={}", tree.path(path).display()));
    let denied = Policy::granting(denied.iter().map(String::as_str))
        .unwrap()
        .grants
        .denied;
    let mut run = Run {
        guest: Guest::granted(grants, &Limits::default(), denied),
        open: Vec::new(),
        done: BTreeSet::new(),
        unlisted: unlisted(tree.root.path()),
    };
    let text = String::from_utf8_lossy(input);
    for line in text.lines().take(MAX_OPERATIONS) {
        run.operation(line).await;
    }
    let done = run.done.clone();
    drop(run);
    assert_eq!(tree.snapshot(changeable), before, "outside changed: {text:?}");
    let planted: Vec<_> = tree
        .links_out(changeable)
        .difference(&links_before)
        .cloned()
        .collect();
    assert!(planted.is_empty(), "links that lead out: {planted:?} by {text:?}");
    done.into_iter().collect::<Vec<_>>().join("+")
}

const SEEDS: [&str; 9] = [
    "read 0 private/outside-canary\nlist 0 private\nstat 0 dir/denied\nlink 0 dir/denied 0 a\nrename 0 dir 0 a\nnew 0 private/a\nunlink 0 dir/denied",
    "dir 0 sub\nread 2 file\nlist 0 .\nstat 0 file\nwrite 0 file\nresize 0 file",
    "new 0 a\nrename 0 a 0 sub/a\nunlink 0 sub/a\nmkdir 0 c\nrmdir 0 c",
    "rename 0 sub/deep 0 b\nreadlink 0 b/up2\nread 0 b/up2",
    "link 0 sub/up1 0 up1\nlink 0f out 0 a\nread 0 a",
    "symlink 0 a sub/deep/up2\nread 0 a\nrename 0 sub/up1 0 up1",
    "dir 0 sub w\ndir 2 deep w\nrename 3 up2 0 up2\nrename 0 sub 0 b/sub\nread 3 ../file",
    "read 0 ../outside/outside-canary\nlist 0 up\nlist 0 up/outside\nread 0 absolute\nnew 0 up/a",
    "rename 1 file 0 a\nlink 1 file 0 a\nnew 1 a\nread 1 out/outside-canary\ntimes 1 file\nnew 0 a x",
];

fn fuzz(target: Target<'_>, layered: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let tried = target
        .seeds(SEEDS)
        .words(WORDS)
        .run(|input| runtime.block_on(sequence(input, layered)));
    assert!(tried.outcomes.len() > 8, "{tried:?}");
}

#[test]
fn fuzz_operations_reach_only_granted_files() {
    let target = Target::new("files", 600);
    fuzz(target, false);
}

#[test]
fn fuzz_operations_on_overlay_change_only_overlay() {
    let target = Target::new("overlay", 600);
    fuzz(target, true);
}

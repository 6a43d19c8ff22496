//! Entries of an overlay that cannot be inspected or committed: they are skipped, without effect on all others.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::files::overlay::{
    Changes, CommitOptions, OnConflict, Version, changes, commit, conflicts, discard, versions,
};

struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        let scratch = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(scratch.host()).unwrap();
        fs::create_dir_all(scratch.upper()).unwrap();
        fs::write(scratch.upper().join("good"), "new").unwrap();
        scratch
    }

    fn host(&self) -> PathBuf {
        self.dir.path().join("host")
    }

    fn overlay(&self) -> PathBuf {
        self.dir.path().join("changes")
    }

    fn upper(&self) -> PathBuf {
        self.overlay().join("upper")
    }

    fn changes(&self) -> Changes {
        changes(&self.host(), &self.overlay(), &CommitOptions::default()).unwrap()
    }

    fn commit(&self) -> Changes {
        commit(
            &self.host(),
            &self.overlay(),
            OnConflict::Refuse,
            &CommitOptions::default(),
        )
        .unwrap()
    }
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

fn found(changes: &Changes) -> Vec<&Path> {
    changes.found.iter().map(|change| change.path.as_path()).collect()
}

fn skipped(changes: &Changes) -> Vec<&Path> {
    changes.skipped.iter().map(|one| one.path.as_path()).collect()
}

#[test]
fn pipes_and_sockets_are_skipped_and_the_rest_is_committed() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.upper().join("d")).unwrap();
    fifo(&scratch.upper().join("d/pipe"));
    fs::write(scratch.upper().join("d/file"), "x").unwrap();
    let _socket = UnixListener::bind(scratch.upper().join("socket")).unwrap();

    let listed = scratch.changes();
    assert_eq!(found(&listed), ["d", "d/file", "good"].map(Path::new));
    assert_eq!(skipped(&listed), ["d/pipe", "socket"].map(Path::new));

    let done = scratch.commit();
    assert_eq!(skipped(&done), ["d/pipe", "socket"].map(Path::new));
    for (path, content) in [("good", "new"), ("d/file", "x")] {
        assert_eq!(fs::read_to_string(scratch.host().join(path)).unwrap(), content);
    }
    // Skipped entries are kept, still listed, and can be discarded.
    assert_eq!(found(&scratch.changes()), [] as [&Path; 0]);
    assert_eq!(skipped(&scratch.commit()), ["d/pipe", "socket"].map(Path::new));
    discard(&scratch.host(), &scratch.overlay()).unwrap();
    assert_eq!(skipped(&scratch.changes()), [] as [&Path; 0]);
}

#[test]
fn pipe_in_the_directory_itself_is_replaced_and_not_read() {
    let scratch = Scratch::new();
    fifo(&scratch.host().join("good"));
    assert_eq!(found(&scratch.changes()), ["good"].map(Path::new));
    let done = commit(
        &scratch.host(),
        &scratch.overlay(),
        OnConflict::Overwrite,
        &CommitOptions::default(),
    )
    .unwrap();
    assert_eq!(skipped(&done), [] as [&Path; 0]);
    assert_eq!(fs::read_to_string(scratch.host().join("good")).unwrap(), "new");
}

#[test]
fn non_utf8_names_are_committed() {
    let scratch = Scratch::new();
    let name = OsStr::from_bytes(b"\xff\n? y");
    fs::write(scratch.upper().join(name), "odd").unwrap();
    assert_eq!(found(&scratch.commit()), [Path::new("good"), Path::new(name)]);
    assert_eq!(fs::read_to_string(scratch.host().join(name)).unwrap(), "odd");
}

#[test]
fn files_are_compared_up_to_their_last_byte() {
    let scratch = Scratch::new();
    let long = vec![b'x'; 100_000];
    let mut other = long.clone();
    other[99_999] = b'y';
    for (name, old, new) in [("same", &long, &long), ("other", &long, &other)] {
        fs::write(scratch.host().join(name), old).unwrap();
        fs::write(scratch.upper().join(name), new).unwrap();
    }
    assert_eq!(found(&scratch.changes()), ["good", "other"].map(Path::new));
}

#[test]
fn directories_beyond_a_depth_are_skipped() {
    let scratch = Scratch::new();
    let mut deep = PathBuf::new();
    for _ in 0..201 {
        deep.push("d");
    }
    fs::create_dir_all(scratch.upper().join(&deep)).unwrap();
    let listed = scratch.changes();
    assert_eq!(listed.found.len(), 202);
    assert_eq!(skipped(&listed), [deep.as_path()]);
}

#[test]
fn unreadable_overlay_is_an_error_and_not_without_changes() {
    let (scratch, options) = (Scratch::new(), CommitOptions::default());
    let (host, none, file) = (
        scratch.host(),
        scratch.dir.path().join("none"),
        scratch.dir.path().join("file"),
    );
    fs::write(&file, "").unwrap();
    let good = Path::new("good");
    assert_eq!(found(&changes(&host, &none, &options).unwrap()), [] as [&Path; 0]);
    assert_eq!(conflicts(&host, &none, &options).unwrap(), [] as [PathBuf; 0]);
    assert_eq!(
        versions(&host, &none, good, 10).unwrap(),
        (Version::Nothing, Version::Nothing)
    );
    discard(&host, &none).unwrap();
    assert!(!none.exists(), "nothing is made");

    // The overlay, or its layer of changes, is a file.
    let odd = scratch.dir.path().join("odd");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("upper"), "").unwrap();
    for overlay in [&file, &odd] {
        assert!(changes(&host, overlay, &options).is_err(), "{overlay:?}");
        assert!(conflicts(&host, overlay, &options).is_err(), "{overlay:?}");
        assert!(versions(&host, overlay, good, 10).is_err(), "{overlay:?}");
        let committed = commit(&host, overlay, OnConflict::Overwrite, &options);
        assert!(committed.is_err(), "{overlay:?}");
    }
    assert!(discard(&host, &file).is_err());
}

#[test]
fn version_of_a_path_through_a_file_is_nothing() {
    let scratch = Scratch::new();
    fs::write(scratch.host().join("f"), "old").unwrap();
    let of = |path: &str| versions(&scratch.host(), &scratch.overlay(), Path::new(path), 10);
    let new = Version::File {
        len: 3,
        bytes: Some(b"new".to_vec()),
    };
    assert_eq!(of("f/x").unwrap(), (Version::Nothing, Version::Nothing));
    assert_eq!(of("good").unwrap(), (Version::Nothing, new));
    let long = "n".repeat(300);
    for path in [long.clone(), format!("{long}/x")] {
        assert_eq!(
            of(&path).unwrap_err().raw_os_error(),
            Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()),
            "{path}"
        );
    }
}

/// An overlay lies where other programs write as well.
#[test]
fn notes_that_others_replaced_are_none_and_wait_for_nobody() {
    let scratch = Scratch::new();
    let base = scratch.overlay().join("base");
    fs::create_dir_all(&base).unwrap();
    let (host, overlay, base_of) = (scratch.host(), scratch.overlay(), base.clone());
    let (sender, done) = std::sync::mpsc::channel();
    fifo(&base.join("good"));
    std::thread::spawn(move || {
        sender
            .send(conflicts(&host, &overlay, &CommitOptions::default()))
            .unwrap();
        fs::remove_file(base_of.join("good")).unwrap();
        std::os::unix::fs::symlink("other", base_of.join("good")).unwrap();
        fs::write(base_of.join("other"), "f").unwrap();
        sender
            .send(conflicts(&host, &overlay, &CommitOptions::default()))
            .unwrap();
    });
    for what in ["a pipe", "a link"] {
        let found = done.recv_timeout(std::time::Duration::from_secs(10));
        let found = found.unwrap_or_else(|_| panic!("it waits for {what}")).unwrap();
        assert_eq!(found, Vec::<PathBuf>::new(), "{what}");
    }
    // One that is longer than any of ours differs from everything.
    fs::remove_file(base.join("good")).unwrap();
    fs::write(base.join("good"), "f".repeat(1_000)).unwrap();
    let found = conflicts(&scratch.host(), &scratch.overlay(), &CommitOptions::default()).unwrap();
    assert_eq!(found, [Path::new("good")]);
}
